//! Tests of `PBox`, lists and trees of it, and the release of deep structures.

use super::{close, object, times};
use crate::persist::{PBox, PMap, PString, PVec};

#[derive(crate::Persist)]
#[repr(C)]
struct Node {
    value: u64,
    name: PString,
    next: Option<PBox<Node>>,
}

fn node(value: u64) -> Node {
    Node { value, name: PString::new(), next: None }
}

#[test]
fn a_box_is_replaced_and_cleared_without_leaks() {
    let mut object = object::<Option<PBox<PString>>, _>(Some("one"));
    object.root_mut().insert("two").unwrap();
    object.root_mut().assign(Some("three texts, this one in a block")).unwrap();
    assert!(
        object.root().as_deref().is_some_and(|text| text == "three texts, this one in a block")
    );
    object.root_mut().as_mut().unwrap().push_str("!").unwrap();
    assert!(object.root_mut().clear());
    assert!(!object.root_mut().clear());
    assert!(object.root_mut().as_mut().is_none());
    assert_eq!(object.heap().live_blocks(), 1, "the root's own");
    close(object);
}

/// Far more levels than a stack of this size could recurse through.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(work);
    thread.unwrap().join().unwrap();
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn a_list_of_a_million_nodes_is_released_on_a_small_stack() {
    on_a_small_stack(|| {
        let mut object = object::<Node, _>(node(0));
        let mut tail = object.root_mut().into_fields().next;
        for value in 1..times(1_000_000) as u64 {
            tail.insert(node(value)).unwrap();
            tail = tail.into_mut().unwrap().into_fields().next;
        }
        close(object);
    });
}

#[derive(crate::Persist)]
#[repr(C)]
struct Deep {
    inside: PVec<Deep>,
    mapped: PMap<u64, Deep>,
}

fn empty() -> Deep {
    Deep { inside: PVec::new(), mapped: PMap::new() }
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn vectors_and_maps_nested_a_hundred_thousand_deep_are_released_on_a_small_stack() {
    on_a_small_stack(|| {
        let mut object = object::<Deep, _>(empty());
        let mut inner = object.root_mut();
        for level in 0..times(100_000) as u64 {
            let mut fields = inner.into_fields();
            if level % 2 == 0 {
                fields.inside.push(empty()).unwrap();
                fields.inside.push(empty()).unwrap();
                inner = fields.inside.into_get_mut(0).unwrap();
            } else {
                fields.mapped.insert(level, empty()).unwrap();
                inner = fields.mapped.into_get_mut(&level).unwrap();
            }
        }
        close(object);
    });
}

#[test]
fn the_contents_of_a_box_stay_where_they_are() {
    let mut object = object::<PVec<PBox<u64>>, _>([7_u64]);
    let before: *const u64 = &*object.root()[0];
    for value in 0..100 {
        object.root_mut().push(value).unwrap();
    }
    assert!(std::ptr::eq(before, &*object.root()[0]));
    close(object);
}

#[test]
fn an_unlinked_tail_is_released_whole() {
    let mut object = object::<Node, _>(node(0));
    let mut tail = object.root_mut().into_fields().next;
    for value in 1..1000 {
        let mut inserted = tail.insert(node(value)).unwrap();
        inserted.fields().name.push_str("a name of more than 23 bytes").unwrap();
        tail = tail.into_mut().unwrap().into_fields().next;
    }
    assert_eq!(object.heap().live_blocks(), 1 + 999 * 2);
    let mut first = object.root_mut().into_fields().next;
    first.as_mut().unwrap().fields().next.clear();
    assert_eq!(object.root().next.as_ref().map(|next| next.value), Some(1));
    assert_eq!(object.heap().live_blocks(), 1 + 2);
    close(object);
}
