//! Putting objects under the key of their rights.

use evermap::{Access, AccessKey, Persist, RawSession, RawSnapshot, Session, Snapshot};

use super::class::Class;
use super::{faults, rows};
use crate::error::{Error, Result};

/// What can be assigned to classes: an open object.
pub trait Assignable: sealed::Sealed {
    /// Its name.
    fn name(&self) -> String;
    /// Where it is: base and bytes of each region.
    fn regions(&self) -> Vec<(u64, u64)>;
    /// Puts it under a key, with all that it gains later.
    ///
    /// # Errors
    /// When the kernel refuses, or it has one already.
    fn guard_by(&mut self, key: &AccessKey) -> evermap::Result<()>;
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

            fn guard_by(&mut self, key: &AccessKey) -> evermap::Result<()> {
                <$object>::guard_by(self, key)
            }
        }
    )*};
}

assignable!([<T: Persist>] Session<T>, [<T: Persist>] Snapshot<T>, [] RawSession, [] RawSnapshot);

/// Says what each class may do with an object, until the session or the last snapshot of it ends; what
/// the object gains meanwhile is included. Classes that are not named may do nothing, and so may
/// threads in no class: this one, too, from now on.
///
/// An object is assigned once while it is open. Costs a system call for each region, and one more
/// for each that the object gains; a key, if no other object has these rights.
///
/// # Errors
/// `NoKey` when no key is to be had; `Object` when the object has a key already.
pub fn assign<O: Assignable>(object: &mut O, rights: &[(Class, Access)]) -> Result<()> {
    let key = rows::key_of(rights)?;
    let name = object.name();
    object
        .guard_by(&key)
        .map_err(|source| Error::Object { object: name.clone(), source: Box::new(source) })?;
    faults::remember(name, object.regions(), key);
    Ok(())
}
