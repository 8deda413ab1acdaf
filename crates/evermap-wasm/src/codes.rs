//! Errors for guests: a code, and a message that `last_fault` returns.

use evermap::Error as StoreError;

use crate::error::{Error, is_disk_full};

/// Error codes for guests. The import returns the negative number, `last_fault` the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// A pointer or length outside memory, or inside the window where it must not be; an unknown
    /// level; an invalid root.
    InvalidArgument = 1,
    /// The name is not valid for an object.
    InvalidName = 2,
    /// The object does not exist.
    NotFound = 3,
    /// The application's right is too low, the object has another application's key, or the
    /// application was removed.
    Denied = 4,
    /// Another guest or process writes or has just created the object, it is already mapped at
    /// another level, its addresses are taken, or its log is full.
    Busy = 5,
    /// The application's quota of guest addresses is used up.
    Quota = 6,
    /// The window is used up.
    OutOfAddresses = 7,
    /// The disk is full; nothing was lost.
    DiskFull = 8,
    /// The file contradicts itself.
    Damaged = 9,
    /// No object is mapped at the address.
    NotMapped = 10,
    /// The memory is unsuitable: linked without the window, shared or not exported. Or the call
    /// came from the start function.
    MemoryLayout = 11,
    /// Not a guest object, or one for another pointer size, for another window or of a newer
    /// format.
    OtherKind = 12,
    /// A snapshot cannot be committed.
    ReadOnly = 13,
    /// Another I/O error, or the host's tables cannot be read.
    Io = 14,
    /// The disk failed at the commit point.
    DurabilityUnknown = 15,
    /// The instance is dead.
    Dead = 16,
}

/// An error for a guest.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) words: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, words: impl Into<String>) -> Refusal {
        Refusal { code, words: words.into() }
    }
}

impl From<StoreError> for Refusal {
    /// Guests learn the cause, but not the host's paths. Only some errors keep their own message.
    fn from(error: StoreError) -> Refusal {
        tracing::debug!(%error, "a guest's call failed");
        match error {
            StoreError::NotFound { .. } => Refusal::new(
                Code::NotFound,
                "there is no such object; map it at level write to create it",
            ),
            StoreError::Busy { .. } => Refusal::new(
                Code::Busy,
                "another guest or program is writing the object; map it later, or as a snapshot",
            ),
            StoreError::DiskFull { needed_bytes, .. }
            | StoreError::FileSizeLimit { needed_bytes, .. } => Refusal::new(
                Code::DiskFull,
                format!(
                    "no disk space left for {needed_bytes} bytes; nothing was lost, free disk space and try again"
                ),
            ),
            StoreError::OutOfAddresses { bytes, why, .. } => Refusal::new(
                Code::OutOfAddresses,
                format!("no {bytes} bytes of guest addresses: {why}; unmap or remove an object"),
            ),
            StoreError::AddressQuota { bytes, why, .. } => Refusal::new(
                Code::Quota,
                format!(
                    "no {bytes} bytes of guest addresses: {why}; free something, or ask the host for a larger quota (`evermap sandbox grant ID --quota MIB`)"
                ),
            ),
            StoreError::AddressTaken { .. } => Refusal::new(
                Code::Busy,
                "something else is mapped at the object's addresses; unmap it first",
            ),
            StoreError::OtherKind { .. } => Refusal::new(
                Code::OtherKind,
                "the object belongs to a native program, or to guests with another pointer size or window; use another name",
            ),
            StoreError::NewerFormat { .. } => Refusal::new(
                Code::OtherKind,
                "the object was written by a newer version of Evermap; update the host",
            ),
            StoreError::OtherApplication { .. } => Refusal::new(
                Code::Denied,
                "the object was created with another application's key; use another name, or ask the host to share it",
            ),
            StoreError::BadGuestRoot { address, bytes, why, .. } => Refusal::new(
                Code::InvalidArgument,
                format!(
                    "{address:#x} with {bytes} bytes cannot be the root: {why}; nothing was committed, set another root"
                ),
            ),
            StoreError::Damaged { what, .. } => Refusal::new(
                Code::Damaged,
                format!("the object is damaged ({what}); its owner can restore it from a backup"),
            ),
            StoreError::Foreign { .. } | StoreError::LogMissing { .. } => Refusal::new(
                Code::Damaged,
                "the object's files are incomplete; its owner can restore it from a backup",
            ),
            StoreError::DurabilityUnknown { .. } => Refusal::new(
                Code::DurabilityUnknown,
                "the disk failed during the commit; unmap the object and map it again to see the last commit",
            ),
            StoreError::LogFull { .. } => Refusal::new(
                Code::Busy,
                "the log is full and cannot be emptied while readers use the object; nothing was lost, commit again later",
            ),
            StoreError::AlreadyExists { .. } => Refusal::new(
                Code::Busy,
                "another process created the object at the same time; map it again",
            ),
            other => Refusal::new(Code::Io, kind_of(&other)),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::Store(error) => error.into(),
            Error::Io { source, .. } if is_disk_full(&source) => Refusal::new(
                Code::DiskFull,
                "no disk space left for the host's tables; nothing was lost, free disk space and try again",
            ),
            other => {
                tracing::warn!(error = %other, "a guest's call failed in the host");
                Refusal::new(
                    Code::Io,
                    "the host could not look up the application's rights; run `evermap sandbox list` on the host to see why",
                )
            }
        }
    }
}

