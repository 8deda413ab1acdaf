//! Touching fresh memory ahead of a program that fills it.
//!
//! A page of the file that was never touched costs a fault when the program comes to it, and most
//! of the time of a bulk build is faults. The kernel makes pages cheaper when asked for many, and a
//! second processor can do the asking: a thread keeps some way ahead of the program. It is a hint
//! only: where the thread is late, or cannot be had, the program faults as it would have.
//!
//! Invariant: the thread touches a mapping only between `ahead` and `stop`, so nothing is touched
//! that was committed or given up meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::address::Mapping;

/// Touched in one call, and so what `stop` waits for: about a quarter of a millisecond.
const STEP_BYTES: u64 = 512 << 10;
/// The thread ends when it was asked for nothing for so long; the next request begins another.
const PATIENCE: Duration = Duration::from_millis(20);

/// Populates on a thread that lives while there is something to do.
pub(super) struct Populate {
    shared: Arc<Shared>,
    /// A forked child has a copy of all this, and no thread: it must not wait for one.
    process: u32,
    /// Without a second processor the thread would only take turns with the program.
    alone: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: Option<Wanted>,
    running: bool,
}

/// A part of a mapping that is about to be filled, up to `end`.
struct Wanted {
    mapping: Arc<Mapping>,
    at: u64,
    end: u64,
}

impl Default for Populate {
    fn default() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
        Populate { shared: Arc::default(), process: std::process::id(), alone }
    }
}

impl Populate {
    /// Touches `from..end`, of which a part may be touched already, in place of what was wanted
    /// before. Returns at once, unless there is one processor only.
    pub(super) fn ahead(&self, mapping: &Arc<Mapping>, from: u64, end: u64) {
        let mut state = self.shared.lock();
        let at = match &state.wanted {
            Some(before) if Arc::ptr_eq(&before.mapping, mapping) => before.at.max(from),
            _ => from,
        };
        if at >= end {
            return;
        }
        let mapping = Arc::clone(mapping);
        if self.alone {
            mapping.populate(at, end - at);
            state.wanted = Some(Wanted { mapping, at: end, end });
            return;
        }
        state.wanted = Some(Wanted { mapping, at, end });
        if state.running {
            self.shared.changed.notify_all();
            return;
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("evermap-touch".to_string());
        state.running = thread.spawn(move || shared.run()).is_ok();
    }

    /// Wants nothing any more, and waits until the thread is done with what it has begun.
    pub(super) fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.shared.lock();
        state.wanted = None;
        self.shared.changed.notify_all();
        while state.running {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Populate {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while let Some(wanted) = &mut state.wanted {
            let step = STEP_BYTES.min(wanted.end - wanted.at);
            if step > 0 {
                let (mapping, at) = (Arc::clone(&wanted.mapping), wanted.at);
                // Before it is done: who asks for more meanwhile goes on from there.
                wanted.at += step;
                drop(state);
                mapping.populate(at, step);
                drop(mapping);
                state = self.lock();
                continue;
            }
            let (after, waited) =
                self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = after;
            if waited.timed_out() && state.wanted.as_ref().is_none_or(|w| w.at == w.end) {
                break;
            }
        }
        state.running = false;
        self.changed.notify_all();
    }
}
