//! Scheduling policy, affinity and timer slack of threads.
//!
//! Contains calls only. Settings end with the thread. Higher layers decide which are allowed, and
//! what they mean for other programs.

use std::collections::BTreeSet;
use std::io;
use std::mem::size_of;
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, Pid};
use serde::{Deserialize, Serialize};

/// Thread, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(Option<Pid>);

impl Thread {
    /// Calling thread.
    pub(crate) const CURRENT: Thread = Thread(None);

    /// Returns the thread of this number, or `None` for numbers that no thread can have.
    pub(crate) fn of(id: u32) -> Option<Self> {
        Pid::from_raw(i32::try_from(id).ok()?).map(|id| Thread(Some(id)))
    }

    fn raw(self) -> libc::pid_t {
        Pid::as_raw(self.0)
    }
}

/// Scheduling policy of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    #[default]
    Other,
    Batch,
    Idle,
    Fifo,
    RoundRobin,
    Deadline,
    /// Policy that this crate does not know, by its number.
    Unknown(u32),
}

impl Policy {
    fn number(self) -> u32 {
        match self {
            Policy::Other => 0,
            Policy::Fifo => 1,
            Policy::RoundRobin => 2,
            Policy::Batch => 3,
            Policy::Idle => 5,
            Policy::Deadline => 6,
            Policy::Unknown(number) => number,
        }
    }

    fn of_number(number: u32) -> Self {
        match number {
            0 => Policy::Other,
            1 => Policy::Fifo,
            2 => Policy::RoundRobin,
            3 => Policy::Batch,
            5 => Policy::Idle,
            6 => Policy::Deadline,
            number => Policy::Unknown(number),
        }
    }

    /// Returns true if threads of the policy run before all ordinary ones.
    pub(crate) fn is_real_time(self) -> bool {
        matches!(self, Policy::Fifo | Policy::RoundRobin | Policy::Deadline)
    }
}

/// Scheduling parameters of a thread. Fields that do not apply to its policy are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Scheduling {
    pub(crate) policy: Policy,
    /// Priority of FIFO and round robin: 1 to 99.
    pub(crate) priority: u32,
    /// Nice value of ordinary threads: -20 to 19.
    pub(crate) nice: i32,
    /// Runtime of `SCHED_DEADLINE`. The next two fields belong to it, too.
    pub(crate) runtime_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) period_ns: u64,
    /// Threads and processes started by the thread get ordinary scheduling.
    pub(crate) reset_on_fork: bool,
}

impl Scheduling {
    /// `SCHED_FIFO`, not inherited.
    pub(crate) fn fifo(priority: u32) -> Self {
        Self { policy: Policy::Fifo, priority, reset_on_fork: true, ..Self::default() }
    }

    /// `SCHED_DEADLINE`, not inherited.
    pub(crate) fn deadline(runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> Self {
        let policy = Policy::Deadline;
        Self { policy, runtime_ns, deadline_ns, period_ns, reset_on_fork: true, ..Self::default() }
    }
}

/// Returns the scheduling of the thread.
pub(crate) fn get(thread: Thread) -> io::Result<Scheduling> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut found: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size_bytes = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: the kernel writes at most `size_bytes` bytes, the size of the structure, which is a
    // local of this function.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread.raw(),
            &mut found,
            size_bytes,
            0 as libc::c_uint,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = Policy::of_number(found.sched_policy);
    let is_deadline = policy == Policy::Deadline;
    // For ordinary threads the kernel reports their time slice in the runtime field.
    let of_deadline = |ns: u64| if is_deadline { ns } else { 0 };
    Ok(Scheduling {
        policy,
        priority: found.sched_priority,
        nice: found.sched_nice,
        runtime_ns: of_deadline(found.sched_runtime),
        deadline_ns: of_deadline(found.sched_deadline),
        period_ns: of_deadline(found.sched_period),
        reset_on_fork: found.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0,
    })
}

/// Sets the scheduling of the thread. Fails with `EPERM` for a missing right and for deadlines of
/// pinned threads, and with `EBUSY` if other deadlines leave too little time.
pub(crate) fn set(thread: Thread, to: &Scheduling) -> io::Result<()> {
    let flag = if to.reset_on_fork { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 };
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: to.policy.number(),
        sched_flags: flag,
        sched_nice: to.nice,
        sched_priority: to.priority,
        sched_runtime: to.runtime_ns,
        sched_deadline: to.deadline_ns,
        sched_period: to.period_ns,
    };
    // SAFETY: the kernel reads `size` bytes, which is the size of the structure.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread.raw(), &wanted, 0 as libc::c_uint) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restores the scheduling that the thread had before the lane. Needs no right if that was
