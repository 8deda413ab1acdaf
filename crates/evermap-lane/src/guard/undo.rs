//! Undoes a lane by its journal: from any step, in any process, any number of times.
//!
//! The order matters. Threads lose their priority first, so that no thread of the lane keeps others
//! from running; then groups are removed; then affinities are restored, which a cpuset may have
//! limited until then; the journal is removed last. A process is touched only if its number and
//! start time match the journal, or if it belongs to the program by descent or by the lane's id in
//! its environment.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use super::StateDirectory;
use super::journal::{FormerState, Journal, Record};
use crate::hold::tree::Tree;
use crate::machine::Roots;
use crate::process::{self, Process, Stat};
use crate::sys::lock;
use crate::sys::scheduler::{self, Thread};
use crate::workqueues::Exclusion;
use crate::{Error, Result};

/// Environment variable with the lane's id, set for the program and inherited by its children.
pub const LANE_VARIABLE: &str = "EVERMAP_LANE";

/// Time without new processes on the core after which the search ends. A fork takes less than a
/// millisecond, but can be interrupted.
const QUIET: Duration = Duration::from_millis(50);
/// Longest duration of that search.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait for a guardian that is undoing. It takes milliseconds.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for another process that undoes in the same directory. Afterwards both undo, which
/// is harmless.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Result of undoing one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UndoneLane {
    /// Id of the lane: number and start time of its process, and the number of the lane within it.
    pub id: String,
    /// Command that had been started.
    pub command: String,
    /// Core of the lane.
    pub core: Option<u32>,
    /// Actions taken, in sentences. Empty if there was nothing left to undo.
    pub did: Vec<String>,
}

/// Result of [`undo`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Undone {
    /// Lanes that were left behind and are now undone.
    pub lanes: Vec<UndoneLane>,
    /// Number of running lanes, which were left alone.
    pub running: usize,
    /// Errors of lanes that could not be undone. The next `undo` tries them again.
    pub failed: Vec<Error>,
}

/// Undoes all lanes of the state directory whose processes have ended, and leaves running ones
/// alone. When it returns, nothing is left of the former except what `failed` names. Cost: some
/// milliseconds a lane, and the wait for a guardian that is undoing.
///
/// # Errors
/// The state directory cannot be read.
pub fn undo(state: &StateDirectory) -> Result<Undone> {
    let mut undone = Undone::default();
    for path in Journal::all(state)? {
        match Journal::read(&path) {
            Ok(None) => {}
            Ok(Some(journal)) if is_in_use(&journal) => undone.running += 1,
            Ok(Some(journal)) => {
                wait_for_guardian(&journal.record);
                match undo_one(state, &journal.record.id, &crate::hold::tree::RealTree) {
                    Ok(Some(lane)) => undone.lanes.push(lane),
                    Ok(None) => {}
                    Err(error) => undone.failed.push(error),
                }
            }
            Err(error) => undone.failed.push(error),
        }
    }
    Ok(undone)
}

/// Returns true while the process that made the lane runs: only that process may end the lane then.
pub(super) fn is_in_use(journal: &Journal) -> bool {
    journal.is_of_this_boot() && journal.record.lane.is_alive()
}

/// Waits for the guardian of a dead lane, which is undoing it. If both undid it, each would report
/// only a part.
fn wait_for_guardian(record: &Record) {
    let Some(Ok(Some(descriptor))) = record.guardian.map(|guardian| guardian.descriptor()) else {
        return;
    };
    let until = Timespec { tv_sec: GUARDIAN_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    // After a timeout or an error of the wait, the lane is undone here.
    let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&until));
}

/// Undoes one lane of any process by its present journal. Returns `None` if there is no journal any
/// more.
///
/// # Errors
/// The first failure. All else was undone, and the journal stays.
pub(super) fn undo_one(
    state: &StateDirectory,
    id: &str,
    tree: &dyn Tree,
) -> Result<Option<UndoneLane>> {
    let _lock = lock_undo(state);
    let Some(journal) = Journal::of_id(state, id)? else { return Ok(None) };
    undo_all(&journal, tree).map(Some)
}

