//! Editing a text map through its cursor, and building one.
//!
//! Steps that can fail come before any change: an insertion first ensures that a cell and the bytes
//! of its record are free.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::ptr::NonNull;
use std::slice;

use super::record::{BLOCK_BYTES, BLOCK_UNITS, Header, Position, Records, read};
use super::{EMPTY, POSITION_BITS_MAX, PTextMap, REMOVED, tag};
use crate::HeapError;
use crate::persist::build::ReleaseOnDrop;
use crate::persist::{Build, Built, FromIter, Mut, PVec, PersistHash, Slot, release_value};

const OVERFLOW: HeapError = HeapError::CapacityOverflow { what: "PTextMap" };

/// The index starts with this many cells.
const CELLS_MIN: usize = 8;

/// Returns the number of cells that may be other than empty.
const fn limit(cells: usize) -> usize {
    cells / 4 * 3
}

/// Returns the number of cells for this many entries.
fn cells_for(entries: usize) -> Result<usize, HeapError> {
    let cells = entries.checked_mul(4).ok_or(OVERFLOW)?.div_ceil(3).max(CELLS_MIN);
    cells.checked_next_power_of_two().ok_or(OVERFLOW)
}

/// Returns the bits of the largest position in this many blocks.
fn position_bits(blocks: usize) -> Result<u32, HeapError> {
    let positions = u32::try_from(blocks).ok().and_then(|n| n.checked_mul(BLOCK_UNITS));
    let bits = positions.ok_or(OVERFLOW)?.checked_ilog2().map_or(0, |log| log + 1);
    if bits > POSITION_BITS_MAX { Err(OVERFLOW) } else { Ok(bits) }
}

