//! Landlock: restricts which files a process can open.
//!
//! Requires the features of Linux 6.2 (ABI 3): read, write, create, remove, move, truncate. Uses
//! features of later kernels if present: device ioctls, signals and abstract sockets across the
//! wall.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};

use crate::error::{Error, Result};

/// Required ABI, and the latest ABI that is used if present.
const NEEDED: ABI = ABI::V3;
const OPTIONAL: ABI = ABI::V8;

/// Enforcement of file restrictions on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Landlock restricts all threads.
    Landlock,
    /// Landlock restricts the calling thread and the threads it starts. Other threads are
    /// restricted by the system call filter alone, which opens nothing.
    PartialLandlock,
    /// The system call filter alone. The kernel has no Landlock, and best effort was requested.
    FilterOnly,
}

/// Returns true if this kernel has the Landlock features that walls need. Costs one system call.
pub fn has_landlock() -> bool {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of `linux/landlock.h`.
    const VERSION: libc::c_ulong = 1;
    let (nothing, zero): (libc::c_ulong, libc::c_ulong) = (0, 0);
    // SAFETY: with this flag the call takes no pointer and creates nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, zero, VERSION) };
    version >= NEEDED as i64
}

/// Paths that stay accessible.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Used only if they exist.
    read_if_exists: Vec<PathBuf>,
    write_if_exists: Vec<PathBuf>,
}

impl Files {
    pub(super) fn read(&mut self, path: &Path) {
        self.read.push(path.to_path_buf());
    }

    pub(super) fn write(&mut self, path: &Path) {
        self.write.push(path.to_path_buf());
    }

    pub(super) fn read_if_exists(&mut self, paths: &[&str]) {
        self.read_if_exists.extend(paths.iter().map(PathBuf::from));
    }

    pub(super) fn write_if_exists(&mut self, paths: &[&str]) {
        self.write_if_exists.extend(paths.iter().map(PathBuf::from));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Creates the ruleset, ready to be enforced. Without Landlock, fails or, with best effort,
    /// returns rules without effect.
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
            .handle_access(AccessFs::from_all(OPTIONAL))
            .and_then(|rules| rules.scope(Scope::from_all(OPTIONAL)))
            .and_then(Ruleset::create)
            .map_err(refused)?;
        let reading = AccessFs::from_read(NEEDED);
        // Creating device files is never allowed.
        let writing = AccessFs::from_all(NEEDED) & !AccessFs::MakeChar & !AccessFs::MakeBlock;
        for (paths, access) in [(&self.read, reading), (&self.write, writing)] {
            for path in paths {
                rules = rule(rules, path, access)?;
            }
        }
        for (paths, access) in [(&self.read_if_exists, reading), (&self.write_if_exists, writing)] {
            for path in paths.iter().filter(|path| path.exists()) {
                rules = rule(rules, path, access)?;
            }
        }
        Ok(rules)
    }
}

/// Allows `access` to a path and everything below it.
fn rule(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated> {
    let failed = |source| Error::Path { path: path.to_path_buf(), source };
    let is_folder = std::fs::metadata(path).map_err(failed)?.is_dir();
    // Directory operations do not apply to a file.
    let access = if is_folder { access } else { access & AccessFs::from_file(NEEDED) };
    let opened =
        PathFd::new(path).map_err(|error| failed(std::io::Error::other(causes(&error))))?;
    rules
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|error| Error::NoLandlock { why: causes(&error) })
}

/// Enforces the rules for this thread, or for all threads. With several threads, `all` makes
/// failure to restrict the others an error.
pub(super) fn restrict(rules: RulesetCreated, threads: usize, all: bool) -> Result<Enforcement> {
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
        RulesetStatus::NotEnforced => Enforcement::FilterOnly,
        _ if threads == 1 || status.all_threads => Enforcement::Landlock,
        _ => Enforcement::PartialLandlock,
    })
}

/// Formats an error and its causes as one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let next_text = cause.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        next = cause.source();
    }
    text
}
