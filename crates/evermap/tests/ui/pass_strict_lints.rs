//! The derives' output under the strictest lints, without `unsafe`, and with a type called `Cell`.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, missing_debug_implementations)]
#![deny(unused_qualifications, single_use_lifetimes, unused_lifetimes)]

use evermap::{
    Build, Built, Error, HeapError, PBox, PMap, PString, PVec, Persist, PersistHash, Plain, Ptr,
};
use evermap::{Scratch, Slot};

/// One field of the board; not `std::cell::Cell`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist, Plain, PersistHash)]
#[repr(C)]
pub struct Cell {
    /// Column.
    pub x: u32,
    y: u32,
}

/// A piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist, Plain, PersistHash)]
#[repr(u8)]
#[expect(missing_docs)]
pub enum Piece {
    Pawn,
    King,
}

/// A generic row.
#[derive(Debug, Persist)]
#[repr(C)]
pub struct Row<T, const N: usize> {
    /// The items.
    pub items: [T; N],
    rest: PVec<T>,
}

/// A board.
#[derive(Debug, Persist)]
#[repr(C)]
pub struct Board {
    /// Its pieces.
    pub pieces: PMap<Cell, Piece>,
    names: Row<PString, 2>,
    history: Option<PBox<Board>>,
    marked: Ptr<Cell>,
}

/// A source.
#[derive(Debug)]
pub struct Opening;

impl Build<Opening> for Board {
    fn build<'a>(_: Opening, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(BoardInit {
            pieces: [(Cell { x: 4, y: 0 }, Piece::King)],
            names: RowInit { items: ["white", "black"], rest: ["nobody"] },
            history: None::<Opening>,
            marked: Ptr::null(),
        })
    }
}

fn main() -> Result<(), Error> {
    let mut object = Scratch::<Board>::new(Opening)?;
    let mut board = object.root_mut();
    let BoardFields { mut pieces, mut history, .. } = board.fields();
    *pieces.insert(Cell { x: 3, y: 1 }, Piece::King)? = Piece::Pawn;
    history.insert(Opening)?.fields().pieces.remove(&Cell { x: 4, y: 0 });
    assert_eq!(object.root().pieces.len(), 2);
    assert!(object.root().history.as_ref().is_some_and(|board| board.pieces.is_empty()));
    Ok(())
}
