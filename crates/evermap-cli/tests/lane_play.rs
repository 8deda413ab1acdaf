//! `lane play` and `lane bench`: players with deadlines, and the effect of each part of a lane.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Place;

/// A policy without a core, so that concurrent tests do not compete for cores.
const OFF: &str =
    "[app]\nfps = 100\nshare = \"off\"\nscheduler = \"other\"\n[io]\nlock_memory = false\n";

fn place() -> Place {
    let place = Place::new();
    place.file("off.toml", OFF);
    place
}

fn json(stdout: &str) -> serde_json::Value {
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

#[test]
fn every_mode_plays_a_temporary_clip_and_leaves_nothing() {
    let place = place();
    let before = std::fs::read_dir(place.path("")).unwrap().count();
    for (mode, ways) in [
        ("map", &["mapped"][..]),
        ("nowait", &["ahead", "cached", "waited"]),
        ("uring", &["polled", "slept", "blocked"]),
        ("blocking", &["blocked"]),
    ] {
        let stdout = place.ok(&[
            "lane",
            "play",
            "--policy",
            "off.toml",
            "--frames",
            "30",
            "--io",
            mode,
            "--json",
            "--frame-bytes",
            "8192",
            "--decode-us",
            "100",
        ]);
        let report = json(&stdout);
        let frames = report["frames"].as_u64().unwrap();
        assert!(frames > 0 && report["periods"] == 30, "{mode}: {stdout}");
        let reads: u64 = ways.iter().map(|way| report["reads"][way].as_u64().unwrap()).sum();
        assert_eq!(reads, frames, "{mode}: {stdout}");
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), before);
}