impl Mut<'_, PTextMap> {
    /// Sets the value of a key. Returns true if the key is new.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow, or the map has its maximum size. The map's
    /// contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("name", "a")])?;
    /// assert!(!object.root_mut().insert("name", "b")?);
    /// assert_eq!(object.root().get("name"), Some("b"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn insert(&mut self, key: &str, value: &str) -> Result<bool, HeapError> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        if self.cells.is_empty() {
            self.resize_index(CELLS_MIN)?;
        }
        let hash = self.hash_of(key);
        let old = self
            .find(hash, key)
            .map(|found| (found.cell, found.position, found.record.value.len()));
        if let Some((_, position, bytes)) = old
            && bytes == value.len()
        {
            self.overwrite(position, value);
            return Ok(false);
        }
        let header = Header::of(key, value).ok_or(OVERFLOW)?;
        self.make_room(header.record_bytes, old.is_none())?;
        if old.is_none() {
            let new = self.append(&header, key, value);
            self.index(hash, new);
            self.raw().live += 1;
            return Ok(true);
        }
        // Searched again, because making room may have moved the record and its cell.
        if let Some((cell, position)) = self.place_of(hash, key) {
            self.mark_removed(position);
            let new = self.append(&header, key, value);
            self.set_cell(cell, hash, new);
        }
        Ok(false)
    }

    /// Inserts each pair.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert). The pairs before the failing one stay.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// object.root_mut().extend([("b", "2"), ("c", "3")])?;
    /// assert_eq!(object.root().len(), 3);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn extend<S, U>(&mut self, pairs: impl IntoIterator<Item = (S, U)>) -> Result<(), HeapError>
    where
        S: AsRef<str>,
        U: AsRef<str>,
    {
        for (key, value) in pairs {
            self.insert(key.as_ref(), value.as_ref())?;
        }
        Ok(())
    }

    /// Removes the entry of a key. Returns true if there was one. Cannot fail, and needs no memory
    /// of the object.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// assert!(object.root_mut().remove("a"));
    /// assert!(!object.root_mut().remove("a"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn remove(&mut self, key: &str) -> bool {
        let hash = self.hash_of(key.as_bytes());
        let Some((cell, position)) = self.place_of(hash, key.as_bytes()) else { return false };
        self.mark_removed(position);
        let (_, cells) = self.parts();
        cells[cell] = REMOVED;
        let map = self.raw();
        map.live -= 1;
        if map.live == 0 {
            self.clear();
        }
        true
    }

    /// Removes all entries and frees their memory, except for the index.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// object.root_mut().clear();
    /// assert!(object.root().is_empty());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.blocks_mut().clear();
        self.parts().1.fill(EMPTY);
        let map = self.raw();
        (map.record_bytes, map.removed_bytes) = (0, 0);
        (map.live, map.used, map.position_bits) = (0, 0, 0);
    }

    /// Makes room in the index for `additional` more entries.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert).
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// object.root_mut().reserve(1000)?;
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        let cells = cells_for(self.len().checked_add(additional).ok_or(OVERFLOW)?)?;
        if cells <= self.cells.len() { Ok(()) } else { self.resize_index(cells) }
    }

    /// Closes the gaps of removed and replaced entries, and frees unused capacity.
    ///
    /// # Errors
    ///
    /// Returns an error when the new blocks can't be allocated: while it works, the object contains
    /// the old blocks and the new ones. The map's contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let mut object = Scratch::<PTextMap>::new([("a", "1"), ("b", "2")])?;
    /// object.root_mut().remove("a");
    /// object.root_mut().shrink_to_fit()?;
    /// assert_eq!(object.root().get("b"), Some("2"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self) -> Result<(), HeapError> {
        if self.removed_bytes > 0 {
            self.compact()?;
        }
        if let Some(mut last) = self.blocks_mut().last_mut() {
            last.shrink_to_fit()?;
        }
        self.blocks_mut().shrink_to_fit()?;
        let cells = cells_for(self.len())?;
        let cells = if self.is_empty() { 0 } else { cells };
        if cells < self.cells.len() {
            self.cells_mut().truncate(cells);
            self.index_all();
        }
        self.cells_mut().shrink_to_fit()
    }

    fn place_of(&self, hash: u64, key: &[u8]) -> Option<(usize, Position)> {
        self.find(hash, key).map(|found| (found.cell, found.position))
    }

    /// Ensures that a record of `bytes` fits after the last one, and that a cell is free if it
    /// needs one. May move all records and cells.
    fn make_room(&mut self, bytes: usize, needs_cell: bool) -> Result<(), HeapError> {
        let limit = limit(self.cells.len());
        if needs_cell && self.used as usize >= limit {
            // Half of the limit: so as many insertions follow before the index is built again.
            let is_sparse = (self.live as usize) < limit / 2;
            let cells = self.cells.len() * if is_sparse { 1 } else { 2 };
            self.resize_index(cells)?;
        }
        if let Some(mut last) = self.blocks_mut().last_mut()
            && last.len() < BLOCK_BYTES
            && last.len().saturating_add(bytes) <= last.capacity().max(BLOCK_BYTES)
        {
            // The first block grows by doubling, up to the size of the others.
            let doubled = last.capacity().saturating_mul(2);
            let is_full = bytes > last.capacity() - last.len();
            return if is_full && doubled > BLOCK_BYTES {
                let left = BLOCK_BYTES - last.len();
                last.reserve_exact(left)
            } else {
                last.reserve(bytes)
            };
        }
        // Half: so at least as many bytes are inserted before the records are copied again.
        if self.removed_bytes > self.record_bytes / 2 {
            self.compact()?;
            return self.make_room(bytes, false);
        }
        let bits = position_bits(self.blocks.len() + 1)?;
        let is_first = self.blocks.is_empty();
        let mut blocks = self.blocks_mut();
        let mut block = blocks.push(PVec::new())?;
        let reserved = match is_first {
            // The first block of a small map grows with its contents.
            true => block.reserve(bytes),
            false => block.reserve_exact(bytes.max(BLOCK_BYTES)),
        };
        if reserved.is_err() {
            blocks.truncate(blocks.len() - 1);
            return reserved;
        }
        self.widen_positions(bits);
        Ok(())
    }

    /// Appends a record, for which there is room.
    fn append(&mut self, header: &Header, key: &[u8], value: &[u8]) -> Position {
        let number = self.blocks.len() - 1;
        let mut offset = 0;
        if let Some(mut block) = self.blocks_mut().last_mut() {
            offset = block.len();
            append_to(&mut block, header, key, value);
        }
        self.raw().record_bytes += header.record_bytes as u64;
        Position::new(number, offset)
    }

    /// Overwrites the value of a record by one of the same length.
    fn overwrite(&mut self, position: Position, value: &[u8]) {
        let (number, offset) = position.split();
        if let Some(mut block) = self.blocks_mut().get_mut(number)
            && let Some(record) = read(&block, offset)
        {
            let at = record.value.as_ptr().addr() - block.as_slice().as_ptr().addr();
            block.as_mut_slice()[at..at + value.len()].copy_from_slice(value);
        }
    }

    fn mark_removed(&mut self, position: Position) {
        let (number, offset) = position.split();
        let mut bytes = 0;
        if let Some(mut block) = self.blocks_mut().get_mut(number) {
            bytes = read(&block, offset).map_or(0, |record| record.bytes);
            block.as_mut_slice()[offset] |= 1;
        }
        self.raw().removed_bytes += bytes as u64;
    }

    /// Copies the records that are not removed to new blocks.
    fn compact(&mut self) -> Result<(), HeapError> {
        let mut fresh = PVec::<PVec<u8>>::new();
        let place = NonNull::from(&mut fresh);
        // SAFETY: a valid vector of this heap's object, released if this function fails, and moved
        // into the map otherwise.
        let (mut blocks, guard) =
            unsafe { (Mut::from_raw(self.heap, place), ReleaseOnDrop::new(self.heap, place)) };
        let mut left = self.record_bytes - self.removed_bytes;
        for (_, record) in Records::new(&self.blocks).filter(|(_, record)| !record.is_removed) {
            let header = Header::of(record.key, record.value).ok_or(OVERFLOW)?;
            let bytes = header.record_bytes;
            let fits = blocks.last().is_some_and(|block| {
                block.len() < BLOCK_BYTES && block.capacity() - block.len() >= bytes
            });
            if !fits {
                let whole = (left.min(BLOCK_BYTES as u64) as usize).max(bytes);
                blocks.push(PVec::new())?;
                if let Some(mut block) = blocks.last_mut() {
                    block.reserve_exact(whole)?;
                }
            }
            if let Some(mut block) = blocks.last_mut() {
                append_to(&mut block, &header, record.key, record.value);
            }
            left -= bytes as u64;
        }
        guard.keep();
        let heap = self.heap;
        let map = self.raw();
        let mut old = mem::replace(&mut map.blocks, fresh);
        map.record_bytes -= map.removed_bytes;
        map.removed_bytes = 0;
        // SAFETY: the map's old blocks, which nothing refers to any more.
        unsafe { release_value(heap, NonNull::from(&mut old)) };
        self.index_all();
        Ok(())
    }

    /// Builds an index of this many cells.
    #[cold]
    fn resize_index(&mut self, cells: usize) -> Result<(), HeapError> {
        let more = cells.saturating_sub(self.cells.len());
        self.cells_mut().reserve_exact(more)?;
        self.cells_mut().resize(cells, EMPTY)?;
        if self.seed == 0 {
            self.raw().seed = RandomState::new().hash_one(0_u64);
        }
        self.index_all();
        Ok(())
    }

    /// Fills the index anew.
    fn index_all(&mut self) {
        let seed = self.seed;
        let bits = position_bits(self.blocks.len()).unwrap_or(POSITION_BITS_MAX);
        self.raw().position_bits = bits;
        let (blocks, cells) = self.parts();
        cells.fill(EMPTY);
        let mut used = 0;
        for (position, record) in Records::new(blocks).filter(|(_, record)| !record.is_removed) {
            let hash = record.key.persist_hash(seed);
            place(cells, hash, tag(bits, hash) | position.0);
            used += 1;
        }
        self.raw().used = used;
    }

    /// Gives positions more bits of each cell, at the cost of the tags.
    fn widen_positions(&mut self, bits: u32) {
        let before = mem::replace(&mut self.raw().position_bits, bits);
        if bits > before {
            let taken = (u32::MAX << before) & !(u32::MAX << bits);
            self.parts().1.iter_mut().for_each(|cell| *cell &= !taken);
        }
    }

    /// Adds a record to the index, which has an empty cell.
    fn index(&mut self, hash: u64, position: Position) {
        let bits = self.position_bits;
        place(self.parts().1, hash, tag(bits, hash) | position.0);
        self.raw().used += 1;
    }

    fn set_cell(&mut self, cell: usize, hash: u64, position: Position) {
        let bits = self.position_bits;
        self.parts().1[cell] = tag(bits, hash) | position.0;
    }

    /// Returns the blocks, and the cells for writing.
    fn parts(&mut self) -> (&[PVec<u8>], &mut [u32]) {
        let map = self.raw();
        let (first, len) = (map.cells.first(), map.cells.len());
        // SAFETY: exclusive access to the map is exclusive access to its cells.
        (&map.blocks, unsafe { slice::from_raw_parts_mut(first.as_ptr(), len) })
    }

    pub(super) fn blocks_mut(&mut self) -> Mut<'_, PVec<PVec<u8>>> {
        let blocks = NonNull::from(&mut self.raw().blocks);
        // SAFETY: the cursor's exclusive access is passed on.
        unsafe { Mut::from_raw(self.heap, blocks) }
    }

    pub(super) fn cells_mut(&mut self) -> Mut<'_, PVec<u32>> {
        let cells = NonNull::from(&mut self.raw().cells);
        // SAFETY: the cursor's exclusive access is passed on.
        unsafe { Mut::from_raw(self.heap, cells) }
    }
}

