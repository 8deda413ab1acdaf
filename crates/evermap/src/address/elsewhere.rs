//! Table of the process's other mappings: the C heap, stacks, libraries, other stores.
//!
//! A commit uses it to look up where a word leads that looks like an address. The table is read
//! from `/proc/self/maps` and kept for the whole process. The end of the C heap is queried each
//! time, without a system call. The table is read again after a store was opened or closed. It is
//! also read again when a word leads to where a new mapping could be and the size of the process
//! has changed, which costs a small read. New mappings are expected where the kernel puts them
//! (around the libraries, and below the stack of the main thread) and in the arenas of other
//! stores.

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::maps::{MappedRange, parse_mapped};
use super::reservation::{ARENAS_CHANGED, reserved_by};

static CURRENT: Mutex<Option<Arc<Elsewhere>>> = Mutex::new(None);

/// Maximum gap between neighbouring mappings. The kernel puts new mappings next to those for which
/// it chose the address.
const NEAR_BYTES: u64 = 1 << 40;
/// Lower limit of mapped addresses. Small numbers below it are common in data.
const ADDRESS_MIN: u64 = 1 << 16;
/// End of the addresses that a program can map: 47 bits on x86-64, 48 on others.
pub(crate) const ADDRESS_END: u64 = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 48 };

/// A part of the process's memory with one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedPlace {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Name for messages.
    pub(crate) name: Arc<str>,
}

/// Table of the process's mappings at one moment, sorted by address and disjoint.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    places: Vec<MappedPlace>,
    /// Index of the C heap, which can grow.
    heap: Option<usize>,
    /// Ranges in which new mappings are expected, as (first, end).
    near: Vec<(u64, u64)>,
    /// Arenas of all stores, in which objects can grow.
    arenas: Vec<(u64, u64)>,
    signs: Signs,
    pages: u64,
}

/// Indicators of a change that can be read without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    process: u32,
    arenas: u64,
}

impl Signs {
    fn now() -> Signs {
        let arenas = ARENAS_CHANGED.load(Ordering::Acquire);
        Signs { process: std::process::id(), arenas }
    }
}

/// Result of looking up an address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Leads<'a> {
    Into(&'a MappedPlace),
    /// Unknown, but a new mapping could be there.
    Near,
    Nowhere,
}

impl Elsewhere {
    /// Returns the table of this process. Reads it again if it is known to be stale.
    pub(crate) fn now() -> Arc<Elsewhere> {
        let Some(mut current) = current() else { return Arc::new(Elsewhere::read()) };
        match &*current {
            Some(table) if table.signs == Signs::now() => Arc::clone(table),
            _ => Arc::clone(current.insert(Arc::new(Elsewhere::read()))),
        }
    }

    /// Creates an empty table that is older than any other.
    pub(crate) fn unread() -> Elsewhere {
        let signs = Signs { process: 0, arenas: 0 };
        Elsewhere {
            places: Vec::new(),
            heap: None,
            near: Vec::new(),
            arenas: Vec::new(),
            signs,
            pages: 0,
        }
    }

    /// Returns a newer table for these addresses if the process's size has changed since this one
    /// was read. Objects in an arena grow without changing the size, so an address in an arena
    /// always causes a new read.
    pub(crate) fn renewed(
        &self,
        mut addresses: impl Iterator<Item = u64>,
    ) -> Option<Arc<Elsewhere>> {
        if addresses.any(|address| is_in(&self.arenas, address)) {
            let newer = Arc::new(Elsewhere::read());
            if let Some(mut current) = current() {
                *current = Some(Arc::clone(&newer));
            }
            return Some(newer);
        }
        let pages = pages_mapped();
        let Some(mut current) = current() else { return Some(Arc::new(Elsewhere::read())) };
        if let Some(table) = &*current
            && table.pages == pages
        {
            return (self.pages != pages).then(|| Arc::clone(table));
        }
        Some(Arc::clone(current.insert(Arc::new(Elsewhere::read()))))
    }

