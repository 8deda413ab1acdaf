//! Options of a writer: when a commit is durable, and how much a session keeps in memory and log.
//!
//! [`WriteOptions`] holds the defaults of every tunable of the engine. Changing a default changes
//! what existing programs get.

use std::time::Duration;

/// Time at which a commit is durable. At every level commits are atomic and ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When [`commit`](crate::Session::commit) returns: it survives a kill and a power failure.
    #[default]
    Commit,
    /// A commit survives the end of the process, however it ends, at once. A power failure loses at
    /// most the commits of the last interval, and of a flush in progress.
    Interval(Duration),
    /// At [`close`](crate::Session::close), and at each [`sync`](crate::Session::sync). Commits
    /// before that are steps to which a rollback returns. A kill or a power failure returns to the
    /// last durable one.
    Close,
}

/// Action of a commit when the log is full and readers keep the writer from emptying it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLogFull {
    /// Replaces the object's file by a copy that has everything. Readers keep the old file until
    /// they refresh or close. Costs a copy of the file, or almost nothing on file systems that
    /// share blocks (xfs, btrfs).
    #[default]
    Replace,
    /// Fails with [`Error::LogFull`](crate::Error::LogFull); nothing is lost.
    Refuse,
}

/// Access of forked children to a session's memory, which they have as of the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InChildren {
    /// Children can read it. Stores fault.
    #[default]
    ReadOnly,
    /// Children can read it and store to private copies, which no other process sees and which are
    /// never committed.
    Private,
}

/// Action of a commit on pointers that lead out of the object, into memory that the next process
/// does not have: the C heap, a stack, a library, another store.
///
/// Commits of raw sessions, and of programs in C and C++, search the changed lines. Sessions of a
/// Rust type do not: no safe code can follow such a pointer there, because references and pointers
/// are not [`Persist`](crate::Persist), and following a [`Ptr`](crate::Ptr) takes `unsafe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignPointers {
    /// Fails with [`Error::ForeignPointer`](crate::Error::ForeignPointer), and commits nothing.
    Refuse,
    /// Commits, and reports each address once a session, by
    /// [`RawSession::foreign_pointers`](crate::RawSession::foreign_pointers). At most 1000 are
    /// reported in a session, and the first 8 are also logged as `tracing` warnings. If a pointer
    /// leads into a program or library, its build is recorded, and processes with a different build
    /// refuse the object.
    ///
    /// This is the default, because a number can look like an address.
    #[default]
    Report,
    /// Does not search.
    Allow,
}

/// Options of one writer's session. The defaults suit almost all programs.
///
/// ```
/// use std::time::Duration;
/// use evermap::{Durability, Store, WriteOptions};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("counter", 0)?;
/// let options = WriteOptions::new().durability(Durability::Interval(Duration::from_millis(50)));
/// let mut counter = store.write_with::<u64>("counter", &options)?;
/// for _ in 0..1000 {
///     *counter.root_mut() += 1;
///     counter.commit()?; // no flush
/// }
/// counter.close()?; // durable
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    pub(crate) durability: Durability,
    pub(crate) when_log_full: WhenLogFull,
    pub(crate) log_bytes_max: u64,
    pub(crate) hot_bytes_max: u64,
    pub(crate) checkpoint_after: Duration,
    pub(crate) full_pages: bool,
    pub(crate) in_children: InChildren,
    pub(crate) foreign_pointers: ForeignPointers,
    /// Objects of at least this many bytes keep a small log for the next session.
    pub(crate) log_kept_from_bytes: u64,
    /// Limits of deferred growth.
    pub(crate) deferral: Deferral,
}

/// Limits of growth that takes disk space in steps, when it is stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    /// Growth by more than this at once is deferred.
    pub(crate) from_bytes: u64,
    /// Space is reserved in steps of this many bytes of the file.
    pub(crate) step_bytes: u64,
}

impl Deferral {
    /// The values of every session. Tests use smaller ones.
    pub(crate) const DEFAULT: Deferral = Deferral { from_bytes: 64 << 20, step_bytes: 2 << 20 };
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            durability: Durability::Commit,
            when_log_full: WhenLogFull::Replace,
            // Recovery reads all of it, and so does each reader that opens the object during a
            // session.
            log_bytes_max: 256 << 20,
            hot_bytes_max: 256 << 20,
            checkpoint_after: Duration::from_secs(60),
            full_pages: false,
            in_children: InChildren::ReadOnly,
            foreign_pointers: ForeignPointers::default(),
            // The log has 64 KiB: at most a sixteenth of the object.
            log_kept_from_bytes: 1 << 20,
            deferral: Deferral::DEFAULT,
        }
    }
}

impl WriteOptions {
    /// Returns the defaults.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// Sets when commits are durable. Default: [`Durability::Commit`].
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = durability;
        self
    }

    /// Sets the action when the log is full and cannot be emptied. Default:
    /// [`WhenLogFull::Replace`].
    pub fn when_log_full(mut self, action: WhenLogFull) -> WriteOptions {
        self.when_log_full = action;
        self
    }

    /// Sets the bytes of log beyond which the log is emptied by a checkpoint: before a commit that
    /// would exceed them, or after one that did. Default: 256 MiB. A single larger commit is
    /// accepted.
    pub fn log_bytes_max(mut self, bytes: u64) -> WriteOptions {
        self.log_bytes_max = bytes;
        self
    }

    /// Sets the bytes of changed pages, and of their changes, that a session may keep in memory
    /// after their commit: storing to such a page again costs less than half. Default: 256 MiB.
    /// While readers have the object open it can keep more, up to the size of the log.
    pub fn hot_bytes_max(mut self, bytes: u64) -> WriteOptions {
        self.hot_bytes_max = bytes;
        self
    }

    /// Sets the time after which a commit is followed by a checkpoint, so that a crash leaves a
    /// short log. Default: one minute.
    pub fn checkpoint_after(mut self, time: Duration) -> WriteOptions {
        self.checkpoint_after = time;
        self
    }

    /// Sets the access of forked children to the session's memory. Default: read only.
    ///
    /// ```
    /// use evermap::{InChildren, WriteOptions};
    /// let options = WriteOptions::new().in_children(InChildren::Private);
    /// # let _ = options;
    /// ```
    pub fn in_children(mut self, stores: InChildren) -> WriteOptions {
        self.in_children = stores;
        self
    }

    /// Logs changed pages whole instead of their changed lines. For disks whose sectors can become
    /// unreadable in a power failure, instead of having old or new contents. Default: false.
    pub fn log_full_pages(mut self, full: bool) -> WriteOptions {
        self.full_pages = full;
        self
    }

    /// Sets the action of raw sessions' commits on pointers that lead out of the object. Default:
    /// [`ForeignPointers::Report`].
    pub fn foreign_pointers(mut self, action: ForeignPointers) -> WriteOptions {
        self.foreign_pointers = action;
        self
    }
}
