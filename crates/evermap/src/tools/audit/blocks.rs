//! Numbers all block slots of an object, records which are allocated, and locates addresses.
//!
//! The tables are built from the allocator's metadata in one pass. Block numbers are dense and fit
//! 32 bits, so a walk keeps its state of each block in plain tables. Inconsistent metadata make
//! blocks missing, never addresses wrong: no address here is beyond the file's length.

use std::collections::HashMap;

use crate::alloc::{CLASSES, block_bytes, blocks_per_slab, is_free};
use crate::error::{Error, Result};
use crate::format::{
    CHUNK_BYTES, CHUNK_FULL, CHUNK_LARGE, ChunkRecord, PAGE_BYTES, ROOT_AREA_BYTES,
    ROOT_AREA_OFFSET,
};
use crate::tools::heap::{Layout, read_records};
use crate::tools::image::Image;

/// Chunks read at a time.
const CHUNKS_AT_A_TIME: u64 = 4096;

/// Bit set of fixed size.
#[derive(Debug, Default)]
pub(in crate::tools) struct Bits(Vec<u64>);

impl Bits {
    pub(in crate::tools) fn new(count: u64) -> Bits {
        Bits(vec![0; count.div_ceil(64) as usize])
    }

    pub(in crate::tools) fn has(&self, at: u64) -> bool {
        self.0.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Sets a bit. Returns false if it was set already.
    pub(in crate::tools) fn set(&mut self, at: u64) -> bool {
        let Some(word) = self.0.get_mut((at / 64) as usize) else { return false };
        let fresh = *word >> (at % 64) & 1 == 0;
        *word |= 1 << (at % 64);
        fresh
    }
}

/// Use of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Slab(u8),
    Large,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Number of its first slot.
    first: u32,
    /// Index of the first chunk of the large block that this chunk belongs to; otherwise its own
    /// index.
    head: u32,
    is: Use,
}

/// Chunks of one region, as far as the file holds them.
#[derive(Debug)]
struct RegionChunks {
    /// First address of the region.
    base: u64,
    /// First address of its chunks.
    data: u64,
    /// End of its chunks.
    end: u64,
    /// Size of the address range in bytes.
    capacity: u64,
    /// Index of its first chunk in [`Blocks::chunks`].
    first: usize,
}

/// Kind of location that an address points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Location {
    /// In an allocated block: its number and the offset in it.
    Block(u32, u64),
    /// In the object, where nothing is allocated.
    Unallocated,
    /// In the superblock's area for a small root.
    RootArea,
    /// In the object's metadata.
    Metadata,
    /// Outside the object.
    Outside,
}

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) struct Block {
    pub(in crate::tools) number: u32,
    pub(in crate::tools) address: u64,
    /// Usable bytes.
    pub(in crate::tools) bytes: u64,
    /// Size class; `None` for a large block.
    pub(in crate::tools) class: Option<u8>,
}

/// Block table of an object.
#[derive(Debug)]
pub(in crate::tools) struct Blocks {
    chunks: Vec<Chunk>,
    regions: Vec<RegionChunks>,
    allocated: Bits,
    /// Usable bytes of each large block, by number.
    large: HashMap<u32, u64>,
    /// First address and end of all regions. Rejects most words with one comparison.
    bounds: (u64, u64),
    /// Number of slots.
    slots: u32,
    /// Chunks with invalid metadata.
    pub(in crate::tools) damaged: u64,
}

impl Blocks {
    pub(in crate::tools) fn of(image: &Image) -> Result<Blocks> {
        let mut blocks = Blocks {
            chunks: Vec::new(),
            regions: Vec::new(),
            allocated: Bits::default(),
            large: HashMap::new(),
            bounds: (u64::MAX, 0),
            slots: 0,
            damaged: 0,
        };
        for (number, region) in image.regions() {
            let layout = Layout::of(number, region);
            let count = layout.chunks.min(layout.backed.div_ceil(CHUNK_BYTES));
            let end = region.base + region.capacity;
            blocks.bounds.0 = blocks.bounds.0.min(region.base);
            blocks.bounds.1 = blocks.bounds.1.max(end);
            blocks.regions.push(RegionChunks {
                base: region.base,
                data: layout.data,
                end: layout.data + count * CHUNK_BYTES,
                capacity: region.capacity,
                first: blocks.chunks.len(),
            });
            blocks.add_region(image, &layout, count)?;
        }
        Ok(blocks)
    }

    fn add_region(&mut self, image: &Image, layout: &Layout, count: u64) -> Result<()> {
        let mut body_left = 0;
        for from in (0..count).step_by(CHUNKS_AT_A_TIME as usize) {
            let step = (count - from).min(CHUNKS_AT_A_TIME);
            let mut map = vec![0; step as usize];
            image.read(layout.map + from, &mut map)?;
            let records = match map.iter().any(|state| !is_free(*state)) {
                true => read_records(image, layout, from, step)?,
                false => Vec::new(),
            };
            for (at, &state) in map.iter().enumerate() {
                if body_left > 0 {
                    body_left -= 1;
                    let before = self.chunks[self.chunks.len() - 1];
                    self.chunks.push(before);
                    continue;
                }
                let chunk = from + at as u64;
                body_left = self.add_chunk(layout, (chunk, state), records.get(at), count)?;
            }
        }
        Ok(())
    }

