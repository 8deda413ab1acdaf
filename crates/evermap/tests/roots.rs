//! Pointers and lengths in a root are checked against the object's bounds before they are used.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::crc32c_of;
use evermap::{
    Build, Error, Migrations, PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, Store,
};

#[derive(Persist)]
#[repr(C)]
struct Nested {
    number: u64,
    names: [PString; 2],
    inner: Inner,
}

#[derive(Persist)]
#[repr(C)]
struct Inner {
    map: PMap<u64, u64>,
    boxed: Option<PBox<u64>>,
}

/// Writes page 0 with matching checksums, so that they do not reveal the damage.
fn write_sealed(file: &File, page: &[u8; 4096], at: usize, value: u64) {
    let mut page = *page;
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let root = crc32c_of(&page[3072..]);
    page[208..212].copy_from_slice(&root.to_le_bytes());
    let mut head = page[..3072].to_vec();
    head[248..256].fill(0);
    page[252..256].copy_from_slice(&crc32c_of(&head).to_le_bytes());
    file.write_all_at(&page, 0).unwrap();
}

/// Opens an object in every way that returns its root as a `T`.
fn opened<T: Persist>(store: &Store, name: &str) -> [evermap::Result<()>; 4] {
    [
        store.read::<T>(name).map(drop),
        store.write::<T>(name).map(drop),
        store.write_migrating::<T>(name, &Migrations::new()).map(drop),
        store.share::<T>(name).map(drop),
    ]
}

/// Creates an object whose root is a `T`, and changes each word of the root that is a pointer into
/// the object.
fn judge<T: Persist + Build<S>, S>(name: &str, source: S, pointers: usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    store.create::<T, S>(name, source).unwrap();
    let info = store.info(name).unwrap();
    let path = directory.path().join("store/objects").join(&info.uuid);
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    let inside = |value: u64| value > info.base_address && value - info.base_address < 1 << 30;
    let mut found = 0;
    for at in (3072..4096).step_by(8) {
        let value = u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
        if !inside(value) {
            continue;
        }
        found += 1;
        for bad in [1, 8, info.base_address, value ^ 1 << 40, value + (1 << 32), u64::MAX - 7] {
            write_sealed(&file, &page, at, bad);
            for opened in opened::<T>(&store, name) {
                match opened {
                    Err(Error::Damaged { what: "a pointer or a length in the root", .. }) => {}
                    other => panic!("{name}: {bad:#x} at {at}: {other:?}"),
                }
            }
        }
        write_sealed(&file, &page, at, value);
    }
    assert_eq!(found, pointers, "{name}");
    for opened in opened::<T>(&store, name) {
        opened.unwrap();
    }
}

#[test]
fn a_root_with_pointers_out_of_the_object_is_damage_for_every_type() {
    judge::<PVec<u64>, _>("vector", [1, 2, 3], 1);
    judge::<PVec<PString>, _>("strings", ["one", "two"], 1);
    judge::<PString, _>("string", "a text that is long enough for a block of its own", 1);
    judge::<PMap<PString, u64>, _>("map", [("one", 1), ("two", 2)], 2);
    judge::<PTextMap, _>("text map", [("one", "1"), ("two", "2")], 2);
    judge::<PBTree<u64, PString>, _>("tree", [(1, "one"), (2, "two")], 1);
    judge::<PBTree<u64, u64>, _>("deep tree", evermap::from_iter((0..500).map(|n| (n, n))), 1);
    judge::<PBox<u64>, _>("box", 7, 1);
    judge::<Nested, _>(
        "nested",
        NestedInit {
            number: 1,
            names: ["the first of two texts in blocks", "the second of two texts in blocks"],
            inner: InnerInit { map: [(1, 2)], boxed: Some(3) },
        },
        5,
    );
}

#[test]
fn a_root_of_the_wrong_size_names_the_objects_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    store.create::<PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    let object = directory.path().join("store/objects").join(store.info("numbers").unwrap().uuid);
    let file = File::options().read(true).write(true).open(&object).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    // The root's length in bytes.
    write_sealed(&file, &page, 112, 8);
    for opened in opened::<PVec<u64>>(&store, "numbers") {
        match opened {
            Err(Error::Damaged { path, what: "the root", .. }) => assert_eq!(path, object),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_text_in_place_of_an_impossible_length_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    store.create::<PString, _>("string", "in place").unwrap();
    let path = directory.path().join("store/objects").join(store.info("string").unwrap().uuid);
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    for length in [24, 0x80, 0xff] {
        write_sealed(&file, &page, 3072 + 16, length << 56);
        for opened in opened::<PString>(&store, "string") {
            assert!(matches!(opened, Err(Error::Damaged { .. })), "{length}: {opened:?}");
        }
    }
    write_sealed(&file, &page, 3072 + 16, 8 << 56);
    assert_eq!(*store.read::<PString>("string").unwrap(), "in place");
}
