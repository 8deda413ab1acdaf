//! Classes of threads: their names and, as one number each, their rights.
//!
//! Invariant: a class's `rights` are written under the lock of [`super::rows`] and read by anybody.
//! Bits that are not in the mask belong to others: keys of write protection among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::inside::Inside;
use super::rows;
use crate::error::{Error, Result};

/// Classes that a process can have. Any number would do; this one ends a loop that defines them.
pub(super) const CLASSES_MAX: usize = 256;

static CLASSES: Mutex<Vec<Class>> = Mutex::new(Vec::new());

/// A class of threads. Copies are the same class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(&'static State);

#[derive(Debug)]
struct State {
    name: String,
    /// Its place in the tables of rights.
    number: usize,
    /// See [`Rights`]: the mask above, the bits below.
    rights: AtomicU64,
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.number == other.number
    }
}

impl Eq for State {}

/// Rights to all keys of compartments, as they stand in a thread's register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// The bits of the register that these rights are about.
    pub(super) mask: u32,
    /// What they are.
    pub(super) bits: u32,
}

impl Rights {
    /// The same, and none to the rest of the keys: a class that another thread is just defining says
    /// nothing of any, and a thread that enters it is to keep nothing that it had.
    pub(super) fn of_all(self, mask: u32) -> Rights {
        Rights { mask: self.mask | mask, bits: self.bits | mask & !self.mask }
    }
}

impl Class {
    /// The class of this name, which is made if there was none.
    ///
    /// # Errors
    /// `TooManyClasses` after 256 of them.
    pub fn define(name: &str) -> Result<Class> {
        let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(class) = classes.iter().find(|class| class.name() == name) {
            return Ok(*class);
        }
        let number = classes.len();
        if number == CLASSES_MAX {
            return Err(Error::TooManyClasses { name: name.to_string(), max: CLASSES_MAX });
        }
        let state = State { name: name.to_string(), number, rights: AtomicU64::new(0) };
        // Kept for good: threads are in it, and a report of a fault names it without a lock.
        let class = Class(Box::leak(Box::new(state)));
        classes.push(class);
        drop(classes);
        rows::recompute();
        Ok(class)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Puts this thread in the class until the guard goes: it has the rights of this class, and none
    /// of those it had. Costs two reads and two writes of a register, some 50 ns, and no system call.
    ///
    /// Rights to objects that are assigned while a thread is in a class come when it enters the next time.
    pub fn enter(self) -> Inside {
        Inside::new(self)
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

/// Every class there is.
pub(super) fn all() -> Vec<Class> {
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_does_not_speak_of_yet_it_has_no_right_to() {
        let nothing_said = Rights::default();
        assert_eq!(
            nothing_said.of_all(0b1111_0000),
            Rights { mask: 0b1111_0000, bits: 0b1111_0000 }
        );
        let reads_one = Rights { mask: 0b0011_0000, bits: 0b0010_0000 };
        assert_eq!(reads_one.of_all(0b1111_0000), Rights { mask: 0b1111_0000, bits: 0b1110_0000 });
        assert_eq!(reads_one.of_all(0), reads_one);
    }
}
