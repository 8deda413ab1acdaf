//! Tests `PString` against `String`, and where its text lies.

use std::fmt::Write;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::{close, failing_at_each_allocation, object};
use crate::persist::{Bounds, PMap, PString, PVec, Persist, Scratch};

proptest! {
    #[test]
    fn a_string_matches_the_standard_string(
        steps in prop::collection::vec((0..10_u8, ".{0,12}", any::<char>(), 0..40_usize), 0..60)
    ) {
        let mut object = object::<PString, _>("");
        let mut model = String::new();
        for (step, text, character, size) in steps {
            let mut string = object.root_mut();
            match step {
                0 | 1 => {
                    string.push_str(&text).unwrap();
                    model.push_str(&text);
                }
                2 => {
                    string.push(character).unwrap();
                    model.push(character);
                }
                3 => prop_assert_eq!(string.pop(), model.pop()),
                4 => {
                    let fits = size >= model.len() || model.is_char_boundary(size);
                    prop_assert_eq!(string.truncate(size), fits);
                    if fits {
                        model.truncate(size);
                    }
                }
                5 => {
                    string.clear();
                    model.clear();
                }
                6 => {
                    string.assign(&text).unwrap();
                    model = text;
                }
                7 => {
                    write!(string, "{size}").unwrap();
                    write!(model, "{size}").unwrap();
                }
                8 => {
                    string.reserve(size).unwrap();
                    prop_assert!(string.capacity() >= model.len() + size);
                }
                _ => {
                    string.shrink_to_fit().unwrap();
                    prop_assert_eq!(blocks(&object), u64::from(model.len() > IN_PLACE_MAX));
                }
            }
            prop_assert_eq!(object.root(), &model);
            prop_assert!(std::str::from_utf8(object.root().as_bytes()).is_ok());
        }
        close(object);
    }
}

#[test]
fn every_kind_of_source_builds_the_same_string() {
    let other = object::<PString, _>("text");
    for built in [
        object::<PString, _>("text"),
        object(String::from("text")),
        object(&String::from("text")),
        object(Box::<str>::from("text")),
        object(std::borrow::Cow::Borrowed("text")),
        object(other.root()),
    ] {
        assert_eq!(built.root(), "text");
        close(built);
    }
    let letter = object::<PString, _>('\u{e9}');
    assert_eq!(letter.root(), "\u{e9}");
    close(letter);
    close(other);
}

#[test]
fn assigning_a_text_that_fits_uses_the_old_block() {
    let mut object = object::<PString, _>("a text that is too long to lie in place");
    object.heap().fail_after(0);
    for text in ["short", "another text of more than 23 bytes", ""] {
        object.root_mut().assign(text).unwrap();
        assert_eq!(object.root(), text);
        assert_eq!(blocks(&object), 1);
    }
    close(object);
}

/// Longest text without a block.
const IN_PLACE_MAX: usize = 23;

/// Blocks that the string owns.
fn blocks(object: &Scratch<PString>) -> u64 {
    object.heap().live_blocks() as u64 - 1
}

/// Bytes of a string.
#[cfg(not(target_family = "wasm"))]
fn bytes_of(string: &PString) -> [u8; 24] {
    // SAFETY: all bytes of a string are initialised in programs of 64 bits, and any bytes are a
    // valid array.
    unsafe { std::ptr::from_ref(string).cast::<[u8; 24]>().read() }
}

/// Texts of all lengths around the limit, of one-byte and of two-byte characters.
fn texts() -> impl Iterator<Item = String> {
    let long = |length| ["x".repeat(length), "\u{e9}".repeat(length / 2)];
    (0..=40).flat_map(long)
}

#[test]
fn only_texts_of_more_than_23_bytes_have_a_block() {
    for text in texts() {
        let object = object::<PString, _>(&text);
        assert_eq!(object.root(), &text);
        assert_eq!(blocks(&object), u64::from(text.len() > IN_PLACE_MAX), "{text}");
        assert!(object.root().capacity() >= text.len());
        close(object);
    }
}

#[cfg(not(target_family = "wasm"))]
#[test]
fn a_text_in_place_is_followed_by_zeros_and_its_length() {
    let mut object = object::<PString, _>("");
    assert_eq!(bytes_of(object.root()), [0; 24], "an empty string");
    for length in (1..=IN_PLACE_MAX).chain((0..IN_PLACE_MAX).rev()) {
        let text = "abcdefghijklmnopqrstuvw".get(..length).unwrap();
        if length > object.root().len() {
            object.root_mut().push_str(&text[length - 1..]).unwrap();
        } else {
            assert!(object.root_mut().truncate(length));
        }
        let mut expected = [0; 24];
        expected[..length].copy_from_slice(text.as_bytes());
        expected[23] = length as u8;
        assert_eq!(bytes_of(object.root()), expected);
    }
    close(object);
}

