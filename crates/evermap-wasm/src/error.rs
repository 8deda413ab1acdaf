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
        "{what} {} is damaged: {why}; restore it from a backup, or move it away: objects stay, and rights have to be granted anew", path.display()
    )]
    DamagedTable {
        /// Which table.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
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
    /// There is no such guest object.
    #[error("application `{application}` has no object `{object}`; `list` shows what there is")]
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
        "a guest that can reach {} could cut objects short under its own feet: store {} lies there; preopen another directory", preopened.display(), store.display()
    )]
    PreopenHoldsStore {
        /// The directory that was to be preopened.
        preopened: PathBuf,
        /// The store.
        store: PathBuf,
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

/// Is it that the file system, or somebody's share of it, is full?
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
