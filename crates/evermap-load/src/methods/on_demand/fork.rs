//! Loads that a fork has to wait for.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Shared;
use crate::plan::ForkPolicy;
use crate::sys::at_fork::call_before;

static UNDER_WAY: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// From now on forks wait until this load is over, if that is its policy. The loader thread never takes this lock.
pub(super) fn note(shared: &Arc<Shared>) {
    if shared.fork != ForkPolicy::Finish {
        return;
    }
    call_before(finish_all);
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    under_way.retain(|load| load.upgrade().is_some_and(|load| !load.is_over()));
    under_way.push(Arc::downgrade(shared));
}

/// In the thread that forks, before it does.
fn finish_all() {
    let loads: Vec<Arc<Shared>> = {
        let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.iter().filter_map(Weak::upgrade).collect()
    };
    for load in loads {
        load.want(0..load.windows.len());
        // What cannot be had the child does not have: the memory stays `MADV_DONTFORK`.
        let _ = load.wait_until(|| {
            load.is_over() || (load.windows.are_settled() && load.windows.failed() > 0)
        });
    }
}