/// ordinary: a thread without rights keeps the reset-on-fork flag, which has no effect on ordinary
/// threads.
pub(crate) fn restore(thread: Thread, before: &Scheduling) -> io::Result<()> {
    let ordinary = Scheduling { reset_on_fork: true, ..Scheduling::default() };
    let kept = Scheduling { reset_on_fork: true, ..*before };
    let results = [*before, kept, ordinary].map(|to| move || set(thread, &to));
    let mut last = Ok(());
    for attempt in results {
        last = attempt();
        match &last {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            _ => return last,
        }
    }
    last
}

/// Returns the cores that the thread may run on.
pub(crate) fn affinity(thread: Thread) -> io::Result<BTreeSet<u32>> {
    let set = rustix::thread::sched_getaffinity(thread.0)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core as u32).collect())
}

/// Limits the thread to these cores. Fails with `EINVAL` if none of them is online and in its
/// cpuset.
pub(crate) fn set_affinity(thread: Thread, cores: &BTreeSet<u32>) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores.iter().map(|core| *core as usize).filter(|core| *core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(rustix::thread::sched_setaffinity(thread.0, &set)?)
}

/// Returns the timer slack of the calling thread: the time by which its timers may be late.
pub(crate) fn timer_slack_ns() -> io::Result<u64> {
    Ok(rustix::thread::current_timer_slack()?)
}

/// Sets the timer slack of the calling thread. Timers of real-time threads have none.
pub(crate) fn set_timer_slack(slack_ns: NonZeroU64) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(Some(slack_ns))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the test in a new thread, since settings stay with the thread.
    fn in_new_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn fifo_is_set_read_and_restored() {
        in_new_thread(|| {
            let before = get(Thread::CURRENT).unwrap();
            match set(Thread::CURRENT, &Scheduling::fifo(7)) {
                Ok(()) => assert_eq!(get(Thread::CURRENT).unwrap(), Scheduling::fifo(7)),
                Err(error) => eprintln!("skipped: no right to FIFO here: {error}"),
            }
            restore(Thread::CURRENT, &before).unwrap();
            assert_eq!(get(Thread::CURRENT).unwrap().policy, before.policy);
        });
    }

    #[test]
    fn affinity_is_set_for_one_thread() {
        let all = affinity(Thread::CURRENT).unwrap();
        in_new_thread(|| {
            let one: BTreeSet<u32> = all.iter().copied().take(1).collect();
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            set_affinity(Thread::of(id).unwrap(), &one).unwrap();
            assert_eq!(affinity(Thread::CURRENT).unwrap(), one);
        });
        assert_eq!(affinity(Thread::CURRENT).unwrap(), all);
        let error = set_affinity(Thread::CURRENT, &BTreeSet::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn deadlines_are_refused_to_pinned_threads() {
        in_new_thread(|| {
            let all = affinity(Thread::CURRENT).unwrap();
            let wanted = Scheduling::deadline(1_000_000, 10_000_000, 10_000_000);
            if all.len() < 2 || set(Thread::CURRENT, &wanted).is_err() {
                eprintln!("skipped: no deadlines here, or one core");
                return;
            }
            assert_eq!(get(Thread::CURRENT).unwrap(), wanted);
            set(Thread::CURRENT, &Scheduling::default()).unwrap();
            set_affinity(Thread::CURRENT, &all.iter().copied().take(1).collect()).unwrap();
            let error = set(Thread::CURRENT, &wanted).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        });
    }

    #[test]
    fn timer_slack_is_set_and_read() {
        in_new_thread(|| {
            set_timer_slack(NonZeroU64::MIN).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 1);
        });
    }

    #[test]
    fn invalid_thread_numbers_are_refused() {
        assert_eq!(Thread::of(0), None);
        assert_eq!(Thread::of(u32::MAX), None);
        let missing = Thread::of(i32::MAX as u32).unwrap();
        assert_eq!(get(missing).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
