//! Tests of deserializing values in place, and of serializing them.

use std::collections::{BTreeMap, HashMap};

use ::serde::Serialize;
use ::serde::de::value::MapDeserializer;
use ::serde::de::{IntoDeserializer, Visitor};
use serde_json::{Deserializer, json};

use super::{close, failing_at_each_allocation, object};
use crate::HeapError;
use crate::persist::serde::from;
use crate::persist::{Build, PBTree, PBox, PMap, PString, PTextMap, PVec, Scratch};

#[derive(Debug, PartialEq, crate::Persist, crate::PersistDeserialize, Serialize)]
#[repr(C)]
#[serde(rename_all = "camelCase")]
struct Page {
    page_title: PString,
    links: [PString; 2],
    #[serde(rename = "idx", alias = "index")]
    by_word: PMap<PString, PVec<u32>>,
    sorted: PBTree<PString, Kind>,
    next: Option<PBox<Page>>,
    #[serde(default)]
    visits: u64,
    #[serde(default = "half")]
    weight: f64,
    #[serde(skip)]
    scratch: PVec<u8>,
}

fn half() -> f64 {
    0.5
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    crate::Persist,
    crate::Plain,
    crate::PersistDeserialize,
    Serialize,
)]
#[repr(u8)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    PlainText,
    #[serde(alias = "picture")]
    Image,
}

#[derive(Default, crate::Persist, crate::PersistDeserialize, Serialize)]
#[repr(C)]
#[serde(deny_unknown_fields, default)]
struct Strict<T> {
    one: PVec<T>,
    two: u8,
}

#[derive(crate::Persist, crate::PersistDeserialize, Serialize)]
#[repr(C)]
struct Pair(PString, u64);

#[derive(crate::Persist, crate::PersistDeserialize, Serialize)]
#[repr(C)]
struct Wrapped(PVec<Pair>);

#[derive(crate::Persist, crate::PersistDeserialize)]
#[repr(C)]
struct List {
    next: Option<PBox<List>>,
}

fn read<T>(text: &str) -> Result<Scratch<T>, HeapError>
where
    T: for<'d> Build<
        crate::persist::serde::FromDeserializer<&'d mut Deserializer<serde_json::de::StrRead<'d>>>,
    >,
{
    Scratch::new(from(&mut Deserializer::from_str(text)))
}

const PAGE: &str = r#"{
    "pageTitle": "one", "links": ["a", "b"], "unknown": [{}],
    "index": { "x": [1, 2], "y": [] },
    "sorted": { "b": "plain-text", "a": "picture" },
    "next": { "links": ["", "c"], "idx": {}, "sorted": {}, "pageTitle": "two", "weight": 2 }
}"#;

