//! Journal of switched files: their state, their locations, and which files may be removed.
//!
//! The journal is a directory with a slot (see `slot`) for each file. Each slot has one record,
//! which is replaced as a whole. A record describes each step durably before the step begins.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::{SWITCH, is_returning_name, is_slot_name, slot_name, user_directory};
use crate::tier::path_text;
use crate::tier::slot::{Attempt, PrivateDirectory, Slot, flush_directory, parent};
use crate::tier::watch::Watch;

const VERSION: u32 = 1;
/// Journal of root. It has to last as long as the files.
const OF_ROOT: &str = "/var/lib/evermap-lane";

/// Persistent journal of a user's switched files.
#[derive(Debug)]
pub struct Journal {
    home: PrivateDirectory,
}

impl Journal {
    /// Opens this user's journal: `/var/lib/evermap-lane` for root, else
    /// `$XDG_STATE_HOME/evermap/lane`, by default `~/.local/state/evermap/lane`. Creates it if it
    /// does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::UnsafeDirectory`] if others can write to it.
    pub fn of_user() -> Result<Self> {
        Self::at(&Self::path_of_user()?)
    }

    /// Returns the path of [`Journal::of_user`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if neither `HOME` nor `XDG_STATE_HOME` is set.
    pub fn path_of_user() -> Result<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Ok(OF_ROOT.into());
        }
        let set =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| Error::Io {
            operation: "locate the journal: set HOME or XDG_STATE_HOME, or name a directory instead of",
            path: "~/.local/state/evermap/lane".into(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(state.join("evermap/lane"))
    }

    /// Opens the journal in a directory, and creates the directory if it does not exist.
    ///
    /// # Errors
    ///
    /// Same errors as [`Journal::of_user`].
    pub fn at(path: &Path) -> Result<Self> {
        let above = parent(path);
        let missing: Vec<_> = above.ancestors().take_while(|above| !above.exists()).collect();
        std::fs::create_dir_all(above).map_err(Error::io("create", above))?;
        // If a power failure removed a journal with its directories, its links would be unknown.
        missing.iter().try_for_each(|made| flush_directory(parent(made)))?;
        Ok(Self { home: PrivateDirectory::make(path, 0o700)? })
    }

    /// Opens the journal in a directory. Returns `None` if the directory does not exist.
    ///
    /// # Errors
    ///
    /// Same errors as [`Journal::of_user`].
    pub fn find(path: &Path) -> Result<Option<Self>> {
        Ok(PrivateDirectory::find(path)?.map(|home| Self { home }))
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> &Path {
        &self.home.path
    }

    /// Returns the paths of all files in the journal, as they were placed and without symbolic
    /// links. An invalid record is an error in the list.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn files(&self) -> Result<Vec<Result<PathBuf>>> {
        let read = |name: &String| {
            let path = self.home.path.join(name).join("record");
            match std::fs::read(&path) {
                Ok(bytes) => Some(match serde_json::from_slice::<Record>(&bytes) {
                    Ok(record) => Ok(record.original),
                    Err(error) => Err(Error::Record { path, what: error.to_string() }),
                }),
                Err(_) => None,
            }
        };
        Ok(self.slot_names()?.iter().filter_map(read).collect())
    }

    /// Locks the slot of a file, and creates it if it does not exist.
    pub(super) fn lock(&self, path: &Path, watch: &Watch) -> Result<Slot> {
        self.home.lock(&slot_name(path), path, watch)
    }

    /// Locks the slot of a file and reads its record. Returns `None` without a record.
    pub(super) fn find_record(&self, path: &Path, watch: &Watch) -> Result<Option<(Slot, Record)>> {
        let Some(slot) = self.home.lock_if_there(&slot_name(path), path, watch)? else {
            return Ok(None);
        };
        Ok(Record::read(&slot)?.map(|record| (slot, record)))
    }

    /// Returns the names of the slots. A directory chosen by the user may contain other entries,
    /// which are not ours.
    pub(super) fn slot_names(&self) -> Result<Vec<String>> {
        let names = self.home.names()?;
        Ok(names.into_iter().filter(|name| is_slot_name(name)).collect())
    }

    pub(super) fn attempt(&self, name: &str) -> Result<Attempt> {
        self.home.attempt(name)
    }
}

/// State of a file that is switched or moving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Version of the record format.
    pub(super) version: u32,
    pub(super) state: State,
    /// Path of the file, without symbolic links except the one that replaces it.
    #[serde(with = "path_text")]
    pub(super) original: PathBuf,
    /// Inode of its directory. If the file's disk is not mounted, the path leads to another
    /// directory.
    pub(super) directory: u64,
    /// Identity of the file before the switch.
    pub(super) identity: Identity,
    /// Directory of the tier.
    #[serde(with = "path_text")]
    pub(super) tier: PathBuf,
    /// Path of the copy, and target of the link.
    #[serde(with = "path_text")]
    pub(super) copy: PathBuf,
    /// Identity and hash of the copy, or `None` before it is complete.
    pub(super) copied: Option<VerifiedCopy>,
    pub(super) kept: KeptState,
    /// Way back, if the file is returning.
    pub(super) returning: Option<Returning>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Moving to the tier.
    Placing,
    /// On the tier.
    Placed,
    /// Moving back.
    Returning,
}

