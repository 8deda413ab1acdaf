//! Copies for views: creation, reuse and removal.
//!
//! The copies are in `TIER/evermap-lane-USER/view-HASH`, one slot for each file, with a record of
//! the file's identity when it was copied. A copy is replaced if its file has changed, and removed
//! if its file is gone. Mounts that show an old copy keep it until they end.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::copying::{Source, copy_and_compare, hash, open_to_read, tier_full};
use super::error::{Error, Result};
use super::identity::Identity;
use super::layout::{COPY, STAGE, VIEW, user_directory, view_name};
use super::path_text;
use super::slot::{Attempt, PrivateDirectory, Slot};
use super::view::Shown;
use super::watch::Watch;

const VERSION: u32 = 1;

/// Record of a copy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    /// The file, by its path without symbolic links.
    #[serde(with = "path_text")]
    original: PathBuf,
    /// Identity of the file when it was copied.
    identity: Identity,
    /// Identity of the finished copy.
    copy: Identity,
    /// BLAKE3 hash of the contents.
    hash: String,
}

/// Copy on the tier.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) shown: Shown,
    /// True if it already existed.
    pub(super) was_there: bool,
    /// Attributes that the copy lacks, in words.
    pub(super) not_kept: Option<String>,
}

/// Creates the copy of a file, or finds the current one. `path` has no symbolic links.
pub(super) fn make(tier: &Path, path: &Path, watch: &Watch) -> Result<Made> {
    let home = PrivateDirectory::on_tier(tier)?;
    let slot = home.lock(&view_name(path), path, watch)?;
    let source = Source::open(path)?;
    let copy = slot.path.join(COPY);
    let shown = Shown { original: path.into(), copy: copy.clone(), identity: source.identity };
    if is_current(&slot, &source.identity)? {
        return Ok(Made { shown, was_there: true, not_kept: None });
    }
    let made = replace(&slot, &source, &copy, tier, watch);
    if made.is_err() {
        // The previous copy was stale. If this fails, the next process that locks the slot cleans
        // it up.
        let _ = slot.remove();
    }
    Ok(Made { shown, was_there: false, not_kept: made? })
}

fn replace(
    slot: &Slot,
    source: &Source,
    copy: &Path,
    tier: &Path,
    watch: &Watch,
) -> Result<Option<String>> {
    // The previous copy is stale, or a killed process left it. Mounts that show it keep it.
    slot.clean(&[])?;
    let stage = slot.path.join(STAGE);
    let copied = copy_and_compare(source, &stage, tier, watch, || ())?;
    std::fs::rename(&stage, copy).map_err(Error::io("rename", copy))?;
    let file = open_to_read(copy).map_err(Error::io("open", copy))?;
    let record = Record {
        version: VERSION,
        original: source.path.clone(),
        identity: source.identity,
        copy: Identity::of(&file).map_err(Error::io("inspect", copy))?,
        hash: copied.hash.clone(),
    };
    slot.write_record(&record).map_err(|error| match error {
        Error::Io { source: why, .. } if why.kind() == std::io::ErrorKind::StorageFull => {
            tier_full(tier, source.path.clone(), source.identity.size_bytes)
        }
        other => other,
    })?;
    Ok(copied.not_kept())
}

