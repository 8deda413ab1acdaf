//! Tests `PBTree` against the standard library's `BTreeMap`, and its shape against the B-tree
//! invariants.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use proptest::prelude::*;

use super::node::{CAPACITY, LEN_MIN, NodeRef};
use crate::persist::tests::{close, failing_at_each_allocation, object, times};
use crate::persist::{PBTree, PBox, PMap, PString, PVec, Persist, from_iter};

/// Checks the whole tree. Returns the number of nodes.
fn assert_well_formed<K: Ord + Persist, V: Persist>(tree: &PBTree<K, V>) -> usize {
    fn walk<K: Ord, V>(node: NodeRef<K, V>, height: u32, top: bool, nodes: &mut usize) -> usize {
        *nodes += 1;
        assert!(node.len() <= CAPACITY && (top || node.len() >= LEN_MIN), "{}", node.len());
        let below = if height == 1 {
            0
        } else {
            (0..=node.len()).map(|at| walk(node.child(at), height - 1, false, nodes)).sum()
        };
        node.len() + below
    }
    let mut nodes = 0;
    match tree.root {
        None => assert_eq!((tree.len, tree.height), (0, 0)),
        Some(root) => assert_eq!(walk(root, tree.height, true, &mut nodes), tree.len()),
    }
    assert!(tree.keys().is_sorted_by(|one, next| one < next));
    nodes
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(u16, Vec<u8>),
    /// Like an insert, but with at most this many allocations.
    InsertWithin(u16, Vec<u8>, usize),
    Append(u16, u8),
    Remove(u16),
    DiscardFirst,
    DiscardLast,
    Extend(u16, u16),
    ExtendWithin(u16, u16, usize),
    Retain(u16),
    RangeMut(u16, u16),
    Clear,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let key = || 0..400_u16;
    let value = || prop::collection::vec(any::<u8>(), 0..4);
    let edit = prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Edit::Insert(key, value)),
        4 => (key(), value(), 0..4_usize).prop_map(|(k, v, n)| Edit::InsertWithin(k, v, n)),
        4 => (key(), any::<u8>()).prop_map(|(key, byte)| Edit::Append(key, byte)),
        20 => key().prop_map(Edit::Remove),
        3 => Just(Edit::DiscardFirst),
        3 => Just(Edit::DiscardLast),
        3 => (key(), 1..150_u16).prop_map(|(from, count)| Edit::Extend(from, count)),
        2 => (key(), 1..90_u16, 0..60_usize).prop_map(|(k, c, n)| Edit::ExtendWithin(k, c, n)),
        1 => (1..7_u16).prop_map(Edit::Retain),
        2 => (key(), key()).prop_map(|(from, to)| Edit::RangeMut(from, to)),
        1 => Just(Edit::Clear),
    ];
    prop::collection::vec(edit, 0..200)
}

/// Names in the order of their keys. Every third needs a block.
fn name(key: u16) -> String {
    format!("{key:04}{}", if key.is_multiple_of(3) { " is longer than 23 bytes" } else { "" })
}

/// Returns the key of a name.
fn number(name: &str) -> u16 {
    name.split(' ').next().unwrap().parse().unwrap()
}

type Tree = PBTree<PString, PVec<u8>>;
type Model = BTreeMap<String, Vec<u8>>;

