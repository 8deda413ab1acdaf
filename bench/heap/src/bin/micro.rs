//! Measures the allocator alone, against glibc's, mimalloc and a bump pointer into the same kind of
//! mapping.
//!
//! Each figure comes from a separate process. The allocators take turns, so that noise affects them
//! alike. The program prints minimum and median of the rounds, and the ratios of the minima.
//! `heap_micro [ROUNDS] [WORK]`; a child runs `heap_micro one ALLOCATOR WORK`, which is also the
//! form for `perf` or callgrind. HEAP_MICRO_DIR is the folder of the object, HEAP_MICRO_NODES the
//! number of nodes.

use std::error::Error;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use evermap::{Heap, Session, Store};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ALLOCATORS: [&str; 4] = ["evermap", "glibc", "mimalloc", "bump"];
const WORKS: [&str; 7] =
    ["link", "link-2", "random-free", "random-again", "larson", "threadtest", "producer-consumer"];

/// Allocator to measure.
trait Allocate: Sync {
    fn allocate(&self, size: usize) -> *mut u8;
    /// # Safety
    /// The block came from this allocator and is not used afterwards.
    unsafe fn free(&self, block: *mut u8);
}

impl Allocate for &Heap {
    #[inline(always)]
    fn allocate(&self, size: usize) -> *mut u8 {
        Heap::allocate(self, size, 16).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller passes a live block of this heap, and no block is null.
        unsafe { Heap::free(self, NonNull::new_unchecked(block)) }
    }
}

struct Glibc;

impl Allocate for Glibc {
    #[inline(always)]
    fn allocate(&self, size: usize) -> *mut u8 {
        // SAFETY: `malloc` accepts any size.
        unsafe { libc::malloc(size).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { libc::free(block.cast()) }
    }
}

struct Mimalloc;

impl Allocate for Mimalloc {
    #[inline(always)]
    fn allocate(&self, size: usize) -> *mut u8 {
        // SAFETY: `mi_malloc` accepts any size.
        unsafe { libmimalloc_sys::mi_malloc(size).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }
}

/// Pointer into a shared mapping of a reserved file; each allocation advances it.
struct Bump {
    next: AtomicUsize,
    threads: bool,
}

impl Bump {
    fn new(bytes: usize, threads: bool) -> Outcome<Bump> {
        let file = std::fs::File::create_new(directory().join("bump"))?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(directory().join("bump"))
            .map(|opened| (file, opened).1)?;
        // SAFETY: `fallocate` takes no pointers.
        let reserved = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let place = 0x1f00_0000_0000 as *mut libc::c_void;
        // SAFETY: MAP_FIXED_NOREPLACE maps only free addresses.
        let at = unsafe { libc::mmap(place, bytes, rights, flags, file.as_raw_fd(), 0) };
        match reserved == 0 && at == place {
            true => Ok(Bump { next: AtomicUsize::new(place as usize), threads }),
            false => Err(std::io::Error::last_os_error().into()),
        }
    }
}

impl Allocate for Bump {
    #[inline(always)]
    fn allocate(&self, size: usize) -> *mut u8 {
        if self.threads {
            return self.next.fetch_add(size, Ordering::Relaxed) as *mut u8;
        }
        let at = self.next.load(Ordering::Relaxed);
        self.next.store(at + size, Ordering::Relaxed);
        at as *mut u8
    }

    unsafe fn free(&self, _: *mut u8) {}
}

#[repr(C)]
struct Node {
    next: *mut Node,
    values: [u64; 7],
}

fn nodes() -> usize {
    number("HEAP_MICRO_NODES", 5_000_000)
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn directory() -> PathBuf {
    std::env::var_os("HEAP_MICRO_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn link(allocator: &impl Allocate, count: usize) -> *mut Node {
    let mut last: *mut Node = std::ptr::null_mut();
    for number in 0..count {
        let node = allocator.allocate(size_of::<Node>()).cast::<Node>();
        // SAFETY: the block is new and has a node's size.
        unsafe { node.write(Node { next: last, values: [number as u64; 7] }) };
        last = node;
    }
    last
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * end as u128) >> 64) as usize
    }
}

/// Block that is passed between threads.
#[derive(Clone, Copy)]
struct Block(*mut u8);

// SAFETY: only one thread uses a block at a time.
unsafe impl Send for Block {}

/// Returns the nodes in random order, in an array that exists before the clock starts.
fn linked_and_shuffled(allocator: &impl Allocate) -> Vec<Block> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut blocks: Vec<Block> = (0..nodes()).map(|_| Block(link(allocator, 1).cast())).collect();
    for at in (1..blocks.len()).rev() {
        blocks.swap(at, random.below(at + 1));
    }
    blocks
}

fn ns_each(start: Instant, count: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Frees all blocks in random order; with `again`, measures allocating them again after that.
fn random(allocator: &impl Allocate, again: bool) -> f64 {
    let blocks = linked_and_shuffled(allocator);
    let mut start = Instant::now();
    for block in &blocks {
        // SAFETY: each block is freed once.
        unsafe { allocator.free(block.0) };
    }
    if again {
        start = Instant::now();
        std::hint::black_box(link(allocator, blocks.len()));
    }
    ns_each(start, blocks.len())
}

/// Threads replace random blocks of random sizes; in each later round they take over another
/// thread's blocks.
fn larson(allocator: &impl Allocate) -> f64 {
    const THREADS: usize = 2;
    const BLOCKS: usize = 5000;
    const ROUNDS: usize = 20;
    const STEPS: usize = 100_000;
    let start = Instant::now();
    let mut sets: Vec<Vec<Block>> = (0..THREADS)
        .map(|_| (0..BLOCKS).map(|n| Block(allocator.allocate(16 + n % 500))).collect())
        .collect();
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for (thread, set) in sets.iter_mut().enumerate() {
                scope.spawn(move || {
                    let mut random = Random((round * THREADS + thread + 1) as u64 * 0x9e37_79b9);
                    for _ in 0..STEPS {
                        let at = random.below(BLOCKS);
                        // SAFETY: only this thread has the block, and it is replaced below.
                        unsafe { allocator.free(set[at].0) };
                        let block = allocator.allocate(16 + random.below(500));
                        // SAFETY: the block has at least 16 bytes.
                        unsafe { block.cast::<u64>().write(at as u64) };
                        set[at] = Block(block);
                    }
                });
            }
        });
        sets.rotate_left(1);
    }
    ns_each(start, ROUNDS * STEPS * THREADS)
}

