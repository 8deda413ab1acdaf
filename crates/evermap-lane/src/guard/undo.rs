//! Undoing a lane by its journal: from any step, in any process, any number of times.
//!
//! The order matters: threads lose their priority first, so that nothing of this lane can keep the rest from running; then groups; then
//! affinity, which a cpuset may have narrowed until then; the journal last. A process is touched only if its number and its beginning are those that
//! were noted, or if it is one of the program's own, by descent or by the lane's id in its environment.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use super::StateDirectory;
use super::journal::{Before, Journal, Record};
use crate::hold::tree::Tree;
use crate::machine::Roots;
use crate::process::{self, Process, Stat};
use crate::sys::lock;
use crate::sys::scheduler::{self, Thread};
use crate::workqueues::Away;
use crate::{Error, Result};

/// The variable that has the lane's id, in the program and all that it starts.
pub const LANE_VARIABLE: &str = "EVERMAP_LANE";

/// How long nothing more must come on the core, after something was there. A fork takes less than a millisecond, and can be interrupted.
const QUIET: Duration = Duration::from_millis(50);
/// How long that is waited for.
const RELEASE_MAX: Duration = Duration::from_millis(500);
/// How long a guardian that is at work is waited for. It takes milliseconds.
const GUARDIAN_MAX: Duration = Duration::from_secs(5);
/// How long another one that undoes in the same directory is waited for; afterwards both do, which does no harm.
const OTHERS_MAX: Duration = Duration::from_secs(3);

/// What was undone of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UndoneLane {
    /// Its id: the lane's process, when that began, and which of its lanes.
    pub id: String,
    /// What it had been started with.
    pub command: String,
    /// Its core.
    pub core: Option<u32>,
    /// What was done, in sentences; nothing if there was nothing left.
    pub did: Vec<String>,
}

/// What [`undo`] came to.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Undone {
    /// Lanes that had been left behind, and are not any more.
    pub lanes: Vec<UndoneLane>,
    /// How many lanes are in use, and were left alone.
    pub running: usize,
    /// What could not be undone: each is tried again the next time.
    pub failed: Vec<Error>,
}

