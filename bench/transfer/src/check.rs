//! Compares a copy with its source after each step, outside of the measured time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use harness::Outcome;
use harness::caches::same_bytes;

/// Facts about a correct copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Allocated bytes of all files, from the file system, after they were written.
    pub allocated_bytes: u64,
    pub files: u64,
}

/// Compares two trees. The error names the first difference.
pub fn copy(source: &Path, destination: &Path) -> Outcome<Seen> {
    let (from, to) = (source.symlink_metadata()?, destination.symlink_metadata());
    let to = to.map_err(|error| format!("{}: {error}", destination.display()))?;
    if from.file_type() != to.file_type() {
        return Err(format!(
            "{} is not the same kind of file as its source",
            destination.display()
        )
        .into());
    }
    if from.is_file() {
        if !same_bytes(source, destination)? {
            return Err(format!("{} differs from its source", destination.display()).into());
        }
        return Ok(Seen { allocated_bytes: to.blocks() * 512, files: 1 });
    }
    if !from.is_dir() {
        return Ok(Seen::default());
    }
    let names = |folder: &Path| -> Outcome<Vec<std::ffi::OsString>> {
        let entries = std::fs::read_dir(folder)?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Outcome<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    let all = names(source)?;
    if all != names(destination)? {
        return Err(format!("{} has other files than its source", destination.display()).into());
    }
    let mut seen = Seen::default();
    for name in all {
        let below = copy(&source.join(&name), &destination.join(&name))?;
        seen.allocated_bytes += below.allocated_bytes;
        seen.files += below.files;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_tree_is_compared_file_by_file() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir_all(folder.path().join(name).join("x/y")).unwrap();
            std::fs::write(folder.path().join(name).join("x/y/z"), "same").unwrap();
        }
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        assert_eq!(copy(&a, &b).unwrap().files, 1);
        std::fs::write(b.join("x/y/z"), "else").unwrap();
        assert!(copy(&a, &b).unwrap_err().to_string().contains("x/y/z differs"));
        std::fs::remove_file(b.join("x/y/z")).unwrap();
        assert!(copy(&a, &b).unwrap_err().to_string().contains("other files"));
        assert!(copy(&a, &folder.path().join("c")).is_err());
    }

    #[test]
    fn zeros_are_allocated_and_holes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::File::create(&a).unwrap().set_len(1 << 20).unwrap();
        std::fs::write(&b, vec![0; 1 << 20]).unwrap();
        std::fs::File::open(&b).unwrap().sync_all().unwrap();
        assert!(copy(&a, &b).unwrap().allocated_bytes >= 1 << 20);
        assert_eq!(copy(&b, &a).unwrap().allocated_bytes, 0);
    }
}