fn apply(object: &mut crate::Scratch<Tree>, model: &mut Model, edit: Edit) {
    match edit {
        Edit::Insert(key, bytes) => {
            let mut tree = object.root_mut();
            assert_eq!(&*tree.insert(name(key), &bytes).unwrap(), &bytes);
            model.insert(name(key), bytes);
        }
        Edit::InsertWithin(key, bytes, allocations) => {
            object.heap().fail_after(allocations);
            let done = object.root_mut().insert(name(key), &bytes).is_ok();
            object.heap().never_fail();
            if done {
                model.insert(name(key), bytes);
            }
        }
        Edit::Append(key, byte) => {
            let mut tree = object.root_mut();
            tree.get_or_insert_with(name(key), || [0_u8; 0]).unwrap().push(byte).unwrap();
            model.entry(name(key)).or_default().push(byte);
        }
        Edit::Remove(key) => {
            let removed = object.root_mut().remove(name(key).as_str());
            assert_eq!(removed, model.remove(&name(key)).is_some());
        }
        Edit::DiscardFirst => {
            assert_eq!(object.root_mut().discard_first(), model.pop_first().is_some());
        }
        Edit::DiscardLast => {
            assert_eq!(object.root_mut().discard_last(), model.pop_last().is_some());
        }
        Edit::Extend(from, count) => {
            let pairs = (from..from + count).map(|key| (name(key), vec![1_u8]));
            object.root_mut().extend(pairs.clone()).unwrap();
            model.extend(pairs);
        }
        Edit::ExtendWithin(from, count, allocations) => {
            object.heap().fail_after(allocations);
            let pairs = (from..from + count).map(|key| (name(key), vec![2_u8]));
            let mut taken = 0;
            let counted = pairs.clone().inspect(|_| taken += 1);
            let done = object.root_mut().extend(counted).is_ok();
            object.heap().never_fail();
            // The failing pair was not inserted; the pairs before it were.
            model.extend(pairs.take(taken - usize::from(!done)));
        }
        Edit::Retain(divisor) => {
            object.root_mut().retain(|key, mut bytes| {
                bytes.push(7).unwrap();
                !number(key).is_multiple_of(divisor)
            });
            model.retain(|key, bytes| {
                bytes.push(7);
                !number(key).is_multiple_of(divisor)
            });
        }
        Edit::RangeMut(from, to) if from <= to => {
            let (start, end) = (name(from), name(to));
            let range = (Bound::Included(&*start), Bound::Excluded(&*end));
            for (_, mut bytes) in object.root_mut().range_mut::<str, _>(range) {
                bytes.push(9).unwrap();
            }
            model.range_mut(name(from)..name(to)).for_each(|(_, bytes)| bytes.push(9));
        }
        Edit::RangeMut(from, to) => {
            let mut tree = object.root_mut();
            let (start, end) = (name(from), name(to));
            let range = (Bound::Included(&*start), Bound::Excluded(&*end));
            assert!(tree.range_mut::<str, _>(range).next().is_none());
        }
        Edit::Clear => {
            object.root_mut().clear();
            model.clear();
        }
    }
}

proptest! {
    #[test]
    fn a_tree_matches_the_standard_btree_map(edits in edits()) {
        let mut object = object::<Tree, _>(PBTree::new());
        let mut model = Model::new();
        for edit in edits {
            apply(&mut object, &mut model, edit);
            let tree = object.root();
            assert_well_formed(tree);
            prop_assert_eq!(tree, &model);
            prop_assert!(tree.iter().rev().map(|(key, _)| &**key).eq(model.keys().rev()));
            prop_assert_eq!(tree.first_key_value().map(|(key, _)| &**key),
                model.first_key_value().map(|(key, _)| &**key));
            prop_assert_eq!(tree.last_key_value().map(|(key, _)| &**key),
                model.last_key_value().map(|(key, _)| &**key));
            for key in (0..400).step_by(7).map(name) {
                prop_assert_eq!(tree.get(key.as_str()).map(|v| &**v), model.get(&key).map(|v| &**v));
            }
        }
        close(object);
    }

    #[test]
    fn ranges_are_those_of_the_standard_tree(
        keys in prop::collection::btree_set(0..200_u32, 0..150),
        from in 0..200_u32,
        length in 0..200_u32,
        kinds in (0..3, 0..3),
    ) {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, *key)).collect();
        let object = object::<PBTree<u32, u32>, _>(pairs.clone());
        let model: BTreeMap<_, _> = pairs.into_iter().collect();
        let bound = |kind, at| match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(at),
            _ => Bound::Excluded(at),
        };
        let range = (bound(kinds.0, from), bound(kinds.1, from + length));
        let (mine, std) = (object.root().range(range), std::panic::catch_unwind(|| model.range(range)));
        match std {
            // The standard library panics for two excluded bounds of the same key.
            Err(_) => prop_assert_eq!(mine.count(), 0),
            Ok(std) => {
                prop_assert!(mine.clone().eq(std.clone()));
                prop_assert!(mine.clone().rev().eq(std.clone().rev()));
                // Alternately from both ends.
                let (mut mine, mut std) = (mine, std);
                for turn in 0..keys.len() + 2 {
                    if turn % 3 == 0 {
                        prop_assert_eq!(mine.next_back(), std.next_back());
                    } else {
                        prop_assert_eq!(mine.next(), std.next());
                    }
                }
            }
        }
        close(object);
    }
}

