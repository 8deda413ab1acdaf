//! Bindings of modules fail closed. If a file with bindings or keys is missing, empty, damaged,
//! owned by another user or writable by others, no module runs as the application, and the error
//! names the remedy.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::Fixture;
use evermap_wasm::{ApplicationId, Error, GuestOptions, KeyRing, ModuleBinding, SecretKey};

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Whole,
    Missing,
    Empty,
    /// One byte is changed.
    Damaged,
    /// The file is valid but has no applications.
    WithoutRows,
    Unreadable,
    OtherOwner,
    GroupWrites,
    OthersWrite,
    Link,
    Fifo,
}

use State::*;

/// States that are tested in all pairs.
const STATES: [State; 7] = [Whole, Missing, Empty, Damaged, WithoutRows, OtherOwner, OthersWrite];
/// States that are tested together with an intact file.
const MORE_STATES: [State; 4] = [Unreadable, GroupWrites, Link, Fifo];
const FILES: [&str; 2] = ["sandbox.access", "sandbox.keys"];

fn is_root() -> bool {
    // SAFETY: `geteuid` has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

fn put_into(path: &Path, state: State, empty_table: &Path) {
    let mode = |mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    match state {
        Whole => {}
        Missing => fs::remove_file(path).unwrap(),
        Empty => fs::write(path, "").unwrap(),
        Damaged => {
            let mut bytes = fs::read(path).unwrap();
            let last = bytes.len() / 2;
            bytes[last] ^= 4;
            fs::write(path, bytes).unwrap();
        }
        WithoutRows => {
            let name = path.file_name().unwrap();
            fs::copy(empty_table.join(name), path).unwrap();
        }
        Unreadable => mode(0),
        OtherOwner => std::os::unix::fs::chown(path, Some(65534), None).unwrap(),
        GroupWrites => mode(0o620),
        OthersWrite => mode(0o602),
        Link => {
            let moved = path.with_extension("moved");
            fs::rename(path, &moved).unwrap();
            std::os::unix::fs::symlink(moved, path).unwrap();
        }
        Fifo => {
            fs::remove_file(path).unwrap();
            let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: the path is a valid C string during the call.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        }
    }
}

/// Starts a module as `evermap sandbox run` does.
fn run(fixture: &Fixture, module: &str) -> Result<(), Error> {
    // A new sandbox has not read the files yet, like a new process.
    let sandbox = evermap_wasm::Sandbox::open(fixture.store()).unwrap();
    let id: ApplicationId = "app".parse().unwrap();
    let key = KeyRing::of_store(sandbox.store().path()).enter(sandbox.access(), &id)?;
    let application = sandbox.application(id, key)?;
    let module = sandbox.compile("module", module.as_bytes()).unwrap();
    sandbox.start(&module, &application, &GuestOptions::new()).map(drop)
}

fn key_of(fixture: &Fixture) -> Option<SecretKey> {
    KeyRing::of_store(fixture.store()).find(&"app".parse().unwrap()).unwrap()
}

const BOUND: &str = "(module)";
const STRANGER: &str = "(module (memory 1))";

#[test]
fn an_unbound_module_is_refused_with_a_remedy_in_every_state_of_the_two_files() {
    // Files of a store that has only another application.
    let empty = Fixture::new();
    let nobody: ApplicationId = "nobody".parse().unwrap();
    KeyRing::of_store(empty.store()).enter(empty.sandbox.access(), &nobody).unwrap();
    let pairs = STATES.iter().flat_map(|access| STATES.map(|keys| [*access, keys]));
    let more = MORE_STATES.iter().flat_map(|state| [[*state, Whole], [Whole, *state]]);
    for states in pairs.chain(more) {
        {
            let [access, keys] = states;
            let needs_root = states.contains(&OtherOwner);
            if needs_root && !is_root() {
                continue;
            }
            let fixture = Fixture::new();
            run(&fixture, BOUND).unwrap();
            let identity = fixture.sandbox.compile("a", BOUND.as_bytes()).unwrap();
            let binding = ModuleBinding::module(identity.identity());
            fixture.sandbox.access().bind(&"app".parse().unwrap(), binding).unwrap();
            let key = key_of(&fixture).unwrap();
            for (file, state) in FILES.into_iter().zip(states) {
                put_into(&fixture.store().join(file), state, empty.store());
            }
            // Root can read a file of mode 0.
            let harmless = |state| state == Whole || state == Unreadable && is_root();
            let refused = run(&fixture, STRANGER);
            // Neither file has the application, as in a new store, so it is a new application. None
            // of the first application's objects opens for it.
            let forgotten =
                [[Missing, Missing], [WithoutRows, Missing], [WithoutRows, WithoutRows]];
            if forgotten.contains(&states) {
                refused.unwrap();
                assert_ne!(key_of(&fixture), Some(key));
                continue;
            }
            let error = refused.expect_err(&format!("{states:?}"));
            if harmless(access) && harmless(keys) {
                assert!(matches!(error, Error::NotBound { .. }), "{error}");
                run(&fixture, BOUND).unwrap();
                continue;
            }
            run(&fixture, BOUND).expect_err(&format!("{states:?}: the bound module"));
            let words = error.to_string();
            assert!(!words.contains("move it away"), "{words}");
            match error {
                Error::UnsafeTable { remedy, .. } => {
                    let command = if states.contains(&OtherOwner) { "ch" } else { "chmod go-w " };
                    assert!(remedy.starts_with(command), "{states:?}: {remedy}");
                }
                Error::DamagedTable { .. }
                | Error::MissingTable { .. }
                | Error::IncompleteApplication { .. } => {
                    assert!(words.contains("from a backup"), "{states:?}: {words}");
                }
                // Links are not followed, and the kernel reports unreadable files.
                Error::Io { .. } => {
                    let by_kernel = states.contains(&Link) || states.contains(&Unreadable);
                    assert!(by_kernel, "{states:?}: {words}");
                }
                other => panic!("{states:?}: {other}"),
            }
        }
    }
    if !is_root() {
        eprintln!("SKIPPED: files of another owner: only root can make them");
    }
}

#[test]
fn the_commands_in_error_messages_repair_the_files() {
    let fixture = Fixture::new();
    run(&fixture, BOUND).unwrap();
    let store = fixture.store();
    let mut broken = vec![
        (store.join(FILES[0]), 0o666),
        (store.join(FILES[1]), 0o660),
        (store.to_path_buf(), 0o770),
        (store.to_path_buf(), 0o707),
    ];
    if is_root() {
        broken.push((store.join(FILES[0]), 0));
        broken.push((store.join(FILES[1]), 0));
        broken.push((store.to_path_buf(), 0));
    }
    for (path, mode) in broken {
        match mode {
            0 => std::os::unix::fs::chown(&path, Some(65534), None).unwrap(),
            mode => fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap(),
        }
        let Err(Error::UnsafeTable { remedy, path: named, .. }) = run(&fixture, BOUND) else {
            panic!("{path:?} is accepted");
        };
        assert_eq!(named, path);
        let done = std::process::Command::new("sh").args(["-c", &remedy]).status().unwrap();
        assert!(done.success(), "{remedy}");
        run(&fixture, BOUND).unwrap_or_else(|e| panic!("after `{remedy}`: {e}"));
    }
}

#[test]
fn files_in_a_shared_directory_with_the_sticky_bit_are_accepted() {
    let fixture = Fixture::new();
    run(&fixture, BOUND).unwrap();
    fs::set_permissions(fixture.store(), Permissions::from_mode(0o1777)).unwrap();
    run(&fixture, BOUND).unwrap();
}

#[test]
fn no_module_runs_after_the_table_was_removed_while_its_host_runs() {
    let fixture = Fixture::new();
    run(&fixture, BOUND).unwrap();
    let id: ApplicationId = "app".parse().unwrap();
    let table = fixture.sandbox.access();
    table.bind(&id, ModuleBinding::Sha256("0".repeat(64))).unwrap();
    assert!(table.bindings(&id).is_ok());
    fs::remove_file(fixture.store().join(FILES[0])).unwrap();
    assert!(matches!(table.bindings(&id), Err(Error::MissingTable { .. })));
    assert!(matches!(table.read(), Err(Error::MissingTable { .. })), "`list` reports it");
}
