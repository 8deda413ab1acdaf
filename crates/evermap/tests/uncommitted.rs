//! A session that ends with uncommitted changes logs a warning; other sessions do not.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::TestStore;
use evermap::{Error, PVec, RawSession, Session, Store};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the number of warnings while `call` runs.
fn warnings_of(call: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Warnings(Arc::clone(&count)), call);
    count.load(Ordering::Relaxed)
}

fn store() -> TestStore {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("v", [1; 100]).unwrap();
    test.create_raw("raw").unwrap();
    test
}

type Change = (&'static str, fn(&mut Session<PVec<u64>>));
type RawChange = (&'static str, fn(&mut RawSession));

/// Every operation of a session that needs no commit.
const CHANGES: &[Change] = &[
    ("a store", |s| s.root_mut().as_mut_slice()[50] = 2),
    ("a longer vector", |s| s.root_mut().push(2).map(drop).unwrap()),
    ("a block", |s| {
        let _ = s.heap().allocate(64, 8).unwrap();
    }),
    ("growth", |s| {
        let _ = s.heap().allocate(8 << 20, 8).unwrap();
    }),
    ("a store after a commit", |s| {
        s.root_mut().as_mut_slice()[0] += 1;
        s.commit().unwrap();
        s.root_mut().as_mut_slice()[0] += 1;
    }),
];

const RAW_CHANGES: &[RawChange] = &[
    ("a block", |s| {
        let _ = s.heap().allocate(64, 8).unwrap();
    }),
    // SAFETY: the tag belongs to no Rust type.
    ("a root's description", |s| unsafe { s.set_root(None, 0, [7; 16], "none") }.unwrap()),
];

const NO_CHANGES: &[Change] = &[
    ("nothing", |_| ()),
    ("a look", |s| assert_eq!(s.len(), 100)),
    ("the same value", |s| s.root_mut().as_mut_slice()[50] = 1),
    ("a commit", |s| {
        s.root_mut().as_mut_slice()[50] = 3;
        s.commit().unwrap();
    }),
    ("a rollback", |s| {
        s.root_mut().push(4).unwrap();
        let _ = s.heap().allocate(8 << 20, 8).unwrap();
        s.rollback().unwrap();
    }),
];

fn session(store: &Store) -> Session<PVec<u64>> {
    store.write::<PVec<u64>>("v").unwrap()
}

#[test]
fn a_session_that_ends_with_uncommitted_changes_logs_a_warning() {
    for (name, change) in CHANGES {
        let test = store();
        let closed = warnings_of(|| {
            let mut session = session(&test);
            change(&mut session);
            session.close().unwrap();
        });
        let dropped = warnings_of(|| {
            let mut session = session(&test);
            change(&mut session);
            drop(session);
        });
        assert_eq!((closed, dropped), (1, 1), "{name}");
        assert!(test.read::<PVec<u64>>("v").unwrap().len() == 100, "{name}");
    }
    for (name, change) in RAW_CHANGES {
        let test = store();
        let closed = warnings_of(|| {
            let mut session = test.write_raw("raw").unwrap();
            assert!(!session.has_changes().unwrap());
            change(&mut session);
            assert!(session.has_changes().unwrap(), "{name}");
            session.close().unwrap();
        });
        assert_eq!(closed, 1, "{name}");
    }
}

#[test]
fn a_session_that_ends_without_uncommitted_changes_logs_nothing() {
    for (name, change) in NO_CHANGES {
        let test = store();
        let closed = warnings_of(|| {
            let mut session = session(&test);
            change(&mut session);
            session.close().unwrap();
        });
        assert_eq!(closed, 0, "{name}");
    }
    // A session whose object was not opened has nothing to discard.
    let test = store();
    let refused = warnings_of(|| {
        assert!(matches!(test.write::<u64>("v"), Err(Error::SchemaMismatch { .. })));
    });
    assert_eq!(refused, 0);
}

#[test]
fn a_write_section_that_ends_with_uncommitted_changes_logs_a_warning() {
    let test = store();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    let stored = warnings_of(|| shared.write().unwrap().root_mut().as_mut_slice()[0] = 9);
    let committed = warnings_of(|| {
        let mut writer = shared.write().unwrap();
        writer.root_mut().as_mut_slice()[0] = 9;
        writer.commit().unwrap();
    });
    let closed = warnings_of(|| shared.close().unwrap());
    assert_eq!((stored, committed, closed), (1, 0, 0));
}
