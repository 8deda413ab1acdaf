//! Plans a placement: selects files, orders them, and gives the reason for each file left out.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use evermap_trace::{Operation, Trace};
use serde::Serialize;

use super::copies;
use super::error::{Error, Result};
use super::path_text;
use super::refusal::Unsuitable;
use super::storage::Storage;
use super::suitable::{Candidate, Rules};
use crate::Placement;

/// Tier for copies if the policy names none.
const MEMORY: &str = "/dev/shm";
/// Maximum number of matched files. More suggest a pattern that is too broad.
const FILES_MAX: usize = 100_000;

/// Files to place, and limits.
#[derive(Clone, Debug)]
pub struct Request {
    /// Directory of the tier.
    pub tier: PathBuf,
    /// Mode of placement.
    pub mode: Placement,
    /// Paths, or patterns with `*`, `?`, `[...]` and `**`. Relative paths start at the working
    /// directory. Earlier entries are placed first. A path that is not UTF-8 is never a pattern.
    pub files: Vec<PathBuf>,
    /// Upper bound on the bytes placed.
    pub budget_bytes: Option<u64>,
    /// Bytes read of each file, from a trace. If this is not empty, files are ordered by bytes read
    /// per byte of space, and files that were not read come last.
    pub uses: Vec<(PathBuf, u64)>,
}

impl Request {
    /// Creates a request from a policy. Without a path in the policy, the tier is memory.
    pub fn of_policy(policy: &crate::Tier) -> Self {
        Self {
            tier: policy.path.clone().unwrap_or_else(|| MEMORY.into()),
            mode: policy.mode,
            files: policy.files.iter().map(PathBuf::from).collect(),
            budget_bytes: policy.budget_mib.map(|mib| mib.saturating_mul(1 << 20)),
            uses: Vec::new(),
        }
    }

    /// Ranks files by the bytes read of each in a trace.
    pub fn rank_by(&mut self, trace: &Trace) {
        let mut read: HashMap<&str, u64> = HashMap::new();
        for event in trace.events.iter().filter(|event| event.operation == Operation::Read) {
            if let Some(file) = &event.file {
                let sum = read.entry(file).or_default();
                *sum = sum.saturating_add(event.length_bytes);
            }
        }
        self.uses.extend(read.into_iter().map(|(file, bytes)| (file.into(), bytes)));
    }
}

/// Result of planning.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The tier.
    pub tier: Storage,
    /// Mode of placement.
    pub mode: Placement,
    /// Upper bound on the bytes placed.
    pub budget_bytes: Option<u64>,
    /// Files to place, in order.
    pub files: Vec<Planned>,
    /// Files left out, with reasons.
    pub skipped: Vec<Skipped>,
    /// Paths and patterns that match no file.
    pub unmatched: Vec<String>,
}

/// File that will be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Planned {
    /// Path without symbolic links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Length of the file.
    pub size_bytes: u64,
    /// Space needed on the tier: the data without holes.
    pub data_bytes: u64,
    /// Bytes read of the file, if reads were given.
    pub read_bytes: Option<u64>,
    /// True if the tier already has a current copy for views.
    pub is_there: bool,
}

/// File that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Path without symbolic links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Reason.
    pub why: SkipReason,
}

/// Reason why a file is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// The file cannot be placed.
    #[error("{0}")]
    Unsuitable(Unsuitable),
    /// Too little of the budget is left after the files before it.
    #[error(
        "it needs {needed_bytes} bytes, and {left_bytes} of the budget are left: raise the budget, or name the file earlier"
    )]
    OverBudget {
        /// Space that the file needs.
        needed_bytes: u64,
        /// Budget that is left.
        left_bytes: u64,
    },
    /// Too little space is left on the tier after the files before it.
    #[error(
        "it needs {needed_bytes} bytes, and {left_bytes} are left on the tier: free space there, or name the file earlier"
    )]
    NoRoom {
        /// Space that the file needs.
        needed_bytes: u64,
        /// Space that is left.
        left_bytes: u64,
    },
}

impl Plan {
    /// Inspects all files and changes nothing. Opens each file and asks the kernel whether it is
    /// open elsewhere; if one is, scans `/proc` for the processes. If another process holds a lease
    /// on a file, the kernel asks that process to release it.
    ///
    /// A file that does not fit is left out. Smaller files after it may still be placed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the tier does not exist; [`Error::Pattern`] for a pattern that is invalid
    /// or matches more than 100,000 files.
    pub fn make(request: &Request) -> Result<Self> {
        let tier = Storage::of(&request.tier)?;
        let Matched { paths, mut skipped, unmatched } = matched(&request.files)?;
        let rules = Rules::new(request.mode, &tier);
        let mut candidates = Vec::new();
        for path in paths {
            match rules.check(&path) {
                Ok(candidate) => candidates.push(candidate),
                Err(why) => skipped.push(Skipped { path, why: SkipReason::Unsuitable(why) }),
            }
        }
        let (candidates, open) = Candidate::split_by_openers(candidates);
        skipped.extend(open.into_iter().map(|(candidate, why)| Skipped {
            path: candidate.path,
            why: SkipReason::Unsuitable(why),
        }));
        let planned = ordered(candidates, request, &tier);
        let (files, left_out) = fitting(planned, request.budget_bytes, tier.free_bytes);
        skipped.extend(left_out);
        Ok(Self {
            mode: request.mode,
            budget_bytes: request.budget_bytes,
            tier,
            files,
            skipped,
            unmatched,
        })
    }

