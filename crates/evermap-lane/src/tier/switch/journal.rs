//! The journal of switched files: what is on its way, what is where, and what may be thrown away.
//!
//! A directory with a slot for each file (`slot`), and in it one record, which is replaced as a whole. It says what is going to be done before it
//! is done, and is durable by then.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::{SWITCH, home_of, is_returning_name, is_slot_name, slot_name};
use crate::tier::path_text;
use crate::tier::slot::{Attempt, Home, Slot, flush_directory, parent};
use crate::tier::watch::Watch;

const VERSION: u32 = 1;
/// Where root's is: it has to last as long as the files.
const OF_ROOT: &str = "/var/lib/evermap-lane";

/// Where it is written down which files were switched. One of a user's; what is in it lasts.
#[derive(Debug)]
pub struct Journal {
    home: Home,
}

impl Journal {
    /// This user's: `/var/lib/evermap-lane` for root, else `$XDG_STATE_HOME/evermap/lane`, which is `~/.local/state/evermap/lane` for most.
    /// Made if it is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::UnsafeDirectory`] if others can write to it.
    pub fn of_user() -> Result<Self> {
        Self::at(&Self::path_of_user()?)
    }

    /// Where [`Journal::of_user`] is.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when neither `HOME` nor `XDG_STATE_HOME` is set.
    pub fn path_of_user() -> Result<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Ok(OF_ROOT.into());
        }
        let set =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| Error::Io {
            operation: "tell where the journal is: set HOME or XDG_STATE_HOME, or name a directory instead of",
            path: "~/.local/state/evermap/lane".into(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(state.join("evermap/lane"))
    }

    /// In this directory, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Journal::of_user`].
    pub fn at(path: &Path) -> Result<Self> {
        let above = parent(path);
        let missing: Vec<_> = above.ancestors().take_while(|above| !above.exists()).collect();
        std::fs::create_dir_all(above).map_err(Error::io("make", above))?;
        // A journal that a power cut took away with its directories would leave links that nobody knows of.
        missing.iter().try_for_each(|made| flush_directory(parent(made)))?;
        Ok(Self { home: Home::make(path, 0o700)? })
    }

    /// In this directory; none if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Journal::of_user`].
    pub fn find(path: &Path) -> Result<Option<Self>> {
        Ok(Home::find(path)?.map(|home| Self { home }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.home.path
    }

    /// All files that it has something of, as they were named, without links; with what is wrong where a record makes no sense.
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

    /// The slot of a file, made if it is not there.
    pub(super) fn lock(&self, path: &Path, watch: &Watch) -> Result<Slot> {
        self.home.lock(&slot_name(path), path, watch)
    }

    /// The slot of a file and what is in it; none without.
    pub(super) fn find_record(&self, path: &Path, watch: &Watch) -> Result<Option<(Slot, Record)>> {
        let Some(slot) = self.home.lock_if_there(&slot_name(path), path, watch)? else {
            return Ok(None);
        };
        Ok(Record::read(&slot)?.map(|record| (slot, record)))
    }

    /// A directory that somebody named may have others in it, which are none of ours.
    pub(super) fn slot_names(&self) -> Result<Vec<String>> {
        let names = self.home.names()?;
        Ok(names.into_iter().filter(|name| is_slot_name(name)).collect())
    }

    pub(super) fn attempt(&self, name: &str) -> Result<Attempt> {
        self.home.attempt(name)
    }
}

/// What is known of a file that is switched, or on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Of this format.
    pub(super) version: u32,
    pub(super) state: State,
    /// The file's path, without links but the one that takes its place.
    #[serde(with = "path_text")]
    pub(super) original: PathBuf,
    /// The number of its directory: of a disk that is not mounted another one has the path.
    pub(super) directory: u64,
    /// What the file was before.
    pub(super) identity: Identity,
    /// The tier's directory.
    #[serde(with = "path_text")]
    pub(super) tier: PathBuf,
    /// Where its contents go, and what the link says.
    #[serde(with = "path_text")]
    pub(super) copy: PathBuf,
    /// What the copy is; none before it is complete.
    pub(super) copied: Option<Vouched>,
    pub(super) kept: KeptState,
    /// How it comes back, if it does.
    pub(super) returning: Option<Returning>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// On its way to the tier.
    Placing,
    /// There.
    Placed,
    /// On its way back.
    Returning,
}

/// What of the original is beside its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeptState {
    There,
    /// It is to go.
    Dropping,
    Dropped,
}

