//! Keys that an embedder hands out, so that each thread has its own rights to an object.
//!
//! There are two types. An [`AccessKey`] is put over objects. [`ThreadRights`] holds a thread's
//! rights to the objects of all keys; it is read, changed and written as a whole, because writing
//! it is expensive. Both concern only the calling thread's register: a thread cannot give rights to
//! another thread.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Key, register};
use crate::error::{Error, Result};

/// Rights of a thread to an object's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// No access: reading faults as well.
    #[default]
    None,
    /// Reading only.
    Read,
    /// Reading and storing.
    Write,
}

/// Memory protection key for objects of this process. Each thread has its own rights to the objects
/// under a key, initially none, and changes them in about 20 ns.
///
/// A key guards against stray loads and stores. It does not stop code that wants to bypass it: any
/// code may execute the instruction that changes rights.
///
/// The kernel has 15 keys per process; [`Protection::Keys`](crate::Protection) takes up to eight of
/// them at its first use. A key is never given back.
///
/// ```
/// use evermap::{Access, AccessKey};
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("counter", 7)?;
/// # let Ok(_) = AccessKey::take() else { return Ok(()) };
/// let key = AccessKey::take()?;
/// let mut counter = store.write::<u64>("counter")?;
/// counter.set_protection_key(&key)?; // from here on reading the counter is a fault
/// let before = key.rights_here();
/// before.with(&key, Access::Read).set();
/// assert_eq!(*counter, 7);
/// before.set();
/// counter.close()?; // the library has the rights that it needs
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessKey(Arc<Key>);

impl AccessKey {
    /// Takes a key from the kernel. No thread has rights to it, not even the calling one.
    ///
    /// # Errors
    /// `Unsupported` when the processor or the kernel has no keys, or none is left.
    pub fn take() -> Result<AccessKey> {
        let key = Key::take_closed().map_err(|why| Error::Unsupported { why: why.to_string() })?;
        Ok(AccessKey(Arc::new(key)))
    }

    /// The kernel's number of the key, which a fault reports in `si_pkey`.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Returns this thread's rights to the objects of all keys.
    pub fn rights_here(&self) -> ThreadRights {
        ThreadRights { register: register::read(), of_this_thread: PhantomData }
    }

    /// Returns the register bits that stand for the right `access` to this key. Combine them into
    /// tables of rights to several keys, one number each. [`Access::None`] sets all bits of the
    /// key.
    pub fn bits(&self, access: Access) -> u32 {
        register::with(0, self.number(), rights_of(access))
    }

    /// Grants the thread all rights to this key's objects. Returns its previous right.
    pub(crate) fn open(&self) -> Access {
        let before = self.rights_here();
        if before.of(self) != Access::Write {
            before.with(self, Access::Write).set();
        }
        before.of(self)
    }

    /// Restores the right that [`open`](AccessKey::open) returned.
    pub(crate) fn close(&self, before: Access) {
        if before != Access::Write {
            self.rights_here().with(self, before).set();
        }
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.0
    }
}

/// A thread's rights to the objects of each key. Created by [`AccessKey::rights_here`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRights {
    register: u32,
    /// Not `Send`: the rights belong to one thread. A key exists, so the register does too.
    of_this_thread: PhantomData<*const ()>,
}

impl ThreadRights {
    /// Returns the right to one key's objects.
    pub fn of(self, key: &AccessKey) -> Access {
        match register::of(self.register, key.number()) {
            register::ALL => Access::Write,
            register::READ_ONLY => Access::Read,
            _ => Access::None,
        }
    }

    /// Returns these rights with another right to one key's objects. They take effect with
    /// [`set`](ThreadRights::set).
    #[must_use = "nothing is in force before `set`"]
    pub fn with(self, key: &AccessKey, access: Access) -> ThreadRights {
        self.with_bits(key.bits(Access::None), key.bits(access))
    }

    /// Returns these rights with other rights to all keys in `mask`, see [`AccessKey::bits`]. They
    /// take effect with [`set`](ThreadRights::set).
    #[must_use = "nothing is in force before `set`"]
    pub fn with_bits(self, mask: u32, bits: u32) -> ThreadRights {
        ThreadRights { register: self.register & !mask | bits & mask, ..self }
    }

    /// Makes these rights take effect in this thread.
    pub fn set(self) {
        register::write(self.register);
    }
}

fn rights_of(access: Access) -> u32 {
    match access {
        Access::None => register::NONE,
        Access::Read => register::READ_ONLY,
        Access::Write => register::ALL,
    }
}
