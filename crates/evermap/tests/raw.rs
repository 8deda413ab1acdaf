//! Objects without a Rust type: roots that change with commits, application keys, and the object at
//! an address.

#![allow(clippy::unwrap_used)]

use evermap::{ApplicationKey, Error, Store};

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    (directory, store)
}

#[test]
fn a_raw_object_has_no_root_until_a_commit_gives_it_one() {
    let (_directory, store) = store();
    store.create_raw("heap").unwrap();
    assert!(store.read_raw("heap").unwrap().root().address.is_null());

    let mut session = store.write_raw("heap").unwrap();
    let block = session.heap().allocate_zeroed(100, 16).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 100, [7; 16], "a hundred bytes") }.unwrap();
    session.rollback().unwrap();
    assert!(session.root().address.is_null());

    let block = session.heap().allocate_zeroed(100, 16).unwrap();
    session.commit().unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 100, [7; 16], "a hundred bytes") }.unwrap();
    assert!(session.commit().unwrap(), "a new root alone must be committed");
    assert!(!session.commit().unwrap());
    session.close().unwrap();

    let root = store.read_raw("heap").unwrap().root();
    assert_eq!(root.address, block.as_ptr());
    assert_eq!(
        (root.bytes, root.tag, root.description.as_str()),
        (100, [7; 16], "a hundred bytes")
    );
    let report = evermap::tools::check(store.path(), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_root_outside_the_objects_blocks_is_refused() {
    let (_directory, store) = store();
    store.create_raw("one").unwrap();
    store.create_raw("two").unwrap();
    let mut one = store.write_raw("one").unwrap();
    let two = store.write_raw("two").unwrap();
    let foreign = two.heap().allocate(10, 16).unwrap();
    let freed = one.heap().allocate(1000, 16).unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { one.heap().try_free(freed) }.unwrap();
    let small = one.heap().allocate(16, 16).unwrap();
    for (root, bytes) in [(foreign, 10), (freed, 10), (small, 17)] {
        // SAFETY: the tag belongs to no Rust type.
        let refused = unsafe { one.set_root(Some(root), bytes, [0; 16], "") };
        assert!(matches!(refused, Err(Error::BadRoot { .. })), "{refused:?}");
    }
    // SAFETY: the tag belongs to no Rust type.
    unsafe { one.set_root(Some(small), 16, [0; 16], "") }.unwrap();
}

#[test]
fn a_typed_object_opens_raw_and_a_raw_one_does_not_open_typed() {
    let (_directory, store) = store();
    store.create::<u64, _>("number", 7).unwrap();
    let raw = store.read_raw("number").unwrap();
    // SAFETY: the root of this object is a `u64`.
    assert_eq!(unsafe { *raw.root().address.cast::<u64>() }, 7);
    drop(raw);
    store.create_raw("raw").unwrap();
    assert!(matches!(store.read::<u64>("raw"), Err(Error::SchemaMismatch { .. })));
    assert!(matches!(store.write::<u64>("raw"), Err(Error::SchemaMismatch { .. })));
}

#[test]
fn an_object_opens_only_for_its_own_application() {
    let (_directory, store) = store();
    let player = store.for_application(ApplicationKey::named("player"));
    let other = store.for_application(ApplicationKey::named("recorder"));
    player.create::<u64, _>("position", 7).unwrap();
    player.create_raw("frames").unwrap();
    store.create::<u64, _>("public", 1).unwrap();
    for stranger in [&store, &other] {
        assert!(matches!(stranger.read::<u64>("position"), Err(Error::OtherApplication { .. })));
        assert!(matches!(stranger.write::<u64>("position"), Err(Error::OtherApplication { .. })));
        assert!(matches!(stranger.read_raw("frames"), Err(Error::OtherApplication { .. })));
        assert!(matches!(stranger.write_raw("frames"), Err(Error::OtherApplication { .. })));
        assert_eq!(*stranger.read::<u64>("public").unwrap(), 1);
    }
    player.write_raw("frames").unwrap().close().unwrap();
    let position = player.read::<u64>("position").unwrap().refresh().unwrap();
    assert_eq!(*position, 7);
}

#[test]
fn the_object_at_an_address_is_found() {
    let (_directory, store) = store();
    store.create_raw("one").unwrap();
    store.create_raw("two").unwrap();
    let two = store.write_raw("two").unwrap();
    let block = two.heap().allocate(1 << 20, 16).unwrap().as_ptr() as usize;
    assert_eq!(store.object_at(two.info().unwrap().base_address as usize).unwrap().unwrap(), "two");
    let one = store.read_raw("one").unwrap();
    assert!(!one.contains(block, 1));
    assert_eq!(store.object_at(8).unwrap(), None);
}
