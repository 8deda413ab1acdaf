//! Compares two ways of providing fresh memory that becomes durable at the next commit.
//!
//! The library's way: the file is reserved, mapped shared, written through the mapping, and
//! flushed. The alternative: anonymous huge pages, written to the file in one call at the commit,
//! and flushed. Both then map the file privately at the same address, as after a commit, and walk
//! the nodes once. Both use plain system calls here, so that only the kernel's work and the
//! building of the nodes is compared, without allocator and log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::Bench;
use harness::Outcome;
use harness::files::checked;
use harness::quiet::Awake;
use harness::samples::{Samples, figure, head, row};

const NODES: usize = 5_000_000;
const BYTES: usize = (NODES * size_of::<Node>()).next_multiple_of(HUGE_BYTES);
const HUGE_BYTES: usize = 2 << 20;
const ROUNDS: usize = 9;

/// Node of 64 bytes, linked by raw pointers.
#[repr(C)]
struct Node {
    next: *const Node,
    values: [u64; 7],
}
const _: () = assert!(size_of::<Node>() == 64);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Shared mapping of the reserved file.
    Shared,
    /// Shared mapping whose pages are populated 2 MiB at a time before they are touched.
    SharedPopulated,
    /// Anonymous huge pages, written at the end.
    Anonymous,
    /// Prepared bytes are written and flushed: only the disk's part.
    PlainWrite,
}

/// Times of one way, in milliseconds.
#[derive(Default)]
struct Clocks {
    build: Samples,
    durable: Samples,
    total: Samples,
    walk: Samples,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let ways = [
        ("shared mapping of the reserved file, fdatasync", Way::Shared),
        ("shared mapping, populated 2 MiB at a time", Way::SharedPopulated),
        ("anonymous huge pages, one write, fdatasync", Way::Anonymous),
        ("plain write and fsync of prepared bytes", Way::PlainWrite),
    ];
    let folder = bench.temporary("fresh-memory")?;
    let rounds = bench.options.rounds_or(ROUNDS, 2);
    let _awake = Awake::new()?;
    let mut clocks: [Clocks; 4] = Default::default();
    for _ in 0..rounds {
        for ((_, way), clocks) in ways.iter().zip(&mut clocks) {
            let path = folder.join("nodes");
            once(*way, &path, clocks)?;
            std::fs::remove_file(path)?;
        }
    }
    println!("{NODES} nodes of 64 bytes, {rounds} rounds, the ways in turns.\n");
    head(&[
        "way",
        "build, ns a node",
        "build, ms",
        "make durable, ms",
        "total, ms",
        "map privately and walk once, ms",
    ]);
    for ((name, _), clocks) in ways.iter().zip(&clocks) {
        row(&[
            name.to_string(),
            figure(clocks.build.median() * 1e6 / NODES as f64),
            clocks.build.to_string(),
            clocks.durable.to_string(),
            clocks.total.to_string(),
            clocks.walk.to_string(),
        ]);
    }
    Ok(())
}

fn once(way: Way, path: &Path, clocks: &mut Clocks) -> Outcome {
    let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
    let file = options.open(path)?;
    let place = Place::reserve()?;
    if way == Way::PlainWrite {
        place.anonymous()?;
        build(&place, way)?;
    }
    let start = Instant::now();
    match way {
        Way::Shared | Way::SharedPopulated => {
            allocate(&file)?;
            place.map(&file, libc::MAP_SHARED)?;
            build(&place, way)?;
        }
        Way::Anonymous => {
            // This way reserves blocks on the disk as well.
            allocate(&file)?;
            place.anonymous()?;
            build(&place, way)?;
        }
        Way::PlainWrite => {}
    }
    clocks.build.push_ms(start.elapsed());
    let written = Instant::now();
    if matches!(way, Way::Anonymous | Way::PlainWrite) {
        // SAFETY: the range is mapped, and no thread writes to it during the call.
        let bytes = unsafe { std::slice::from_raw_parts(place.start.cast_const(), BYTES) };
        file.write_all_at(bytes, 0)?;
    }
    match way {
        Way::PlainWrite => file.sync_all()?,
        _ => file.sync_data()?,
    }
    clocks.durable.push_ms(written.elapsed());
    clocks.total.push_ms(start.elapsed());
    let walked = Instant::now();
    place.map(&file, libc::MAP_PRIVATE)?;
    let sum = walk(&place);
    clocks.walk.push_ms(walked.elapsed());
    match sum == (0..NODES as u64).sum::<u64>() {
        true => Ok(()),
        false => Err("the nodes differ from the built ones".into()),
    }
}