#[test]
fn ascending_keys_fill_the_nodes() {
    let count = times(100_000) as u64;
    let mut built = object::<PBTree<u64, u64>, _>(from_iter((0..count).map(|key| (key, key))));
    let nodes = assert_well_formed(built.root());
    assert!(nodes <= count as usize / CAPACITY + 10, "{nodes}");
    // Filling continues where it ended.
    built.root_mut().extend((count..2 * count).map(|key| (key, key))).unwrap();
    let nodes = assert_well_formed(built.root());
    assert!(nodes <= 2 * count as usize / CAPACITY + 20, "{nodes}");
    close(built);

    let mut inserted = object::<PBTree<u64, u64>, _>(PBTree::new());
    for key in 0..count {
        inserted.root_mut().insert(key, key).unwrap();
    }
    let nodes = assert_well_formed(inserted.root());
    assert!(nodes <= count as usize * 3 / (CAPACITY * 2), "{nodes}");
    close(inserted);
}

#[test]
fn a_large_tree_finds_and_removes_every_key() {
    let count = times(50_000) as u64;
    let mut object = object::<PBTree<u64, u64>, _>(PBTree::new());
    let scattered = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for key in 0..count {
        object.root_mut().insert(scattered(key), key).unwrap();
    }
    assert_well_formed(object.root());
    for key in (0..count).step_by(3) {
        assert_eq!(object.root_mut().take(&scattered(key)), Some(key));
    }
    assert_well_formed(object.root());
    for key in 0..count {
        assert_eq!(object.root().get(&scattered(key)), (key % 3 != 0).then_some(&key));
    }
    let mut least = 0;
    while let Some((key, _)) = object.root_mut().pop_first() {
        assert!(key >= least);
        least = key;
        if let Some((last, _)) = object.root_mut().pop_last() {
            assert!(last > key);
        }
    }
    assert!(object.root().root.is_none());
    close(object);
}

#[test]
fn inserting_changes_all_or_nothing() {
    const NEW: &str = "00000+ with more than 23 bytes";
    // Every node on the path is full, so a leaf, an inner node and the root are split.
    let full = CAPACITY + CAPACITY * (CAPACITY + 1);
    let pairs = || (0..full as u64).map(|n| (format!("{n:05}"), n.to_string()));
    let allocations = failing_at_each_allocation(
        || object::<PBTree<PString, PString>, _>(from_iter(pairs())),
        |mut tree| tree.insert(NEW, "a value of more than 23 bytes").map(drop),
        |tree, succeeded| {
            assert_well_formed(tree);
            assert_eq!(tree.len(), full + usize::from(succeeded));
            assert_eq!(tree.contains_key(NEW), succeeded);
            assert!(pairs().all(|(key, value)| tree[key.as_str()] == value));
        },
    );
    assert_eq!(allocations, 5, "key, value, leaf, inner node, root");

    failing_at_each_allocation(
        || object::<PBTree<PString, PVec<u8>>, _>([("key", b"old")]),
        |mut tree| tree.insert("key", b"new value").map(drop),
        |tree, succeeded| {
            let expected: &[u8] = if succeeded { b"new value" } else { b"old" };
            assert_eq!(tree["key"], expected);
        },
    );
    failing_at_each_allocation(
        || object::<PBTree<PString, PString>, _>(PBTree::new()),
        |mut tree| tree.extend((0..300).map(|n| (name(n), ""))),
        |tree, _| {
            assert_well_formed(tree);
        },
    );
}

