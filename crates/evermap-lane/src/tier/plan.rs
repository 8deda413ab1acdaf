//! Which files go to the tier, in which order, and what becomes of the others.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::copies;
use super::error::{Error, Result};
use super::path_text;
use super::storage::Storage;
use super::suitable::{Candidate, Rules, Unsuitable};
use crate::Placement;

/// Where copies go when a policy names no tier.
const MEMORY: &str = "/dev/shm";
/// More files than this are no set that somebody has chosen.
const FILES_MAX: usize = 100_000;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// The tier: a directory.
    pub tier: PathBuf,
    /// How files go there.
    pub mode: Placement,
    /// Which: paths, or patterns with `*`, `?`, `[...]` and `**`; relative ones from the working directory. The first are the first to go.
    pub files: Vec<String>,
    /// No more than this is to be there of them.
    pub budget_bytes: Option<u64>,
    /// What was read of files, as a trace tells. Those with the most bytes read for each byte they take go first then, and those that were
    /// not read last.
    pub uses: Vec<(PathBuf, u64)>,
}

impl Request {
    /// Of a policy. Without a path in it the tier is memory.
    pub fn of_policy(policy: &crate::Tier) -> Self {
        Self {
            tier: policy.path.clone().unwrap_or_else(|| MEMORY.into()),
            mode: policy.mode,
            files: policy.files.clone(),
            budget_bytes: policy.budget_mib.map(|mib| mib.saturating_mul(1 << 20)),
            uses: Vec::new(),
        }
    }
}

/// What would be done.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The tier.
    pub tier: Storage,
    /// How files go there.
    pub mode: Placement,
    /// No more than this.
    pub budget_bytes: Option<u64>,
    /// What goes, in this order.
    pub files: Vec<Planned>,
    /// What stays, and why.
    pub skipped: Vec<Skipped>,
    /// Paths and patterns that no file has.
    pub unmatched: Vec<String>,
}

/// A file that goes to the tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Planned {
    /// Without links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// How long it is.
    pub size_bytes: u64,
    /// What it takes on the tier: its data, without holes.
    pub data_bytes: u64,
    /// What was read of it, if that was asked.
    pub read_bytes: Option<u64>,
    /// A current copy for views is there already.
    pub is_there: bool,
}

/// A file that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Without links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why a file stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// It cannot be placed.
    #[error("{0}")]
    Unsuitable(Unsuitable),
    /// What goes before it leaves too little of the budget.
    #[error(
        "it takes {needed_bytes} bytes, and {left_bytes} of the budget are left: raise it, or name the file earlier"
    )]
    OverBudget {
        /// What it takes.
        needed_bytes: u64,
        /// What there is.
        left_bytes: u64,
    },
    /// What goes before it leaves too little room on the tier.
    #[error(
        "it takes {needed_bytes} bytes, and {left_bytes} are left on the tier: free some there, or name the file earlier"
    )]
    NoRoom {
        /// What it takes.
        needed_bytes: u64,
        /// What there is.
        left_bytes: u64,
    },
}

impl Plan {
    /// Looks at all files, and changes nothing. Cost: opens each file, asks the kernel who has it open, and looks through `/proc` for their
    /// names if somebody has. A file that somebody has leased is asked for.
    ///
    /// A file that does not fit is left out, and smaller ones after it may still go.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for a tier that is not there; [`Error::Pattern`] for a pattern that is none or matches more than 100,000 files.
    pub fn make(request: &Request) -> Result<Self> {
        let tier = Storage::of(&request.tier)?;
        let Matched { paths, mut skipped, unmatched } = matched(&request.files)?;
        let rules = Rules::new(request.mode, &tier);
        let mut candidates = Vec::new();
        for path in paths {
            match rules.look(&path) {
                Ok(candidate) => candidates.push(candidate),
                Err(why) => skipped.push(Skipped { path, why: Why::Unsuitable(why) }),
            }
        }
        let (candidates, open) = Candidate::settle(candidates);
        skipped.extend(
            open.into_iter().map(|(candidate, why)| Skipped {
                path: candidate.path,
                why: Why::Unsuitable(why),
            }),
        );
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

    /// What all of it takes that is not there yet.
    pub fn new_bytes(&self) -> u64 {
        self.files.iter().filter(|file| !file.is_there).map(|file| file.data_bytes).sum()
    }
}

struct Matched {
    paths: Vec<PathBuf>,
    skipped: Vec<Skipped>,
    unmatched: Vec<String>,
}

/// All files that are named, without links, each once.
fn matched(patterns: &[String]) -> Result<Matched> {
    let mut all = Matched { paths: Vec::new(), skipped: Vec::new(), unmatched: Vec::new() };
    let mut known = HashSet::new();
    for pattern in patterns {
        let found = paths_of(pattern)?;
        if found.is_empty() {
            all.unmatched.push(pattern.clone());
        }
        for path in found {
            let path = match std::fs::canonicalize(&path) {
                Ok(path) => path,
                Err(error) => {
                    let what = format!("it leads nowhere: {error}");
                    let why = Why::Unsuitable(Unsuitable::NotPermitted { what });
                    all.skipped.push(Skipped { path, why });
                    continue;
                }
            };
            if known.insert(path.clone()) {
                all.paths.push(path);
            }
            if known.len() > FILES_MAX {
                let what = format!("more than {FILES_MAX} files match: choose fewer");
                return Err(Error::Pattern { pattern: pattern.clone(), what });
            }
        }
    }
    Ok(all)
}

/// What a pattern stands for; a path that is there stands for itself, whatever is in its name.
fn paths_of(pattern: &str) -> Result<Vec<PathBuf>> {
    if Path::new(pattern).symlink_metadata().is_ok() {
        return Ok(vec![pattern.into()]);
    }
    let found = glob::glob(pattern)
        .map_err(|error| Error::Pattern { pattern: pattern.into(), what: error.to_string() })?;
    // Directories that may not be listed have no files for this user. One more than may be is enough to tell.
    let is_pattern = pattern.contains(['*', '?', '[']);
    let files = found.flatten().filter(|path| !is_pattern || !path.is_dir());
    Ok(files.take(FILES_MAX + 1).collect())
}

/// In the order in which they are to go.
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
    // Stable: what is worth the same goes as it was named.
    planned.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    planned
}

/// What fits, and what does not.
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
            Why::OverBudget { needed_bytes, left_bytes: budget_left }
        } else if new_bytes > free_left {
            Why::NoRoom { needed_bytes, left_bytes: free_left }
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
    fn what_does_not_fit_leaves_room_for_smaller_ones() {
        let files =
            || vec![planned("a", 60, false), planned("b", 50, false), planned("c", 40, false)];
        let (fit, not) = fitting(files(), Some(100), u64::MAX);
        assert_eq!(names(&fit), ["a", "c"]);
        assert_eq!(not[0].why, Why::OverBudget { needed_bytes: 50, left_bytes: 40 });
        let (fit, not) = fitting(files(), None, 99);
        assert_eq!(names(&fit), ["a"]);
        assert_eq!(not[1].why, Why::NoRoom { needed_bytes: 40, left_bytes: 39 });
    }

    #[test]
    fn what_is_there_takes_of_the_budget_and_no_room() {
        let files = vec![planned("a", 60, true), planned("b", 50, false)];
        let (fit, not) = fitting(files.clone(), None, 50);
        assert_eq!((fit.len(), not.len()), (2, 0));
        let (fit, _) = fitting(files, Some(100), 50);
        assert_eq!(names(&fit), ["a"]);
    }
}