    fn read() -> Elsewhere {
        let (signs, pages) = (Signs::now(), pages_mapped());
        let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let owners = reserved_by();
        let places = places(&parse_mapped(&text), &owners);
        let heap = places.iter().position(|place| &*place.name == C_HEAP);
        let near = near(&places, &Landmarks::of_this_process());
        let arenas = owners.iter().map(|(first, end, _)| (*first, *end)).collect();
        Elsewhere { places, heap, near, arenas, signs, pages }
    }

    /// Returns ranges that contain every address that leads into a place or near one, as (first,
    /// end), unsorted. They change with the end of the heap.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let places = self.places.iter().enumerate().map(|(at, place)| {
            let end = if self.heap == Some(at) { heap_end() } else { 0 };
            (place.start, place.end.max(end))
        });
        places.chain(self.near.iter().copied()).chain(self.arenas.iter().copied())
    }

    /// Looks up an address.
    pub(crate) fn leads(&self, address: u64) -> Leads<'_> {
        let behind = self.places.partition_point(|place| place.start <= address);
        if let Some(place) = behind.checked_sub(1).map(|at| &self.places[at]) {
            if address < place.end {
                return Leads::Into(place);
            }
            if self.heap == Some(behind - 1) && address < heap_end() {
                return Leads::Into(place);
            }
        }
        let is_near = is_in(&self.near, address) || is_in(&self.arenas, address);
        if is_near { Leads::Near } else { Leads::Nowhere }
    }
}

fn is_in(ranges: &[(u64, u64)], address: u64) -> bool {
    ranges.iter().any(|(first, end)| address >= *first && address < *end)
}

