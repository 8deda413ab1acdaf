//! Tests of the changes that a lane makes to a thread, and of restoring them.

use std::process::Command;
use std::time::{Duration, Instant};

use evermap_lane::{Cause, Error, Lane};

use crate::common::*;

const LANE: &str = "[app]\nperiod_us = 2000\n[io]\nlock_memory = false\n";
const WITHOUT_CORE: &str = "[app]\nperiod_us = 2000\nshare = \"off\"\nscheduler = \"other\"\n";

fn locked_kib() -> u64 {
    of_thread("VmLck:").strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn a_thread_is_restored_by_leaving_dropping_and_a_panic() {
    let state = state();
    in_new_thread(|| {
        let before = own_state();
        let lane = enter(LANE, &state);
        let core = lane.core().unwrap();
        assert_eq!(of_thread("Cpus_allowed_list:"), core.to_string());
        // The kernel reports 0 for real-time threads.
        assert!(rustix::thread::current_timer_slack().unwrap() <= 1);
        match missing(&lane).contains("SCHED_FIFO") {
            false => assert_eq!(own_scheduling(), (1, 50)),
            true => skip("no right to FIFO"),
        }
        lane.leave();
        assert_eq!(own_state(), before);
        drop(enter(LANE, &state));
        assert_eq!(own_state(), before);
        let panicked = std::panic::catch_unwind(|| {
            let mut lane = enter(LANE, &state);
            let _frame = lane.frame().unwrap();
            std::panic::resume_unwind(Box::new("within a frame"));
        });
        assert!(panicked.is_err());
        assert_eq!(own_state(), before);
    });
}

#[test]
fn a_deadline_with_a_core_falls_back_to_fifo_with_a_note() {
    let state = state();
    in_new_thread(|| {
        let own: u32 =
            of_thread("Cpus_allowed_list:").split(['-', ',']).next().unwrap().parse().unwrap();
        let text = format!(
            "[app]\nfps = 60\nscheduler = \"deadline\"\ncore = {own}\n[io]\nlock_memory = false"
        );
        let lane = enter(&text, &state);
        assert_eq!(lane.core(), Some(own));
        let said = missing(&lane);
        assert!(said.contains("SCHED_DEADLINE") && said.contains("SCHED_FIFO instead"), "{said}");
    });
}

#[test]
fn a_deadline_without_a_core_is_used_or_refused_with_a_reason() {
    let state = state();
    in_new_thread(|| {
        let before = own_state();
        let lane =
            enter("[app]\nfps = 60\nscheduler = \"deadline\"\n[io]\nlock_memory = false", &state);
        let said = missing(&lane);
        match lane.core() {
            None => assert_eq!(own_scheduling().0, 6),
            Some(_) => assert!(said.contains("SCHED_DEADLINE: E"), "{said}"),
        }
        lane.leave();
        assert_eq!(own_state(), before);
    });
}

#[test]
fn children_of_a_lane_are_ordinary_and_get_all_cores_outside() {
    let state = state();
    in_new_thread(|| {
        let cores = of_thread("Cpus_allowed_list:");
        let lane = &mut enter(LANE, &state);
        let tell =
            || Command::new("/bin/cat").args(["/proc/self/stat", "/proc/self/status"]).output();
        let said = |output: std::io::Result<std::process::Output>| {
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let allowed = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_string()
        };
        let within = said(tell());
        assert_eq!(
            scheduling(within.lines().next().unwrap()),
            (0, 0),
            "the policy is not inherited"
        );
        let outside = said(lane.outside(tell));
        assert_eq!(scheduling(outside.lines().next().unwrap()), (0, 0));
        assert_eq!(allowed(&outside), cores);
        assert_eq!(
            of_thread("Cpus_allowed_list:"),
            lane.core().unwrap().to_string(),
            "back on the core"
        );
        let thread = std::thread::spawn(own_scheduling).join().unwrap();
        assert_eq!(thread, (0, 0), "threads do not inherit it either");
    });
}

#[test]
fn a_move_off_the_core_is_noted_once() {
    let state = state();
    in_new_thread(|| {
        let mut lane = enter(LANE, &state);
        let core = lane.core().unwrap() as usize;
        lane.frame().unwrap().unwrap().end();
        assert!(!missing(&lane).contains("for the whole lane"));
        let mut others = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|one| *one != core)
            .for_each(|one| others.set(one));
        if rustix::thread::sched_setaffinity(None, &others).is_err() {
            return skip("this machine has one core");
        }
        for _ in 0..3 {
            lane.frame().unwrap().unwrap().end();
        }
        let report = lane.leave();
        let what = format!("core {core} for the whole lane");
        let told: Vec<_> = report.not_applied.iter().filter(|note| note.what == what).collect();
        assert!(told.len() == 1 && told[0].why.contains("since frame 2"), "{told:?}");
    });
}

