//! The error type of the crate: it names the cause, the file or object, and the remedy.
//!
//! Every variant names the file or the object that it concerns, and `Display` ends with the remedy.
//! Nothing that comes from a file, the kernel or a caller is unwrapped: it becomes one of these
//! variants.

use std::path::Path;
use std::path::PathBuf;

use evermap_heap::HeapError;

use crate::layout::{BUILDING, OBJECTS, directory_of_object};

/// An error with its cause, the file or object it concerns, and a remedy.
///
/// ```
/// let error = evermap::Store::open("/nonexistent/store").unwrap_err();
/// assert!(matches!(error, evermap::Error::NoStore { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no store at this path.
    #[error("no store at {}: {why}; create one with `Store::create_new` or name another directory", path.display())]
    NoStore {
        /// The requested directory.
        path: PathBuf,
        /// Cause: the content found there instead.
        why: String,
    },
    /// `Store::create_new` found other files at the path.
    #[error("cannot create a store at {}: {why}{}", path.display(), unless_in(why, if_exists(why)))]
    StoreExists {
        /// The requested directory.
        path: PathBuf,
        /// Description of the existing content.
        why: String,
    },
    /// The store has no object of this name.
    #[error("no object `{object}` in store {}; list the store's objects to see their names", store.display())]
    NotFound {
        /// The store's directory.
        store: PathBuf,
        /// The requested name.
        object: String,
    },
    /// The store already has an object of this name.
    #[error("object `{object}` exists already in store {}; remove it, replace it, or choose another name", store.display())]
    AlreadyExists {
        /// The store's directory.
        store: PathBuf,
        /// The existing name.
        object: String,
    },
    /// The name is not a valid object name.
    #[error("`{}` cannot name an object: {why}{}", shorten(name), unless_in(why, VALID_NAMES))]
    InvalidName {
        /// The invalid name.
        name: String,
        /// The violated rule.
        why: &'static str,
    },
    /// Another session, thread or process uses the object or the store.
    #[error("{} is in use: {holder}; close it there, or try again later", what)]
    Busy {
        /// The object or the file that is locked.
        what: String,
        /// The lock holder, if known.
        holder: String,
    },
    /// The call would deadlock: the calling thread already holds the lock.
    #[error(
        "the calling thread already {how} {what} and would wait for itself; end that use first"
    )]
    WouldDeadlock {
        /// The shared object.
        what: String,
        /// Current use of the object: `reads` or `writes`.
        how: &'static str,
    },
    /// A call that requires a lock on a shared object was made by a thread that does not hold it.
    #[error(
        "the calling thread does not hold {what} locked as a thread that {how}; lock it that way first, in the same thread"
    )]
    NotLocked {
        /// The shared object.
        what: String,
        /// Required use: `reads` or `writes`.
        how: &'static str,
    },
    /// The addresses of the store or object are already used in this process.
    #[error("addresses {base:#x}..{end:#x} of {what} are taken by {by}; {remedy}")]
    AddressTaken {
        /// The store or object that needs the addresses.
        what: String,
        /// First address of the range.
        base: u64,
        /// End of the range.
        end: u64,
        /// Owner of the range, from the process's memory map.
        by: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// The file is not an Evermap file.
    #[error("{} is not an Evermap file: {found}; {}", path.display(), if_foreign(path))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Content found in place of the magic.
        found: String,
    },
    /// The file was written by a newer Evermap.
    #[error("{} has format {found}, this build knows {known}; update Evermap", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format or feature of the file.
        found: String,
        /// The newest format or the features that this build supports.
        known: String,
    },
    /// The file's contents contradict each other, or the references to the file.
    #[error("{} is damaged: {what} (found {found}, expected {expected}); {}", path.display(), if_damaged(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damaged part.
        what: &'static str,
        /// Value found.
        found: String,
        /// Value expected.
        expected: String,
    },
    /// The root in the file has another type than the program asks for.
    #[error("object `{object}` in store {} holds another type than the program asks for; {difference}\nopen it with the type it was made with, migrate it with Store::write_migrating, or create it again", store.display())]
    SchemaMismatch {
        /// The store's directory.
        store: PathBuf,
        /// The object.
        object: String,
        /// Differences between the types.
        difference: Box<evermap_heap::SchemaDifference>,
        /// Description of the type in the file.
        stored: String,
        /// Description of the type that the program asks for.
        expected: String,
    },
    /// The object was created under an application key that the caller did not give.
    #[error("object `{object}` in store {} belongs to application {stored}, and the key given is {given}; open it with the key it was made with", store.display())]
    OtherApplication {
        /// The store's directory.
        store: PathBuf,
        /// The object's name.
        object: String,
        /// The object's key, in hexadecimal digits.
        stored: String,
        /// The caller's key, or `none`.
        given: String,
    },
    /// The object is a guest object opened by a native program, or the reverse.
    #[error("{what} is {found}; {remedy}")]
    OtherKind {
        /// The object.
        what: String,
        /// Kind of the object.
        found: &'static str,
        /// Remedy.
        remedy: &'static str,
    },
    /// The file system is full.
    #[error("no space left for {}: {doing} needs {needed_bytes} bytes; free some space and try again, nothing was lost", path.display())]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// Bytes requested.
        needed_bytes: u64,
    },
    /// The file would exceed this process's limit for file lengths (`RLIMIT_FSIZE`). Nothing was
    /// written, because the kernel would have ended the process by a signal.
    #[error("cannot {doing} {} up to byte {needed_bytes}: files of this process may have {limit_bytes} (RLIMIT_FSIZE); raise the limit (`ulimit -f`) and try again, nothing was lost", path.display())]
    FileSizeLimit {
        /// The file that could not be written.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// Required length of the file.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The file system or its permissions refuse the write.
    #[error("cannot {doing} {}: {why}; check the permissions and whether the file system is mounted read-only", path.display())]
    NotPermitted {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// The window has no free range of this size.
    #[error(
        "no {bytes} bytes of free addresses for {what}: {why}; remove objects you no longer need or make a second store"
    )]
    OutOfAddresses {
        /// The store or object that needs the addresses.
        what: String,
        /// Number of bytes.
        bytes: u64,
        /// Cause.
        why: String,
    },
    /// The owner of an object may not have this many more addresses. Implementations of
    /// `GuestAddresses` return it.
    #[error(
        "no {bytes} bytes of addresses for {what}: {why}; remove objects you no longer need or raise the quota"
    )]
    AddressQuota {
        /// The object that needs the addresses.
        what: String,
        /// Number of bytes.
        bytes: u64,
        /// The quota.
        why: String,
    },
    /// The size or alignment of an allocation is impossible.
    #[error("cannot allocate {bytes} bytes (aligned to {align}): {why}")]
    BadAllocation {
        /// Requested bytes.
        bytes: u64,
        /// Requested alignment.
        align: u64,
        /// The exceeded limit.
        why: &'static str,
    },
    /// The pointer given to `free` or `reallocate` is not an allocated block of the object.
    #[error(
        "{address:#x} is not an allocated block: {why}; free each block once, through the object it came from"
    )]
    InvalidFree {
        /// The pointer's value.
        address: u64,
        /// Cause.
        why: &'static str,
    },
    /// The pointer given as an object's root is not a block of the object.
    #[error(
        "{address:#x} is not an allocated block of {bytes} bytes in object `{object}`; allocate the root in the object itself"
    )]
    BadRoot {
        /// The object's name.
        object: String,
        /// The pointer's value.
        address: u64,
        /// Required bytes.
        bytes: u64,
    },
    /// The root that a guest wrote for its object is invalid.
    #[error(
        "{address:#x} with {bytes} bytes cannot be the root of {object}: {why}; nothing was committed, set the root and commit again"
    )]
    BadGuestRoot {
        /// The object.
        object: String,
        /// The guest address.
        address: u64,
        /// Size of the root.
        bytes: u64,
        /// Cause.
        why: &'static str,
    },
    /// A collection would need more elements than its layout can count.
    #[error("{what} cannot grow further: its capacity overflows")]
    CapacityOverflow {
        /// The collection.
        what: &'static str,
    },
    /// A detached value cannot be built into another object.
    #[error(
        "a detached {what} belongs to another object; build it from references, which copies it"
    )]
    OtherObject {
        /// The type of the value.
        what: &'static str,
    },
    /// An index or a range is out of bounds.
    #[error("{what} has {len} elements, {index} was asked for; check the length first")]
    OutOfBounds {
        /// The collection.
        what: &'static str,
        /// The requested index.
        index: u64,
        /// Number of elements.
        len: u64,
    },
    /// A `Deserializer` failed (cargo feature `serde`).
    #[error("cannot read a `{what}`: {why}; nothing was changed")]
    Deserialize {
        /// The type to build.
        what: String,
        /// Message from serde.
        why: String,
    },
    /// A flush failed, so the state on disk is unknown until the object is opened again.
    #[error("cannot tell whether the last commit of {} is durable: {why}; close the session and open it again, it will find the last durable commit", path.display())]
    DurabilityUnknown {
        /// The file whose flush failed.
        path: PathBuf,
        /// The kernel's reason.
        why: String,
    },
    /// The file requires its log, and the log does not exist.
    #[error("{} needs its log {}, which is missing; put both files back together from the same place, or restore a backup", path.display(), log.display())]
    LogMissing {
        /// The object file.
        path: PathBuf,
        /// Expected path of the log.
        log: PathBuf,
    },
    /// The log is full and cannot be emptied while readers use an older commit.
    #[error("the log {} holds {bytes} bytes, the most allowed is {bytes_max}, and readers keep it from being emptied; close or refresh them and commit again, or allow a longer log; nothing was lost", path.display())]
    LogFull {
        /// The log.
        path: PathBuf,
        /// Bytes of records in it.
        bytes: u64,
        /// The configured limit.
        bytes_max: u64,
    },
    /// A forked child made a call that only the process that opened the object may make.
    #[error(
        "{what} cannot be used here: this process was forked from one that had stores open, and can only read what it inherited; start a program (exec) that opens the store itself"
    )]
    Forked {
        /// The store or the object.
        what: String,
    },
    /// The kernel or the processor lacks a feature that Evermap requires.
    #[error("this system cannot run Evermap: {why}")]
    Unsupported {
        /// The missing feature.
        why: String,
    },
    /// A commit would store pointers that lead out of the object.
    #[error(
        "object `{object}` would hold {count} pointers out of it (the first at {at:#x}: {word:#x}, which is in {into}); they lead nowhere in the next process: allocate what they point to in the object, or let the session report or allow such pointers"
    )]
    ForeignPointer {
        /// The object's name.
        object: String,
        /// Number of pointers. Some may be numbers that look like addresses.
        count: u64,
        /// Address of the first one.
        at: u64,
        /// Value of the first pointer.
        word: u64,
        /// Name of the mapping that it leads into.
        into: String,
    },
    /// The object has pointers into a program or library, and this process has another build of it
    /// or loaded it at another address.
    #[error(
        "object `{object}` has pointers into {recorded}; this process has {found}. Open it with that build at that address (programs that are linked with -no-pie have fixed ones); if no such pointer is used, open the store with `Options::other_builds`"
    )]
    OtherBuild {
        /// The object's name.
        object: String,
        /// The program or library that the pointers lead into, with its build and address.
        recorded: String,
        /// The program or library that this process has instead.
        found: String,
    },
    /// Any other error of the kernel.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

