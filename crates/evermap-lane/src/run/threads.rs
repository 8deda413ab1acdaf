//! The program's threads: those that it starts later are taken into the lane, and those that never sleep are taken out of it.

use std::collections::{HashMap, HashSet};

use super::Demotion;
use crate::counters::{Ran, voluntary_switches};
use crate::guard::journal::Before;
use crate::process;
use crate::sys::scheduler::{self, Policy, Scheduling, Thread};

/// One thread, as last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    ran: Ran,
    /// How long it had run when it last slept, and how often it had slept then.
    since_sleep: Option<(u64, u64)>,
    is_settled: bool,
    is_demoted: bool,
}

/// The program's threads.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    /// What later threads get; none if they stay as they are.
    promotion: Option<Scheduling>,
    /// How long a real-time thread may run without sleeping.
    limit_ns: u64,
    threads: HashMap<u32, Watched>,
    /// Of threads that are gone.
    gone_wait_ns: u64,
    seen: usize,
}

impl Watch {
    pub(super) fn new(pid: u32, promotion: Option<Scheduling>, limit_ns: u64) -> Self {
        Self { pid, promotion, limit_ns, threads: HashMap::new(), gone_wait_ns: 0, seen: 0 }
    }

    /// Looks at these threads, which are all that there are. Gives those that lost their priority.
    pub(super) fn look(&mut self, now: &[u32], before: &Before) -> Vec<Demotion> {
        let there: HashSet<u32> = now.iter().copied().collect();
        let gone_wait_ns = &mut self.gone_wait_ns;
        self.threads.retain(|thread, watched| {
            let stays = there.contains(thread);
            *gone_wait_ns += if stays { 0 } else { watched.ran.wait_ns };
            stays
        });
        now.iter().filter_map(|thread| self.look_at(*thread, before)).collect()
    }

    fn look_at(&mut self, id: u32, before: &Before) -> Option<Demotion> {
        let ran = Ran::of(self.pid, id)?;
        let is_new = !self.threads.contains_key(&id);
        self.seen += usize::from(is_new);
        let mut watched = self.threads.get(&id).copied().unwrap_or_default();
        if ran.run_ns < watched.ran.run_ns {
            // Another one with the number of the first.
            self.gone_wait_ns += watched.ran.wait_ns;
            watched = Watched::default();
        }
        watched.ran = ran;
        if !watched.is_settled {
            watched.is_settled = true;
            self.promote(id);
        }
        let overran = match watched.is_demoted {
            true => None,
            false => self.overran(id, &mut watched),
        };
        // One that the kernel doesn't let go, as of another user by now, is tried again after the same time.
        let demotion = overran.filter(|_| demote(id, before));
        watched.is_demoted |= demotion.is_some();
        self.threads.insert(id, watched);
        demotion
    }

    /// Threads that chose a policy themselves keep it.
    fn promote(&self, id: u32) {
        let (Some(promotion), Some(thread)) = (&self.promotion, Thread::of(id)) else { return };
        let is_ordinary = scheduler::get(thread)
            .is_ok_and(|now| matches!(now.policy, Policy::Other | Policy::Batch));
        if is_ordinary {
            // Said once, at the program's start, if it isn't granted.
            drop(scheduler::set(thread, promotion));
        }
    }

    /// Whether a real-time thread has run for longer than it may since it slept last.
    fn overran(&self, id: u32, watched: &mut Watched) -> Option<Demotion> {
        let run_ns = watched.ran.run_ns;
        let (since_ns, before) = match watched.since_sleep {
            Some((since_ns, sleeps)) => (since_ns, Some(sleeps)),
            // What it did before it was looked at counts for nothing.
            None => (run_ns, None),
        };
        // It is asked how often it slept only when it has run that long: most never do.
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

    /// Whether the thread has lost its priority, which does not come back.
    pub(super) fn is_demoted(&self, id: u32) -> bool {
        self.threads.get(&id).is_some_and(|watched| watched.is_demoted)
    }

    /// The lane was left and entered again: all that did not lose it get their policy anew.
    pub(super) fn again(&mut self) {
        for watched in self.threads.values_mut() {
            watched.is_settled = watched.is_demoted;
        }
    }

    /// How many threads there were.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// How long all of them could have run and did not.
    pub(super) fn wait_ns(&self) -> u64 {
        let now = self.threads.values().map(|watched| watched.ran.wait_ns);
        now.fold(self.gone_wait_ns, u64::saturating_add)
    }
}

/// Makes a thread that never sleeps an ordinary one, also where the lane itself was started as a real-time program. Whether it is one now.
fn demote(id: u32, before: &Before) -> bool {
    let former = before.scheduling;
    let ordinary = if former.policy.is_real_time() { Scheduling::default() } else { former };
    Thread::of(id).is_some_and(|thread| scheduler::set_back(thread, &ordinary).is_ok())
}

/// A thread's name.
fn name_of(pid: u32, thread: u32) -> String {
    let name = process::text(&format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// A thread that never sleeps while this runs, by its number.
    fn beside_a_spinner<T>(test: impl FnOnce(u32) -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (say, hear) = std::sync::mpsc::channel();
            let is_over = &is_over;
            scope.spawn(move || {
                say.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                // It ends also where the test fails.
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
    fn a_thread_that_never_sleeps_is_ordinary_even_where_the_lane_was_not() {
        let scheduling = Scheduling::fifo(2);
        let before = Before { scheduling, affinity: [0].into(), timer_slack_ns: 50_000 };
        let demoted = beside_a_spinner(|id| {
            let mut watch = Watch::new(std::process::id(), Some(Scheduling::fifo(1)), 2_000_000);
            watch.look(&[id], &before);
            let thread = Thread::of(id).unwrap();
            if !scheduler::get(thread).unwrap().policy.is_real_time() {
                eprintln!("skipped: no right to FIFO here");
                return None;
            }
            let until = Instant::now() + Duration::from_secs(20);
            while !watch.is_demoted(id) {
                assert!(Instant::now() < until, "it was never demoted");
                std::thread::sleep(Duration::from_millis(1));
                watch.look(&[id], &before);
            }
            let policy = scheduler::get(thread).unwrap().policy;
            watch.again();
            watch.look(&[id], &before);
            Some((policy, scheduler::get(thread).unwrap().policy))
        });
        if let Some(policies) = demoted {
            assert_eq!(policies, (Policy::Other, Policy::Other), "then, and in the next lane");
        }
    }
}