    /// Returns the space that files without a current copy need on the tier.
    pub fn new_bytes(&self) -> u64 {
        self.files.iter().filter(|file| !file.is_there).map(|file| file.data_bytes).sum()
    }
}

struct Matched {
    paths: Vec<PathBuf>,
    skipped: Vec<Skipped>,
    unmatched: Vec<String>,
}

/// Returns all matched files, without symbolic links, each once.
fn matched(patterns: &[PathBuf]) -> Result<Matched> {
    let mut all = Matched { paths: Vec::new(), skipped: Vec::new(), unmatched: Vec::new() };
    let mut known = HashSet::new();
    for pattern in patterns {
        let found = paths_of(pattern)?;
        if found.is_empty() {
            all.unmatched.push(pattern.display().to_string());
        }
        for path in found {
            let path = match std::fs::canonicalize(&path) {
                Ok(path) => path,
                Err(error) => {
                    let what = format!("it cannot be resolved: {error}");
                    let why = SkipReason::Unsuitable(Unsuitable::NotPermitted { what });
                    all.skipped.push(Skipped { path, why });
                    continue;
                }
            };
            if known.insert(path.clone()) {
                all.paths.push(path);
            }
            if known.len() > FILES_MAX {
                let what = format!("more than {FILES_MAX} files match: choose fewer");
                return Err(Error::Pattern { pattern: pattern.display().to_string(), what });
            }
        }
    }
    Ok(all)
}

/// Returns the files that match a pattern. An existing path always matches itself, even with
/// pattern characters in its name.
fn paths_of(pattern: &Path) -> Result<Vec<PathBuf>> {
    if pattern.symlink_metadata().is_ok() {
        return Ok(vec![pattern.into()]);
    }
    let Some(pattern) = pattern.to_str() else { return Ok(Vec::new()) };
    let found = glob::glob(pattern)
        .map_err(|error| Error::Pattern { pattern: pattern.into(), what: error.to_string() })?;
    // Ignore directories that may not be listed. One file above the limit is enough to detect it.
    let is_pattern = pattern.contains(['*', '?', '[']);
    let files = found.flatten().filter(|path| !is_pattern || !path.is_dir());
    Ok(files.take(FILES_MAX + 1).collect())
}

/// Returns the candidates in order of placement.
fn ordered(candidates: Vec<Candidate>, request: &Request, tier: &Storage) -> Vec<Planned> {
    let mut uses: HashMap<PathBuf, u64> = HashMap::new();
    for (path, read_bytes) in &request.uses {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let sum = uses.entry(path).or_default();
        *sum = sum.saturating_add(*read_bytes);
    }
    let mut planned: Vec<_> = candidates
        .into_iter()
        .map(|candidate| Planned {
            is_there: request.mode == Placement::View
                && copies::find(&tier.path, &candidate.path).is_some(),
            size_bytes: candidate.identity.size_bytes,
            data_bytes: candidate.data_bytes,
            read_bytes: (!uses.is_empty()).then(|| uses.get(&candidate.path).copied().unwrap_or(0)),
            path: candidate.path,
        })
        .collect();
    let worth = |file: &Planned| {
        file.read_bytes.map_or(0.0, |read| read as f64 / file.data_bytes.max(1) as f64)
    };
    // A stable sort: files of equal value keep the order of the request.
    planned.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    planned
}

/// Splits files into those that fit and those left out.
fn fitting(
    planned: Vec<Planned>,
    budget_bytes: Option<u64>,
    free_bytes: u64,
) -> (Vec<Planned>, Vec<Skipped>) {
    let (mut budget_left, mut free_left) = (budget_bytes.unwrap_or(u64::MAX), free_bytes);
    let (mut fit, mut not) = (Vec::new(), Vec::new());
    for file in planned {
        let needed_bytes = file.data_bytes;
        let new_bytes = if file.is_there { 0 } else { needed_bytes };
        let why = if needed_bytes > budget_left {
            SkipReason::OverBudget { needed_bytes, left_bytes: budget_left }
        } else if new_bytes > free_left {
            SkipReason::NoRoom { needed_bytes, left_bytes: free_left }
        } else {
            budget_left -= needed_bytes;
            free_left -= new_bytes;
            fit.push(file);
            continue;
        };
        not.push(Skipped { path: file.path, why });
    }
    (fit, not)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(name: &str, data_bytes: u64, is_there: bool) -> Planned {
        Planned {
            path: name.into(),
            size_bytes: data_bytes,
            data_bytes,
            read_bytes: None,
            is_there,
        }
    }

    fn names(files: &[Planned]) -> Vec<&str> {
        files.iter().map(|file| file.path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_file_that_does_not_fit_leaves_space_for_smaller_ones() {
        let files =
            || vec![planned("a", 60, false), planned("b", 50, false), planned("c", 40, false)];
        let (fit, not) = fitting(files(), Some(100), u64::MAX);
        assert_eq!(names(&fit), ["a", "c"]);
        assert_eq!(not[0].why, SkipReason::OverBudget { needed_bytes: 50, left_bytes: 40 });
        let (fit, not) = fitting(files(), None, 99);
        assert_eq!(names(&fit), ["a"]);
        assert_eq!(not[1].why, SkipReason::NoRoom { needed_bytes: 40, left_bytes: 39 });
    }

    #[test]
    fn an_existing_copy_uses_budget_and_no_new_space() {
        let files = vec![planned("a", 60, true), planned("b", 50, false)];
        let (fit, not) = fitting(files.clone(), None, 50);
        assert_eq!((fit.len(), not.len()), (2, 0));
        let (fit, _) = fitting(files, Some(100), 50);
        assert_eq!(names(&fit), ["a"]);
    }
}
