//! Compartments: a program with its own `main`, because a fault ends its process.
//!
//! Each promise runs in its own process, started by name. Without protection keys, all are skipped
//! with a notice. `make test-vm` runs them on an emulated processor with keys.
#![allow(clippy::unwrap_used)]

mod bypasses;
mod faults;
mod measure;
#[path = "../common/promises.rs"]
mod promises;
mod rights;
mod signals;

use std::path::Path;
use std::process::ExitCode;

use evermap::{RawSession, Store};
use evermap_compartment::compartments;
use promises::{Promise, passes, process_of, this_program};

const PROMISES: &[Promise] = &[
    ("a_class_has_exactly_its_assigned_rights", rights::as_assigned),
    ("guards_nest_and_go_in_any_order", rights::nested),
    ("a_thread_inherits_rights_unless_it_sheds_them", rights::inherited),
    ("the_library_needs_no_class_and_keeps_the_threads_rights", rights::library),
    ("write_protection_and_compartments_hold_together", rights::protected),
    ("objects_with_the_same_rights_share_a_key", rights::shared_keys),
    ("too_many_sets_of_rights_are_an_error", rights::too_many),
    ("an_object_is_assigned_once", rights::twice),
    ("an_access_without_the_right_faults_and_names_object_and_class", faults::named),
    ("memory_gained_after_assignment_is_restricted", faults::gained),
    ("system_calls_obey_the_threads_rights", rights::system_calls),
    ("a_signal_handler_starts_without_rights_and_can_restore_its_threads", signals::handlers),
    ("a_jump_out_of_a_handler_keeps_its_rights_until_a_reset", signals::jumps),
    ("hostile_code_can_bypass_compartments", bypasses::ways),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--promise", name] => promises::test(PROMISES, name),
        ["--fault", place, path] => faults::touch(place, Path::new(path)),
        ["--measure"] => measure::run(),
        _ => run_all(&promises::selected(PROMISES, &words)),
    }
}

fn run_all(names: &[&str]) -> ExitCode {
    if !compartments::available() {
        println!("SKIPPED: compartments: this machine has no memory protection keys");
        return without_keys();
    }
    let broken = names.iter().filter(|name| !passes(name, "", process_of(name)));
    promises::exit_code(broken.count() == 0)
}

/// Tests a machine without keys: assignment fails with a clear error, and objects stay accessible.
fn without_keys() -> ExitCode {
    use evermap_compartment::{Error, compartments::Class};
    let (_directory, store) = store();
    let mut session = object(&store, "words");
    let class = Class::define("writer").unwrap();
    let error = compartments::assign(&mut session, &[(class, evermap::Access::Write)]).unwrap_err();
    assert!(matches!(error, Error::NoKey { .. }), "{error}");
    assert!(error.to_string().contains("`writer`"), "{error}");
    let _inside = class.enter();
    put(&session, 8);
    assert_eq!(get(&session), 8);
    println!("test without_keys_there_is_an_error_and_no_compartment ... ok");
    ExitCode::SUCCESS
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    (directory, store)
}

/// Creates an object, open for writing, whose root is the number 7.
fn object(store: &Store, name: &str) -> RawSession {
    store.create_raw(name).unwrap();
    let mut session = store.write_raw(name).unwrap();
    let block = session.heap().allocate(8, 8).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 8, [0; 16], "a number") }.unwrap();
    put(&session, 7);
    session.commit().unwrap();
    session
}

fn put(session: &RawSession, number: u64) {
    // SAFETY: the root is a number without references to it.
    unsafe { session.root().address.cast::<u64>().write_volatile(number) };
}

fn get(session: &RawSession) -> u64 {
    // SAFETY: the root is a number without references to it.
    unsafe { session.root().address.cast::<u64>().read_volatile() }
}

/// Returns true if this thread can read the byte. Asks the kernel, so a missing right is an error
/// and not a fault.
fn may_read(address: *const u8) -> bool {
    let sink = std::fs::File::options().write(true).open("/dev/random").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&sink);
    // SAFETY: the kernel reads the byte or reports an error. (`/dev/null` would not read it.)
    unsafe { libc::write(fd, address.cast(), 1) == 1 }
}

/// Returns true if this thread can store to the number. Writes a zero over a zero byte, so nothing
/// changes.
fn may_store(address: *mut u8) -> bool {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&zero);
    // SAFETY: the last byte of a small little-endian number is already zero.
    unsafe { libc::read(fd, address.wrapping_add(7).cast(), 1) == 1 }
}

/// Returns this thread's access to an object: read, store.
fn may(session: &RawSession) -> (bool, bool) {
    let address = session.root().address;
    (may_read(address), may_store(address))
}

const NOTHING: (bool, bool) = (false, false);
const READ: (bool, bool) = (true, false);
const BOTH: (bool, bool) = (true, true);
