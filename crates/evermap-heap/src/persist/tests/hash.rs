//! The hash is part of the file format: these values may never change.

use crate::persist::{PString, PVec, PersistHash};

#[derive(crate::PersistHash)]
#[repr(C)]
struct Pair {
    one: u16,
    other: bool,
}

#[derive(crate::PersistHash)]
#[repr(u16)]
#[allow(dead_code)]
enum Kind {
    First = 7,
    Second,
}

#[test]
fn strings_and_bytes_are_hashed_by_xxh3() {
    // From the reference implementation of xxHash.
    assert_eq!("".persist_hash(0), 0x2d06_8005_38d3_94c2);
    assert_eq!("abc".persist_hash(0), 0x78af_5f94_892f_3950);
    assert_eq!(b"abc".persist_hash(0), "abc".persist_hash(0));
    assert_eq!([97_u8, 98, 99].as_slice().persist_hash(0), "abc".persist_hash(0));
    assert_ne!("abc".persist_hash(1), "abc".persist_hash(0));
}

#[test]
fn every_length_class_of_xxh3_is_the_reference_one() {
    let bytes: Vec<u8> = (0..2000).map(|index| (index % 251) as u8).collect();
    for (len, hash) in [
        (3, 0x6db0_8023_5333_6496),
        (8, 0xd204_fc26_419c_7d22),
        (20, 0xdd93_4c12_4247_937b),
        (100, 0x40c3_f876_b151_a905),
        (200, 0xd870_55ac_2914_95ba),
        (300, 0x8894_9085_8945_9e6e),
        (2000, 0xbdf4_3a03_2846_cd09),
    ] {
        assert_eq!(bytes[..len].persist_hash(0x0123_4567_89ab_cdef), hash, "{len} bytes");
    }
}

#[test]
fn scalars_are_hashed_as_their_little_endian_bytes() {
    assert_eq!(0x6362_u16.persist_hash(5), b"bc".persist_hash(5));
    assert_eq!('a'.persist_hash(5), [97_u8, 0, 0, 0].persist_hash(5));
    assert_eq!(true.persist_hash(5), [1_u8].persist_hash(5));
    assert_eq!((-1_i32).persist_hash(5), [255_u8; 4].persist_hash(5));
}

#[test]
fn composed_values_are_folded_in_order() {
    let pair = Pair { one: 1, other: true };
    assert_eq!(pair.persist_hash(9), true.persist_hash(1_u16.persist_hash(9)));
    assert_eq!(Kind::Second.persist_hash(9), 8_u16.persist_hash(9));
    let folded = 2_u16.persist_hash(1_u16.persist_hash(2_u64.persist_hash(9)));
    assert_eq!([1_u16, 2].persist_hash(9), folded);
}

#[test]
fn owned_and_borrowed_forms_have_the_same_hash() {
    let string = super::object::<PString, _>("text");
    assert_eq!(string.root().persist_hash(3), "text".persist_hash(3));
    let vec = super::object::<PVec<u32>, _>([1_u32, 2]);
    assert_eq!(vec.root().persist_hash(3), [1_u32, 2].as_slice().persist_hash(3));
}