/// Returns the kernel's reason without the path.
fn kind_of(error: &StoreError) -> String {
    let what = match error {
        StoreError::Io { doing, source, .. } => {
            format!("the host cannot {doing} the object: {source}")
        }
        StoreError::NotPermitted { doing, why, .. } => {
            format!("the host cannot {doing} the object: {why}")
        }
        _ => "the operation failed on the host".to_string(),
    };
    format!("{what}; run `evermap store check` on the host to check the store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_for_a_guest_has_a_remedy_and_no_host_path() {
        let secret = "/home/secret/store";
        let what = || secret.to_string();
        let io = |number| std::io::Error::from_raw_os_error(number);
        let errors = vec![
            StoreError::NotFound { object: what(), store: secret.into() },
            StoreError::Busy { what: what(), holder: what() },
            StoreError::DiskFull { path: secret.into(), doing: "extend", needed_bytes: 5 },
            StoreError::AddressQuota { what: what(), bytes: 5, why: "a quota".to_string() },
            StoreError::OutOfAddresses { what: what(), bytes: 5, why: "all given".to_string() },
            StoreError::Foreign { path: secret.into(), found: what() },
            StoreError::LogFull { path: secret.into(), bytes: 1, bytes_max: 1 },
            StoreError::AlreadyExists { object: what(), store: secret.into() },
            StoreError::Io { path: secret.into(), doing: "read", source: io(libc::EIO) },
        ];
        for error in errors {
            let shown = format!("{error:?}");
            let refusal = Refusal::from(error);
            assert!(refusal.words.contains("; "), "{shown}: {}", refusal.words);
            assert!(!refusal.words.contains("secret"), "{shown}: {}", refusal.words);
        }
        let table = "the access table";
        let errors = vec![
            Error::DamagedTable { what: table, path: secret.into(), why: what() },
            Error::MissingTable { path: secret.into(), keys: secret.into() },
            Error::UnsafeTable { what: table, path: secret.into(), why: what(), remedy: what() },
            Error::Io { path: secret.into(), doing: "read", source: io(libc::EIO) },
            Error::Io { path: secret.into(), doing: "write", source: io(libc::ENOSPC) },
        ];
        for error in errors {
            let refusal = Refusal::from(error);
            assert!(refusal.words.contains("; "), "{}", refusal.words);
            assert!(!refusal.words.contains("secret"), "{}", refusal.words);
        }
    }
}