/// Returns the record if it matches the copy.
fn is_current_record(slot: &Slot) -> Result<Option<Record>> {
    let record = match slot.record::<Record>() {
        Ok(Some(record)) if record.version == VERSION => record,
        // Without a valid record of this version, the copy is replaced.
        Ok(_) | Err(Error::Record { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(file) = open_to_read(&slot.path.join(COPY)) else { return Ok(None) };
    let now = Identity::of(&file).map_err(Error::io("inspect", &slot.path))?;
    Ok(record.copy.differs(&now).is_none().then_some(record))
}

fn is_current(slot: &Slot, identity: &Identity) -> Result<bool> {
    Ok(is_current_record(slot)?.is_some_and(|record| record.identity.differs(identity).is_none()))
}

/// Returns the path of the current copy of a file.
pub(super) fn find(tier: &Path, path: &Path) -> Option<PathBuf> {
    // In a world-writable directory, any user could have created a directory of this name.
    let home = PrivateDirectory::find(&user_directory(tier)).ok()??;
    let slot = home.path.join(view_name(path));
    // Reading without the lock is safe: records are replaced atomically, and both files are checked
    // against the record.
    let text = std::fs::read(slot.join("record")).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    let copy = slot.join(COPY);
    let matches = |path: &Path, was: &Identity| {
        let file = open_to_read(path).ok()?;
        was.differs(&Identity::of(&file).ok()?).is_none().then_some(())
    };
    matches(&copy, &record.copy)?;
    matches(&record.original, &record.identity)?;
    (record.version == VERSION && record.original == path).then_some(copy)
}

/// Removes the copy of a file from the tier. Returns true if there was one.
pub(super) fn remove(tier: &Path, path: &Path, watch: &Watch) -> Result<bool> {
    let Some(home) = PrivateDirectory::find(&user_directory(tier))? else { return Ok(false) };
    let Some(slot) = home.lock_if_there(&view_name(path), path, watch)? else { return Ok(false) };
    slot.remove()?;
    Ok(true)
}

/// Removes copies whose files are gone or have changed, and the remains of killed processes. Skips
/// slots that another process holds.
pub(super) fn sweep(tier: &Path) -> Result<Vec<PathBuf>> {
    let mut swept = Vec::new();
    let Some(home) = PrivateDirectory::find(&user_directory(tier))? else { return Ok(swept) };
    for name in home.names()?.iter().filter(|name| name.starts_with(VIEW)) {
        let Attempt::Locked(slot) = home.attempt(name)? else { continue };
        let record = is_current_record(&slot)?;
        let is_of_use = record.as_ref().is_some_and(|record| {
            Source::open(&record.original)
                .is_ok_and(|source| record.identity.differs(&source.identity).is_none())
        });
        if is_of_use {
            slot.clean(&[COPY, "record"])?;
        } else {
            let removed = record.map_or_else(|| slot.path.clone(), |record| record.original);
            slot.remove()?;
            swept.push(removed);
        }
    }
    Ok(swept)
}

/// Returns the files that have copies.
pub(super) fn files(tier: &Path) -> Result<Vec<PathBuf>> {
    let Some(home) = PrivateDirectory::find(&user_directory(tier))? else { return Ok(Vec::new()) };
    let file = |name: &String| {
        let text = std::fs::read(home.path.join(name).join("record")).ok()?;
        serde_json::from_slice::<Record>(&text).ok().map(|record| record.original)
    };
    Ok(home.names()?.iter().filter(|name| name.starts_with(VIEW)).filter_map(file).collect())
}

/// State of a copy on a tier.
pub(super) enum State {
    Sound,
    /// Its file has changed or is gone.
    Stale(String),
    Damaged(String),
}

/// Checks all copies of a tier. Returns the file, the copy and its state for each. Reads every copy
/// completely.
pub(super) fn verify(tier: &Path, watch: &Watch) -> Result<Vec<(PathBuf, PathBuf, State)>> {
    let mut all = Vec::new();
    let Some(home) = PrivateDirectory::find(&user_directory(tier))? else { return Ok(all) };
    for name in home.names()?.iter().filter(|name| name.starts_with(VIEW)) {
        let path = home.path.join(name);
        let Some(slot) = home.lock_if_there(name, &path, watch)? else { continue };
        let copy = slot.path.join(COPY);
        let record = match slot.record::<Record>() {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(error @ Error::Record { .. }) => {
                all.push((path, copy, State::Damaged(error.to_string())));
                continue;
            }
            Err(error) => return Err(error),
        };
        let state = state_of(&record, &copy, watch)?;
        all.push((record.original, copy, state));
    }
    Ok(all)
}

fn state_of(record: &Record, copy: &Path, watch: &Watch) -> Result<State> {
    let file = match open_to_read(copy) {
        Ok(file) => file,
        Err(errno) => return Ok(State::Damaged(format!("it cannot be opened: {errno}"))),
    };
    if hash(&file, copy, |_| watch.check(copy))? != record.hash {
        return Ok(State::Damaged("its contents changed since they were placed".into()));
    }
    Ok(match Source::open(&record.original) {
        Ok(source) => match record.identity.differs(&source.identity) {
            Some(what) => State::Stale(what),
            None => State::Sound,
        },
        Err(_) => State::Stale("the file can no longer be opened".into()),
    })
}
