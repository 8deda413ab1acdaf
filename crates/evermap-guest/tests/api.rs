//! Tests of the API for native programs and for guests, from the same source. (For guests, set
//! `CARGO_TARGET_WASM32_WASIP1_RUNNER` to a host that provides the five imports, with an empty
//! store for each run.)
#![allow(clippy::unwrap_used)]

use std::io::Write;

use evermap_guest::{
    Build, Built, Code, Heap, HeapError, PBTree, PBox, PMap, PString, PVec, Persist, Slot,
    Snapshot, type_id,
};

/// Opens objects in a store for these tests.
#[cfg(not(target_family = "wasm"))]
fn prepare() {
    static STORE: std::sync::Once = std::sync::Once::new();
    STORE.call_once(|| {
        let directory = concat!(env!("CARGO_TARGET_TMPDIR"), "/guest_api");
        let _ = std::fs::remove_dir_all(directory);
        evermap_guest::use_store(directory).unwrap();
    });
}

/// The host provides the store.
#[cfg(target_family = "wasm")]
fn prepare() {}

fn open(name: &str) -> Heap {
    prepare();
    Heap::open(name).unwrap()
}

#[derive(Debug, Persist)]
#[repr(C)]
struct Diary {
    lines: PVec<PString>,
    first: Option<PBox<u64>>,
    words: PMap<PString, u64>,
    days: PBTree<u32, PString>,
}

fn empty() -> Diary {
    Diary { lines: PVec::new(), first: None, words: PMap::new(), days: PBTree::new() }
}

fn write(heap: &mut Heap, count: u32) {
    let mut diary = heap.root_or::<Diary, _>(empty()).unwrap();
    let mut diary = diary.fields();
    for day in 0..count {
        diary.lines.push(format!("line {day}")).unwrap();
        diary.words.insert(format!("word {day}"), u64::from(day)).unwrap();
        diary.days.insert(day, format!("day {day}")).unwrap();
    }
    diary.first.insert(7).unwrap();
}

fn check(diary: &Diary, count: u32) {
    assert_eq!((diary.lines.len(), diary.words.len(), diary.days.len()), {
        let count = count as usize;
        (count, count, count)
    });
    for day in 0..count {
        assert_eq!(diary.lines[day as usize], *format!("line {day}"));
        assert_eq!(diary.words.get(&*format!("word {day}")), Some(&u64::from(day)));
        assert_eq!(*diary.days.get(&day).unwrap(), *format!("day {day}"));
    }
    assert_eq!(diary.first.as_deref(), Some(&7));
}

#[test]
fn a_reopened_heap_has_its_committed_data_at_the_same_addresses() {
    let mut heap = open("committed");
    write(&mut heap, 2000);
    assert!(heap.commit().unwrap());
    let address = std::ptr::from_ref(&heap.root::<Diary>().unwrap().lines[1999]);
    heap.close().unwrap();
    let mut heap = open("committed");
    check(heap.root().unwrap(), 2000);
    assert_eq!(std::ptr::from_ref(&heap.root::<Diary>().unwrap().lines[1999]), address);
    heap.root_mut::<Diary>().unwrap().fields().lines.push("one more").unwrap();
    assert!(heap.commit().unwrap());
}

#[test]
fn uncommitted_changes_are_discarded() {
    let mut heap = open("forgotten");
    write(&mut heap, 10);
    heap.commit().unwrap();
    heap.root_mut::<Diary>().unwrap().fields().lines.push("lost").unwrap();
    drop(heap);
    check(open("forgotten").root().unwrap(), 10);
    // An object that was never committed has no root.
    drop(open("never"));
    let mut heap = open("never");
    assert!(!heap.has_root().unwrap());
    heap.root_or::<u64, _>(1).unwrap();
    drop(heap);
    assert!(!open("never").has_root().unwrap());
}