#[test]
fn a_clip_is_made_played_and_drawn() {
    let place = place();
    place.ok(&["lane", "play", "--make", "film.clip", "--frames", "20", "--frame-bytes", "4096"]);
    assert_eq!(std::fs::metadata(place.path("film.clip")).unwrap().len(), 20 * 4096);
    let stdout = place.ok(&[
        "lane",
        "play",
        "--policy",
        "off.toml",
        "--clip",
        "film.clip",
        "--frames",
        "50",
        "--frame-bytes",
        "4096",
        "--decode-us",
        "10",
        "--svg",
        "film.svg",
    ]);
    for part in ["completion", "wake-up", "I/O", "compute", "mapped"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let svg = std::fs::read_to_string(place.path("film.svg")).unwrap();
    assert!(svg.contains("deadline"), "{svg}");
}

#[test]
fn wrong_usage_is_reported_with_a_remedy() {
    let place = place();
    for (arguments, code, part) in [
        (&["--fps", "fast"][..], 2, "is not a rate"),
        (&["--seconds", "0"], 2, "more than 0"),
        (&["--policy", "none.toml"], 3, "none.toml"),
        (&["--clip", "none.clip", "--no-lane"], 3, "none.clip"),
        (&["--clip", ".", "--no-lane"], 2, "not a regular file"),
        (&["--frame-bytes", "63", "--no-lane"], 2, "multiple of 8"),
        (&["--dir", "nowhere", "--no-lane"], 3, "nowhere"),
    ] {
        place.fails(code, part, &[&["lane", "play"], arguments].concat());
    }
    for (arguments, part) in [
        (&["--rungs", "lend"][..], "use one of ordinary-blocking"),
        (&["--seconds", "0"], "more than 0"),
        (&["--rates", "0"], "100,000"),
        (&["--rounds", "0"], "10,000"),
        (&["--background", "true", "--hogs", "1"], "--hogs"),
    ] {
        place.fails(2, part, &[&["lane", "bench"], arguments].concat());
    }
}

#[test]
fn a_bench_measures_each_rung_and_leaves_nothing() {
    let place = place();
    let before = std::fs::read_dir(place.path("")).unwrap().count();
    let ran = place.run(&[
        "lane",
        "bench",
        "--seconds",
        "0.5",
        "--rounds",
        "1",
        "--rates",
        "50",
        "--rungs",
        "ordinary-blocking,ordinary-map",
        "--hogs",
        "1",
        "--writers",
        "1",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("turn 3 of 3"), "{ran:?}");
    let (stdout, results) = (&ran.out, json(&ran.out));
    let cells = results["cells"].as_array().unwrap();
    let names: Vec<_> = cells.iter().map(|cell| cell["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ordinary-blocking", "ordinary-map"]);
    for cell in cells {
        assert_eq!(cell["damaged"], 0);
        assert_eq!(cell["periods"], 25, "{stdout}");
        assert!(cell["units_alone_per_s"]["computed"].as_f64().unwrap() > 0.0, "{stdout}");
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), before);
}

const SMALL_BENCH: [&str; 12] = [
    "lane",
    "bench",
    "--rates",
    "50",
    "--rungs",
    "ordinary-map",
    "--hogs",
    "1",
    "--writers",
    "1",
    "--json",
    "--seconds",
];

/// Runs the command until it prints `until`, then sends SIGINT to it and its children, as Ctrl-C in
/// a terminal does. Asserts that no process is left.
fn interrupted(place: &Place, arguments: &[&str], until: &str) -> common::Ran {
    use std::os::unix::process::CommandExt;
    let mut command = place.command(arguments);
    let mut bench =
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = std::io::BufReader::new(bench.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains(until) {
        let count = std::io::BufRead::read_line(&mut stderr, &mut err).unwrap();
        assert!(count > 0, "{err}");
    }
    let group = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let rest = std::io::read_to_string(&mut stderr).unwrap();
    let output = bench.wait_with_output().unwrap();
    let left = rustix::process::test_kill_process_group(group);
    assert_eq!(left, Err(rustix::io::Errno::SRCH), "a process is left");
    let ran = common::Ran::of(output);
    common::Ran { err: err + &rest, ..ran }
}

#[test]
fn an_interrupted_bench_reports_the_completed_turns() {
    let place = place();
    let before = std::fs::read_dir(place.path("")).unwrap().count();
    let arguments = [&SMALL_BENCH[..], &["0.3", "--rounds", "100"]].concat();
    let ran = interrupted(&place, &arguments, "turn 4 of 200");
    assert_eq!(ran.code, 0, "{ran:?}");
    let results = json(&ran.out);
    assert_eq!(results["turns_planned"], 200, "{ran:?}");
    let done = results["turns_done"].as_u64().unwrap();
    assert!((3..200).contains(&done), "{ran:?}");
    let cell = &results["cells"][0];
    assert_eq!((&cell["name"], &cell["damaged"]), (&"ordinary-map".into(), &0.into()), "{ran:?}");
    assert_eq!(cell["periods"].as_u64().unwrap(), 15 * cell["turns"].as_u64().unwrap(), "{ran:?}");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), before);
}

#[test]
fn a_bench_interrupted_before_its_first_turn_ends_reports_no_results() {
    let place = place();
    let arguments = [&SMALL_BENCH[..], &["10"]].concat();
    let ran = interrupted(&place, &arguments, "turn 1 of 4");
    assert!(ran.code == 130 && ran.out.is_empty(), "{ran:?}");
    assert!(ran.err.contains("no results") && ran.err.contains("after 0 of 4 turns"), "{ran:?}");
}

#[test]
fn results_that_cannot_be_drawn_are_printed() {
    let place = place();
    std::fs::create_dir_all(place.path("plots/missed.svg")).unwrap();
    let ran = place.run(&[&SMALL_BENCH[..], &["0.3", "--rounds", "1", "--svg", "plots"]].concat());
    assert!(ran.code != 0 && ran.err.contains("missed.svg"), "{ran:?}");
    assert_eq!(json(&ran.out)["turns_done"], 2, "{ran:?}");
}

