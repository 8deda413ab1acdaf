//! Tests of state that persists between processes, and of environment variables.

use std::path::Path;

use crate::staged::{Link, Place, compile, run, said};

#[test]
fn committed_data_exists_in_the_next_run() {
    let place = Place::new();
    let program = compile("runs", place.path(), Link::Shared, &[]);
    for number in 1..=3 {
        assert_eq!(run(&mut place.command(&program)), format!("{number} {number}\n"));
    }
}

#[test]
fn an_object_of_another_application_is_refused_by_name() {
    let place = Place::new();
    let program = compile("runs", place.path(), Link::Shared, &[]);
    let with = |application: &str| {
        let mut command = place.command(&program);
        command.env("EVERMAP_APPLICATION", application);
        command
    };
    run(&mut with("player"));
    for mut other in [with("recorder"), place.command(&program)] {
        let output = other.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let said = said(&output);
        assert!(said.contains("EM_OTHER_APPLICATION: object `runs`"), "{said}");
        assert!(said.contains("belongs to application"), "{said}");
    }
    assert_eq!(run(&mut with("player")), "2 2\n");
}

#[test]
fn a_reader_moves_to_the_writers_next_commit() {
    let place = Place::new();
    let program = compile("two_processes", place.path(), Link::Shared, &[]);
    let mut command = place.command(&program);
    assert_eq!(run(command.env("EVERMAP_APPLICATION", "two")), "a reader beside a writer\n");
}

#[test]
fn a_check_reports_damage() {
    let place = Place::new();
    run(&mut place.command(&compile("runs", place.path(), Link::Shared, &[])));
    let program = compile("check_store", place.path(), Link::Shared, &[]);
    let check = || run(place.command(&program).arg(place.store()));
    assert_eq!(check(), "EM_OK\n\n");
    // The process ended without closing the heap of nvheap.h, which left its log.
    let files = std::fs::read_dir(place.store().join("objects")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let has_no_log = |file: &std::path::PathBuf| {
        file.extension().is_none() && !file.with_extension("log").exists()
    };
    let file = files.find(has_no_log).unwrap();
    // A byte of the superblock that its checksum covers.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = check();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("2|objects/"), "{said}");
    assert_eq!(lines[0].split('|').filter(|part| !part.is_empty()).count(), 7, "{said}");
    assert_eq!(lines[1], "EM_DAMAGED", "{said}");
    assert!(lines[2].contains("1 findings in store"), "{said}");
}

#[test]
fn a_missing_store_variable_is_named() {
    let place = Place::new();
    let program = compile("runs", place.path(), Link::Shared, &[]);
    let output = place.command(&program).env_remove("EVERMAP_STORE").output().unwrap();
    assert!(!output.status.success());
    assert!(said(&output).contains("EVERMAP_STORE is not set"), "{}", said(&output));
}

/// Returns the arena of the place's store from the registry: first address and end.
fn arena(place: &Place) -> (u64, u64) {
    let registry = std::fs::read_to_string(place.path().join("evermap/arenas")).unwrap();
    let mut words = registry.lines().nth(1).unwrap().split(' ');
    let mut number = || u64::from_str_radix(&words.next().unwrap()[2..], 16).unwrap();
    let (base, length) = (number(), number());
    (base, base + length)
}

fn is_kept(place: &Place, program: &Path, reserve: Option<String>) -> (String, String) {
    let (first, end) = arena(place);
    let mut command = place.command(program);
    command.args([format!("{first:x}"), format!("{end:x}")]);
    if let Some(reserve) = reserve {
        command.env("EVERMAP_RESERVE", reserve);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_arenas_of_evermap_reserve_are_kept_before_main() {
    let place = Place::new();
    run(&mut place.command(&compile("runs", place.path(), Link::Shared, &[])));
    let store = place.store().display().to_string();
    for link in [Link::Shared, Link::Static] {
        let program = compile("before_main", place.path(), link, &[]);
        assert_eq!(is_kept(&place, &program, None).0, "free\n");
        let (kept, warned) = is_kept(&place, &program, Some(format!("/nonexistent/a:{store}")));
        assert_eq!(kept, "kept\n", "{warned}");
        assert!(warned.contains("EVERMAP_RESERVE: no store at /nonexistent/a"), "{warned}");
        assert_eq!(is_kept(&place, &program, Some(store.clone())), ("kept\n".into(), "".into()));
    }
}
