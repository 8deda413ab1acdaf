//! Lane of the calling thread: entering, frames, leaving.

use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, getpid};
use rustix::thread::sched_getcpu;

use super::clock::Monotonic;
use super::file::{Access, File};
use super::frame::Frame;
use super::frame_loop::FrameLoop;
use super::recorder::Recorder;
use super::thread_state::ThreadState;
use crate::counters::Counters;
use crate::guard::StateDirectory;
use crate::reads::{self, Budget, HelperOptions, ReadOptions};
use crate::report::Report;
use crate::report::samples::Samples;
use crate::sys::memory::Lock;
use crate::{Error, Note, Period, Policy, Result};

thread_local! {
    static IS_IN_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Lane of the calling thread: it gets its core whenever it wants to run, at a real-time policy,
/// with its memory locked. A lane cannot move to another thread.
///
/// Leaving, dropping and unwinding restore the thread. Parts of the policy that could not be
/// applied do not cause errors: the report lists them with the remedy.
///
/// ```
/// use evermap_lane::{Lane, Policy};
///
/// // 1,000 periods a second, without a core, so that the example runs anywhere.
/// let policy = Policy::parse("[app]\nperiod_us = 1000\nshare = \"off\"\nscheduler = \"other\"")?;
/// let mut lane = Lane::enter(&policy)?;
/// for _ in 0..3 {
///     let Some(frame) = lane.frame()? else { break };
///     // ... the work of this period ...
///     frame.end();
/// }
/// let report = lane.leave();
/// assert_eq!(report.frames, 3);
/// println!("{report}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lane {
    recorder: Recorder,
    period: Period,
    deadline_ns: u64,
    end_ns: Option<u64>,
    /// Counters before the first frame.
    before: Option<Counters>,
    read_options: ReadOptions,
    process: Pid,
    /// The thread was seen on another core, and a note was made.
    has_left_core: bool,
    thread: ThreadState,
    _of_this_thread: PhantomData<*const ()>,
}

impl Lane {
    /// Puts the calling thread into the lane that the policy describes. The policy needs `app.fps`
    /// or `app.period_us`. Uses the state directory of this user.
    ///
    /// Cost: some hundred small reads of `/proc` and `/sys`; `io.lock_memory` prefaults and locks
    /// all memory of the process, which takes time in proportion to its size. For deadlines of 10
    /// ms or less, if it may, it starts a guardian (the `evermap` program) and moves the kernel's
    /// unbound work to other cores, which takes some milliseconds.
    ///
    /// # Errors
    /// [`Error::NoPeriod`]; [`Error::InvalidPolicy`] for an invalid policy;
    /// [`Error::AlreadyInLane`]; the reason if a core is wanted and none can be used. Missing
    /// rights are no errors.
    pub fn enter(policy: &Policy) -> Result<Self> {
        Self::enter_by(policy, &StateDirectory::of_user)
    }

    /// Like [`Lane::enter`], with another state directory. Lanes with different state directories
    /// do not see each other's cores.
    ///
    /// # Errors
    /// Same errors as [`Lane::enter`].
    pub fn enter_in(policy: &Policy, state: &StateDirectory) -> Result<Self> {
        Self::enter_by(policy, &|| Ok(state.clone()))
    }

    fn enter_by(policy: &Policy, state: &dyn Fn() -> Result<StateDirectory>) -> Result<Self> {
        policy.verify().map_err(Error::InvalidPolicy)?;
        let period = policy.period().map_err(Error::InvalidPolicy)?.ok_or(Error::NoPeriod)?;
        let deadline_ns =
            policy.deadline_ns().map_err(Error::InvalidPolicy)?.unwrap_or(period.ns());
        if IS_IN_LANE.get() {
            return Err(Error::AlreadyInLane);
        }
        let lock = if policy.io.locks_memory() { Lock::Wanted } else { Lock::Unwanted };
        let mut thread = ThreadState::enter(policy, period, state)?;
        let samples = Samples::new(lock).map_err(|source| Error::Io {
            operation: "allocate memory for",
            path: Path::new("the report").into(),
            source,
        })?;
        if lock == Lock::Wanted && !samples.is_locked() {
            let why = "this process may not lock more memory";
            thread.not_applied.push(Note::new("locked memory for the report", why));
        }
        let frame_loop = FrameLoop::new(Monotonic, period, deadline_ns);
        let end_ns = policy
            .guard
            .max_time_s
            .map(|s| frame_loop.now_ns().saturating_add(s.saturating_mul(1_000_000_000)));
        IS_IN_LANE.set(true);
        Ok(Self {
            period,
            deadline_ns,
            end_ns,
            before: None,
            read_options: read_options(policy, period, lock, &thread),
            process: getpid(),
            has_left_core: false,
            thread,
            recorder: Recorder::new(frame_loop, samples),
            _of_this_thread: PhantomData,
        })
    }

