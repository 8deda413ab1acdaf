//! What a load has of all that is there: everything, or what others leave that are loaded with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evermap_observe::Memory;

use crate::methods::on_demand::turns::Turns;
use crate::plan::{Facts, Latency, Wishes};

/// Of many files at once, those that are shorter than this come as a whole: that takes as long as it takes to begin more.
const ON_DEMAND_BYTES_MIN: u64 = 16 << 20;
/// Of many files at once, so many come on demand: two threads each.
const ON_DEMAND_MAX: usize = 64;

/// Of one load, by default.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Of those that come on demand.
    pub(crate) turns: Arc<Turns>,
    among: Option<Among>,
}

/// What many have together.
#[derive(Debug)]
struct Among {
    /// Under way at the same time.
    loads: usize,
    memory: Option<Memory>,
    /// Private memory that nobody was promised, in bytes.
    left_bytes: AtomicU64,
}

impl Share {
    /// Of one among many, so many of which are under way at the same time.
    pub(crate) fn among(loads: usize) -> Share {
        let memory = evermap_observe::memory();
        let left_bytes = AtomicU64::new(memory.map_or(u64::MAX, |memory| memory.available_bytes));
        let among = Among { loads, memory, left_bytes };
        Share { turns: Arc::default(), among: Some(among) }
    }

    /// Memory as it is, or was when the first of many began.
    pub(crate) fn memory(&self) -> Option<Memory> {
        match &self.among {
            Some(among) => among.memory,
            None => evermap_observe::memory(),
        }
    }

    /// Promises the private memory that a file may take, if there is so much; the facts tell what there is.
    pub(crate) fn promise(&self, facts: &mut Facts) -> Promise<'_> {
        let Some(among) = &self.among else { return Promise { left: None } };
        let bytes = facts.bytes;
        let taken = among
            .left_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        let (Ok(left_bytes) | Err(left_bytes)) = taken;
        if facts.available_bytes.is_some() {
            facts.available_bytes = Some(left_bytes);
        }
        Promise { left: taken.is_ok().then_some((&among.left_bytes, bytes)) }
    }

    /// What one among many is to do without.
    pub(crate) fn limit(&self, wishes: &mut Wishes, facts: &Facts) {
        let Some(among) = &self.among else { return };
        if among.loads > 1 {
            // The others read, too.
            wishes.threads.get_or_insert(facts.processors.div_ceil(among.loads));
        }
        if facts.bytes < ON_DEMAND_BYTES_MIN || self.turns.given() >= ON_DEMAND_MAX {
            wishes.latency = Latency::Finish;
        }
    }
}

/// Memory that one load may take; given back if it does not.
#[derive(Debug)]
pub(crate) struct Promise<'s> {
    left: Option<(&'s AtomicU64, u64)>,
}

impl Promise<'_> {
    /// It was taken, or not.
    pub(crate) fn keep_if(mut self, is_taken: bool) {
        if is_taken {
            self.left = None;
        }
    }
}

impl Drop for Promise<'_> {
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
    fn memory_is_promised_once_and_given_back_if_it_is_not_taken() {
        let share = Share {
            turns: Arc::default(),
            among: Some(Among { loads: 2, memory: None, left_bytes: AtomicU64::new(100) }),
        };
        let mut facts = crate::plan::tests::facts();
        facts.bytes = 60;
        let first = share.promise(&mut facts);
        assert_eq!(facts.available_bytes, Some(100));
        let second = share.promise(&mut facts);
        assert_eq!(facts.available_bytes, Some(40), "not enough for the second");
        second.keep_if(true);
        first.keep_if(false);
        share.promise(&mut facts).keep_if(true);
        assert_eq!(facts.available_bytes, Some(100));
        let _ = share.promise(&mut facts);
        assert_eq!(facts.available_bytes, Some(40));
    }
}