impl From<HeapError> for Error {
    fn from(error: HeapError) -> Error {
        match error {
            HeapError::OutOfAddresses { what, bytes, why } => {
                Error::OutOfAddresses { what, bytes, why }
            }
            HeapError::BadAllocation { bytes, align, why } => {
                Error::BadAllocation { bytes, align, why }
            }
            HeapError::InvalidFree { address, why } => Error::InvalidFree { address, why },
            HeapError::CapacityOverflow { what } => Error::CapacityOverflow { what },
            HeapError::OtherObject { what } => Error::OtherObject { what },
            HeapError::OutOfBounds { what, index, len } => Error::OutOfBounds { what, index, len },
            HeapError::Deserialize { what, why } => Error::Deserialize { what, why },
            HeapError::Source(source) => match source.downcast() {
                Ok(error) => *error,
                // The heap's memory does not come from a store.
                Err(source) => Error::of_heap(source),
            },
            other => Error::of_heap(other.into()),
        }
    }
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error of a heap that has no variant of its own.
    fn of_heap(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        let source = std::io::Error::other(source);
        Error::Io { path: PathBuf::from("the heap"), doing: "change", source }
    }

    /// Converts an error of a [`ChunkSource`](crate::alloc::ChunkSource) for the heap. The
    /// conversion back returns the same error. There is no `From`: with it, `?` in a closure would
    /// not determine the type of the closure's error.
    pub(crate) fn of_source(self) -> HeapError {
        match self {
            Error::OutOfAddresses { what, bytes, why } => {
                HeapError::OutOfAddresses { what, bytes, why }
            }
            other => HeapError::Source(Box::new(other)),
        }
    }

