//! What a check found: findings with a place, a measure and a remedy each.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Findings kept of one file; the rest is counted. Noise in a chunk map is thousands of them, and
/// nobody reads the second hundred.
const FINDINGS_PER_FILE_MAX: usize = 100;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Nothing is wrong with what the store holds: something that was left behind by a process
    /// that died, and that the next one tidies up.
    Leftover,
    /// May be the trace of a loss and may be harmless; what was found says which two.
    Suspect,
    /// Something is lost or contradicts itself.
    Damage,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Severity::Leftover => "leftover",
            Severity::Suspect => "suspect",
            Severity::Damage => "damage",
        })
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as seen from the store's directory.
    pub file: PathBuf,
    /// The object's name, where it is known.
    pub object: Option<String>,
    /// Which part of the file.
    pub what: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
    /// What can be done about it, by a repair or by the user.
    pub remedy: String,
    /// A repair can do it, with the options that the remedy names.
    pub repairable: bool,
    /// A repair has done it.
    pub repaired: bool,
    /// The disk failed to read it. That may be over at the next look.
    pub(super) unreadable: bool,
    pub(super) repair: Option<Repair>,
}

/// What a repair does about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// The catalog is made anew from the object files.
    RebuildCatalog,
    /// A file is put aside.
    PutAside(PathBuf),
    /// A log that belongs to no commit is put aside, once no writer has the object.
    PutLogAside(PathBuf),
    /// An object's file goes where it belongs.
    Move([u8; 16]),
    /// A name without a file is taken out of the catalog.
    Forget { name: String, uuid: [u8; 16] },
    /// An object file without a name gets one.
    Adopt([u8; 16]),
    /// The catalog learns which addresses an object has.
    Leases([u8; 16]),
    /// What a page holds now is declared right: only on demand.
    AcceptData { uuid: [u8; 16], name: String },
    /// A damaged object goes aside: only on demand.
    Quarantine { uuid: [u8; 16], name: Option<String> },
}

/// What was looked at of one object file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Its name in the catalog; `None` for the catalog itself and for a file without a name.
    pub object: Option<String>,
    /// Its file, as seen from the store's directory.
    pub file: PathBuf,
    /// Number of the commit that was checked.
    pub sequence: u64,
    /// Bytes of the commit's file.
    pub file_bytes: u64,
    /// Commits that only the log has.
    pub log_commits: u64,
    /// Blocks allocated.
    pub blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Pages that were compared with their checksums; `None` when the object keeps none.
    pub pages_verified: Option<u64>,
    /// Blocks that were found by walking from the root. Known for the catalog, whose type this
    /// build knows; of any other object a check knows what is allocated, not what is reached.
    pub blocks_reached: Option<u64>,
}

/// A file that could not be looked at, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unchecked {
    /// The file, as seen from the store's directory.
    pub file: PathBuf,
    /// The object's name, where it is known.
    pub object: Option<String>,
    /// What stood in the way.
    pub error: Error,
}

/// What a check found, and what a repair did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The store's directory.
    pub directory: PathBuf,
    /// Each object file that could be read, the catalog first.
    pub objects: Vec<ObjectReport>,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unchecked: Vec<Unchecked>,
    /// What a repair did, one sentence each.
    pub actions: Vec<String>,
    /// Where a repair put copies of what it changed and everything that it took away.
    pub kept_in: Option<PathBuf>,
}

impl Report {
    /// Is anything damaged that was not repaired?
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|f| f.severity == Severity::Damage && !f.repaired)
    }

    /// Did the disk fail to read some of it?
    pub(super) fn had_read_errors(&self) -> bool {
        let failed = |u: &Unchecked| matches!(u.error, Error::Io { .. });
        self.findings.iter().any(|f| f.unreadable) || self.unchecked.iter().any(failed)
    }

    /// Was everything looked at, and nothing found that is worse than a leftover?
    pub fn is_clean(&self) -> bool {
        let worse = |f: &Finding| f.severity > Severity::Leftover && !f.repaired;
        self.unchecked.is_empty() && !self.findings.iter().any(worse)
    }
}

/// Collects the findings of one file.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) file: PathBuf,
    pub(super) object: Option<String>,
    /// What to do about damage that no repair helps.
    remedy: String,
    repair: Option<Repair>,
    list: Vec<Finding>,
    left_out: usize,
}

impl Findings {
    /// For the catalog, or whatever has one repair for all damage.
    pub(super) fn new(file: PathBuf, object: Option<String>) -> Findings {
        let remedy = "restore it from a backup".to_string();
        Findings { file, object, remedy, repair: None, list: Vec::new(), left_out: 0 }
    }

    /// Damage in this file is answered by this.
    pub(super) fn with_repair(mut self, remedy: &str, repair: Repair) -> Findings {
        self.remedy = remedy.to_string();
        self.repair = Some(repair);
        self
    }

    pub(super) fn damage(
        &mut self,
        what: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let (remedy, repair) = (self.remedy.clone(), self.repair.clone());
        self.add(Severity::Damage, what, found, expected, (&remedy, repair));
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
        (remedy, repair): (&str, Option<Repair>),
    ) {
        if self.list.len() >= FINDINGS_PER_FILE_MAX {
            self.left_out += 1;
            return;
        }
        self.list.push(Finding {
            severity,
            file: self.file.clone(),
            object: self.object.clone(),
            what: what.into(),
            found: found.into(),
            expected: expected.into(),
            remedy: remedy.to_string(),
            repairable: repair.is_some(),
            repaired: false,
            unreadable: false,
            repair,
        });
    }

    /// Is there anything worse than a leftover?
    pub(super) fn has_damage(&self) -> bool {
        self.list.iter().any(|f| f.severity == Severity::Damage)
    }

    /// Takes an error of reading apart: damage becomes a finding, all else is given back.
    pub(super) fn take_error(&mut self, error: Error) -> Option<Error> {
        match error {
            Error::Damaged { path, what, found, expected } => {
                let at = match self.is_own(&path) {
                    true => what.to_string(),
                    false => format!("{what} in {}", file_name(&path)),
                };
                self.damage(at, found, expected);
            }
            Error::Foreign { found, .. } => self.damage("the file", found, "an object file"),
            Error::LogMissing { log, .. } => {
                self.damage("the log", format!("no {}", file_name(&log)), "the log beside the file")
            }
            Error::Io { doing, source, .. } if source.raw_os_error() == Some(libc::EIO) => {
                self.damage("the file", format!("cannot {doing} it: {source}"), "a readable disk");
                if let Some(last) = self.list.last_mut() {
                    last.unreadable = true;
                }
            }
            other => return Some(other),
        }
        None
    }

    fn is_own(&self, path: &Path) -> bool {
        path.ends_with(&self.file)
    }

    pub(super) fn into_list(mut self) -> Vec<Finding> {
        if let (Some(last), 1..) = (self.list.last(), self.left_out) {
            let more = Finding {
                what: "further findings of this file".to_string(),
                found: format!("{} more", self.left_out),
                expected: "none".to_string(),
                ..last.clone()
            };
            self.list.push(more);
        }
        self.list
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
