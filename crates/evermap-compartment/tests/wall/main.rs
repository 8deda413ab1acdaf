//! The outer wall: a program with its own `main`, because a wall lasts until its process ends.
//!
//! Each promise runs in its own process, started by name, and everything behind a wall in a child
//! of that process. As root, every promise is tested a second time as an ordinary user.
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

use promises::{Promise, passes, process_of, this_program};

const PROMISES: &[Promise] = &[
    ("mapped_and_open_files_stay_usable_and_nothing_else_is_reachable", own::closed),
    ("threads_that_allocated_before_can_allocate_without_mmap", own::allocating),
    ("allowed_memory_mappings_are_never_executable", own::memory),
    ("running_threads_are_restricted_too", own::earlier_threads),
    ("threads_start_if_allowed_and_processes_never", own::new_threads),
    ("only_allowed_paths_can_be_opened", own::paths),
    ("paths_are_refused_while_unrestricted_threads_run", own::paths_beside_threads),
    ("a_missing_path_is_an_error_and_nothing_is_restricted", own::missing_path),
    ("without_landlock_closing_fails_or_uses_the_filter_alone", own::without_landlock),
    ("an_open_session_commits_rolls_back_and_checkpoints", commits::commits),
    ("a_session_grows_in_its_regions_and_a_new_region_is_a_typed_error", commits::grows_in_place),
    ("a_session_in_an_allowed_store_gains_regions_and_closes", commits::gains_regions),
    ("without_permission_a_commit_fails_and_nothing_is_lost", commits::without_permission),
    ("an_enclosed_program_opens_only_named_paths", enclosed::files),
    ("dangerous_calls_fail_in_an_enclosed_program", enclosed::calls),
    ("objects_shared_by_number_or_name_are_unreachable", spaces::shared),
    ("abstract_sockets_are_unreachable_with_network_allowed", spaces::abstract_socket),
    ("attributes_and_sockets_are_available_only_if_allowed", enclosed::exceptions),
];

/// Work done behind a wall.
type Part = (&'static str, fn(&Path));

const PARTS: &[Part] = &[
    ("closed", own::closed_inside),
    ("paths", own::paths_inside),
    ("commits", commits::commits_inside),
    ("grows-in-place", commits::grows_in_place_inside),
    ("gains-regions", commits::gains_regions_inside),
    ("without-permission", commits::without_permission_inside),
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
        _ => run_all(&promises::selected(PROMISES, &words)),
    }
}

fn run_all(names: &[&str]) -> ExitCode {
    if !has_landlock() {
        println!("SKIPPED: the outer wall: this kernel has no Landlock");
        return ExitCode::SUCCESS;
    }
    let (users, mut all_passed) = (users(), true);
    for name in names {
        for &user in &users {
            let user_note = user.map_or("", |_| " (an ordinary user)");
            all_passed &= passes(name, user_note, as_user(process_of(name), user));
        }
    }
    promises::exit_code(all_passed)
}

/// Returns the users to test as: this user, and as root also an ordinary user who can start this
/// program.
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
                    "SKIPPED: as an ordinary user: cannot start {:?}",
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
        // Stores record their addresses. An ordinary user cannot write to root's directory for
        // that.
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
    // SAFETY: with this flag the call takes no pointer and creates nothing.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) }
}

/// Returns true if Landlock can restrict running threads.
fn landlock_holds_all_threads() -> bool {
    landlock_version() >= 8
}

/// Returns true if Landlock can restrict signals and abstract sockets.
fn landlock_has_scopes() -> bool {
    landlock_version() >= 6
}

/// Runs a part in its own process and checks that it succeeds.
fn inside(part: &str, path: &Path) -> Output {
    let output = this_program(&["--part", part, path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
