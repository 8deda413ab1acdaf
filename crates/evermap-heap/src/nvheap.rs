//! Named blocks: the table of names that is the root of an `nvheap.h` heap, and the functions of
//! that header. Native programs and guests share both, so each can read the other's heaps.
//!
//! The table has the machine's pointer size. It contains the number of names, the number of buckets
//! (a power of two) and one list of entries per bucket. A name is in the list of its hash (FNV-1a,
//! 64 bits). Everything lies in the object, so a commit covers it like the named blocks.
//!
//! Pointers are followed only if they lead into the object, and no more entries of a list are read
//! than there are names. So an object from another program cannot lead a reader outside the object
//! or into an endless loop.

use std::mem::offset_of;
use std::ptr::NonNull;

/// Tag of the root.
pub const TAG: [u8; 16] = *b"evermap.nvheap.1";
/// Description of the root.
pub const DESCRIPTION: &str = "table of names of an nvheap";
/// Alignment of every block, the same as `malloc`'s.
pub const ALIGNMENT: usize = 16;
/// Maximum length of a name.
pub const NAME_BYTES_MAX: usize = 255;
const BUCKETS_FIRST: usize = 64;
/// More buckets do not fit into any memory.
const BUCKETS_MAX: usize = usize::MAX / 16;

/// The root of an object, as the table needs it.
pub struct Root {
    /// Address; 0 for none.
    pub address: usize,
    /// Tag.
    pub tag: [u8; 16],
    /// Description of the tag.
    pub description: String,
}

/// An open object whose root may be a table of names.
pub trait Named {
    /// Error of the library that opened the object.
    type Error;

    /// Returns the object's root.
    fn root(&self) -> Result<Root, Self::Error>;

    /// Returns a pointer to `bytes` bytes if they lie in the object and are aligned.
    fn place(&self, address: usize, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Error for an object with another root.
    fn other_root(&self, description: &str) -> Self::Error;

    /// Error for a damaged table.
    fn damaged(&self) -> Self::Error;
}

/// An object that is open for writing. No other thread uses its table during a call.
pub trait NamedMut: Named {
    /// Allocates a block with unspecified contents, aligned to [`ALIGNMENT`].
    fn allocate(&mut self, bytes: usize) -> Result<NonNull<u8>, Self::Error>;

    /// Frees a block.
    ///
    /// # Safety
    /// Nothing refers to the block.
    unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), Self::Error>;

    /// Makes a table of `bytes` bytes the root, with [`TAG`] and [`DESCRIPTION`].
    fn set_table(&mut self, table: NonNull<u8>, bytes: usize) -> Result<(), Self::Error>;
}

#[repr(C)]
struct Table {
    names: u64,
    buckets: u64,
    // `buckets` pointers to entries follow.
}

#[repr(C)]
struct Entry {
    next: *mut Entry,
    block: *mut u8,
    size: u64,
    hash: u64,
    name_bytes: u64,
    // The name and a zero byte follow.
}

const _: () = assert!(size_of::<Table>() == 16);
const _: () = assert!(offset_of!(Entry, size) == 2 * size_of::<usize>());
const _: () = assert!(size_of::<Entry>() == 2 * size_of::<usize>() + 24);

/// A table whose buckets lie in the object.
#[derive(Clone, Copy)]
struct Buckets {
    table: NonNull<Table>,
    names: u64,
    buckets: usize,
}

impl Buckets {
    /// Returns the head of the list for a hash.
    fn bucket(self, hash: u64) -> NonNull<*mut Entry> {
        let at = hash as usize & (self.buckets - 1);
        // SAFETY: `at` is below the number of buckets, which follow the table in the same block.
        unsafe { self.table.add(1).cast::<*mut Entry>().add(at) }
    }

    /// # Safety
    /// The caller has exclusive use of the table.
    unsafe fn set_names(self, names: u64) {
        // SAFETY: the table lies in the object.
        unsafe { (&raw mut (*self.table.as_ptr()).names).write(names) };
    }
}

fn table_bytes(buckets: usize) -> usize {
    size_of::<Table>() + buckets * size_of::<*mut Entry>()
}

