//! What can go wrong with a lane: the thing, the cause, the remedy.

use std::io;
use std::path::PathBuf;

use crate::hold::HoldRefusal;
use crate::machine::{CoreRefusal, CpuList};
use crate::observe::Unobservable;

/// As everywhere in this crate, but for the simulator, traces and the tier, which have errors of their own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The same error, with what helps against it: for those that a user can do something about.
pub(crate) fn with_remedy(source: io::Error, remedy: &str) -> io::Error {
    io::Error::new(source.kind(), format!("{source}; {remedy}"))
}

/// Why there is no lane, or it ended. What was changed before is undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A policy says something that cannot be.
    #[error("{}: {what}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what would be right.
        what: String,
    },
    /// A policy that is for other programs.
    #[error(
        "the policy is for programs like `{pattern}`, and {} is none; change its `match`, or leave that out",
        program.display()
    )]
    NotForProgram {
        /// The policy's `match`.
        pattern: String,
        /// The program.
        program: PathBuf,
    },
    /// A lane without periods.
    #[error(
        "a lane's frames have a period, and this policy has none: give it `fps` or `period_us`"
    )]
    NoPeriod,
    /// A policy that was made by hand, and that no file would be taken with.
    #[error("the policy cannot be: {0}")]
    Unusable(String),
    /// A process that was forked from the lane's.
    #[error(
        "the lane is process {lane}'s, and this is {here}, which was forked from it: enter a lane of its own"
    )]
    Forked {
        /// Where the lane was entered.
        lane: i32,
        /// Where a frame was asked for.
        here: i32,
    },
    /// This thread is in a lane already.
    #[error("this thread is in a lane already: leave that one first")]
    AlreadyIn,
    /// A process of a benchmark went wrong.
    #[error("a process {what}; run it again, and look at what it said on stderr")]
    Child {
        /// Which, and how.
        what: String,
    },
    /// What is read is no file.
    #[error("{} is no regular file, and only those are read in a lane", path.display())]
    NotAFile {
        /// What it was to be.
        path: PathBuf,
    },
    /// A file became shorter while it was read.
    #[error("{} was cut from {was_bytes} to {is_bytes} bytes while it was read: open it again when it is whole", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length when it was opened.
        was_bytes: u64,
        /// Its length now.
        is_bytes: u64,
    },
    /// A file was written to while it was read.
    #[error("{} was changed while it was read ({what}): open it again when it is at rest", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How that was noticed.
        what: &'static str,
    },
    /// The tier has no room for a file.
    #[error("{} has {bytes} bytes, and {whose} has room for {room_bytes}: {remedy}", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Who sets the limit.
        whose: &'static str,
        /// What there is.
        room_bytes: u64,
        /// What would help.
        remedy: &'static str,
    },
    /// A file could not be put on the tier.
    #[error("cannot copy {} to the tier: {source}", path.display())]
    NotCopied {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<evermap_transfer::Error>,
    },
    /// The state directory could be another's.
    #[error(
        "the state directory {} is not to be trusted: {why}; remove it, or name another one (`--state DIR`)",
        path.display()
    )]
    State {
        /// The directory, or one in it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A journal cannot be understood.
    #[error(
        "cannot undo by the journal {}: {why}; if no group `evermap-lane-N` is left (`evermap lane status` tells), remove the file",
        path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody would undo the lane if its process were killed, so that it is not made.
    #[error("the lane has no guardian: {why}")]
    NoGuardian {
        /// Why, and what to do.
        why: String,
    },
    /// The program of a lane could not be started.
    #[error("cannot start {}: {source}", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another lane has the core.
    #[error(
        "core {core} has a lane already, of {holder}; wait for its end, or name another core (the claim is the lock of {})",
        path.display()
    )]
    CoreTaken {
        /// Which.
        core: u32,
        /// Its process and program.
        holder: String,
        /// Whose lock the claim is.
        path: PathBuf,
    },
    /// A core cannot be a program's alone.
    #[error("core {core} cannot be held: {why}")]
    HoldRefused {
        /// The core.
        core: u32,
        /// Why, and what to do.
        why: HoldRefusal,
    },
    /// The core that a policy names cannot be had.
    #[error("core {core} cannot be a lane's: {why}")]
    CoreRefused {
        /// The core.
        core: u32,
        /// Why, and what to do.
        why: CoreRefusal,
    },
    /// No process has this number.
    #[error("there is no process {process}; `ps` lists those that there are")]
    NoProcess {
        /// The number.
        process: u32,
    },
    /// A process cannot be observed.
    #[error("process {process} cannot be observed: {why}")]
    Unobservable {
        /// Its number.
        process: u32,
        /// Why, and what to do.
        why: Unobservable,
    },
    /// No core is left for a lane.
    #[error(
        "no core is left for a lane: this process may use {usable}, and other lanes have {taken}; end one of them \
         (`evermap lane status` lists them), or say `share = \"off\"`"
    )]
    NoCore {
        /// What this process may use.
        usable: CpuList,
        /// What others have.
        taken: CpuList,
    },
}
