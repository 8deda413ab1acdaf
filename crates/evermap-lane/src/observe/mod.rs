//! Observes a running program: when its threads wake, which files they read, and what they wait
//! for; and suggests a policy for the user to review.
//!
//! Only reads, from outside, every thread. The suggestion is a guess from the observed behaviour: a
//! rhythm of wake-ups is not necessarily a deadline, and nothing acts on it automatically.

mod files;
mod process;
mod rhythm;
mod suggest;
mod wakeups;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use crate::refusal::Unobservable;
pub use files::ObservedFile;
pub use rhythm::{Rhythm, WAKE_UPS_MIN};
pub use wakeups::Source;

use crate::machine::{CpuList, Roots};
use crate::process::{Stat, threads};
use crate::sys::scheduler::{self, Thread};
use crate::{Error, Policy, Result};
use files::Files;
use process::{Counters, Identity};
use wakeups::Follower;

/// Maximum number of threads that are followed.
const THREADS_MAX: usize = 256;
/// Interval of reading threads, files and counters.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of reading the kernel's switch records.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of reading switch counts where there are no records. The interval grows with the number
/// of threads, since each count is a read of `/proc`.
const COUNT_INTERVAL: Duration = Duration::from_millis(1);
const COUNT_INTERVAL_PER_THREAD: Duration = Duration::from_micros(100);

/// Options of an observation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Duration.
    pub time: Duration,
    /// Reads switch counts instead of the kernel's switch records.
    pub only_poll: bool,
    /// Ends the observation early when this becomes true.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Options { time: Duration::from_secs(10), only_poll: false, stop: Arc::default() }
    }
}

/// Observed thread.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ObservedThread {
    /// Thread number.
    pub id: u32,
    /// Name of the thread, at most 15 bytes.
    pub name: String,
    /// Scheduling policy: `other`, `fifo`, `round-robin`, `deadline`, `batch`, `idle`.
    pub scheduler: String,
    /// Real-time priority; 0 without one.
    pub priority: u32,
    /// Nice value.
    pub nice: i32,
    /// Cores that the thread may run on.
    pub affinity: CpuList,
    /// Rhythm of its wake-ups.
    pub rhythm: Rhythm,
    /// Source of the wake-ups.
    pub source: Source,
    /// Wake-ups without an individual time.
    pub lost: u64,
    /// Processor time.
    pub processor_ms: f64,
    /// Time in the run queue.
    pub run_queue_ms: f64,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
}

impl ObservedThread {
    /// Mean processor time in a period. `None` without a period.
    pub fn processor_ms_per_period(&self, seconds: f64) -> Option<f64> {
        let period_us = self.rhythm.period_us.filter(|_| self.rhythm.is_periodic())?;
        (seconds > 0.0).then(|| self.processor_ms / seconds * period_us / 1e6)
    }
}

/// Result of an observation.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Observation {
    /// Process number.
    pub process: u32,
    /// Program of the process.
    pub program: String,
    /// Duration of the observation.
    pub seconds: f64,
    /// True if the process ended during the observation.
    pub has_ended: bool,
    /// Threads, by processor time, largest first.
    pub threads: Vec<ObservedThread>,
    /// Files that the process read, by bytes, largest first.
    pub files: Vec<ObservedFile>,
    /// Bytes read with system calls from any source. `None` if unknown.
    pub read_bytes: Option<u64>,
    /// Bytes of these that came from disks.
    pub read_from_disks_bytes: Option<u64>,
    /// Bytes of locked memory.
    pub locked_bytes: u64,
    /// Online cores of the machine. Empty if unknown.
    #[serde(skip)]
    pub online: CpuList,
    /// Restrictions of the observation.
    pub warnings: Vec<String>,
}

impl Observation {
    /// Returns a suggested policy, with sentences about its reasons and about unknowns.
    pub fn suggestion(&self) -> (Policy, Vec<String>) {
        suggest::suggestion(self)
    }

