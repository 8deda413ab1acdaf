//! Facts about a shared object that need no turn: any thread may read them at any time, in a forked
//! child too.
//!
//! They are kept twice, each under a lock of its own. The writer changes one after the other, so a
//! fork finds at least one of the locks free of it: a child reads that one and never waits.

use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use crate::api::open_session::OpenSession;
use crate::at_fork;

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) root_address: u64,
    pub(super) root_bytes: u64,
    pub(super) root_tag: [u8; 16],
    pub(super) root_description: String,
    pub(super) regions: Vec<(u64, u64)>,
    pub(super) sequence: u64,
}

impl Facts {
    fn of(open: &OpenSession) -> Arc<Facts> {
        let superblock = open.superblock();
        Arc::new(Facts {
            root_address: superblock.root_address,
            root_bytes: superblock.root_bytes,
            root_tag: superblock.root_type_id,
            root_description: superblock.schema(),
            regions: open.regions(),
            sequence: open.sequence(),
        })
    }
}

/// The newest facts.
pub(super) struct Public {
    copies: [RwLock<Arc<Facts>>; 2],
}

impl Public {
    pub(super) fn new(open: &OpenSession) -> Public {
        Public::of(Facts::of(open))
    }

    fn of(facts: Arc<Facts>) -> Public {
        Public { copies: [RwLock::new(Arc::clone(&facts)), RwLock::new(facts)] }
    }

    pub(super) fn read(&self) -> Arc<Facts> {
        let [first, _] = &self.copies;
        if !at_fork::is_child() {
            return Arc::clone(&first.read().unwrap_or_else(PoisonError::into_inner));
        }
        self.read_either()
    }

    /// Reads a copy that the writer was not changing, without waiting for a thread.
    fn read_either(&self) -> Arc<Facts> {
        loop {
            for copy in &self.copies {
                match copy.try_read() {
                    Ok(facts) => return Arc::clone(&facts),
                    Err(TryLockError::Poisoned(facts)) => return Arc::clone(&facts.into_inner()),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }

    /// Renews them; by the writer whose turn it is. A child changes nothing.
    pub(super) fn renew(&self, open: &OpenSession) {
        if at_fork::is_child() {
            return;
        }
        let facts = Facts::of(open);
        for copy in &self.copies {
            *copy.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&facts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reads_the_copy_that_its_parents_writer_had_not_locked() {
        let facts = Facts {
            root_address: 1,
            root_bytes: 2,
            root_tag: [3; 16],
            root_description: "four".to_string(),
            regions: vec![(5, 6)],
            sequence: 7,
        };
        let public = Public::of(Arc::new(facts));
        for copy in &public.copies {
            let _written = copy.write().unwrap();
            assert_eq!(public.read_either().sequence, 7);
        }
    }
}
