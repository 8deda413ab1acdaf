//! Facts about a shared object that any thread may read at any time, without a turn, also in a
//! forked child.
//!
//! There are two copies, each with its own lock. The writer changes one after the other, so at a
//! fork it holds at most one of the locks. A child reads the other copy and never waits.

use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use crate::api::session::open::OpenSession;
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

/// Newest facts, in two copies.
pub(super) struct PublishedFacts {
    copies: [RwLock<Arc<Facts>>; 2],
}

impl PublishedFacts {
    pub(super) fn new(open: &OpenSession) -> PublishedFacts {
        PublishedFacts::of(Facts::of(open))
    }

    fn of(facts: Arc<Facts>) -> PublishedFacts {
        PublishedFacts { copies: [RwLock::new(Arc::clone(&facts)), RwLock::new(facts)] }
    }

    pub(super) fn read(&self) -> Arc<Facts> {
        let [first, _] = &self.copies;
        if !at_fork::is_child() {
            return Arc::clone(&first.read().unwrap_or_else(PoisonError::into_inner));
        }
        self.read_either()
    }

    /// Reads a copy that the writer was not changing. Never waits for another thread.
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

    /// Renews both copies. Called by the writer whose turn it is. Does nothing in a forked child.
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
    fn a_child_reads_the_copy_that_the_writer_had_not_locked() {
        let facts = Facts {
            root_address: 1,
            root_bytes: 2,
            root_tag: [3; 16],
            root_description: "four".to_string(),
            regions: vec![(5, 6)],
            sequence: 7,
        };
        let public = PublishedFacts::of(Arc::new(facts));
        for copy in &public.copies {
            let _written = copy.write().unwrap();
            assert_eq!(public.read_either().sequence, 7);
        }
    }
}
