//! Tests `PMap` against a plain list of pairs, which defines its order.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::{close, object, times};
use crate::persist::{PMap, PString, PVec, PersistHash, from_iter};

#[derive(Clone, Debug)]
enum Edit {
    Insert(u16, Vec<u8>),
    PushTo(u16, u8),
    Append(u16, u8),
    Remove(u16),
    Retain(u16),
    Clear,
    Reserve(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    // Few keys, so that they often exist; frequent removals, so that compactions happen.
    let key = || 0..60_u16;
    let value = || prop::collection::vec(any::<u8>(), 0..4);
    let edit = prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Edit::Insert(key, value)),
        3 => (key(), any::<u8>()).prop_map(|(key, byte)| Edit::PushTo(key, byte)),
        3 => (key(), any::<u8>()).prop_map(|(key, byte)| Edit::Append(key, byte)),
        12 => key().prop_map(Edit::Remove),
        1 => (1..5_u16).prop_map(Edit::Retain),
        1 => Just(Edit::Clear),
        1 => (0..40_usize).prop_map(Edit::Reserve),
    ];
    prop::collection::vec(edit, 0..300)
}

type Model = Vec<(String, Vec<u8>)>;

/// Every third name needs a block.
fn name(key: u16) -> String {
    format!("{key}{}", if key.is_multiple_of(3) { " is longer than 23 bytes" } else { "" })
}

/// Returns the key of a name.
fn number(name: &str) -> u16 {
    name.split(' ').next().unwrap().parse().unwrap()
}

fn value<'m>(model: &'m mut Model, key: &str) -> Option<&'m mut Vec<u8>> {
    model.iter_mut().find(|(there, _)| there == key).map(|(_, value)| value)
}

proptest! {
    #[test]
    fn a_map_matches_a_list_of_pairs(edits in edits()) {
        let mut object = object::<PMap<PString, PVec<u8>>, _>(PMap::new());
        let mut model = Model::new();
        for edit in edits {
            let mut map = object.root_mut();
            match edit {
                Edit::Insert(key, bytes) => {
                    let key = name(key);
                    prop_assert_eq!(&*map.insert(&key, &bytes).unwrap(), &bytes);
                    match value(&mut model, &key) {
                        Some(there) => *there = bytes,
                        None => model.push((key, bytes)),
                    }
                }
                Edit::PushTo(key, byte) => {
                    let key = name(key);
                    let there = map.get_mut(key.as_str()).map(|mut bytes| { bytes.push(byte).unwrap(); });
                    prop_assert_eq!(there, value(&mut model, &key).map(|bytes| bytes.push(byte)));
                }
                Edit::Append(key, byte) => {
                    let key = name(key);
                    let made = map.get_or_insert_with(key.as_str(), || [0_u8; 0]);
                    made.unwrap().push(byte).unwrap();
                    match value(&mut model, &key) {
                        Some(there) => there.push(byte),
                        None => model.push((key, vec![byte])),
                    }
                }
                Edit::Remove(key) => {
                    let key = name(key);
                    let before = model.len();
                    model.retain(|(there, _)| *there != key);
                    prop_assert_eq!(map.remove(key.as_str()), model.len() < before);
                }
                Edit::Retain(divisor) => {
                    map.retain(|key, mut bytes| {
                        bytes.push(1).unwrap();
                        !number(key).is_multiple_of(divisor)
                    });
                    model.retain(|(key, _)| !number(key).is_multiple_of(divisor));
                    model.iter_mut().for_each(|(_, bytes)| bytes.push(1));
                }
                Edit::Clear => {
                    map.clear();
                    model.clear();
                }
                Edit::Reserve(additional) => map.reserve(additional).unwrap(),
            }
            let map = object.root();
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.iter().len(), model.len());
            let pairs = model.iter().map(|(key, bytes)| (key.as_str(), bytes.as_slice()));
            prop_assert!(map.iter().map(|(key, bytes)| (&**key, &**bytes)).eq(pairs.clone()));
            prop_assert!(map.iter().rev().map(|(key, bytes)| (&**key, &**bytes)).eq(pairs.rev()));
            for key in 0..60_u16 {
                let key = name(key);
                let expected = value(&mut model, &key).map(|bytes| bytes.as_slice());
                prop_assert_eq!(map.get(key.as_str()).map(|bytes| bytes.as_slice()), expected);
            }
        }
        close(object);
    }
}