    /// Adds a chunk. Returns the number of following chunks that belong to it.
    fn add_chunk(
        &mut self,
        layout: &Layout,
        (chunk, state): (u64, u8),
        record: Option<&ChunkRecord>,
        count: u64,
    ) -> Result<u64> {
        let (first, head) = (self.slots, self.chunks.len() as u32);
        let class = (state & !CHUNK_FULL).wrapping_sub(1);
        let backed = layout.backed - chunk * CHUNK_BYTES;
        let (is, slots, body) = match (state, record) {
            (CHUNK_LARGE, Some(record)) => {
                let (bytes, chunks) = (record.large_bytes, record.large_chunks);
                let fits = chunks > 0
                    && chunks <= count - chunk
                    && bytes <= backed
                    && bytes.div_ceil(CHUNK_BYTES) == chunks;
                match fits {
                    true => {
                        // The allocator lets the owner use the block up to the end of a page.
                        self.large.insert(first, bytes.next_multiple_of(PAGE_BYTES).min(backed));
                        (Use::Large, 1, chunks - 1)
                    }
                    false => (Use::Free, 0, 0),
                }
            }
            (_, Some(_)) if usize::from(class) < CLASSES => {
                (Use::Slab(class), blocks_per_slab(class.into()), 0)
            }
            _ => (Use::Free, 0, 0),
        };
        if is == Use::Free && !is_free(state) {
            self.damaged += 1;
        }
        let next = first.checked_add(slots).filter(|next| *next < NUMBERS_END);
        self.slots = next.ok_or(Error::CapacityOverflow { what: "the table of blocks" })?;
        self.allocated.0.resize((self.slots as usize).div_ceil(64), 0);
        match (is, record) {
            (Use::Large, _) => {
                self.allocated.set(first.into());
            }
            (Use::Slab(class), Some(record)) => {
                let size = block_bytes(class.into()) as u64;
                for index in 0..slots {
                    let set = record.bitmap[index as usize / 64] >> (index % 64) & 1 == 1;
                    if set && (u64::from(index) + 1) * size <= backed {
                        self.allocated.set(u64::from(first + index));
                    }
                }
            }
            _ => {}
        }
        self.chunks.push(Chunk { first, head, is });
        Ok(body)
    }

    /// Number of slots. All block numbers are below it.
    pub(in crate::tools) fn slots(&self) -> u32 {
        self.slots
    }

    /// Memory used by the tables, in bytes.
    pub(in crate::tools) fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.len() * size_of::<Chunk>();
        (chunks + self.allocated.0.len() * 8 + self.large.len() * 24) as u64
    }

    /// Locates an address.
    pub(in crate::tools) fn locate(&self, address: u64) -> Location {
        if address < self.bounds.0 || address >= self.bounds.1 {
            return Location::Outside;
        }
        let inside = |r: &&RegionChunks| address.wrapping_sub(r.base) < r.capacity;
        let Some(at) = self.regions.iter().position(|r| inside(&r)) else {
            return Location::Outside;
        };
        let region = &self.regions[at];
        if address < region.data {
            let offset = address - region.base;
            let area = ROOT_AREA_OFFSET as u64..(ROOT_AREA_OFFSET + ROOT_AREA_BYTES) as u64;
            return match at == 0 && area.contains(&offset) {
                true => Location::RootArea,
                false => Location::Metadata,
            };
        }
        if address >= region.end {
            return Location::Unallocated;
        }
        let index = region.first + ((address - region.data) / CHUNK_BYTES) as usize;
        let Some(chunk) = self.chunks.get(index) else { return Location::Unallocated };
        let (number, offset) = match chunk.is {
            Use::Free => return Location::Unallocated,
            Use::Large => {
                let head = region.data + (chunk.head as usize - region.first) as u64 * CHUNK_BYTES;
                (chunk.first, address - head)
            }
            Use::Slab(class) => {
                let (at, size) = ((address - region.data) % CHUNK_BYTES, class_bytes(class));
                if at / size >= u64::from(blocks_per_slab(class.into())) {
                    return Location::Unallocated;
                }
                (chunk.first + (at / size) as u32, at % size)
            }
        };
        match self.allocated.has(number.into()) {
            true => Location::Block(number, offset),
            false => Location::Unallocated,
        }
    }

    /// Returns the block with this number, or `None` if it is not allocated.
    pub(in crate::tools) fn block(&self, number: u32) -> Option<Block> {
        let index = self.chunks.partition_point(|c| c.first <= number).checked_sub(1)?;
        let chunk = self.chunks[index];
        let at = self.regions.partition_point(|r| r.first <= chunk.head as usize).checked_sub(1)?;
        // A region without chunks has the same first index as the next one.
        let region = &self.regions[at];
        let head = region.data + (chunk.head as usize - region.first) as u64 * CHUNK_BYTES;
        let block = match chunk.is {
            Use::Free => return None,
            Use::Large => {
                let bytes = self.large.get(&number).copied().unwrap_or(0);
                Block { number, address: head, bytes, class: None }
            }
            Use::Slab(class) => {
                let bytes = class_bytes(class);
                let address = head + u64::from(number - chunk.first) * bytes;
                Block { number, address, bytes, class: Some(class) }
            }
        };
        self.allocated.has(number.into()).then_some(block)
    }

    /// Iterates over all allocated blocks, ordered by address within each region.
    pub(in crate::tools) fn each(&self) -> impl Iterator<Item = Block> + '_ {
        let words = self.allocated.0.iter().enumerate().filter(|(_, word)| **word != 0);
        words
            .flat_map(|(at, word)| {
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
            })
            .filter_map(|number| self.block(number))
    }
}

fn class_bytes(class: u8) -> u64 {
    block_bytes(class.into()) as u64
}

/// End of block numbers. Tables of block numbers use the values from here on as markers.
pub(in crate::tools) const NUMBERS_END: u32 = u32::MAX - 8;