/// A complete file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vouched {
    /// BLAKE3, in hexadecimal.
    pub(super) hash: String,
    pub(super) identity: Identity,
}

/// How a file comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Returning {
    pub(super) way: Way,
    /// What the copy was when that was decided; only this may be thrown away. Anything, without it.
    pub(super) copy: Option<Identity>,
    /// The kept original may be thrown away, whatever it is.
    pub(super) discards_kept: bool,
    /// Of way `copy`, the name in the file's directory that the file has on its way, and the link after that.
    pub(super) beside: Option<String>,
    /// Of way `copy`, what that is, once it is complete.
    pub(super) file: Option<Identity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// The kept original takes its place again.
    Exchange,
    /// The copy's contents do.
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

    /// The one of a slot; none if there is none. What it says to remove is where such files are.
    pub(super) fn read(slot: &Slot) -> Result<Option<Self>> {
        let Some(record) = slot.record::<Self>()? else { return Ok(None) };
        match record.nonsense() {
            None => Ok(Some(record)),
            Some(what) => Err(Error::Record { path: slot.record_path(), what: what.into() }),
        }
    }

    fn nonsense(&self) -> Option<&'static str> {
        let directory = self.copy.parent();
        let is_ours = directory
            .and_then(Path::file_name)
            .is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with(SWITCH)));
        let is_at_home = directory.and_then(Path::parent) == Some(&home_of(&self.tier));
        let names = (self.original.file_name(), self.copy.file_name());
        if self.version != VERSION {
            return Some("it is of a version that this program does not know");
        }
        if !self.original.is_absolute() || names.0.is_none() || names.0 != names.1 {
            return Some("it names no file");
        }
        if !is_ours || !is_at_home {
            return Some("what it says of the copy is not where copies are");
        }
        if self.returning.as_ref().is_some_and(Returning::is_nonsense) {
            return Some("the name it has for the file on its way is none that it could have");
        }
        match (self.state, &self.copied, &self.returning) {
            (State::Placed, None, _) => Some("it is of a copy that is nowhere described"),
            (State::Returning, None, _) | (State::Returning, _, None) => {
                Some("it does not say how the file comes back")
            }
            _ => None,
        }
    }

    /// Where the original is kept, for messages; none once it is not there any more.
    pub(super) fn kept_path(&self) -> Option<PathBuf> {
        let name = crate::tier::layout::kept_name(self.original.file_name()?);
        let path = parent(&self.original).join(name);
        (self.kept == KeptState::There && path.symlink_metadata().is_ok()).then_some(path)
    }

    /// The name of the file on its way back, if it is to have one.
    pub(super) fn beside(&self) -> Option<&OsStr> {
        self.returning.as_ref()?.beside.as_deref().map(OsStr::new)
    }
}

impl Returning {
    fn is_nonsense(&self) -> bool {
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
    fn a_record_that_would_have_other_files_removed_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::at(&place.path().join("journal")).unwrap();
        let original = place.path().join("file");
        std::fs::write(&original, "x").unwrap();
        let identity = Identity::of_name(&original).unwrap();
        let tier = PathBuf::from("/mnt/fast");
        let copy = home_of(&tier).join("switch-0123/file");
        let sound = Record::new(original.clone(), 1, identity, tier, copy);
        let slot = journal.lock(&original, &Watch::default()).unwrap();
        let said = |record: &Record| {
            slot.write_record(record).unwrap();
            Record::read(&slot).map(|_| ()).map_err(|error| error.to_string())
        };
        said(&sound).unwrap();
        for copy in ["/etc/passwd", "/mnt/fast/switch-0123/file", "/mnt/fast/../switch-1/file"] {
            let error = said(&Record { copy: copy.into(), ..sound.clone() }).unwrap_err();
            assert!(error.contains("record"), "{error}");
        }
        assert!(said(&Record { version: 2, ..sound.clone() }).is_err());
        assert!(said(&Record { original: "file".into(), ..sound.clone() }).is_err());
        assert!(said(&Record { state: State::Placed, ..sound.clone() }).is_err());
        assert!(said(&Record { state: State::Returning, ..sound.clone() }).is_err());
        for beside in [None, Some("../../etc/passwd"), Some(".lane-back-"), Some("clip.mkv")] {
            let returning = Returning {
                way: Way::Copy,
                copy: None,
                discards_kept: false,
                beside: beside.map(str::to_string),
                file: None,
            };
            assert!(said(&Record { returning: Some(returning), ..sound.clone() }).is_err());
        }
    }
}
