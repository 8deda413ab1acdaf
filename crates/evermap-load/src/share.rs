//! Resources of one load: all of the machine's, or a share in a set of loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evermap_observe::Memory;

use crate::methods::on_demand::turns::Turns;
use crate::plan::{Facts, Latency, Options};

/// Minimum size for on-demand loading in a set. Smaller files are loaded whole, in the time it
/// takes to start more loads.
const ON_DEMAND_BYTES_MIN: u64 = 16 << 20;
/// Maximum number of on-demand loads in a set. Each has two threads.
const ON_DEMAND_MAX: usize = 64;

/// Share of one load. By default, everything.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Streaming turns of on-demand loads.
    pub(crate) turns: Arc<Turns>,
    among: Option<SetShare>,
}

/// Shared state of a set of loads.
#[derive(Debug)]
struct SetShare {
    /// Number of concurrent loads.
    loads: usize,
    memory: Option<Memory>,
    /// Private memory not reserved yet, in bytes.
    left_bytes: AtomicU64,
}

impl Share {
    /// Creates the shared state for a set of which `loads` run at a time.
    pub(crate) fn among(loads: usize) -> Share {
        let memory = evermap_observe::memory();
        let left_bytes = AtomicU64::new(memory.map_or(u64::MAX, |memory| memory.available_bytes));
        let among = SetShare { loads, memory, left_bytes };
        Share { turns: Arc::default(), among: Some(among) }
    }

    /// Returns the available memory, for a set as it was at the start.
    pub(crate) fn memory(&self) -> Option<Memory> {
        match &self.among {
            Some(among) => among.memory,
            None => evermap_observe::memory(),
        }
    }

    /// Reserves the private memory that a file may need, if available. Updates `facts` with the
    /// memory left.
    pub(crate) fn reserve(&self, facts: &mut Facts) -> Reservation<'_> {
        let Some(among) = &self.among else { return Reservation { left: None } };
        let bytes = facts.bytes;
        let taken = among
            .left_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        let (Ok(left_bytes) | Err(left_bytes)) = taken;
        if facts.available_bytes.is_some() {
            facts.available_bytes = Some(left_bytes);
        }
        Reservation { left: taken.is_ok().then_some((&among.left_bytes, bytes)) }
    }

    /// Restricts a load in a set to its share.
    pub(crate) fn limit(&self, options: &mut Options, facts: &Facts) {
        let Some(among) = &self.among else { return };
        if among.loads > 1 {
            // Share the processors with the other loads.
            options.threads.get_or_insert(facts.processors.div_ceil(among.loads));
        }
        if facts.bytes < ON_DEMAND_BYTES_MIN || self.turns.given() >= ON_DEMAND_MAX {
            options.latency = Latency::Finish;
        }
    }
}

/// Reservation of private memory. Returned on drop unless it was used.
#[derive(Debug)]
pub(crate) struct Reservation<'s> {
    left: Option<(&'s AtomicU64, u64)>,
}

impl Reservation<'_> {
    /// Keeps the reservation if the memory was used.
    pub(crate) fn keep_if(mut self, is_taken: bool) {
        if is_taken {
            self.left = None;
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some((left, bytes)) = self.left.take() {
            left.fetch_add(bytes, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reserved_once_and_returned_if_unused() {
        let share = Share {
            turns: Arc::default(),
            among: Some(SetShare { loads: 2, memory: None, left_bytes: AtomicU64::new(100) }),
        };
        let mut facts = crate::plan::tests::facts();
        facts.bytes = 60;
        let first = share.reserve(&mut facts);
        assert_eq!(facts.available_bytes, Some(100));
        let second = share.reserve(&mut facts);
        assert_eq!(facts.available_bytes, Some(40), "not enough for the second");
        second.keep_if(true);
        first.keep_if(false);
        share.reserve(&mut facts).keep_if(true);
        assert_eq!(facts.available_bytes, Some(100));
        let _ = share.reserve(&mut facts);
        assert_eq!(facts.available_bytes, Some(40));
    }
}