/// FNV-1a, 64 bits.
fn hash_of(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the table of an object; `None` while the object has no root.
fn table<O: Named>(object: &O) -> Result<Option<Buckets>, O::Error> {
    let root = object.root()?;
    if root.address == 0 {
        return Ok(None);
    }
    if root.tag != TAG {
        return Err(object.other_root(&root.description));
    }
    let damaged = || object.damaged();
    let align = align_of::<Table>();
    let head = object.place(root.address, size_of::<Table>(), align).ok_or_else(damaged)?;
    let table = head.cast::<Table>();
    // SAFETY: `place` found the table's head inside the object.
    let Table { names, buckets } = unsafe { table.read() };
    // A table with more names than buckets would have been doubled.
    let possible = usize::try_from(buckets)
        .ok()
        .filter(|b| b.is_power_of_two() && *b <= BUCKETS_MAX && names <= buckets);
    let buckets = possible.ok_or_else(damaged)?;
    object.place(root.address, table_bytes(buckets), align).ok_or_else(damaged)?;
    Ok(Some(Buckets { table, names, buckets }))
}

/// Returns an entry that lies in the object, and its name.
fn entry(object: &impl Named, address: *mut Entry) -> Option<(Entry, &[u8])> {
    let place = object.place(address.addr(), size_of::<Entry>(), align_of::<Entry>())?;
    // SAFETY: the entry lies in the object, and any bytes are a valid `Entry`.
    let entry = unsafe { place.cast::<Entry>().read() };
    let length = usize::try_from(entry.name_bytes).ok().filter(|n| *n <= NAME_BYTES_MAX)?;
    object.place(address.addr(), size_of::<Entry>() + length, 1)?;
    // SAFETY: the name lies in the object; it is written once, together with its entry.
    let name =
        unsafe { std::slice::from_raw_parts(place.as_ptr().add(size_of::<Entry>()), length) };
    Some((entry, name))
}

/// A found entry: the pointer to it, and its contents.
struct Found {
    place: NonNull<*mut Entry>,
    entry: NonNull<Entry>,
    next: *mut Entry,
    block: NonNull<[u8]>,
}

fn find_in<O: Named>(object: &O, table: Buckets, name: &[u8]) -> Result<Option<Found>, O::Error> {
    let damaged = || object.damaged();
    let hash = hash_of(name);
    let mut place = table.bucket(hash);
    for _ in 0..=table.names {
        // SAFETY: `place` is a bucket, or the first field of an entry that lies in the object.
        let Some(address) = NonNull::new(unsafe { place.read() }) else { return Ok(None) };
        let (stored, stored_name) = entry(object, address.as_ptr()).ok_or_else(damaged)?;
        if stored.hash == hash && stored_name == name {
            let size = usize::try_from(stored.size).map_err(|_| damaged())?;
            let block = object.place(stored.block.addr(), size, ALIGNMENT).ok_or_else(damaged)?;
            let block = NonNull::slice_from_raw_parts(block, size);
            return Ok(Some(Found { place, entry: address, next: stored.next, block }));
        }
        place = address.cast();
    }
    Err(damaged())
}

/// Returns the block with this name.
///
/// # Errors
/// Another root, or a damaged table.
pub fn find<O: Named>(object: &O, name: &[u8]) -> Result<Option<NonNull<[u8]>>, O::Error> {
    let Some(table) = table(object)? else { return Ok(None) };
    Ok(find_in(object, table, name)?.map(|found| found.block))
}

/// Enters a block under a name that is not in the table.
///
/// # Errors
/// Same errors as [`find`], and errors of the allocator.
pub fn insert<O: NamedMut>(
    object: &mut O,
    name: &[u8],
    block: NonNull<u8>,
    bytes: usize,
) -> Result<(), O::Error> {
    let table = table_with_room(object)?;
    let made = object.allocate(size_of::<Entry>() + name.len() + 1)?.cast::<Entry>();
    let hash = hash_of(name);
    let place = table.bucket(hash);
    // SAFETY: the new block has room for the entry and the name, and nothing else refers to it. The
    // table lies in the object, and the caller has exclusive use of it.
    unsafe {
        made.write(Entry {
            next: place.read(),
            block: block.as_ptr(),
            size: bytes as u64,
            hash,
            name_bytes: name.len() as u64,
        });
        let text = made.add(1).cast::<u8>();
        text.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len());
        text.add(name.len()).write(0);
        place.write(made.as_ptr());
        table.set_names(table.names + 1);
    }
    Ok(())
}

