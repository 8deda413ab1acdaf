//! Maximum file size of a process (`RLIMIT_FSIZE`): reaching it is an error, and the process does
//! not get the kernel's signal. This is a separate program, because the limit applies to all its
//! threads.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::TestStore;
use evermap::tools::{
    BackupOptions, CheckOptions, ExportOptions, ImportOptions, backup, check, export, import,
};
use evermap::{Error, PVec, Result, Store, WriteOptions, from_iter, tools};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// An operation under a limit: its name for messages, and the call.
type Act = (&'static str, fn(&Path, &Store) -> Result<()>);

const ACTS: &[Act] = &[
    ("create a store", |at, _| Store::create_new(at.join("other")).map(drop)),
    ("create an object", |_, store| store.create::<PVec<u64>, _>("new", from_iter(0..30_000))),
    ("create a raw object with room", |_, store| store.create_raw_sized("raw", 3 << 20)),
    ("a batch", |_, store| {
        let mut batch = store.batch()?;
        batch.create::<u64, _>("one", 1)?;
        batch.replace::<PVec<u64>, _>("o", from_iter(0..5000))?;
        batch.commit()
    }),
    ("a commit", |_, store| {
        let mut session = store.write::<PVec<u64>>("o")?;
        session.root_mut().get_mut(0).unwrap().set(7);
        session.commit()?;
        session.close()
    }),
    ("growth", |_, store| {
        let mut session = store.write::<PVec<u64>>("o")?;
        for number in 0..200_000 {
            session.root_mut().push(number)?;
        }
        session.commit()?;
        session.close()
    }),
    ("a commit beside a reader, and a log that is full", |_, store| {
        let options = WriteOptions::new().log_bytes_max(1);
        let mut session = store.write_with::<PVec<u64>>("o", &options)?;
        for turn in 0..3 {
            session.root_mut().sort_by(|a, b| (a ^ turn).cmp(&(b ^ turn)));
            session.commit()?;
        }
        session.close()
    }),
    ("reserve", |_, store| {
        let mut session = store.write_raw("o")?;
        session.reserve(2 << 20)?;
        session.commit()?;
        session.close()
    }),
    ("shrink", |_, store| {
        let mut session = store.write::<PVec<u64>>("o")?;
        session.root_mut().truncate(10);
        session.root_mut().shrink_to_fit()?;
        session.shrink()?;
        session.close()
    }),
    ("rename", |_, store| store.rename("o", "other")),
    ("remove", |_, store| store.remove("o")),
    ("back up", |at, store| {
        backup(store.path(), at.join("backup"), &BackupOptions::new()).map(drop)
    }),
    ("export and import", |at, store| {
        let mut bytes = Vec::new();
        export(store.path(), "o", &mut bytes, &ExportOptions::new()).map_err(of_store)?;
        let imported = at.join("imported");
        Store::create_new(&imported)?;
        let report = import(&imported, &mut &bytes[..], &ImportOptions::new());
        report.map(drop).map_err(of_store)
    }),
];

/// Returns the error of the store that made a tool fail.
fn of_store(error: tools::Error) -> Error {
    match error {
        tools::Error::Store(error) => error,
        other => panic!("{other}"),
    }
}

/// Recreates a lost catalog, under a limit and then without one.
fn repair_under(bytes: u64) -> Result<()> {
    let here = TestStore::in_memory();
    here.store.create::<PVec<u64>, _>("o", from_iter(0..20_000)).unwrap();
    let (path, _directory) = here.close();
    std::fs::remove_file(path.join("catalog")).unwrap();
    limit(Some(bytes));
    let result = check(&path, &CheckOptions::new().repair(true));
    limit(None);
    check(&path, &CheckOptions::new().repair(true)).unwrap();
    assert_eq!(Store::open(&path).unwrap().list().unwrap(), ["o"], "under {bytes} bytes");
    result.map(drop)
}

fn limit(bytes: Option<u64>) {
    setrlimit(Resource::Fsize, Rlimit { current: bytes, ..getrlimit(Resource::Fsize) }).unwrap();
}

/// Returns true if the call was refused with the right error.
fn is_refused(name: &str, bytes: u64, result: Result<()>) -> bool {
    match result {
        Ok(()) => return false,
        Err(Error::FileSizeLimit { limit_bytes, .. }) => assert_eq!(limit_bytes, bytes),
        // A flush that failed and reports it.
        Err(Error::DurabilityUnknown { why, .. }) if why.contains("RLIMIT_FSIZE") => {}
        Err(other) => panic!("{name} under {bytes} bytes: {other}"),
    }
    true
}

#[test]
fn a_file_size_limit_never_kills_the_process_and_loses_nothing() {
    let mut refused = 0;
    let steps = [0, 1, 255, 4096, 8191, 12 << 10, 20 << 10, 64 << 10, 72 << 10, 160 << 10];
    for bytes in steps.into_iter().chain([400 << 10, 1 << 20, 2 << 20, 8 << 20]) {
        for (name, act) in ACTS {
            let here = TestStore::in_memory();
            here.store.create::<PVec<u64>, _>("o", from_iter(0..20_000)).unwrap();
            limit(Some(bytes));
            let result = act(here.directory.path(), &here.store);
            limit(None);
            refused += u32::from(is_refused(name, bytes, result));
            // All objects can be opened and written.
            for name in here.store.list().unwrap() {
                here.store.info(&name).unwrap();
            }
            here.store.create::<PVec<u64>, _>("afterwards", from_iter(0..100)).unwrap();
            let report = check(here.store.path(), &CheckOptions::new()).unwrap();
            assert!(report.is_clean(), "{name} under {bytes} bytes: {report:?}");
        }
        refused += u32::from(is_refused("repair", bytes, repair_under(bytes)));
    }
    assert!(refused > 50, "{refused}");
}
