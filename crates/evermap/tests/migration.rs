//! Objects that an older version of the program created.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestStore;
use evermap::{
    Error, HeapError, Migrations, PBTree, PBox, PMap, PString, PVec, Persist, from_iter,
};

#[derive(Persist)]
#[repr(C)]
#[persist(name = "Diary")]
struct Diary1 {
    lines: PVec<PString>,
    owner: PString,
}

#[derive(Persist)]
#[repr(C)]
#[persist(name = "Diary")]
struct Diary2 {
    days: PBTree<u32, PString>,
    owner: PString,
    words: PMap<PString, u64>,
}

/// Too large for the object's first page.
#[derive(Persist)]
#[repr(C)]
struct Diary {
    years: PVec<PBox<PBTree<u32, PString>>>,
    owner: PString,
    space: [u64; 1000],
}

fn store() -> TestStore {
    let test = TestStore::in_memory();
    let lines: Vec<String> =
        (0..500).map(|n| format!("line {n} of a diary of 500 lines")).collect();
    test.store.create::<Diary1, _>("diary", Diary1Init { lines, owner: "me" }).unwrap();
    test
}

fn steps() -> Migrations {
    Migrations::new()
        .step::<Diary1, Diary2>(|old, slot| {
            let old = old.into_fields();
            let lines = old.lines.into_ref().iter().map(|line| line.as_str());
            slot.build(Diary2Init {
                days: from_iter((1..).zip(lines)),
                owner: old.owner.detach(),
                words: [("line", 500)],
            })
        })
        .step::<Diary2, Diary>(|old, slot| {
            let mut old = old.into_fields();
            slot.write_with(
                Diary { years: PVec::new(), owner: PString::new(), space: [7; 1000] },
                |mut new| {
                    let mut new = new.fields();
                    new.owner.assign(old.owner.detach())?;
                    new.years.push(old.days.reborrow().detach())?;
                    Ok(())
                },
            )
        })
}

fn assert_newest(diary: &Diary) {
    assert_eq!(diary.owner, "me");
    assert_eq!(diary.years[0].len(), 500);
    assert_eq!(diary.years[0][&500], "line 499 of a diary of 500 lines");
    assert!(diary.space == [7; 1000]);
}

#[test]
fn an_object_is_brought_up_to_date_in_one_commit() {
    let test = store();
    let store = &test.store;
    let before = store.read::<Diary1>("diary").unwrap().sequence();
    let mut session = store.write_migrating::<Diary>("diary", &steps()).unwrap();
    assert_eq!(session.sequence(), before + 1);
    assert_newest(&session);
    // The session continues as usual, and a rollback does not restore the old type.
    session.root_mut().fields().owner.push_str("?").unwrap();
    session.rollback().unwrap();
    assert_newest(&session);
    session.close().unwrap();

    let snapshot = store.read::<Diary>("diary").unwrap();
    assert_newest(&snapshot);
    drop(snapshot);
    let again = store.write_migrating::<Diary>("diary", &steps()).unwrap();
    assert_eq!(again.sequence(), before + 1, "no further commit is needed");
    drop(again);
    assert!(matches!(store.write::<Diary1>("diary"), Err(Error::SchemaMismatch { .. })));
    let report = evermap::tools::check(test.path(), &evermap::tools::CheckOptions::new());
    assert!(report.as_ref().is_ok_and(|report| report.is_clean()), "{report:?}");
}

#[test]
fn parts_of_the_old_root_that_were_not_moved_are_freed() {
    let test = store();
    let store = &test.store;
    let session = store.write_migrating::<Diary>("diary", &steps()).unwrap();
    // The root, the list, the box, the owner; 500 lines and their nodes; but no word map and no old
    // lines.
    let blocks = session.info().unwrap().heap.blocks;
    let nodes = 500 / 15 + 5;
    assert!((504..=504 + nodes as u64).contains(&blocks), "{blocks}");
}

#[test]
fn a_migration_that_fails_changes_nothing() {
    let test = store();
    let store = &test.store;
    let before = store.read::<Diary1>("diary").unwrap().sequence();
    let failing = Migrations::new().step::<Diary1, Diary2>(|old, slot| {
        let old = old.into_fields();
        slot.write_with(
            Diary2 { days: PBTree::new(), owner: PString::new(), words: PMap::new() },
            |mut new| {
                new.fields().owner.assign(old.owner.detach())?;
                new.fields().days.insert(1, "x")?;
                Err(HeapError::CapacityOverflow { what: "on purpose" })
            },
        )
    });
    let error = store.write_migrating::<Diary2>("diary", &failing).map(drop).unwrap_err();
    assert!(matches!(error, Error::CapacityOverflow { .. }), "{error}");
    let panicking = Migrations::new().step::<Diary1, Diary2>(|old, _| {
        drop(old.into_fields().owner.detach());
        panic!("on purpose")
    });
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = store.write_migrating::<Diary2>("diary", &panicking);
    }));
    assert!(panicked.is_err());
    let diary = store.read::<Diary1>("diary").unwrap();
    assert_eq!((diary.owner.as_str(), diary.lines.len()), ("me", 500));
    assert_eq!(diary.sequence(), before);
}

#[test]
fn without_a_migration_path_the_error_names_the_fields() {
    let test = store();
    let store = &test.store;
    let only_later = Migrations::new().step::<Diary2, Diary>(|_, _| unreachable!());
    let error = store.write_migrating::<Diary>("diary", &only_later).map(drop).unwrap_err();
    let Error::SchemaMismatch { difference, .. } = &error else { panic!("{error}") };
    let told: Vec<String> = difference.changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "Diary.lines: PVec<PString>, in the object only",
            "Diary.years: PVec<PBox<PBTree<u32,PString>>>, in the program only",
            "Diary.space: [u64;1000], in the program only",
        ]
    );
    assert!(error.to_string().contains("stored: `Diary`, 48 bytes; expected: `Diary`, 8048 bytes"));
    // Cyclic steps end.
    let circle = Migrations::new()
        .step::<Diary1, Diary2>(|_, _| unreachable!())
        .step::<Diary2, Diary1>(|_, _| unreachable!());
    assert!(store.write_migrating::<Diary>("diary", &circle).is_err());
}

#[test]
fn a_detached_value_goes_into_its_own_object_only() {
    let test = store();
    let store = &test.store;
    store.create::<PVec<PString>, _>("other", [""; 0]).unwrap();
    let mut diary = store.write::<Diary1>("diary").unwrap();
    let mut other = store.write::<PVec<PString>>("other").unwrap();
    let owner = diary.root_mut().into_fields().owner.detach();
    let error = other.root_mut().push(owner).map(drop).unwrap_err();
    assert!(matches!(error, HeapError::OtherObject { what: "PString" }), "{error}");
    // It was returned to its own object.
    assert_eq!(diary.owner, "");
    diary.rollback().unwrap();
    assert_eq!(diary.owner, "me");
}
