//! Report of a check: findings with a file, a severity and a remedy each.
//!
//! [`Findings`] collects the findings of one file. A finding may have a [`Repair`], an action that
//! fixes it. Users see the texts, and the exit code of `evermap store check` depends on the
//! severity.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Limit of findings listed per file; the rest is only counted. A damaged chunk map would yield
/// thousands.
const FINDINGS_PER_FILE_MAX: usize = 100;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Left behind by a process that died, or out of date without harm. The store's contents are
    /// sound. In most cases the next process that changes the store or the object tidies up.
    Leftover,
    /// May be a trace of damage or harmless.
    Suspect,
    /// Something is lost or inconsistent.
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

/// A deviation from the expected state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// File, relative to the store's directory.
    pub file: PathBuf,
    /// Name of the object, if known.
    pub object: Option<String>,
    /// Part of the file.
    pub what: String,
    /// Content found.
    pub found: String,
    /// Content expected.
    pub expected: String,
    /// Remedy: a repair or an action of the user.
    pub remedy: String,
    /// True if a repair can fix it, with the options that the remedy names.
    pub repairable: bool,
    /// True if a repair has fixed it.
    pub repaired: bool,
    /// True if the disk failed to read the part. The next attempt may succeed.
    pub(super) unreadable: bool,
    pub(super) repair: Option<Repair>,
}

/// Action of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// Rebuilds the catalog from the object files.
    RebuildCatalog,
    /// Moves a file out of the store.
    PutAside(PathBuf),
    /// Moves a log that no commit needs out of the store, unless the object has a writer.
    PutLogAside(PathBuf),
    /// Moves an object's file from `building` to `objects`.
    Move([u8; 16]),
    /// Removes a name without a file from the catalog.
    Forget { name: String, uuid: [u8; 16] },
    /// Gives an object file without a name one in the catalog.
    Adopt([u8; 16]),
    /// Records an object's addresses in the catalog.
    Leases([u8; 16]),
    /// Recomputes an object's checksums from its pages. Only on request.
    AcceptData { uuid: [u8; 16], name: String },
    /// Moves a damaged object out of the store. Only on request, or for caches.
    Quarantine { uuid: [u8; 16], name: Option<String> },
}

/// Scope of the check of one object file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Name in the catalog; `None` for the catalog itself and for a file without a name.
    pub object: Option<String>,
    /// File, relative to the store's directory.
    pub file: PathBuf,
    /// Number of the commit that was checked.
    pub sequence: u64,
    /// Length of the commit's file in bytes.
    pub file_bytes: u64,
    /// Number of commits in the log, if the object needs it. The file may have some of them, too.
    pub log_commits: u64,
    /// Number of allocated blocks.
    pub blocks: u64,
    /// Their size in bytes.
    pub allocated_bytes: u64,
    /// Number of pages compared with their checksums; `None` if the object has no checksums.
    pub pages_verified: Option<u64>,
    /// Number of blocks reached from the root. Only known for the catalog, whose type is built in;
    /// a check does not walk other objects.
    pub blocks_reached: Option<u64>,
}

/// A file that could not be checked.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unchecked {
    /// File, relative to the store's directory.
    pub file: PathBuf,
    /// Name of the object, if known.
    pub object: Option<String>,
    /// Cause.
    pub error: Error,
}

/// Result of a check, and of a repair if one was requested.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The store's directory.
    pub directory: PathBuf,
    /// Object files that could be read, the catalog first.
    pub objects: Vec<ObjectReport>,
    /// Deviations found.
    pub findings: Vec<Finding>,
    /// Files that could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// Actions of the repair, one sentence each.
    pub actions: Vec<String>,
    /// Directory with copies of the files that the repair changed, and the files that it moved out
    /// of the store.
    pub kept_in: Option<PathBuf>,
}

impl Report {
    /// Returns true if there is damage that was not repaired.
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|f| f.severity == Severity::Damage && !f.repaired)
    }

    /// Returns true if the disk failed to read a part of the store.
    pub(super) fn had_read_errors(&self) -> bool {
        let failed = |u: &Unchecked| matches!(u.error, Error::Io { .. });
        self.findings.iter().any(|f| f.unreadable) || self.unchecked.iter().any(failed)
    }

    /// Returns true if all files could be checked, and no finding is worse than a leftover.
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
    /// Remedy for damage.
    remedy: String,
    repair: Option<Repair>,
    list: Vec<Finding>,
    left_out: usize,
}

impl Findings {
    /// Creates an empty list for one file. The remedy for damage is a backup.
    pub(super) fn new(file: PathBuf, object: Option<String>) -> Findings {
        let remedy = "restore it from a backup".to_string();
        Findings { file, object, remedy, repair: None, list: Vec::new(), left_out: 0 }
    }

    /// Sets the remedy and the repair for all damage in this file.
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

    /// Returns true if there is damage.
    pub(super) fn has_damage(&self) -> bool {
        self.list.iter().any(|f| f.severity == Severity::Damage)
    }

    /// Turns an error that means damage into a finding. Returns all other errors.
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
            Error::LogMissing { log, .. } => self.damage(
                "the log",
                format!("no {}", file_name(&log)),
                "the log next to the file",
            ),
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
                what: "further findings in this file".to_string(),
                found: format!("{} more", self.left_out),
                expected: "none".to_string(),
                ..last.clone()
            };
            self.list.push(more);
        }
        self.list
    }
}

/// Formats a count with its noun: `1 block`, `2 blocks`.
pub(super) fn quantity(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