#[test]
fn a_second_lane_of_a_core_or_a_thread_is_refused() {
    let state = state();
    in_new_thread(|| {
        let before = own_state();
        let lane = enter(LANE, &state);
        let core = lane.core().unwrap();
        let error = Lane::enter_in(&policy(LANE), &state.directory).unwrap_err();
        assert!(matches!(error, Error::AlreadyInLane), "{error}");
        let taken = format!("[app]\nperiod_us = 2000\ncore = {core}\n[io]\nlock_memory = false");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                // The thread inherits the affinity of the lane's core only.
                Lane::enter_in(&policy(&taken), &state.directory).map(|_| ()).unwrap_err()
            });
            let error = second.join().unwrap();
            assert!(matches!(error, Error::CoreTaken { .. }), "{error}");
        });
        lane.leave();
        assert_eq!(own_state(), before);
        enter(&taken, &state).leave();
    });
}

#[test]
fn a_lane_on_the_only_core_has_a_warning() {
    let state = state();
    in_new_thread(|| {
        let mut one = rustix::thread::CpuSet::new();
        let first =
            of_thread("Cpus_allowed_list:").split(['-', ',']).next().unwrap().parse().unwrap();
        one.set(first);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        let mut lane = enter(LANE, &state);
        assert_eq!(lane.core(), Some(first as u32));
        for _ in 0..5 {
            lane.frame().unwrap().unwrap().end();
        }
        let report = lane.leave();
        assert!(
            report.applied.iter().any(|applied| applied.to_string().contains("the only core")),
            "{report}"
        );
        assert_eq!(report.frames, 5);
    });
}

#[test]
fn a_program_that_never_sleeps_is_demoted_and_continues() {
    let state = state();
    in_new_thread(|| {
        let mut lane = enter(
            "[app]\nperiod_us = 1000\n[guard]\nmax_overrun = 30\n[io]\nlock_memory = false",
            &state,
        );
        if missing(&lane).contains("SCHED_FIFO") {
            return skip("no right to FIFO");
        }
        // A program that sleeps in between may use as much time in total.
        for _ in 0..20 {
            let frame = lane.frame().unwrap().unwrap();
            work(Duration::from_millis(4));
            std::thread::sleep(Duration::from_millis(1));
            frame.end();
        }
        assert_eq!(own_scheduling(), (1, 50), "the program slept");
        let frame = lane.frame().unwrap().unwrap();
        work(Duration::from_millis(400));
        frame.end();
        assert_eq!(own_scheduling(), (0, 0));
        for _ in 0..3 {
            lane.frame().unwrap().unwrap().end();
        }
        let report = lane.leave();
        assert_eq!(report.demotions.len(), 1);
        let demotion = report.demotions[0];
        assert_eq!(demotion.cause, Cause::Overrun);
        assert!(
            demotion.ran_ms >= demotion.allowed_ms && demotion.allowed_ms == 30.0,
            "{demotion:?}"
        );
        assert_eq!(report.frames, 24);
        assert!(report.drops >= 399, "{report}");
    });
}

#[test]
fn work_before_the_first_frame_does_not_demote() {
    let state = state();
    in_new_thread(|| {
        let mut lane = enter(
            "[app]\nperiod_us = 1000\n[guard]\nmax_overrun = 30\n[io]\nlock_memory = false",
            &state,
        );
        let before = own_scheduling();
        work(Duration::from_millis(150));
        assert_eq!(own_scheduling(), before);
        lane.frame().unwrap().unwrap().end();
        assert_eq!(lane.leave().demotions, []);
    });
}

#[test]
fn a_lane_ends_after_its_time() {
    let state = state();
    in_new_thread(|| {
        let mut lane = enter(
            "[app]\nperiod_us = 20000\n[guard]\nmax_time_s = 1\n[io]\nlock_memory = false",
            &state,
        );
        let mut frames = 0;
        while let Some(frame) = lane.frame().unwrap() {
            frame.end();
            frames += 1;
        }
        assert!((1..=50).contains(&frames), "{frames}");
        assert!(lane.frame().unwrap().is_none(), "the lane stays ended");
        assert_eq!(lane.leave().frames, frames);
    });
}

#[test]
fn a_program_without_frames_is_demoted_after_its_time() {
    let state = state();
    in_new_thread(|| {
        let mut lane = enter(
            "[app]\nperiod_us = 10000\n[guard]\nmax_time_s = 1\n[io]\nlock_memory = false",
            &state,
        );
        if missing(&lane).contains("SCHED_FIFO") {
            return skip("no right to FIFO");
        }
        lane.frame().unwrap().unwrap().end();
        let until = Instant::now() + Duration::from_secs(30);
        while own_scheduling() != (0, 0) {
            assert!(Instant::now() < until, "the thread still has its priority");
            std::thread::sleep(Duration::from_millis(20));
        }
        let demotions = lane.leave().demotions;
        assert!(demotions.len() == 1 && demotions[0].cause == Cause::TimeOver, "{demotions:?}");
    });
}

