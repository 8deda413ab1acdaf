//! Guarantees of a store within one process.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestStore;
use evermap::{Error, HeapError, PMap, PString, PVec, Persist, Store, from_iter};

#[derive(Persist)]
#[repr(C)]
struct Notes {
    lines: PVec<PString>,
    edits: u64,
}

fn add(store: &Store, name: &str, line: &str) {
    let mut session = store.write::<Notes>(name).unwrap();
    let mut root = session.root_mut();
    let mut notes = root.fields();
    notes.lines.push(line).unwrap();
    *notes.edits += 1;
    session.commit().unwrap();
    session.close().unwrap();
}

fn notes(store: &Store, name: &str) {
    store.create::<Notes, _>(name, NotesInit { lines: PVec::new(), edits: 0 }).unwrap();
}

#[test]
fn commits_are_there_after_reopening() {
    let test = TestStore::new();
    notes(&test, "diary");
    for day in ["monday", "tuesday", "wednesday"] {
        add(&test, "diary", day);
    }
    let (path, _directory) = test.close();
    let store = Store::open(&path).unwrap();
    let diary = store.read::<Notes>("diary").unwrap();
    assert_eq!(diary.lines, ["monday", "tuesday", "wednesday"]);
    assert_eq!(diary.edits, 3);
    assert!(diary.sequence() >= 4, "the creation and three commits");
}

#[test]
fn uncommitted_changes_are_discarded() {
    let test = TestStore::new();
    notes(&test, "diary");
    add(&test, "diary", "kept");
    let mut session = test.write::<Notes>("diary").unwrap();
    session.root_mut().fields().lines.push("dropped").unwrap();
    drop(session);
    let mut session = test.write::<Notes>("diary").unwrap();
    assert_eq!(session.lines, ["kept"]);
    session.root_mut().fields().lines.push("rolled back").unwrap();
    session.rollback().unwrap();
    assert_eq!(session.lines, ["kept"]);
    session.root_mut().fields().lines.push("kept too").unwrap();
    assert!(session.commit().unwrap());
    assert!(!session.commit().unwrap(), "nothing changed since");
    session.close().unwrap();
    assert_eq!(test.read::<Notes>("diary").unwrap().lines, ["kept", "kept too"]);
}

#[test]
fn rollback_undoes_growth_and_its_space_is_reused() {
    let test = TestStore::new();
    test.create::<PVec<PVec<u64>>, _>("v", PVec::new()).unwrap();
    let mut session = test.write::<PVec<PVec<u64>>>("v").unwrap();
    for round in 0..3u64 {
        for i in 0..20 {
            session.root_mut().push(from_iter(i * round..i * round + 50_000)).unwrap();
        }
        session.rollback().unwrap();
        assert!(session.is_empty());
    }
    session.root_mut().push([1, 2, 3]).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let v = test.read::<PVec<PVec<u64>>>("v").unwrap();
    assert_eq!(v[0], [1, 2, 3]);
    assert!(v.info().unwrap().file_bytes < 1 << 20, "{:?}", v.info());
}

#[test]
fn an_object_has_one_writer_or_many_readers() {
    let test = TestStore::new();
    notes(&test, "diary");
    let first = test.read::<Notes>("diary").unwrap();
    let second = test.read::<Notes>("diary").unwrap();
    assert!(std::ptr::eq(&*first, &*second), "a process maps an object once");
    assert!(matches!(test.write::<Notes>("diary"), Err(Error::Busy { .. })));
    drop(first);
    assert!(matches!(test.write::<Notes>("diary"), Err(Error::Busy { .. })));
    drop(second);
    let session = test.write::<Notes>("diary").unwrap();
    assert!(matches!(test.read::<Notes>("diary"), Err(Error::Busy { .. })));
    assert!(matches!(test.write::<Notes>("diary"), Err(Error::Busy { .. })));
    drop(session);
    test.read::<Notes>("diary").unwrap();
}

#[test]
fn a_wrong_root_type_is_refused_and_both_types_are_named() {
    #[derive(Persist)]
    #[repr(C)]
    struct Other {
        lines: PVec<PString>,
        edits: u32,
    }
    let test = TestStore::new();
    notes(&test, "diary");
    let error = test.read::<Other>("diary").err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, Error::SchemaMismatch { .. }));
    for part in ["diary", "`Notes`", "`Other`", ".edits: u64 in the object, u32 in the program"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(matches!(test.write::<u64>("diary"), Err(Error::SchemaMismatch { .. })));
}

