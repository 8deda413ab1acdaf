//! Without rights a lane applies the settings that it can, and reports the others.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::Ran;
use crate::common::programs::copy_program;
use crate::place::{HOLD, Place, UNDONE_MAX};
use crate::system::{TIMEOUT, is_ordinary, json, kill, text, wait_for};

/// Copies the command to a path where another user can run it.
fn copy_for_other_users(place: &Place) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = place.path("evermap");
    copy_program(Path::new(env!("CARGO_BIN_EXE_evermap")), &copy);
    fs::set_permissions(place.directory(), PermissionsExt::from_mode(0o777)).unwrap();
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn a_lane_without_rights_reports_the_settings_that_it_cannot_apply() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can switch to another user");
        return;
    }
    let place = Place::new();
    let copy = copy_for_other_users(&place);
    fs::write(place.path("policy.toml"), HOLD).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&copy);
        command.uid(65534).gid(65534).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.args(arguments).arg("--state").arg(place.path("state-of-nobody"));
        command
    };
    let mut lane = run(&["lane", "run"]);
    lane.arg("--policy").arg(place.path("policy.toml"));
    lane.args(["--", "sh", "-c", "grep Cpus_allowed_list /proc/$$/status; sleep 0.1; exit 6"]);
    let ran = Ran::of(lane.output().unwrap());
    assert_eq!(ran.code, 6, "{ran:?}");
    let own = ran.out.split_ascii_whitespace().last().unwrap();
    assert!(own.parse::<u32>().is_ok(), "more than one core: {ran:?}");
    assert!(ran.err.contains("may not make") || ran.err.contains("cpuset"), "{ran:?}");
    assert!(ran.err.contains("RLIMIT_RTPRIO") || ran.err.contains("rt_runtime_us"), "{ran:?}");
    // After a kill, a guardian without rights undoes the lane too.
    let mut lane = run(&["lane", "run"]);
    let mut child = lane.args(["--", "sleep", "1000"]).stderr(Stdio::null()).spawn().unwrap();
    let mut program = 0;
    wait_for("the program", TIMEOUT, || {
        let entries =
            fs::read_dir(place.path("state-of-nobody/lanes")).into_iter().flatten().flatten();
        let journal = entries.filter_map(|entry| json(&entry.path())).next().unwrap_or_default();
        program = journal["program"]["pid"].as_u64().unwrap_or(0) as u32;
        program != 0 && text(program, "comm").trim() == "sleep"
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the guardian", UNDONE_MAX, || is_ordinary(program));
    kill(program);
    let undone = Ran::of(run(&["lane", "undo"]).output().unwrap());
    assert_eq!(undone.code, 0, "{undone:?}");
}
