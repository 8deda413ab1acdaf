//! If the core of a lane goes offline, the lane moves to another core or ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Ran;
use crate::place::Place;
use crate::system::wait_for;
use crate::system::{
    TIMEOUT, affinity, child_command, cores, has_fifo, is_child, json, kill, policy_of, text,
};

/// Runs [`child_core_offline`], which prints how the lane ended.
fn lane_whose_core_goes_offline(place: &Place, policy: &str, script: &str) -> Ran {
    fs::write(place.path("policy.toml"), policy).unwrap();
    let command = child_command("core_offline::child_core_offline");
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).env("EVERMAP_TEST_CHILD_PLACE", place.directory());
    Ran::of(child.env("EVERMAP_TEST_CHILD_SCRIPT", script).output().unwrap())
}

#[test]
fn a_lane_whose_core_goes_offline_moves_to_another_core_or_ends() {
    if cores().len() < 2 {
        eprintln!("skipped: one core");
        return;
    }
    let named = format!("[app]\ncore = {}\n", cores()[0]);
    for (policy, expected) in [("[app]\nfps = 24\n", "moved to core"), (&named, "the lane ended")] {
        let place = Place::new();
        let ran = lane_whose_core_goes_offline(&place, policy, "until false; do sleep 0.05; done");
        assert!(ran.out.contains(expected), "{ran:?}");
        assert!(ran.out.contains("went offline") && place.is_clean(), "{ran:?}");
    }
}

#[test]
fn a_demoted_program_stays_demoted_on_the_next_core() {
    if cores().len() < 2 || !has_fifo() {
        eprintln!("skipped: one core, or no permission for SCHED_FIFO");
        return;
    }
    let place = Place::new();
    let ran = lane_whose_core_goes_offline(&place, "[app]\nfps = 24\n", "while :; do :; done");
    assert!(ran.out.contains("moved to core") && ran.out.contains("demoted"), "{ran:?}");
    assert!(ran.out.contains("its policy is 0"), "{ran:?}");
}

/// Runs a lane with simulated files in `/sys`, which then say that its core went offline. The
/// program, a shell, is killed after it has left that core. If it never sleeps, the test first
/// waits for its demotion.
#[test]
#[ignore = "runs as a child process of another test"]
fn child_core_offline() {
    if !is_child() {
        return;
    }
    let place = PathBuf::from(std::env::var("EVERMAP_TEST_CHILD_PLACE").unwrap());
    let script = std::env::var("EVERMAP_TEST_CHILD_SCRIPT").unwrap();
    let never_sleeps = !script.contains("sleep");
    let cpu = place.join("sys/devices/system/cpu");
    fs::create_dir_all(&cpu).unwrap();
    let all = affinity(std::process::id());
    fs::write(cpu.join("online"), &all).unwrap();
    fs::write(cpu.join("possible"), &all).unwrap();
    let lane = {
        let place = place.clone();
        std::thread::spawn(move || run_at(&place, script))
    };
    let journal = || {
        let entries = fs::read_dir(place.join("state/lanes")).into_iter().flatten().flatten();
        entries.filter_map(|entry| json(&entry.path())).next().unwrap_or_default()
    };
    let program = || journal()["program"]["pid"].as_u64().unwrap_or(0) as u32;
    wait_for("the program", TIMEOUT, || text(program(), "comm").trim() == "sh");
    let (pid, core) = (program(), journal()["core"].as_u64().unwrap() as u32);
    wait_for("the demotion", TIMEOUT, || !never_sleeps || policy_of(pid) == Some(0));
    let others: Vec<String> =
        cores().into_iter().filter(|other| *other != core).map(|other| other.to_string()).collect();
    fs::write(cpu.join("online"), others.join(",")).unwrap();
    wait_for("the lane to leave the core", TIMEOUT, || affinity(pid) != core.to_string());
    if never_sleeps {
        // The lane applies its settings on the next core within two polls.
        wait_for("the next core", TIMEOUT, || others.contains(&affinity(pid)));
        std::thread::sleep(std::time::Duration::from_millis(500));
        println!("its policy is {}", policy_of(pid).unwrap());
    }
    kill(pid);
    println!("{}", lane.join().unwrap());
}

fn run_at(place: &Path, script: String) -> evermap_lane::run::RunReport {
    use evermap_lane::guard::StateDirectory;
    use evermap_lane::machine::Roots;
    use evermap_lane::run::{Options, Program, run};
    let options = Options {
        state: Some(StateDirectory::at(place.join("state")).unwrap()),
        helper: Some(env!("CARGO_BIN_EXE_evermap").into()),
        roots: Roots { proc: "/proc".into(), sys: place.join("sys") },
        ..Options::default()
    };
    let policy = evermap_lane::Policy::read(&place.join("policy.toml")).unwrap();
    let arguments = vec!["-c".into(), script.into()];
    let program = Program { path: "/bin/sh".into(), name: "sh".into(), arguments };
    run(&policy, &program, &options).unwrap()
}

/// Really switches a core off, and always switches it on again.
#[test]
#[ignore = "switches a core of the machine off"]
fn a_lane_leaves_a_core_that_is_switched_off() {
    struct On(PathBuf);
    impl Drop for On {
        fn drop(&mut self) {
            drop(fs::write(&self.0, "1"));
        }
    }
    let Some(place) = Place::alone() else { return };
    let core = *cores().last().unwrap();
    let switch = PathBuf::from(format!("/sys/devices/system/cpu/cpu{core}/online"));
    let lane = place.start(&format!("[app]\ncore = {core}\n"), &["sleep", "5"]);
    let on = On(switch.clone());
    if let Err(error) = fs::write(&switch, "0") {
        eprintln!("skipped: core {core} cannot be switched off: {error}");
        return;
    }
    wait_for("the lane to notice", TIMEOUT, || place.is_clean());
    assert_eq!(policy_of(lane.program), Some(0));
    drop(on);
    assert!(lane.wait().err.contains("went offline"));
}
