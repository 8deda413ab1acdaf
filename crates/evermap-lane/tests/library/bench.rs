//! Tests of the ladder, with processes.

use std::time::Duration;

use evermap_lane::bench::{Ladder, Launcher, Load, Preset, Rung, serve};

use crate::common::*;

const PRESET: Preset = Preset { fps: 100, frame_bytes: 8_192, decode_us: 200 };

fn ladder(folder: &std::path::Path, state: &State) -> Ladder {
    let arguments = ["bench::child_of_a_child", "--exact", "--ignored", "--nocapture", "-q"];
    Ladder {
        launcher: Launcher {
            // Test harness and player both write to stdout; the shell separates them.
            program: "/bin/sh".into(),
            arguments: vec![
                "-c".into(),
                format!(
                    "EVERMAP_ACT=child exec {} {} 3>&1 >/dev/null",
                    std::env::current_exe().unwrap().display(),
                    arguments.join(" ")
                ),
            ],
        },
        rungs: vec![Rung::OrdinaryBlocking, Rung::LendNowait, Rung::LendMap],
        presets: vec![PRESET],
        inject_ns_per_4k: vec![100_000],
        turn: Duration::from_millis(400),
        rounds: 2,
        load: Load { hogs: 1, writers: 1, command: None },
        folder: folder.into(),
        state: Some(state.directory.path().into()),
        seed: 3,
    }
}

#[test]
#[ignore = "started by another test"]
fn child_of_a_child() {
    if !is_started() {
        return;
    }
    // The harness has written to its stdout, which is not used any more.
    // SAFETY: both are descriptor numbers; the shell opened number 3.
    assert_eq!(unsafe { libc::dup2(3, 1) }, 1);
    if let Err(error) = serve() {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn children() -> String {
    children_of(&std::process::id().to_string())
}

/// Children of all threads of a process.
fn children_of(pid: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    tasks.map(|task| of_task(task).unwrap_or_default()).collect()
}

#[test]
fn every_rung_is_measured_under_load_and_nothing_is_left() {
    child("bench::child_of_a_ladder").succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_of_a_ladder() {
    if !is_started() {
        return;
    }
    let (state, folder) = (state(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let mut turns = 0;
    let results = ladder(folder.path(), &state).run(|_, _, _, _| turns += 1).unwrap();
    assert_eq!(turns, 2 * 5, "alone, three rungs, and one with additional latency");
    let names: Vec<_> = results.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["ordinary-blocking", "lend-nowait", "lend-map", "lend-map+100us"]);
    for cell in &results.cells {
        assert_eq!((cell.turns, cell.damaged), (2, 0), "{}", cell.name);
        assert_eq!(cell.periods, 80, "{}", cell.name);
        assert!(
            cell.units_alone_per_s.computed > 0.0 && cell.units_per_s.computed > 0.0,
            "{}",
            cell.name
        );
        assert!(cell.own_percent > 0.0 && cell.cost_percent.is_some(), "{}", cell.name);
    }
    assert!(results.cells[3].io_ms.min >= 0.2, "two pages of 0.1 ms each");
    {
        let svgs = results.svgs().unwrap();
        let names: Vec<_> = svgs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["completion-100.svg", "missed.svg"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no files are left");
    assert_eq!(children(), "", "no processes are left");
}

#[test]
fn a_killed_ladder_leaves_no_processes_and_no_files() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mark = folder.path().join("mark");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["bench::child_that_is_killed", "--exact", "--ignored", "--nocapture"])
        .envs([("EVERMAP_ACT", "killed".as_ref()), ("FOLDER", folder.path().as_os_str())])
        .stdout(std::process::Stdio::null());
    let mut killed = ChildGuard(command.spawn().unwrap());
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        for _ in 0..3_000 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what}: not within 30 s");
    };
    wait_until("the ladder measures", &|| mark.exists());
    let pids = std::fs::read_to_string(&mark).unwrap();
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let pids: Vec<&str> = pids.split_ascii_whitespace().collect();
    assert!(pids.len() >= 6, "a hog, a writer, a supervisor, and three of a command: {pids:?}");
    for pid in pids {
        wait_until(&format!("{pid} ends"), &|| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }
    std::fs::remove_file(&mark).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no files are left");
}

#[test]
#[ignore = "started by another test"]
fn child_that_is_killed() {
    if !is_started() {
        return;
    }
    let (state, folder) = (state(), argument("FOLDER"));
    let mut ladder = ladder(&folder, &state);
    ladder.turn = Duration::from_secs(60);
    // One process leaves the command's process group, as daemons do.
    ladder.load.command = Some("sleep 1000 & setsid sleep 1000 & sleep 1000".into());
    let mark = folder.join("mark");
    let _ = ladder.run(|turn, _, _, _| {
        if turn == 1 {
            let mut all = children();
            let direct: Vec<String> = all.split_ascii_whitespace().map(str::to_owned).collect();
            for pid in direct {
                all += " ";
                all += &below(&pid);
            }
            std::fs::write(mark.with_extension("new"), all).unwrap();
            std::fs::rename(mark.with_extension("new"), &mark).unwrap();
        }
    });
}

/// All descendants of a process.
fn below(pid: &str) -> String {
    let direct = children_of(pid);
    let mut all = direct.clone();
    for pid in direct.split_ascii_whitespace() {
        all += " ";
        all += &below(pid);
    }
    all
}