    /// Converts an error of the kernel into the variant that has a remedy for its cause, with the
    /// file and the operation.
    pub(crate) fn from_io(source: std::io::Error, doing: &'static str, path: &Path) -> Error {
        Error::from_io_sized(source, doing, path, 0)
    }

    /// Like [`from_io`](Error::from_io), for an operation that needed `needed_bytes` of disk space.
    pub(crate) fn from_io_sized(
        source: std::io::Error,
        doing: &'static str,
        path: &Path,
        needed_bytes: u64,
    ) -> Error {
        if let (Some(libc::ENOTDIR), Some(directory)) =
            (source.raw_os_error(), directory_of_object(path))
        {
            return Error::not_a_directory(directory);
        }
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::DiskFull { path, doing, needed_bytes },
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                Error::NotPermitted { path, doing, why: source.to_string() }
            }
            _ => Error::Io { path, doing, source },
        }
    }

    /// Returns the error for a directory of a store that is something else.
    pub(crate) fn not_a_directory(path: &Path) -> Error {
        Error::Damaged {
            path: path.to_path_buf(),
            what: "a directory of the store",
            found: "something else".to_string(),
            expected: "a directory".to_string(),
        }
    }

    /// Returns true for an `Io` error because a part of the path is not a directory.
    pub(crate) fn is_no_directory(&self) -> bool {
        use std::io::ErrorKind::NotADirectory;
        matches!(self, Error::Io { source, .. } if source.kind() == NotADirectory)
    }

    /// Returns true if a file could not grow because of the disk or a limit, and nothing else is
    /// wrong.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::FileSizeLimit { .. })
    }

    /// Returns true for an `Io` error because the file does not exist.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }
}