#[test]
fn objects_are_listed_renamed_and_removed() {
    let test = TestStore::new();
    for name in ["b", "a", "ä ö ü", "...", "c"] {
        notes(&test, name);
    }
    assert_eq!(test.list().unwrap(), ["b", "a", "ä ö ü", "...", "c"]);
    add(&test, "a", "hello");
    test.rename("a", "z").unwrap();
    assert_eq!(test.read::<Notes>("z").unwrap().lines, ["hello"]);
    // The object's own file also has its name, in case the catalog is lost.
    let file = test.path().join("objects").join(test.info("z").unwrap().uuid);
    assert_eq!(std::fs::read(file).unwrap()[256..258], *b"z\0");
    assert!(matches!(test.read::<Notes>("a"), Err(Error::NotFound { .. })));
    assert!(matches!(test.rename("a", "y"), Err(Error::NotFound { .. })));
    assert!(matches!(test.rename("b", "z"), Err(Error::AlreadyExists { .. })));
    test.rename("b", "b").unwrap();
    test.remove("b").unwrap();
    assert!(matches!(test.remove("b"), Err(Error::NotFound { .. })));
    assert!(!test.contains("b").unwrap() && test.contains("z").unwrap());
    assert_eq!(test.list().unwrap(), ["ä ö ü", "...", "c", "z"]);
    let files = std::fs::read_dir(test.path().join("objects")).unwrap().count();
    assert_eq!(files, 4, "removed objects leave no files");
    assert!(matches!(test.create::<u64, _>("z", 1), Err(Error::AlreadyExists { .. })));
    assert_eq!(std::fs::read_dir(test.path().join("building")).unwrap().count(), 0);
}

#[test]
fn invalid_names_are_refused_everywhere() {
    let test = TestStore::new();
    for bad in ["", ".", "..", "a\0b", "a\nb", "x".repeat(300).as_str()] {
        let refused = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::InvalidName { .. })), "{bad:?}: {result:?}");
        };
        refused(test.create::<u64, _>(bad, 1));
        refused(test.read::<u64>(bad).map(drop));
        refused(test.write::<u64>(bad).map(drop));
        refused(test.remove(bad));
        refused(test.rename(bad, "good"));
        refused(test.info(bad).map(drop));
    }
    test.create::<u64, _>("good", 1).unwrap();
    assert!(matches!(test.rename("good", "a\nb"), Err(Error::InvalidName { .. })));
}

#[test]
fn readers_of_a_replaced_object_keep_their_version() {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", [1, 2, 3]).unwrap();
    let old = test.read::<PVec<u64>>("v").unwrap();
    test.replace::<PVec<u64>, _>("v", [7]).unwrap();
    let new = test.read::<PVec<u64>>("v").unwrap();
    assert_eq!((&**old, &**new), (&[1, 2, 3][..], &[7][..]));
    test.remove("v").unwrap();
    assert_eq!((&**old, &**new), (&[1, 2, 3][..], &[7][..]));
    let session_blocks = {
        test.create::<PVec<u64>, _>("v", [1]).unwrap();
        let _session = test.write::<PVec<u64>>("v").unwrap();
        test.replace::<PVec<u64>, _>("v", [2])
    };
    assert!(matches!(session_blocks, Err(Error::Busy { .. })));
    assert_eq!(**test.read::<PVec<u64>>("v").unwrap(), [1]);
}