#[test]
fn a_heap_is_usable_after_a_rollback_to_the_last_commit() {
    let mut heap = open("rollback");
    write(&mut heap, 10);
    heap.commit().unwrap();
    let mut diary = heap.root_mut::<Diary>().unwrap();
    let mut fields = diary.fields();
    fields.lines.clear();
    for number in 0..50_000 {
        fields.lines.push(format!("{number}")).unwrap();
    }
    heap.rollback().unwrap();
    check(heap.root().unwrap(), 10);
    heap.root_mut::<Diary>().unwrap().fields().lines.truncate(0);
    write(&mut heap, 10);
    heap.commit().unwrap();
    check(heap.root().unwrap(), 10);
}

#[test]
fn commit_returns_true_if_something_changed() {
    let mut heap = open("changed");
    *heap.root_or::<u64, _>(0).unwrap() += 1;
    assert!(heap.commit().unwrap());
    assert!(!heap.commit().unwrap());
    *heap.root_mut::<u64>().unwrap() += 1;
    assert!(heap.commit().unwrap());
}

#[test]
fn a_root_is_returned_only_as_its_own_type() {
    let mut heap = open("types");
    assert_eq!(heap.root::<u64>().unwrap_err().code(), Code::NoRoot);
    heap.root_or::<PVec<u64>, _>([1, 2]).unwrap();
    let error = heap.root::<PVec<i64>>().unwrap_err();
    assert_eq!((error.code(), error.object()), (Code::OtherType, "types"));
    assert!(error.message().contains("PVec<u64>") && error.message().contains("PVec<i64>"));
    assert_eq!(heap.root_mut::<u64>().unwrap_err().code(), Code::OtherType);
    assert_eq!(heap.root_or::<u64, _>(1).unwrap_err().code(), Code::OtherType);
    assert_eq!(heap.block("name").unwrap_err().code(), Code::OtherType);
    assert_eq!(heap.allocate_named("name", 1).unwrap_err().code(), Code::OtherType);
    assert_eq!(heap.root_or::<PVec<u64>, _>([3]).unwrap().as_slice(), [1, 2]);
    heap.commit().unwrap();
    drop(heap);
    let snapshot = Snapshot::open("types").unwrap();
    assert_eq!(snapshot.root::<u64>().unwrap_err().code(), Code::OtherType);
    assert_eq!(snapshot.root::<PVec<u64>>().unwrap(), &[1, 2]);
}

#[test]
fn a_program_can_open_an_object_only_once() {
    let heap = open("once");
    assert_eq!(Heap::open("once").unwrap_err().code(), Code::Busy);
    assert_eq!(Snapshot::open("once").unwrap_err().code(), Code::Busy);
    let mut other = open("once-more");
    other.root_or::<u64, _>(1).unwrap();
    other.commit().unwrap();
    other.close().unwrap();
    heap.close().unwrap();
    let _snapshot = Snapshot::open("once-more").unwrap();
    assert_eq!(Heap::open("once-more").unwrap_err().code(), Code::Busy);
}

#[test]
fn a_snapshot_is_the_last_commit() {
    prepare();
    assert_eq!(Snapshot::open("snapshot").unwrap_err().code(), Code::NotFound);
    let mut heap = open("snapshot");
    write(&mut heap, 100);
    heap.commit().unwrap();
    heap.root_mut::<Diary>().unwrap().fields().lines.clear();
    drop(heap);
    let snapshot = Snapshot::open("snapshot").unwrap();
    check(snapshot.root().unwrap(), 100);
    assert_eq!(snapshot.root_raw().unwrap().tag, type_id::<Diary>().0);
    snapshot.close().unwrap();
}

#[test]
fn an_object_keeps_its_data_when_it_grows_by_regions() {
    const LINES: usize = 300_000;
    let mut heap = open("grows");
    let mut lines = heap.root_or::<PVec<PString>, _>(PVec::new()).unwrap();
    for number in 0..LINES {
        lines.push(format!("a line with the number {number}")).unwrap();
        if number % 3 == 0 {
            lines.get_mut(number).unwrap().assign(format!("{number}")).unwrap();
        }
    }
    heap.commit().unwrap();
    heap.close().unwrap();
    let mut heap = open("grows");
    {
        let mut lines = heap.root_mut::<PVec<PString>>().unwrap();
        assert_eq!(lines.len(), LINES);
        for (number, line) in lines.iter().enumerate() {
            let text = match number % 3 {
                0 => format!("{number}"),
                _ => format!("a line with the number {number}"),
            };
            assert_eq!(*line, *text);
        }
        lines.clear();
        // Freed memory is used again.
        lines.extend(["short"]).unwrap();
    }
    heap.commit().unwrap();
    let large = heap.allocate(9_000_000, 1 << 20).unwrap();
    assert!(large.addr().get().is_multiple_of(1 << 20));
    // SAFETY: the block was just allocated, and nothing refers to it.
    unsafe {
        large.write_bytes(1, 9_000_000);
        heap.free(large).unwrap();
    }
    heap.commit().unwrap();
}

