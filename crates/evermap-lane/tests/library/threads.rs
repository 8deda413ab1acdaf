//! What a lane does to a thread, and that it is all set back.

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
fn a_thread_is_what_it_was_after_leaving_dropping_and_a_panic() {
    let state = state();
    apart(|| {
        let before = own_state();
        let lane = enter(LANE, &state);
        let core = lane.core().unwrap();
        assert_eq!(of_thread("Cpus_allowed_list:"), core.to_string());
        // Of real-time threads the kernel says 0.
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
fn a_deadline_that_names_a_core_is_a_priority_and_that_is_said() {
    let state = state();
    apart(|| {
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
fn a_deadline_without_a_core_is_one_or_a_priority_that_says_why() {
    let state = state();
    apart(|| {
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
fn what_is_started_in_a_lane_is_ordinary_and_outside_of_it_has_all_cores() {
    let state = state();
    apart(|| {
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
        assert_eq!(scheduling(within.lines().next().unwrap()), (0, 0), "not inherited");
        let outside = said(lane.outside(tell));
        assert_eq!(scheduling(outside.lines().next().unwrap()), (0, 0));
        assert_eq!(allowed(&outside), cores);
        assert_eq!(of_thread("Cpus_allowed_list:"), lane.core().unwrap().to_string(), "back");
        let thread = std::thread::spawn(own_scheduling).join().unwrap();
        assert_eq!(thread, (0, 0), "threads neither");
    });
}

#[test]
fn a_thread_that_was_taken_off_its_core_is_told_once() {
    let state = state();
    apart(|| {
        let mut lane = enter(LANE, &state);
        let core = lane.core().unwrap() as usize;
        lane.frame().unwrap().unwrap().end();
        assert!(!missing(&lane).contains("until the end"));
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
        let what = format!("core {core} until the end");
        let told: Vec<_> = report.not_applied.iter().filter(|note| note.what == what).collect();
        assert!(told.len() == 1 && told[0].why.contains("from frame 2 on"), "{told:?}");
    });
}

#[test]
fn a_second_lane_on_a_core_is_refused_and_one_thread_has_one_lane() {
    let state = state();
    apart(|| {
        let before = own_state();
        let lane = enter(LANE, &state);
        let core = lane.core().unwrap();
        let error = Lane::enter_in(&policy(LANE), &state.directory).unwrap_err();
        assert!(matches!(error, Error::AlreadyIn), "{error}");
        let taken = format!("[app]\nperiod_us = 2000\ncore = {core}\n[io]\nlock_memory = false");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                // The lane's own core is all that its threads begin with.
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
fn with_one_core_there_is_a_lane_and_it_is_said() {
    let state = state();
    apart(|| {
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
        assert!(report.applied.iter().any(|applied| applied.contains("the only one")), "{report}");
        assert_eq!(report.frames, 5);
    });
}

#[test]
fn a_program_that_runs_and_runs_loses_its_priority_and_goes_on() {
    let state = state();
    apart(|| {
        let mut lane = enter(
            "[app]\nperiod_us = 1000\n[guard]\nmax_overrun = 30\n[io]\nlock_memory = false",
            &state,
        );
        if missing(&lane).contains("SCHED_FIFO") {
            return skip("no right to FIFO");
        }
        // Who sleeps in between may work for as long in all.
        for _ in 0..20 {
            let frame = lane.frame().unwrap().unwrap();
            work(Duration::from_millis(4));
            std::thread::sleep(Duration::from_millis(1));
            frame.end();
        }
        assert_eq!(own_scheduling(), (1, 50), "it slept");
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
        assert_eq!(demotion.cause, Cause::Ran);
        assert!(
            demotion.ran_ms >= demotion.allowed_ms && demotion.allowed_ms == 30.0,
            "{demotion:?}"
        );
        assert_eq!(report.frames, 24);
        assert!(report.drops >= 399, "{report}");
    });
}

#[test]
fn what_is_done_before_the_first_frame_takes_no_priority_away() {
    let state = state();
    apart(|| {
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
fn a_lane_s_time_is_over_when_it_is() {
    let state = state();
    apart(|| {
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
        assert!(lane.frame().unwrap().is_none(), "and stays over");
        assert_eq!(lane.leave().frames, frames);
    });
}

#[test]
fn a_program_that_asks_for_no_frame_loses_its_priority_when_its_time_is_over() {
    let state = state();
    apart(|| {
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
            assert!(Instant::now() < until, "it still has its priority");
            std::thread::sleep(Duration::from_millis(20));
        }
        let demotions = lane.leave().demotions;
        assert!(demotions.len() == 1 && demotions[0].cause == Cause::TimeOver, "{demotions:?}");
    });
}

#[test]
fn a_core_that_is_named_without_a_share_is_not_had_and_that_is_said() {
    let state = state();
    apart(|| {
        let before = of_thread("Cpus_allowed_list:");
        let text = "[app]\nfps = 60\ncore = 0\nshare = \"off\"\nscheduler = \"deadline\"\n[io]\nlock_memory = false";
        let lane = enter(text, &state);
        let said = missing(&lane);
        assert!(said.contains("core 0: `share = \"off\"`"), "{said}");
        assert!(!said.contains("has a core of its own"), "{said}");
        assert_eq!((lane.core(), of_thread("Cpus_allowed_list:")), (None, before));
    });
}

#[test]
fn policies_without_a_period_have_no_frames() {
    let state = state();
    let error = Lane::enter_in(&policy(""), &state.directory).unwrap_err();
    assert!(matches!(error, Error::NoPeriod), "{error}");
    let mut impossible = policy("[app]\nfps = 24");
    impossible.app.priority = 99;
    let error = Lane::enter_in(&impossible, &state.directory).unwrap_err();
    assert!(matches!(error, Error::Unusable(_)), "{error}");
}

#[test]
fn a_process_that_was_forked_has_no_frames_and_undoes_nothing() {
    act("threads::act_that_forks").succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_that_forks() {
    if !is_started() {
        return;
    }
    let state = state();
    let mut lane = enter("[app]\nperiod_us = 2000", &state);
    let within = own_state();
    lane.frame().unwrap().unwrap().end();
    // SAFETY: the child does what a lane does, and ends; the harness's threads hold nothing that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = matches!(lane.frame(), Err(Error::Forked { .. }));
        let is_ordinary = own_scheduling() == (0, 0);
        // Returns, and leaves the parent's lane alone.
        drop(lane);
        let is_unlocked = locked_kib() == 0;
        let own = Lane::enter_in(&policy(WITHOUT_CORE), &state.directory);
        let has_own = own.is_ok_and(|own| missing(&own).contains("memory") || locked_kib() > 4_096);
        let is_right = is_refused && is_ordinary && is_unlocked && has_own;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for that child alone.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(own_state(), within);
    let core = lane.core().unwrap();
    assert_eq!(evermap_lane::guard::claimed(&state.directory), [core]);
    lane.frame().unwrap().unwrap().end();
    assert_eq!(lane.leave().frames, 2);
}

#[test]
fn memory_is_locked_in_a_lane_and_not_after_the_last() {
    act("threads::act_that_locks_memory").succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_that_locks_memory() {
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
    assert!(locked_kib() > 1_000, "the first still wants it");
    let report = first.leave();
    assert_eq!(locked_kib(), 0);
    assert!(!report.not_applied.iter().any(|note| note.what.contains("memory")), "{report}");
}

#[test]
fn a_process_that_had_locked_memory_stays_locked_and_hears_so() {
    act("threads::act_that_had_locked_memory").succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_that_had_locked_memory() {
    if !is_started() {
        return;
    }
    let state = state();
    let own = vec![1_u8; 1 << 20];
    // SAFETY: memory of this function's own; locking changes no contents.
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
fn a_process_that_has_mapped_more_than_there_is_locks_what_it_touches_and_hears_so() {
    act("threads::act_that_has_mapped_much").succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_that_has_mapped_much() {
    if !is_started() {
        return;
    }
    let state = state();
    // As much as no machine has, and nothing of it.
    let bytes = 1 << 44;
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE;
    let none = rustix::mm::ProtFlags::empty();
    // SAFETY: a new mapping that nobody reads or writes.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, none, flags) }.unwrap();
    let lane = enter(WITHOUT_CORE, &state);
    let said = missing(&lane);
    if said.contains("all memory, locked") {
        return skip("no right to lock all memory");
    }
    assert!(said.contains("there is not memory for that"), "{said}");
    assert!(locked_kib() > 1_000);
    lane.leave();
    assert_eq!(locked_kib(), 0);
}
