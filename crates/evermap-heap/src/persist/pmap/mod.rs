//! The map: its layout and reading it. Editing is in `edit`, iterators are in `iter`.
//!
//! Entries lie in one block in the order of insertion. An open-addressing index of `u32` cells in a
//! second block maps keys to positions. So iteration walks a dense array, the index is small, and
//! the order is the order of insertion. Layout (40 bytes, `repr(C)`):
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `entries`: pointer to `3/4 * 2^bits` entries, `used` of them written |
//! | 8 | 8 | `cells`: pointer to `2^bits` cells |
//! | 16 | 8 | `seed` of the hash; chosen when the first block is allocated |
//! | 24 | 4 | `used`: entries written, including removed ones |
//! | 28 | 4 | `live`: entries not removed |
//! | 32 | 4 | `bits`: 0 while the map owns no blocks, else 3..=31 |
//! | 36 | 4 | zero |
//!
//! An entry is `repr(C) { hash: u64, key: K, value: V }`. Its hash is never 0; 0 marks a removed
//! entry, whose key and value have been released. A cell is the bitwise complement of `tag |
//! position`: the position of the entry in the low `bits` bits, the top bits of the hash's high
//! word above them, so most wrong candidates are skipped without reading their entry. 0 is an empty
//! cell and 1 a removed one; no entry has these values, because positions stay below `3/4 *
//! 2^bits`. The search starts at the cell numbered by the hash's low bits and continues cell by
//! cell.
//!
//! Invariants: at most `used` cells are not empty, so a search always reaches an empty one; every
//! live entry has one cell; an empty map without blocks is 40 zero bytes.

mod blocks;
mod edit;
pub mod iter;

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::{Bounds, Description, Mut, POINTER_BYTES, Persist, PersistHash, Releaser};
use iter::{Iter, Keys, Values};

/// A hash map that keeps the order of insertion: `HashMap` for objects.
///
/// Keys are looked up by any borrowed form (`map.get("key")` in a `PMap<PString, V>`). Its cursor
/// has [`insert`](Mut::insert), [`get_or_insert_with`](Mut::get_or_insert_with),
/// [`get_mut`](Mut::get_mut), [`remove`](Mut::remove), [`retain`](Mut::retain),
/// [`iter_mut`](Mut::iter_mut), [`values_mut`](Mut::values_mut). Lookups, insertions and removals
/// take amortised constant time; removal keeps the order of the rest. At most 1,610,612,736
/// entries.
///
/// The hash ([`PersistHash`]) is the same everywhere. Each map mixes in its own random seed, so
/// collisions can't be constructed by choosing keys.
///
/// ```
/// use evermap::{PMap, PString, PVec, Scratch};
///
/// let mut object = Scratch::<PMap<PString, PVec<u64>>>::new([("odd", [1, 3])])?;
/// let mut map = object.root_mut();
/// map.insert("even", [2])?;
/// map.get_or_insert_with("even", || [0; 0])?.push(4)?;
///
/// let map = object.root();
/// assert_eq!(map.get("even").map(|list| list.as_slice()), Some([2, 4].as_slice()));
/// assert_eq!(map.keys().map(|key| key.as_str()).collect::<Vec<_>>(), ["odd", "even"]);
/// # Ok::<(), evermap::Error>(())
/// ```
#[repr(C)]
pub struct PMap<K, V> {
    pub(super) entries: *mut Entry<K, V>,
    pub(super) cells: *mut u32,
    pub(super) seed: u64,
    pub(super) used: u32,
    pub(super) live: u32,
    pub(super) bits: u32,
    pub(super) reserved: u32,
}

const SEED_OFFSET: usize = 2 * POINTER_BYTES;
const _: () = assert!(size_of::<PMap<u8, u8>>() == SEED_OFFSET + 24);
const _: () = assert!(align_of::<PMap<u8, u8>>() == 8);
const _: () = assert!(std::mem::offset_of!(PMap<u8, u8>, cells) == POINTER_BYTES);
const _: () = assert!(std::mem::offset_of!(PMap<u8, u8>, seed) == SEED_OFFSET);
const _: () = assert!(std::mem::offset_of!(PMap<u8, u8>, used) == SEED_OFFSET + 8);
const _: () = assert!(std::mem::offset_of!(PMap<u8, u8>, live) == SEED_OFFSET + 12);
const _: () = assert!(std::mem::offset_of!(PMap<u8, u8>, bits) == SEED_OFFSET + 16);

/// One entry. Key and value are valid if and only if the hash isn't 0.
#[repr(C)]
pub struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: MaybeUninit<K>,
    pub(super) value: MaybeUninit<V>,
}

const _: () = assert!(size_of::<Entry<u64, u64>>() == 24);

/// The index starts with eight cells.
pub(super) const BITS_MIN: u32 = 3;
/// Leaves at least one bit of tag next to the position.
pub(super) const BITS_MAX: u32 = 31;

pub(super) const EMPTY: u32 = 0;
pub(super) const REMOVED: u32 = 1;

