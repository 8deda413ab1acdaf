//! Keys that an embedder hands out: who may touch an object is then a matter of each thread.
//!
//! Two values. An [`AccessKey`] is put over objects; [`ThreadRights`] is what a thread may do with
//! the objects of each key, read, changed and written as a whole, because writing is what costs.
//! Both are about a thread's own register: nobody gives rights to another thread.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Key, register};
use crate::error::{Error, Result};

/// What a thread may do with an object's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Nothing: reading is a fault as well.
    #[default]
    None,
    /// Reading.
    Read,
    /// Reading and storing.
    Write,
}

/// A memory protection key for objects of this process: each thread has rights of its own to what
/// lies under it, none at first, and changes them in some 20 ns.
///
/// It guards against stray loads and stores. It is no wall against code that wants to get around it: the
/// instruction that changes rights is free to everybody.
///
/// The kernel has 15 keys in a process; [`Protection::Keys`](crate::Protection) takes up to eight of
/// them when it is first asked for. A key is never given back.
///
/// ```
/// use evermap::{Access, AccessKey};
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("counter", 7)?;
/// # let Ok(_) = AccessKey::take() else { return Ok(()) };
/// let key = AccessKey::take()?;
/// let mut counter = store.write::<u64>("counter")?;
/// counter.guard_by(&key)?; // from here on reading the counter is a fault
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
    /// Takes a key from the kernel. No thread has rights to it, this one included.
    ///
    /// # Errors
    /// `Unsupported` when the processor or the kernel has none, or none is left.
    pub fn take() -> Result<AccessKey> {
        let key = Key::take_closed().map_err(|why| Error::Unsupported { why: why.to_string() })?;
        Ok(AccessKey(Arc::new(key)))
    }

    /// The kernel's number of it, which a fault report has in `si_pkey`.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// What this thread may do with the objects of all keys.
    pub fn rights_here(&self) -> ThreadRights {
        ThreadRights { register: register::read(), of_this_thread: PhantomData }
    }

    /// The right `access` to this key, where it stands in the register: for tables of rights to several
    /// keys, which are one number each. [`Access::None`] has all bits that a right to the key has.
    pub fn bits(&self, access: Access) -> u32 {
        register::with(0, self.number(), rights_of(access))
    }

    /// Lets the thread do everything with this key's objects; gives what it was allowed before.
    pub(crate) fn open(&self) -> Access {
        let before = self.rights_here();
        if before.of(self) != Access::Write {
            before.with(self, Access::Write).set();
        }
        before.of(self)
    }

    /// Goes back to what [`open`](AccessKey::open) gave.
    pub(crate) fn close(&self, before: Access) {
        if before != Access::Write {
            self.rights_here().with(self, before).set();
        }
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.0
    }
}

/// A thread's rights to the objects of each key. From [`AccessKey::rights_here`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRights {
    register: u32,
    /// Whoever holds one has a key, and a thread's rights are nobody else's.
    of_this_thread: PhantomData<*const ()>,
}

impl ThreadRights {
    /// The right to one key's objects.
    pub fn of(self, key: &AccessKey) -> Access {
        match register::of(self.register, key.number()) {
            register::ALL => Access::Write,
            register::READ_ONLY => Access::Read,
            _ => Access::None,
        }
    }

    /// The same with another right to one key's objects. Nothing is in force yet.
    #[must_use = "nothing is in force before `set`"]
    pub fn with(self, key: &AccessKey, access: Access) -> ThreadRights {
        self.with_bits(key.bits(Access::None), key.bits(access))
    }

    /// The same with other rights to all keys in `mask`; see [`AccessKey::bits`].
    #[must_use = "nothing is in force before `set`"]
    pub fn with_bits(self, mask: u32, bits: u32) -> ThreadRights {
        ThreadRights { register: self.register & !mask | bits & mask, ..self }
    }

    /// Puts these rights in force for this thread.
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