    /// Returns the suggestion as TOML that [`Policy::parse`] accepts, with the sentences as
    /// comments.
    pub fn stanza(&self) -> String {
        let (policy, why) = self.suggestion();
        // All values are representable in TOML.
        let toml = policy.to_toml().unwrap_or_default();
        let comments: String =
            why.iter().map(|line| format!("# {}\n", escape_controls(line))).collect();
        format!("{comments}\n{toml}")
    }
}

/// Escapes control characters. Names of files and threads may contain line feeds, which would end a
/// comment.
fn escape_controls(text: &str) -> String {
    text.chars()
        .flat_map(|one| if one.is_control() { one.escape_default().collect() } else { vec![one] })
        .collect()
}

/// Observes a process.
///
/// Cost: a ring of switch records for each thread, read 50 times a second; or, if these are not
/// permitted, a read of `/proc` for each thread 1,000 times a second, less often for more than ten
/// threads. Some reads for each open file and thread ten times a second.
///
/// # Errors
///
/// [`Error::NoProcess`]; [`Error::Unobservable`] for kernel threads, zombies, thread numbers,
/// processes of others without the right, and processes that end before enough was observed.
///
/// ```no_run
/// use evermap_lane::observe::{Options, observe};
/// let observation = observe(4711, &Options::default())?;
/// println!("{}", observation.stanza());
/// # Ok::<(), evermap_lane::Error>(())
/// ```
pub fn observe(process: u32, options: &Options) -> Result<Observation> {
    let identity = Identity::open(process)?;
    let begin = Instant::now();
    let mut session = Session::new(identity, options.only_poll);
    let mut next_poll = begin;
    let has_ended = loop {
        let now = Instant::now();
        if now >= next_poll {
            if !session.poll(options.only_poll) {
                break true;
            }
            next_poll = now + POLL_INTERVAL;
        }
        session.follow();
        let left = options.time.saturating_sub(begin.elapsed());
        if left.is_zero() || options.stop.load(Ordering::Relaxed) {
            break !session.identity.is_running();
        }
        thread::sleep(session.pause().min(left));
    };
    session.finish(begin.elapsed(), has_ended)
}

/// Thread that is followed.
struct Followed {
    name: String,
    scheduling: scheduler::Scheduling,
    affinity: CpuList,
    follower: Follower,
    before: Counters,
    last: Counters,
}

struct Session {
    identity: Identity,
    threads: BTreeMap<u32, Followed>,
    files: Files,
    io_before: Option<process::Io>,
    io_last: Option<process::Io>,
    locked_bytes: u64,
    warnings: Vec<String>,
}

impl Session {
    fn new(identity: Identity, only_poll: bool) -> Self {
        let mut warnings = Vec::new();
        if only_poll {
            warnings.push("wake-ups are counted, as requested".into());
        }
        let process = identity.process;
        Session {
            io_before: process::io(process),
            io_last: None,
            files: Files::new(process),
            identity,
            threads: BTreeMap::new(),
            locked_bytes: 0,
            warnings,
        }
    }

    /// Reads everything that is not recorded continuously. Returns false once the process has
    /// ended.
    fn poll(&mut self, only_poll: bool) -> bool {
        if !self.identity.is_running() {
            return false;
        }
        let process = self.identity.process;
        for id in threads(process) {
            if self.threads.contains_key(&id) {
                continue;
            } else if self.threads.len() < THREADS_MAX {
                if let Some(followed) = self.followed(id, only_poll) {
                    self.threads.insert(id, followed);
                }
            } else {
                self.warn(format!(
                    "the process has more than {THREADS_MAX} threads: the others were not followed"
                ));
            }
        }
        self.files.poll();
        self.count();
        true
    }

    /// Reads all counters. Counters of ended threads keep their last values.
    fn count(&mut self) {
        let process = self.identity.process;
        for (id, followed) in &mut self.threads {
            followed.last = Counters::read(process, *id).unwrap_or(followed.last);
        }
        self.io_last = process::io(process).or(self.io_last);
        self.locked_bytes = process::locked_bytes(process).unwrap_or(self.locked_bytes);
    }

