//! Model in a heap: its rows are found in the map that training left there.

use evermap_guest::{Heap, PMap, PVec, Persist, Snapshot};

use super::train::Trained;
use super::{Model, Stored, row};
use crate::error::Outcome;
use crate::words::{Found, Short, short};

const NAME: &str = "classifier";

/// Root object.
#[derive(Persist)]
#[repr(C)]
pub struct HeapModel {
    posts: PVec<u32>,
    totals: PVec<u32>,
    /// Row numbers by word. Short words are in the table itself.
    short: PMap<Short, u32>,
    long: PMap<PVec<u8>, u32>,
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
        self.short.len() + self.long.len()
    }

    fn row(&self, word: &Found) -> Option<&[u32]> {
        let number = match word.short() {
            Some(word) => self.short.get(word),
            None => self.long.get(word.letters()),
        };
        row(&self.counts, self.posts.len(), *number?)
    }
}

/// Stores the model, replacing an earlier one.
pub fn store(trained: &Trained) -> Outcome<Stored> {
    let mut heap = Heap::open(NAME)?;
    let mut model = heap.root_or::<HeapModel, _>(HeapModel {
        posts: PVec::new(),
        totals: PVec::new(),
        short: PMap::new(),
        long: PMap::new(),
        counts: PVec::new(),
    })?;
    let mut model = model.fields();
    model.posts.assign(&trained.posts)?;
    model.totals.assign(&trained.totals)?;
    model.counts.assign(&trained.counts)?;
    model.short.clear();
    model.long.clear();
    for (word, row) in trained.words.iter().zip(0_u32..) {
        match short(word) {
            Some(word) => model.short.insert(word, row).map(drop)?,
            None => model.long.insert(&word[..], row).map(drop)?,
        }
    }
    Ok(Stored::Heap(Box::new(heap)))
}

/// Opens the model.
pub fn open() -> Outcome<Snapshot> {
    Ok(Snapshot::open(NAME)?)
}