/// A source that cannot be built.
struct Fails;

impl Build<Fails> for Diary {
    fn build<'a>(_: Fails, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(empty(), |mut diary| {
            diary.fields().lines.push("built in vain")?;
            Err(HeapError::CapacityOverflow { what: "the test" })
        })
    }
}

#[test]
fn a_failed_build_leaves_no_root() {
    let mut heap = open("fails");
    let error = heap.root_or::<Diary, _>(Fails).unwrap_err();
    assert_eq!((error.code(), error.object()), (Code::BadAllocation, "fails"));
    assert!(!heap.has_root().unwrap());
    write(&mut heap, 1);
    check(heap.root().unwrap(), 1);
}

#[test]
fn a_heap_is_usable_after_an_impossible_allocation() {
    let heap = open("too-large");
    for (size, align) in [(usize::MAX, 1), (usize::MAX / 2 + 1, 16), (16, 3), (16, 0)] {
        assert_eq!(heap.allocate(size, align).unwrap_err().code(), Code::BadAllocation);
    }
    // SAFETY: nothing refers to the block.
    unsafe {
        let block = heap.allocate(100, 8).unwrap();
        heap.free(block).unwrap();
        assert!(heap.free(block).is_err());
    }
}

#[cfg(target_family = "wasm")]
#[test]
fn an_object_larger_than_the_window_gets_the_hosts_error() {
    let mut heap = open("window");
    let error = heap.allocate(1 << 30, 16).unwrap_err();
    // The smaller of the window and the quota limits it.
    assert!([Code::OutOfAddresses, Code::Quota].contains(&error.code()), "{error}");
    assert_eq!(error.object(), "window");
    let mut bytes = heap.root_or::<PVec<u8>, _>(PVec::new()).unwrap();
    let error = evermap_guest::Error::from(bytes.reserve(1 << 30).unwrap_err());
    assert!([Code::OutOfAddresses, Code::Quota].contains(&error.code()), "{error}");
    assert_eq!(error.object(), "window");
    bytes.extend_from_slice(b"still here").unwrap();
    heap.commit().unwrap();
}

#[test]
fn a_raw_root_keeps_its_tag_and_a_truncated_description() {
    let mut heap = open("raw");
    let block = heap.allocate(80, 8).unwrap();
    // SAFETY: the block is large enough; the tag does not belong to a Rust type.
    unsafe {
        block.write_bytes(7, 80);
        let other = block.add(16);
        for (place, bytes) in [(other, 1), (block, 81)] {
            let refused = heap.set_root_raw(Some(place), bytes, [9; 16], "");
            assert_eq!(refused.unwrap_err().code(), Code::BadRoot);
        }
        assert!(heap.root_raw().unwrap().address.is_null());
        heap.set_root_raw(Some(block), 80, [9; 16], &"ä".repeat(700)).unwrap();
    }
    heap.commit().unwrap();
    heap.close().unwrap();
    let mut heap = open("raw");
    let root = heap.root_raw().unwrap();
    assert_eq!((root.address, root.bytes, root.tag), (block.as_ptr(), 80, [9; 16]));
    assert_eq!(root.description, "ä".repeat(512));
    // SAFETY: the pointer is the root's block.
    assert_eq!(unsafe { std::slice::from_raw_parts(root.address, 80) }, [7; 80]);
    // SAFETY: removing the root has no requirements.
    unsafe { heap.set_root_raw(None, 0, [0; 16], "") }.unwrap();
    assert!(!heap.has_root().unwrap());
}