/// Undoes a lane of this process from memory, even if its journal file is lost.
pub(super) fn undo_own(
    state: &StateDirectory,
    journal: &Journal,
    tree: &dyn Tree,
) -> Result<UndoneLane> {
    let _lock = lock_undo(state);
    undo_all(journal, tree)
}

fn undo_all(journal: &Journal, tree: &dyn Tree) -> Result<UndoneLane> {
    let record = &journal.record;
    let mut lane = UndoneLane {
        id: record.id.clone(),
        command: record.command.clone(),
        core: record.core,
        did: Vec::new(),
    };
    if !journal.is_of_this_boot() {
        lane.did.push("the machine has restarted since: nothing was left".into());
        journal.remove()?;
        return Ok(lane);
    }
    lane.did.extend(restore_threads(record));
    let mut result = Ok(());
    if let Some(exclusion) = &record.workqueues {
        match exclusion.undo() {
            Ok(true) => lane.did.push("the kernel's unbound work may use its core again".into()),
            Ok(false) => {}
            Err(source) => result = Err(workqueue_error(exclusion, source)),
        }
    }
    if let Some(hold) = &record.hold {
        match hold.undo(tree) {
            Ok(did) => lane.did.extend(did),
            Err(why) => result = Err(Error::HoldRefused { core: hold.core(), why }),
        }
    }
    lane.did.extend(restore_affinities(record));
    result?;
    journal.remove()?;
    Ok(lane)
}

/// Error for a core that could not be returned to the kernel's unbound work.
pub(super) fn workqueue_error(exclusion: &Exclusion, source: std::io::Error) -> Error {
    let operation = "return the core to the kernel's unbound work in";
    Error::Io { operation, path: exclusion.path(), source }
}

