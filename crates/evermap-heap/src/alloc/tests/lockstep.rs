//! Runs several threads' operations in an order chosen by a seed and compares them with a model.
//! After each cache flush, compares the metadata with the model bit by bit.
//!
//! Each worker thread runs one job at a time on request. So ownership, remote frees, ended threads
//! and their successors, flushes and rollbacks occur in every order, and a seed reproduces the
//! order. `EVERMAP_SEED` sets the seed, `EVERMAP_STEPS` the length. The stress test and loom cover
//! parallel threads.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::super::anonymous::AnonymousSource;
use super::super::classes::{block_bytes, blocks_per_slab, class_of, offered_used_max};
use super::super::{ChunkSource, Heap};
use super::check_filled;
use crate::error::{HeapError, Result};
use crate::format::{
    CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_LARGE, CHUNK_LARGE_BODY, ChunkRecord, RegionRecord,
};

/// Random number generator without dependencies.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// Chunk source that records the regions it added.
pub(super) struct RecordingSource {
    source: AnonymousSource,
    records: std::sync::Mutex<Vec<RegionRecord>>,
}

impl ChunkSource for RecordingSource {
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64> {
        self.source.extend(region, data_bytes)
    }

    fn refill(&self, _: usize, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn add_region(&self, chunks: u64) -> Result<RegionRecord> {
        let record = self.source.add_region(chunks)?;
        self.records.lock().unwrap().push(record);
        Ok(record)
    }
}

impl RecordingSource {
    pub(super) fn new() -> Arc<RecordingSource> {
        RecordingSource::of_chunks(4)
    }

    pub(super) fn of_chunks(chunks: u64) -> Arc<RecordingSource> {
        let source = AnonymousSource::default();
        let this = Arc::new(RecordingSource { source, records: std::sync::Mutex::default() });
        this.add_region(chunks).unwrap();
        this
    }

    pub(super) fn records(&self) -> Vec<RegionRecord> {
        self.records.lock().unwrap().clone()
    }

    pub(super) fn heap(self: &Arc<Self>) -> Heap {
        let source = Arc::clone(self) as Arc<dyn ChunkSource>;
        // SAFETY: the chunk source maps the memory writable, and the heap keeps the source.
        unsafe { Heap::new(source, &self.records()) }
    }
}

/// Returns a region's metadata and the chunk map inside it.
fn metadata(number: usize, record: &RegionRecord) -> (*mut u8, usize) {
    let head = if number == 0 { crate::format::PAGE_BYTES } else { 0 };
    ((record.base + head) as *mut u8, (record.meta_length - head) as usize)
}

/// Copies a region's metadata. No thread may be allocating or freeing.
pub(super) fn metadata_bytes(number: usize, record: &RegionRecord) -> Vec<u8> {
    let (at, length) = metadata(number, record);
    // SAFETY: mapped, and all threads are quiet.
    unsafe { std::slice::from_raw_parts(at, length) }.to_vec()
}

type Job = Box<dyn FnOnce(&Heap) + Send>;

/// Thread that runs one job at a time.
struct Worker {
    jobs: Sender<(usize, Job)>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn new() -> Worker {
        let (jobs, from) = channel::<(usize, Job)>();
        let (to, done) = channel();
        let thread = std::thread::spawn(move || {
            for (heap, job) in from {
                // SAFETY: the sender lends the heap until the worker reports that the job is done.
                job(unsafe { &*std::ptr::with_exposed_provenance::<Heap>(heap) });
                to.send(()).unwrap();
            }
        });
        Worker { jobs, done, thread }
    }

    fn run<R: Send + 'static>(
        &self,
        heap: &Heap,
        act: impl FnOnce(&Heap) -> R + Send + 'static,
    ) -> R {
        let (to, result) = channel();
        let job: Job = Box::new(move |heap| to.send(act(heap)).unwrap());
        self.jobs.send((std::ptr::from_ref(heap).expose_provenance(), job)).unwrap();
        self.done.recv().unwrap();
        result.recv().unwrap()
    }

    fn end(self) {
        drop(self.jobs);
        self.thread.join().unwrap();
    }
}

/// Requested size and fill byte of each block, by address.
type Blocks = BTreeMap<usize, (usize, u8)>;

struct Lockstep {
    source: Arc<RecordingSource>,
    heap: Heap,
    workers: Vec<Worker>,
    blocks: Blocks,
    freed: Vec<usize>,
    /// Last commit: metadata of each region, and the blocks.
    commit: (Vec<Vec<u8>>, Blocks),
    random: Random,
}

fn pointer(address: usize) -> NonNull<u8> {
    NonNull::new(address as *mut u8).unwrap()
}

impl Lockstep {
    fn new(seed: u64) -> Lockstep {
        let source = RecordingSource::new();
        Lockstep {
            heap: source.heap(),
            source,
            workers: (0..3).map(|_| Worker::new()).collect(),
            blocks: Blocks::new(),
            freed: Vec::new(),
            commit: (Vec::new(), Blocks::new()),
            random: Random(seed),
        }
    }