#[test]
fn removing_needs_no_memory() {
    let mut object = object::<PBTree<u64, PString>, _>(
        (0..1000_u64).map(|n| (n, n.to_string())).collect::<Vec<_>>(),
    );
    object.heap().fail_after(0);
    for key in 0..700 {
        assert!(object.root_mut().remove(&key));
    }
    object.root_mut().retain(|key, _| key % 10 == 5);
    assert_eq!(object.root().len(), 30);
    assert_eq!(object.root()[&995], "995");
    assert_well_formed(object.root());
    close(object);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs unwinding")]
fn a_panic_in_user_code_loses_nothing() {
    let mut object = object::<PBTree<u64, PString>, _>([(1, "a"), (2, "b")]);
    let panics = |work: &mut dyn FnMut()| {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    };
    panics(&mut || {
        object.root_mut().retain(|key, _| if *key == 2 { panic!("keep") } else { false })
    });
    panics(&mut || {
        let pairs = (3..200_u64).map(|key| if key == 150 { panic!("source") } else { (key, "x") });
        let _ = object.root_mut().extend(pairs);
    });
    assert_well_formed(object.root());
    assert_eq!(object.root().len(), 149);
    close(object);
}

/// An inconsistent order.
#[derive(Clone, Copy, crate::Persist)]
#[repr(C)]
struct Contrary(u64);

thread_local! {
    static ANSWERS: std::cell::Cell<u64> = const { std::cell::Cell::new(1) };
}

impl PartialEq for Contrary {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Contrary {}

impl PartialOrd for Contrary {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Contrary {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        let next = ANSWERS.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ANSWERS.set(next);
        ((next >> 40) as u8 % 3).cmp(&1)
    }
}

#[test]
fn an_inconsistent_order_is_harmless() {
    let mut object = object::<PBTree<Contrary, PString>, _>(PBTree::new());
    for key in 0..times(3000) as u64 {
        object.root_mut().insert(Contrary(key), key.to_string()).unwrap();
        object.root_mut().remove(&Contrary(key));
        let range = (Bound::Included(Contrary(1)), Bound::Excluded(Contrary(2)));
        let mut tree = object.root_mut();
        let mut cursors = tree.range_mut(range);
        let mut seen: Vec<_> = std::iter::from_fn(|| cursors.next()).take(40).collect();
        seen.extend(std::iter::from_fn(|| cursors.next_back()).take(40));
        let mut places: Vec<_> = seen.iter().map(|(_, value)| value.as_ptr().address()).collect();
        places.sort_unstable();
        assert!(places.is_sorted_by(|one, next| one < next), "an entry was handed out twice");
    }
    assert_eq!(object.root().iter().count(), object.root().len());
    close(object);
}

#[test]
fn every_kind_of_source_builds_an_equal_tree() {
    let pairs = [("b", 2_u64), ("a", 1), ("a", 3)];
    let expected = BTreeMap::from([("a".to_string(), 3_u64), ("b".to_string(), 2)]);
    for built in [
        object::<PBTree<PString, u64>, _>(pairs),
        object(pairs.to_vec()),
        object(HashMap::from(pairs)),
        object(BTreeMap::from(pairs)),
        object(from_iter(pairs)),
    ] {
        assert_eq!(built.root(), &expected);
        assert_eq!(format!("{:?}", built.root()), format!("{expected:?}"));
        close(built);
    }
}

#[test]
fn trees_are_compared_and_hashed_like_the_standard_ones() {
    let [less, more] =
        [[(1_u64, 5_u64), (2, 0)], [(1, 5), (3, 0)]].map(object::<PBTree<u64, u64>, _>);
    assert!(less.root() < more.root() && less.root() != more.root());
    assert!(less.root().iter().len() == 2 && less.root().into_iter().rev().len() == 2);
    let map = object::<PMap<u64, u64>, _>([(2, 0), (1, 5)]);
    assert_eq!(map.root(), &HashMap::from([(1_u64, 5_u64), (2, 0)]));
    assert_eq!(map.root()[&1], 5);
    close(map);
    close(less);
    close(more);
}

#[test]
fn trees_in_trees_are_released_with_them() {
    type Deep = PBTree<u64, PBox<PBTree<PString, PVec<PString>>>>;
    let inner = || {
        (0..40_u64)
            .map(|n| (n.to_string(), ["a", "a text of more than 23 bytes"]))
            .collect::<Vec<_>>()
    };
    let mut object = object::<Deep, _>((0..40_u64).map(|n| (n, inner())).collect::<Vec<_>>());
    object.root_mut().insert(7, [("x", ["y"])]).unwrap();
    assert_eq!(object.root()[&7].len(), 1);
    close(object);
}

#[test]
fn zeroed_memory_is_an_empty_tree_and_values_of_any_alignment_lie_right() {
    // SAFETY: a null pointer and zeros are valid values of the fields.
    let tree: PBTree<PString, PString> = unsafe { std::mem::zeroed() };
    assert!(tree.is_empty() && tree.get("key").is_none() && tree.iter().next().is_none());

    let mut wide = object::<PBTree<u8, u128>, _>(PBTree::new());
    for key in 0..=255_u8 {
        wide.root_mut().insert(key, u128::from(key) << 100).unwrap();
    }
    assert!(wide.root().iter().all(|(key, value)| *value == u128::from(*key) << 100));
    close(wide);

    let mut nothing = object::<PBTree<[u8; 0], [u8; 0]>, _>(PBTree::new());
    nothing.root_mut().insert([0_u8; 0], [0_u8; 0]).unwrap();
    nothing.root_mut().insert([0_u8; 0], [0_u8; 0]).unwrap();
    assert_eq!(nothing.root().len(), 1);
    close(nothing);
}
