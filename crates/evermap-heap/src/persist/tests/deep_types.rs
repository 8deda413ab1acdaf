//! Tests of types nested deep in each other, and in themselves.

use super::{close, object};
use crate::persist::{PBox, PVec, Persist, type_description};

/// Each struct holds the next one: 64 levels.
macro_rules! chain {
    ($last:ident) => {
        #[derive(crate::Persist)]
        #[repr(C)]
        struct $last {
            text: PVec<u8>,
        }
    };
    ($first:ident $next:ident $($rest:ident)*) => {
        #[derive(crate::Persist)]
        #[repr(C)]
        struct $first {
            next: $next,
            back: Option<PBox<A0>>,
        }
        chain!($next $($rest)*);
    };
}

chain!(A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A21 A22 A23 A24 A25
    A26 A27 A28 A29 A30 A31 A32 A33 A34 A35 A36 A37 A38 A39 A40 A41 A42 A43 A44 A45 A46 A47 A48 A49
    A50 A51 A52 A53 A54 A55 A56 A57 A58 A59 A60 A61 A62 A63);

#[derive(crate::Persist)]
#[repr(C)]
struct Wrap<T> {
    within: T,
    others: PVec<T>,
}

#[derive(crate::Persist)]
#[repr(C)]
struct Two<A, B> {
    one: PVec<A>,
    two: PVec<B>,
}

type W4<T> = Wrap<Wrap<Wrap<Wrap<T>>>>;
type W16<T> = W4<W4<W4<W4<T>>>>;
type W64<T> = W16<W16<W16<W16<T>>>>;

type T1<T> = Two<T, T>;
type T4<T> = T1<T1<T1<T1<T>>>>;
type T16<T> = T4<T4<T4<T4<T>>>>;

#[test]
fn nested_structs_are_described_once_each() {
    let text = type_description::<A0>();
    assert_eq!(text.matches("#").count(), 64);
    assert!(text.len() < 64 * 60, "{}", text.len());
    // SAFETY: null pointers and zeros are a valid value of every struct of the chain.
    let zero: A0 = unsafe { std::mem::zeroed() };
    let object = object::<PVec<A0>, _>([zero]);
    assert!(object.root()[0].back.is_none());
    close(object);
}

#[test]
fn nested_generic_structs_are_described_in_quadratic_size() {
    let text = type_description::<W64<u8>>();
    assert_eq!(text.matches("#").count(), 64);
    assert!(text.len() < 64 * 64 * 20, "{}", text.len());
    const { assert!(W64::<u8>::OWNS && A0::OWNS) };
}

#[test]
fn types_that_double_at_each_level_are_refused() {
    let text = type_description::<T4<u8>>();
    assert_eq!(text.matches("#").count(), 4);
    let panic = std::panic::catch_unwind(type_description::<T16<T4<u8>>>).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("takes more than 1048576 bytes; put a struct"), "{said}");
}
