//! `check` and `check --repair` on failing disks, and on the leftovers of killed processes.

use super::disk::{Failure, Fault, SimulatedDisk};
use super::image::Image;
use super::store::{Program, StoreStep, new_window};
use super::versions::Medium;
use crate::error::Error;
use crate::tools::{CheckOptions, Severity, check};
use crate::{Options, PVec, Store};

fn options(disk: &SimulatedDisk) -> CheckOptions {
    CheckOptions::new().on(disk.storage())
}

/// Opens the store of a disk in its own window.
fn store(disk: &SimulatedDisk, window: crate::address::Window) -> Store {
    let storage = disk.storage();
    let options = Options { storage, ..Options::new() }.window(window).arena_bytes(1);
    options.open("/s").unwrap()
}

#[test]
fn a_killed_creation_leaves_only_leftovers_and_can_be_repeated() {
    let window = new_window();
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    program.step(StoreStep::Make).unwrap();
    let trace = program.disk.trace();
    drop(program);
    let mut before = trace.start.clone();
    let mut leftovers = 0;
    for (at, next) in trace.operations.iter().enumerate() {
        let disk = SimulatedDisk::new(before.clone());
        match check("/s", &options(&disk)) {
            // The directory is missing or empty.
            Err(Error::NoStore { .. }) => {
                assert!(disk.storage().list("/s".as_ref()).map_or(true, |n| n.is_empty()))
            }
            Err(error) => panic!("killed at {at}: {error}"),
            Ok(report) => {
                assert!(report.is_clean(), "killed at {at}: {report:?}");
                let has_catalog =
                    disk.storage().list("/s".as_ref()).unwrap().contains(&"catalog".to_string());
                let leftover = report.findings.iter().any(|f| f.severity == Severity::Leftover);
                assert!(leftover || has_catalog, "killed at {at}: no leftover is reported");
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
        assert!(report.findings.is_empty(), "killed at {at}, created again: {report:?}");
        before.apply(next);
    }
    assert!(leftovers > 8, "{leftovers}");
}

/// Disks with three objects. One was renamed, and its file still has the old name.
fn damaged_disks() -> Vec<(&'static str, Image)> {
    let window = new_window();
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    for step in [
        StoreStep::Make,
        StoreStep::Batch(&["a", "b", "c"]),
        StoreStep::Write("a"),
        StoreStep::Rename("b", "d"),
    ] {
        program.step(step).unwrap();
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
fn a_read_error_at_any_call_of_a_repair_loses_nothing() {
    let mut runs = 0;
    for (damage, image) in damaged_disks() {
        let disk = SimulatedDisk::new(image.clone());
        check("/s", &options(&disk).repair(true)).unwrap();
        let calls = disk.calls();
        let window = new_window();
        for at_call in (0..calls.len()).filter(|call| !calls[*call]) {
            let disk = SimulatedDisk::new(image.clone());
            disk.fail(Some(Fault { at_call, failure: Failure::Device, persistent: false }));
            // Either an error, or a report of the remaining problems.
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
