//! Loads that a fork has to wait for.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::plan::ForkPolicy;
use crate::sys::at_fork::call_before;

/// A load that a process may fork in the midst of.
pub(crate) trait Forked: Send + Sync {
    /// All is there, and children may have it.
    fn is_over(&self) -> bool;

    /// Brings that about, as far as it can be. What cannot be had a child does not have: its memory stays `MADV_DONTFORK`.
    fn finish(&self);
}

static UNDER_WAY: Mutex<Vec<Weak<dyn Forked>>> = Mutex::new(Vec::new());

/// From now on forks wait until this load is over, if that is its policy. No thread that loads ever takes this lock.
pub(super) fn note(load: Weak<dyn Forked>, policy: ForkPolicy) {
    if policy != ForkPolicy::Finish {
        return;
    }
    call_before(finish_all);
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    under_way.retain(|load| load.upgrade().is_some_and(|load| !load.is_over()));
    under_way.push(load);
}

/// In the thread that forks, before it does.
fn finish_all() {
    let loads: Vec<Arc<dyn Forked>> = {
        let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.iter().filter_map(Weak::upgrade).collect()
    };
    for load in loads {
        load.finish();
    }
}