#[test]
fn a_core_without_a_share_is_not_used_and_noted() {
    let state = state();
    in_new_thread(|| {
        let before = of_thread("Cpus_allowed_list:");
        let text = "[app]\nfps = 60\ncore = 0\nshare = \"off\"\nscheduler = \"deadline\"\n[io]\nlock_memory = false";
        let lane = enter(text, &state);
        let said = missing(&lane);
        assert!(said.contains("core 0: `share = \"off\"`"), "{said}");
        assert!(!said.contains("this lane has a core"), "{said}");
        assert_eq!((lane.core(), of_thread("Cpus_allowed_list:")), (None, before));
    });
}

#[test]
fn a_policy_without_a_period_is_refused() {
    let state = state();
    let error = Lane::enter_in(&policy(""), &state.directory).unwrap_err();
    assert!(matches!(error, Error::NoPeriod), "{error}");
    let mut impossible = policy("[app]\nfps = 24");
    impossible.app.priority = 99;
    let error = Lane::enter_in(&impossible, &state.directory).unwrap_err();
    assert!(matches!(error, Error::InvalidPolicy(_)), "{error}");
}

#[test]
fn a_forked_process_has_no_frames_and_undoes_nothing() {
    child("threads::child_that_forks").succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_that_forks() {
    if !is_started() {
        return;
    }
    let state = state();
    let mut lane = enter("[app]\nperiod_us = 2000", &state);
    let within = own_state();
    lane.frame().unwrap().unwrap().end();
    // SAFETY: the child only uses the lane and exits; no other thread holds a lock that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = matches!(lane.frame(), Err(Error::Forked { .. }));
        let is_ordinary = own_scheduling() == (0, 0);
        // Must return, and leave the parent's lane unchanged.
        drop(lane);
        let is_unlocked = locked_kib() == 0;
        let own = Lane::enter_in(&policy(WITHOUT_CORE), &state.directory);
        let has_own = own.is_ok_and(|own| missing(&own).contains("memory") || locked_kib() > 4_096);
        let is_right = is_refused && is_ordinary && is_unlocked && has_own;
        // SAFETY: `_exit` ends the child without running destructors.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `child` is a child of this process, and `status` is a local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(own_state(), within);
    let core = lane.core().unwrap();
    assert_eq!(evermap_lane::guard::claimed(&state.directory), [core]);
    lane.frame().unwrap().unwrap().end();
    assert_eq!(lane.leave().frames, 2);
}

#[test]
fn memory_stays_locked_until_the_last_lane_ends() {
    child("threads::child_that_locks_memory").succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_that_locks_memory() {
    if !is_started() {
        return;
    }
    let (first_state, second_state) = (state(), state());
    assert_eq!(locked_kib(), 0);
    let first = enter("[app]\nperiod_us = 2000", &first_state);
    if missing(&first).contains("all memory") {
        return skip("no right to lock all memory");
    }
    assert!(locked_kib() > 1_000);
    std::thread::scope(|scope| {
        let second = || enter("[app]\nperiod_us = 2000", &second_state).leave();
        scope.spawn(second).join().unwrap();
    });
    assert!(locked_kib() > 1_000, "the first lane still needs it");
    let report = first.leave();
    assert_eq!(locked_kib(), 0);
    assert!(!report.not_applied.iter().any(|note| note.what.contains("memory")), "{report}");
}

#[test]
fn memory_locked_before_the_lane_stays_locked_with_a_note() {
    child("threads::child_that_had_locked_memory").succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_that_had_locked_memory() {
    if !is_started() {
        return;
    }
    let state = state();
    let own = vec![1_u8; 1 << 20];
    // SAFETY: the memory belongs to this function; locking changes no contents.
    unsafe { rustix::mm::mlock(own.as_ptr().cast_mut().cast(), own.len()) }.unwrap();
    let lane = enter(WITHOUT_CORE, &state);
    let said = missing(&lane);
    if said.contains("all memory") {
        return skip("no right to lock all memory");
    }
    assert!(said.contains("had locked memory before"), "{said}");
    lane.leave();
    assert!(locked_kib() >= 1_024, "{} KiB", locked_kib());
}

#[test]
fn a_process_with_huge_mappings_locks_touched_pages_with_a_note() {
    child("threads::child_that_has_mapped_much").succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_that_has_mapped_much() {
    if !is_started() {
        return;
    }
    let state = state();
    // More than any machine has, never touched.
    let bytes = 1 << 44;
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE;
    let none = rustix::mm::ProtFlags::empty();
    // SAFETY: a new mapping that no code reads or writes.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, none, flags) }.unwrap();
    let lane = enter(WITHOUT_CORE, &state);
    let said = missing(&lane);
    if said.contains("all memory locked") {
        return skip("no right to lock all memory");
    }
    assert!(said.contains("too much to prefault"), "{said}");
    assert!(locked_kib() > 1_000);
    lane.leave();
    assert_eq!(locked_kib(), 0);
}
