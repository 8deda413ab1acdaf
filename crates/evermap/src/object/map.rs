//! Layout of an object, page by page, for drawing and monitoring.
//!
//! It is read from the allocator's metadata, which may be damaged. So every number is bounded by
//! the region's size, and an unknown state is shown as unknown.

use bytemuck::Zeroable;

use crate::alloc::{CLASSES, block_bytes, blocks_per_slab, is_free};
use crate::error::Result;
use crate::format::{
    CHUNK_BYTES, CHUNK_FULL, CHUNK_LARGE, CHUNK_LARGE_BODY, ChunkRecord, LINE_BYTES, PAGE_BYTES,
    RegionRecord,
};

/// Pages of a chunk.
pub const PAGES_PER_CHUNK: usize = (CHUNK_BYTES / PAGE_BYTES) as usize;
/// Chunks whose metadata is read in one step.
const CHUNKS_AT_A_TIME: u64 = 4096;

/// Layout of an object in its file: see [`map`](crate::tools::map) and
/// [`Session::map`](crate::Session::map).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectMap {
    /// Its name.
    pub name: String,
    /// Its id, 32 hexadecimal digits. A replacement has a different one.
    pub uuid: String,
    /// Number of the commit shown; with `uncommitted`, of the last one.
    pub sequence: u64,
    /// Shown by its writer, including uncommitted changes; dirty pages are known.
    pub uncommitted: bool,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of records in its log.
    pub log_bytes: u64,
    /// True while it is open for writing.
    pub written: bool,
    /// True while another session reads it; `None` if unknown.
    pub read: Option<bool>,
    /// Its regions, in file order.
    pub regions: Vec<RegionMap>,
}

/// A region: a contiguous range of addresses, and of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionMap {
    /// First address.
    pub base: u64,
    /// Bytes of addresses.
    pub capacity_bytes: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Bytes that the file holds.
    pub length_bytes: u64,
    /// Superblock (of the first region), chunk map, chunk records, page checksums.
    pub metadata: Vec<PageUse>,
    /// The chunks that the file holds at least partly.
    pub chunks: Vec<Chunk>,
}

/// 64 KiB of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Content of the chunk.
    pub content: ChunkContent,
    /// Its pages.
    pub pages: [PageUse; PAGES_PER_CHUNK],
}

/// Content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkContent {
    /// No block.
    Free,
    /// Blocks of one size.
    Slab {
        /// Bytes of one block.
        block_bytes: u32,
        /// Allocated blocks.
        blocks: u32,
        /// Blocks in the slab.
        blocks_max: u32,
    },
    /// The beginning of a large block.
    Large {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Continuation of the preceding large block.
    LargeBody,
    /// A state unknown to the allocator: damage.
    Unknown,
}

/// One page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Bytes of allocated blocks on it; for metadata, the whole page.
    pub allocated_bytes: u16,
    /// True if the file holds it. A chunk may extend past the end of the file.
    pub backed: bool,
    /// True if it was written: the file has no hole there.
    pub stored: bool,
    /// True if it is in the page cache.
    pub resident: bool,
    /// True if it changed since the last commit; only the writer knows.
    pub dirty: bool,
}

/// Use of one block size in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUse {
    /// Bytes of one block.
    pub block_bytes: u32,
    /// Slabs.
    pub slabs: u64,
    /// Blocks allocated.
    pub blocks: u64,
    /// Blocks in those slabs.
    pub blocks_max: u64,
}

/// Sums over an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapTotals {
    /// Blocks allocated, small and large.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub allocated_bytes: u64,
    /// Large blocks among them.
    pub large_blocks: u64,
    /// Bytes that the owners of large blocks asked for.
    pub large_bytes: u64,
    /// Chunks without an allocated block.
    pub free_chunks: u64,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Bytes of the regions that the file holds.
    pub backed_bytes: u64,
    /// Bytes of these that are not in holes.
    pub stored_bytes: u64,
    /// Bytes of these in the page cache.
    pub resident_bytes: u64,
    /// Bytes of pages changed since the last commit.
    pub dirty_bytes: u64,
}