/// Returns the number of entries that an index of `2^bits` cells serves: three quarters, where
/// linear probing still needs about two to three steps.
pub(super) const fn limit(bits: u32) -> usize {
    if bits == 0 { 0 } else { 3 << (bits - 2) }
}

const _: () = assert!(limit(BITS_MIN) == 6 && limit(BITS_MAX) == 1_610_612_736);

pub(super) fn cell(bits: u32, hash: u64, position: usize) -> u32 {
    !(tag(bits, hash) | position as u32)
}

fn tag(bits: u32, hash: u64) -> u32 {
    (hash >> 32) as u32 & (u32::MAX << bits)
}

// SAFETY: a map owns its entries, like `HashMap`.
unsafe impl<K: Send, V: Send> Send for PMap<K, V> {}
// SAFETY: a map owns its entries, like `HashMap`.
unsafe impl<K: Sync, V: Sync> Sync for PMap<K, V> {}

/// Next read of a look-up, see [`PMap::get_after`].
#[doc(hidden)]
pub enum Reads<'a, K> {
    /// A cell of the index.
    Cell(*const u32),
    /// An entry: address and bytes.
    Entry(*const u8, usize),
    /// What this key refers to; the key itself has been read.
    Key(&'a K),
}

/// Position at which a key was found.
pub(super) struct Found {
    pub(super) cell: usize,
    pub(super) position: usize,
}

impl<K, V> PMap<K, V> {
    /// Returns an empty map, which owns nothing.
    ///
    /// ```
    /// use evermap::PMap;
    ///
    /// assert!(PMap::<u64, u64>::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        PMap {
            entries: ptr::null_mut(),
            cells: ptr::null_mut(),
            seed: 0,
            used: 0,
            live: 0,
            bits: 0,
            reserved: 0,
        }
    }

    /// Returns the number of entries.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let object = Scratch::<PMap<u64, u64>>::new([(1, 10), (2, 20), (1, 30)])?;
    /// assert_eq!(object.root().len(), 2);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub const fn len(&self) -> usize {
        self.live as usize
    }

    /// Returns true if there are no entries.
    ///
    /// ```
    /// assert!(evermap::PMap::<u64, u64>::new().is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of entries that fit before the map has to grow.
    ///
    /// ```
    /// assert_eq!(evermap::PMap::<u64, u64>::new().capacity(), 0);
    /// ```
    pub const fn capacity(&self) -> usize {
        limit(self.bits)
    }

    /// Returns the entries in the order of insertion.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let object = Scratch::<PMap<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root().iter().collect::<Vec<_>>(), [(&2, &20), (&1, &10)]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(self)
    }

    /// Returns the keys in the order of insertion.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let object = Scratch::<PMap<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert!(object.root().keys().eq(&[2, 1]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// Returns the values in the order of insertion.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let object = Scratch::<PMap<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert!(object.root().values().eq(&[20, 10]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// Returns the value of a key.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
    /// assert_eq!(object.root().get("a"), Some(&1));
    /// assert_eq!(object.root().get("b"), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// Returns the entry of a key.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
    /// let entry = object.root().get_key_value("a");
    /// assert_eq!(entry.map(|(key, value)| (key.as_str(), *value)), Some(("a", 1)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        let found = self.find(self.hash_of(key), key)?;
        self.entry_slice()[found.position].pair()
    }

    /// Returns true if there is an entry for a key.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
    /// assert!(object.root().contains_key("a"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        self.get_key_value(key).is_some()
    }

    /// Returns the hash of a key in this map, which is never 0.
    pub(super) fn hash_of<Q: PersistHash + ?Sized>(&self, key: &Q) -> u64 {
        key.persist_hash(self.seed).max(1)
    }

    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> Option<Found>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let found = self.find_after(hash, key, |_| Ok::<(), Infallible>(()));
        found.unwrap_or_else(|never| match never {})
    }

    /// Like [`get`](PMap::get), and calls `check` before each read outside of the map itself, so
    /// that a reader can verify pages when it first needs them.
    ///
    /// # Errors
    /// Those of `check`.
    #[doc(hidden)]
    pub fn get_after<Q, E>(
        &self,
        key: &Q,
        check: impl FnMut(Reads<'_, K>) -> Result<(), E>,
    ) -> Result<Option<&V>, E>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        let found = self.find_after(self.hash_of(key), key, check)?;
        Ok(found.and_then(|found| self.entry_slice()[found.position].pair()).map(|(_, v)| v))
    }

    #[inline]
    fn find_after<Q, E>(
        &self,
        hash: u64,
        key: &Q,
        mut check: impl FnMut(Reads<'_, K>) -> Result<(), E>,
    ) -> Result<Option<Found>, E>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        if self.live == 0 {
            return Ok(None);
        }
        let cells = self.cell_slice();
        let entries = self.entry_slice();
        let mask = cells.len() - 1;
        let tag = tag(self.bits, hash);
        let mut place = hash as usize & mask;
        // Terminates at an empty cell: the invariant at the top of the file.
        loop {
            check(Reads::Cell(&raw const cells[place]))?;
            let stored = cells[place];
            if stored == EMPTY {
                return Ok(None);
            }
            let (tag_there, position) = (!stored & !(mask as u32), !stored as usize & mask);
            if stored != REMOVED && tag_there == tag {
                let entry = &entries[position];
                check(Reads::Entry((&raw const *entry).cast(), size_of::<Entry<K, V>>()))?;
                if entry.hash == hash
                    && let Some((there, _)) = entry.pair()
                {
                    check(Reads::Key(there))?;
                    if there.borrow() == key {
                        return Ok(Some(Found { cell: place, position }));
                    }
                }
            }
            place = (place + 1) & mask;
        }
    }

    /// Returns the entries written so far, including removed ones.
    pub(super) fn entry_slice(&self) -> &[Entry<K, V>] {
        let first = NonNull::new(self.entries).unwrap_or(NonNull::dangling());
        // SAFETY: `used` entries have been written, and `MaybeUninit` makes no claim about the
        // rest.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.used as usize) }
    }

    /// Returns the hash of a written entry, without a reference to the rest of it: a cursor to its
    /// value may exist.
    pub(super) fn hash_at(&self, position: usize) -> u64 {
        debug_assert!(position < self.used as usize);
        // SAFETY: in the block, and written.
        unsafe { (*self.entries.add(position)).hash }
    }

    /// Returns the place of a written entry's key, derived from the block's own pointer: its
    /// address stays valid for a [`Ptr`](super::Ptr).
    pub(super) fn key_place(&self, position: usize) -> NonNull<K> {
        debug_assert!(position < self.used as usize);
        // SAFETY: in the block, whose pointer isn't null while entries are written.
        unsafe { NonNull::new_unchecked(&raw mut (*self.entries.add(position)).key).cast() }
    }

    /// Like [`key_place`](Self::key_place), for the value.
    pub(super) fn value_place(&self, position: usize) -> NonNull<V> {
        debug_assert!(position < self.used as usize);
        // SAFETY: in the block, whose pointer isn't null while entries are written.
        unsafe { NonNull::new_unchecked(&raw mut (*self.entries.add(position)).value).cast() }
    }

    fn cell_slice(&self) -> &[u32] {
        // SAFETY: called while the map has entries, so it has `2^bits` cells.
        unsafe { std::slice::from_raw_parts(self.cells, 1 << self.bits) }
    }
}