#[test]
fn a_batch_appears_all_at_once_or_not_at_all() {
    let test = TestStore::new();
    test.create::<u64, _>("taken", 1).unwrap();
    let mut batch = test.batch().unwrap();
    for n in 0..200u64 {
        batch.create::<u64, _>(&format!("n{n}"), n).unwrap();
    }
    assert!(matches!(batch.create::<u64, _>("taken", 2), Err(Error::AlreadyExists { .. })));
    assert!(matches!(batch.create::<u64, _>("n7", 2), Err(Error::AlreadyExists { .. })));
    batch.replace::<u64, _>("taken", 2).unwrap();
    assert_eq!(test.list().unwrap(), ["taken"]);
    assert_eq!(*test.read::<u64>("taken").unwrap(), 1);
    batch.commit().unwrap();
    assert_eq!(test.list().unwrap().len(), 201);
    assert_eq!(*test.read::<u64>("taken").unwrap(), 2);
    assert_eq!(*test.read::<u64>("n199").unwrap(), 199);

    let mut dropped = test.batch().unwrap();
    dropped.create::<u64, _>("never", 0).unwrap();
    drop(dropped);
    // A name that another commit takes during the batch fails the whole batch.
    let mut late = test.batch().unwrap();
    late.create::<u64, _>("one", 1).unwrap();
    late.create::<u64, _>("two", 2).unwrap();
    test.create::<u64, _>("two", 0).unwrap();
    assert!(matches!(late.commit(), Err(Error::AlreadyExists { .. })));
    assert!(!test.contains("one").unwrap() && !test.contains("never").unwrap());
    assert_eq!(std::fs::read_dir(test.path().join("building")).unwrap().count(), 0);
}

#[test]
fn a_failed_creation_leaves_nothing() {
    struct Failing;
    #[derive(Debug, Persist)]
    #[repr(C)]
    struct Root {
        words: PVec<PString>,
    }
    impl evermap::Build<Failing> for Root {
        fn build<'a>(
            _: Failing,
            slot: evermap::Slot<'a, Self>,
        ) -> Result<evermap::Built<'a, Self>, HeapError> {
            slot.write_with(Root { words: PVec::new() }, |mut root| {
                root.fields().words.push("one")?;
                Err(HeapError::CapacityOverflow { what: "the test" })
            })
        }
    }
    let test = TestStore::new();
    let result = test.create::<Root, _>("root", Failing);
    assert!(matches!(result, Err(Error::CapacityOverflow { .. })));
    assert!(test.list().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(test.path().join("building")).unwrap().count(), 0);
}

#[test]
fn an_object_grows_over_several_regions_and_reopens() {
    let test = TestStore::new();
    test.create::<PVec<PVec<u64>>, _>("v", PVec::new()).unwrap();
    let mut session = test.write::<PVec<PVec<u64>>>("v").unwrap();
    for round in 0..40u64 {
        for i in 0..16u64 {
            session.root_mut().push(from_iter(round * i..round * i + 4000)).unwrap();
        }
        session.commit().unwrap();
    }
    let info = session.info().unwrap();
    assert!(info.regions.len() >= 3, "{:?}", info.regions);
    session.close().unwrap();
    let (path, _directory) = test.close();
    let store = Store::open(path).unwrap();
    let v = store.read::<PVec<PVec<u64>>>("v").unwrap();
    assert_eq!(v.len(), 640);
    for (n, inner) in v.iter().enumerate() {
        let (round, i) = (n as u64 / 16, n as u64 % 16);
        assert!(inner.len() == 4000 && inner[0] == round * i && inner[3999] == round * i + 3999);
    }
}

#[test]
fn a_store_adds_arenas_when_the_first_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let options = evermap::Options::new().arena_bytes(1 << 30);
    let store = options.create_new(&path).unwrap();
    // Capacity is reserved in doubling steps: a few objects of some MiB use up a GiB of addresses.
    let mut names = Vec::new();
    for n in 0..40u64 {
        let name = format!("v{n}");
        let mut batch = store.batch().unwrap();
        batch.replace_sized::<PVec<u64>, _>(&name, [n], 30 << 20).unwrap();
        batch.commit().unwrap();
        names.push(name);
    }
    let bases: Vec<u64> = names.iter().map(|n| store.info(n).unwrap().base_address).collect();
    let arenas: std::collections::BTreeSet<u64> = bases.iter().map(|b| b >> 30).collect();
    assert!(arenas.len() >= 2, "{arenas:?}");
    drop(store);
    let store = Store::open(&path).unwrap();
    for (n, name) in names.iter().enumerate() {
        assert_eq!(**store.read::<PVec<u64>>(name).unwrap(), [n as u64]);
    }
}

