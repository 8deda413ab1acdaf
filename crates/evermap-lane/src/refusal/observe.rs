//! Reasons why a process cannot be observed, with remedies.

/// Reason why a process cannot be observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unobservable {
    /// It is a kernel thread.
    #[error("it is a kernel thread, for which there are no lanes; name the process of a program")]
    KernelThread,
    /// It is a zombie.
    #[error("it has ended, and its parent has not noticed yet; name a running process")]
    Zombie,
    /// The number belongs to a thread.
    #[error("it is a thread of process {process}: name that process")]
    ThreadOf {
        /// Process of the thread.
        process: u32,
    },
    /// Another user owns it.
    #[error(
        "user {owner} owns it, and its files are not readable; observe it as root or as that user (a program with capabilities: as root)"
    )]
    NotPermitted {
        /// Owner of the process.
        owner: u32,
    },
    /// It ended before enough was observed.
    #[error(
        "it ended after {after_ms} ms, before a thread had woken a hundred times; observe it while it runs"
    )]
    Ended {
        /// Duration of the observation.
        after_ms: u128,
    },
}
