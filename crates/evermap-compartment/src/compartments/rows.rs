//! Sets of rights and their keys: a key for each set, taken when it first occurs.
//!
//! A set of rights says for each class what it may do; objects with the same set share its key.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use evermap::{Access, AccessKey};

use super::class::{self, Class, Rights};
use crate::error::{Error, Result};

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());
/// All bits of the register that compartments own.
static MASK: AtomicU32 = AtomicU32::new(0);
/// Some key of ours: who has one may look at the register.
static ANY_KEY: OnceLock<AccessKey> = OnceLock::new();

/// One set of rights.
struct Row {
    /// Classes with a right, by number, each once, ascending.
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

/// The key of a set of rights; taken from the kernel if the set is new.
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
    recompute_locked(&rows);
    Ok(key)
}

/// Ascending, each class once (the last word counts), without those that have no right.
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

/// Writes every class's rights anew.
pub(super) fn recompute() {
    recompute_locked(&lock());
}

fn recompute_locked(rows: &[Row]) {
    let mask = rows.iter().fold(0, |mask, row| mask | row.key.bits(Access::None));
    for class in class::all() {
        let bits = rows.iter().fold(0, |bits, row| bits | row.key.bits(row.right_of(class)));
        class.set_rights(Rights { mask, bits });
    }
    MASK.store(mask, Ordering::Release);
}

/// What a thread has that is in no class: nothing.
pub(super) fn no_rights() -> Rights {
    let mask = MASK.load(Ordering::Acquire);
    Rights { mask, bits: mask }
}

/// Puts rights in force for this thread. Without any key there is nothing to do, and no register.
pub(super) fn put_in_force(rights: Rights) {
    if let Some(key) = ANY_KEY.get() {
        let rights = rights.of_all(MASK.load(Ordering::Acquire));
        key.rights_here().with_bits(rights.mask, rights.bits).set();
    }
}

/// Does the kernel give one away? It gets it back.
pub(super) fn a_key_can_be_had() -> bool {
    if !lock().is_empty() {
        return true;
    }
    // `PKEY_DISABLE_ACCESS`: nobody gains a right to the number.
    // SAFETY: neither call takes a pointer; nothing is mapped under the key that is given back.
    unsafe {
        let number = libc::syscall(libc::SYS_pkey_alloc, 0 as libc::c_ulong, 1 as libc::c_ulong);
        number >= 0 && libc::syscall(libc::SYS_pkey_free, number) == 0
    }
}