impl RegionMap {
    /// Reads the chunks of a region from its metadata. `read` copies the bytes at an address, and
    /// returns false if the address is not backed.
    pub(crate) fn read(
        record: &RegionRecord,
        first: bool,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<bool>,
    ) -> Result<RegionMap> {
        let all = (record.capacity - record.meta_length) / CHUNK_BYTES;
        let backed = record.length - record.meta_length;
        let count = all.min(backed.div_ceil(CHUNK_BYTES));
        let map_address = record.base + if first { PAGE_BYTES } else { 0 };
        let records_address = map_address + all.next_multiple_of(LINE_BYTES as u64);
        let mut chunks = Vec::with_capacity(count as usize);
        let mut large = Large::default();
        let mut from = 0;
        while from < count {
            let step = (count - from).min(CHUNKS_AT_A_TIME);
            let mut states = vec![0; step as usize];
            read(map_address + from, &mut states)?;
            let mut bytes = Vec::new();
            if states.iter().any(|&state| !is_free(state) && state != CHUNK_LARGE_BODY) {
                bytes.resize(states.len() * size_of::<ChunkRecord>(), 0);
                read(records_address + from * size_of::<ChunkRecord>() as u64, &mut bytes)?;
            }
            let mut records = bytes
                .chunks_exact(size_of::<ChunkRecord>())
                .map(bytemuck::pod_read_unaligned::<ChunkRecord>);
            for state in states {
                let record = records.next().unwrap_or_else(ChunkRecord::zeroed);
                chunks.push(large.chunk(state, &record));
            }
            from += step;
        }
        let page = |backed| PageUse { backed, ..PageUse::default() };
        let metadata = PageUse { allocated_bytes: PAGE_BYTES as u16, ..page(true) };
        let mut pages_left = backed / PAGE_BYTES;
        for page in chunks.iter_mut().flat_map(|chunk| &mut chunk.pages) {
            page.backed = pages_left > 0;
            pages_left = pages_left.saturating_sub(1);
        }
        Ok(RegionMap {
            base: record.base,
            capacity_bytes: record.capacity,
            file_offset: record.file_offset,
            length_bytes: record.length,
            metadata: vec![metadata; (record.meta_length / PAGE_BYTES) as usize],
            chunks,
        })
    }

    /// The pages that the file holds, metadata first.
    pub fn pages(&self) -> impl Iterator<Item = &PageUse> {
        let data = self.chunks.iter().flat_map(|chunk| &chunk.pages);
        self.metadata.iter().chain(data.filter(|page| page.backed))
    }

    /// Like [`pages`](RegionMap::pages), for changing them.
    pub(crate) fn pages_mut(&mut self) -> impl Iterator<Item = &mut PageUse> {
        let data = self.chunks.iter_mut().flat_map(|chunk| &mut chunk.pages);
        self.metadata.iter_mut().chain(data.filter(|page| page.backed))
    }
}

/// State of the large block that spans the current chunks.
#[derive(Default)]
struct Large {
    bytes_left: u64,
}

impl Large {
    fn chunk(&mut self, state: u8, record: &ChunkRecord) -> Chunk {
        let mut pages = [PageUse::default(); PAGES_PER_CHUNK];
        let content = match state & !CHUNK_FULL {
            _ if is_free(state) => ChunkContent::Free,
            _ if state == CHUNK_LARGE => {
                self.bytes_left = record.large_bytes;
                ChunkContent::Large { bytes: record.large_bytes }
            }
            _ if state == CHUNK_LARGE_BODY => ChunkContent::LargeBody,
            class if (1..=CLASSES as u8).contains(&class) => {
                fill_slab(class as usize - 1, record, &mut pages)
            }
            _ => ChunkContent::Unknown,
        };
        if matches!(content, ChunkContent::Large { .. } | ChunkContent::LargeBody) {
            for page in &mut pages {
                let here = self.bytes_left.min(PAGE_BYTES);
                page.allocated_bytes = here as u16;
                self.bytes_left -= here;
            }
        }
        Chunk { content, pages }
    }
}

