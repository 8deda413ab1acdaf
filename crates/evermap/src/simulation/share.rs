//! A shared object on the simulated disk: each call of a commit fails in turn, and readers arrive
//! at each call.
//!
//! Promise: by default a reader sees only acknowledged states, and a state that it saw survives
//! reopening. With `EarlyRead`, readers run during the flush.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::disk::{Failure, Fault, SimulatedDisk};
use super::image::Image;
use super::store::new_window;
use super::versions::Medium;
use crate::error::Error;
use crate::{Options, PVec, Reads, ShareOptions, Shared, Store};

const NUMBERS: usize = 2_000;
/// States 0 and 1 are committed before any fault.
const LAST_COMMITTED: u64 = 1;

struct Program {
    disk: SimulatedDisk,
    options: Options,
    store: Store,
    shared: Shared<PVec<u64>>,
}

fn start(reads: Reads) -> Program {
    let disk = SimulatedDisk::new(Image::new(Medium::DISK));
    let options = Options { storage: Arc::new(disk.clone()), ..Options::new() };
    let options = options.window(new_window()).arena_bytes(1);
    let store = options.create_new("/store").unwrap();
    store.create::<PVec<u64>, _>("v", vec![0; NUMBERS]).unwrap();
    let shared = store.share_with("v", &ShareOptions::new().reads(reads)).unwrap();
    let program = Program { disk, options, store, shared };
    let mut writer = program.shared.write().unwrap();
    store_state(&mut writer, LAST_COMMITTED);
    writer.commit().unwrap();
    drop(writer);
    program
}

/// Each state is longer than the previous one, so that commits also grow the object.
fn store_state(writer: &mut crate::SharedWrite<'_, PVec<u64>>, n: u64) {
    writer.root_mut().as_mut_slice().fill(n);
    writer.root_mut().resize(NUMBERS + 20_000 * n as usize, n).unwrap();
}

fn state_of(numbers: &PVec<u64>) -> u64 {
    let first = numbers[0];
    assert!(numbers.iter().all(|n| *n == first), "a torn state");
    assert!(numbers.len() == NUMBERS + 20_000 * first as usize, "a torn length");
    first
}

/// Returns the state after everything is closed and reopened on a working disk.
fn reopened(program: Program) -> u64 {
    let Program { disk, options, store, shared } = program;
    disk.fail(None);
    // Data of the failed flush may be lost from the cache.
    disk.forget_failed_flushes();
    let _ = shared.close();
    drop(store);
    state_of(&options.open("/store").unwrap().read::<PVec<u64>>("v").unwrap())
}

/// Commits state 2 with a fault. Returns whether the commit succeeded, and the state that the next
/// reader sees, or `None` if reading is refused.
fn commit_with(program: &Program, fault: Fault) -> (bool, Option<u64>) {
    program.disk.fail(Some(fault));
    let mut writer = program.shared.write().unwrap();
    writer.root_mut().as_mut_slice().fill(2);
    // Growing makes calls too, and one of them may fail.
    let stored = writer.root_mut().resize(NUMBERS + 40_000, 2);
    let committed = stored.is_ok() && writer.commit().is_ok();
    drop(writer);
    match program.shared.read() {
        Ok(reader) => (committed, Some(state_of(&reader))),
        Err(Error::DurabilityUnknown { .. }) => (committed, None),
        Err(other) => panic!("a read after a failed commit: {other}"),
    }
}

fn calls_of_a_commit(reads: Reads) -> (usize, usize) {
    let program = start(reads);
    let before = program.disk.calls().len();
    let mut writer = program.shared.write().unwrap();
    store_state(&mut writer, 2);
    writer.commit().unwrap();
    drop(writer);
    (before, program.disk.calls().len())
}

#[test]
fn readers_after_a_failed_commit_see_an_acknowledged_state_or_an_error() {
    let mut refused = 0;
    for reads in [Reads::Acknowledged, Reads::EarlyRead] {
        let (first, last) = calls_of_a_commit(reads);
        assert!(last > first);
        for at_call in first..last {
            for (failure, persistent) in
                [(Failure::Device, false), (Failure::Full, true), (Failure::Short, false)]
            {
                let program = start(reads);
                let (committed, seen) =
                    commit_with(&program, Fault { at_call, failure, persistent });
                let found = reopened(program);
                let case = format!("{reads:?}, call {at_call}, {failure:?}");
                assert!(found == LAST_COMMITTED || found == 2, "{case}: {found} was found");
                match seen {
                    Some(seen) => {
                        assert_eq!(seen, if committed { 2 } else { LAST_COMMITTED }, "{case}");
                        assert!(found >= seen, "{case}: {seen} was seen, {found} was found");
                    }
                    None => refused += 1,
                }
            }
        }
    }
    assert!(refused > 0, "no fault was a failed flush");
}

/// Returns the state that it saw, and whether the commit was acknowledged by then.
type Reader = JoinHandle<(u64, bool)>;

/// Starts a reader at each call of a commit. Returns the state that each reader saw, and whether
/// the commit was acknowledged by then.
fn read_at_every_call(reads: Reads, wait_for_each: bool) -> Vec<(u64, bool)> {
    let program = start(reads);
    let acknowledged = Arc::new(AtomicBool::new(false));
    let readers: Arc<Mutex<Vec<Reader>>> = Arc::default();
    let inside = Arc::new(AtomicU64::new(0));
    let mut writer = program.shared.write().unwrap();
    store_state(&mut writer, 2);
    let (shared, done) = (program.shared.clone(), Arc::clone(&acknowledged));
    let (list, during) = (Arc::clone(&readers), Arc::clone(&inside));
    program.disk.before_each(Some(Box::new(move || {
        let (shared, done, during) = (shared.clone(), Arc::clone(&done), Arc::clone(&during));
        let reader = std::thread::spawn(move || {
            let reader = shared.read().unwrap();
            let seen = (state_of(&reader), done.load(Ordering::SeqCst));
            during.fetch_add(1, Ordering::SeqCst);
            seen
        });
        if wait_for_each {
            // The reader finishes although the commit is still in progress.
            let seen = reader.join().unwrap();
            list.lock().unwrap().push(std::thread::spawn(move || seen));
        } else {
            list.lock().unwrap().push(reader);
        }
    })));
    writer.commit().unwrap();
    acknowledged.store(true, Ordering::SeqCst);
    program.disk.before_each(None);
    drop(writer);
    let readers = std::mem::take(&mut *readers.lock().unwrap());
    readers.into_iter().map(|reader| reader.join().unwrap()).collect()
}

#[test]
fn readers_that_arrive_during_a_commit_wait_for_its_acknowledgement() {
    let seen = read_at_every_call(Reads::Acknowledged, false);
    assert!(seen.len() > 2, "{} calls", seen.len());
    assert!(seen.iter().all(|seen| *seen == (2, true)), "{seen:?}");
}

#[test]
fn early_readers_run_during_every_call_of_a_commit() {
    let seen = read_at_every_call(Reads::EarlyRead, true);
    assert!(seen.len() > 2, "{} calls", seen.len());
    assert!(seen.iter().all(|seen| *seen == (2, false)), "{seen:?}");
}
