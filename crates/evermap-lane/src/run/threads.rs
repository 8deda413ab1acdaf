//! Threads of the program: promotes threads that it starts later, and demotes threads that never
//! sleep.

use std::collections::{HashMap, HashSet};

use super::Demotion;
use crate::counters::{RunTimes, voluntary_switches};
use crate::guard::journal::FormerState;
use crate::process;
use crate::sys::scheduler::{self, Policy, Scheduling, Thread};

/// State of a thread at the last poll.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    ran: RunTimes,
    /// Processor time and number of sleeps when the thread last slept.
    since_sleep: Option<(u64, u64)>,
    is_promoted: bool,
    is_demoted: bool,
}

/// Threads of the program.
#[derive(Debug)]
pub(super) struct ThreadWatch {
    pid: u32,
    /// Scheduling of later threads. `None` leaves them unchanged.
    promotion: Option<Scheduling>,
    /// Time that a real-time thread may run without sleeping.
    limit_ns: u64,
    threads: HashMap<u32, Watched>,
    /// Run-queue wait of ended threads.
    gone_wait_ns: u64,
    seen: usize,
}

impl ThreadWatch {
    pub(super) fn new(pid: u32, promotion: Option<Scheduling>, limit_ns: u64) -> Self {
        Self { pid, promotion, limit_ns, threads: HashMap::new(), gone_wait_ns: 0, seen: 0 }
    }

    /// Polls all threads of the program. Returns those that lost their priority.
    pub(super) fn poll(&mut self, now: &[u32], before: &FormerState) -> Vec<Demotion> {
        let there: HashSet<u32> = now.iter().copied().collect();
        let gone_wait_ns = &mut self.gone_wait_ns;
        self.threads.retain(|thread, watched| {
            let not_excluded = there.contains(thread);
            *gone_wait_ns += if not_excluded { 0 } else { watched.ran.wait_ns };
            not_excluded
        });
        now.iter().filter_map(|thread| self.poll_thread(*thread, before)).collect()
    }

    fn poll_thread(&mut self, id: u32, before: &FormerState) -> Option<Demotion> {
        let ran = RunTimes::of(self.pid, id)?;
        let is_new = !self.threads.contains_key(&id);
        self.seen += usize::from(is_new);
        let mut watched = self.threads.get(&id).copied().unwrap_or_default();
        if ran.run_ns < watched.ran.run_ns {
            // Another thread has reused the number.
            self.gone_wait_ns += watched.ran.wait_ns;
            watched = Watched::default();
        }
        watched.ran = ran;
        if !watched.is_promoted {
            watched.is_promoted = true;
            self.promote(id);
        }
        let overran = match watched.is_demoted {
            true => None,
            false => self.overran(id, &mut watched),
        };
        // A thread that the kernel refuses to change, for example of another user by now, is tried
        // again after the same time.
        let demotion = overran.filter(|_| demote(id, before));
        watched.is_demoted |= demotion.is_some();
        self.threads.insert(id, watched);
        demotion
    }

    /// Promotes an ordinary thread. Threads that chose a policy themselves keep it.
    fn promote(&self, id: u32) {
        let (Some(promotion), Some(thread)) = (&self.promotion, Thread::of(id)) else { return };
        let is_ordinary = scheduler::get(thread)
            .is_ok_and(|now| matches!(now.policy, Policy::Other | Policy::Batch));
        if is_ordinary {
            // A refusal was already reported at the program's start.
            drop(scheduler::set(thread, promotion));
        }
    }

    /// Returns a demotion if a real-time thread has exceeded its time since its last sleep.
    fn overran(&self, id: u32, watched: &mut Watched) -> Option<Demotion> {
        let run_ns = watched.ran.run_ns;
        let (since_ns, before) = match watched.since_sleep {
            Some((since_ns, sleeps)) => (since_ns, Some(sleeps)),
            // Time before the first poll is not counted.
            None => (run_ns, None),
        };
        // The number of sleeps is read only after the limit, which most threads never reach.
        if before.is_some() && run_ns - since_ns <= self.limit_ns {
            return None;
        }
        let sleeps = voluntary_switches(self.pid, id)?;
        if before != Some(sleeps) {
            watched.since_sleep = Some((run_ns, sleeps));
            return None;
        }
        let is_real_time = Thread::of(id)
            .is_some_and(|id| scheduler::get(id).is_ok_and(|now| now.policy.is_real_time()));
        is_real_time.then(|| Demotion {
            thread: id,
            name: name_of(self.pid, id),
            ran_ms: (run_ns - since_ns) as f64 / 1e6,
        })
    }

    /// Returns true if the thread has lost its priority, which is permanent.
    pub(super) fn is_demoted(&self, id: u32) -> bool {
        self.threads.get(&id).is_some_and(|watched| watched.is_demoted)
    }

    /// After the lane moved to another core: promotes all threads again that were not demoted.
    pub(super) fn promote_again(&mut self) {
        for watched in self.threads.values_mut() {
            watched.is_promoted = watched.is_demoted;
        }
    }

    /// Number of threads observed.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Total run-queue wait of all threads, in ns.
    pub(super) fn wait_ns(&self) -> u64 {
        let now = self.threads.values().map(|watched| watched.ran.wait_ns);
        now.fold(self.gone_wait_ns, u64::saturating_add)
    }
}

/// Demotes the thread to ordinary scheduling, even if the lane was started as a real-time program.
/// Returns false if the kernel refused.
fn demote(id: u32, before: &FormerState) -> bool {
    let former = before.scheduling;
    let ordinary = if former.policy.is_real_time() { Scheduling::default() } else { former };
    Thread::of(id).is_some_and(|thread| scheduler::restore(thread, &ordinary).is_ok())
}

/// Name of a thread.
fn name_of(pid: u32, thread: u32) -> String {
    let name = process::text(&format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// Runs the test with the number of a thread that never sleeps.
    fn beside_a_spinner<T>(test: impl FnOnce(u32) -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (say, hear) = std::sync::mpsc::channel();
            let is_over = &is_over;
            scope.spawn(move || {
                say.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                // The limit ends the thread even if the test fails.
                let until = Instant::now() + Duration::from_secs(30);
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    std::hint::spin_loop();
                }
            });
            let result = test(hear.recv().unwrap());
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }

    #[test]
    fn a_thread_that_never_sleeps_is_demoted_even_in_a_real_time_lane() {
        let scheduling = Scheduling::fifo(2);
        let before = FormerState { scheduling, affinity: [0].into(), timer_slack_ns: 50_000 };
        let demoted = beside_a_spinner(|id| {
            let mut watch =
                ThreadWatch::new(std::process::id(), Some(Scheduling::fifo(1)), 2_000_000);
            watch.poll(&[id], &before);
            let thread = Thread::of(id).unwrap();
            if !scheduler::get(thread).unwrap().policy.is_real_time() {
                eprintln!("skipped: no right to FIFO here");
                return None;
            }
            let until = Instant::now() + Duration::from_secs(20);
            while !watch.is_demoted(id) {
                assert!(Instant::now() < until, "the thread was not demoted");
                std::thread::sleep(Duration::from_millis(1));
                watch.poll(&[id], &before);
            }
            let policy = scheduler::get(thread).unwrap().policy;
            watch.promote_again();
            watch.poll(&[id], &before);
            Some((policy, scheduler::get(thread).unwrap().policy))
        });
        if let Some(policies) = demoted {
            assert_eq!(
                policies,
                (Policy::Other, Policy::Other),
                "ordinary after the demotion and in the next lane"
            );
        }
    }
}