/// Undoes all lanes of the state directory whose processes are gone. Those that run are left alone. When it returns, nothing is left
/// of the others but what `failed` names. Cost: some milliseconds a lane, and the time of a guardian that is at work.
///
/// # Errors
/// Only if the state directory cannot be read.
pub fn undo(state: &StateDirectory) -> Result<Undone> {
    let mut undone = Undone::default();
    for path in Journal::all(state)? {
        match Journal::read(&path) {
            Ok(None) => {}
            Ok(Some(journal)) if is_in_use(&journal) => undone.running += 1,
            Ok(Some(journal)) => {
                wait_for_guardian(&journal.record);
                match undo_one(state, &journal.record.id, &crate::hold::tree::Files) {
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

/// Whether the process that made the lane is there: only that one may end it then.
pub(super) fn is_in_use(journal: &Journal) -> bool {
    journal.is_of_this_boot() && journal.record.lane.is_alive()
}

/// The lane is dead, so its guardian is undoing: two at once would each see what the other does.
fn wait_for_guardian(record: &Record) {
    let Some(Ok(Some(descriptor))) = record.guardian.map(|guardian| guardian.descriptor()) else {
        return;
    };
    let until = Timespec { tv_sec: GUARDIAN_MAX.as_secs() as i64, tv_nsec: 0 };
    // If the time is over, or the wait is broken off, the lane is undone here.
    let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&until));
}

/// Undoes one lane, whoever made it, by what its journal says now. None if there is no journal any more.
///
/// # Errors
/// The first thing that could not be undone; the rest was, and the journal stays.
pub(super) fn undo_one(
    state: &StateDirectory,
    id: &str,
    tree: &dyn Tree,
) -> Result<Option<UndoneLane>> {
    let _alone = alone(state);
    let Some(journal) = Journal::of_id(state, id)? else { return Ok(None) };
    undo_all(&journal, tree).map(Some)
}

/// Undoes a lane of this process, by what this process knows: whatever has become of the file.
pub(super) fn undo_own(
    state: &StateDirectory,
    journal: &Journal,
    tree: &dyn Tree,
) -> Result<UndoneLane> {
    let _alone = alone(state);
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
        lane.did.push("the machine was started anew since: nothing was left".into());
        journal.remove()?;
        return Ok(lane);
    }
    lane.did.extend(threads_back(record));
    let mut result = Ok(());
    if let Some(away) = &record.workqueues {
        match away.undo() {
            Ok(true) => lane.did.push("the kernel's unbound work may be on its core again".into()),
            Ok(false) => {}
            Err(source) => result = Err(of_work(away, source)),
        }
    }
    if let Some(hold) = &record.hold {
        match hold.undo(tree) {
            Ok(did) => lane.did.extend(did),
            Err(why) => result = Err(Error::HoldRefused { core: hold.core(), why }),
        }
    }
    lane.did.extend(affinity_back(record));
    result?;
    journal.remove()?;
    Ok(lane)
}

/// The kernel's unbound work could not be let on its core again.
pub(super) fn of_work(away: &Away, source: std::io::Error) -> Error {
    let operation = "let the kernel's unbound work on all cores again by";
    Error::Io { operation, path: away.path(), source }
}

/// One undoes at a time, so that what each says it did is what it did.
fn alone(state: &StateDirectory) -> Option<File> {
    let path = state.path().join("undo");
    let file = File::options().create(true).truncate(false).write(true).open(path).ok()?;
    let until = Instant::now() + OTHERS_MAX;
    while !lock::try_lock(&file).ok()? {
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(file)
}

/// Gives the lane's threads their former policy back.
fn threads_back(record: &Record) -> Option<String> {
    let mut count = 0;
    for one in &record.threads {
        let is_same = Process::of(one.thread.pid) == Some(one.thread);
        if is_same && let Some(thread) = Thread::of(one.thread.pid) {
            count += usize::from(make_ordinary(thread, &one.before));
            let is_back = scheduler::set_affinity(thread, &one.before.affinity);
            drop(is_back.or_else(|_| scheduler::set_affinity(thread, &everything())));
        }
    }
    if let Some(program) = record.program.filter(Process::is_alive) {
        for thread in process::threads(program.pid).into_iter().filter_map(Thread::of) {
            count += usize::from(make_ordinary(thread, &record.before));
        }
        timers_back(program.pid, &record.before);
    }
    (count > 0).then(|| format!("{count} threads have their former priority again"))
}

/// Whether it was changed. A thread that is not real-time has lost that before, or never had it.
fn make_ordinary(thread: Thread, before: &Before) -> bool {
    let former = &before.scheduling;
    let is_changed = scheduler::get(thread).is_ok_and(|now| {
        now.policy.is_real_time() && (now.policy, now.priority) != (former.policy, former.priority)
    });
    is_changed && scheduler::set_back(thread, former).is_ok()
}

/// Takes off the core what is on that alone and belongs to the lane.
fn affinity_back(record: &Record) -> Option<String> {
    let core = record.core?;
    let own: BTreeSet<u32> = [core].into();
    let mut count = usize::from(!Roots::default().is_online(core) && release_from_offline(record));
    let ends = Instant::now() + RELEASE_MAX;
    let mut quiet: Option<Instant> = None;
    // Who was released starts nothing on the core any more; but a process that is being made has the affinity that its parent had, and is seen
    // only when it is there, and one that is becoming another program has no environment for a moment.
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
    (count > 0).then(|| format!("{count} processes may run on other cores again"))
}

/// Gives the program's threads their former cores, wherever they are now: the kernel has let those run elsewhere that ran since their core
/// went offline, and not for good. Whether there were any.
fn release_from_offline(record: &Record) -> bool {
    let program = record.program.filter(Process::is_alive);
    let threads = program.map(|program| process::threads(program.pid)).unwrap_or_default();
    let threads = threads.into_iter().filter_map(Thread::of);
    let back = threads.filter(|thread| give_back(*thread, &record.before));
    back.count() > 0
}

/// What descends from the program, or bears the lane's id. Gives how many were on the core alone.
fn release_family(record: &Record, program: Option<Process>, own: &BTreeSet<u32>) -> usize {
    let family: HashSet<u32> =
        program.map(|program| process::descendants(&[program.pid])).unwrap_or_default();
    let marker = format!("{LANE_VARIABLE}={}", record.id).into_bytes();
    let is_on_core = |pid: &u32| {
        Thread::of(*pid)
            .is_some_and(|id| scheduler::affinity(id).is_ok_and(|now| now.is_subset(own)))
    };
    let is_ours = |pid: &u32| family.contains(pid) || process::has_in_environment(*pid, &marker);
    let is_of_kernel = |pid: &u32| Stat::of(*pid).is_none_or(|stat| stat.is_of_kernel());
    let found = process::all().into_iter().filter(|pid| {
        // Most processes are elsewhere: asked that first, they cost one call.
        (is_on_core(pid) || family.contains(pid)) && !is_of_kernel(pid) && is_ours(pid)
    });
    let released = found.filter(|pid| release(*pid, own, &record.before));
    released.inspect(|pid| timers_back(*pid, &record.before)).count()
}

/// Lets the threads of a process that are on the lane's core alone run where they could before: also those that sleep on it while it is offline,
/// which the kernel says are on no core. Whether there were any. Threads that
/// it starts meanwhile are looked for until there is no new one.
pub(crate) fn release(pid: u32, own: &BTreeSet<u32>, before: &Before) -> bool {
    let mut is_any = false;
    for _ in 0..8 {
        let mut is_new = false;
        for thread in process::threads(pid).into_iter().filter_map(Thread::of) {
            let is_pinned = scheduler::affinity(thread).is_ok_and(|now| now.is_subset(own));
            if is_pinned && before.affinity != *own {
                is_new |= give_back(thread, before);
            }
        }
        is_any |= is_new;
        if !is_new {
            break;
        }
    }
    is_any
}

/// Lets the timers of a process, of its first thread, be as late as before. Needs a right for others' processes; without it they stay exact, which
/// costs nothing but some power.
pub(crate) fn timers_back(pid: u32, before: &Before) {
    drop(fs::write(format!("/proc/{pid}/timerslack_ns"), before.timer_slack_ns.to_string()));
}

/// Lets a thread run where it could before, or everywhere if none of that is there any more.
fn give_back(thread: Thread, before: &Before) -> bool {
    let is_back = scheduler::set_affinity(thread, &before.affinity);
    is_back.or_else(|_| scheduler::set_affinity(thread, &everything())).is_ok()
}

/// All cores: the kernel leaves out those that a thread cannot have.
fn everything() -> BTreeSet<u32> {
    (0..rustix::thread::CpuSet::MAX_CPU as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::{before, state};
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// A program that is killed when the test is over.
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

    /// As if the lane had been killed.
    fn abandon(journal: &mut Journal) {
        journal.record.lane.start_ticks += 1;
        journal.write().unwrap();
    }

    #[test]
    fn a_lane_in_use_is_left_alone_and_one_left_behind_is_undone_once() {
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
    fn a_program_and_what_bears_the_lanes_id_run_everywhere_again() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        let program = Sleeper::new("");
        let orphan = Sleeper::new(&journal.record.id);
        let stranger = Sleeper::new("of another lane");
        let (core, all) = program.pin();
        orphan.pin();
        stranger.pin();
        let real_time = scheduler::Scheduling::fifo(1);
        let has_right = scheduler::set(program.thread(), &real_time).is_ok();
        journal.record.core = Some(core);
        journal.record.before.affinity = all.clone();
        journal.record.program = Process::of(program.0.id());
        abandon(&mut journal);
        let undone = undo(&state).unwrap();
        assert!(undone.failed.is_empty(), "{undone:?}");
        assert_eq!((program.affinity(), orphan.affinity()), (all.clone(), all));
        assert_eq!(stranger.affinity(), [core].into(), "not this lane's");
        assert!(!scheduler::get(program.thread()).unwrap().policy.is_real_time());
        let said = undone.lanes[0].did.join("\n");
        assert_eq!(said.contains("1 threads"), has_right, "{said}");
    }

    #[test]
    fn a_number_that_was_given_again_is_never_touched() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        let stranger = Sleeper::new("");
        let (core, all) = stranger.pin();
        let mut noted = Process::of(stranger.0.id()).unwrap();
        noted.start_ticks -= 1;
        journal.record.core = Some(core);
        journal.record.before.affinity = all;
        journal.record.program = Some(noted);
        let one = super::super::journal::ThreadBefore {
            thread: noted,
            before: journal.record.before.clone(),
        };
        journal.record.threads = vec![one];
        abandon(&mut journal);
        let undone = undo(&state).unwrap();
        assert!(undone.lanes[0].did.is_empty(), "{undone:?}");
        assert_eq!(stranger.affinity(), [core].into());
    }

    #[test]
    fn after_a_boot_there_is_nothing_to_undo() {
        let (_place, state) = state();
        let mut journal = Journal::begin(&state, Some(0), "player", before()).unwrap();
        // The numbers are those of this process, which must not be taken for the lane.
        journal.record.boot = "another".into();
        journal.write().unwrap();
        let undone = undo(&state).unwrap();
        assert_eq!(undone.lanes.len(), 1);
        assert!(undone.lanes[0].did[0].contains("started anew"));
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
