//! Runs a function for many indices on all cores, and returns the results in order.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Returns `work(n)` for each `n` below `count`, in order. The result does not depend on the
/// threads.
pub(crate) fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    each_on(threads.min(count), count, work)
}

fn each_on<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        // The caller is one worker; failed spawns are ignored.
        let start = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
        let workers: Vec<_> = (1..threads).filter_map(start).collect();
        let own = worker();
        let joined = workers.into_iter().map(thread::ScopedJoinHandle::join);
        // Propagate a worker's panic.
        let others =
            joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        own.into_iter().chain(others).collect()
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        let expected: Vec<usize> = (0..100).map(|n| n * n).collect();
        for threads in [0, 1, 2, 7] {
            assert_eq!(each_on(threads, 100, |n| n * n), expected, "{threads}");
        }
        assert_eq!(each(0, |n| n), Vec::<usize>::new());
    }
}
