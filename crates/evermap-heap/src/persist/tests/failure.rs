//! Tests in which each allocation in turn fails, as in a full object.

use super::{close, failing_at_each_allocation, object};
use crate::persist::{PBox, PMap, PString, PVec};

#[derive(crate::Persist)]
#[repr(C)]
struct Page {
    title: PString,
    links: [PString; 2],
    index: PMap<PString, PVec<PString>>,
    next: Option<PBox<Page>>,
}

/// Texts too long to lie in place.
const TITLE: &str = "a title of more than 23 bytes";
const ONE: &str = "one link of more than 23 bytes";
const TWO: &str = "two links of more than 23 bytes";

fn page() -> Page {
    Page {
        title: PString::new(),
        links: [const { PString::new() }; 2],
        index: PMap::new(),
        next: None,
    }
}

#[test]
fn a_failed_build_leaves_nothing_behind() {
    let allocations = failing_at_each_allocation(
        || object::<PVec<Page>, _>([page()]),
        |mut pages| {
            let pushed = pages.push(PageInit {
                title: TITLE,
                links: [ONE, TWO],
                index: [(TITLE, ["x", ONE]), ("b", [TWO, "z"])],
                next: Some(PageInit {
                    title: "next",
                    links: ["", TWO],
                    index: [("c", vec!["u"])],
                    next: None::<Page>,
                }),
            });
            pushed.map(drop)
        },
        |pages, succeeded| assert_eq!(pages.len(), if succeeded { 2 } else { 1 }),
    );
    assert!(allocations > 15, "{allocations}");
}

#[test]
fn extending_a_vector_is_all_or_nothing() {
    failing_at_each_allocation(
        || object::<PVec<PString>, _>(["a"]),
        |mut vec| vec.extend((0..50).map(|n| format!("{TITLE} {n}"))),
        |vec, succeeded| assert_eq!(vec.len(), if succeeded { 51 } else { 1 }),
    );
}

#[test]
fn a_failed_assignment_keeps_the_old_value() {
    failing_at_each_allocation(
        || object::<PVec<PString>, _>(["a", ONE]),
        |mut vec| vec.assign(["c", TITLE, TWO]),
        |vec, succeeded| assert_eq!(vec == &["c", TITLE, TWO], succeeded),
    );
    failing_at_each_allocation(
        || object::<PString, _>("old"),
        |mut string| string.assign("a text that is longer than the old block"),
        |string, succeeded| assert_eq!(string != "old", succeeded),
    );
    failing_at_each_allocation(
        || object::<Option<PBox<PString>>, _>(Some(ONE)),
        |mut owned| owned.insert(TWO).map(drop),
        |owned, succeeded| {
            let expected = if succeeded { TWO } else { ONE };
            assert!(owned.as_deref().is_some_and(|text| text == expected));
        },
    );
}

#[test]
fn inserting_into_a_map_changes_all_or_nothing() {
    // After six entries, the next one makes the index and the block of entries grow.
    let six = || (0..6_u64).map(|n| (n.to_string(), n.to_string())).collect::<Vec<_>>();
    let allocations = failing_at_each_allocation(
        || object::<PMap<PString, PString>, _>(six()),
        |mut map| map.insert(ONE, TITLE).map(drop),
        |map, succeeded| {
            assert_eq!(map.len(), if succeeded { 7 } else { 6 });
            assert_eq!(map.get(ONE).is_some(), succeeded);
            assert!((0..6_u64).all(|n| map.contains_key(n.to_string().as_str())));
        },
    );
    assert!(allocations >= 3, "index, key, value, and entries unless they grow in place");

    failing_at_each_allocation(
        || object::<PMap<PString, PVec<u8>>, _>([("key", b"old")]),
        |mut map| map.insert("key", b"new value").map(drop),
        |map, succeeded| {
            let expected: &[u8] = if succeeded { b"new value" } else { b"old" };
            assert_eq!(map.get("key").map(|value| value.as_slice()), Some(expected));
        },
    );
}

#[test]
fn editing_after_a_failure_works() {
    let mut object = object::<PMap<PString, PString>, _>(PMap::new());
    object.heap().fail_after(0);
    assert!(object.root_mut().insert("a", "1").is_err());
    assert!(object.root().is_empty());
    object.heap().never_fail();
    object.root_mut().insert("a", "1").unwrap();
    assert_eq!(object.root().len(), 1);
    close(object);
}

#[test]
fn removing_needs_no_memory() {
    let mut object = object::<PMap<u64, PString>, _>(
        (0..1000_u64).map(|n| (n, n.to_string())).collect::<Vec<_>>(),
    );
    object.heap().fail_after(0);
    for key in 0..990 {
        assert!(object.root_mut().remove(&key));
    }
    assert_eq!(object.root().len(), 10);
    assert_eq!(object.root().get(&995).map(|text| text.as_str()), Some("995"));
    close(object);
}
