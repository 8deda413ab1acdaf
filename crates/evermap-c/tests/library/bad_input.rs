//! Tests of programs that make forbidden calls: each ends at the call, with a message that names
//! the cause.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::staged::{Link, Place, compile, said};

/// Runs one forbidden call in a new store. Returns the signal that ended the program and its
/// output.
fn forbidden_call(program: &Path, name: &str) -> (Option<i32>, String) {
    let place = Place::new();
    let output = place.command(program).arg(place.store()).arg(name).output().unwrap();
    (output.status.signal(), said(&output))
}

#[test]
fn a_bad_free_aborts_with_its_cause() {
    let place = Place::new();
    let program = compile("bad_input", place.path(), Link::Shared, &[]);
    let deeds = [
        ("double_free", "em_free", "is not an allocated block"),
        ("foreign_pointer", "em_free", "is not an allocated block"),
        ("inside_of_a_block", "em_free", "is not an allocated block"),
        ("of_another_object", "em_free", "is not an allocated block"),
        ("realloc_of_foreign", "em_realloc", "is not an allocated block"),
        ("free_after_close", "em_free", "is not an open handle"),
        ("free_in_a_reader", "em_free", "is open for reading"),
        ("free_without_an_object", "em_free", "the handle is NULL"),
        ("p_free_of_unmapped", "p_free", "is not mapped"),
        ("p_free_of_foreign", "p_free", "is not an allocated block"),
    ];
    for (name, function, why) in deeds {
        let (signal, said) = forbidden_call(&program, name);
        assert_eq!(signal, Some(libc::SIGABRT), "{name}: {said}");
        let line = said.lines().find(|line| line.starts_with("evermap: ")).unwrap_or(&said);
        assert!(line.contains(function) && line.contains(why), "{name}: {said}");
    }
    let (_, said) = forbidden_call(&program, "foreign_pointer");
    let foreign = said.lines().find_map(|line| line.strip_prefix("foreign is ")).unwrap();
    assert!(said.contains(&format!("em_free of {foreign}:")), "the culprit is named: {said}");
}

#[test]
fn stores_to_snapshots_and_dereferenced_handles_fault() {
    let place = Place::new();
    let program = compile("bad_input", place.path(), Link::Shared, &[]);
    for name in ["store_in_a_reader", "look_into_a_handle"] {
        let (signal, said) = forbidden_call(&program, name);
        assert_eq!(signal, Some(libc::SIGSEGV), "{name}: {said}");
    }
}