#[test]
fn structs_are_read_in_place_and_written_as_serde_would() {
    let page = read::<Page>(PAGE).unwrap();
    let root = page.root();
    assert_eq!(
        root.by_word,
        HashMap::from([("x".to_string(), vec![1, 2]), ("y".to_string(), vec![])])
    );
    assert!(
        root.sorted
            .iter()
            .map(|(key, kind)| (&**key, *kind))
            .eq([("a", Kind::Image), ("b", Kind::PlainText)])
    );
    assert_eq!((root.visits, root.weight, root.scratch.len()), (0, 0.5, 0));
    assert_eq!(root.next.as_ref().map(|next| (&*next.page_title, next.weight)), Some(("two", 2.0)));

    let written = serde_json::to_string(root).unwrap();
    let again = read::<Page>(&written).unwrap();
    assert_eq!(again.root(), root);
    assert!(
        written.starts_with(r#"{"pageTitle":"one","links":["a","b"],"idx":{"x":[1,2],"y":[]}"#)
    );
    close(page);
    close(again);
}

#[test]
fn tuple_structs_and_generic_ones_are_read() {
    let wrapped = read::<Wrapped>(r#"[["a", 1], ["b", 2]]"#).unwrap();
    assert_eq!(serde_json::to_value(wrapped.root()).unwrap(), json!([["a", 1], ["b", 2]]));
    close(wrapped);
    let strict = read::<Strict<PString>>(r#"{ "one": ["x"] }"#).unwrap();
    assert_eq!(serde_json::to_value(strict.root()).unwrap(), json!({ "one": ["x"], "two": 0 }));
    close(strict);
    // A struct may also be a sequence of its fields.
    let row = read::<Strict<PString>>(r#"[["x"], 3]"#).unwrap();
    assert_eq!(row.root().two, 3);
    close(row);
}

#[test]
fn serdes_message_is_in_the_error() {
    let says = |text: &str, expected: &str| {
        let error = read::<Page>(text).map(drop).unwrap_err();
        let HeapError::Deserialize { what, why } = &error else { panic!("{error:?}") };
        assert!(what == "Page" && why.contains(expected), "{error}");
    };
    says("{ \"pageTitle\": \"x\" }", "missing field `links`");
    says("{ \"pageTitle\": 7 }", "invalid type: integer `7`, expected a string at line 1");
    says("{ \"links\": [\"a\"] }", "invalid length 1, expected 2 elements");
    says("{ \"visits\": 1, \"visits\": 2 }", "duplicate field `visits`");
    says(
        "{ \"sorted\": { \"a\": \"sound\" } }",
        "unknown variant `sound`, expected `plain-text` or",
    );
    says("{ \"pageTitle\": \"x", "EOF while parsing a string");
    let error = read::<Strict<u8>>("{ \"three\": 1 }").map(drop).unwrap_err();
    assert!(
        error.to_string().contains("unknown field `three`, expected `one` or `two`"),
        "{error}"
    );
}

#[test]
fn of_equal_keys_the_last_wins() {
    let text = r#"{ "b": "1", "a": "2", "b": "3", "c": "4", "c": "5" }"#;
    let expected =
        [("a", "2"), ("b", "3"), ("c", "5")].map(|(k, v)| (k.to_string(), v.to_string()));
    let tree = read::<PBTree<PString, PString>>(text).unwrap();
    assert_eq!(tree.root(), &BTreeMap::from(expected.clone()));
    close(tree);
    let texts = read::<PTextMap>(text).unwrap();
    assert_eq!(serde_json::to_string(texts.root()).unwrap(), r#"{"b":"3","a":"2","c":"5"}"#);
    close(texts);
    let map = read::<PMap<PString, PString>>(text).unwrap();
    assert_eq!(map.root(), &HashMap::from(expected));
    close(map);
}

#[test]
fn a_full_object_is_an_error_and_keeps_the_old_value() {
    let page = ["one", "two", "a", "b", "c", "x"].iter().fold(PAGE.to_string(), |page, text| {
        page.replace(&format!("{text:?}"), &format!("\"{text} with more than 23 bytes\""))
    });
    let allocations = failing_at_each_allocation(
        || object::<PVec<Page>, _>(PVec::new()),
        |mut pages| pages.push(from(&mut Deserializer::from_str(&page))).map(drop),
        |pages, succeeded| assert_eq!(pages.len(), usize::from(succeeded)),
    );
    assert!(allocations > 12, "{allocations}");

    let mut titles = object::<PVec<PString>, _>(["old"]);
    titles.heap().fail_after(1);
    let error = titles
        .root_mut()
        .assign(from(&mut Deserializer::from_str(r#"["a text of more than 23 bytes", "b"]"#)));
    assert!(
        !matches!(error, Ok(()) | Err(HeapError::Deserialize { .. })),
        "the heap's own error: {error:?}"
    );
    assert_eq!(titles.root(), &["old"]);
    titles.heap().never_fail();
    let error = titles.root_mut().assign(from(&mut Deserializer::from_str(r#"["a", 1]"#)));
    assert!(matches!(error, Err(HeapError::Deserialize { .. })));
    assert_eq!(titles.root(), &["old"]);
    close(titles);
}

#[test]
fn hostile_input_neither_overflows_the_stack_nor_fills_the_object() {
    let deep = "{\"next\":".repeat(100_000);
    let error = read::<List>(&deep).map(drop).unwrap_err();
    assert!(error.to_string().contains("recursion limit"), "{error}");
    // A format without its own depth limit.
    let error = Scratch::<List>::new(from(Nested(1_000_000))).map(drop).unwrap_err();
    assert!(error.to_string().contains("nested deeper than"), "{error}");
    close(object::<List, _>(from(Nested(crate::persist::serde::DEPTH_MAX / 2 - 1))));

    // A false length: the visitor reserves little, and stops at the first missing element.
    let lied = object::<PVec<u64>, _>(from(Lying));
    assert!(lied.root().is_empty() && lied.root().capacity() < 10_000);
    close(lied);
}

/// This many nested lists.
struct Nested(u32);

impl<'de> ::serde::Deserializer<'de> for Nested {
    type Error = ::serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let next = MapDeserializer::new([("next", self)].into_iter());
        visitor.visit_map(next)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0.checked_sub(1) {
            Some(less) => visitor.visit_some(Nested(less)),
            None => visitor.visit_none(),
        }
    }

    ::serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl IntoDeserializer<'_> for Nested {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Announces more elements than it has.
struct Lying;

impl<'de> ::serde::Deserializer<'de> for Lying {
    type Error = ::serde::de::value::Error;
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_seq(self)
    }
    ::serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum
        identifier ignored_any
    }
}

impl<'de> ::serde::de::SeqAccess<'de> for Lying {
    type Error = ::serde::de::value::Error;
    fn next_element_seed<S: ::serde::de::DeserializeSeed<'de>>(
        &mut self,
        _: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        Ok(None)
    }
    fn size_hint(&self) -> Option<usize> {
        Some(usize::MAX)
    }
}
