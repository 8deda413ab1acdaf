//! Tests of the derive macros' output.

use super::{close, object};
use crate::persist::{Build, Built, Mut, PBox, PString, PVec, Persist, Plain, Ptr, Slot};

#[derive(crate::Persist)]
#[repr(C)]
struct Pair<A, B>
where
    B: Clone,
{
    one: A,
    others: PVec<B>,
}

#[derive(crate::Persist)]
#[repr(C)]
struct Tuple(PString, u64);

#[derive(crate::Persist)]
#[repr(C, align(64))]
struct Aligned {
    r#type: u8,
    texts: [PString; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, crate::Persist, crate::Plain)]
#[repr(u8)]
enum Color {
    Red,
    Green = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, crate::Persist, crate::Plain)]
#[repr(C)]
struct Pixel {
    color: Color,
    at: [f32; 2],
}

#[derive(crate::Persist)]
#[repr(C)]
#[persist(fields = "GridCursors", init = "GridSources")]
struct Grid<const N: usize> {
    rows: [PVec<u8>; N],
}

#[derive(Clone, Copy, Default, crate::Persist, crate::Plain)]
#[repr(C)]
struct Nothing;

#[test]
fn fields_of_generic_structs_are_edited_side_by_side() {
    let mut object = object::<Pair<PString, u64>, _>(PairInit { one: "a", others: [1_u64] });
    let mut root = object.root_mut();
    let PairFields { mut one, mut others } = root.fields();
    others.push(2_u64).unwrap();
    one.push_str("b").unwrap();
    others.push(3_u64).unwrap();
    assert_eq!(object.root().one, "ab");
    assert_eq!(object.root().others, [1, 2, 3]);
    close(object);
}

#[test]
fn tuple_structs_and_odd_names_and_alignments_work() {
    let mut tuple = object::<Tuple, _>(TupleInit("a", 1_u64));
    *tuple.root_mut().fields().1 += 1;
    tuple.root_mut().fields().0.set(PString::new());
    assert_eq!((tuple.root().0.as_str(), tuple.root().1), ("", 2));
    close(tuple);

    let mut aligned = object::<Aligned, _>(AlignedInit { r#type: 1_u8, texts: ["a", "b"] });
    assert!(std::ptr::from_ref(aligned.root()).addr().is_multiple_of(64));
    let [mut one, mut other] = aligned.root_mut().into_fields().texts.into_fields();
    one.push_str("1").unwrap();
    other.push_str("2").unwrap();
    *aligned.root_mut().fields().r#type += 1;
    assert_eq!(aligned.root().texts.each_ref().map(PString::as_str), ["a1", "b2"]);
    close(aligned);
}

#[test]
fn plain_values_are_written_like_any_other() {
    let pixel = Pixel { color: Color::Red, at: [0.0; 2] };
    let mut object = object::<PVec<Pixel>, _>([pixel; 3]);
    object.root_mut().get_mut(1).unwrap().color = Color::Green;
    let mut pixels = object.root_mut();
    pixels.as_mut_slice()[2].at = [1.0, 2.0];
    pixels.as_mut_slice().swap(0, 2);
    assert_eq!(object.root()[0].at, [1.0, 2.0]);
    assert_eq!(object.root()[1].color, Color::Green);
    close(object);
}

#[test]
fn names_of_the_companions_can_be_chosen() {
    let mut object = object::<Grid<2>, _>(GridSources { rows: [[1_u8], [2]] });
    let mut root = object.root_mut();
    let GridCursors { rows } = root.fields();
    for mut row in rows.into_fields() {
        row.push(9_u8).unwrap();
    }
    assert_eq!(object.root().rows[1], [2, 9]);
    close(object);
}

#[test]
fn structs_without_fields_are_values_too() {
    let mut object = object::<PVec<Nothing>, _>([Nothing; 5]);
    object.root_mut().push(Nothing).unwrap();
    assert_eq!(object.root().len(), 6);
    close(object);
}

#[test]
fn types_that_own_nothing_are_marked() {
    const {
        assert!(!Pixel::OWNS && !Nothing::OWNS && !<Ptr<Tuple>>::OWNS);
        assert!(!<[PString; 0]>::OWNS && Tuple::OWNS && Grid::<1>::OWNS);
        assert!(<Option<PBox<u8>>>::OWNS);
    }
    fn plain<T: Plain>() {}
    plain::<Pixel>();
}

/// Builds its string, then fails.
struct Failing;

impl Build<Failing> for Tuple {
    fn build<'a>(_: Failing, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, crate::HeapError> {
        slot.write_with(Tuple(PString::new(), 0), |mut tuple: Mut<'_, Tuple>| {
            tuple.fields().0.push_str("a text")?;
            Err(crate::HeapError::CapacityOverflow { what: "on purpose" })
        })
    }
}

#[test]
fn a_failing_custom_build_leaks_nothing() {
    let mut object = object::<PVec<PBox<Tuple>>, _>([TupleInit("a", 1_u64)]);
    assert!(object.root_mut().push(Failing).is_err());
    assert!(object.root_mut().assign([Failing]).is_err());
    assert_eq!(object.root().len(), 1);
    close(object);
}
