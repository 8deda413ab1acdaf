//! What a writer chooses: how durable a commit is when it returns, and how much is kept back.

use std::time::Duration;

/// When a commit is durable. At every level commits are atomic and ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When [`commit`](crate::Session::commit) returns: it survives a kill and a power cut.
    #[default]
    Commit,
    /// A commit survives the end of the process, however it ends, at once. A power cut loses at
    /// most the commits of the last interval (and of the flush that was going on).
    Interval(Duration),
    /// At [`close`](crate::Session::close), and whenever [`sync`](crate::Session::sync) is called:
    /// commits before that are steps to which a rollback returns. A kill or a power cut goes back
    /// to the last durable one.
    Close,
}

/// What happens to a commit when the log is full and readers keep the writer from emptying it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLogFull {
    /// The object's file is replaced by a copy that has everything; readers keep the old file until
    /// they refresh or close. Costs a copy of the file, or next to nothing where the file system
    /// shares blocks (xfs, btrfs).
    #[default]
    Replace,
    /// The commit returns [`Error::LogFull`](crate::Error::LogFull); nothing is lost.
    Refuse,
}

/// What a child that the program forks may do with a session's memory, which it has as of the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InChildren {
    /// Read it. Stores fault.
    #[default]
    ReadOnly,
    /// Read it, and store for itself: nobody else sees that, and nothing of it is committed.
    Private,
}

/// What a commit does about pointers that lead out of the object, into memory that the next process
/// does not have: the C heap, a stack, a library, another store.
///
/// Commits of raw sessions, and of programs in C and C++, look for them in the lines that changed.
/// Sessions of a Rust type do not: no safe code can follow such a pointer there, as references and
/// pointers are not [`Persist`](crate::Persist), and following a [`Ptr`](crate::Ptr) takes `unsafe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignPointers {
    /// The commit fails with [`Error::ForeignPointer`](crate::Error::ForeignPointer), and nothing is
    /// committed.
    Refuse,
    /// The commit succeeds, and each place is reported once a session, as a `tracing` warning and by
    /// [`RawSession::foreign_pointers`](crate::RawSession::foreign_pointers). If a pointer leads
    /// into a program or library, its build is recorded, and processes that have another one refuse
    /// the object.
    ///
    /// The default, because a number can look like an address.
    #[default]
    Report,
    /// Commits do not look.
    Allow,
}

/// Choices of one writer's session. The defaults suit almost everybody.
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
    /// Objects of at least so many bytes keep their log for the next session.
    pub(crate) log_kept_from_bytes: u64,
    /// Limits of deferred growth.
    pub(crate) deferral: Deferral,
}

/// Growth that takes disk space in steps, where it is stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    /// Growth by more than this at once is deferred.
    pub(crate) from_bytes: u64,
    /// Space is reserved in steps of so many bytes of the file.
    pub(crate) step_bytes: u64,
}

impl Deferral {
    /// The values of every session. Tests set smaller ones.
    pub(crate) const DEFAULT: Deferral = Deferral { from_bytes: 64 << 20, step_bytes: 2 << 20 };
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            durability: Durability::Commit,
            when_log_full: WhenLogFull::Replace,
            // Recovery and readers beside the writer read all of it.
            log_bytes_max: 256 << 20,
            hot_bytes_max: 256 << 20,
            checkpoint_after: Duration::from_secs(60),
            full_pages: false,
            in_children: InChildren::ReadOnly,
            foreign_pointers: ForeignPointers::default(),
            // The log is 64 KiB: a sixteenth of the object, at most.
            log_kept_from_bytes: 1 << 20,
            deferral: Deferral::DEFAULT,
        }
    }
}

impl WriteOptions {
    /// The defaults.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// When commits are durable. Default: [`Durability::Commit`].
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = durability;
        self
    }

    /// What to do when the log is full and cannot be emptied. Default: [`WhenLogFull::Replace`].
    pub fn when_log_full(mut self, action: WhenLogFull) -> WriteOptions {
        self.when_log_full = action;
        self
    }

    /// Bytes of log after which a commit is followed by a checkpoint. Default: 256 MiB. One commit
    /// larger than this is taken all the same.
    pub fn log_bytes_max(mut self, bytes: u64) -> WriteOptions {
        self.log_bytes_max = bytes;
        self
    }

    /// Bytes of changed pages, and of their changes, that a session may keep in memory after their
    /// commit: storing to such a page again costs less than half. Default: 256 MiB. Readers beside
    /// the writer can keep more in memory, up to what the log holds.
    pub fn hot_bytes_max(mut self, bytes: u64) -> WriteOptions {
        self.hot_bytes_max = bytes;
        self
    }

    /// A commit that comes this long after the last checkpoint is followed by one, so that the log
    /// that a crash would leave stays short. Default: one minute.
    pub fn checkpoint_after(mut self, time: Duration) -> WriteOptions {
        self.checkpoint_after = time;
        self
    }

    /// What forked children may do with the session's memory. Default: read it.
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

    /// Logs changed pages whole instead of their changed lines. For disks whose sectors can be
    /// unreadable, and not just old or new, after a power cut. Default: false.
    pub fn log_full_pages(mut self, full: bool) -> WriteOptions {
        self.full_pages = full;
        self
    }

    /// What commits of raw sessions do about pointers that lead out of the object. Default:
    /// [`ForeignPointers::Report`].
    pub fn foreign_pointers(mut self, action: ForeignPointers) -> WriteOptions {
        self.foreign_pointers = action;
        self
    }
}
