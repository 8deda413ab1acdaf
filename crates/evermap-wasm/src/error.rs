//! What a host is told: which thing, what was wrong with it, what to do.

use std::path::PathBuf;

/// Errors of sandboxes, to the embedder. What a guest is told is a [`Code`](crate::Code).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused something.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// A table of the host's contradicts itself, or is none.
    #[error(
        "{what} {} is damaged: {why}; restore it from a backup of the store: without it nothing says who may use what", path.display()
    )]
    DamagedTable {
        /// Which table.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The access table is gone, and the key ring, which was made after it, is there.
    #[error(
        "the access table {} is missing, and {} is there: which modules may be run as which application is not known; restore it from a backup of the store", path.display(), keys.display()
    )]
    MissingTable {
        /// The file that is missing.
        path: PathBuf,
        /// The key ring.
        keys: PathBuf,
    },
    /// An application that the access table and the key ring should both know is missing in one of them.
    #[error(
        "application `{application}` is known to {knows} and not to {lacks}; restore {lacks} from a backup of the store, or use another application id"
    )]
    HalfKnown {
        /// The application.
        application: String,
        /// The file that has it.
        knows: &'static str,
        /// The file that should.
        lacks: &'static str,
    },
    /// Others could change a table of the host's.
    #[error("{what} {}: {why}; `{remedy}`, and see that nothing in it was changed", path.display())]
    UnsafeTable {
        /// Which table.
        what: &'static str,
        /// The file or directory that others could change.
        path: PathBuf,
        /// Who could, and how.
        why: String,
        /// The command to run.
        remedy: String,
    },
    /// A table of the host's was written by a newer version.
    #[error("{what} {} has format {found}, this build knows 1; update Evermap", path.display())]
    NewerTable {
        /// Which table.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The format.
        found: String,
    },
    /// A name that no application or object of one can have.
    #[error(
        "`{}` cannot name {what}: use 1 to 64 ASCII letters, digits, `.`, `_` and `-`, not beginning with `.`", name.escape_debug()
    )]
    InvalidName {
        /// What was to be named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The key is not the one that the application was made with.
    #[error(
        "application `{application}` was made with another key; give the key it was made with, or use another application id"
    )]
    WrongKey {
        /// The application.
        application: String,
    },
    /// No module of this hash, and none of this signer, is bound to the application.
    #[error(
        "module {module} is not bound to application `{application}`; bind its hash, or sign it with a key that is bound"
    )]
    NotBound {
        /// The application.
        application: String,
        /// SHA-256 of the module, in hexadecimal digits.
        module: String,
    },
    /// A signature that is not the signer's, of this module.
    #[error("the signature is not one of module {module} by {signer}; sign the module again")]
    BadSignature {
        /// SHA-256 of the module, in hexadecimal digits.
        module: String,
        /// The signer's public key, in hexadecimal digits.
        signer: String,
    },
    /// There is no such application.
    #[error("no application `{application}` in store {}; grant it something first", store.display())]
    NoApplication {
        /// The store's directory.
        store: PathBuf,
        /// The application.
        application: String,
    },
    /// An application that is to be removed has objects.
    #[error(
        "application `{application}` has objects: {}; remove them from the store first, with `evermap rm`, or leave the application",
        listed(objects)
    )]
    HasObjects {
        /// The application.
        application: String,
        /// Names of its objects in the store.
        objects: Vec<String>,
    },
    /// The application has no right of its own to an object.
    #[error(
        "application `{application}` was given no right to `{object}`, so there is none to revoke; `sandbox list` shows the rights there are"
    )]
    NoRight {
        /// The application.
        application: String,
        /// The object.
        object: String,
    },
    /// A binding that is to be removed is not there.
    #[error(
        "{module} is not bound to application `{application}`, so there is nothing to revoke; `sandbox list` shows what is"
    )]
    NoBinding {
        /// The application.
        application: String,
        /// The module's hash or the signer.
        module: String,
    },
    /// There is no such guest object.
    #[error(
        "application `{application}` has no object `{object}`; `sandbox list` shows what there is"
    )]
    NoObject {
        /// Whose it should be.
        application: String,
        /// Its name there.
        object: String,
    },
    /// Two objects have the same guest addresses and cannot be in one guest.
    #[error(
        "`{object}` has guest addresses that application `{application}` has given to `{other}`; copy one of the two into a new object, at addresses of its own"
    )]
    AddressesMeet {
        /// The object that was to be shared.
        object: String,
        /// The application that was to have it.
        application: String,
        /// Its object that is there.
        other: String,
    },
    /// The engine would do what objects in linear memories cannot stand.
    #[error("this engine cannot have objects in its memories: {why}; {remedy}")]
    Engine {
        /// What it would do.
        why: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// An engine was made before the fault guard was installed.
    #[error(
        "an engine was made in this process before the fault guard was installed, so the guard would not see faults first; install it at the start of the program: evermap_wasm::FaultGuard::install()"
    )]
    GuardTooLate,
    /// A preopened directory would give the guest the store's files.
    #[error(
        "a guest that sees {} could read the keys of store {}, and cut objects short under its own feet: the store lies there, below, or around it, itself or by a mount; preopen another directory", preopened.display(), store.display()
    )]
    PreopenHoldsStore {
        /// The directory that was to be preopened.
        preopened: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// A preopened directory would give the guest the memory of processes.
    #[error(
        "a guest that sees {} could read the memory of processes, its own host's included: a `proc` file system is mounted at {}; preopen another directory", preopened.display(), mount.display()
    )]
    PreopenHoldsProcesses {
        /// The directory that was to be preopened.
        preopened: PathBuf,
        /// Where the file system is mounted.
        mount: PathBuf,
    },
    /// The module has more memory from the beginning than the guest may have at all.
    #[error(
        "module {name} begins with {} MiB of memory and may have {} MiB; give it at least {} MiB ({} MiB of a guest with objects are its window, which costs nothing until it is touched)",
        mib_up(*needed_bytes), budget_bytes >> 20, mib_up(*needed_bytes), WINDOW_MIB
    )]
    BudgetTooSmall {
        /// What the embedder calls the module.
        name: String,
        /// Bytes of its memories and tables at the beginning.
        needed_bytes: u64,
        /// What it may have.
        budget_bytes: u64,
    },
    /// The module cannot be compiled or started.
    #[error("module {name}: {why}")]
    Module {
        /// What the embedder calls it.
        name: String,
        /// What was wrong.
        why: String,
    },
    /// The kernel refused something.
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

impl Error {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, doing, source }
    }
}

/// The window for objects: 1,024 MiB.
const WINDOW_MIB: u64 = 1024;

/// Names in an error message, five at most.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// MiB, rounded up.
fn mib_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Is it that the file system, or somebody's share of it, is full?
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
