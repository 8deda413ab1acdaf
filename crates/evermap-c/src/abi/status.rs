//! Statuses: one for each error of the Rust library, and those that only C has.

use evermap_core::{Error, tools};
use libc::c_int;

use crate::abi::types::em_status;

/// Defines the statuses, their names and their errnos.
macro_rules! statuses {
    ($($name:ident = $number:literal, $errno:ident;)*) => {
        $(pub const $name: em_status = $number;)*

        /// Every status with its name and errno.
        pub const ALL: &[(em_status, &std::ffi::CStr, c_int)] = &[
            $((
                $name,
                match std::ffi::CStr::from_bytes_with_nul(
                    concat!("EM_", stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                libc::$errno,
            ),)*
        ];
    };
}

statuses! {
    NO_STORE = 1, ENOENT;
    STORE_EXISTS = 2, EEXIST;
    NOT_FOUND = 3, ENOENT;
    ALREADY_EXISTS = 4, EEXIST;
    INVALID_NAME = 5, EINVAL;
    BUSY = 6, EBUSY;
    ADDRESS_TAKEN = 7, EADDRINUSE;
    FOREIGN = 8, EILSEQ;
    NEWER_FORMAT = 9, EPROTONOSUPPORT;
    DAMAGED = 10, EUCLEAN;
    SCHEMA_MISMATCH = 11, EPROTOTYPE;
    OTHER_APPLICATION = 12, EPERM;
    DISK_FULL = 13, ENOSPC;
    NOT_PERMITTED = 14, EACCES;
    OUT_OF_ADDRESSES = 15, ENOMEM;
    BAD_ALLOCATION = 16, ENOMEM;
    INVALID_FREE = 17, EFAULT;
    BAD_ROOT = 18, EFAULT;
    CAPACITY_OVERFLOW = 19, EOVERFLOW;
    OUT_OF_BOUNDS = 20, ERANGE;
    DURABILITY_UNKNOWN = 21, EIO;
    LOG_MISSING = 22, ENOENT;
    LOG_FULL = 23, ENOBUFS;
    UNSUPPORTED = 24, ENOSYS;
    IO = 25, EIO;
    OTHER_OBJECT = 26, EXDEV;
    DESERIALIZE = 27, EBADMSG;
    BAD_BASE = 28, EADDRNOTAVAIL;
    NOTHING_KEPT = 29, ENOENT;
    CHANGED_SINCE = 30, ESTALE;
    POINTS_ELSEWHERE = 31, EXDEV;
    BAD_EXPORT = 32, EBADMSG;
    OTHER_KIND = 33, EMEDIUMTYPE;
    BAD_GUEST_ROOT = 34, EFAULT;
    WOULD_DEADLOCK = 35, EDEADLK;
    NOT_LOCKED = 36, ENOLCK;
    FILE_SIZE_LIMIT = 37, EFBIG;
    FOREIGN_POINTER = 38, EFAULT;
    OTHER_BUILD = 39, ENOEXEC;
    CLOSED = 100, EBADF;
    READ_ONLY = 101, EROFS;
    FORKED = 102, ECHILD;
    INVALID_ARGUMENT = 103, EINVAL;
    TOO_MANY_OPEN = 104, EMFILE;
    INTERNAL = 105, ENOTRECOVERABLE;
    UNCOMMITTED = 106, EINPROGRESS;
    SOURCE_CHANGED = 200, ESTALE;
    DIFFERS = 201, EBADMSG;
    REFUSED = 202, EOPNOTSUPP;
    PEER = 203, ECONNABORTED;
    CANCELLED = 204, ECANCELED;
    NOT_A_FILE = 300, EINVAL;
    UNREADABLE = 301, EIO;
    NO_MEMORY = 302, ENOMEM;
    THREADS_LOST = 303, EOWNERDEAD;
    MALFORMED = 304, EBADMSG;
}

/// Success. [`ALL`] contains only failures.
pub const OK: em_status = 0;

/// Returns the errno of a status.
pub fn errno_of(status: em_status) -> c_int {
    ALL.iter().find(|(number, ..)| *number == status).map_or(libc::EIO, |(.., errno)| *errno)
}

/// Returns the status of an error.
pub fn status_of(error: &Error) -> em_status {
    match error {
        Error::NoStore { .. } => NO_STORE,
        Error::StoreExists { .. } => STORE_EXISTS,
        Error::NotFound { .. } => NOT_FOUND,
        Error::AlreadyExists { .. } => ALREADY_EXISTS,
        Error::InvalidName { .. } => INVALID_NAME,
        Error::Busy { .. } => BUSY,
        Error::AddressTaken { .. } => ADDRESS_TAKEN,
        Error::Foreign { .. } => FOREIGN,
        Error::NewerFormat { .. } => NEWER_FORMAT,
        Error::Damaged { .. } => DAMAGED,
        Error::SchemaMismatch { .. } => SCHEMA_MISMATCH,
        Error::OtherApplication { .. } => OTHER_APPLICATION,
        Error::DiskFull { .. } => DISK_FULL,
        Error::NotPermitted { .. } => NOT_PERMITTED,
        Error::OutOfAddresses { .. } => OUT_OF_ADDRESSES,
        // Only hosts of guests meet it.
        Error::AddressQuota { .. } => OUT_OF_ADDRESSES,
        Error::BadAllocation { .. } => BAD_ALLOCATION,
        Error::InvalidFree { .. } => INVALID_FREE,
        Error::BadRoot { .. } => BAD_ROOT,
        Error::CapacityOverflow { .. } => CAPACITY_OVERFLOW,
        Error::OutOfBounds { .. } => OUT_OF_BOUNDS,
        Error::DurabilityUnknown { .. } => DURABILITY_UNKNOWN,
        Error::LogMissing { .. } => LOG_MISSING,
        Error::LogFull { .. } => LOG_FULL,
        Error::Forked { .. } => FORKED,
        Error::Unsupported { .. } => UNSUPPORTED,
        Error::Io { .. } => IO,
        Error::OtherObject { .. } => OTHER_OBJECT,
        Error::Deserialize { .. } => DESERIALIZE,
        Error::OtherKind { .. } => OTHER_KIND,
        Error::BadGuestRoot { .. } => BAD_GUEST_ROOT,
        Error::WouldDeadlock { .. } => WOULD_DEADLOCK,
        Error::NotLocked { .. } => NOT_LOCKED,
        Error::FileSizeLimit { .. } => FILE_SIZE_LIMIT,
        Error::ForeignPointer { .. } => FOREIGN_POINTER,
        Error::OtherBuild { .. } => OTHER_BUILD,
        // The enum may grow; the test below fails until the new variant has a status.
        _ => INTERNAL,
    }
}

/// Returns the status of an error of a rebase, an export or an import.
pub fn status_of_tools(error: &tools::Error) -> em_status {
    match error {
        tools::Error::Store(error) => status_of(error),
        tools::Error::BadBase { .. } => BAD_BASE,
        tools::Error::NothingKept { .. } => NOTHING_KEPT,
        tools::Error::ChangedSince { .. } => CHANGED_SINCE,
        tools::Error::PointsElsewhere { .. } => POINTS_ELSEWHERE,
        tools::Error::BadExport { .. } => BAD_EXPORT,
        // The enum may grow; the test below fails until the new variant has a status.
        _ => INTERNAL,
    }
}

/// Returns the variants of an enum `Error`, parsed from its source.
#[cfg(test)]
pub fn error_variants(source: &str) -> Vec<&str> {
    let (_, body) = source.split_once("pub enum Error {").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let is_variant = |line: &&str| {
        line.starts_with("    ") && line.chars().nth(4).is_some_and(|c| c.is_uppercase())
    };
    let lines = body.lines().filter(is_variant);
    lines.map(|line| line.trim().split([' ', '(', ',']).next().unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_status_of_its_own_name() {
        let mut of_store = error_variants(include_str!("../../../evermap/src/error.rs"));
        // It has the status that it had before it was a variant.
        let quota = Error::AddressQuota { what: String::new(), bytes: 0, why: String::new() };
        assert_eq!(status_of(&quota), OUT_OF_ADDRESSES);
        of_store.retain(|variant| *variant != "AddressQuota");
        let mut of_tools = error_variants(include_str!("../../../evermap/src/tools/error.rs"));
        of_tools.retain(|variant| *variant != "Store");
        assert!(of_store.len() >= 25 && of_tools.len() >= 5, "{of_store:?} {of_tools:?}");
        for variant in of_store.iter().chain(&of_tools) {
            let mut name = "EM".to_string();
            for c in variant.chars() {
                if c.is_uppercase() {
                    name.push('_');
                }
                name.push(c.to_ascii_uppercase());
            }
            let known = ALL.iter().any(|(_, known, _)| known.to_str() == Ok(&name));
            assert!(known, "no status {name}");
            let arm = format!("Error::{variant} {{ .. }} => {},", &name[3..]);
            assert!(include_str!("status.rs").contains(&arm), "no arm `{arm}`");
        }
    }

    #[test]
    fn statuses_are_distinct() {
        for (i, (number, name, errno)) in ALL.iter().enumerate() {
            assert!(*number != OK && *errno != 0);
            assert!(ALL[..i].iter().all(|(n, t, _)| n != number && t != name), "{name:?}");
        }
    }
}