/// Removes a name. Returns its block, which is not freed.
///
/// # Errors
/// Same errors as [`find`].
pub fn remove<O: NamedMut>(object: &mut O, name: &[u8]) -> Result<Option<NonNull<[u8]>>, O::Error> {
    let Some(table) = table(object)? else { return Ok(None) };
    let Some(found) = find_in(object, table, name)? else { return Ok(None) };
    // SAFETY: table and entry lie in the object, and the caller has exclusive use of them. The
    // entry is removed from its list before it is freed.
    unsafe {
        found.place.write(found.next);
        table.set_names(table.names.saturating_sub(1));
        object.free(found.entry.cast())?;
    }
    Ok(Some(found.block))
}

/// Returns the table. Creates or doubles it if it has as many names as lists.
fn table_with_room<O: NamedMut>(object: &mut O) -> Result<Buckets, O::Error> {
    let old = table(object)?;
    if let Some(old) = old.filter(|old| old.names < old.buckets as u64) {
        return Ok(old);
    }
    let (names, had) = old.map_or((0, 0), |old| (old.names, old.buckets));
    let buckets = (had * 2).max(BUCKETS_FIRST);
    let bytes = table_bytes(buckets);
    let block = object.allocate(bytes)?;
    let new = Buckets { table: block.cast(), names, buckets };
    // SAFETY: the new block has `bytes` bytes, and nothing else refers to it.
    unsafe {
        block.write_bytes(0, bytes);
        new.table.write(Table { names, buckets: buckets as u64 });
    }
    if let Some(old) = old
        && let Err(error) = move_entries(object, old, new)
    {
        // SAFETY: nothing refers to the new block.
        unsafe { object.free(block)? };
        return Err(error);
    }
    object.set_table(block, bytes)?;
    if let Some(old) = old {
        // SAFETY: nothing refers to the old table any more.
        unsafe { object.free(old.table.cast())? };
    }
    Ok(new)
}

/// Moves all entries of one table into another. On error the old table is unchanged.
fn move_entries<O: NamedMut>(object: &O, old: Buckets, new: Buckets) -> Result<(), O::Error> {
    let mut entries = Vec::new();
    for bucket in 0..old.buckets as u64 {
        // SAFETY: the bucket lies in the table.
        let mut next = unsafe { old.bucket(bucket).read() };
        while let Some(address) = NonNull::new(next) {
            if entries.len() as u64 >= old.names {
                return Err(object.damaged());
            }
            let (stored, _) = entry(object, address.as_ptr()).ok_or_else(|| object.damaged())?;
            entries.push((address, stored.hash));
            next = stored.next;
        }
    }
    for (address, hash) in entries {
        let place = new.bucket(hash);
        // SAFETY: the entry lies in the object and the bucket in the new table's block. The caller
        // has exclusive use of both.
        unsafe {
            (&raw mut (*address.as_ptr()).next).write(place.read());
            place.write(address.as_ptr());
        }
    }
    Ok(())
}

