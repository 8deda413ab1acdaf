//! Export of objects to files and import into other stores.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Random, TestStore};
use evermap::tools::{
    AuditOptions, CheckOptions, ExportOptions, HitKind, ImportOptions, ImportReport, audit, check,
    export, import,
};
use evermap::{ApplicationKey, Error, PMap, PString, PVec, Store, from_iter, tools};

type Words = PMap<PString, PVec<u64>>;

fn words(store: &Store, count: u64) {
    store.create::<Words, _>("words", PMap::new()).unwrap();
    let mut session = store.write::<Words>("words").unwrap();
    for number in 0..count {
        let key = format!("word {number} with more than 23 bytes");
        session.root_mut().insert(key.as_str(), from_iter(0..number)).unwrap();
    }
    session.commit().unwrap();
    session.close().unwrap();
}

#[track_caller]
fn assert_words(store: &Store, name: &str, count: u64) {
    let words = store.read::<Words>(name).unwrap();
    assert_eq!(words.len(), count as usize);
    for number in 0..count {
        let found = words.get(format!("word {number} with more than 23 bytes").as_str()).unwrap();
        assert!(found.iter().copied().eq(0..number));
    }
    drop(words);
    let report = check(store.path(), &CheckOptions::new()).unwrap();
    assert!(report.is_clean() && report.findings.is_empty(), "{:#?}", report.findings);
    assert!(audit(store.path(), name, &AuditOptions::new()).unwrap().is_clean());
}

fn exported(store: &Store, name: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let report = export(store.path(), name, &mut file, &ExportOptions::new()).unwrap();
    assert_eq!(report.bytes, file.len() as u64);
    file
}

fn imported(store: &Store, file: &[u8], name: &str) -> tools::Result<ImportReport> {
    import(store.path(), &mut &*file, &ImportOptions::new().name(name))
}

#[test]
fn an_imported_object_is_equal_at_other_addresses() {
    let one = TestStore::in_memory();
    let other = TestStore::in_memory();
    words(&one, 900);
    let file = exported(&one, "words");
    let report = imported(&other, &file, "kept").unwrap();
    assert_eq!((report.old_name.as_str(), report.object.as_str()), ("words", "kept"));
    assert_ne!(report.base_address, report.old_base_address);
    assert_eq!(report.base_address, other.info("kept").unwrap().base_address);
    let relocation = report.relocation.unwrap();
    assert!(relocation.count(HitKind::Typed) > 1_800 && relocation.moved.len() == 1);
    assert_words(&other, "kept", 900);
    // The imported object can grow.
    let mut session = other.write::<Words>("kept").unwrap();
    session.root_mut().insert("more", from_iter(0..300_000)).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    assert!(check(other.path(), &CheckOptions::new()).unwrap().is_clean());
}

#[test]
fn an_import_reuses_the_objects_own_addresses_if_they_are_free() {
    let store = TestStore::in_memory();
    words(&store, 300);
    let base = store.info("words").unwrap().base_address;
    let file = exported(&store, "words");
    let moved = imported(&store, &file, "second").unwrap();
    assert!(moved.relocation.is_some());
    store.remove("words").unwrap();
    let back = imported(&store, &file, "words").unwrap();
    assert!(back.relocation.is_none());
    assert_eq!((back.base_address, store.info("words").unwrap().base_address), (base, base));
    assert_words(&store, "words", 300);
    assert_words(&store, "second", 300);
}

#[test]
fn raw_objects_with_several_regions_and_a_key_are_exported_completely() {
    let one = TestStore::in_memory();
    let other = TestStore::in_memory();
    let key = ApplicationKey::named("audio");
    let mine = one.for_application(key);
    mine.create_raw("raw").unwrap();
    let mut session = mine.write_raw("raw").unwrap();
    let mut last = 0u64;
    // A list with nodes of many sizes, over more than one region.
    for number in 0..600u64 {
        let bytes = 16 + (number % 40) as usize * 700;
        let node = session.heap().allocate_zeroed(bytes, 8).unwrap().cast::<u64>();
        // SAFETY: a node has at least two words.
        unsafe { node.write(last) };
        // SAFETY: a node has at least two words.
        unsafe { node.add(1).write(number) };
        last = node.as_ptr() as u64;
        // SAFETY: the tag belongs to no Rust type.
        unsafe { session.set_root(Some(node.cast()), 16, [3; 16], "a list") }.unwrap();
    }
    session.commit().unwrap();
    session.close().unwrap();
    assert!(mine.info("raw").unwrap().regions.len() > 1);
    let file = exported(&one, "raw");
    let report = imported(&other, &file, "raw").unwrap();
    assert_eq!(report.relocation.unwrap().count(HitKind::Beginning), 599);
    assert!(matches!(other.read_raw("raw"), Err(Error::OtherApplication { .. })));
    let snapshot = other.for_application(key).read_raw("raw").unwrap();
    let root = snapshot.root();
    assert_eq!((root.tag, root.description.as_str()), ([3; 16], "a list"));
    let mut node = root.address.cast::<u64>().cast_const();
    for number in (0..600).rev() {
        assert!(snapshot.contains(node.addr(), 16));
        // SAFETY: a node of the object.
        assert_eq!(unsafe { *node.add(1) }, number);
        // SAFETY: a node of the object.
        node = std::ptr::with_exposed_provenance(unsafe { *node } as usize);
    }
    assert!(node.is_null());
}

