//! Errors of the store in which a native program keeps its heaps.

use super::{Code, Error};

impl Error {
    /// Converts an error of the store, and adds the object's name.
    pub(crate) fn of(error: &evermap::Error, object: &str) -> Error {
        Error::new(code_of(error), object, error.to_string())
    }
}

/// For [`use_store`](crate::use_store), and for programs that also use stores.
impl From<evermap::Error> for Error {
    fn from(error: evermap::Error) -> Error {
        Error::of(&error, "")
    }
}

fn code_of(error: &evermap::Error) -> Code {
    use evermap::Error as E;
    match error {
        E::InvalidName { .. } => Code::InvalidName,
        E::NotFound { .. } | E::NoStore { .. } => Code::NotFound,
        E::OtherApplication { .. } | E::NotPermitted { .. } => Code::Denied,
        E::Busy { .. } => Code::Busy,
        E::OutOfAddresses { .. } | E::AddressTaken { .. } => Code::OutOfAddresses,
        E::AddressQuota { .. } => Code::Quota,
        E::DiskFull { .. } | E::FileSizeLimit { .. } | E::LogFull { .. } => Code::DiskFull,
        E::Damaged { .. } | E::LogMissing { .. } => Code::Damaged,
        E::Foreign { .. } | E::NewerFormat { .. } | E::OtherKind { .. } => Code::OtherKind,
        E::Io { .. } => Code::Io,
        E::DurabilityUnknown { .. } => Code::DurabilityUnknown,
        E::SchemaMismatch { .. } => Code::OtherType,
        E::AlreadyExists { .. } => Code::AlreadyExists,
        E::BadAllocation { .. } | E::CapacityOverflow { .. } => Code::BadAllocation,
        E::BadRoot { .. } => Code::BadRoot,
        _ => Code::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_program_gets_other_kind_for_a_guest_object() {
        struct Granules(std::sync::atomic::AtomicU64);
        impl evermap::guest::GuestAddresses for Granules {
            fn lease(&self, bytes: u64) -> evermap::Result<u64> {
                Ok(0x1000_0000 + self.0.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed))
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let store = evermap::Store::create_new(directory.path().join("store")).unwrap();
        let granules: std::sync::Arc<dyn evermap::guest::GuestAddresses> =
            std::sync::Arc::new(Granules(0.into()));
        store.create_guest("notes", Default::default(), &granules, 0).unwrap();
        for refused in [store.write_raw("notes").map(drop), store.read_raw("notes").map(drop)] {
            assert_eq!(Error::of(&refused.unwrap_err(), "notes").code(), Code::OtherKind);
        }
    }
}