#[test]
fn a_large_map_finds_every_key() {
    let count = times(99_999) as u64;
    let mut object = object::<PMap<u64, u64>, _>(PMap::new());
    let mut map = object.root_mut();
    for key in 0..count {
        map.insert(key * 7, key).unwrap();
    }
    for key in (0..count).step_by(3) {
        assert_eq!(map.take(&(key * 7)), Some(key));
    }
    for key in 0..count {
        assert_eq!(map.get(&(key * 7)), (key % 3 != 0).then_some(&key));
    }
    assert_eq!(map.len() as u64, count - count.div_ceil(3));
    close(object);
}

/// All keys fall into the same cell with the same tag.
#[derive(Clone, Copy, PartialEq, Eq, crate::Persist, crate::Plain)]
#[repr(C)]
struct Colliding(u64);

impl PersistHash for Colliding {
    fn persist_hash(&self, _state: u64) -> u64 {
        // The hash 0 also marks a removed entry.
        0
    }
}

#[test]
fn keys_of_equal_hash_are_kept_apart() {
    let mut object = object::<PMap<Colliding, u64>, _>(PMap::new());
    for key in 0..100 {
        object.root_mut().insert(Colliding(key), key).unwrap();
    }
    for key in (0..100).step_by(2) {
        assert!(object.root_mut().remove(&Colliding(key)));
    }
    for key in 0..100 {
        assert_eq!(object.root().get(&Colliding(key)), (key % 2 == 1).then_some(&key));
    }
    close(object);
}

#[test]
fn insertions_and_removals_in_turn_take_bounded_memory() {
    let mut object = object::<PMap<u64, u64>, _>(PMap::new());
    for key in 0..times(100_000) as u64 {
        object.root_mut().insert(key, key).unwrap();
        assert!(object.root_mut().remove(&key));
    }
    assert!(object.root().capacity() <= 24, "{}", object.root().capacity());
    close(object);
}

#[test]
fn zeroed_memory_is_an_empty_map() {
    // SAFETY: null pointers and zeros are valid values of the fields.
    let map: PMap<PString, PString> = unsafe { std::mem::zeroed() };
    assert!(map.is_empty());
    assert_eq!(map.get("key"), None);
    assert_eq!(map.iter().next(), None);
}

#[test]
fn every_kind_of_source_builds_an_equal_map() {
    let pairs = [("a", 1_u64), ("b", 2)];
    for built in [
        object::<PMap<PString, u64>, _>(pairs),
        object(pairs.to_vec()),
        object(HashMap::from(pairs)),
        object(BTreeMap::from(pairs)),
        object(from_iter(pairs)),
    ] {
        let other = object::<PMap<PString, u64>, _>([("b", 2_u64), ("a", 1)]);
        assert_eq!(built.root(), other.root());
        close(built);
        close(other);
    }
    let of_vectors = object::<PMap<PVec<u8>, u64>, _>([(b"key".as_slice(), 1_u64)]);
    assert_eq!(of_vectors.root().get(b"key".as_slice()), Some(&1));
    close(of_vectors);
}

#[test]
fn values_that_own_maps_are_released_with_them() {
    type Nested = PMap<PString, PMap<u64, PString>>;
    let mut object =
        object::<Nested, _>([("a", [(1_u64, "one"), (2, "a text of more than 23 bytes")])]);
    object.root_mut().insert("b", [(3_u64, "three")]).unwrap();
    object.root_mut().insert("a", PMap::new()).unwrap();
    assert!(object.root().get("a").is_some_and(PMap::is_empty));
    close(object);
}
