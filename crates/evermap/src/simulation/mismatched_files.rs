//! Files that do not belong together: a log that is missing, belongs to another object, or is older
//! or newer than the object.

use std::path::Path;

use super::disk::SimulatedDisk;
use super::image::Image;
use super::runner::{Runner, Step, StepError, fresh_image};
use super::state::Edit;
use super::subject::{LOG, OBJECT, Worker};
use super::versions::Medium;
use crate::error::Error;
use crate::mutate::{Mutant, disable};
use crate::storage::{OpenMode, Storage};

use Step::*;

const FEW: Step = Change(Edit::Lines { blocks: 2, lines: 2 });
const BEGINNING: &[Step] = &[Make { room: 64 * 1024 }, Open, FEW, Commit];

/// Runs these steps and returns the disk after a kill.
fn killed_after(worker: &Worker, steps: &[&[Step]]) -> Image {
    let mut runner = Runner::new(worker, fresh_image(Medium::DISK), 5);
    steps.iter().for_each(|steps| runner.run(steps).unwrap());
    runner.disk.image()
}

/// Replaces a file of `to` by the same file of `from`.
fn put(from: &Image, to: &Image, path: &str) -> Image {
    let (from, to) = (SimulatedDisk::new(from.clone()), SimulatedDisk::new(to.clone()));
    let source = from.open(Path::new(path), OpenMode::Read).unwrap();
    let mut bytes = vec![0; source.length().unwrap() as usize];
    source.read_at(&mut bytes, 0).unwrap();
    let target = to.open(Path::new(path), OpenMode::OpenOrCreate).unwrap();
    target.set_length(0).unwrap();
    target.write_at(&bytes, 0).unwrap();
    to.image()
}

/// Opens the object for reading and for writing, and returns both results.
fn open(worker: &Worker, image: &Image) -> Vec<Result<(), StepError>> {
    let step = |step| Runner::new(worker, image.clone(), 6).step(step);
    vec![step(Read), step(Open)]
}

#[test]
fn a_missing_log_is_reported() {
    let worker = Worker::new();
    let image = killed_after(&worker, &[BEGINNING]);
    let disk = SimulatedDisk::new(image);
    disk.remove(Path::new(LOG)).unwrap();
    for opened in open(&worker, &disk.image()) {
        assert!(matches!(opened, Err(StepError::Engine(Error::LogMissing { .. }))), "{opened:?}");
    }
}

#[test]
fn a_log_of_another_object_is_refused() {
    let mut worker = Worker::new();
    let image = killed_after(&worker, &[BEGINNING]);
    worker.uuid = [8; 16];
    let other = killed_after(&worker, &[BEGINNING, &[FEW, Commit]]);
    let mixed = put(&other, &image, LOG);
    let refused = |opened: &Result<(), StepError>| matches!(opened, Err(StepError::Engine(Error::Damaged { found, .. })) if found.contains("another object"));
    assert!(open(&worker, &mixed).iter().all(refused));
    disable(&[Mutant::LogIdentityIgnored]);
    let opened = open(&worker, &mixed);
    disable(&[]);
    assert!(!opened.iter().all(refused), "the log must be refused because of its identity");
}

#[test]
fn an_older_log_is_refused() {
    let worker = Worker::new();
    let old = killed_after(&worker, &[BEGINNING]);
    let new = killed_after(&worker, &[BEGINNING, &[FEW, Commit, Checkpoint, FEW, Commit]]);
    for opened in open(&worker, &put(&old, &new, LOG)) {
        assert!(matches!(opened, Err(StepError::Engine(Error::Damaged { .. }))), "{opened:?}");
    }
}

#[test]
fn an_older_object_is_refused() {
    let worker = Worker::new();
    let old = killed_after(&worker, &[BEGINNING]);
    let new = killed_after(&worker, &[BEGINNING, &[FEW, Commit, Checkpoint, FEW, Commit]]);
    for opened in open(&worker, &put(&old, &new, OBJECT)) {
        assert!(matches!(opened, Err(StepError::Engine(Error::Damaged { .. }))), "{opened:?}");
    }
}