#[test]
fn addresses_of_removed_objects_are_reused_when_no_others_are_free() {
    let directory = tempfile::tempdir().unwrap();
    let options = evermap::Options::new().arena_bytes(1 << 30);
    let store = options.create_new(directory.path().join("store")).unwrap();
    let mut bases = std::collections::BTreeSet::new();
    for round in 0..100u64 {
        let mut batch = store.batch().unwrap();
        batch.replace_sized::<PVec<u64>, _>("v", [round], 60 << 20).unwrap();
        batch.commit().unwrap();
        bases.insert(store.info("v").unwrap().base_address >> 30);
    }
    assert_eq!(bases.len(), 1, "all use one arena: {bases:?}");
}

#[test]
fn a_map_of_ten_thousand_strings_survives_edits_in_many_sessions() {
    let test = TestStore::new();
    test.create::<PMap<PString, u64>, _>("m", PMap::new()).unwrap();
    for session_number in 0..10u64 {
        let mut session = test.write::<PMap<PString, u64>>("m").unwrap();
        for i in 0..1000u64 {
            let key = format!("key {}", session_number * 1000 + i);
            session.root_mut().insert(key.as_str(), i).unwrap();
        }
        session.commit().unwrap();
        for i in 0..1000u64 {
            if i % 4 == 0 {
                let key = format!("key {}", session_number * 1000 + i);
                session.root_mut().remove(key.as_str());
            }
        }
        session.commit().unwrap();
        session.close().unwrap();
    }
    let (path, _directory) = test.close();
    let map = Store::open(path).unwrap().read::<PMap<PString, u64>>("m").unwrap();
    assert_eq!(map.len(), 7500);
    for n in 0..10_000u64 {
        let expected = (n % 1000 % 4 != 0).then_some(n % 1000);
        assert_eq!(map.get(format!("key {n}").as_str()).copied(), expected);
    }
}

#[test]
fn threads_of_one_process_share_a_store() {
    let test = TestStore::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = test.store.clone();
            scope.spawn(move || {
                for i in 0..10 {
                    let name = format!("{thread}-{i}");
                    store.create::<PVec<u64>, _>(&name, [thread, i]).unwrap();
                    assert_eq!(**store.read::<PVec<u64>>(&name).unwrap(), [thread, i]);
                    if i % 2 == 0 {
                        store.remove(&name).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(test.list().unwrap().len(), 20);
}

#[test]
fn snapshots_opened_and_closed_by_many_threads_never_meet_an_address_conflict() {
    let test = TestStore::new();
    test.create::<u64, _>("n", 7).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let store = test.store.clone();
            scope.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(*store.read::<u64>("n").unwrap(), 7);
                }
            });
        }
    });
}

#[test]
fn a_store_closed_by_one_thread_can_be_opened_by_another_at_once() {
    let test = TestStore::new();
    test.create::<u64, _>("n", 7).unwrap();
    let (path, _directory) = test.close();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..200 {
                    let store = Store::open(path).unwrap();
                    assert_eq!(*store.read::<u64>("n").unwrap(), 7);
                }
            });
        }
    });
}

#[test]
fn a_store_is_created_once_and_only_in_an_empty_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/store");
    assert!(matches!(Store::open(&path), Err(Error::NoStore { .. })));
    let store = Store::create_new(&path).unwrap();
    assert!(matches!(Store::create_new(&path), Err(Error::StoreExists { .. })));
    store.create::<u64, _>("n", 1).unwrap();
    let again = Store::open_or_create(&path).unwrap();
    assert_eq!(again.list().unwrap(), ["n"]);
    let occupied = directory.path().join("occupied");
    std::fs::create_dir(&occupied).unwrap();
    std::fs::write(occupied.join("letter.txt"), "dear").unwrap();
    assert!(matches!(Store::create_new(&occupied), Err(Error::StoreExists { .. })));
    assert!(matches!(Store::open(&occupied), Err(Error::NoStore { .. })));
    assert!(matches!(Store::open_or_create(&occupied), Err(Error::StoreExists { .. })));
    let file = occupied.join("letter.txt");
    assert!(matches!(Store::open(&file), Err(Error::NoStore { .. })));
    assert!(matches!(Store::create_new(&file), Err(Error::StoreExists { .. })));
}
