//! The one error type of the crate: what was found, where, and what the user can do about it.
//!
//! Every variant names the file or the object it is about; `Display` ends with the remedy. Nothing
//! that comes from a file, the kernel or a caller is unwrapped: it becomes one of these.

#[cfg(not(target_family = "wasm"))]
use std::path::Path;
use std::path::PathBuf;

/// What went wrong, with the thing it went wrong with and the remedy.
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
        /// The directory that was asked for.
        path: PathBuf,
        /// What was found instead.
        why: String,
    },
    /// `Store::create_new` found something at the path.
    #[error("cannot create a store at {}: {why}; {}", path.display(), if_exists(why))]
    StoreExists {
        /// The directory that was asked for.
        path: PathBuf,
        /// What is there.
        why: String,
    },
    /// The store has no object of this name.
    #[error("no object `{object}` in store {}; list the store's objects to see their names", store.display())]
    NotFound {
        /// The store's directory.
        store: PathBuf,
        /// The name that was asked for.
        object: String,
    },
    /// The store has an object of this name already.
    #[error("object `{object}` exists already in store {}; remove it, replace it, or choose another name", store.display())]
    AlreadyExists {
        /// The store's directory.
        store: PathBuf,
        /// The name that is taken.
        object: String,
    },
    /// The name cannot be an object's name.
    #[error(
        "`{}` cannot name an object: {why}; use 1 to 255 bytes of UTF-8 without control characters, and not `.` or `..`",
        shorten(name)
    )]
    InvalidName {
        /// The name as given.
        name: String,
        /// Which rule it breaks.
        why: &'static str,
    },
    /// Somebody else uses the object or the store.
    #[error("{} is in use: {holder}; close it there, or try again later", what)]
    Busy {
        /// The object or the file that is locked.
        what: String,
        /// Who holds it, as far as it can be known.
        holder: String,
    },
    /// The calling thread would wait for itself.
    #[error("the calling thread {how} {what} already, and would wait for itself; end that first")]
    WouldDeadlock {
        /// The shared object.
        what: String,
        /// How it uses the object: `reads` or `writes`.
        how: &'static str,
    },
    /// A call that needs a shared object locked came from a thread that has not locked it.
    #[error(
        "the calling thread does not hold {what} as one that {how}; begin that first, in the same thread"
    )]
    NotLocked {
        /// The shared object.
        what: String,
        /// What the call needs: a thread that `reads` or `writes`.
        how: &'static str,
    },
    /// The addresses at which the store's objects live are taken in this process.
    #[error("addresses {base:#x}..{end:#x} of {what} are taken by {by}; {remedy}")]
    AddressTaken {
        /// The store or object that wants them.
        what: String,
        /// First address wanted.
        base: u64,
        /// End of the addresses wanted.
        end: u64,
        /// What lies there, from the process's memory map.
        by: String,
        /// What can be done.
        remedy: &'static str,
    },
    /// The file is not one of ours.
    #[error("{} is not an Evermap file: {found}; {}", path.display(), if_foreign(path))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found where the magic should be.
        found: String,
    },
    /// The file was written by a newer Evermap.
    #[error("{} has format {found}, this build knows {known}; update Evermap", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format or the feature that was found.
        found: String,
        /// What this build knows.
        known: String,
    },
    /// The file's contents contradict themselves or what points to it.
    #[error("{} is damaged: {what} (found {found}, expected {expected}); {}", path.display(), if_damaged(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: &'static str,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// The root in the file is of another type than the program asks for.
    #[error("object `{object}` in store {} holds another type than the program asks for; {difference}\nopen it with the type it was made with, migrate it with Store::write_migrating, or create it anew", store.display())]
    SchemaMismatch {
        /// The store's directory.
        store: PathBuf,
        /// The object.
        object: String,
        /// In what the types differ.
        difference: Box<crate::persist::SchemaDifference>,
        /// Description of the type in the file.
        stored: String,
        /// Description of the type asked for.
        expected: String,
    },
    /// The object was made under an application key that the caller does not have.
    #[error("object `{object}` in store {} belongs to application {stored}, and the key given is {given}; open it with the key it was made with", store.display())]
    OtherApplication {
        /// The store's directory.
        store: PathBuf,
        /// The object's name.
        object: String,
        /// The object's key, in hexadecimal digits.
        stored: String,
        /// The caller's, or `none`.
        given: String,
    },
    /// The object is of the other kind: a guest's for native programs, or a native one for a guest.
    #[error("{what} is {found}; {remedy}")]
    OtherKind {
        /// The object.
        what: String,
        /// Which kind it is.
        found: &'static str,
        /// What can be done.
        remedy: &'static str,
    },
    /// The file system has no room.
    #[error("no space left for {}: {doing} needs {needed_bytes} bytes; free some space and try again, nothing was lost", path.display())]
    DiskFull {
        /// The file that should have grown.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Bytes that were asked for.
        needed_bytes: u64,
    },
    /// The process may not make files that long (`RLIMIT_FSIZE`). Nothing was written: the kernel would
    /// have ended the process by a signal.
    #[error("cannot {doing} {} up to byte {needed_bytes}: files of this process may have {limit_bytes} (RLIMIT_FSIZE); raise the limit (`ulimit -f`) and try again, nothing was lost", path.display())]
    FileSizeLimit {
        /// The file that should have been written.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Length that the file needs.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The file system or its permissions do not let us write.
    #[error("cannot {doing} {}: {why}; check the permissions and whether the file system is mounted read-only", path.display())]
    NotPermitted {
        /// The file or directory.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// The window has no free range of this size.
    #[error(
        "no {bytes} bytes of free addresses for {what}: {why}; remove objects you no longer need or make a second store"
    )]
    OutOfAddresses {
        /// Who wanted them.
        what: String,
        /// How many.
        bytes: u64,
        /// What stood in the way.
        why: String,
    },
    /// A single allocation that can never be met.
    #[error("cannot allocate {bytes} bytes (aligned to {align}): {why}")]
    BadAllocation {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
        /// Which limit it breaks.
        why: &'static str,
    },
    /// The pointer given to `free` or `reallocate` is not an allocated block of the object.
    #[error(
        "{address:#x} is not an allocated block: {why}; free each block once, through the object it came from"
    )]
    InvalidFree {
        /// The pointer's value.
        address: u64,
        /// What is known about it.
        why: &'static str,
    },
    /// What was to be an object's root is no block of it.
    #[error(
        "{address:#x} is no allocated block of {bytes} bytes in object `{object}`; allocate the root in the object itself"
    )]
    BadRoot {
        /// The object's name.
        object: String,
        /// The pointer's value.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// What a guest wrote as its object's root is none.
    #[error(
        "{address:#x} with {bytes} bytes cannot be the root of {object}: {why}; nothing was committed, set the root and commit again"
    )]
    BadGuestRoot {
        /// The object.
        object: String,
        /// The guest address.
        address: u64,
        /// How many.
        bytes: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A collection would need more elements than its layout can count.
    #[error("{what} cannot grow further: its capacity overflows")]
    CapacityOverflow {
        /// Which collection.
        what: &'static str,
    },
    /// A detached value was to be built into an object that it does not come from.
    #[error(
        "a detached {what} belongs to another object; build it from references, which copies it"
    )]
    OtherObject {
        /// The type of the value.
        what: &'static str,
    },
    /// An index or a range that a collection does not have.
    #[error("{what} has {len} elements, {index} was asked for; check the length first")]
    OutOfBounds {
        /// Which collection.
        what: &'static str,
        /// The index that was asked for.
        index: u64,
        /// Elements there are.
        len: u64,
    },
    /// A `Deserializer` could not give what is to be built (cargo feature `serde`).
    #[error("cannot read a `{what}`: {why}; nothing was changed")]
    Deserialize {
        /// The type that was to be built.
        what: String,
        /// What serde said.
        why: String,
    },
    /// A flush failed: what the disk holds is unknown until the object is opened again.
    #[error("cannot tell whether the last commit of {} is durable: {why}; close the session and open it again, it will find the last durable commit", path.display())]
    DurabilityUnknown {
        /// The file whose flush failed.
        path: PathBuf,
        /// The kernel's reason.
        why: String,
    },
    /// The file says that a log belongs to it, and the log is not there.
    #[error("{} needs its log {}, which is missing; put both files back together from the same place, or restore a backup", path.display(), log.display())]
    LogMissing {
        /// The object file.
        path: PathBuf,
        /// Where the log should be.
        log: PathBuf,
    },
    /// The log is full, and readers of an older commit keep it from being emptied.
    #[error("the log {} holds {bytes} bytes, the most allowed is {bytes_max}, and readers keep it from being emptied; close or refresh them and commit again, or allow a longer log; nothing was lost", path.display())]
    LogFull {
        /// The log.
        path: PathBuf,
        /// Bytes of records in it.
        bytes: u64,
        /// The bound that was chosen.
        bytes_max: u64,
    },
    /// A forked child called for something that only the process that opened it may do.
    #[error(
        "{what} cannot be used here: this process was forked from one that had stores open, and can only read what it inherited; start a program (exec) that opens the store itself"
    )]
    Forked {
        /// The store or the object.
        what: String,
    },
    /// The kernel or the processor lacks something Evermap cannot do without.
    #[error("this system cannot run Evermap: {why}")]
    Unsupported {
        /// What is missing.
        why: String,
    },
    /// A store cannot be put at the address that was asked for.
    #[error("no store can be at {base:#x}: {why}; name another address, or none")]
    BadBase {
        /// The address.
        base: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There is no rebase that could be taken back.
    #[error("store {} has no files of before a rebase; they are in `rebase-<time>` in its directory until somebody removes them", path.display())]
    NothingKept {
        /// The store's directory.
        path: PathBuf,
    },
    /// Going back would lose what was committed since.
    #[error("store {} has changed since its rebase: {what}; go back all the same with force, which loses that, or keep the store as it is", path.display())]
    ChangedSince {
        /// The store's directory.
        path: PathBuf,
        /// What was done.
        what: String,
    },
    /// An object that is to go elsewhere has pointers to what stays.
    #[error(
        "object `{object}` has {count} pointers to {to} (the first at {first}); export that too and put both together again, or export it with force: those pointers lead nowhere then"
    )]
    PointsElsewhere {
        /// The object's name.
        object: String,
        /// How many.
        count: u64,
        /// Where they lead.
        to: String,
        /// The path of one of them.
        first: String,
    },
    /// A commit would store pointers that lead out of the object.
    #[error(
        "object `{object}` would hold {count} pointers out of it (the first at {at:#x}: {word:#x}, which is in {into}); they lead nowhere in the next process: allocate what they point to in the object, or let the session report or allow such pointers"
    )]
    ForeignPointer {
        /// The object's name.
        object: String,
        /// How many there are; the others may be numbers that look like addresses.
        count: u64,
        /// Address of the first one.
        at: u64,
        /// Where it leads.
        word: u64,
        /// Name of the mapping there.
        into: String,
    },
    /// The object has pointers into a program or library, and this process has another build of it,
    /// or has it elsewhere.
    #[error(
        "object `{object}` has pointers into {recorded}; this process has {found}. Open it with that build at that address (programs that are linked with -no-pie have fixed ones); if no such pointer is used, open the store with `Options::other_builds`"
    )]
    OtherBuild {
        /// The object's name.
        object: String,
        /// The program or library that the pointers lead into, with its build and address.
        recorded: String,
        /// What this process has in its place.
        found: String,
    },
    /// What was to be imported is no whole export.
    #[error("{} is no whole export of an object: found {found}, expected {expected}; export the object again", path.display())]
    BadExport {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// Anything else the kernel refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(not(target_family = "wasm"))]
impl Error {
    /// Gives an error of the kernel its place: the file, what was being done, and the variant that
    /// has a remedy for this cause.
    pub(crate) fn from_io(source: std::io::Error, doing: &'static str, path: &Path) -> Error {
        Error::from_io_sized(source, doing, path, 0)
    }

    /// The same for an operation that wanted `needed_bytes` of the disk.
    pub(crate) fn from_io_sized(
        source: std::io::Error,
        doing: &'static str,
        path: &Path,
        needed_bytes: u64,
    ) -> Error {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::DiskFull { path, doing, needed_bytes },
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                Error::NotPermitted { path, doing, why: source.to_string() }
            }
            _ => Error::Io { path, doing, source },
        }
    }

    /// True when a file could not get longer, by the disk or by a limit. Nothing else is wrong.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::FileSizeLimit { .. })
    }

    /// True for an `Io` error that says the file is not there.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }
}