/// State of the original next to the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeptState {
    There,
    /// It is about to be removed.
    Dropping,
    Dropped,
}

/// Verified complete copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VerifiedCopy {
    /// BLAKE3 hash, in hexadecimal.
    pub(super) hash: String,
    pub(super) identity: Identity,
}

/// Way back of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Returning {
    pub(super) way: Way,
    /// Identity of the copy when the way was chosen: only this version may be removed. `None`
    /// allows any version.
    pub(super) copy: Option<Identity>,
    /// True if the kept original may be removed, whatever its version.
    pub(super) discards_kept: bool,
    /// For way `copy`: name in the file's directory, first of the returning file, then of the link.
    pub(super) beside: Option<String>,
    /// For way `copy`: identity of the returning file, once it is complete.
    pub(super) file: Option<Identity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// The kept original takes its place again.
    Exchange,
    /// The contents of the copy are copied back.
    Copy,
}

impl Record {
    pub(super) fn new(
        original: PathBuf,
        directory: u64,
        identity: Identity,
        tier: PathBuf,
        copy: PathBuf,
    ) -> Self {
        Self {
            version: VERSION,
            state: State::Placing,
            original,
            directory,
            identity,
            tier,
            copy,
            copied: None,
            kept: KeptState::There,
            returning: None,
        }
    }

    /// Reads the record of a slot. Returns `None` if it does not exist. Checks that the paths to be
    /// removed are in places used by switches.
    pub(super) fn read(slot: &Slot) -> Result<Option<Self>> {
        let Some(record) = slot.record::<Self>()? else { return Ok(None) };
        match record.invalid_reason() {
            None => Ok(Some(record)),
            Some(what) => Err(Error::Record { path: slot.record_path(), what: what.into() }),
        }
    }

    fn invalid_reason(&self) -> Option<&'static str> {
        let directory = self.copy.parent();
        let is_ours = directory
            .and_then(Path::file_name)
            .is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with(SWITCH)));
        let is_at_home = directory.and_then(Path::parent) == Some(&user_directory(&self.tier));
        let names = (self.original.file_name(), self.copy.file_name());
        if self.version != VERSION {
            return Some("its version is not supported by this program");
        }
        if !self.original.is_absolute() || names.0.is_none() || names.0 != names.1 {
            return Some("it does not name a file");
        }
        if !is_ours || !is_at_home {
            return Some("the path of its copy is not in a directory for copies");
        }
        if self.returning.as_ref().is_some_and(Returning::has_invalid_name) {
            return Some("its name for the returning file is invalid");
        }
        match (self.state, &self.copied, &self.returning) {
            (State::Placed, None, _) => Some("it has no identity of the copy"),
            (State::Returning, None, _) | (State::Returning, _, None) => {
                Some("it does not define the way back")
            }
            _ => None,
        }
    }

    /// Returns the path of the kept original for messages, or `None` if it no longer exists.
    pub(super) fn kept_path(&self) -> Option<PathBuf> {
        let name = crate::tier::layout::kept_name(self.original.file_name()?);
        let path = parent(&self.original).join(name);
        (self.kept == KeptState::There && path.symlink_metadata().is_ok()).then_some(path)
    }

    /// Returns the name of the returning file, if it has one.
    pub(super) fn temporary_name(&self) -> Option<&OsStr> {
        self.returning.as_ref()?.beside.as_deref().map(OsStr::new)
    }
}

impl Returning {
    fn has_invalid_name(&self) -> bool {
        match (self.way, &self.beside) {
            (Way::Exchange, beside) => beside.is_some(),
            (Way::Copy, beside) => !beside.as_deref().is_some_and(is_returning_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_would_remove_other_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(&dir.path().join("journal")).unwrap();
        let original = dir.path().join("file");
        std::fs::write(&original, "x").unwrap();
        let identity = Identity::of_name(&original).unwrap();
        let tier = PathBuf::from("/mnt/fast");
        let copy = user_directory(&tier).join("switch-0123/file");
        let sound = Record::new(original.clone(), 1, identity, tier, copy);
        let slot = journal.lock(&original, &Watch::default()).unwrap();
        let write_and_read = |record: &Record| {
            slot.write_record(record).unwrap();
            Record::read(&slot).map(|_| ()).map_err(|error| error.to_string())
        };
        write_and_read(&sound).unwrap();
        for copy in ["/etc/passwd", "/mnt/fast/switch-0123/file", "/mnt/fast/../switch-1/file"] {
            let error = write_and_read(&Record { copy: copy.into(), ..sound.clone() }).unwrap_err();
            assert!(error.contains("record"), "{error}");
        }
        assert!(write_and_read(&Record { version: 2, ..sound.clone() }).is_err());
        assert!(write_and_read(&Record { original: "file".into(), ..sound.clone() }).is_err());
        assert!(write_and_read(&Record { state: State::Placed, ..sound.clone() }).is_err());
        assert!(write_and_read(&Record { state: State::Returning, ..sound.clone() }).is_err());
        for beside in [None, Some("../../etc/passwd"), Some(".lane-back-"), Some("clip.mkv")] {
            let returning = Returning {
                way: Way::Copy,
                copy: None,
                discards_kept: false,
                beside: beside.map(str::to_string),
                file: None,
            };
            assert!(
                write_and_read(&Record { returning: Some(returning), ..sound.clone() }).is_err()
            );
        }
    }
}