/// Cause in `StoreExists`: a store exists there.
pub(crate) const STORE_THERE: &str = "there is a store already";

/// Remedy for an invalid name.
const VALID_NAMES: &str =
    "; use 1 to 255 bytes of UTF-8 without control characters, and not `.` or `..`";

/// Returns the remedy, or nothing if the cause already ends with one.
fn unless_in(why: &str, remedy: &'static str) -> &'static str {
    if why.contains("; ") { "" } else { remedy }
}

/// Remedy if a store cannot be created.
fn if_exists(why: &str) -> &'static str {
    match why == STORE_THERE {
        true => "; open it, or choose an empty directory",
        false => "; choose an empty directory, or a name elsewhere that is free",
    }
}

/// Returns true for a store's catalog or its log. Both can be rebuilt from the object files.
fn is_of_catalog(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name == "catalog" || name == "catalog.log")
}

/// Remedy for a file that is not an Evermap file.
fn if_foreign(path: &std::path::Path) -> &'static str {
    match is_of_catalog(path) {
        true => {
            "name the right store, or let `evermap store check --repair` rebuild the catalog from the object files"
        }
        false => "name the right file, or restore it from a backup",
    }
}

/// Remedy for a damaged file.
fn if_damaged(path: &std::path::Path) -> &'static str {
    let is_directory = [OBJECTS, BUILDING].iter().any(|name| path.ends_with(name));
    match is_of_catalog(path) {
        true => {
            "`evermap store check --repair` rebuilds the catalog from the object files; or restore the store from a backup"
        }
        false if is_directory => {
            "move that away and put the directory back, or restore the store from a backup"
        }
        false => "restore it from a backup, or see what `evermap store check` can repair",
    }
}

/// Shortens a name for an error message: truncates long names and escapes control characters.
fn shorten(name: &str) -> String {
    let mut shown: String = name.escape_debug().take(60).collect();
    if name.len() > 60 {
        shown.push('…');
    }
    shown
}
