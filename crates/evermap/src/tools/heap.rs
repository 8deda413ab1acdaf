//! Checks the allocator's metadata without following a pointer.
//!
//! Chunk map and chunk records are redundant (a bitmap and its count, a large block's length and
//! its body in the map), so they are compared with each other and with the length of the file.
//! They are read in pieces, so memory use does not depend on the region's size.

use crate::alloc::{CLASSES, block_bytes, blocks_per_slab, is_free, offered_used_max};
use crate::error::Result;
use crate::format::{
    CHUNK_BYTES, CHUNK_FULL, CHUNK_LARGE, CHUNK_LARGE_BODY, ChunkRecord, LINE_BYTES, PAGE_BYTES,
    ROOT_AREA_BYTES, ROOT_AREA_OFFSET, RegionRecord,
};

use super::image::Image;
use super::report::{Findings, quantity};

/// Chunks checked at a time: 4 KiB of map and 2.25 MiB of records.
const CHUNKS_AT_A_TIME: u64 = 4096;

/// Totals of the allocated blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allocated {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// Addresses of a region's metadata and chunks.
pub(super) struct Layout {
    /// Number of the region, for messages.
    number: usize,
    pub(super) map: u64,
    records: u64,
    pub(super) data: u64,
    pub(super) chunks: u64,
    /// Bytes of chunks that are within the file.
    pub(super) backed: u64,
}

impl Layout {
    pub(super) fn of(number: usize, region: &RegionRecord) -> Layout {
        let chunks = (region.capacity - region.meta_length) / CHUNK_BYTES;
        let map = region.base + if number == 0 { PAGE_BYTES } else { 0 };
        Layout {
            number,
            map,
            records: map + chunks.next_multiple_of(LINE_BYTES as u64),
            data: region.base + region.meta_length,
            chunks,
            backed: region.length - region.meta_length,
        }
    }

    fn record_address(&self, chunk: u64) -> u64 {
        self.records + chunk * size_of::<ChunkRecord>() as u64
    }

    fn chunk(&self, chunk: u64) -> String {
        format!("chunk {chunk} of region {}", self.number)
    }
}

/// Checks the allocator's metadata of every region, and that the root is an allocated block.
pub(super) fn check(image: &Image, findings: &mut Findings) -> Result<Allocated> {
    let mut allocated = Allocated::default();
    for (number, region) in image.regions() {
        check_region(image, &Layout::of(number, region), findings, &mut allocated)?;
    }
    check_root(image, findings)?;
    Ok(allocated)
}

fn check_region(
    image: &Image,
    layout: &Layout,
    findings: &mut Findings,
    allocated: &mut Allocated,
) -> Result<()> {
    // Number of following chunks that must belong to the current large block.
    let mut body_left = 0;
    let mut from = 0;
    while from < layout.chunks {
        let count = (layout.chunks - from).min(CHUNKS_AT_A_TIME);
        let mut map = vec![0; count as usize];
        if !image.read(layout.map + from, &mut map)? {
            findings.damage("the chunk map", "shorter than the region", "one byte per chunk");
            return Ok(());
        }
        // The records of free chunks are not used.
        let records = match map.iter().any(|state| !is_free(*state)) {
            true => read_records(image, layout, from, count)?,
            false => Vec::new(),
        };
        for (at, &state) in map.iter().enumerate() {
            let chunk = from + at as u64;
            if body_left > 0 {
                body_left -= 1;
                if state != CHUNK_LARGE_BODY {
                    let found = describe(state);
                    findings.damage(layout.chunk(chunk), found, "the rest of a large block");
                    body_left = 0;
                } else {
                    continue;
                }
            }
            let Some(record) = records.get(at) else { continue };
            body_left = check_chunk(layout, (chunk, state), record, findings, allocated);
        }
        from += count;
    }
    if body_left > 0 {
        let found = format!("ends {} before its large block", quantity(body_left, "chunk"));
        findings.damage(format!("region {}", layout.number), found, "blocks inside the region");
    }
    Ok(())
}

pub(super) fn read_records(
    image: &Image,
    layout: &Layout,
    from: u64,
    count: u64,
) -> Result<Vec<ChunkRecord>> {
    let mut bytes = vec![0; count as usize * size_of::<ChunkRecord>()];
    match image.read(layout.record_address(from), &mut bytes)? {
        true => Ok(bytes
            .chunks_exact(size_of::<ChunkRecord>())
            .map(bytemuck::pod_read_unaligned)
            .collect()),
        false => Ok(Vec::new()),
    }
}

/// Checks one chunk. Returns the number of following chunks that belong to it.
fn check_chunk(
    layout: &Layout,
    (chunk, state): (u64, u8),
    record: &ChunkRecord,
    findings: &mut Findings,
    allocated: &mut Allocated,
) -> u64 {
    match state & !CHUNK_FULL {
        _ if is_free(state) => 0,
        CHUNK_LARGE if state == CHUNK_LARGE => {
            check_large(layout, chunk, record, findings, allocated)
        }
        class if (1..=CLASSES as u8).contains(&class) => {
            let counted = check_slab(layout, (chunk, state), record, findings);
            allocated.blocks += u64::from(counted);
            allocated.bytes += u64::from(counted) * block_bytes(class as usize - 1) as u64;
            0
        }
        _ => {
            findings.damage(layout.chunk(chunk), describe(state), "a known state");
            0
        }
    }
}