    fn step(&mut self) {
        let worker = self.random.below(self.workers.len());
        match self.random.below(1000) {
            0..470 => self.allocate(worker),
            470..860 => self.free(worker),
            860..920 => self.reallocate(worker),
            920..960 => self.free_wrongly(worker),
            960..970 => self.free_many(worker),
            970..982 => {
                let ended = std::mem::replace(&mut self.workers[worker], Worker::new());
                ended.end();
            }
            982..994 => self.flush_thread_caches(),
            _ => self.roll_back(),
        }
    }

    fn size(&mut self) -> usize {
        // Mostly a few classes, so that slabs fill and empty; rarely any class or a large block.
        match self.random.below(40) {
            0 => 33_000 + self.random.below(300_000),
            1 => self.random.below(33_000),
            2..8 => 32_000,
            8..14 => 5000,
            14..17 => 16 + 40 * self.random.below(6),
            _ => 500 + 100 * self.random.below(3),
        }
    }

    fn allocate(&mut self, worker: usize) {
        let size = self.size();
        for _ in 0..1 + self.random.below(20) {
            let fill = self.random.below(256) as u8;
            let address = self.workers[worker].run(&self.heap, move |heap| {
                let block = heap.allocate(size, 16).unwrap();
                assert!(heap.usable_size(block) >= size);
                // SAFETY: just allocated.
                unsafe { block.as_ptr().write_bytes(fill, size) };
                block.as_ptr() as usize
            });
            self.insert(address, size, fill);
        }
    }

    fn insert(&mut self, address: usize, size: usize, fill: u8) {
        let before = self.blocks.range(..address).next_back();
        assert!(before.is_none_or(|(a, (s, _))| a + s <= address), "overlaps the block before");
        let after = self.blocks.range(address..).next();
        assert!(after.is_none_or(|(a, _)| address + size <= *a), "overlaps the block after");
        self.blocks.insert(address, (size, fill));
        self.freed.retain(|freed| *freed != address);
    }

    fn take(&mut self) -> Option<(usize, usize, u8)> {
        let nth = self.random.below(self.blocks.len());
        let (&address, &(size, fill)) = self.blocks.iter().nth(nth)?;
        self.blocks.remove(&address);
        Some((address, size, fill))
    }

    fn free(&mut self, worker: usize) {
        for _ in 0..1 + self.random.below(20) {
            let Some((address, size, fill)) = self.take() else { return };
            self.workers[worker].run(&self.heap, move |heap| {
                check_filled(pointer(address), size, fill);
                heap.free_checked(pointer(address)).unwrap();
            });
            self.freed.push(address);
        }
    }

    /// Frees three quarters of the blocks, so that slabs and runs of chunks are returned.
    fn free_many(&mut self, worker: usize) {
        for _ in 0..self.blocks.len() * 3 / 4 {
            let Some((address, ..)) = self.take() else { return };
            let worker = if self.random.below(2) == 0 { worker } else { 0 };
            self.workers[worker]
                .run(&self.heap, move |heap| heap.free_checked(pointer(address)).unwrap());
            self.freed.push(address);
        }
    }

    fn reallocate(&mut self, worker: usize) {
        let Some((address, old, fill)) = self.take() else { return };
        let size = self.size();
        let new = self.workers[worker].run(&self.heap, move |heap| {
            // SAFETY: the block is allocated, and the model dropped it.
            let block = unsafe { heap.reallocate(pointer(address), size, 16).unwrap() };
            check_filled(block, old.min(size), fill);
            // SAFETY: the block has this size now.
            unsafe { block.as_ptr().write_bytes(fill, size) };
            block.as_ptr() as usize
        });
        self.freed.push(address);
        self.insert(new, size, fill);
    }

    /// Checks that freeing a free block or the middle of a block fails, whichever thread owns it.
    fn free_wrongly(&mut self, worker: usize) {
        let nth = self.random.below(self.freed.len());
        let Some(&address) = self.freed.get(nth) else { return };
        // It may lie inside a block of another size by now, but not at its beginning.
        for address in [address, address + 1] {
            self.workers[worker].run(&self.heap, move |heap| {
                let refused = heap.free_checked(pointer(address));
                assert!(matches!(refused, Err(HeapError::InvalidFree { .. })), "{address:#x}");
            });
        }
    }

    fn flush_thread_caches(&mut self) {
        if self.random.below(4) == 0 {
            self.heap.flush_and_measure();
        } else {
            self.heap.flush_thread_caches();
        }
        self.check();
        let records = self.source.records();
        let bytes = records.iter().enumerate().map(|(n, record)| metadata_bytes(n, record));
        self.commit = (bytes.collect(), self.blocks.clone());
    }

