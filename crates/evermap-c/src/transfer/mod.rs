//! Transfers as C sees them: the structs of `evermap_transfer.h`, conversion of options and
//! reports, and the thread in which a transfer runs while its caller gets progress reports.

pub mod choices;
pub mod counted;
mod network_calls;
pub mod receivers;
pub mod report;
mod transfer_calls;
pub mod types;
pub mod watch;

use evermap_transfer::Error;

use crate::abi::failure::Failure;
use crate::abi::status;

/// Status of a transfer error.
pub fn status_of(error: &Error) -> u32 {
    match error {
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => status::NOT_PERMITTED,
            _ => status::IO,
        },
        Error::NoSpace { .. } | Error::TooLarge { .. } => status::DISK_FULL,
        Error::SameFile { .. } => status::INVALID_ARGUMENT,
        Error::SourceChanged { .. } => status::SOURCE_CHANGED,
        Error::Differs { .. } => status::DIFFERS,
        Error::Refused { .. } => status::REFUSED,
        Error::Busy { .. } => status::BUSY,
        Error::Cancelled { .. } => status::CANCELLED,
        Error::Peer { .. } | Error::PeerRefused { .. } => status::PEER,
        // Reports the first failure; the message includes the total count.
        Error::Incomplete(report) => report.errors.first().map_or(status::IO, status_of),
        Error::Usage(_) => status::INVALID_ARGUMENT,
        // The enum may grow; the test below fails until the new variant has a status.
        _ => status::INTERNAL,
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let failure = Failure::new(status_of(&error), error.to_string());
        match error_of_kernel(&error) {
            Some(errno) => failure.with_errno(errno),
            None => failure,
        }
    }
}

fn error_of_kernel(error: &Error) -> Option<libc::c_int> {
    match error {
        Error::Io { source, .. } => source.raw_os_error(),
        Error::Incomplete(report) => report.errors.first().and_then(error_of_kernel),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_error_has_a_status() {
        let variants = crate::abi::status::error_variants(include_str!(
            "../../../evermap-transfer/src/error.rs"
        ));
        assert!(variants.len() >= 11, "{variants:?}");
        for variant in variants {
            let arm = format!("Error::{variant}");
            assert!(include_str!("mod.rs").contains(&arm), "no arm for {arm}");
        }
    }
}
