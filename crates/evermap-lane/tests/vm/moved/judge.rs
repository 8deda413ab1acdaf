//! Compares the files after a power cut with the promise, then recovers, takes all files back, and
//! checks that nothing remains.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use evermap_lane::tier::{Health, Journal, Keep, Recovered, Watch, back, recover, verify};

use super::{BYTES, FILES, JOURNAL, Location, Promise, TIER, contents, path};

/// Checks everything. Returns a number that encodes the state found, to count distinct outcomes.
pub fn judge(promise: Promise) -> Result<u64, String> {
    check_contents(promise, "before recovery")?;
    let journal = Journal::find(Path::new(JOURNAL)).map_err(|error| error.to_string())?;
    let mut recovered = Recovered::default();
    if let Some(journal) = &journal {
        recovered = recover_twice(journal)?;
        check_contents(promise, "after recovery")?;
        check_places(promise)?;
        check_health(journal, promise)?;
    }
    let found = number_of(&recovered);
    if let Some(journal) = &journal {
        take_back(journal, promise)?;
    }
    check_contents(promise, "taken back")?;
    check_rest(promise)?;
    Ok(found)
}

/// Checks that each path leads to its contents.
fn check_contents(promise: Promise, when: &str) -> Result<(), String> {
    for (file, (number, at)) in promise.0.into_iter().enumerate() {
        if at == Location::Absent {
            continue;
        }
        let path = path(file);
        let found =
            fs::read(&path).map_err(|error| format!("{when}: {}: {error}", path.display()))?;
        if found.len() != BYTES[file] {
            return Err(format!("{when}: {} has {} bytes", path.display(), found.len()));
        }
        if at != Location::Written && found != contents(file, number) {
            return Err(format!("{when}: {} is not contents {number}", path.display()));
        }
    }
    Ok(())
}

/// Recovers twice, and checks that the second run changes nothing.
fn recover_twice(journal: &Journal) -> Result<Recovered, String> {
    let recovered = recover(journal).map_err(|error| error.to_string())?;
    if !recovered.is_complete() {
        return Err(format!("recovery is incomplete: {recovered:?}"));
    }
    let again = recover(journal).map_err(|error| error.to_string())?;
    match again.is_complete() && again.placed.is_empty() && again.returned.is_empty() {
        true => Ok(recovered),
        false => Err(format!("recovery is not idempotent: {again:?}")),
    }
}

/// Checks that files are where the promise says.
fn check_places(promise: Promise) -> Result<(), String> {
    for (file, (_, at)) in promise.0.into_iter().enumerate() {
        let path = path(file);
        let is_right = match at {
            Location::Home => !path.is_symlink(),
            Location::Placed => path.is_symlink() && kept(&path).exists(),
            Location::Alone => path.is_symlink() && !kept(&path).exists(),
            Location::Absent | Location::Written | Location::Moving => true,
        };
        if !is_right {
            return Err(format!("{} is not {}", path.display(), at.name()));
        }
    }
    Ok(())
}

fn kept(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap());
    name.push(".lane-orig");
    path.with_file_name(name)
}

fn check_health(journal: &Journal, promise: Promise) -> Result<(), String> {
    let checked =
        verify(Some(journal), None, &Watch::default()).map_err(|error| error.to_string())?;
    for one in checked {
        // A file that was being written may be partly new, with an old modification time.
        let is_written = (0..BYTES.len())
            .any(|file| path(file) == one.path && promise.0[file].1 == Location::Written);
        if !is_written && !matches!(one.health, Health::Sound | Health::Modified) {
            return Err(format!("{}: {:?}: {}", one.path.display(), one.health, one.what));
        }
    }
    Ok(())
}

/// Encodes which files are links, and which were placed or returned by recovery.
fn number_of(recovered: &Recovered) -> u64 {
    (0..BYTES.len()).map(path).fold(0, |number, path| {
        let is = [
            path.is_symlink(),
            recovered.placed.contains(&path),
            recovered.returned.contains(&path),
        ];
        is.into_iter().fold(number, |number, is| number << 1 | u64::from(is))
    })
}

fn take_back(journal: &Journal, promise: Promise) -> Result<(), String> {
    for path in journal.files().map_err(|error| error.to_string())? {
        let path = path.map_err(|error| error.to_string())?;
        let is_written = (0..BYTES.len())
            .any(|file| self::path(file) == path && promise.0[file].1 == Location::Written);
        let keep = if is_written { Keep::Copy } else { Keep::Neither };
        back(Some(journal), None, &path, keep, &Watch::default())
            .map_err(|error| format!("cannot take back {}: {error}", path.display()))?;
        if path.is_symlink() {
            return Err(format!("{} is still a link", path.display()));
        }
    }
    match journal.files().map_err(|error| error.to_string())?.len() {
        0 => Ok(()),
        left => Err(format!("the journal still has {left} files")),
    }
}

/// Checks that no files of the moves remain, on either file system.
fn check_rest(promise: Promise) -> Result<(), String> {
    let mut left = files_below(Path::new(TIER));
    left.extend(files_below(Path::new(FILES)));
    for file in left {
        if !(0..BYTES.len()).any(|number| path(number) == file) {
            return Err(format!("{} is left over", file.display()));
        }
    }
    let is_missing =
        |file: &usize| promise.0[*file].1 != Location::Absent && !path(*file).is_file();
    match (0..BYTES.len()).find(is_missing) {
        Some(file) => Err(format!("{} is missing", path(file).display())),
        None => Ok(()),
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut due = vec![directory.to_path_buf()];
    while let Some(directory) = due.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => due.push(path),
                false => files.push(path),
            }
        }
    }
    files
}
