//! Landlock: which files a process may open.
//!
//! What has to be there is what Linux 6.2 has (ABI 3): reading, writing, making, removing, moving,
//! truncating. What later kernels add (device ioctls, signals and abstract sockets across the wall) is
//! taken where it is to be had.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};

use crate::error::{Error, Result};

/// What has to be there, and what is taken as well.
const NEEDED: ABI = ABI::V3;
const WELCOME: ABI = ABI::V8;

/// How a process is kept from files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// By Landlock, all of its threads.
    ByLandlock,
    /// The calling thread and those that it starts by Landlock, the others by the filter of system
    /// calls alone, which lets nothing be opened.
    InPartByLandlock,
    /// Not by Landlock: the kernel has none, and the best effort was asked for.
    NotByLandlock,
}

/// Has this kernel what the walls need of Landlock? Costs a system call.
pub fn has_landlock() -> bool {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of `linux/landlock.h`.
    const VERSION: libc::c_ulong = 1;
    let (nothing, zero): (libc::c_ulong, libc::c_ulong) = (0, 0);
    // SAFETY: with this flag the call takes no pointer and makes nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, zero, VERSION) };
    version >= NEEDED as i64
}

/// The paths that stay reachable.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Taken if they are there.
    read_if_there: Vec<PathBuf>,
    write_if_there: Vec<PathBuf>,
}

impl Files {
    pub(super) fn read(&mut self, path: &Path) {
        self.read.push(path.to_path_buf());
    }

    pub(super) fn write(&mut self, path: &Path) {
        self.write.push(path.to_path_buf());
    }

    pub(super) fn read_if_there(&mut self, paths: &[&str]) {
        self.read_if_there.extend(paths.iter().map(PathBuf::from));
    }

    pub(super) fn write_if_there(&mut self, paths: &[&str]) {
        self.write_if_there.extend(paths.iter().map(PathBuf::from));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// The ruleset, ready to be put in force. Without Landlock an error, or, with the best effort,
    /// rules that do nothing.
    pub(super) fn rules(&self, best_effort: bool) -> Result<RulesetCreated> {
        let needed = match best_effort {
            true => CompatLevel::BestEffort,
            false => CompatLevel::HardRequirement,
        };
        let refused = |error: landlock::RulesetError| Error::NoLandlock { why: causes(&error) };
        let mut rules = Ruleset::default()
            .set_compatibility(needed)
            .handle_access(AccessFs::from_all(NEEDED))
            .map_err(refused)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(WELCOME))
            .and_then(|rules| rules.scope(Scope::from_all(WELCOME)))
            .and_then(Ruleset::create)
            .map_err(refused)?;
        let reading = AccessFs::from_read(NEEDED);
        // Devices are nobody's to make here.
        let writing = AccessFs::from_all(NEEDED) & !AccessFs::MakeChar & !AccessFs::MakeBlock;
        for (paths, access) in [(&self.read, reading), (&self.write, writing)] {
            for path in paths {
                rules = rule(rules, path, access)?;
            }
        }
        for (paths, access) in [(&self.read_if_there, reading), (&self.write_if_there, writing)] {
            for path in paths.iter().filter(|path| path.exists()) {
                rules = rule(rules, path, access)?;
            }
        }
        Ok(rules)
    }
}

/// Lets `access` to what lies at or below a path through.
fn rule(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated> {
    let failed = |source| Error::Path { path: path.to_path_buf(), source };
    let is_folder = std::fs::metadata(path).map_err(failed)?.is_dir();
    // A file has no entries to list or to make.
    let access = if is_folder { access } else { access & AccessFs::from_file(NEEDED) };
    let opened =
        PathFd::new(path).map_err(|error| failed(std::io::Error::other(causes(&error))))?;
    rules
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|error| Error::NoLandlock { why: causes(&error) })
}

/// Puts the rules in force for this thread, or for all if there are others and `all` is wanted.
pub(super) fn restrict(rules: RulesetCreated, threads: usize, all: bool) -> Result<Held> {
    let refused = |error: landlock::RulesetError| Error::NoLandlock { why: causes(&error) };
    let rules = match (threads, all) {
        (1, _) => rules,
        (_, true) => rules
            .set_compatibility(CompatLevel::HardRequirement)
            .all_threads(true)
            .map_err(|_| Error::ThreadsRun { threads })?,
        (_, false) => {
            rules.set_compatibility(CompatLevel::BestEffort).all_threads(true).map_err(refused)?
        }
    };
    let status = rules.restrict_self().map_err(refused)?;
    Ok(match status.ruleset {
        RulesetStatus::NotEnforced => Held::NotByLandlock,
        _ if threads == 1 || status.all_threads => Held::ByLandlock,
        _ => Held::InPartByLandlock,
    })
}

/// An error with what it was caused by, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        next = cause.source();
    }
    said
}
