//! Programs that do what must not be done: each ends at the culprit, with a message that says what
//! it is.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::staged::{Link, Place, compile, said};

/// Does one deed in a store of its own; gives the signal that ended it and what it said.
fn deed(program: &Path, name: &str) -> (Option<i32>, String) {
    let place = Place::new();
    let output = place.command(program).arg(place.store()).arg(name).output().unwrap();
    (output.status.signal(), said(&output))
}

#[test]
fn a_bad_free_aborts_and_says_why() {
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
        let (signal, said) = deed(&program, name);
        assert_eq!(signal, Some(libc::SIGABRT), "{name}: {said}");
        let line = said.lines().find(|line| line.starts_with("evermap: ")).unwrap_or(&said);
        assert!(line.contains(function) && line.contains(why), "{name}: {said}");
    }
    let (_, said) = deed(&program, "foreign_pointer");
    let foreign = said.lines().find_map(|line| line.strip_prefix("foreign is ")).unwrap();
    assert!(said.contains(&format!("em_free of {foreign}:")), "the culprit is named: {said}");
}

#[test]
fn a_store_to_what_is_read_and_a_look_into_a_handle_are_faults() {
    let place = Place::new();
    let program = compile("bad_input", place.path(), Link::Shared, &[]);
    for name in ["store_in_a_reader", "look_into_a_handle"] {
        let (signal, said) = deed(&program, name);
        assert_eq!(signal, Some(libc::SIGSEGV), "{name}: {said}");
    }
}