/// Exports the functions that `nvheap.h` declares for native programs and for guests. Each calls
/// the function after its `=`, which has the same parameters and the same result.
#[macro_export]
#[doc(hidden)]
macro_rules! __nvheap_functions {
    (nvmalloc = $malloc:path, nvread = $read:path, nvfree = $free:path, nvcommit = $commit:path) => {
        /// # Safety
        /// `name` is null or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void {
            // SAFETY: the caller guarantees the same.
            unsafe { $malloc(name, size) }
        }

        /// # Safety
        /// `name` is null or a C string, and `size` is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nvread(name: *const c_char, size: *mut usize) -> *mut c_void {
            // SAFETY: the caller guarantees the same.
            unsafe { $read(name, size) }
        }

        /// # Safety
        /// `name` is null or a C string, and the caller does not use the block again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nvfree(name: *const c_char) -> c_int {
            // SAFETY: the caller guarantees the same.
            unsafe { $free(name) }
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn nvcommit() -> c_int {
            $commit()
        }
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// An object in ordinary memory. Freed blocks stay.
    #[derive(Default)]
    struct Memory {
        blocks: Vec<Box<[u128]>>,
        root: usize,
    }

    #[derive(Debug, PartialEq)]
    enum Refusal {
        OtherRoot,
        Damaged,
    }

    impl Named for Memory {
        type Error = Refusal;

        fn root(&self) -> Result<Root, Refusal> {
            Ok(Root { address: self.root, tag: TAG, description: String::new() })
        }

        fn place(&self, address: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
            let holds = |block: &[u128]| {
                let at = address.checked_sub(block.as_ptr().expose_provenance());
                at.is_some_and(|at| size_of_val(block).checked_sub(at) >= Some(bytes.max(1)))
            };
            let sound =
                address.is_multiple_of(align) && self.blocks.iter().any(|block| holds(block));
            NonNull::new(std::ptr::with_exposed_provenance_mut(address)).filter(|_| sound)
        }

        fn other_root(&self, _: &str) -> Refusal {
            Refusal::OtherRoot
        }

        fn damaged(&self) -> Refusal {
            Refusal::Damaged
        }
    }

    impl NamedMut for Memory {
        fn allocate(&mut self, bytes: usize) -> Result<NonNull<u8>, Refusal> {
            self.blocks.push(vec![0; bytes.div_ceil(16).max(1)].into());
            Ok(NonNull::from(&mut self.blocks.last_mut().unwrap()[0]).cast())
        }

        unsafe fn free(&mut self, _: NonNull<u8>) -> Result<(), Refusal> {
            Ok(())
        }

        fn set_table(&mut self, table: NonNull<u8>, _: usize) -> Result<(), Refusal> {
            self.root = table.as_ptr().expose_provenance();
            Ok(())
        }
    }

    fn name(number: usize) -> Vec<u8> {
        format!("block {number}").into_bytes()
    }

    /// Returns an object with `names` named blocks of 16 bytes.
    fn object(names: usize) -> Memory {
        let mut object = Memory::default();
        for number in 0..names {
            let block = object.allocate(16).unwrap();
            insert(&mut object, &name(number), block, 16).unwrap();
        }
        object
    }

    #[test]
    fn names_are_found_while_the_table_doubles_and_until_they_are_removed() {
        let mut object = object(300);
        for number in 0..300 {
            let block = find(&object, &name(number)).unwrap().unwrap();
            assert_eq!(block.len(), 16);
            assert_eq!(remove(&mut object, &name(number)), Ok(Some(block)));
            assert_eq!(find(&object, &name(number)), Ok(None));
        }
    }

    #[test]
    fn a_changed_word_of_table_or_entry_is_damage_or_finds_no_other_block() {
        let mut object = object(1);
        let good = find(&object, &name(0)).unwrap();
        let table_at = object.blocks.iter().position(|b| b.as_ptr().addr() == object.root).unwrap();
        let mut refused = 0;
        for at in [table_at, object.blocks.len() - 1] {
            for word in 0..object.blocks[at].len() {
                for change in [1u128, u128::from(u64::MAX), 0xfff0 << 64, u128::MAX << 64] {
                    object.blocks[at][word] ^= change;
                    match find(&object, &name(0)) {
                        Ok(found) => assert!(found.is_none() || found == good),
                        Err(error) => {
                            assert_eq!(error, Refusal::Damaged);
                            refused += 1;
                        }
                    }
                    object.blocks[at][word] ^= change;
                }
            }
        }
        assert!(refused >= 8, "only {refused} changes were refused");
        assert_eq!(find(&object, &name(0)), Ok(good));
    }

    #[test]
    fn a_list_without_an_end_is_damage() {
        let mut object = object(1);
        let entry = object.blocks.last_mut().unwrap();
        let address = entry.as_ptr().expose_provenance();
        // The entry is its own successor, and has another name than the one looked for.
        entry[0] = (entry[0] >> 64 << 64) | address as u128;
        let last = entry.len() - 1;
        entry[last] ^= 1 << 64;
        assert_eq!(find(&object, &name(0)), Err(Refusal::Damaged));
    }
}
