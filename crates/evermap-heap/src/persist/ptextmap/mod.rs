//! The packed map of texts: its layout and reading it. Editing is in `edit`, records are in
//! `record`.
//!
//! Keys and values lie one after the other in blocks of a mebibyte, to which records are only
//! appended. An open-addressing index of `u32` cells leads from hashes to records. Layout (88
//! bytes, `repr(C)`):
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 24 | `blocks`: the blocks of records, a `PVec<PVec<u8>>` |
//! | 24 | 24 | `cells`: the index, a `PVec<u32>` of `2^n` cells, or empty |
//! | 48 | 8 | `seed` of the hash; chosen when the first cells are allocated |
//! | 56 | 8 | `record_bytes`: bytes of all records |
//! | 64 | 8 | `removed_bytes`: bytes of the removed ones |
//! | 72 | 4 | `live`: entries not removed |
//! | 76 | 4 | `used`: cells that are not empty |
//! | 80 | 4 | `position_bits`: bits of a cell that hold a position |
//! | 84 | 4 | zero |
//!
//! The position of a record is its number of two-byte units plus 1, counting a block as `2^19`
//! units. A cell holds a position in its low `position_bits` bits, and the top bits of the hash's
//! high word above them, so most wrong candidates are skipped without reading their record. 0 is an
//! empty cell; a removed one has position 0 and its highest bit set. The search starts at the cell
//! numbered by the hash's low bits and continues cell by cell.
//!
//! Invariants: keys and values are UTF-8; a record begins in the first mebibyte of its block, and
//! only the last block gets more; each live record has one cell; at most three quarters of the
//! cells are not empty; all positions are below `2^position_bits`; 88 zero bytes are an empty map.

mod edit;
mod record;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter::FusedIterator;
use std::mem::offset_of;
use std::ptr::NonNull;

use super::{Bounds, Description, Mut, PVec, Persist, PersistHash, Releaser};
use record::{Position, Record, Records, read};

/// A packed hash map from texts to texts, for large dictionaries.
///
/// Takes about as much memory as the texts themselves: an entry needs two to four bytes for its
/// lengths, and five to eleven in the index. A
/// [`PMap<PString, PString>`](super::PMap) takes more for every entry, but gives cursors to its
/// values.
///
/// Values are replaced as a whole. Replacing one by a text of another length, and removing, leave a
/// gap that a later insertion or [`shrink_to_fit`](Mut::shrink_to_fit) closes. The cursor has
/// [`insert`](Mut::insert), [`remove`](Mut::remove), [`extend`](Mut::extend),
/// [`clear`](Mut::clear), [`reserve`](Mut::reserve). At most 4 GiB of records.
///
/// ```
/// use evermap::{PTextMap, Scratch};
///
/// let mut object = Scratch::<PTextMap>::new([("de", "Hallo"), ("fr", "Bonjour")])?;
/// object.root_mut().insert("de", "Guten Tag")?;
///
/// assert_eq!(object.root().get("de"), Some("Guten Tag"));
/// assert_eq!(object.root().get("en"), None);
/// assert_eq!(object.root().len(), 2);
/// # Ok::<(), evermap::Error>(())
/// ```
#[derive(Default)]
#[repr(C)]
pub struct PTextMap {
    blocks: PVec<PVec<u8>>,
    cells: PVec<u32>,
    seed: u64,
    record_bytes: u64,
    removed_bytes: u64,
    live: u32,
    used: u32,
    position_bits: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<PTextMap>() == 88 && align_of::<PTextMap>() == 8);
const _: () = assert!(offset_of!(PTextMap, cells) == 24 && offset_of!(PTextMap, seed) == 48);
const _: () = assert!(offset_of!(PTextMap, live) == 72);
const _: () = assert!(offset_of!(PTextMap, position_bits) == 80);

const EMPTY: u32 = 0;
/// Position 0, so no record.
const REMOVED: u32 = 1 << 31;
/// Leaves at least one bit of tag next to a position.
const POSITION_BITS_MAX: u32 = 31;

/// Returns the tag of a hash in cells whose positions have this many bits.
fn tag(position_bits: u32, hash: u64) -> u32 {
    (hash >> 32) as u32 & (u32::MAX << position_bits)
}

/// Entry found in the index.
struct Found<'a> {
    cell: usize,
    position: Position,
    record: Record<'a>,
}