    /// Opens a file in the policy's I/O mode. Takes time, so call it outside of frames: `map`
    /// copies the file to the tier, `nowait` waits for the first read-ahead.
    ///
    /// # Errors
    /// [`Error::NotAFile`]; [`Error::NoRoom`] and [`Error::NotCopied`] for the tier; I/O errors.
    pub fn open(&mut self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, &Access::default())
    }

    /// Like [`Lane::open`], with hints on how the file will be read.
    ///
    /// # Errors
    /// Same errors as [`Lane::open`].
    pub fn open_with(&mut self, path: impl AsRef<Path>, access: &Access) -> Result<File> {
        let read_options = ReadOptions {
            is_looping: access.is_looping,
            is_direct: access.is_direct,
            read_bytes: access.bytes_per_frame,
            ..self.read_options.clone()
        };
        let path = path.as_ref();
        if let Some(watchdog) = self.thread.watchdog() {
            watchdog.suspend();
        }
        let mut file = File::new(reads::open(path, &read_options)?, path, access.is_looping);
        self.recorder.notes.extend(file.notes());
        Ok(file)
    }

    /// Sleeps until the next period begins and returns its frame, or `None` once the lane's time
    /// (`guard.max_time_s`) has ended. The first call begins the first period. Periods that passed
    /// entirely since the last frame are drops; a period in progress begins late.
    ///
    /// Cost: three clock reads (four with `max_time_s`) and two system calls.
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
        if self.end_ns.is_some_and(|end_ns| self.recorder.frame_loop.next_begin_ns() >= end_ns) {
            return Ok(None);
        }
        if self.before.is_none() {
            self.before = Some(Counters::now(self.thread.core()));
        }
        if let Some(watchdog) = self.thread.watchdog() {
            watchdog.resume();
        }
        let start = self.recorder.frame_loop.wait();
        self.check_core();
        Ok(Some(Frame::new(&mut self.recorder, start)))
    }

    /// Runs `work` with the affinity that the thread had before the lane. Threads and programs
    /// inherit the affinity of the thread that starts them, so start them here; otherwise they
    /// begin on the lane's core. Their scheduling policy is ordinary in any case.
    pub fn outside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.thread.outside(work)
    }

    /// Core of the lane, or `None`.
    pub fn core(&self) -> Option<u32> {
        self.thread.core()
    }

    /// Parts of the policy that were not applied so far, with the cause.
    pub fn not_applied(&self) -> impl Iterator<Item = &Note> {
        self.thread.not_applied.iter().chain(&self.recorder.notes)
    }

    /// Leaves the lane: restores the thread and returns the report.
    pub fn leave(mut self) -> Report {
        let core = self.thread.core();
        let costs = self.before.map(|before| Counters::now(core).since(before)).unwrap_or_default();
        let not_restored = self.restore();
        let counts = self.recorder.frame_loop.counts();
        let mut report = Report::of(self.period, self.deadline_ns, counts, &self.recorder.samples)
            .with_costs(core, costs);
        report.reads = self.recorder.reads;
        report.applied = std::mem::take(&mut self.thread.applied);
        report.not_applied = std::mem::take(&mut self.thread.not_applied);
        report.not_applied.append(&mut self.recorder.notes);
        report.not_applied.extend(not_restored);
        report.demotions = self.thread.demotion.take().into_iter().collect();
        report
    }

    /// Notes a move to another core. If a core goes offline, the kernel lets its threads run
    /// anywhere.
    fn check_core(&mut self) {
        let here = sched_getcpu() as u32;
        let Some(core) = self.thread.core().filter(|core| *core != here && !self.has_left_core)
        else {
            return;
        };
        self.has_left_core = true;
        let why = format!(
            "since frame {} the thread has run on core {here} or others: its own went offline, or another program changed its affinity",
            self.recorder.frame_loop.counts().frames + 1
        );
        self.recorder.notes.push(Note::new(format!("core {core} for the whole lane"), why));
    }

    fn restore(&mut self) -> Vec<Note> {
        IS_IN_LANE.set(false);
        if getpid() != self.process {
            self.thread.forget();
        }
        self.thread.restore()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.restore();
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Lane");
        debug
            .field("core", &self.core())
            .field("frames", &self.recorder.frame_loop.counts().frames)
            .finish_non_exhaustive()
    }
}

fn read_options(policy: &Policy, period: Period, lock: Lock, thread: &ThreadState) -> ReadOptions {
    ReadOptions {
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
        helper: HelperOptions {
            placement: thread.placement(),
            is_real_time: thread.is_real_time(),
        },
    }
}