/// Takes the lock for undoing, so that each process reports only its own actions.
fn lock_undo(state: &StateDirectory) -> Option<File> {
    let path = state.path().join("undo");
    let file = File::options().create(true).truncate(false).write(true).open(path).ok()?;
    let until = Instant::now() + LOCK_TIMEOUT;
    while !lock::try_lock(&file).ok()? {
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(file)
}

/// Restores the scheduling of the lane's threads.
fn restore_threads(record: &Record) -> Option<String> {
    let mut count = 0;
    for one in &record.threads {
        let is_same = Process::of(one.thread.pid) == Some(one.thread);
        if is_same && let Some(thread) = Thread::of(one.thread.pid) {
            count += usize::from(restore_scheduling(thread, &one.before));
            let is_back = scheduler::set_affinity(thread, &one.before.affinity);
            drop(is_back.or_else(|_| scheduler::set_affinity(thread, &all_cores())));
        }
    }
    if let Some(program) = record.program.filter(Process::is_alive) {
        for thread in process::threads(program.pid).into_iter().filter_map(Thread::of) {
            count += usize::from(restore_scheduling(thread, &record.before));
        }
        restore_timer_slack(program.pid, &record.before);
    }
    (count > 0).then(|| format!("restored the priority of {count} threads"))
}

/// Restores the scheduling of a thread. Returns true if it changed. A thread that is not real-time
/// lost its priority before or never had it.
fn restore_scheduling(thread: Thread, before: &FormerState) -> bool {
    let former = &before.scheduling;
    let is_changed = scheduler::get(thread).is_ok_and(|now| {
        now.policy.is_real_time() && (now.policy, now.priority) != (former.policy, former.priority)
    });
    is_changed && scheduler::restore(thread, former).is_ok()
}

/// Restores the affinity of processes that belong to the lane and are limited to its core.
fn restore_affinities(record: &Record) -> Option<String> {
    let core = record.core?;
    let own: BTreeSet<u32> = [core].into();
    let mut count = usize::from(!Roots::default().is_online(core) && release_from_offline(record));
    let ends = Instant::now() + RELEASE_TIMEOUT;
    let mut quiet: Option<Instant> = None;
    // Released processes start nothing on the core any more. But a process being forked has the
    // affinity of its parent and is visible only later, and one that executes a new program has no
    // environment for a moment. So the search repeats until it finds nothing new.
    loop {
        let program = record.program.filter(Process::is_alive);
        let released = program.is_some_and(|program| release(program.pid, &own, &record.before));
        let new = usize::from(released) + release_family(record, program, &own);
        count += new;
        let now = Instant::now();
        if new > 0 {
            quiet = Some(now + QUIET);
        }
        if quiet.is_none_or(|quiet| quiet <= now) || ends <= now {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (count > 0).then(|| format!("let {count} processes run on other cores again"))
}

/// Restores the affinity of the program's threads after their core went offline, wherever they are
/// now: the kernel moved running threads elsewhere, but only until the core returns. Returns true
/// if there were any.
fn release_from_offline(record: &Record) -> bool {
    let program = record.program.filter(Process::is_alive);
    let threads = program.map(|program| process::threads(program.pid)).unwrap_or_default();
    let threads = threads.into_iter().filter_map(Thread::of);
    let back = threads.filter(|thread| restore_affinity(*thread, &record.before));
    back.count() > 0
}

/// Releases descendants of the program and processes with the lane's id. Returns the number of
/// those that were limited to the core.
fn release_family(record: &Record, program: Option<Process>, own: &BTreeSet<u32>) -> usize {
    let family: HashSet<u32> =
        program.map(|program| process::descendants(&[program.pid])).unwrap_or_default();
    let marker = format!("{LANE_VARIABLE}={}", record.id).into_bytes();
    let is_on_core = |pid: &u32| {
        Thread::of(*pid)
            .is_some_and(|id| scheduler::affinity(id).is_ok_and(|now| now.is_subset(own)))
    };
    let is_ours = |pid: &u32| family.contains(pid) || process::has_in_environment(*pid, &marker);
    let is_kernel_thread = |pid: &u32| Stat::of(*pid).is_none_or(|stat| stat.is_kernel_thread());
    let found = process::all().into_iter().filter(|pid| {
        // The affinity check is one call and excludes most processes.
        (is_on_core(pid) || family.contains(pid)) && !is_kernel_thread(pid) && is_ours(pid)
    });
    let released = found.filter(|pid| release(*pid, own, &record.before));
    released.inspect(|pid| restore_timer_slack(*pid, &record.before)).count()
}

/// Restores the affinity of threads of a process that are limited to the lane's core, including
/// threads that sleep on the core while it is offline, which the kernel reports as being on no
/// core. Repeats while it finds new threads. Returns true if there were any.
pub(crate) fn release(pid: u32, own: &BTreeSet<u32>, before: &FormerState) -> bool {
    let mut is_any = false;
    for _ in 0..8 {
        let mut is_new = false;
        for thread in process::threads(pid).into_iter().filter_map(Thread::of) {
            let is_pinned = scheduler::affinity(thread).is_ok_and(|now| now.is_subset(own));
            if is_pinned && before.affinity != *own {
                is_new |= restore_affinity(thread, before);
            }
        }
        is_any |= is_new;
        if !is_new {
            break;
        }
    }
    is_any
}

/// Restores the timer slack of a process (of its first thread). Processes of other users need a
/// right; without it they keep exact timers, which costs only some power.
pub(crate) fn restore_timer_slack(pid: u32, before: &FormerState) {
    drop(fs::write(format!("/proc/{pid}/timerslack_ns"), before.timer_slack_ns.to_string()));
}

/// Restores the affinity of a thread. Allows all cores if none of its former cores exists any more.
fn restore_affinity(thread: Thread, before: &FormerState) -> bool {
    let is_back = scheduler::set_affinity(thread, &before.affinity);
    is_back.or_else(|_| scheduler::set_affinity(thread, &all_cores())).is_ok()
}

/// All cores. The kernel ignores those that a thread cannot use.
fn all_cores() -> BTreeSet<u32> {
    (0..rustix::thread::CpuSet::MAX_CPU as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::{before, state};
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// Program that is killed at the end of the test.
    struct Sleeper(Child);

    impl Sleeper {
        fn new(marker: &str) -> Self {
            let mut command = Command::new("sleep");
            command.arg("60").env(LANE_VARIABLE, marker).process_group(0);
            let child = command.spawn().unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            let marker = format!("{LANE_VARIABLE}={marker}");
            while !process::has_in_environment(child.id(), marker.as_bytes()) {
                assert!(Instant::now() < until);
            }
            Self(child)
        }

        fn thread(&self) -> Thread {
            Thread::of(self.0.id()).unwrap()
        }

        fn pin(&self) -> (u32, BTreeSet<u32>) {
            let all = scheduler::affinity(self.thread()).unwrap();
            let core = *all.first().unwrap();
            scheduler::set_affinity(self.thread(), &[core].into()).unwrap();
            (core, all)
        }

        fn affinity(&self) -> BTreeSet<u32> {
            scheduler::affinity(self.thread()).unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// Makes the journal look as if the lane had been killed.
    fn abandon(journal: &mut Journal) {
        journal.record.lane.start_ticks += 1;
        journal.write().unwrap();
    }

    #[test]
    fn a_running_lane_is_left_alone_and_a_dead_one_is_undone_once() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, None, "player", before()).unwrap();
        let undone = undo(&state).unwrap();
        assert_eq!((undone.running, undone.lanes.len()), (1, 0));
        abandon(&mut journal);
        let undone = undo(&state).unwrap();
        assert_eq!((undone.running, undone.lanes.len()), (0, 1));
        let undone = undo(&state).unwrap();
        assert_eq!((undone.running, undone.lanes.len(), undone.failed.len()), (0, 0, 0));
    }

    #[test]
    fn the_program_and_processes_with_the_lanes_id_get_their_affinity_back() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        let program = Sleeper::new("");
        let orphan = Sleeper::new(&journal.record.id);
        let unrelated = Sleeper::new("of another lane");
        let (core, all) = program.pin();
        orphan.pin();
        unrelated.pin();
        let real_time = scheduler::Scheduling::fifo(1);
        let has_right = scheduler::set(program.thread(), &real_time).is_ok();
        journal.record.core = Some(core);
        journal.record.before.affinity = all.clone();
        journal.record.program = Process::of(program.0.id());
        abandon(&mut journal);
        let undone = undo(&state).unwrap();
        assert!(undone.failed.is_empty(), "{undone:?}");
        assert_eq!((program.affinity(), orphan.affinity()), (all.clone(), all));
        assert_eq!(unrelated.affinity(), [core].into(), "it belongs to another lane");
        assert!(!scheduler::get(program.thread()).unwrap().policy.is_real_time());
        let said = undone.lanes[0].did.join("\n");
        assert_eq!(said.contains("priority of 1 threads"), has_right, "{said}");
    }

    #[test]
    fn a_process_with_a_reused_number_is_never_touched() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        let unrelated = Sleeper::new("");
        let (core, all) = unrelated.pin();
        let mut noted = Process::of(unrelated.0.id()).unwrap();
        noted.start_ticks -= 1;
        journal.record.core = Some(core);
        journal.record.before.affinity = all;
        journal.record.program = Some(noted);
        let one = super::super::journal::FormerThread {
            thread: noted,
            before: journal.record.before.clone(),
        };
        journal.record.threads = vec![one];
        abandon(&mut journal);
        let undone = undo(&state).unwrap();
        assert!(undone.lanes[0].did.is_empty(), "{undone:?}");
        assert_eq!(unrelated.affinity(), [core].into());
    }

    #[test]
    fn after_a_restart_there_is_nothing_to_undo() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        // The journal names this process, which must not be taken for the lane.
        journal.record.boot = "another".into();
        journal.write().unwrap();
        let undone = undo(&state).unwrap();
        assert_eq!(undone.lanes.len(), 1);
        assert!(undone.lanes[0].did[0].contains("has restarted"));
        assert!(Journal::all(&state).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_journal_is_named_and_the_others_are_undone() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, None, "player", before()).unwrap();
        abandon(&mut journal);
        let damaged = state.lanes().join("0-damaged.json");
        fs::write(&damaged, "{\"format\": 1").unwrap();
        let undone = undo(&state).unwrap();
        assert_eq!(undone.lanes.len(), 1);
        let [error] = &undone.failed[..] else { panic!("{undone:?}") };
        assert!(error.to_string().contains("0-damaged.json"), "{error}");
        assert_eq!(Journal::all(&state).unwrap(), [damaged]);
    }
}