#[test]
fn blocks_are_found_by_their_names_in_the_next_run() {
    const BLOCKS: usize = 1000;
    let mut heap = open("named");
    for number in 0..BLOCKS {
        let block = heap.allocate_named(&format!("block {number}"), number).unwrap();
        assert!(block.iter().all(|byte| *byte == 0));
        block.fill(number as u8);
    }
    heap.commit().unwrap();
    heap.close().unwrap();
    let mut heap = open("named");
    for number in 0..BLOCKS {
        let name = format!("block {number}");
        let block = heap.block(&name).unwrap().unwrap();
        assert!(block.len() == number && block.iter().all(|byte| *byte == number as u8));
        if number % 2 == 0 {
            assert!(heap.free_named(&name).unwrap());
            assert!(!heap.free_named(&name).unwrap());
        }
    }
    heap.block_mut("block 7").unwrap().unwrap()[0] = 99;
    heap.commit().unwrap();
    drop(heap);
    let snapshot = Snapshot::open("named").unwrap();
    for number in 0..BLOCKS {
        let block = snapshot.block(&format!("block {number}")).unwrap();
        assert_eq!(block.map(<[u8]>::len), (number % 2 == 1).then_some(number));
    }
    assert_eq!(snapshot.block("block 7").unwrap().unwrap(), [99, 7, 7, 7, 7, 7, 7]);
}

#[test]
fn a_new_block_has_the_written_bytes_followed_by_zeros() {
    let mut heap = open("filled");
    // Memory that was used before.
    for bytes in [100, 10_000, 300_000] {
        heap.allocate_named("old", bytes).unwrap().fill(9);
        assert!(heap.free_named("old").unwrap());
        let name = format!("new {bytes}");
        let written = bytes / 3;
        let block = heap.allocate_named_with(&name, bytes, |block| {
            assert_eq!(block.unwritten().len(), bytes);
            for number in 0..written {
                block.write_all(&[number as u8])?;
            }
            assert_eq!((block.written(), block.unwritten().len()), (written, bytes - written));
            std::io::Result::Ok(())
        });
        let block = block.unwrap();
        assert!(block[..written].iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert!(block.len() == bytes && block[written..].iter().all(|byte| *byte == 0));
    }
    heap.commit().unwrap();
    heap.close().unwrap();
    let snapshot = Snapshot::open("filled").unwrap();
    let block = snapshot.block("new 10000").unwrap().unwrap();
    assert_eq!((block[3332], block[3333]), (3332u32 as u8, 0));
}

#[test]
fn a_block_whose_writer_fails_is_not_created() {
    let mut heap = open("unfilled");
    heap.allocate_named("first", 10).unwrap();
    heap.commit().unwrap();
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let full = heap.allocate_named_with("second", 100_000, |block| {
            places.insert(block.unwritten().as_ptr());
            block.write_all(&[1; 100_001])
        });
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::WriteZero);
        assert_eq!(heap.block("second").unwrap(), None);
    }
    assert_eq!(places.len(), 1, "the allocator reuses the block");
    let taken = heap.allocate_named_with("first", 10, |_| -> evermap_guest::Result<()> {
        panic!("nothing is written to a block that cannot have its name")
    });
    assert_eq!(taken.unwrap_err().code(), Code::AlreadyExists);
}

#[cfg(not(target_family = "wasm"))]
#[test]
fn a_block_whose_writer_panics_is_freed() {
    let mut heap = open("panics");
    heap.allocate_named("first", 10).unwrap();
    heap.commit().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = heap.allocate_named_with("second", 10, |_| -> evermap_guest::Result<()> {
            panic!("as this test wants")
        });
    }));
    assert!(panicked.is_err());
    assert!(heap.block("second").unwrap().is_none() && !heap.commit().unwrap());
}

