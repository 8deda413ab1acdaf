//! The outer wall: a program with its own `main`, for what it tests holds until the process ends.
//!
//! Each promise is a process of its own, started by name; what goes on inside of a wall is a child of
//! that again. As root, every promise is tested a second time as an ordinary user.
#![allow(clippy::unwrap_used)]

mod attempts;
mod commits;
mod enclosed;
mod own;
#[path = "../common/promises.rs"]
mod promises;
mod spaces;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use promises::{Promise, is_kept, myself, process_of};

const PROMISES: &[Promise] = &[
    ("what_is_mapped_and_open_can_be_used_and_nothing_else_is_reachable", own::closed),
    ("allocating_goes_on_without_mmap_in_threads_that_allocated_before", own::allocating),
    ("memory_can_be_mapped_where_it_is_allowed_but_never_executed", own::memory),
    ("threads_that_ran_before_are_held_too", own::earlier_threads),
    ("threads_start_where_they_are_allowed_and_processes_never", own::new_threads),
    ("allowed_paths_stay_open_and_no_others", own::paths),
    ("paths_are_refused_while_threads_run_that_nobody_holds", own::paths_beside_threads),
    ("a_path_that_is_not_there_is_named_and_nothing_is_closed", own::missing_path),
    ("without_landlock_there_is_an_error_or_the_filter_alone", own::without_landlock),
    ("an_open_session_commits_rolls_back_and_checkpoints", commits::commits),
    ("it_grows_in_its_regions_and_a_new_one_is_a_typed_error", commits::grows_in_place),
    ("with_its_store_open_it_gains_regions_and_closes", commits::gains_regions),
    ("without_leave_a_commit_is_an_error_and_nothing_is_lost", commits::without_leave),
    ("an_enclosed_program_opens_what_is_named_and_no_more", enclosed::files),
    ("dangerous_calls_fail_in_an_enclosed_program", enclosed::calls),
    ("what_other_processes_share_by_number_or_name_is_out_of_reach", spaces::shared),
    ("abstract_sockets_are_out_of_reach_with_the_network", spaces::abstract_socket),
    ("attributes_change_and_sockets_open_only_where_that_is_allowed", enclosed::exceptions),
];

/// What is done inside of a wall.
type Part = (&'static str, fn(&Path));

const PARTS: &[Part] = &[
    ("closed", own::closed_inside),
    ("paths", own::paths_inside),
    ("commits", commits::commits_inside),
    ("grows-in-place", commits::grows_in_place_inside),
    ("gains-regions", commits::gains_regions_inside),
    ("without-leave", commits::without_leave_inside),
    ("attempts", attempts::report),
    ("shared", spaces::shared_inside),
    ("abstract-socket", spaces::abstract_socket_inside),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--promise", name] => promises::test(PROMISES, name),
        ["--part", name, path] => {
            PARTS.iter().find(|(known, _)| *known == name).unwrap().1(Path::new(path));
            ExitCode::SUCCESS
        }
        _ => run_all(&promises::wanted(PROMISES, &words)),
    }
}

fn run_all(names: &[&str]) -> ExitCode {
    if !has_landlock() {
        println!("SKIPPED: the outer wall: this kernel has no Landlock");
        return ExitCode::SUCCESS;
    }
    let (users, mut all_kept) = (users(), true);
    for name in names {
        for &user in &users {
            let who = user.map_or("", |_| " (an ordinary user)");
            all_kept &= is_kept(name, who, as_user(process_of(name), user));
        }
    }
    promises::end(all_kept)
}

/// This user, and another one where that is to be had: a user may start this program.
fn users() -> Vec<Option<u32>> {
    const NOBODY: u32 = 65534;
    // SAFETY: the call cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut try_it = as_user(process_of(PROMISES[7].0), Some(NOBODY));
    match is_root && try_it.output().is_ok_and(|output| output.status.success()) {
        true => vec![None, Some(NOBODY)],
        false => {
            if is_root {
                println!(
                    "SKIPPED: as an ordinary user: none may start {:?}",
                    std::env::current_exe()
                );
            }
            vec![None]
        }
    }
}

fn as_user(mut command: Command, user: Option<u32>) -> Command {
    if let Some(user) = user {
        command.uid(user).gid(user).current_dir("/");
        // Stores note where they are; root's place for that is not this user's.
        let state = std::env::temp_dir().join(format!("evermap-wall-{}", std::process::id()));
        command.env("XDG_STATE_HOME", state);
    }
    command
}

fn has_landlock() -> bool {
    landlock_version() >= 3
}

fn landlock_version() -> i64 {
    // `LANDLOCK_CREATE_RULESET_VERSION`.
    // SAFETY: with this flag the call takes no pointer and makes nothing.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) }
}

/// Does Landlock hold threads that run already?
fn landlock_holds_all_threads() -> bool {
    landlock_version() >= 8
}

/// Does Landlock keep signals and abstract sockets in?
fn landlock_has_scopes() -> bool {
    landlock_version() >= 6
}

/// Does a part in a process of its own; it has to end well.
fn inside(part: &str, path: &Path) -> Output {
    let output = myself(&["--part", part, path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
