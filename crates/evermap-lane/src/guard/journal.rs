//! Journal of a lane's changes, written before each change: one file a lane, replaced atomically.
//!
//! Invariant: at every moment the file suffices to undo all changes made until then. Undoing uses
//! only the file and the kernel, so the file names processes by number and start time, and groups
//! by inode.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::StateDirectory;
use crate::hold::Hold;
use crate::process::{Process, boot_id};
use crate::sys::scheduler::Scheduling;
use crate::workqueues::Exclusion;
use crate::{Error, Result};

/// Format that this version writes.
const FORMAT: u32 = 1;
/// Maximum size of a journal. A program with a thousand threads that existed before takes a tenth.
const BYTES_MAX: u64 = 1 << 20;
/// Number of characters of the command that are kept, for messages.
const COMMAND_MAX: usize = 200;

/// State of a program outside of lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormerState {
    pub(crate) scheduling: Scheduling,
    pub(crate) affinity: BTreeSet<u32>,
    pub(crate) timer_slack_ns: u64,
}

/// Thread that existed before the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormerThread {
    /// Number and start time of the thread.
    pub(crate) thread: Process,
    pub(crate) before: FormerState,
}

/// Contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    format: u32,
    pub(crate) id: String,
    /// Boot id of the kernel. A restart undoes all changes.
    pub(crate) boot: String,
    pub(crate) since_unix_s: u64,
    pub(crate) command: String,
    pub(crate) core: Option<u32>,
    /// Process that made the lane.
    pub(crate) lane: Process,
    pub(crate) guardian: Option<Process>,
    /// Process whose threads are all in the lane. `None` until it is started, and for a lane in its
    /// own process.
    pub(crate) program: Option<Process>,
    /// State that the program gets back.
    pub(crate) before: FormerState,
    /// States that threads get back that existed before.
    pub(crate) threads: Vec<FormerThread>,
    pub(crate) hold: Option<Hold>,
    /// Exclusion of the core from the kernel's unbound work.
    #[serde(default)]
    pub(crate) workqueues: Option<Exclusion>,
}

/// Journal of one lane.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    pub(crate) record: Record,
}

impl Journal {
    /// Begins the journal of a lane of this process, without changes. The file is on the disk when
    /// this returns.
    pub(crate) fn begin(
        state: &StateDirectory,
        core: Option<u32>,
        command: &str,
        before: FormerState,
    ) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let failed = |source| Error::Io {
            operation: "identify this process from",
            path: "/proc".into(),
            source,
        };
        let lane = Process::this().map_err(failed)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{number}", lane.pid, lane.start_ticks);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let record = Record {
            format: FORMAT,
            boot: boot_id().map_err(failed)?,
            since_unix_s: since.as_secs(),
            command: command.chars().take(COMMAND_MAX).collect(),
            core,
            lane,
            guardian: None,
            program: None,
            before,
            threads: Vec::new(),
            hold: None,
            workqueues: None,
            id,
        };
        let journal = Self { path: journal_path(state, &record.id), record };
        journal.write()?;
        Ok(journal)
    }

    /// Replaces the file with `record`. After any crash the file has its old or its new contents.
    pub(crate) fn write(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(&self.record).map_err(io::Error::from);
        let temporary = self.path.with_extension("new");
        let written = text.and_then(|text| {
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&temporary, &self.path)
        });
        written.map_err(|source| Error::Io {
            operation: "write the lane's journal",
            path: self.path.clone(),
            source,
        })
    }

    /// Reads the journal of the lane with this id. Returns `None` if the lane has been undone.
    pub(crate) fn of_id(state: &StateDirectory, id: &str) -> Result<Option<Self>> {
        Self::read(&journal_path(state, id))
    }

    /// Reads a journal. Returns `None` if the file does not exist any more.
    ///
    /// # Errors
    /// [`Error::Journal`] for a file that is not a journal, is truncated, or has another version.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let failed = |why: String| Error::Journal { path: path.into(), why };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
            Ok(_) => {}
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| failed(format!("not a journal: {error}"));
        let format: Format = serde_json::from_str(&text).map_err(invalid)?;
        if format.format != FORMAT {
            return Err(failed(format!(
                "another version: its format is {}, and this program reads {FORMAT}",
                format.format
            )));
        }
        let record = serde_json::from_str(&text).map_err(invalid)?;
        Ok(Some(Self { path: path.into(), record }))
    }

    /// Paths of all journals of a state directory.
    pub(crate) fn all(state: &StateDirectory) -> Result<Vec<PathBuf>> {
        let directory = state.lanes();
        let entries = fs::read_dir(&directory).map_err(|source| Error::Io {
            operation: "list the state directory",
            path: directory,
            source,
        })?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        paths.sort();
        Ok(paths)
    }

    /// Removes the journal once nothing is left to undo.
    pub(crate) fn remove(&self) -> Result<()> {
        // The temporary file of an interrupted write first: it is not found without the journal.
        let files = [self.path.with_extension("new"), self.path.clone()];
        for path in files {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Io { operation: "remove the lane's journal", path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the changes may still exist: a restart undoes all of them. Returns true if
    /// the kernel does not report its boot id; undoing then finds nothing.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        boot_id().map_or(true, |boot| boot == self.record.boot)
    }
}

fn journal_path(state: &StateDirectory, id: &str) -> PathBuf {
    state.lanes().join(format!("{id}.json"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn before() -> FormerState {
        let affinity = [0, 1].into();
        FormerState { scheduling: Scheduling::default(), affinity, timer_slack_ns: 50_000 }
    }

    pub(crate) fn state() -> (tempfile::TempDir, StateDirectory) {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(place.path().join("state")).unwrap();
        (place, state)
    }

    #[test]
    fn a_journal_is_read_back_and_removed() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(1), "player", before()).unwrap();
        journal.record.program = Some(Process { pid: 7, start_ticks: 8 });
        journal.write().unwrap();
        let paths = Journal::all(&state).unwrap();
        assert_eq!(paths, [journal.path()]);
        let read = Journal::read(&paths[0]).unwrap().unwrap();
        assert_eq!(read.record, journal.record);
        assert!(read.is_of_this_boot());
        read.remove().unwrap();
        read.remove().unwrap();
        assert!(Journal::read(&paths[0]).unwrap().is_none());
        assert!(fs::read_dir(state.lanes()).unwrap().next().is_none());
    }

    #[test]
    fn a_truncated_journal_is_an_error_that_names_the_file() {
        let (_place, state) = state();
        let journal = Journal::begin(&state, Some(1), "player", before()).unwrap();
        let whole = fs::read(journal.path()).unwrap();
        for length in 0..whole.len() {
            fs::write(journal.path(), &whole[..length]).unwrap();
            let error = Journal::read(journal.path()).unwrap_err();
            assert!(matches!(error, Error::Journal { .. }), "{length}: {error}");
            assert!(error.to_string().contains(journal.path().to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn another_version_is_reported_differently_from_damage() {
        let (_place, state) = state();
        let journal = Journal::begin(&state, None, "player", before()).unwrap();
        fs::write(journal.path(), "{\"format\": 2, \"lanes\": []}").unwrap();
        let error = Journal::read(journal.path()).unwrap_err().to_string();
        assert!(error.contains("another version") && error.contains("format is 2"), "{error}");
        fs::write(journal.path(), [0xff, 0xfe]).unwrap();
        assert!(Journal::read(journal.path()).is_err());
    }
}
