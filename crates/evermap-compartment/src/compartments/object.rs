//! Assigns objects to classes.

use evermap::{Access, AccessKey, Persist, RawSession, RawSnapshot, Session, Snapshot};

use super::class::Class;
use super::{faults, rows};
use crate::error::{Error, Result};

/// Open object that can be assigned to classes.
pub trait Assignable: sealed::Sealed {
    /// Returns the object's name.
    fn name(&self) -> String;
    /// Returns the base address and size in bytes of each region.
    fn regions(&self) -> Vec<(u64, u64)>;
    /// Puts the object's memory under a key, including memory that it gains later.
    ///
    /// # Errors
    /// Fails if the kernel refuses, or if the object already has a key.
    fn set_protection_key(&mut self, key: &AccessKey) -> evermap::Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! assignable {
    ($([$($parameter:tt)*] $object:ty),*) => {$(
        impl $($parameter)* sealed::Sealed for $object {}

        impl $($parameter)* Assignable for $object {
            fn name(&self) -> String {
                <$object>::name(self).to_string()
            }

            fn regions(&self) -> Vec<(u64, u64)> {
                <$object>::regions(self)
            }

            fn set_protection_key(&mut self, key: &AccessKey) -> evermap::Result<()> {
                <$object>::set_protection_key(self, key)
            }
        }
    )*};
}

assignable!([<T: Persist>] Session<T>, [<T: Persist>] Snapshot<T>, [] RawSession, [] RawSnapshot);

/// Sets the access of each class to an object, until the session or the object's last snapshot is
/// closed. Memory that the object gains later is included. Classes that are not named, and threads
/// in no class, lose all access. This includes the calling thread.
///
/// An object can be assigned once while it is open. Costs one system call for each region, now and
/// when the object gains one. Takes a new key unless another object has the same rights.
///
/// # Errors
/// `NoKey` if no key is available, `Object` if the object already has a key.
pub fn assign<O: Assignable>(object: &mut O, rights: &[(Class, Access)]) -> Result<()> {
    let key = rows::key_of(rights)?;
    let name = object.name();
    object
        .set_protection_key(&key)
        .map_err(|source| Error::Object { object: name.clone(), source: Box::new(source) })?;
    faults::remember(name, object.regions(), key);
    Ok(())
}
