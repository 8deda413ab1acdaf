//! Loading as C sees it: the structs of `evermap_load.h`, conversion of options and reports, and
//! the tables of images and rules.

mod image_calls;
pub mod images;
mod load_calls;
mod load_rules_calls;
pub mod options;
pub mod report;
pub mod rules;
pub mod types;

use evermap_load::Error;

use crate::abi::failure::Failure;
use crate::abi::status;

/// Status of a load error.
fn status_of(error: &Error) -> u32 {
    match error {
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => status::NOT_PERMITTED,
            Some(libc::ENOMEM) => status::NO_MEMORY,
            Some(libc::ENOSPC | libc::EDQUOT) => status::DISK_FULL,
            _ => status::IO,
        },
        Error::Unreadable { .. } => status::UNREADABLE,
        Error::Changed { .. } => status::SOURCE_CHANGED,
        Error::NotAFile { .. } => status::NOT_A_FILE,
        Error::NoSuchRange { .. } => status::OUT_OF_BOUNDS,
        Error::NoMemory { .. } => status::NO_MEMORY,
        Error::Refused { .. } => status::REFUSED,
        Error::ThreadsLost { .. } => status::THREADS_LOST,
        Error::Malformed { .. } => status::MALFORMED,
        // The enum may grow; the test below fails until the new variant has a status.
        _ => status::INTERNAL,
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let failure = Failure::new(status_of(&error), error.to_string());
        match &error {
            Error::Io { source, .. } => match source.raw_os_error() {
                Some(errno) => failure.with_errno(errno),
                None => failure,
            },
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_error_has_a_status() {
        let variants =
            crate::abi::status::error_variants(include_str!("../../../evermap-load/src/error.rs"));
        assert!(variants.len() >= 9, "{variants:?}");
        for variant in variants {
            let arm = format!("Error::{variant}");
            assert!(include_str!("mod.rs").contains(&arm), "no arm for {arm}");
        }
    }
}
