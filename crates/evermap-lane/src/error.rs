//! Errors of lanes. Each names the thing, the cause and the remedy.

use std::io;
use std::path::PathBuf;

use crate::cpu_list::CpuList;
use crate::refusal::{CoreRefusal, HoldRefusal, Unobservable};

/// Result of this crate. The simulator, traces and the tier have error types of their own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns the same error with a remedy appended, for errors that the user can fix.
pub(crate) fn with_remedy(source: io::Error, remedy: &str) -> io::Error {
    io::Error::new(source.kind(), format!("{source}; {remedy}"))
}

/// Reason why a lane was not made, or ended. Changes made before the error are undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// Operation, as in "cannot ...".
        operation: &'static str,
        /// File or object that the operation was for.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A policy file is invalid.
    #[error("{}: {what}", path.display())]
    Policy {
        /// Policy file.
        path: PathBuf,
        /// Invalid setting, its place, and valid values.
        what: String,
    },
    /// The policy is for other programs.
    #[error(
        "the policy matches `{pattern}`, and {} does not match: change or remove its `match`",
        program.display()
    )]
    NotForProgram {
        /// The policy's `match`.
        pattern: String,
        /// Program to start.
        program: PathBuf,
    },
    /// The policy has no period.
    #[error("the policy has no period, which frames need: set `fps` or `period_us`")]
    NoPeriod,
    /// A policy built in code is invalid.
    #[error("invalid policy: {0}")]
    InvalidPolicy(String),
    /// The lane belongs to the process that this one was forked from.
    #[error(
        "the lane belongs to process {lane}, and process {here} was forked from it: enter a new lane there"
    )]
    Forked {
        /// Process that entered the lane.
        lane: i32,
        /// Process that asked for a frame.
        here: i32,
    },
    /// The calling thread is already in a lane.
    #[error("this thread is already in a lane: leave that lane first")]
    AlreadyInLane,
    /// A process of a benchmark failed.
    #[error("a benchmark process {what}: read its messages on stderr, then run it again")]
    Child {
        /// Process, and how it failed.
        what: String,
    },
    /// The path is not a regular file.
    #[error("{} is not a regular file: a lane reads regular files only", path.display())]
    NotAFile {
        /// Path that was opened.
        path: PathBuf,
    },
    /// The file became shorter while it was read.
    #[error("{} was truncated from {was_bytes} to {is_bytes} bytes while it was read: open it again when it is complete", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length when the file was opened.
        was_bytes: u64,
        /// Length now.
        is_bytes: u64,
    },
    /// The file was written to while it was read.
    #[error("{} changed while it was read ({what}): open it again when its writer has finished", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Sign of the change.
        what: &'static str,
    },
    /// The tier has no room for the file.
    #[error("{} has {bytes} bytes, but {whose} has room for {room_bytes}: {remedy}", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        bytes: u64,
        /// Name of the limit.
        whose: &'static str,
        /// Bytes available.
        room_bytes: u64,
        /// Remedy.
        remedy: &'static str,
    },
    /// The file could not be copied to the tier.
    #[error("cannot copy {} to the tier: {source}", path.display())]
    NotCopied {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: Box<evermap_transfer::Error>,
    },
    /// The state directory could belong to another user.
    #[error(
        "unsafe state directory {}: {why}; remove it, or choose another one with `--state DIR`",
        path.display()
    )]
    State {
        /// The state directory, or a directory inside it.
        path: PathBuf,
        /// Problem found.
        why: String,
    },
    /// The journal is unreadable.
    #[error(
        "cannot undo from journal {}: {why}; if no control group `evermap-lane-N` is left (see `evermap lane status`), remove the file",
        path.display()
    )]
    Journal {
        /// Journal file.
        path: PathBuf,
        /// Problem found.
        why: String,
    },
    /// No guardian could be started, so no process would undo the lane after a kill.
    #[error("cannot start a guardian for the lane: {why}")]
    NoGuardian {
        /// Cause and remedy.
        why: String,
    },
    /// The lane's program could not be started.
    #[error("cannot start {}: {source}", program.display())]
    NotStarted {
        /// Program.
        program: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another lane has claimed the core.
    #[error(
        "core {core} already has a lane, claimed by {holder}: wait until it ends, or choose another core (the claim is a lock on {})",
        path.display()
    )]
    CoreTaken {
        /// Number of the core.
        core: u32,
        /// Process and program that hold the claim.
        holder: String,
        /// File whose lock is the claim.
        path: PathBuf,
    },
    /// The core cannot be reserved for the program alone.
    #[error("cannot hold core {core}: {why}")]
    HoldRefused {
        /// Number of the core.
        core: u32,
        /// Cause and remedy.
        why: HoldRefusal,
    },
    /// The core that the policy names cannot be used.
    #[error("cannot use core {core} for a lane: {why}")]
    CoreRefused {
        /// Number of the core.
        core: u32,
        /// Cause and remedy.
        why: CoreRefusal,
    },
    /// No process has this number.
    #[error("no process {process}: list the running processes with `ps`")]
    NoProcess {
        /// Process number.
        process: u32,
    },
    /// The process cannot be observed.
    #[error("cannot observe process {process}: {why}")]
    Unobservable {
        /// Process number.
        process: u32,
        /// Cause and remedy.
        why: Unobservable,
    },
    /// No core is left for a lane.
    #[error(
        "no core is left for a lane: this process may use {usable}, and other lanes have {taken}; end one of them \
         (`evermap lane status` lists them), or set `share = \"off\"`"
    )]
    NoCore {
        /// Cores that this process may use.
        usable: CpuList,
        /// Cores that other lanes have claimed.
        taken: CpuList,
    },
}