    /// Rolls back, like a session's rollback or the first session after a crash.
    fn roll_back(&mut self) {
        for (number, record) in self.source.records().iter().enumerate() {
            let (at, length) = metadata(number, record);
            // SAFETY: the metadata is mapped with this length, and no other thread is running.
            unsafe {
                at.write_bytes(0, length);
                if let Some(bytes) = self.commit.0.get(number) {
                    at.copy_from_nonoverlapping(bytes.as_ptr(), length);
                }
            }
        }
        if self.random.below(2) == 0 {
            // SAFETY: the regions are mapped writable and belong to this heap, as in `heap`.
            unsafe { self.heap.reload(&self.source.records()) };
        } else {
            self.heap = self.source.heap();
        }
        self.blocks = self.commit.1.clone();
        self.freed.clear();
        for (address, (size, fill)) in &self.blocks {
            // SAFETY: the block is allocated in the commit.
            unsafe { pointer(*address).as_ptr().write_bytes(*fill, *size) };
        }
        self.check();
    }

    fn check(&self) {
        assert_metadata_is(&self.source.records(), &self.blocks);
        assert_eq!(self.heap.live_blocks(), self.blocks.len());
    }
}

/// Checks every bit, count and state of the metadata against these blocks.
pub(super) fn assert_metadata_is(records: &[RegionRecord], blocks: &Blocks) {
    let mut seen = 0;
    for (number, region) in records.iter().enumerate() {
        let bytes = metadata_bytes(number, region);
        let chunks = ((region.capacity - region.meta_length) / CHUNK_BYTES) as usize;
        let data = (region.base + region.meta_length) as usize;
        let (map, after) = bytes.split_at(chunks);
        let records = &after[chunks.next_multiple_of(64) - chunks..];
        let mut body = 0;
        for (chunk, &state) in map.iter().enumerate() {
            let at = data + chunk * CHUNK_BYTES as usize;
            let size = size_of::<ChunkRecord>();
            let record: ChunkRecord =
                bytemuck::pod_read_unaligned(&records[chunk * size..][..size]);
            let held: Vec<(usize, usize)> = blocks
                .range(at..at + CHUNK_BYTES as usize)
                .map(|(address, (size, _))| (address - at, *size))
                .collect();
            match state {
                CHUNK_FREE => assert!(held.is_empty(), "blocks in a free chunk"),
                CHUNK_LARGE => {
                    assert_eq!(held, [(0, record.large_bytes as usize)]);
                    assert_eq!(record.large_chunks, record.large_bytes.div_ceil(CHUNK_BYTES));
                    body = record.large_chunks as usize;
                }
                CHUNK_LARGE_BODY => assert!(body > 0 && held.is_empty(), "a body of nothing"),
                _ => {
                    assert!(!held.is_empty(), "an empty slab");
                    assert_slab_is(state, &record, &held);
                }
            }
            body = body.saturating_sub(1);
            seen += held.len();
        }
    }
    assert_eq!(seen, blocks.len(), "blocks outside the regions");
}

fn assert_slab_is(state: u8, record: &ChunkRecord, held: &[(usize, usize)]) {
    let class = (state & !CHUNK_FULL) as usize - 1;
    let mut bitmap = [0u64; 64];
    for (offset, size) in held {
        assert_eq!(class_of(*size, 16), Some(class));
        assert_eq!(offset % block_bytes(class), 0);
        let index = offset / block_bytes(class);
        bitmap[index / 64] |= 1 << (index % 64);
    }
    assert_eq!(record.bitmap, bitmap);
    assert_eq!(record.blocks, blocks_per_slab(class));
    assert_eq!(record.used as usize, held.len());
    let full = held.len() as u32 > offered_used_max(blocks_per_slab(class));
    assert_eq!(state & CHUNK_FULL != 0, full, "{} blocks used", held.len());
    let top = held.last().map_or(0, |(offset, _)| offset / block_bytes(class) + 1);
    assert!(record.carved as usize >= top && record.carved <= record.blocks);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn metadata_matches_the_model_for_any_order_of_threads() {
    let steps = number("EVERMAP_STEPS").unwrap_or(if cfg!(miri) { 60 } else { 2500 });
    let seeds = match number("EVERMAP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..if cfg!(miri) { 2 } else { 9 },
    };
    for seed in seeds {
        println!("EVERMAP_SEED={seed}");
        let mut lockstep = Lockstep::new(seed);
        for _ in 0..steps {
            lockstep.step();
        }
        for (address, ..) in std::iter::from_fn(|| lockstep.take()).collect::<Vec<_>>() {
            lockstep.heap.free_checked(pointer(address)).unwrap();
        }
        lockstep.heap.flush_and_measure();
        lockstep.check();
        let left = lockstep.heap.statistics();
        assert_eq!(left.free_chunks * CHUNK_BYTES, left.capacity_bytes);
        lockstep.workers.drain(..).for_each(Worker::end);
    }
}
