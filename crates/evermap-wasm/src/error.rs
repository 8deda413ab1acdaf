//! Errors for the embedder: the thing, the cause and the remedy.

use std::path::PathBuf;

/// Errors of sandboxes for the embedder. Guests get a [`Code`](crate::Code).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused something.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// A state file of the host is damaged.
    #[error(
        "{what} {} is damaged: {why}; restore it from a backup of the store, because it has the rights of all applications", path.display()
    )]
    DamagedTable {
        /// The table's name.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        why: String,
    },
    /// The access table is missing, but the key ring, which is created later, exists.
    #[error(
        "the access table {} is missing although {} exists, so it is unknown which modules may run as which application; restore it from a backup of the store", path.display(), keys.display()
    )]
    MissingTable {
        /// The file that is missing.
        path: PathBuf,
        /// The key ring.
        keys: PathBuf,
    },
    /// Only one of the access table and the key ring has the application.
    #[error(
        "application `{application}` is in {found_in} but not in {missing_in}; restore {missing_in} from a backup of the store, or use another application id"
    )]
    IncompleteApplication {
        /// The application.
        application: String,
        /// The file with the application.
        found_in: &'static str,
        /// The file without the application.
        missing_in: &'static str,
    },
    /// Other users could have changed a state file of the host.
    #[error("{what} {}: {why}; run `{remedy}` and check that its contents were not changed", path.display())]
    UnsafeTable {
        /// The table's name.
        what: &'static str,
        /// The file or directory that other users can change.
        path: PathBuf,
        /// The users who can, and how.
        why: String,
        /// The command to run.
        remedy: String,
    },
    /// A state file of the host was written by a newer version.
    #[error("{what} {} has format {found}, this build knows 1; update Evermap", path.display())]
    NewerTable {
        /// The table's name.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The format number.
        found: String,
    },
    /// The name is not valid for an application or an object.
    #[error(
        "`{}` cannot name {what}: use 1 to 64 ASCII letters, digits, `.`, `_` and `-`, not beginning with `.`", name.escape_debug()
    )]
    InvalidName {
        /// The thing to be named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The application was created with another key.
    #[error(
        "application `{application}` was created with another key; pass that key, or use another application id"
    )]
    WrongKey {
        /// The application.
        application: String,
    },
    /// Neither the module's hash nor one of its signers is bound to the application.
    #[error(
        "module {module} is not bound to application `{application}`; bind its hash, or sign it with a key that is bound"
    )]
    NotBound {
        /// The application.
        application: String,
        /// SHA-256 of the module, in hexadecimal digits.
        module: String,
    },
    /// The bytes are not a public key.
    #[error("`{key}` is not an Ed25519 public key; pass the 32 bytes of one")]
    BadPublicKey {
        /// The bytes, in hexadecimal digits.
        key: String,
    },
    /// The application does not exist.
    #[error("no application `{application}` in store {}; create it first with `evermap sandbox grant {application}`", store.display())]
    NoApplication {
        /// The store's directory.
        store: PathBuf,
        /// The application.
        application: String,
    },
    /// An application with objects cannot be removed.
    #[error(
        "application `{application}` has objects: {}; remove them from the store first, with `evermap rm`, or keep the application",
        listed(objects)
    )]
    HasObjects {
        /// The application.
        application: String,
        /// Names of its objects in the store.
        objects: Vec<String>,
    },
    /// The application has no granted right to the object.
    #[error(
        "application `{application}` has no granted right to `{object}` that could be revoked; list the rights with `sandbox list`"
    )]
    NoRight {
        /// The application.
        application: String,
        /// The object.
        object: String,
    },
    /// The binding to be removed does not exist.
    #[error(
        "{module} is not bound to application `{application}`, so there is no binding to revoke; list the bindings with `sandbox list`"
    )]
    NoBinding {
        /// The application.
        application: String,
        /// The module's hash or the signer.
        module: String,
    },
    /// The guest object does not exist.
    #[error(
        "application `{application}` has no object `{object}`; list the objects with `sandbox list`"
    )]
    NoObject {
        /// The expected owner.
        application: String,
        /// The object's name.
        object: String,
    },
    /// Two objects share guest addresses, so one guest cannot map both.
    #[error(
        "`{object}` and `{other}` of application `{application}` share guest addresses, so one guest cannot map both; copy one of them into a new object, which gets other addresses"
    )]
    AddressesOverlap {
        /// The object to be shared.
        object: String,
        /// The application that should get it.
        application: String,
        /// The application's object at the same addresses.
        other: String,
    },
    /// The engine's options do not work with mapped objects.
    #[error("this engine cannot map objects into its memories: {why}; {remedy}")]
    Engine {
        /// The cause.
        why: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// An engine was made before the fault guard was installed.
    #[error(
        "an engine was made in this process before the fault guard was installed, so wasmtime's handler would not run before the guard's; call evermap_wasm::FaultGuard::install() at the start of the program"
    )]
    GuardTooLate,
    /// A preopened directory would show the store's files to the guest.
    #[error(
        "cannot preopen {}: it contains store {}, or lies in it, directly or by a mount, so the guest could read the store's keys and truncate its objects; preopen another directory", preopened.display(), store.display()
    )]
    PreopenHoldsStore {
        /// The directory to be preopened.
        preopened: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// A preopened directory would show the memory of processes to the guest.
    #[error(
        "cannot preopen {}: a `proc` file system is mounted at {}, so the guest could read the memory of processes, including its host's; preopen another directory", preopened.display(), mount.display()
    )]
    PreopenHoldsProcesses {
        /// The directory to be preopened.
        preopened: PathBuf,
        /// Mount point of the file system.
        mount: PathBuf,
    },
    /// The module's initial memory is larger than the guest's budget.
    #[error(
        "module {name} starts with {} MiB of memory, but its limit is {} MiB; raise the limit to at least {} MiB ({} MiB of a guest with objects are its window, which uses no memory until it is touched)",
        mib_up(*needed_bytes), budget_bytes >> 20, mib_up(*needed_bytes), WINDOW_MIB
    )]
    BudgetTooSmall {
        /// The embedder's name of the module.
        name: String,
        /// Initial bytes of its memories and tables.
        needed_bytes: u64,
        /// The budget in bytes.
        budget_bytes: u64,
    },
    /// The module cannot be compiled or started.
    #[error("module {name}: {why}")]
    Module {
        /// The embedder's name of the module.
        name: String,
        /// The cause.
        why: String,
    },
    /// The kernel refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation, a verb.
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

/// Length of the window for objects.
const WINDOW_MIB: u64 = 1024;

/// Formats at most five names for an error message.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Converts bytes to MiB, rounded up.
fn mib_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Returns true if the file system or the user's disk quota is full.
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
