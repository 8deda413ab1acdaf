//! `check` and `check --repair` on disks that fail, and on what killed processes leave.

use super::disk::{Failure, Fault, SimulatedDisk};
use super::image::Image;
use super::platter::Medium;
use super::store::{Act, Program, new_window};
use crate::error::Error;
use crate::tools::{CheckOptions, Severity, check};
use crate::{Options, PVec, Store};

fn options(disk: &SimulatedDisk) -> CheckOptions {
    CheckOptions::new().on(disk.storage())
}

/// The store of a disk, opened in a window of its own.
fn store(disk: &SimulatedDisk, window: crate::address::Window) -> Store {
    let storage = disk.storage();
    let options = Options { storage, ..Options::new() }.window(window).arena_bytes(1);
    options.open("/s").unwrap()
}

#[test]
fn a_creation_killed_at_any_call_is_a_leftover_and_the_next_one_goes_on() {
    let window = new_window();
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    program.act(Act::Make).unwrap();
    let trace = program.disk.trace();
    drop(program);
    let mut before = trace.start.clone();
    let mut leftovers = 0;
    for (at, next) in trace.operations.iter().enumerate() {
        let disk = SimulatedDisk::new(before.clone());
        match check("/s", &options(&disk)) {
            // Not even a directory, or an empty one.
            Err(Error::NoStore { .. }) => {
                assert!(disk.storage().list("/s".as_ref()).map_or(true, |n| n.is_empty()))
            }
            Err(error) => panic!("killed at {at}: {error}"),
            Ok(report) => {
                assert!(report.is_clean(), "killed at {at}: {report:?}");
                let has_catalog =
                    disk.storage().list("/s".as_ref()).unwrap().contains(&"catalog".to_string());
                let leftover = report.findings.iter().any(|f| f.severity == Severity::Leftover);
                assert!(leftover || has_catalog, "killed at {at}: nothing is said");
                leftovers += u32::from(leftover);
                let repaired = SimulatedDisk::new(before.clone());
                check("/s", &options(&repaired).repair(true)).unwrap();
                let report = check("/s", &options(&repaired)).unwrap();
                assert!(report.findings.is_empty(), "killed at {at}, repaired: {report:?}");
            }
        }
        let storage = disk.storage();
        let made = Options { storage, ..Options::new() }.window(window).arena_bytes(1);
        let made = made.open_or_create("/s").unwrap();
        made.create::<u64, _>("a", 1).unwrap();
        drop(made);
        let report = check("/s", &options(&disk)).unwrap();
        assert!(report.findings.is_empty(), "killed at {at}, gone on: {report:?}");
        before.happen(next);
    }
    assert!(leftovers > 8, "{leftovers}");
}

/// Disks with three objects, one of which learnt a new name that its file does not know.
fn damaged_disks() -> Vec<(&'static str, Image)> {
    let window = new_window();
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    for act in [Act::Make, Act::Batch(&["a", "b", "c"]), Act::Write("a"), Act::Rename("b", "d")] {
        program.act(act).unwrap();
    }
    let disk = program.disk.clone();
    drop(program);
    let whole = disk.image();
    let changed = |change: &dyn Fn(&SimulatedDisk)| {
        let disk = SimulatedDisk::new(whole.clone());
        change(&disk);
        disk.image()
    };
    let of_the_catalog = |disk: &SimulatedDisk, at| {
        let mode = crate::storage::OpenMode::ReadWrite;
        let catalog = disk.storage().open("/s/catalog".as_ref(), mode).unwrap();
        catalog.write_at(&[0x5a; 64], at).unwrap();
    };
    vec![
        ("nothing damaged", whole.clone()),
        ("no catalog", changed(&|disk| disk.storage().remove("/s/catalog".as_ref()).unwrap())),
        ("a damaged superblock", changed(&|disk| of_the_catalog(disk, 64))),
        ("a damaged page", changed(&|disk| of_the_catalog(disk, 16 << 12))),
    ]
}

#[test]
fn one_read_error_at_any_call_of_a_repair_loses_nothing() {
    let mut runs = 0;
    for (damage, image) in damaged_disks() {
        let disk = SimulatedDisk::new(image.clone());
        check("/s", &options(&disk).repair(true)).unwrap();
        let calls = disk.calls();
        let window = new_window();
        for at_call in (0..calls.len()).filter(|call| !calls[*call]) {
            let disk = SimulatedDisk::new(image.clone());
            disk.fail(Some(Fault { at_call, failure: Failure::Device, stays: false }));
            // An error, or a report of what is left to do.
            let first = check("/s", &options(&disk).repair(true));
            disk.fail(None);
            disk.forget_failed_flushes();
            let at = || format!("{damage}, `{}` failed ({first:?})", disk.faults().join(", "));
            if first.is_ok() && !disk.image().names.list("/s".as_ref()).is_empty() {
                let names = store(&disk, window).list().unwrap_or_default().len();
                assert!(names == 3 || names == 0, "{}: a catalog with {names} names", at());
            }
            check("/s", &options(&disk).repair(true)).unwrap_or_else(|e| panic!("{}: {e}", at()));
            let report = check("/s", &options(&disk)).unwrap();
            assert!(report.is_clean(), "{}: {report:?}", at());
            let store = store(&disk, window);
            let mut names = store.list().unwrap();
            names.sort();
            let expected = ["a", "c", "d"];
            assert!(names == expected, "{}: {names:?}", at());
            for name in names {
                assert_eq!(store.read::<PVec<u64>>(&name).unwrap().len(), 300, "{}", at());
            }
            runs += 1;
        }
    }
    assert!(runs > 100, "{runs}");
}