/// Locks the process's table. Returns `None` while another thread reads a new one. In a forked
/// child, that thread may not exist.
fn current() -> Option<MutexGuard<'static, Option<Arc<Elsewhere>>>> {
    match CURRENT.try_lock() {
        Ok(current) => Some(current),
        Err(TryLockError::Poisoned(current)) => Some(current.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// An address in the program and one in the C library.
struct Landmarks {
    program: u64,
    library: u64,
}

impl Landmarks {
    fn of_this_process() -> Landmarks {
        // SAFETY: the call only reads a value that the kernel passed at program start.
        let program = unsafe { libc::getauxval(libc::AT_PHDR) };
        Landmarks { program, library: libc::sbrk as *const () as u64 }
    }
}

/// Returns the ranges in which the kernel puts new mappings: around the C library and below the
/// main stack. Without a stack limit, the kernel puts them above the library.
fn near(places: &[MappedPlace], landmarks: &Landmarks) -> Vec<(u64, u64)> {
    let mut near = Vec::new();
    let are_neighbours =
        |a: &MappedPlace, b: &MappedPlace| b.start.saturating_sub(a.end) <= NEAR_BYTES;
    for group in places.chunk_by(are_neighbours) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let has = |address: u64| address >= first.start && address < last.end;
        let above = match has(landmarks.library) && !has(landmarks.program) {
            true => NEAR_BYTES,
            false if places.last() == Some(last) => 0,
            false => continue,
        };
        let end = (last.end + above).min(ADDRESS_END);
        near.push((first.start.saturating_sub(NEAR_BYTES).max(ADDRESS_MIN), end));
    }
    near
}

/// Returns the current end of the heap, without a system call.
pub(crate) fn heap_end() -> u64 {
    // SAFETY: the call queries the end of the heap and does not move it.
    unsafe { libc::sbrk(0) as u64 }
}

/// Returns the pages of the process's address space: the first number in `statm`.
fn pages_mapped() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the sorted places of all mappings. Mappings in an arena belong to its store.
/// Inaccessible memory belongs to no place.
fn places(mapped: &[MappedRange<'_>], arenas: &[(u64, u64, String)]) -> Vec<MappedPlace> {
    let in_arena = |m: &MappedRange<'_>| arenas.iter().find(|a| m.start < a.1 && m.end > a.0);
    let mut places: Vec<MappedPlace> = Vec::new();
    let mut before: Option<&MappedRange<'_>> = None;
    for range in mapped {
        let neighbour = before.filter(|b| b.end == range.start);
        before = Some(range);
        if !range.readable || range.start >= ADDRESS_END {
            continue;
        }
        // The kernel lists mappings a few at a time. A mapping that changes in between, for example
        // by this reader's own allocations, may be listed twice.
        let start = range.start.max(places.last().map_or(0, |last| last.end));
        if start >= range.end {
            continue;
        }
        let arena = in_arena(range).map(|(_, _, owner)| owner.clone());
        let name = arena.unwrap_or_else(|| name_of(range, neighbour));
        match places.last_mut() {
            // The parts of a file are adjacent, and its variables follow them.
            Some(last) if last.end == start && (*last.name == *name || name.is_empty()) => {
                last.end = range.end;
            }
            _ => places.push(MappedPlace { start, end: range.end, name: name.into() }),
        }
    }
    places
}

const C_HEAP: &str = "the C heap";
/// Maximum size of the inaccessible memory below a thread's stack.
const STACK_GUARD_BYTES_MAX: u64 = 1 << 20;
/// Alignment of glibc's heaps of threads.
const THREAD_HEAP_BYTES: u64 = 64 << 20;

/// Returns the name of a range. It is empty for a range that belongs to the one before it.
fn name_of(range: &MappedRange<'_>, neighbour: Option<&MappedRange<'_>>) -> String {
    match range.name {
        "" => {}
        "[heap]" => return C_HEAP.to_string(),
        "[stack]" => return "the stack of the main thread".to_string(),
        name if name.starts_with('[') => return format!("the kernel's {name}"),
        name => return name.to_string(),
    }
    match neighbour {
        Some(before) if before.readable && before.name.starts_with('/') => String::new(),
        Some(before) if !before.readable && before.end - before.start <= STACK_GUARD_BYTES_MAX => {
            "the stack of a thread".to_string()
        }
        _ if range.start.is_multiple_of(THREAD_HEAP_BYTES) => {
            "the C heap (of a thread)".to_string()
        }
        _ => "anonymous memory (the C heap, or the program's own)".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 fe:00 1 /bin/fixed
55550000000-55550001000 r--p 00000000 fe:00 2 /bin/program
55550001000-55550002000 r-xp 00001000 fe:00 2 /bin/program
55550002000-55550003000 rw-p 00000000 00:00 0
55560000000-55560021000 rw-p 00000000 00:00 0 [heap]
600000000000-600000010000 rw-p 00000000 fe:00 9 /stores/a/objects/1
7f0000000000-7f0000001000 ---p 00000000 00:00 0
7f0000001000-7f0000801000 rw-p 00000000 00:00 0
7f0004000000-7f0004021000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    fn table() -> Elsewhere {
        let arenas = [(0x6000_0000_0000, 0x6010_0000_0000, "store a".to_string())];
        let places = places(&parse_mapped(MAPS), &arenas);
        let landmarks = Landmarks { program: 0x555_5000_1000, library: 0x7f00_0400_0010 };
        let near = near(&places, &landmarks);
        let arenas = vec![(0x6000_0000_0000, 0x6010_0000_0000)];
        Elsewhere { places, heap: None, near, arenas, signs: Signs::now(), pages: 0 }
    }

    #[test]
    fn an_address_is_named_by_its_mapping() {
        let table = table();
        let name = |address| match table.leads(address) {
            Leads::Into(place) => place.name.to_string(),
            other => format!("{other:?}"),
        };
        for (address, expected) in [
            (0x40_0010, "/bin/fixed"),
            (0x555_5000_1010, "/bin/program"),
            (0x555_5000_2010, "/bin/program"),
            (0x555_6000_0010, "the C heap"),
            (0x6000_0000_1000, "store a"),
            (0x600f_0000_0000, "Near"),
            (0x6010_0000_0000, "Nowhere"),
            (0x7f00_0000_2000, "the stack of a thread"),
            (0x7f00_0400_0010, "the C heap (of a thread)"),
            (0x7ffd_0000_0010, "the stack of the main thread"),
            (0x555_6002_1000, "Nowhere"),
            (0x7eff_f000_0000, "Near"),
            (0x7f80_0000_0000, "Near"),
            (0x7fff_0000_0000, "Near"),
            (0x6500_0000_0000, "Nowhere"),
            (12, "Nowhere"),
        ] {
            assert_eq!(name(address), expected, "{address:#x}");
            let in_ranges = table.ranges().any(|(first, end)| address >= first && address < end);
            assert_eq!(in_ranges, expected != "Nowhere", "{address:#x}");
        }
    }

    #[test]
    fn mappings_that_change_during_listing_give_a_sorted_table() {
        let text = "\
7f0000000000-7f0000010000 rw-p 00000000 00:00 0
7f0000008000-7f0000020000 rw-p 00000000 00:00 0
7f0000000000-7f0000018000 rw-p 00000000 00:00 0
7f0000018000-7f0000030000 r--p 00000000 fe:00 2 /lib/c
";
        let places = places(&parse_mapped(text), &[]);
        assert!(places.iter().all(|place| place.start < place.end), "{places:?}");
        assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start), "{places:?}");
        assert_eq!(places.first().map(|place| place.start), Some(0x7f00_0000_0000));
        assert_eq!(places.last().map(|place| place.end), Some(0x7f00_0003_0000));
        let landmarks = Landmarks { program: 0, library: 0x7f00_0000_0000 };
        assert_eq!(near(&places, &landmarks).len(), 1);
    }

    #[test]
    fn new_mappings_are_expected_around_the_libraries() {
        let place = |start: u64| MappedPlace { start, end: start + 0x1000, name: "x".into() };
        let near = |places: &[u64], program, library| {
            let places: Vec<_> = places.iter().map(|start| place(*start)).collect();
            near(&places, &Landmarks { program, library })
        };
        const TERA: u64 = 1 << 40;
        let (program, low, stack) = (0x5555_0000_0000, 0x2aaa_0000_0000, 0x7ffd_0000_0000);
        // Without a stack limit, libraries lie low and new mappings above them.
        assert_eq!(
            near(&[low, program, stack], program, low),
            [(low - TERA, low + 0x1000 + TERA), (stack - TERA, stack + 0x1000)]
        );
        // A program without libraries has its mappings below the stack.
        assert_eq!(near(&[program, stack], program, program), [(stack - TERA, stack + 0x1000)]);
        // An emulator may put everything close together.
        assert_eq!(
            near(&[0x10_0000, 0x480_0000], 0x10_0000, 0x480_0000),
            [(ADDRESS_MIN, 0x480_1000)]
        );
    }

    #[test]
    fn the_processs_memory_is_found_even_if_it_is_new() {
        let on_the_stack = 0u64;
        let code = the_processs_memory_is_found_even_if_it_is_new as fn() as usize as u64;
        let table = Elsewhere::now();
        let is_known = |table: &Elsewhere, at: u64| matches!(table.leads(at), Leads::Into(_));
        assert!(is_known(&table, code) && is_known(&table, &raw const on_the_stack as u64));
        let new = vec![1u8; 64 << 20];
        let at = new.as_ptr() as u64;
        let found = is_known(&table, at)
            || table.leads(at) == Leads::Near
                && table.renewed([at].into_iter()).is_some_and(|renewed| is_known(&renewed, at));
        assert!(found, "{at:#x}");
    }
}
