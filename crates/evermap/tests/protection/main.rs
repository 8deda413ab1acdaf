//! Write protection with both mechanisms. This program has its own `main` and a single thread.
//!
//! A memory protection key can be allocated only while a process has a single thread, and a stray
//! store kills its process. So each promise runs in its own process, started by name, for each
//! mechanism. Without keys, their tests are skipped with a notice.
#![allow(clippy::unwrap_used)]

mod faults;
mod measure;
mod operations;
mod scopes;

use std::path::Path;
use std::process::{Command, ExitCode};

use evermap::{ActiveProtection, Protection, Store};

/// A promise: its name, and the function that tests it.
type Promise = (&'static str, fn(Protection));

const PROMISES: [Promise; 10] = [
    ("a_stray_store_ends_the_process_where_it_happens", faults::stray_stores),
    ("a_scope_that_has_ended_lets_nothing_through", faults::after_scopes),
    ("a_store_to_memory_gained_since_faults_too", faults::grown_memory),
    ("a_replaced_file_is_protected_as_well", faults::replaced_file),
    ("scopes_nest_and_end_in_any_order", scopes::nested),
    ("threads_read_and_those_with_a_pass_store", scopes::threads),
    ("a_forked_child_opens_nothing", scopes::forked),
    ("objects_are_protected_each_by_itself", scopes::several_objects),
    ("who_protects_nothing_may_use_scopes_all_the_same", scopes::switched_off),
    ("protected_objects_hold_what_others_hold", operations::same_contents),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--promise", name, way] => {
            let (_, promise) = PROMISES.iter().find(|(known, _)| *known == name).unwrap();
            promise(protection_of(way));
            ExitCode::SUCCESS
        }
        ["--fault", place, way, directory] => faults::commit(place, way, Path::new(directory)),
        ["--measure"] => measure::run(),
        ["--read", directory] => faults::read_until_stopped(Path::new(directory)),
        _ => run_all(words.iter().find(|word| !word.starts_with('-')).copied()),
    }
}

/// Runs every promise whose name contains `wanted`, each in its own process.
fn run_all(wanted: Option<&str>) -> ExitCode {
    let mut failed = 0;
    for (name, _) in PROMISES.iter().filter(|(name, _)| wanted.is_none_or(|w| name.contains(w))) {
        for way in ["pages", "keys"] {
            if way == "keys" && !Protection::prepare_keys() {
                println!("SKIPPED: {name} with keys: not available");
                continue;
            }
            let status = myself(&["--promise", name, way]).status().unwrap();
            println!("test {name} ({way}) ... {}", if status.success() { "ok" } else { "FAILED" });
            failed += usize::from(!status.success());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn myself(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

fn protection_of(way: &str) -> Protection {
    match way {
        "pages" => Protection::Pages,
        "keys" => Protection::Keys,
        other => panic!("unknown mechanism: {other}"),
    }
}

fn way_of(protection: Protection) -> &'static str {
    match protection {
        Protection::Pages => "pages",
        Protection::Keys => "keys",
        _ => panic!("no protection is active"),
    }
}

/// Returns the protection that is active if the mechanism is available.
fn expected_protection(protection: Protection) -> ActiveProtection {
    match protection {
        Protection::Pages => ActiveProtection::Pages,
        Protection::Keys => ActiveProtection::Keys,
        _ => ActiveProtection::Nothing,
    }
}

/// A store in a temporary directory.
fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    (directory, store)
}

fn check_is_clean(directory: &Path) {
    let report = evermap::tools::check(directory, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