impl PTextMap {
    /// Returns an empty map, which owns nothing.
    ///
    /// ```
    /// assert!(evermap::PTextMap::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        PTextMap {
            blocks: PVec::new(),
            cells: PVec::new(),
            seed: 0,
            record_bytes: 0,
            removed_bytes: 0,
            live: 0,
            used: 0,
            position_bits: 0,
            reserved: 0,
        }
    }

    /// Returns the number of entries.
    ///
    /// ```
    /// assert_eq!(evermap::PTextMap::new().len(), 0);
    /// ```
    pub const fn len(&self) -> usize {
        self.live as usize
    }

    /// Returns true if there are no entries.
    ///
    /// ```
    /// assert!(evermap::PTextMap::new().is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the value of a key.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// assert_eq!(object.root().get("a"), Some("1"));
    /// assert_eq!(object.root().get("b"), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.find(self.hash_of(key.as_bytes()), key.as_bytes())?;
        // SAFETY: a value of this map.
        Some(unsafe { text(found.record.value) })
    }

    /// Returns true if there is an entry for a key.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let object = Scratch::<PTextMap>::new([("a", "1")])?;
    /// assert!(object.root().contains_key("a"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns the entries in the order in which their values were inserted. A value replaced by
    /// one of the same length keeps its place.
    ///
    /// ```
    /// use evermap::{PTextMap, Scratch};
    ///
    /// let object = Scratch::<PTextMap>::new([("b", "2"), ("a", "1")])?;
    /// assert_eq!(object.root().iter().collect::<Vec<_>>(), [("b", "2"), ("a", "1")]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter(&self) -> TextIter<'_> {
        TextIter { records: Records::new(&self.blocks), left: self.len() }
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        key.persist_hash(self.seed)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<Found<'_>> {
        let cells = self.cells.as_slice();
        let mask = cells.len().checked_sub(1)?;
        let positions = !(u32::MAX << self.position_bits);
        let tag = tag(self.position_bits, hash);
        // An empty cell ends the search; the range ends it in a damaged object too.
        for step in 0..cells.len() {
            let place = (hash as usize).wrapping_add(step) & mask;
            let stored = *cells.get(place)?;
            if stored == EMPTY {
                return None;
            }
            let position = Position(stored & positions);
            if stored & !positions == tag
                && position.0 != 0
                && let Some(record) = self.record(position)
                && record.key == key
            {
                return Some(Found { cell: place, position, record });
            }
        }
        None
    }

    fn record(&self, position: Position) -> Option<Record<'_>> {
        let (block, offset) = position.split();
        read(self.blocks.get(block)?, offset)
    }
}

/// Returns a record's key or value as text.
///
/// # Safety
///
/// The bytes are a key or a value of a valid map.
unsafe fn text(bytes: &[u8]) -> &str {
    // SAFETY: UTF-8 is an invariant of the map, and of the object, whose pages are checked against
    // their checksums and whose type id says that this is a `PTextMap`.
    unsafe { std::str::from_utf8_unchecked(bytes) }
}

// SAFETY: 88 bytes of fixed layout; owns the two vectors. A map that owns blocks is created only
// inside an object: `new` returns an empty one, and there is no `Clone`.
unsafe impl Persist for PTextMap {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    // The vectors get no cursors of their own: their contents have invariants.
    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PTextMap", &[]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: the vectors of a valid map, which gives them up here.
        unsafe {
            PVec::release(NonNull::from(&this.as_ref().blocks), releaser);
            PVec::release(NonNull::from(&this.as_ref().cells), releaser);
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are vectors and numbers, and the caller lets them be read.
        unsafe {
            let map = this.as_ref();
            // The field, because the vector is not checked yet.
            let cells = map.cells.len;
            PVec::is_bounded(NonNull::from(&map.blocks), bounds)
                && PVec::is_bounded(NonNull::from(&map.cells), bounds)
                && (cells == 0 || cells.is_power_of_two())
                && map.live <= map.used
                && u64::from(map.used) <= cells
                && map.position_bits <= POSITION_BITS_MAX
        }
    }
}

impl<'a> IntoIterator for &'a PTextMap {
    type Item = (&'a str, &'a str);
    type IntoIter = TextIter<'a>;

    fn into_iter(self) -> TextIter<'a> {
        self.iter()
    }
}

/// Iterator of [`PTextMap::iter`].
#[derive(Clone)]
pub struct TextIter<'a> {
    records: Records<'a>,
    left: usize,
}

impl<'a> Iterator for TextIter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (_, record) = self.records.by_ref().find(|(_, record)| !record.is_removed)?;
        self.left = self.left.saturating_sub(1);
        // SAFETY: a key and a value of the map.
        Some(unsafe { (text(record.key), text(record.value)) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for TextIter<'_> {}
impl FusedIterator for TextIter<'_> {}

impl fmt::Debug for TextIter<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.clone()).finish()
    }
}

impl fmt::Debug for PTextMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self).finish()
    }
}

/// Equal if they have the same entries, in any order.
impl PartialEq for PTextMap {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl Eq for PTextMap {}