impl<K, V> Entry<K, V> {
    /// Returns key and value, unless the entry was removed.
    pub(super) fn pair(&self) -> Option<(&K, &V)> {
        // SAFETY: valid while the hash isn't 0: the entry's invariant.
        (self.hash != 0)
            .then(|| unsafe { (self.key.assume_init_ref(), self.value.assume_init_ref()) })
    }
}

// SAFETY: 40 bytes of fixed layout; owns the two blocks and their contents. A map that owns blocks
// is created only inside an object: `new` returns an empty one, and there is no `Clone`.
unsafe impl<K: Persist, V: Persist> Persist for PMap<K, V> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PMap", &[K::describe, V::describe]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: a valid map owns its blocks, if any, and gives them up here.
        unsafe {
            let this = this.as_ref();
            if let Some(cells) = NonNull::new(this.cells) {
                releaser.free(cells.cast());
            }
            if let Some(entries) = NonNull::new(this.entries) {
                let used = this.used as usize;
                releaser.block_with(entries.cast(), used, release_entries::<K, V>);
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are pointers and numbers, and the caller lets them be read.
        let this = unsafe { this.as_ref() };
        if this.entries.is_null() && this.cells.is_null() {
            return this.used == 0 && this.live == 0;
        }
        this.live <= this.used
            && this.bits < u32::BITS
            && bounds.contain_row(this.entries.cast_const(), u64::from(this.used))
            && bounds.contain_row(this.cells.cast_const(), 1 << this.bits)
    }
}

unsafe fn release_entries<K: Persist, V: Persist>(
    block: NonNull<u8>,
    used: usize,
    releaser: &mut Releaser<'_>,
) {
    let first = block.cast::<Entry<K, V>>();
    if K::OWNS || V::OWNS {
        for index in 0..used {
            // SAFETY: one of the map's entries; key and value are valid if the hash isn't 0.
            unsafe {
                let entry = first.add(index).as_mut();
                if entry.hash != 0 {
                    K::release(NonNull::from(&mut entry.key).cast(), releaser);
                    V::release(NonNull::from(&mut entry.value).cast(), releaser);
                }
            }
        }
    }
    // SAFETY: the map gives the block up, and its entries have just been released.
    unsafe { releaser.free(block) };
}

impl<K, V> Default for PMap<K, V> {
    fn default() -> Self {
        PMap::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for PMap<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self).finish()
    }
}

/// Equal if they have the same entries, in any order.
impl<K: PersistHash + Eq, V: PartialEq> PartialEq for PMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|(key, value)| other.get(key).is_some_and(|there| there == value))
    }
}

impl<K: PersistHash + Eq, V: Eq> Eq for PMap<K, V> {}