#[cfg(not(target_family = "wasm"))]
#[test]
fn an_unwritten_block_of_zeros_makes_no_page_private() {
    const BYTES: usize = 8 << 20;
    let mut heap = open("zeros");
    heap.allocate_named("large", BYTES).unwrap();
    heap.commit().unwrap();
    heap.free_named("large").unwrap();
    heap.commit().unwrap();
    let block = heap.allocate_named("large", BYTES).unwrap().as_ptr_range();
    let own = private_dirty_kib(block.start.addr()..block.end.addr());
    assert!(own <= 64, "{own} KiB");
}

/// Returns the private dirty memory of this process in an address range, in KiB.
#[cfg(not(target_family = "wasm"))]
fn private_dirty_kib(range: std::ops::Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut sum) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let ends = first.split_once('-').map(|ends| {
            [ends.0, ends.1].map(|end| usize::from_str_radix(end, 16).unwrap_or_default())
        });
        if let Some([start, end]) = ends {
            inside = start < range.end && range.start < end;
        } else if inside && first == "Private_Dirty:" {
            sum += words.next().unwrap().parse::<usize>().unwrap();
        }
    }
    sum
}

#[test]
fn block_names_are_unique_and_have_up_to_255_bytes() {
    let mut heap = open("naming");
    heap.allocate_named("twice", 1).unwrap();
    assert_eq!(heap.allocate_named("twice", 1).unwrap_err().code(), Code::AlreadyExists);
    heap.allocate_named(&"n".repeat(255), 1).unwrap();
    for name in ["", "zero\0byte", &"n".repeat(256)] {
        assert_eq!(heap.allocate_named(name, 1).unwrap_err().code(), Code::InvalidName);
        assert_eq!(heap.block(name).unwrap(), None);
    }
}

#[test]
fn a_broken_table_of_names_is_an_error() {
    let mut heap = open("broken");
    heap.allocate_named("a", 10).unwrap();
    let table = heap.root_raw().unwrap().address;
    let words = table.cast::<u64>();
    // SAFETY: the table's 64 buckets follow its head.
    let buckets = unsafe { std::slice::from_raw_parts_mut(table.add(16).cast::<*mut u8>(), 64) };
    let bucket = buckets.iter_mut().find(|bucket| !bucket.is_null()).unwrap() as *mut *mut u8;
    // SAFETY: the words belong to the table or an entry, and nothing borrows them.
    unsafe {
        let entry = bucket.read();
        let size = entry.add(2 * size_of::<usize>()).cast::<u64>();
        let breaks: [(*mut u64, u64); 6] = [
            (words, 65),
            (words.add(1), 63),
            (words.add(1), 1 << 40),
            (size, 1 << 40),
            (size, u64::MAX),
            (size.add(2), 1 << 30),
        ];
        for (word, value) in breaks {
            let good = word.replace(value);
            assert_eq!(heap.block("a").unwrap_err().code(), Code::Damaged, "{value:#x}");
            word.write(good);
        }
        for wrong in [8 as *mut u8, table.wrapping_sub(1 << 25), entry.add(4)] {
            bucket.write(wrong);
            assert_eq!(heap.block("a").unwrap_err().code(), Code::Damaged);
        }
        // A circular list.
        bucket.write(entry);
        let next = entry.cast::<*mut u8>();
        next.write(entry);
        entry.add(2 * size_of::<usize>()).cast::<u64>().add(1).write(0);
        assert_eq!(heap.block("a").unwrap_err().code(), Code::Damaged);
    }
}

/// Needs to run as the application `api`.
#[cfg(target_family = "wasm")]
#[test]
fn an_object_with_two_names_can_be_opened_only_once() {
    let mut heap = open("named-twice");
    write(&mut heap, 3);
    assert_eq!(Heap::open("api:named-twice").unwrap_err().code(), Code::Busy);
    assert_eq!(Snapshot::open("api:named-twice").unwrap_err().code(), Code::Busy);
    check(heap.root().unwrap(), 3);
    heap.commit().unwrap();
    heap.close().unwrap();

    let one = Snapshot::open("api:named-twice").unwrap();
    assert_eq!(Snapshot::open("named-twice").unwrap_err().code(), Code::Busy);
    check(one.root().unwrap(), 3);
    one.close().unwrap();
    check(Snapshot::open("named-twice").unwrap().root().unwrap(), 3);
}
