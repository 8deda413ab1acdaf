//! A lane for the thread that calls: entering, frames, leaving.

use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, getpid};
use rustix::thread::sched_getcpu;

use super::clock::Monotonic;
use super::entered::Entered;
use super::file::{Access, File};
use super::frame::Frame;
use super::pace::{Beat, Pace};
use crate::counters::Counters;
use crate::guard::StateDirectory;
use crate::reads::{self, Budget, Helper, Way};
use crate::report::Report;
use crate::report::samples::{Sample, Samples};
use crate::sys::memory::Lock;
use crate::{Error, Note, Period, Policy, Reads, Result};

thread_local! {
    static IS_IN: Cell<bool> = const { Cell::new(false) };
}

/// This thread, in a lane: it has its core whenever it wants to run, at a real-time policy, and its memory is there. It belongs to the thread that entered.
///
/// Leaving, dropping and unwinding set the thread back to what it was. What the policy wanted and could not be had is no error: the
/// report says it, with what would help.
///
/// ```
/// use evermap_lane::{Lane, Policy};
///
/// // A thousand times a second; here without a core of its own, so that it runs anywhere.
/// let policy = Policy::parse("[app]\nperiod_us = 1000\nshare = \"off\"\nscheduler = \"other\"")?;
/// let mut lane = Lane::enter(&policy)?;
/// for _ in 0..3 {
///     let Some(frame) = lane.frame()? else { break };
///     // ... what is to be done in this period ...
///     frame.end();
/// }
/// let report = lane.leave();
/// assert_eq!(report.frames, 3);
/// println!("{report}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lane {
    pace: Pace<Monotonic>,
    period: Period,
    deadline_ns: u64,
    end_ns: Option<u64>,
    samples: Samples,
    reads: Reads,
    notes: Vec<Note>,
    /// As it was before the first frame.
    before: Option<Counters>,
    way: Way,
    process: Pid,
    /// It was seen on another core than its own, and that was noted.
    is_away: bool,
    entered: Entered,
    _of_this_thread: PhantomData<*const ()>,
}

impl Lane {
    /// Has this thread in the lane that the policy describes: with `app.fps` or `app.period_us`, on the state directory of this user.
    ///
    /// Cost: looks at the machine (some hundred small reads of `/proc` and `/sys`), and with `io.lock_memory` has all memory of the process in and
    /// locked, which takes as long as that is large. For deadlines of 10 ms or less, where it may, it starts a guardian (the `evermap` program) and has the
    /// kernel's unbound work done on other cores: some milliseconds.
    ///
    /// # Errors
    /// [`Error::NoPeriod`]; [`Error::Unusable`] for policies that no file would be taken with; [`Error::AlreadyIn`]; if a core is wanted and none can be had, why.
    /// Rights that are missing are no error.
    pub fn enter(policy: &Policy) -> Result<Self> {
        Self::enter_by(policy, &StateDirectory::of_user)
    }

    /// The same, on a state directory that is named: lanes with different ones don't see each other's cores.
    ///
    /// # Errors
    /// As [`Lane::enter`].
    pub fn enter_in(policy: &Policy, state: &StateDirectory) -> Result<Self> {
        Self::enter_by(policy, &|| Ok(state.clone()))
    }

    fn enter_by(policy: &Policy, state: &dyn Fn() -> Result<StateDirectory>) -> Result<Self> {
        policy.verify().map_err(Error::Unusable)?;
        let period = policy.period().map_err(Error::Unusable)?.ok_or(Error::NoPeriod)?;
        let deadline_ns = policy.deadline_ns().map_err(Error::Unusable)?.unwrap_or(period.ns());
        if IS_IN.get() {
            return Err(Error::AlreadyIn);
        }
        let lock = if policy.io.locks_memory() { Lock::Wanted } else { Lock::Unwanted };
        let mut entered = Entered::enter(policy, period, state)?;
        let samples = Samples::new(lock).map_err(|source| Error::Io {
            operation: "get memory for",
            path: Path::new("the report").into(),
            source,
        })?;
        if lock == Lock::Wanted && !samples.is_locked() {
            let why = "the limit of locked memory of this process is too low";
            entered.not_applied.push(Note::new("memory for the report, locked", why));
        }
        let pace = Pace::new(Monotonic, period, deadline_ns);
        let end_ns = policy
            .guard
            .max_time_s
            .map(|s| pace.now_ns().saturating_add(s.saturating_mul(1_000_000_000)));
        IS_IN.set(true);
        Ok(Self {
            period,
            deadline_ns,
            end_ns,
            samples,
            reads: Reads::default(),
            notes: Vec::new(),
            before: None,
            way: way(policy, period, lock, &entered),
            process: getpid(),
            is_away: false,
            entered,
            pace,
            _of_this_thread: PhantomData,
        })
    }