fn allocate(file: &File) -> io::Result<()> {
    // SAFETY: `fallocate` takes no pointers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, BYTES as i64) };
    checked(result as isize).map(drop)
}

/// Builds the nodes in order, each linked to the previous one.
fn build(place: &Place, way: Way) -> io::Result<()> {
    let start = place.start.cast::<Node>();
    let mut last = std::ptr::null();
    for number in 0..NODES {
        let offset = number * size_of::<Node>();
        if way == Way::SharedPopulated && offset.is_multiple_of(HUGE_BYTES) {
            place.populate(offset)?;
        }
        // SAFETY: the range has `BYTES` writable bytes, enough for all nodes.
        unsafe {
            let node = start.add(number);
            node.write(Node { next: last, values: [number as u64; 7] });
            last = node;
        }
    }
    Ok(())
}

fn walk(place: &Place) -> u64 {
    let (mut sum, mut left) = (0, NODES);
    // SAFETY: the nodes were built at these addresses and are mapped there again; each points to
    // the previous one.
    unsafe {
        let mut node: *const Node = place.start.cast::<Node>().add(NODES - 1);
        while !node.is_null() && left > 0 {
            sum += (*node).values[3];
            node = (*node).next;
            left -= 1;
        }
    }
    sum
}

/// Range of `BYTES` addresses, aligned to huge pages, for one mapping after another.
struct Place {
    all: *mut u8,
    start: *mut u8,
}

const RESERVED_BYTES: usize = BYTES + HUGE_BYTES;

impl Place {
    fn reserve() -> io::Result<Place> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = map(std::ptr::null_mut(), RESERVED_BYTES, libc::PROT_NONE, flags, -1)?;
        let lead = all.addr().next_multiple_of(HUGE_BYTES) - all.addr();
        Ok(Place { all, start: all.wrapping_add(lead) })
    }

    fn map(&self, file: &File, sharing: i32) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        map(self.start, BYTES, protection, sharing | libc::MAP_FIXED, file.as_raw_fd()).map(drop)
    }

    fn anonymous(&self) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        map(self.start, BYTES, protection, flags, -1)?;
        self.advise(0, BYTES, libc::MADV_HUGEPAGE)
    }

    fn populate(&self, offset: usize) -> io::Result<()> {
        self.advise(offset, HUGE_BYTES.min(BYTES - offset), libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, offset: usize, length: usize, advice: i32) -> io::Result<()> {
        // SAFETY: the range is inside this value's addresses, and these kinds of advice change no
        // contents.
        let result = unsafe { libc::madvise(self.start.add(offset).cast(), length, advice) };
        checked(result as isize).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: this value reserved the range, and no reference to it remains.
        unsafe { libc::munmap(self.all.cast(), RESERVED_BYTES) };
    }
}

fn map(at: *mut u8, length: usize, protection: i32, flags: i32, file: i32) -> io::Result<*mut u8> {
    // SAFETY: without MAP_FIXED the call replaces no mapping; with it, the range belongs to the
    // caller's `Place`.
    let mapped = unsafe { libc::mmap(at.cast(), length, protection, flags, file, 0) };
    match mapped {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        mapped => Ok(mapped.cast()),
    }
}