/// Makes an object whose string is a vector's three words, as in objects of earlier builds.
fn in_a_block(text: &str, capacity: usize) -> Scratch<PString> {
    let mut object = object::<PString, _>("");
    let block = object.heap().allocate(capacity, 1).unwrap();
    let usable = object.heap().usable_size(block);
    let root = object.root_mut().target.cast::<u8>();
    // SAFETY: the block has room for the text, and the root for the words of a `PVec<u8>`.
    unsafe {
        block.as_ptr().copy_from_nonoverlapping(text.as_ptr(), text.len());
        root.cast::<*mut u8>().write(block.as_ptr());
        root.add(8).cast::<u64>().write(text.len() as u64);
        root.add(16).cast::<u64>().write(usable as u64);
    }
    object
}

#[test]
fn strings_of_earlier_builds_are_read_and_edited() {
    for text in texts() {
        let mut object = in_a_block(&text, 48);
        assert_eq!(object.root(), &text);
        assert_eq!(blocks(&object), 1);
        let mut string = object.root_mut();
        string.push('!').unwrap();
        string.push_str(&"long".repeat(12)).unwrap();
        assert_eq!(*string, format!("{text}!{}", "long".repeat(12)));
        assert!(string.truncate(text.len()));
        string.shrink_to_fit().unwrap();
        assert_eq!(*string, text);
        assert_eq!(blocks(&object), u64::from(text.len() > IN_PLACE_MAX));
        close(object);
        close(in_a_block(&text, 48));
    }
}

#[test]
fn an_empty_string_with_a_block_keeps_it_until_it_shrinks() {
    let mut object = in_a_block("", 48);
    assert!(object.root().capacity() >= 48);
    object.heap().fail_after(0);
    object.root_mut().push_str(&"x".repeat(48)).unwrap();
    object.root_mut().clear();
    object.root_mut().shrink_to_fit().unwrap();
    assert_eq!((blocks(&object), object.root().capacity()), (0, IN_PLACE_MAX));
    close(object);
}

#[test]
fn a_string_crosses_the_limit_in_both_directions() {
    let mut object = object::<PString, _>("");
    let mut model = String::new();
    for _ in 0..2 {
        for _ in 0..40 {
            object.root_mut().push('y').unwrap();
            model.push('y');
            assert_eq!(object.root(), &model);
        }
        for _ in 0..40 {
            assert_eq!(object.root_mut().pop(), model.pop());
            object.root_mut().shrink_to_fit().unwrap();
            assert_eq!(object.root(), &model);
            assert_eq!(blocks(&object), u64::from(model.len() > IN_PLACE_MAX));
        }
    }
    close(object);
}

#[test]
fn a_failed_growth_keeps_a_text_in_place() {
    let grown = failing_at_each_allocation(
        || object::<PString, _>("in place"),
        |mut string| string.push_str(" and then in a block"),
        |string, succeeded| assert_eq!(string.len(), if succeeded { 28 } else { 8 }),
    );
    let assigned = failing_at_each_allocation(
        || object::<PString, _>("in place"),
        |mut string| string.assign("a text of more than 23 bytes"),
        |string, succeeded| assert_eq!(string == "in place", !succeeded),
    );
    assert_eq!((grown, assigned), (1, 1));
    let mut object = object::<PString, _>("in place");
    assert!(object.root_mut().reserve(usize::MAX).is_err());
    assert_eq!(object.root(), "in place");
    close(object);
}

#[test]
fn texts_in_place_move_with_their_strings() {
    let mut object = object::<PVec<PString>, _>(PVec::new());
    let mut model = Vec::new();
    for (number, text) in texts().enumerate() {
        object.root_mut().insert(number / 2, &text).unwrap();
        model.insert(number / 2, text);
    }
    object.root_mut().reverse();
    model.reverse();
    assert_eq!(*object.root(), model);
    object.root_mut().sort();
    model.sort();
    object.root_mut().swap_discard(5);
    model.swap_remove(5);
    object.root_mut().shrink_to_fit().unwrap();
    assert_eq!(*object.root(), model);
    let mut root = object.root_mut();
    let moved = root.get_mut(30).unwrap().detach();
    drop(moved);
    model[30].clear();
    assert_eq!(*object.root(), model);
    close(object);
}

#[test]
fn keys_in_place_and_in_blocks_are_found_by_their_text() {
    let pairs = || texts().chain((0..2000).map(|n| n.to_string())).map(|text| (text.clone(), text));
    let mut object = object::<PMap<PString, PString>, _>(PMap::new());
    object.root_mut().extend(pairs()).unwrap();
    for (key, value) in pairs() {
        assert_eq!(object.root().get(key.as_str()).map(PString::as_str), Some(value.as_str()));
    }
    close(object);
}

#[test]
fn only_possible_lengths_in_place_are_accepted_in_a_root() {
    let bounds = Bounds::of(&[]);
    for last in 0..=255u8 {
        let mut bytes = [0; 3].map(|_: u8| 0u64);
        bytes[2] = u64::from(last) << 56;
        let string: NonNull<PString> = NonNull::from(&mut bytes).cast();
        // SAFETY: 24 aligned bytes.
        let accepted = unsafe { PString::is_bounded(string, &bounds) };
        assert_eq!(accepted, usize::from(last) <= IN_PLACE_MAX, "{last}");
    }
}