/// `StoreExists`: why no store can be made where there is one.
pub(crate) const STORE_THERE: &str = "there is a store already";

/// Remedy where no store can be made.
fn if_exists(why: &str) -> &'static str {
    match why == STORE_THERE {
        true => "open it, or choose an empty directory",
        false => "choose an empty directory, or a name elsewhere that is free",
    }
}

/// Is this the catalog of a store, or its log? Both can be made anew from the object files.
fn is_of_catalog(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name == "catalog" || name == "catalog.log")
}

/// Remedy for a file that is not one of ours.
fn if_foreign(path: &std::path::Path) -> &'static str {
    match is_of_catalog(path) {
        true => {
            "name the right store, or let `evermap check --repair` make the catalog anew from the object files"
        }
        false => "name the right file, or restore it from a backup",
    }
}

/// Remedy for a damaged file.
fn if_damaged(path: &std::path::Path) -> &'static str {
    match is_of_catalog(path) {
        true => {
            "`evermap check --repair` makes the catalog anew from the object files; or restore the store from a backup"
        }
        false => "restore it from a backup, or see what `evermap check` can repair",
    }
}

/// A name for an error message: long ones are cut, control characters escaped.
fn shorten(name: &str) -> String {
    let mut shown: String = name.escape_debug().take(60).collect();
    if name.len() > 60 {
        shown.push('…');
    }
    shown
}