    /// Opens a file in the policy's I/O mode. Not for use where time counts: `map` copies it to the tier, `nowait` waits for what is read ahead first.
    ///
    /// # Errors
    /// [`Error::NotAFile`]; [`Error::NoRoom`] and [`Error::NotCopied`] for the tier; what the file system says.
    pub fn open(&mut self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, &Access::default())
    }

    /// The same, with what is known of how it will be read.
    ///
    /// # Errors
    /// As [`Lane::open`].
    pub fn open_with(&mut self, path: impl AsRef<Path>, access: &Access) -> Result<File> {
        let way = Way {
            is_looping: access.is_looping,
            is_direct: access.is_direct,
            read_bytes: access.bytes_per_frame,
            ..self.way.clone()
        };
        let path = path.as_ref();
        if let Some(watchman) = self.entered.watchman() {
            watchman.rest();
        }
        let mut file = File::new(reads::open(path, &way)?, path, access.is_looping);
        self.notes.extend(file.notes());
        Ok(file)
    }

    /// Sleeps until the next period begins, and gives its frame; none once the lane's time is over (`guard.max_time_s`). The first period begins with
    /// the first call. Periods that passed wholly since the last frame are drops; one that is under way is begun late.
    ///
    /// Cost: a clock is read three times (four with `max_time_s`), and two system calls made.
    ///
    /// # Errors
    /// [`Error::Forked`] in a process that was forked from the one that entered.
    pub fn frame(&mut self) -> Result<Option<Frame<'_>>> {
        let here = getpid();
        if here != self.process {
            return Err(Error::Forked {
                lane: self.process.as_raw_nonzero().get(),
                here: here.as_raw_nonzero().get(),
            });
        }
        if self.end_ns.is_some_and(|end_ns| self.pace.next_begin_ns() >= end_ns) {
            return Ok(None);
        }
        if self.before.is_none() {
            self.before = Some(Counters::now(self.entered.core()));
        }
        if let Some(watchman) = self.entered.watchman() {
            watchman.resume();
        }
        let beat = self.pace.wait();
        self.look_where_it_is();
        Ok(Some(Frame::new(self, beat)))
    }

    /// Does something with the affinity that the thread had before: threads and programs that it starts have that too, and else would begin on the
    /// lane's core. Their policy is ordinary in any case.
    pub fn outside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.entered.outside(work)
    }

    /// The core of the lane; none if it has none of its own.
    pub fn core(&self) -> Option<u32> {
        self.entered.core()
    }

    /// What of the policy was not had so far, and why.
    pub fn not_applied(&self) -> impl Iterator<Item = &Note> {
        self.entered.not_applied.iter().chain(&self.notes)
    }

    /// Leaves: the thread is what it was before, and here is what the lane came to.
    pub fn leave(mut self) -> Report {
        let core = self.entered.core();
        let costs = self.before.map(|before| Counters::now(core).since(before)).unwrap_or_default();
        let not_set_back = self.set_back();
        let counts = self.pace.counts();
        let mut report = Report::of(self.period, self.deadline_ns, counts, &self.samples)
            .with_costs(core, costs);
        report.reads = self.reads;
        report.applied = std::mem::take(&mut self.entered.applied);
        report.not_applied = std::mem::take(&mut self.entered.not_applied);
        report.not_applied.append(&mut self.notes);
        report.not_applied.extend(not_set_back);
        report.demotions = self.entered.demotion.take().into_iter().collect();
        report
    }

    /// When a core goes offline, the kernel lets its threads run anywhere.
    fn look_where_it_is(&mut self) {
        let here = sched_getcpu() as u32;
        let Some(core) = self.entered.core().filter(|core| *core != here && !self.is_away) else {
            return;
        };
        self.is_away = true;
        let why = format!(
            "from frame {} on the thread was on core {here} or others: its own went offline, or somebody gave it those",
            self.pace.counts().frames + 1
        );
        self.notes.push(Note::new(format!("core {core} until the end"), why));
    }

    fn set_back(&mut self) -> Vec<Note> {
        IS_IN.set(false);
        if getpid() != self.process {
            self.entered.forget();
        }
        self.entered.set_back()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.pace.now_ns()
    }

    pub(super) fn end_frame(
        &mut self,
        beat: &Beat,
        reads: Reads,
        notes: Vec<Note>,
        sample: impl FnOnce(u64) -> Sample,
    ) {
        let completion_ns = self.pace.end(beat);
        self.samples.push(sample(completion_ns));
        self.reads.add(reads);
        self.notes.extend(notes);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.set_back();
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Lane");
        debug
            .field("core", &self.core())
            .field("frames", &self.pace.counts().frames)
            .finish_non_exhaustive()
    }
}

fn way(policy: &Policy, period: Period, lock: Lock, entered: &Entered) -> Way {
    Way {
        mode: policy.io.mode,
        ahead: Duration::from_millis(policy.io.ahead_ms),
        spin: Duration::from_micros(policy.io.spin_us),
        lock,
        tier: policy.tier.path.clone(),
        budget: Budget::of(policy.tier.budget_mib.map(|mib| mib.saturating_mul(1 << 20))),
        inject_ns_per_4k: policy.tier.inject_ns_per_4k,
        is_direct: false,
        is_looping: false,
        read_bytes: None,
        period: Some(Duration::from_nanos(period.ns())),
        helper: Helper { aside: entered.aside(), is_real_time: entered.is_real_time() },
    }
}