fn check_large(
    layout: &Layout,
    chunk: u64,
    record: &ChunkRecord,
    findings: &mut Findings,
    allocated: &mut Allocated,
) -> u64 {
    let chunks = record.large_chunks;
    let what = || format!("the large block in {}", layout.chunk(chunk));
    if chunks == 0 || chunks > layout.chunks - chunk {
        let expected = format!("1 to {}", quantity(layout.chunks - chunk, "chunk"));
        findings.damage(what(), quantity(chunks, "chunk"), expected);
        return 0;
    }
    let bytes = record.large_bytes;
    if bytes > chunks * CHUNK_BYTES || bytes <= (chunks - 1) * CHUNK_BYTES {
        let expected = format!("a size that takes {}", quantity(chunks, "chunk"));
        findings.damage(what(), quantity(bytes, "byte"), expected);
    } else if chunk * CHUNK_BYTES + bytes > layout.backed {
        findings.damage(what(), quantity(bytes, "byte"), "a block inside the file");
    }
    allocated.blocks += 1;
    allocated.bytes += chunks * CHUNK_BYTES;
    chunks - 1
}

/// Checks a slab. Returns the number of blocks that are set in its bitmap.
fn check_slab(
    layout: &Layout,
    (chunk, state): (u64, u8),
    record: &ChunkRecord,
    findings: &mut Findings,
) -> u32 {
    let class = (state & !CHUNK_FULL) as usize - 1;
    let blocks = blocks_per_slab(class);
    let what = |part: &str| format!("{part} of {}", layout.chunk(chunk));
    if record.blocks != blocks {
        findings.damage(what("the blocks"), record.blocks.to_string(), blocks.to_string());
    }
    let counted: u32 = record.bitmap.iter().map(|word| word.count_ones()).sum();
    if record.used != counted {
        let expected = format!("{counted}, as in the bitmap");
        findings.damage(what("the count of used blocks"), record.used.to_string(), expected);
    }
    let top = record
        .bitmap
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |word| word as u32 * 64 + 64 - record.bitmap[word].leading_zeros());
    if record.carved > blocks || top > record.carved {
        let carved = quantity(record.carved.into(), "block");
        let found = format!("{carved} carved, and blocks up to number {top} in use");
        let expected = format!("at most {blocks} carved, and no other block in use");
        findings.damage(what("the bitmap"), found, expected);
    } else if chunk * CHUNK_BYTES + u64::from(record.carved) * block_bytes(class) as u64
        > layout.backed
    {
        let found = format!("{} carved", quantity(record.carved.into(), "block"));
        findings.damage(what("the slab"), found, "blocks inside the file");
    }
    // Earlier builds also offered slabs with fewer free blocks than are required now.
    let (offered, most) = (state & CHUNK_FULL == 0, offered_used_max(blocks));
    if (offered && counted >= blocks) || (!offered && counted <= most) {
        let found = if offered { "offered for allocation" } else { "not offered for allocation" };
        let state = if offered { "not offered" } else { "offered" };
        let expected = format!("{state}, with {counted} of {blocks} blocks in use");
        findings.damage(what("the slab"), found, expected);
    }
    counted
}

fn describe(state: u8) -> String {
    match state & !CHUNK_FULL {
        _ if is_free(state) => "a free chunk".to_string(),
        _ if state == CHUNK_LARGE => "the first chunk of a large block".to_string(),
        _ if state == CHUNK_LARGE_BODY => "a chunk of a large block without its first".to_string(),
        class if (1..=CLASSES as u8).contains(&class) => "a slab".to_string(),
        _ => format!("state {state:#04x}"),
    }
}

fn check_root(image: &Image, findings: &mut Findings) -> Result<()> {
    let s = image.superblock();
    if s.root_address == 0 {
        return Ok(());
    }
    let area = s.regions()[0].base + ROOT_AREA_OFFSET as u64;
    let end = s.root_address.saturating_add(s.root_bytes);
    if s.root_address >= area && end <= area + ROOT_AREA_BYTES as u64 {
        return Ok(());
    }
    let block = block_at(image, s.root_address)?;
    if block.is_none_or(|bytes| bytes < s.root_bytes) {
        let found = match block {
            None => format!("{:#x}, which is not an allocated block", s.root_address),
            Some(bytes) => format!("a block of {}", quantity(bytes, "byte")),
        };
        let expected = format!("an allocated block of at least {}", quantity(s.root_bytes, "byte"));
        findings.damage("the root", found, expected);
    }
    Ok(())
}

/// Returns the usable bytes of the allocated block that begins at an address; for a large block
/// they extend to the end of a page. Returns `None` if no block begins there.
pub(super) fn block_at(image: &Image, address: u64) -> Result<Option<u64>> {
    let inside = |layout: &Layout| {
        address >= layout.data && address < layout.data + layout.chunks * CHUNK_BYTES
    };
    let Some(layout) = image.regions().map(|(n, r)| Layout::of(n, r)).find(inside) else {
        return Ok(None);
    };
    let chunk = (address - layout.data) / CHUNK_BYTES;
    let offset = (address - layout.data) % CHUNK_BYTES;
    let state: Option<u8> = image.value(layout.map + chunk)?;
    let record: Option<ChunkRecord> = image.value(layout.record_address(chunk))?;
    let (Some(state), Some(record)) = (state, record) else { return Ok(None) };
    let bytes = match state & !CHUNK_FULL {
        CHUNK_LARGE if state == CHUNK_LARGE => {
            let end = (chunk * CHUNK_BYTES).checked_add(record.large_bytes);
            let whole = end.is_some_and(|end| end <= layout.backed);
            (offset == 0 && whole).then_some(record.large_bytes.next_multiple_of(PAGE_BYTES))
        }
        class if (1..=CLASSES as u8).contains(&class) => {
            let size = block_bytes(class as usize - 1) as u64;
            let index = (offset / size) as usize;
            let set = record.bitmap.get(index / 64).is_some_and(|w| w >> (index % 64) & 1 == 1);
            (offset.is_multiple_of(size) && set).then_some(size)
        }
        _ => None,
    };
    Ok(bytes)
}
