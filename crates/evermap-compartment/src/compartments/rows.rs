//! Table of protection keys, with one row for each set of rights.
//!
//! A set of rights states the access of each class. Objects with the same set share a key, which is
//! taken from the kernel when the set first occurs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use evermap::{Access, AccessKey};

use super::class::{self, Class, Rights};
use crate::error::{Error, Result};

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());
/// Bits of the protection key register that belong to compartments.
static MASK: AtomicU32 = AtomicU32::new(0);
/// One of the keys in the table. The register is accessed through the methods of a key.
static ANY_KEY: OnceLock<AccessKey> = OnceLock::new();

/// Set of rights and its key.
struct Row {
    /// Classes with a right, by number, unique and ascending.
    rights: Vec<(usize, Access)>,
    key: AccessKey,
}

impl Row {
    fn right_of(&self, class: Class) -> Access {
        let found = self.rights.iter().find(|(number, _)| *number == class.number());
        found.map_or(Access::None, |(_, access)| *access)
    }
}

fn lock() -> MutexGuard<'static, Vec<Row>> {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the key of a set of rights. Takes a key from the kernel if the set is new.
pub(super) fn key_of(wanted: &[(Class, Access)]) -> Result<AccessKey> {
    let rights = normalised(wanted);
    let mut rows = lock();
    if let Some(row) = rows.iter().find(|row| row.rights == rights) {
        return Ok(row.key.clone());
    }
    let key = AccessKey::take().map_err(|error| Error::NoKey {
        classes: names_of(wanted),
        why: match error {
            evermap::Error::Unsupported { why } => why,
            other => other.to_string(),
        },
    })?;
    let _ = ANY_KEY.set(key.clone());
    rows.push(Row { rights, key: key.clone() });
    set_rights_of_classes(&rows);
    Ok(key)
}

/// Sorts by class, keeps the last entry of each class, and drops entries without access.
fn normalised(wanted: &[(Class, Access)]) -> Vec<(usize, Access)> {
    let mut rights: Vec<(usize, Access)> = Vec::new();
    for (class, access) in wanted {
        rights.retain(|(number, _)| *number != class.number());
        if *access != Access::None {
            rights.push((class.number(), *access));
        }
    }
    rights.sort_unstable();
    rights
}

fn names_of(wanted: &[(Class, Access)]) -> String {
    let names: Vec<String> =
        wanted.iter().map(|(class, _)| format!("`{}`", class.name())).collect();
    if names.is_empty() { "no class".to_string() } else { names.join(", ") }
}

impl Class {
    /// Returns the class with this name, and creates it if it does not exist.
    ///
    /// # Errors
    /// `TooManyClasses` after 256 classes.
    pub fn define(name: &str) -> Result<Class> {
        let class = class::find_or_create(name)?;
        set_rights_of_classes(&lock());
        Ok(class)
    }
}

/// Sets the rights of every class.
fn set_rights_of_classes(rows: &[Row]) {
    let mask = rows.iter().fold(0, |mask, row| mask | row.key.bits(Access::None));
    for class in class::all() {
        let bits = rows.iter().fold(0, |bits, row| bits | row.key.bits(row.right_of(class)));
        class.set_rights(Rights { mask, bits });
    }
    MASK.store(mask, Ordering::Release);
}

/// Returns the rights of a thread in no class: no access.
pub(super) fn no_rights() -> Rights {
    let mask = MASK.load(Ordering::Acquire);
    Rights { mask, bits: mask }
}

/// Sets this thread's rights. Does nothing before the first key is taken.
pub(super) fn set_thread_rights(rights: Rights) {
    if let Some(key) = ANY_KEY.get() {
        let rights = rights.extended_to(MASK.load(Ordering::Acquire));
        key.rights_here().with_bits(rights.mask, rights.bits).set();
    }
}

/// Returns true if a key was taken already, or if the kernel has one left. In the second case,
/// takes a key and frees it at once.
pub(super) fn key_is_available() -> bool {
    if !lock().is_empty() {
        return true;
    }
    // The last argument is `PKEY_DISABLE_ACCESS`: this thread gains no right to the key.
    // SAFETY: neither call takes a pointer, and nothing is mapped under the freed key.
    unsafe {
        let number = libc::syscall(libc::SYS_pkey_alloc, 0 as libc::c_ulong, 1 as libc::c_ulong);
        number >= 0 && libc::syscall(libc::SYS_pkey_free, number) == 0
    }
}
