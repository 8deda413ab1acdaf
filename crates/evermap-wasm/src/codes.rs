//! What a guest is told: a number, and words that it can ask for.

use evermap::Error as StoreError;

use crate::access::QUOTA_REFUSED;
use crate::error::{Error, is_disk_full};

/// Why a call of a guest failed. The import gives the negative number; `last_fault` the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// A pointer or a length that lies outside memory, or inside the window where it must not; an
    /// unknown level.
    InvalidArgument = 1,
    /// A name that no object can have.
    InvalidName = 2,
    /// There is no such object.
    NotFound = 3,
    /// The access table gives the application less.
    Denied = 4,
    /// Somebody writes it, or it is mapped already at another level.
    Busy = 5,
    /// The application's bytes of guest addresses are used up.
    Quota = 6,
    /// The window is used up.
    OutOfAddresses = 7,
    /// The disk is full; nothing was lost.
    DiskFull = 8,
    /// The file contradicts itself.
    Damaged = 9,
    /// Nothing is mapped at the address.
    NotMapped = 10,
    /// The module was linked without the window.
    MemoryLayout = 11,
    /// No guest object, or one for other pointers or another window.
    OtherKind = 12,
    /// A snapshot has no commits.
    ReadOnly = 13,
    /// The kernel refused something else.
    Io = 14,
    /// The disk failed at the commit point.
    DurabilityUnknown = 15,
    /// The instance is dead.
    Dead = 16,
}

/// An error on its way to a guest.
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
    /// Guests learn what was wrong, and nothing of the host's directories: only some errors pass
    /// with their own words.
    fn from(error: StoreError) -> Refusal {
        tracing::debug!(%error, "refused a guest");
        match error {
            StoreError::NotFound { .. } => Refusal::new(
                Code::NotFound,
                "there is no such object; map it at level write to make it",
            ),
            StoreError::Busy { .. } => Refusal::new(
                Code::Busy,
                "another guest or program writes the object; map it when that has ended, or as a snapshot",
            ),
            StoreError::DiskFull { needed_bytes, .. } => Refusal::new(
                Code::DiskFull,
                format!(
                    "no space left for {needed_bytes} bytes; nothing was lost, try again when there is"
                ),
            ),
            StoreError::OutOfAddresses { bytes, why, .. } => {
                let quota = why.contains(QUOTA_REFUSED);
                let code = if quota { Code::Quota } else { Code::OutOfAddresses };
                Refusal::new(
                    code,
                    format!(
                        "no {bytes} bytes of guest addresses: {why}; free something, or ask for more"
                    ),
                )
            }
            StoreError::AddressTaken { .. } => Refusal::new(
                Code::Busy,
                "something else is mapped at the object's addresses; unmap it first",
            ),
            StoreError::OtherKind { .. } | StoreError::NewerFormat { .. } => {
                Refusal::new(Code::OtherKind, "the object is none for this kind of guest")
            }
            StoreError::OtherApplication { .. } => {
                Refusal::new(Code::Denied, "the object belongs to another application")
            }
            StoreError::BadGuestRoot { address, bytes, why, .. } => Refusal::new(
                Code::InvalidArgument,
                format!(
                    "{address:#x} with {bytes} bytes cannot be the root: {why}; nothing was committed"
                ),
            ),
            StoreError::Damaged { what, .. } => Refusal::new(
                Code::Damaged,
                format!("the object is damaged ({what}); its owner can restore it from a backup"),
            ),
            StoreError::Foreign { .. } | StoreError::LogMissing { .. } => {
                Refusal::new(Code::Damaged, "the object's files are not whole")
            }
            StoreError::DurabilityUnknown { .. } => Refusal::new(
                Code::DurabilityUnknown,
                "the disk failed during the commit; unmap the object and map it again to see what is there",
            ),
            StoreError::LogFull { .. } => Refusal::new(
                Code::Busy,
                "the log is full, and readers keep it from being emptied; nothing was lost, commit again later",
            ),
            StoreError::AlreadyExists { .. } => Refusal::new(
                Code::Busy,
                "the object was made by somebody else meanwhile; map it again",
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
                "no space left for the host's tables; nothing was lost, try again when there is",
            ),
            other => {
                tracing::warn!(error = %other, "the host could not serve a guest");
                Refusal::new(Code::Io, "the host could not look up the application's rights")
            }
        }
    }
}

/// The kernel's reason without its path.
fn kind_of(error: &StoreError) -> String {
    match error {
        StoreError::Io { doing, source, .. } => {
            format!("the host cannot {doing} the object: {source}")
        }
        StoreError::NotPermitted { doing, why, .. } => {
            format!("the host cannot {doing} the object: {why}")
        }
        _ => "the host could not do that".to_string(),
    }
}