/// Appends a record to a block that has room for it.
fn append_to(block: &mut Mut<'_, PVec<u8>>, header: &Header, key: &[u8], value: &[u8]) {
    let end = block.len() + header.record_bytes;
    assert!(end <= block.capacity(), "the caller made room");
    // These cannot fail: nothing is allocated.
    let written = [header.as_bytes(), key, value]
        .into_iter()
        .try_for_each(|part| block.extend_from_slice(part))
        .and_then(|()| block.resize(end, 0));
    debug_assert!(written.is_ok());
}

/// Writes a cell to the first empty place from the hash's own on.
fn place(cells: &mut [u32], hash: u64, cell: u32) {
    let mask = cells.len() - 1;
    let mut at = hash as usize & mask;
    while cells[at] != EMPTY {
        at = (at + 1) & mask;
    }
    cells[at] = cell;
}

impl Build<PTextMap> for PTextMap {
    fn build<'a>(source: PTextMap, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}

impl Build<&PTextMap> for PTextMap {
    fn build<'a>(source: &PTextMap, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PTextMap::new(), |mut map| {
            map.reserve(source.len())?;
            map.extend(source)
        })
    }
}

impl<I, S, U> Build<FromIter<I>> for PTextMap
where
    I: Iterator<Item = (S, U)>,
    S: AsRef<str>,
    U: AsRef<str>,
{
    fn build<'a>(source: FromIter<I>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PTextMap::new(), |mut map| {
            map.reserve(source.0.size_hint().0)?;
            map.extend(source.0)?;
            map.shrink_to_fit()
        })
    }
}

macro_rules! from_pairs {
    ($([$($generics:tt)*] $source:ty),*) => {$(
        impl<S: AsRef<str>, U: AsRef<str>, $($generics)*> Build<$source> for PTextMap {
            fn build<'a>(source: $source, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
                slot.build(crate::persist::from_iter(source))
            }
        }
    )*};
}

from_pairs!([const N: usize] [(S, U); N], [] Vec<(S, U)>, [H] HashMap<S, U, H>, [] BTreeMap<S, U>);