#[test]
fn the_cost_to_a_background_command_is_reported_as_unknown() {
    let place = place();
    let arguments = [
        "lane",
        "bench",
        "--seconds",
        "0.3",
        "--rounds",
        "1",
        "--rates",
        "50",
        "--rungs",
        "ordinary-map",
        "--background",
        "while :; do :; done",
    ];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("cost: unknown") && ran.out.contains("is not counted"), "{ran:?}");
}

/// A child process that is killed when dropped.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the control groups of lanes that hold a core.
fn groups(below: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("evermap-")).collect()
}

#[test]
fn a_killed_player_that_held_a_core_releases_it() {
    let cpuset = Path::new("/sys/fs/cgroup/cpuset");
    if !rustix::process::geteuid().is_root() || !cpuset.join("cpuset.cpus").exists() {
        return eprintln!("skipped: holding a core needs root and cpusets");
    }
    if !groups(cpuset).is_empty() {
        return eprintln!("skipped: another lane holds a core");
    }
    let place = place();
    place.file("hold.toml", "[app]\nfps = 100\nshare = \"hold\"\n[io]\nmode = \"nowait\"\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
    command.args(["lane", "play", "--policy", "hold.toml", "--seconds", "60"]);
    command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut player = Kept(command.spawn().unwrap());
    for _ in 0..500 {
        if groups(cpuset).len() == 2 || player.0.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(status) = player.0.try_wait().unwrap() {
        return eprintln!("skipped: cannot hold a core here ({status})");
    }
    assert_eq!(groups(cpuset).len(), 2, "the lane's and the others'");
    std::thread::sleep(Duration::from_millis(300));
    player.0.kill().unwrap();
    player.0.wait().unwrap();
    for _ in 0..500 {
        if groups(cpuset).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("left after 5 s: {:?}", groups(cpuset));
}

#[test]
fn a_picture_that_cannot_be_written_fails_before_playing() {
    let place = place();
    // Playing would take an hour, so a check after playing would be noticed.
    let long = ["lane", "play", "--policy", "off.toml", "--seconds", "3600", "--svg"];
    place.fails(
        3,
        "directory nowhere does not exist",
        &[&long[..], &["nowhere/play.svg"]].concat(),
    );
    place.fails(2, "it is a directory", &[&long[..], &["."]].concat());
}

#[test]
fn an_interrupted_play_reports_the_played_periods() {
    let place = place();
    let mut command = place.command(&[
        "lane",
        "play",
        "--policy",
        "off.toml",
        "--seconds",
        "60",
        "--frame-bytes",
        "64",
        "--json",
    ]);
    let player = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The command first makes a small clip. An interrupt before playing would report no periods.
    std::thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_raw(player.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = player.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = json(&String::from_utf8(output.stdout).unwrap());
    assert!(report["periods"].as_u64().unwrap() < 6_000, "{report}");
    assert_eq!(
        report["frames"].as_u64().unwrap(),
        report["completion_ms"]["count"].as_u64().unwrap()
    );
}

#[test]
fn own_clips_are_verified_and_replaced_only_with_force() {
    let place = place();
    let make = ["lane", "play", "--make", "own.clip", "--frames", "10", "--frame-bytes", "8192"];
    place.ok(&make);
    let play = [
        "lane",
        "play",
        "--policy",
        "off.toml",
        "--clip",
        "own.clip",
        "--frames",
        "100",
        "--frame-bytes",
        "8192",
        "--decode-us",
        "1",
    ];
    place.ok(&play);
    let again = place.run(&make);
    assert!(again.code == 9 && again.err.contains("--force"), "{again:?}");
    let mut bytes = std::fs::read(place.path("own.clip")).unwrap();
    // All frames except the first, which identifies the clip. A busy machine drops most frames.
    (1..10).for_each(|frame| bytes[frame * 8192 + 4_000] ^= 1);
    std::fs::write(place.path("own.clip"), bytes).unwrap();
    let damaged = place.run(&play);
    assert!(damaged.code == 5 && damaged.err.contains("frames had wrong contents"), "{damaged:?}");
    place.ok(&[&make[..], &["--force"]].concat());
    place.ok(&play);
}
