//! The model in a heap: rows are found in the map that training left.

use evermap::{PMap, PVec, Persist};
use evermap_guest::{Heap, Snapshot};

use super::train::Trained;
use super::{Model, Stored, row};
use crate::error::Outcome;

const NAME: &str = "classifier";

/// The root.
#[derive(Persist)]
#[repr(C)]
pub struct HeapModel {
    posts: PVec<u32>,
    totals: PVec<u32>,
    /// Numbers of rows.
    words: PMap<PVec<u8>, u32>,
    counts: PVec<u32>,
}

impl Model for HeapModel {
    fn posts(&self) -> &[u32] {
        &self.posts
    }

    fn totals(&self) -> &[u32] {
        &self.totals
    }

    fn vocabulary(&self) -> usize {
        self.words.len()
    }

    fn row(&self, word: &[u8]) -> Option<&[u32]> {
        row(&self.counts, self.posts.len(), *self.words.get(word)?)
    }
}

/// Keeps it, instead of one that may be there.
pub fn store(trained: &Trained) -> Outcome<Stored> {
    let mut heap = Heap::open(NAME)?;
    let mut model = heap.root_or::<HeapModel, _>(HeapModel {
        posts: PVec::new(),
        totals: PVec::new(),
        words: PMap::new(),
        counts: PVec::new(),
    })?;
    let mut model = model.fields();
    model.posts.assign(&trained.posts)?;
    model.totals.assign(&trained.totals)?;
    model.counts.assign(&trained.counts)?;
    model.words.clear();
    for (word, row) in trained.words.iter().zip(0_u32..) {
        model.words.insert(&word[..], row)?;
    }
    Ok(Stored::Heap(Box::new(heap)))
}

/// Opens it.
pub fn open() -> Outcome<Snapshot> {
    Ok(Snapshot::open(NAME)?)
}
