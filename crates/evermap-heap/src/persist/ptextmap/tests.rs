//! Tests `PTextMap` against a list of pairs.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::Scratch;
use crate::persist::tests::{close, failing_at_each_allocation, object, times};
use crate::persist::{from_iter, type_description};

#[derive(Clone, Debug)]
enum Edit {
    Insert(u16, usize),
    InsertWithin(u16, usize, usize),
    Remove(u16),
    Clear,
    Reserve(usize),
    Shrink,
    ShrinkWithin(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    // Few keys, so that they often exist. Values from nothing to a whole block.
    let key = || 0..40_u16;
    let length = || prop_oneof![8 => 0..200_usize, 1 => (BLOCK / 5)..BLOCK, 1 => BLOCK..3 * BLOCK];
    let edit = prop_oneof![
        12 => (key(), length()).prop_map(|(key, length)| Edit::Insert(key, length)),
        2 => (key(), length(), 0..4_usize).prop_map(|(k, l, n)| Edit::InsertWithin(k, l, n)),
        6 => key().prop_map(Edit::Remove),
        1 => Just(Edit::Clear),
        1 => (0..40_usize).prop_map(Edit::Reserve),
        1 => Just(Edit::Shrink),
        1 => (0..4_usize).prop_map(Edit::ShrinkWithin),
    ];
    prop::collection::vec(edit, 0..times(100).max(20))
}

const BLOCK: usize = record::BLOCK_BYTES;

type Model = BTreeMap<String, String>;

fn name(key: u16) -> String {
    format!("{key}{}", "\u{e9}".repeat(key.into()))
}

fn value_of(length: usize) -> String {
    let mut value = format!("{length}:");
    value.push_str(&"v".repeat(length));
    value
}

fn apply(object: &mut Scratch<PTextMap>, model: &mut Model, edit: &Edit) {
    match *edit {
        Edit::Insert(key, length) => {
            let is_new = object.root_mut().insert(&name(key), &value_of(length)).unwrap();
            assert_eq!(is_new, model.insert(name(key), value_of(length)).is_none());
        }
        Edit::InsertWithin(key, length, allocations) => {
            object.heap().fail_after(allocations);
            let done = object.root_mut().insert(&name(key), &value_of(length)).is_ok();
            object.heap().never_fail();
            if done {
                model.insert(name(key), value_of(length));
            }
        }
        Edit::Remove(key) => {
            object.heap().fail_after(0);
            let removed = object.root_mut().remove(&name(key));
            object.heap().never_fail();
            assert_eq!(removed, model.remove(&name(key)).is_some());
        }
        Edit::Clear => {
            object.root_mut().clear();
            model.clear();
        }
        Edit::Reserve(additional) => object.root_mut().reserve(additional).unwrap(),
        Edit::Shrink => {
            object.root_mut().shrink_to_fit().unwrap();
            assert_eq!(object.root().removed_bytes, 0);
        }
        Edit::ShrinkWithin(allocations) => {
            object.heap().fail_after(allocations);
            let _ = object.root_mut().shrink_to_fit();
            object.heap().never_fail();
        }
    }
}

/// Asserts the invariants at the top of the module.
fn assert_well_formed(map: &PTextMap) {
    let records = || Records::new(&map.blocks);
    let bytes = |removed: bool| -> u64 {
        let some = records().filter(|(_, record)| !removed || record.is_removed);
        some.map(|(_, record)| record.bytes as u64).sum()
    };
    assert_eq!((map.record_bytes, map.removed_bytes), (bytes(false), bytes(true)));
    let lengths: u64 = map.blocks.iter().map(|block| block.len() as u64).sum();
    assert_eq!(lengths, map.record_bytes, "blocks consist of records");
    let live: Vec<_> = records().filter(|(_, record)| !record.is_removed).collect();
    assert_eq!(live.len(), map.len());
    for (position, record) in live {
        assert!(position.0 < 1 << map.position_bits);
        let found = map.find(map.hash_of(record.key), record.key).unwrap();
        assert!(found.position == position);
    }
    let used = map.cells.iter().filter(|cell| **cell != EMPTY).count();
    assert_eq!(used, map.used as usize);
    assert!(map.cells.is_empty() || map.cells.len().is_power_of_two());
    assert!(used <= map.cells.len() / 4 * 3);
}

fn assert_equal(map: &PTextMap, model: &Model) {
    assert_well_formed(map);
    let mut pairs: Vec<(&str, &str)> = map.iter().collect();
    assert_eq!(map.iter().len(), pairs.len());
    pairs.sort_unstable();
    assert!(pairs.into_iter().eq(model.iter().map(|(key, value)| (&**key, &**value))));
    for key in 0..40 {
        assert_eq!(map.get(&name(key)), model.get(&name(key)).map(String::as_str));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_text_map_matches_the_standard_map(edits in edits()) {
        let mut object = object::<PTextMap, _>(PTextMap::new());
        let mut model = Model::new();
        for edit in edits {
            apply(&mut object, &mut model, &edit);
            assert_equal(object.root(), &model);
        }
        close(object);
    }
}

#[test]
fn a_large_map_finds_every_key_and_takes_little_more_than_its_texts() {
    let count = times(100_000);
    let pair = |n: usize| (format!("key {n:08}"), format!("the value of the number {n:08}"));
    let mut object = object::<PTextMap, _>(from_iter((0..count).map(pair)));
    let map = object.root();
    assert_well_formed(map);
    for n in 0..count {
        let (key, value) = pair(n);
        assert_eq!(map.get(&key), Some(value.as_str()));
        assert_eq!(map.get(&value), None);
    }
    assert!(
        map.iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .eq((0..count).map(pair))
    );
    if !cfg!(miri) {
        // 44 bytes of text, 2 of lengths, and 5 to 11 of the index.
        let bytes = object.heap().statistics().allocated_bytes as usize;
        assert!(bytes < count * 60, "{bytes} bytes");
    }
    for n in (0..count).step_by(3) {
        assert!(object.root_mut().remove(&pair(n).0));
    }
    for n in 0..count {
        let (key, value) = pair(n);
        assert_eq!(object.root().get(&key), (n % 3 != 0).then_some(value.as_str()));
    }
    object.root_mut().shrink_to_fit().unwrap();
    assert_well_formed(object.root());
    assert_eq!(object.root().len(), count - count.div_ceil(3));
    close(object);
}

#[test]
fn replacing_and_removing_does_not_grow_the_map_for_ever() {
    let mut object = object::<PTextMap, _>(PTextMap::new());
    for round in 0..times(400) {
        for key in 0..20_u16 {
            let value = "x".repeat(10_000 + (round * 7 + usize::from(key)) % 100);
            object.root_mut().insert(&name(key), &value).unwrap();
        }
    }
    assert_eq!(object.root().len(), 20);
    assert!(object.root().blocks.len() < 8, "{} blocks", object.root().blocks.len());
    for key in 0..20 {
        assert!(object.root_mut().remove(&name(key)));
    }
    assert!(object.root().blocks.is_empty());
    object.root_mut().shrink_to_fit().unwrap();
    assert_eq!(object.heap().live_blocks(), 1, "the root's own");
    close(object);
}

#[test]
fn inserting_changes_all_or_nothing() {
    let six = || (0..6).map(|n| (n.to_string(), "v".repeat(100)));
    for length in [10, 1000, BLOCK, 2 * BLOCK] {
        let allocations = failing_at_each_allocation(
            || object::<PTextMap, _>(from_iter(six())),
            |mut map| map.insert("new", &value_of(length)).map(drop),
            |map, succeeded| {
                assert_well_formed(map);
                assert_eq!(map.len(), if succeeded { 7 } else { 6 });
                assert_eq!(map.get("new"), succeeded.then(|| value_of(length)).as_deref());
                assert!(six().all(|(key, value)| map.get(&key) == Some(value.as_str())));
            },
        );
        assert!(allocations >= 1);
    }
    failing_at_each_allocation(
        || object::<PTextMap, _>([("key", "old")]),
        |mut map| map.insert("key", &value_of(5000)).map(drop),
        |map, succeeded| {
            let expected = if succeeded { value_of(5000) } else { "old".to_string() };
            assert_eq!(map.get("key"), Some(expected.as_str()));
        },
    );
}

#[test]
fn a_map_of_several_blocks_shrinks_or_stays_as_it_is() {
    let pairs = || (0..12).map(|n| (n.to_string(), value_of(BLOCK / 3)));
    let allocations = failing_at_each_allocation(
        || {
            let mut object = object::<PTextMap, _>(from_iter(pairs()));
            for n in 0..6 {
                assert!(object.root_mut().remove(&(2 * n).to_string()));
            }
            object
        },
        |mut map| map.shrink_to_fit(),
        |map, _| {
            assert_well_formed(map);
            let odd = pairs().skip(1).step_by(2);
            assert!(odd.eq(map.iter().map(|(key, value)| (key.to_string(), value.to_string()))));
        },
    );
    assert!(allocations > 2, "{allocations}");
}

#[test]
fn every_kind_of_source_builds_the_same_map() {
    let pairs = [("a", "1"), ("b", "2"), ("a", "3")];
    let other = object::<PTextMap, _>([("b", "2"), ("a", "3")]);
    for built in [
        object::<PTextMap, _>(pairs),
        object(pairs.to_vec()),
        object(HashMap::from([("a", "3"), ("b", "2")])),
        object(BTreeMap::from([
            ("a".to_string(), "3".to_string()),
            ("b".to_string(), "2".to_string()),
        ])),
        object(from_iter(pairs)),
        object(other.root()),
    ] {
        assert_eq!(built.root(), other.root());
        assert_ne!(built.root(), &PTextMap::new());
        close(built);
    }
    assert_eq!(format!("{:?}", other.root()), r#"{"b": "2", "a": "3"}"#);
    close(other);
}

#[test]
fn zeroed_memory_is_an_empty_map() {
    // SAFETY: zeros are valid values of the fields.
    let map: PTextMap = unsafe { std::mem::zeroed() };
    assert!(map.is_empty() && map.get("key").is_none() && map.iter().next().is_none());
    assert_eq!(type_description::<PTextMap>().split(';').next(), Some("PTextMap#88/8"));
}

#[test]
fn a_map_that_grows_past_a_power_of_two_of_blocks_keeps_its_tags() {
    // Positions get one bit more with the second, fourth and eighth block.
    let mut object = object::<PTextMap, _>(PTextMap::new());
    for n in 0..24 {
        object.root_mut().insert(&n.to_string(), &value_of(BLOCK / 4)).unwrap();
        assert_well_formed(object.root());
    }
    assert_eq!((object.root().blocks.len(), object.root().position_bits), (8, 19 + 4));
    close(object);
}

#[test]
fn damaged_blocks_and_cells_are_no_undefined_behaviour() {
    let mut object = object::<PTextMap, _>([("a", "1"), ("b", "2")]);
    let mut map = object.root_mut();
    map.cells_mut().as_mut_slice().fill(u32::MAX);
    assert_eq!(map.get("a"), None);
    map.cells_mut().as_mut_slice().fill(7);
    assert_eq!(map.get("a"), None);
    map.blocks_mut().get_mut(0).unwrap().as_mut_slice().fill(0xff);
    assert_eq!((map.get("a"), map.iter().next()), (None, None));
    close(object);
}

#[test]
fn a_damaged_root_is_noticed() {
    let bounds = Bounds::of(&[(4096, 1 << 20)]);
    let bounded = |map: &PTextMap| {
        // SAFETY: a value of the right size.
        unsafe { PTextMap::is_bounded(NonNull::from(map), &bounds) }
    };
    let with = |change: fn(&mut PTextMap)| {
        let mut map = PTextMap::new();
        map.blocks.elements = std::ptr::without_provenance_mut(8192);
        (map.blocks.len, map.blocks.capacity) = (1, 2);
        map.cells.elements = std::ptr::without_provenance_mut(4096);
        (map.cells.len, map.cells.capacity) = (8, 8);
        change(&mut map);
        map
    };
    assert!(bounded(&PTextMap::new()));
    assert!(bounded(&with(|_| ())));
    for change in [
        (|map| map.blocks.len = 3) as fn(&mut PTextMap),
        |map| map.blocks.elements = std::ptr::without_provenance_mut(1 << 30),
        |map| map.cells.elements = std::ptr::without_provenance_mut(4097),
        |map| (map.cells.len, map.cells.capacity) = (7, 7),
        |map| map.used = 9,
        |map| map.live = 1,
        |map| map.position_bits = 32,
    ] {
        assert!(!bounded(&with(change)));
    }
}