    fn followed(&mut self, id: u32, only_poll: bool) -> Option<Followed> {
        let process = self.identity.process;
        let before = Counters::read(process, id)?;
        let thread = Thread::of(id)?;
        let (follower, why) = Follower::of(process, id, only_poll)?;
        if let Some(why) = why {
            self.warn(why);
        }
        Some(Followed {
            name: Stat::of_thread(process, id)?.name,
            scheduling: scheduler::get(thread).ok()?,
            affinity: scheduler::affinity(thread).ok()?.into_iter().collect(),
            follower,
            last: before,
            before,
        })
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn follow(&mut self) {
        for followed in self.threads.values_mut() {
            followed.follower.follow();
        }
    }

    fn pause(&self) -> Duration {
        let polled = self.threads.values().filter(|one| one.follower.is_polled()).count();
        match polled {
            0 => DRAIN_INTERVAL,
            count => COUNT_INTERVAL.max(COUNT_INTERVAL_PER_THREAD * count as u32),
        }
    }

    fn finish(mut self, time: Duration, has_ended: bool) -> Result<Observation> {
        self.threads.values_mut().for_each(|followed| followed.follower.finish());
        // Once the process has ended, its number may belong to another one.
        if self.identity.is_running() {
            self.files.finish();
            self.count();
        }
        let process = self.identity.process;
        let mut threads: Vec<ObservedThread> =
            self.threads.into_iter().map(|(id, followed)| seen(id, followed)).collect();
        if has_ended && threads.iter().all(|thread| thread.rhythm.wake_ups < WAKE_UPS_MIN) {
            let why = Unobservable::Ended { after_ms: time.as_millis() };
            return Err(Error::Unobservable { process, why });
        }
        threads.sort_by(|one, other| other.processor_ms.total_cmp(&one.processor_ms));
        let read = self.io_before.zip(self.io_last);
        Ok(Observation {
            process,
            program: self.identity.program,
            seconds: time.as_secs_f64(),
            has_ended,
            threads,
            files: self.files.seen(),
            read_bytes: read
                .map(|(before, last)| last.read_bytes.saturating_sub(before.read_bytes)),
            read_from_disks_bytes: read.map(|(before, last)| {
                last.from_disks_bytes.saturating_sub(before.from_disks_bytes)
            }),
            locked_bytes: self.locked_bytes,
            online: online(),
            warnings: self.warnings,
        })
    }
}

fn online() -> CpuList {
    let list = Roots::default().sys_text("devices/system/cpu/online");
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}

fn seen(id: u32, followed: Followed) -> ObservedThread {
    let Followed { name, scheduling, affinity, follower, before, last } = followed;
    let ms = |last_ns: u64, before_ns: u64| last_ns.saturating_sub(before_ns) as f64 / 1e6;
    let (source, lost) = (follower.source(), follower.lost());
    ObservedThread {
        id,
        name,
        scheduler: name_of(scheduling.policy),
        priority: scheduling.priority,
        nice: scheduling.nice,
        affinity,
        rhythm: follower.rhythm(),
        source,
        lost,
        processor_ms: ms(last.processor_ns, before.processor_ns),
        run_queue_ms: ms(last.run_queue_ns, before.run_queue_ns),
        minor_faults: last.minor_faults.saturating_sub(before.minor_faults),
        major_faults: last.major_faults.saturating_sub(before.major_faults),
    }
}

fn name_of(policy: scheduler::Policy) -> String {
    match policy {
        scheduler::Policy::Other => "other".into(),
        scheduler::Policy::Batch => "batch".into(),
        scheduler::Policy::Idle => "idle".into(),
        scheduler::Policy::Fifo => "fifo".into(),
        scheduler::Policy::RoundRobin => "round-robin".into(),
        scheduler::Policy::Deadline => "deadline".into(),
        scheduler::Policy::Unknown(number) => format!("policy {number}"),
    }
}
