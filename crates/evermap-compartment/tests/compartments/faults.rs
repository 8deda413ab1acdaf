//! Accesses without a right, each in a process that dies of it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;

use evermap::{Access, Store};
use evermap_compartment::compartments::{self, Class, assign, report_faults, spawn};

use super::{get, object, put, store, this_program};

/// Starts a process that makes a forbidden access. Checks that it dies of SIGSEGV with the text
/// `said` on standard error.
fn faults_at(place: &str, printed: &str) {
    let (directory, store) = store();
    drop(store);
    let path = directory.path().join("store");
    let output = this_program(&["--fault", place, path.to_str().unwrap()]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{place}: {error}");
    assert!(error.contains("evermap: fault: 0x"), "{place}: {error}");
    assert!(error.contains(printed), "{place}: {error}");
    let report = evermap::tools::check(&path, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let store = Store::open(&path).unwrap();
    let snapshot = store.read_raw("words").unwrap();
    // SAFETY: the root is a number.
    assert_eq!(unsafe { *snapshot.root().address.cast::<u64>() }, 7, "{place}");
}

pub fn named() {
    for (place, printed) in [
        ("load", "object `words`; the thread is in no class, which may not touch it"),
        ("store", "object `words`; the thread is in no class, which may not touch it"),
        ("foreign", "object `words`; the thread is in class `viewer`, which may not touch it"),
        ("read-only", "object `words`; the thread is in class `indexer`, which may only read it"),
        ("after", "object `words`; the thread is in no class"),
        ("thread", "object `words`; the thread is in no class"),
        ("allocating", "object `words`; the thread is in class `viewer`, which may not touch it"),
        ("snapshot", "object `pages`; the thread is in class `viewer`, which may not touch it"),
    ] {
        faults_at(place, printed);
    }
}

pub fn gained() {
    for place in ["grown", "region", "grown-committed"] {
        faults_at(place, "object `words`; the thread is in no class, which may not touch it");
    }
}

pub fn touch(place: &str, path: &Path) -> ExitCode {
    let store = Store::open(path).unwrap();
    drop(object(&store, "pages"));
    let mut words = object(&store, "words");
    let [parser, viewer, indexer] =
        ["parser", "viewer", "indexer"].map(|name| Class::define(name).unwrap());
    assign(&mut words, &[(parser, Access::Write), (indexer, Access::Read)]).unwrap();
    report_faults().unwrap();
    let address = words.root().address as usize;
    assert!(compartments::describe_fault(address, None).unwrap().certain);
    assert!(compartments::describe_fault(0x1000, None).is_none());
    match place {
        "load" => drop(get(&words)),
        "store" => put(&words, 9),
        "foreign" => {
            let _inside = viewer.enter();
            get(&words);
        }
        "read-only" => {
            let _inside = indexer.enter();
            assert_eq!(get(&words), 7);
            put(&words, 9);
        }
        "after" => {
            drop(parser.enter());
            put(&words, 9);
        }
        "thread" => {
            let _inside = parser.enter();
            // SAFETY: unsound on purpose. The thread has no right to this memory, so the load
            // faults.
            let load = move || unsafe { (address as *const u64).read_volatile() };
            let _ = spawn(load).unwrap().join();
        }
        "allocating" => {
            let _inside = viewer.enter();
            let _ = words.heap().allocate(100_000, 16);
        }
        "snapshot" => {
            let mut pages = store.read_raw("pages").unwrap();
            assign(&mut pages, &[(indexer, Access::Read)]).unwrap();
            let _inside = viewer.enter();
            // SAFETY: unsound on purpose. The class has no right to this memory, so the load
            // faults.
            unsafe { pages.root().address.read_volatile() };
        }
        "grown" | "region" | "grown-committed" => {
            let inside = parser.enter();
            let bytes = if place == "region" { 60 << 20 } else { 700 << 10 };
            let block = words.heap().allocate_zeroed(bytes, 16).unwrap();
            if place == "grown-committed" {
                words.commit().unwrap();
            }
            drop(inside);
            // SAFETY: unsound on purpose. The thread has no right to this memory, so the store
            // faults.
            unsafe { block.add(bytes - 8).write_volatile(9) };
        }
        other => panic!("no such place: {other}"),
    }
    println!("the access did not fault");
    ExitCode::FAILURE
}
