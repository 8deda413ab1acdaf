//! Thread classes: names, and the rights of each packed into one number.
//!
//! Invariant: a class's `rights` are written only under the lock of [`super::rows`] and can be read
//! by any thread. Bits outside the mask belong to other users of keys, such as write protection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Maximum number of classes in a process. The value is arbitrary and stops a loop that defines
/// classes.
const CLASSES_MAX: usize = 256;

static CLASSES: Mutex<Vec<Class>> = Mutex::new(Vec::new());

/// Class of threads. Copies denote the same class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(&'static State);

#[derive(Debug)]
struct State {
    name: String,
    /// Index in the tables of rights.
    number: usize,
    /// [`Rights`]: the mask in the upper half, the bits in the lower half.
    rights: AtomicU64,
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.number == other.number
    }
}

impl Eq for State {}

/// Rights to the keys of all compartments, as bits of a thread's protection key register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// Register bits that these rights define.
    pub(super) mask: u32,
    /// Values of those bits.
    pub(super) bits: u32,
}

impl Rights {
    /// Extends the rights to all keys in `mask`, with no access to the keys added. A class whose
    /// definition is in progress defines no bits yet, and a thread that enters it must not keep its
    /// old rights.
    pub(super) fn extended_to(self, mask: u32) -> Rights {
        Rights { mask: self.mask | mask, bits: self.bits | mask & !self.mask }
    }
}

impl Class {
    /// Returns the class's name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    pub(super) fn number(self) -> usize {
        self.0.number
    }

    pub(super) fn rights(self) -> Rights {
        let packed = self.0.rights.load(Ordering::Acquire);
        Rights { mask: (packed >> 32) as u32, bits: packed as u32 }
    }

    pub(super) fn set_rights(self, rights: Rights) {
        let packed = u64::from(rights.mask) << 32 | u64::from(rights.bits);
        self.0.rights.store(packed, Ordering::Release);
    }
}

/// Returns the class with this name, and creates it without rights if it does not exist.
///
/// # Errors
/// `TooManyClasses` after 256 classes.
pub(super) fn find_or_create(name: &str) -> Result<Class> {
    let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(class) = classes.iter().find(|class| class.name() == name) {
        return Ok(*class);
    }
    let number = classes.len();
    if number == CLASSES_MAX {
        return Err(Error::TooManyClasses { name: name.to_string(), max: CLASSES_MAX });
    }
    let state = State { name: name.to_string(), number, rights: AtomicU64::new(0) };
    // Leaked on purpose: threads stay in classes, and fault reports read names without a lock.
    let class = Class(Box::leak(Box::new(state)));
    classes.push(class);
    Ok(class)
}

/// Returns all classes.
pub(super) fn all() -> Vec<Class> {
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_no_right_to_keys_it_does_not_define() {
        let no_bits = Rights::default();
        assert_eq!(
            no_bits.extended_to(0b1111_0000),
            Rights { mask: 0b1111_0000, bits: 0b1111_0000 }
        );
        let reads_one = Rights { mask: 0b0011_0000, bits: 0b0010_0000 };
        assert_eq!(
            reads_one.extended_to(0b1111_0000),
            Rights { mask: 0b1111_0000, bits: 0b1110_0000 }
        );
        assert_eq!(reads_one.extended_to(0), reads_one);
    }
}