/// Spreads a slab's allocated blocks over its pages.
fn fill_slab(class: usize, record: &ChunkRecord, pages: &mut [PageUse]) -> ChunkContent {
    let (block_bytes, blocks_max) = (block_bytes(class) as u64, blocks_per_slab(class));
    let mut blocks = 0;
    for (word, bits) in record.bitmap.iter().enumerate() {
        let mut bits = *bits;
        while bits != 0 {
            let index = word as u64 * 64 + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            if index >= u64::from(blocks_max) {
                continue;
            }
            blocks += 1;
            let (mut at, end) = (index * block_bytes, (index + 1) * block_bytes);
            while at < end {
                let stop = end.min((at / PAGE_BYTES + 1) * PAGE_BYTES);
                pages[(at / PAGE_BYTES) as usize].allocated_bytes += (stop - at) as u16;
                at = stop;
            }
        }
    }
    ChunkContent::Slab { block_bytes: block_bytes as u32, blocks, blocks_max }
}

impl ObjectMap {
    /// Sums over all regions.
    pub fn totals(&self) -> MapTotals {
        let mut totals = MapTotals::default();
        for region in &self.regions {
            totals.backed_bytes += region.length_bytes;
            totals.metadata_bytes += region.metadata.len() as u64 * PAGE_BYTES;
            for page in region.pages() {
                totals.stored_bytes += u64::from(page.stored) * PAGE_BYTES;
                totals.resident_bytes += u64::from(page.resident) * PAGE_BYTES;
                totals.dirty_bytes += u64::from(page.dirty) * PAGE_BYTES;
            }
            for chunk in &region.chunks {
                match chunk.content {
                    ChunkContent::Free => totals.free_chunks += 1,
                    ChunkContent::Slab { block_bytes, blocks, .. } => {
                        totals.blocks += u64::from(blocks);
                        totals.allocated_bytes += u64::from(blocks) * u64::from(block_bytes);
                    }
                    ChunkContent::Large { bytes } => {
                        totals.blocks += 1;
                        totals.large_blocks += 1;
                        totals.large_bytes = totals.large_bytes.saturating_add(bytes);
                        totals.allocated_bytes = totals.allocated_bytes.saturating_add(bytes);
                    }
                    ChunkContent::LargeBody | ChunkContent::Unknown => {}
                }
            }
        }
        totals
    }

    /// Returns the use of each block size, ascending; sizes without a slab are left out.
    pub fn classes(&self) -> Vec<ClassUse> {
        let mut classes: Vec<ClassUse> = (0..CLASSES)
            .map(|class| ClassUse {
                block_bytes: block_bytes(class) as u32,
                slabs: 0,
                blocks: 0,
                blocks_max: 0,
            })
            .collect();
        for chunk in self.regions.iter().flat_map(|region| &region.chunks) {
            if let ChunkContent::Slab { block_bytes, blocks, blocks_max } = chunk.content
                && let Some(class) = classes.iter_mut().find(|c| c.block_bytes == block_bytes)
            {
                class.slabs += 1;
                class.blocks += u64::from(blocks);
                class.blocks_max += u64::from(blocks_max);
            }
        }
        classes.retain(|class| class.slabs > 0);
        classes
    }

    /// Marks the pages that the file stores, and those in the page cache.
    pub(crate) fn mark_stored_pages(&mut self, file: &dyn crate::storage::File) -> Result<()> {
        for region in &mut self.regions {
            let (start, length) = (region.file_offset, region.length_bytes);
            let mut resident = Vec::new();
            if length > 0 {
                crate::address::View::new(file, start, length)?.resident(&mut resident);
            }
            let mut data = (start, start);
            for (at, page) in (start..).step_by(PAGE_BYTES as usize).zip(region.pages_mut()) {
                page.resident = resident
                    .get(((at - start) / PAGE_BYTES) as usize)
                    .is_some_and(|byte| byte & 1 == 1);
                if at >= data.1 {
                    data = file.next_data(at)?.unwrap_or((u64::MAX, u64::MAX));
                }
                page.stored = at >= data.0;
            }
        }
        Ok(())
    }

    /// Marks a run of pages, given by its first address, as changed.
    pub(crate) fn mark_dirty(&mut self, address: u64, length: u64) {
        for region in &mut self.regions {
            let Some(from) = address.checked_sub(region.base) else { continue };
            if from >= region.length_bytes {
                continue;
            }
            let (skip, count) = ((from / PAGE_BYTES) as usize, (length / PAGE_BYTES) as usize);
            region.pages_mut().skip(skip).take(count).for_each(|page| page.dirty = true);
        }
    }
}
