//! `evermap load run`: programs of the system have the same output and exit codes as without it.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Place, Ran};

/// Makes a place with a file. Returns `None` if the library, which another package builds, is
/// missing.
fn place_with_library() -> Option<Place> {
    let program = Path::new(env!("CARGO_BIN_EXE_evermap"));
    if !program.with_file_name("libevermap_load_shim.so").is_file() {
        println!("skipped: the library is not built: cargo build -p evermap-load-shim");
        return None;
    }
    let place = Place::new();
    let lines: String = (0..400_000).map(|line| format!("line {line} of a text\n")).collect();
    place.file("data.txt", lines);
    Some(place)
}

fn load_run(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = place.bare(&["load", "run"]);
    Ran::of(command.args(arguments).env("PATH", "/usr/bin:/bin").output().unwrap())
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn programs_of_the_system_have_the_same_output() {
    let Some(place) = place_with_library() else { return };
    let python = "import mmap\nfile = open('data.txt', 'rb')\n\
         for access in (mmap.ACCESS_READ, mmap.ACCESS_COPY):\n\
         \x20   with mmap.mmap(file.fileno(), 0, access=access) as data:\n\
         \x20       print(len(data), data[:].count(b'7'), data[-9:])\n\
         \x20       if access == mmap.ACCESS_COPY:\n            data[0:4] = b'LINE'; print(data[:6], data.flush())\n\
         print(hash(file.read() == open('data.txt', 'rb').read()))\n";
    let lines: [&[&str]; 6] = [
        &["sha256sum", "data.txt"],
        &["cat", "data.txt"],
        &["grep", "-c", "line 39999", "data.txt"],
        &["cmp", "data.txt", "data.txt"],
        &["sh", "-c", "tail -n 2 data.txt; wc data.txt; dd if=data.txt bs=4M status=none | cksum"],
        &["python3", "-c", python],
    ];
    for line in lines {
        if !is_installed(line[0]) {
            continue;
        }
        let mut plain = Command::new(line[0]);
        plain.args(&line[1..]).current_dir(place.path("")).env_clear().env("PATH", "/usr/bin:/bin");
        let plain = Ran::of(plain.output().unwrap());
        assert_eq!(plain.code, 0, "{line:?}: {plain:?}");
        for method in ["", "takeover", "takeover-on-demand", "read-huge"] {
            let mut rules = "[[file]]\npattern = \"*.txt\"\n".to_string();
            if !method.is_empty() {
                rules += &format!("method = \"{method}\"\n");
            }
            place.file("rules.toml", rules);
            let ran = load_run(&place, &[&["--rules", "rules.toml", "--"], line].concat());
            assert_eq!((ran.code, &ran.err), (0, &plain.err), "{line:?} by {method}");
            assert!(ran.out == plain.out, "{line:?} by {method}");
        }
    }
}

#[test]
fn the_exit_code_is_that_of_the_command_with_and_without_a_report() {
    let Some(place) = place_with_library() else { return };
    for options in [&["--map", "*.txt", "--"][..], &["--map", "*.txt", "--report", "--"]] {
        let shell = |line| load_run(&place, &[options, &["sh", "-c", line]].concat());
        let ran = shell("echo out; echo err >&2; exit 42");
        assert_eq!((ran.code, ran.out.as_str()), (42, "out\n"), "{ran:?}");
        assert!(ran.err.starts_with("err\n"), "{ran:?}");
        load_run(&place, &[options, &["frobnicate"]].concat())
            .failed(127, "command `frobnicate` not found");
        load_run(&place, &[options, &["./data.txt"]].concat()).failed(126, "not executable");
    }
    let ran = load_run(&place, &["--map", "*.txt", "--report", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(ran.code, 143, "{ran:?}");
}

#[test]
fn a_report_lists_only_loaded_files() {
    let Some(place) = place_with_library() else { return };
    let copy = ["dd", "if=data.txt", "of=/dev/null", "bs=4M", "status=none"];
    let ran = load_run(&place, &[&["--report", "--map", "./*.txt", "--"], &copy[..]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    assert!(ran.err.starts_with("program"), "{ran:?}");
    let row = ran.err.lines().nth(1).unwrap();
    assert!(row.starts_with("dd [") && row.contains("/data.txt") && row.contains("read"), "{row}");
    let ran = load_run(&place, &[&["--report", "--map", "other/*.txt", "--"], &copy[..]].concat());
    assert!(ran.err.starts_with("evermap: no file was loaded"), "{ran:?}");
}

#[test]
fn patterns_match_real_paths() {
    let Some(place) = place_with_library() else { return };
    std::fs::create_dir(place.path("real [1]")).unwrap();
    std::fs::rename(place.path("data.txt"), place.path("real [1]/data.txt")).unwrap();
    std::os::unix::fs::symlink("real [1]", place.path("link")).unwrap();
    let copy = "cd / && dd if=\"$HOME/link/data.txt\" of=/dev/null bs=4M status=none";
    let by_link = place.path("link/*.txt");
    let patterns = ["link/*.txt", "./link/data.txt", "**/data.*", by_link.to_str().unwrap()];
    for pattern in patterns {
        let ran = load_run(&place, &["--report", "--map", pattern, "--", "sh", "-c", copy]);
        assert!(ran.code == 0 && ran.err.contains("data.txt"), "{pattern}: {ran:?}");
    }
}

#[test]
fn wrong_usage_is_reported_before_the_command_starts() {
    let Some(place) = place_with_library() else { return };
    let fails =
        |code, says: &str, arguments: &[&str]| load_run(&place, arguments).failed(code, says);
    fails(2, "use `--map GLOB`", &["--", "true"]);
    fails(2, "--map ***: `***` is not a valid pattern: ", &["--map", "***", "--", "echo"]);
    fails(3, "nothing.toml", &["--rules", "nothing.toml", "--", "echo"]);
    place.file("wrong.toml", "[[file]]\npattern = \"*\"\nwritten = 2\n");
    fails(8, "from 0 to 1", &["--rules", "wrong.toml", "--", "echo"]);
    assert_eq!(load_run(&place, &["--map", "*"]).code, 2);
    let mut command = place.bare(&["load", "run", "--map", "*", "--", "echo"]);
    let elsewhere = place.path("elsewhere.so");
    let ran = Ran::of(command.env("EVERMAP_LOAD_SHIM", &elsewhere).output().unwrap());
    ran.failed(125, "elsewhere.so); build it with `cargo build --release -p evermap-load-shim`");
    std::fs::write(place.path("a b.so"), "").unwrap();
    let ran = Ran::of(command.env("EVERMAP_LOAD_SHIM", place.path("a b.so")).output().unwrap());
    assert!(ran.code != 0 && ran.err.contains("not accept a path with a space"), "{ran:?}");
}