/// Each thread repeatedly allocates many blocks and frees them.
fn threadtest(allocator: &impl Allocate) -> f64 {
    const THREADS: usize = 2;
    const BLOCKS: usize = 100_000;
    const ROUNDS: usize = 50;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut blocks = Vec::with_capacity(BLOCKS);
                for _ in 0..ROUNDS {
                    for number in 0..BLOCKS {
                        let block = allocator.allocate(64);
                        // SAFETY: the block has 64 bytes.
                        unsafe { block.cast::<usize>().write(number) };
                        blocks.push(block);
                    }
                    for block in blocks.drain(..) {
                        // SAFETY: each block is freed once.
                        unsafe { allocator.free(block) };
                    }
                }
            });
        }
    });
    ns_each(start, ROUNDS * BLOCKS * THREADS)
}

/// One thread allocates, the other frees.
fn producer_consumer(allocator: &impl Allocate) -> f64 {
    const BATCH: usize = 1000;
    const BATCHES: usize = 5000;
    let (to, from) = sync_channel::<Vec<Block>>(8);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for batch in from {
                for block in batch {
                    // SAFETY: each block is freed once.
                    unsafe { allocator.free(block.0) };
                }
            }
        });
        for _ in 0..BATCHES {
            let batch = (0..BATCH).map(|n| {
                let block = allocator.allocate(64);
                // SAFETY: the block has 64 bytes.
                unsafe { block.cast::<usize>().write(n) };
                Block(block)
            });
            if to.send(batch.collect()).is_err() {
                return;
            }
        }
        drop(to);
    });
    ns_each(start, BATCH * BATCHES)
}

fn two_threads(allocator: &impl Allocate) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| std::hint::black_box(link(allocator, nodes() / 2)).is_null());
        }
    });
    ns_each(start, nodes() / 2 * 2)
}

fn run(allocator: &impl Allocate, work: &str) -> Outcome<f64> {
    Ok(match work {
        "link" => {
            let start = Instant::now();
            std::hint::black_box(link(allocator, nodes()));
            ns_each(start, nodes())
        }
        "link-2" => two_threads(allocator),
        "random-free" => random(allocator, false),
        "random-again" => random(allocator, true),
        "larson" => larson(allocator),
        "threadtest" => threadtest(allocator),
        "producer-consumer" => producer_consumer(allocator),
        other => return Err(format!("unknown work: {other}").into()),
    })
}

fn one(allocator: &str, work: &str) -> Outcome<f64> {
    match allocator {
        "evermap" => {
            let store = Store::create_new(&directory().join("store"))?;
            store.create::<u64, _>("nodes", 0)?;
            let session: Session<u64> = store.write("nodes")?;
            let figure = run(&session.heap(), work)?;
            // Leaks the session, as the others leak their memory: other benchmarks measure commits.
            std::mem::forget(session);
            Ok(figure)
        }
        "glibc" => run(&Glibc, work),
        "mimalloc" => run(&Mimalloc, work),
        "bump" => run(&Bump::new(nodes() * 64 + (1 << 20), work == "link-2")?, work),
        other => Err(format!("unknown allocator: {other}").into()),
    }
}

fn thread_cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn child(allocator: &str, work: &str) -> Outcome<f64> {
    let directory = directory().join(format!("heap-micro-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(["one", allocator, work])
        .env("HEAP_MICRO_DIR", &directory)
        .output()?;
    std::fs::remove_dir_all(&directory)?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).into())
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [one_word, allocator, work] = &arguments[..]
        && one_word == "one"
    {
        let before = thread_cpu_ns();
        println!("{:.3}", one(allocator, work)?);
        // On a busy machine, processor time is more reliable than the clock.
        eprintln!(
            "{:.1} ms of the first thread's processor time",
            (thread_cpu_ns() - before) / 1e6
        );
        return Ok(());
    }
    let rounds = arguments.first().map_or(Ok(5), |rounds| rounds.parse())?;
    println!(
        "| ns each: min, median | evermap | glibc | mimalloc | bump | to glibc, mimalloc, bump |"
    );
    println!("|---|---|---|---|---|---|");
    for work in WORKS.iter().filter(|work| arguments.get(1).is_none_or(|only| only == *work)) {
        let allocators = if work.starts_with("link") { 4 } else { 3 };
        let mut figures = vec![Vec::new(); allocators];
        for _ in 0..rounds {
            for (allocator, figures) in ALLOCATORS.iter().zip(&mut figures) {
                figures.push(child(allocator, work)?);
            }
        }
        figures.iter_mut().for_each(|figures| figures.sort_by(f64::total_cmp));
        let mut line = format!("| {work} |");
        for figures in &figures {
            line += &format!(" {:.1}, {:.1} |", figures[0], figures[figures.len() / 2]);
        }
        line += if allocators == 3 { " - |" } else { "" };
        for other in &figures[1..] {
            line += &format!(" {:.2}", figures[0][0] / other[0]);
        }
        println!("{line} |");
    }
    Ok(())
}
