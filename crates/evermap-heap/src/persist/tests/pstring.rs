//! Tests `PString` against `String`.

use std::fmt::Write;

use proptest::prelude::*;

use super::{close, object};
use crate::persist::PString;

proptest! {
    #[test]
    fn a_string_matches_the_standard_string(
        steps in prop::collection::vec((0..9_u8, ".{0,12}", any::<char>(), 0..24_usize), 0..60)
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
                _ => string.shrink_to_fit().unwrap(),
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
    let mut object = object::<PString, _>("a long text");
    object.heap().fail_after(0);
    object.root_mut().assign("short").unwrap();
    assert_eq!(object.root(), "short");
    close(object);
}
