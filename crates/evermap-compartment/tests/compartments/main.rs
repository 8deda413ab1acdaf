//! Compartments: a program with its own `main`, because a fault ends the process it happens in.
//!
//! Each promise is a process of its own, started by name. Where the processor has no keys, all are skipped
//! with a notice; `make test-vm` runs them on an emulated one that has.
#![allow(clippy::unwrap_used)]

mod around;
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
use promises::{Promise, is_kept, myself, process_of};

const PROMISES: &[Promise] = &[
    ("a_class_reads_and_stores_as_it_may", rights::as_assigned),
    ("guards_nest_and_go_in_any_order", rights::nested),
    ("a_thread_inherits_rights_unless_it_sheds_them", rights::inherited),
    ("the_library_needs_no_class_and_leaves_rights_as_they_were", rights::library),
    ("write_protection_and_compartments_hold_together", rights::protected),
    ("objects_with_the_same_rights_share_a_key", rights::shared_keys),
    ("too_many_sets_of_rights_are_an_error", rights::too_many),
    ("an_object_is_assigned_once", rights::twice),
    ("a_touch_without_the_right_is_a_fault_that_names_object_and_class", faults::named),
    ("memory_gained_since_is_closed_as_well", faults::gained),
    ("the_kernel_refuses_a_thread_what_the_thread_may_not_do", rights::system_calls),
    ("a_signal_handler_starts_without_rights_and_can_take_its_threads", signals::handlers),
    ("a_jump_out_of_a_handler_keeps_its_rights_until_they_are_shed", signals::jumps),
    ("there_are_ways_around_for_code_that_wants_them", around::ways),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--promise", name] => promises::test(PROMISES, name),
        ["--fault", place, path] => faults::touch(place, Path::new(path)),
        ["--measure"] => measure::run(),
        _ => run_all(&promises::wanted(PROMISES, &words)),
    }
}

fn run_all(names: &[&str]) -> ExitCode {
    if !compartments::available() {
        println!("SKIPPED: compartments: this machine has no memory protection keys");
        return without_keys();
    }
    let broken = names.iter().filter(|name| !is_kept(name, "", process_of(name)));
    promises::end(broken.count() == 0)
}

/// What can be had without keys: an error that says so, and objects that are open to everybody.
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

/// A new object, open for writing, whose root is the number 7.
fn object(store: &Store, name: &str) -> RawSession {
    store.create_raw(name).unwrap();
    let mut session = store.write_raw(name).unwrap();
    let block = session.heap().allocate(8, 8).unwrap();
    // SAFETY: the tag is no Rust type's.
    unsafe { session.set_root(Some(block), 8, [0; 16], "a number") }.unwrap();
    put(&session, 7);
    session.commit().unwrap();
    session
}

fn put(session: &RawSession, number: u64) {
    // SAFETY: the root is a number, and nobody has a reference to it.
    unsafe { session.root().address.cast::<u64>().write_volatile(number) };
}

fn get(session: &RawSession) -> u64 {
    // SAFETY: as above.
    unsafe { session.root().address.cast::<u64>().read_volatile() }
}

/// May this thread read these bytes? The kernel is asked, so that the answer is no fault.
fn may_read(address: *const u8) -> bool {
    let sink = std::fs::File::options().write(true).open("/dev/random").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&sink);
    // SAFETY: the kernel reads the bytes, or says that it may not. (`/dev/null` would not look.)
    unsafe { libc::write(fd, address.cast(), 1) == 1 }
}

/// May it store there? A byte is read from a file over itself, so nothing changes.
fn may_store(address: *mut u8) -> bool {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&zero);
    // SAFETY: the last byte of a small little-endian number is zero already.
    unsafe { libc::read(fd, address.wrapping_add(7).cast(), 1) == 1 }
}

/// What this thread may do with an object: read, store.
fn may(session: &RawSession) -> (bool, bool) {
    let address = session.root().address;
    (may_read(address), may_store(address))
}

const NOTHING: (bool, bool) = (false, false);
const READ: (bool, bool) = (true, false);
const BOTH: (bool, bool) = (true, true);
