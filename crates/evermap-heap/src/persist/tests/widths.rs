//! Tests of objects of native programs and of guests, whose pointers have four bytes.

use crate::{PBTree, PBox, PMap, PString, PTextMap, PVec, Ptr, type_description, type_id};

/// Descriptions of both, for types whose layout differs and for some whose layout does not.
fn texts() -> [(&'static str, &'static str, &'static str); 8] {
    [
        (type_description::<u64>(), "u64#8/8", "u64#8/8;*#4/4"),
        (type_description::<PString>(), "PString#24/8", "PString#24/8;*#4/4"),
        (type_description::<PTextMap>(), "PTextMap#88/8", "PTextMap#88/8;*#4/4"),
        (type_description::<PVec<u8>>(), "PVec<u8>#24/8", "PVec<u8>#24/8;*#4/4"),
        (type_description::<PBTree<u8, u8>>(), "PBTree<u8,u8>#24/8", "PBTree<u8,u8>#24/8;*#4/4"),
        (type_description::<PMap<u8, u8>>(), "PMap<u8,u8>#40/8", "PMap<u8,u8>#32/8;*#4/4"),
        (type_description::<PBox<u8>>(), "PBox<u8>#8/8", "PBox<u8>#4/4;*#4/4"),
        (type_description::<Ptr<u8>>(), "Ptr<u8>#8/8", "Ptr<u8>#4/4;*#4/4"),
    ]
}

#[test]
fn descriptions_contain_the_pointer_size_unless_it_is_eight() {
    for (text, native, guest) in texts() {
        assert_eq!(text, if cfg!(target_family = "wasm") { guest } else { native });
    }
}

#[test]
fn guest_types_and_native_types_have_different_ids() {
    let id = |text: &str| xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes();
    for (_, native, guest) in texts() {
        assert_ne!(id(native), id(guest));
    }
    let own = if cfg!(target_family = "wasm") { "PVec<u8>#24/8;*#4/4" } else { "PVec<u8>#24/8" };
    assert_eq!(type_id::<PVec<u8>>().0, id(own));
}