#[test]
fn unallocated_memory_is_not_exported() {
    let store = TestStore::in_memory();
    store.create::<PVec<PVec<u64>>, _>("numbers", PVec::new()).unwrap();
    let mut session = store.write::<PVec<PVec<u64>>>("numbers").unwrap();
    for _ in 0..30 {
        session.root_mut().push(from_iter((0..50_000).map(|n| n * 3 + 1))).unwrap();
    }
    session.commit().unwrap();
    session.root_mut().truncate(1);
    session.commit().unwrap();
    session.close().unwrap();
    let file = exported(&store, "numbers");
    assert!((400_000..600_000).contains(&file.len()), "{} bytes", file.len());
}

#[test]
fn pointers_to_other_objects_are_refused_unless_forced() {
    let store = TestStore::in_memory();
    words(&store, 10);
    let other = store.info("words").unwrap().base_address;
    store.create_raw("raw").unwrap();
    let mut session = store.write_raw("raw").unwrap();
    let root = session.heap().allocate_zeroed(64, 8).unwrap();
    // SAFETY: inside the block.
    unsafe { root.cast::<u64>().add(3).write(other + 70_000) };
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(root), 64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let refused = export(store.path(), "raw", &mut Vec::new(), &ExportOptions::new());
    let Err(tools::Error::PointsElsewhere { count: 1, to, first, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((to.as_str(), first.as_str()), ("object `words`", "root +24"));
    let mut file = Vec::new();
    let options = ExportOptions::new().force(true);
    assert_eq!(export(store.path(), "raw", &mut file, &options).unwrap().pointers_elsewhere, 1);
    assert!(imported(&store, &file, "forced").unwrap().points_elsewhere);
}

#[test]
fn taken_or_invalid_names_are_refused_and_leave_nothing() {
    let store = TestStore::in_memory();
    words(&store, 10);
    let file = exported(&store, "words");
    let files = common::names(&store.path().join("building"));
    assert!(matches!(
        imported(&store, &file, "words"),
        Err(tools::Error::Store(Error::AlreadyExists { .. }))
    ));
    assert!(matches!(
        imported(&store, &file, "a\nb"),
        Err(tools::Error::Store(Error::InvalidName { .. }))
    ));
    let nowhere = import("/nonexistent", &mut &*file, &ImportOptions::new());
    assert!(matches!(nowhere, Err(tools::Error::Store(Error::NoStore { .. }))));
    let missing = export(store.path(), "none", &mut Vec::new(), &ExportOptions::new());
    assert!(matches!(missing, Err(tools::Error::Store(Error::NotFound { .. }))));
    assert_eq!(common::names(&store.path().join("building")), files);
    assert_eq!(store.list().unwrap(), ["words"]);
}

#[test]
fn damaged_truncated_and_foreign_files_are_typed_errors_and_leave_nothing() {
    let mut random = Random::from_environment("damaged exports");
    let store = TestStore::in_memory();
    words(&store, 60);
    let sound = exported(&store, "words");
    let is_typed = |error: &tools::Error| {
        matches!(
            error,
            tools::Error::BadExport { .. }
                | tools::Error::Store(Error::Foreign { .. } | Error::NewerFormat { .. })
        )
    };
    let mut tries: Vec<Vec<u8>> = vec![Vec::new(), b"EVEREXP".to_vec(), b"{\"json\": 1}".to_vec()];
    tries.extend((0..120).map(|_| sound[..random.below(sound.len() as u64) as usize].to_vec()));
    tries.extend([64, 4159, 4160, 4161, 4176].map(|at| sound[..at].to_vec()));
    tries.push([&sound[..], b"x"].concat());
    for _ in 0..200 {
        let mut bytes = sound.clone();
        let early = random.one_in(2);
        let limit = if early { 4300 } else { sound.len() as u64 };
        let at = random.below(limit) as usize;
        bytes[at] ^= 1 << random.below(8);
        tries.push(bytes);
    }
    // One run is missing, and one is there twice.
    let run =
        4160..4160 + 16 + 4096 * u32::from_le_bytes(sound[4168..4172].try_into().unwrap()) as usize;
    tries.push([&sound[..run.start], &sound[run.end..]].concat());
    tries.push([&sound[..run.end], &sound[run.start..]].concat());
    for bytes in tries {
        match imported(&store, &bytes, "copy") {
            Err(error) if is_typed(&error) => {}
            other => panic!("{} bytes: {other:?}", bytes.len()),
        }
    }
    assert_eq!(common::names(&store.path().join("building")), [""; 0]);
    assert_eq!(store.list().unwrap(), ["words"]);
    imported(&store, &sound, "copy").unwrap();
}
