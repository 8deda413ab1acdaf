//! Tests `PVec` against `Vec`.

use proptest::prelude::*;

use super::{close, object};
use crate::persist::{PString, PVec};

#[derive(Clone, Debug)]
enum Edit {
    Push(String),
    Extend(Vec<String>),
    Insert(usize, String),
    Truncate(usize),
    Clear,
    Discard(usize),
    SwapDiscard(usize),
    RetainShorterThan(usize),
    PushTo(usize, String),
    Assign(Vec<String>),
    Swap(usize, usize),
    Sort,
    Reverse,
    Shrink,
    Reserve(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let text = || "[a-z]{0,12}";
    let edit = prop_oneof![
        6 => text().prop_map(Edit::Push),
        2 => prop::collection::vec(text(), 0..6).prop_map(Edit::Extend),
        2 => (0..20_usize, text()).prop_map(|(index, text)| Edit::Insert(index, text)),
        1 => (0..20_usize).prop_map(Edit::Truncate),
        1 => Just(Edit::Clear),
        2 => (0..20_usize).prop_map(Edit::Discard),
        2 => (0..20_usize).prop_map(Edit::SwapDiscard),
        1 => (0..12_usize).prop_map(Edit::RetainShorterThan),
        2 => (0..20_usize, text()).prop_map(|(index, text)| Edit::PushTo(index, text)),
        1 => prop::collection::vec(text(), 0..6).prop_map(Edit::Assign),
        1 => (0..20_usize, 0..20_usize).prop_map(|(one, other)| Edit::Swap(one, other)),
        1 => Just(Edit::Sort),
        1 => Just(Edit::Reverse),
        1 => Just(Edit::Shrink),
        1 => (0..50_usize).prop_map(Edit::Reserve),
    ];
    prop::collection::vec(edit, 0..40)
}

proptest! {
    #[test]
    fn a_vector_of_strings_matches_the_standard_vec(edits in edits()) {
        let mut object = object::<PVec<PString>, _>(PVec::new());
        let mut model: Vec<String> = Vec::new();
        for edit in edits {
            let mut vec = object.root_mut();
            match edit {
                Edit::Push(text) => {
                    prop_assert_eq!(&*vec.push(&text).unwrap(), &text);
                    model.push(text);
                }
                Edit::Extend(texts) => {
                    vec.extend(&texts).unwrap();
                    model.extend(texts);
                }
                Edit::Insert(index, text) => {
                    let inserted = vec.insert(index, text.as_str()).map(|there| there.to_string());
                    prop_assert_eq!(inserted.is_ok(), index <= model.len());
                    if let Ok(inserted) = inserted {
                        prop_assert_eq!(&inserted, &text);
                        model.insert(index, text);
                    }
                }
                Edit::Truncate(len) => {
                    vec.truncate(len);
                    model.truncate(len);
                }
                Edit::Clear => {
                    vec.clear();
                    model.clear();
                }
                Edit::Discard(index) => {
                    let there = index < model.len();
                    prop_assert_eq!(vec.discard(index), there);
                    if there {
                        model.remove(index);
                    }
                }
                Edit::SwapDiscard(index) => {
                    let there = index < model.len();
                    prop_assert_eq!(vec.swap_discard(index), there);
                    if there {
                        model.swap_remove(index);
                    }
                }
                Edit::RetainShorterThan(len) => {
                    vec.retain(|text| text.len() < len);
                    model.retain(|text| text.len() < len);
                }
                Edit::PushTo(index, text) => {
                    if let Some(mut there) = vec.get_mut(index) {
                        there.push_str(&text).unwrap();
                        model[index].push_str(&text);
                    } else {
                        prop_assert!(index >= model.len());
                    }
                }
                Edit::Assign(texts) => {
                    vec.assign(&texts).unwrap();
                    model = texts;
                }
                Edit::Swap(one, other) => {
                    let there = one.max(other) < model.len();
                    prop_assert_eq!(vec.swap(one, other), there);
                    if there {
                        model.swap(one, other);
                    }
                }
                Edit::Sort => {
                    vec.sort();
                    model.sort();
                }
                Edit::Reverse => {
                    vec.reverse();
                    model.reverse();
                }
                Edit::Shrink => vec.shrink_to_fit().unwrap(),
                Edit::Reserve(additional) => {
                    vec.reserve(additional).unwrap();
                    prop_assert!(vec.capacity() >= model.len() + additional);
                }
            }
            prop_assert_eq!(object.root(), &model);
        }
        close(object);
    }

    #[test]
    fn a_vector_of_numbers_matches_the_standard_vec(
        steps in prop::collection::vec((0..7_u8, any::<u64>(), 0..40_usize), 0..60)
    ) {
        let mut object = object::<PVec<u64>, _>(PVec::new());
        let mut model: Vec<u64> = Vec::new();
        for (step, value, size) in steps {
            let mut vec = object.root_mut();
            let there = size < model.len();
            match step {
                0 => {
                    vec.push(value).unwrap();
                    model.push(value);
                }
                1 => prop_assert_eq!(vec.pop(), model.pop()),
                2 => {
                    let more: Vec<u64> = (0..size as u64).collect();
                    vec.extend_from_slice(&more).unwrap();
                    model.extend_from_slice(&more);
                }
                3 => prop_assert_eq!(vec.remove(size), there.then(|| model.remove(size))),
                4 => prop_assert_eq!(vec.swap_remove(size), there.then(|| model.swap_remove(size))),
                5 => {
                    vec.resize(size, value).unwrap();
                    model.resize(size, value);
                }
                _ => {
                    vec.as_mut_slice().iter_mut().for_each(|number| *number ^= value);
                    model.iter_mut().for_each(|number| *number ^= value);
                }
            }
            prop_assert_eq!(object.root(), &model);
        }
        close(object);
    }
}

#[test]
fn zeroed_memory_is_an_empty_vector() {
    // SAFETY: a null pointer and two zeros are valid values of the fields.
    let vec: PVec<PString> = unsafe { std::mem::zeroed() };
    assert!(vec.is_empty());
    assert_eq!(vec.capacity(), 0);
}

#[test]
fn every_kind_of_source_builds_the_same_vector() {
    let texts = ["a", "b"];
    let owned = texts.map(String::from);
    for built in [
        object::<PVec<PString>, _>(texts),
        object(&texts),
        object(texts.as_slice()),
        object(texts.to_vec()),
        object(&texts.to_vec()),
        object(owned.clone()),
        object(&owned),
        object(crate::persist::from_iter(owned.iter())),
    ] {
        assert_eq!(built.root(), &texts);
        close(built);
    }
    for built in [
        object::<PVec<u16>, _>([1_u16, 2]),
        object(&[1, 2]),
        object(vec![1, 2]),
        object([1_u16, 2].as_slice()),
    ] {
        assert_eq!(built.root(), &[1, 2]);
        close(built);
    }
}

#[test]
fn elements_of_no_bytes_take_no_block() {
    let mut object = object::<PVec<[u64; 0]>, _>(PVec::new());
    for _ in 0..1000 {
        object.root_mut().push([0_u64; 0]).unwrap();
    }
    assert_eq!(object.root().len(), 1000);
    object.root_mut().retain(|_| false);
    object.root_mut().shrink_to_fit().unwrap();
    assert_eq!(object.heap().live_blocks(), 1, "the root's own");
    close(object);
}

#[test]
fn a_length_beyond_the_address_space_is_an_error() {
    let mut object = object::<PVec<u64>, _>([1_u64]);
    assert!(object.root_mut().reserve(usize::MAX).is_err());
    assert!(object.root_mut().reserve_exact(usize::MAX / 8).is_err());
    assert_eq!(object.root(), &[1]);
    close(object);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs unwinding")]
fn a_panic_in_a_comparison_neither_loses_nor_duplicates_elements() {
    let mut object = object::<PVec<PString>, _>(
        (0..100).map(|n| format!("{n} of 100 blocks of text")).collect::<Vec<_>>(),
    );
    for limit in [0, 1, 50, 300] {
        let mut calls = 0;
        let mut vec = object.root_mut();
        let sorting = std::panic::AssertUnwindSafe(|| {
            vec.sort_by(|one, other| {
                calls += 1;
                assert!(calls <= limit, "on purpose");
                other.cmp(one)
            });
        });
        assert!(std::panic::catch_unwind(sorting).is_err());
        let mut numbers: Vec<u32> =
            object.root().iter().map(|n| n[..n.find(' ').unwrap()].parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }
    close(object);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs unwinding")]
fn a_panic_in_retain_or_in_a_source_leaves_a_valid_vector() {
    let mut object = object::<PVec<PString>, _>(["a", "b", "c", "d, of more than 23 bytes"]);
    let mut vec = object.root_mut();
    let retaining = std::panic::AssertUnwindSafe(|| {
        vec.retain(|text| {
            assert!(text != "c", "on purpose");
            text == "b"
        });
    });
    assert!(std::panic::catch_unwind(retaining).is_err());
    assert_eq!(object.root().len(), 4);

    let mut vec = object.root_mut();
    let extending = std::panic::AssertUnwindSafe(|| {
        vec.extend((0..10).map(|n| {
            assert!(n < 3, "on purpose");
            format!("{n:030}")
        }))
    });
    assert!(std::panic::catch_unwind(extending).is_err());
    assert_eq!(object.root().len(), 7);

    let assigning = std::panic::AssertUnwindSafe(|| {
        object.root_mut().assign(crate::persist::from_iter((0..10).map(|n| {
            assert!(n < 3, "on purpose");
            format!("{n:030}")
        })))
    });
    assert!(std::panic::catch_unwind(assigning).is_err());
    assert_eq!(object.root().len(), 7);
    close(object);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn cursors_to_elements_work_side_by_side_and_in_threads() {
    let mut object = object::<PVec<PString>, _>(["", "", "", ""]);
    std::thread::scope(|scope| {
        for (index, mut text) in object.root_mut().into_iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..100 {
                    text.push_str(&index.to_string()).unwrap();
                }
            });
        }
    });
    assert!(object.root().iter().enumerate().all(|(i, text)| **text == i.to_string().repeat(100)));
    close(object);
}
