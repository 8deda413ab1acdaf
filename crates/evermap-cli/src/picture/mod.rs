//! Pictures of an object, for `store map`: its pages as cells of equal size, in the file's order.
//!
//! A cell is one page, or a power of two of pages so that the number of cells stays below a limit.
//! This module computes the main use of each cell and how much of it is allocated, stored, in
//! memory and changed. Both renderers (SVG and terminal) draw the same cells.

mod colour;
mod svg;
mod terminal;

use evermap::tools::{
    ChunkContent, ClassUse, MapTotals, ObjectMap, PAGES_PER_CHUNK, PageUse, RegionMap,
};

use colour::Colour;

pub use terminal::{Style, draw};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// An object as cells.
struct Picture<'a> {
    map: &'a ObjectMap,
    /// Bytes per cell.
    cell_bytes: u64,
    /// Regions, each with its cells. The last cell may cover fewer bytes.
    regions: Vec<(&'a RegionMap, Vec<Cell>)>,
    /// Block sizes, small ones first. [`CellKind::Slab`] is an index into it.
    classes: Vec<ClassUse>,
    totals: MapTotals,
}

/// Main use of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CellKind {
    /// Superblock, chunk map, chunk records and checksums.
    Metadata,
    /// Blocks of one size, as an index into `Picture::classes`.
    Slab(usize),
    /// A large block. The number alternates between neighbours.
    Large(u8),
    /// Free chunks.
    Free,
    /// Damaged metadata: a state that the allocator does not know.
    Unknown,
}

/// Part of a cell with one use. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CellPart {
    /// Use.
    kind: CellKind,
    /// Share of the cell.
    share: f32,
    /// Share of the part that is allocated.
    allocated: f32,
}

/// Cell of a picture. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    /// Main use.
    kind: CellKind,
    /// Parts by use, in the order of the file.
    parts: Vec<CellPart>,
    /// Share that is allocated.
    allocated: f32,
    /// Share that was ever written. The rest are holes in the file.
    stored: f32,
    /// Share in memory.
    resident: f32,
    /// Share changed since the last commit.
    dirty: f32,
}

/// Draws an object with at most `cells_max` cells, plus one per region, as a standalone SVG
/// document with grid, legend and tooltips. It is 1000 units wide, or 1900 if `wide` is true.
pub fn svg(map: &ObjectMap, cells_max: usize, wide: bool) -> String {
    svg::draw(&Picture::of(map, cells_max), wide)
}

fn kind_of(content: ChunkContent, classes: &[ClassUse], large: &mut u8) -> CellKind {
    match content {
        ChunkContent::Free => CellKind::Free,
        ChunkContent::Slab { block_bytes, .. } => {
            let class = classes.iter().position(|class| class.block_bytes == block_bytes);
            class.map_or(CellKind::Unknown, CellKind::Slab)
        }
        ChunkContent::Large { .. } => {
            *large ^= 1;
            CellKind::Large(*large)
        }
        ChunkContent::LargeBody => CellKind::Large(*large),
        ChunkContent::Unknown => CellKind::Unknown,
    }
}

fn cell_of(pages: &[(CellKind, &PageUse)]) -> Cell {
    let share = |of: &dyn Fn(&PageUse) -> f32| {
        pages.iter().map(|(_, page)| of(page)).sum::<f32>() / pages.len().max(1) as f32
    };
    let mut parts: Vec<CellPart> = Vec::new();
    for (kind, page) in pages {
        let allocated = f32::from(page.allocated_bytes) / PAGE_BYTES as f32;
        match parts.iter_mut().find(|part| part.kind == *kind) {
            Some(part) => {
                part.share += 1.0;
                part.allocated += allocated;
            }
            None => parts.push(CellPart { kind: *kind, share: 1.0, allocated }),
        }
    }
    for part in &mut parts {
        part.allocated /= part.share;
        part.share /= pages.len() as f32;
    }
    // Among equal shares, the part that comes first in the file wins.
    let most = parts.iter().map(|part| part.share).fold(0.0, f32::max);
    let kind = parts.iter().find(|part| part.share == most).map_or(CellKind::Free, |p| p.kind);
    Cell {
        kind,
        parts,
        allocated: share(&|page| f32::from(page.allocated_bytes) / PAGE_BYTES as f32),
        stored: share(&|page| f32::from(u8::from(page.stored))),
        resident: share(&|page| f32::from(u8::from(page.resident))),
        dirty: share(&|page| f32::from(u8::from(page.dirty))),
    }
}

impl Picture<'_> {
    /// Returns a picture of the object with at most `cells_max` cells, plus one per region.
    fn of(map: &ObjectMap, cells_max: usize) -> Picture<'_> {
        let pages: u64 = map.regions.iter().map(|r| r.length_bytes / PAGE_BYTES).sum();
        let pages_per_cell = pages.div_ceil(cells_max.max(1) as u64).next_power_of_two();
        let classes = map.classes();
        let mut large = 0;
        let mut cells_of = |region: &RegionMap| {
            let mut pages: Vec<(CellKind, &PageUse)> =
                region.metadata.iter().map(|page| (CellKind::Metadata, page)).collect();
            pages.reserve(region.chunks.len() * PAGES_PER_CHUNK);
            for chunk in &region.chunks {
                let kind = kind_of(chunk.content, &classes, &mut large);
                let backed = chunk.pages.iter().filter(|page| page.backed);
                pages.extend(backed.map(|page| (kind, page)));
            }
            pages.chunks(pages_per_cell as usize).map(cell_of).collect()
        };
        let regions = map.regions.iter().map(|region| (region, cells_of(region))).collect();
        Picture {
            map,
            cell_bytes: pages_per_cell * PAGE_BYTES,
            regions,
            classes,
            totals: map.totals(),
        }
    }

    /// Returns true if any cell has a part of this kind.
    fn has(&self, kind: CellKind) -> bool {
        self.cells().any(|cell| cell.parts.iter().any(|part| part.kind == kind))
    }

    /// Iterates over all cells.
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.regions.iter().flat_map(|(_, cells)| cells)
    }

    /// Returns the colour of a kind, for a white background.
    fn colour(&self, kind: CellKind) -> Colour {
        match kind {
            CellKind::Metadata => Colour::new(0x47, 0x55, 0x69),
            CellKind::Slab(class) => Colour::of_rank(class, self.classes.len()),
            CellKind::Large(0) => Colour::new(0x7c, 0x4d, 0xc4),
            CellKind::Large(_) => Colour::new(0xa0, 0x7c, 0xe0),
            CellKind::Free => Colour::new(0xe2, 0xe6, 0xec),
            CellKind::Unknown => Colour::new(0xdc, 0x26, 0x26),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use evermap::{Store, tools};

    use super::*;

    #[test]
    fn every_part_of_an_object_is_in_a_cell() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("heap").unwrap();
        let mut session = store.write_raw("heap").unwrap();
        for size in (0..18).cycle().take(500).map(|bits| 1 << bits) {
            session.heap().allocate(size, 16).unwrap();
        }
        session.commit().unwrap();
        let map = tools::map(store.path(), "heap").unwrap();
        for cells_max in [1, 2, 7, 100, 4096] {
            let picture = Picture::of(&map, cells_max);
            let count = picture.cells().count();
            assert!(count <= cells_max + picture.regions.len());
            let shares = picture.cells().flat_map(|cell| &cell.parts).map(|part| part.share);
            assert!((shares.sum::<f32>() - count as f32).abs() < 0.1, "{cells_max}");
        }
    }

    #[test]
    fn changed_pages_are_dirty_cells() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create::<u64, _>("counter", 0).unwrap();
        let mut session = store.write::<u64>("counter").unwrap();
        *session.root_mut() += 1;
        let map = session.map().unwrap();
        assert!(Picture::of(&map, 4096).cells().any(|cell| cell.dirty > 0.0));
    }

    #[test]
    fn released_space_is_drawn_as_never_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("heap").unwrap();
        let mut session = store.write_raw("heap").unwrap();
        let large = session.heap().allocate_zeroed(4 << 20, 16).unwrap();
        session.heap().allocate_zeroed(2 << 20, 16).unwrap();
        session.commit().unwrap();
        // SAFETY: nothing refers to the block.
        unsafe { session.heap().try_free(large) }.unwrap();
        if session.shrink().unwrap() == 0 {
            eprintln!("SKIPPED: the file system has no holes");
            return;
        }
        let map = session.map().unwrap();
        let picture = Picture::of(&map, 4096);
        assert!(picture.cells().any(|cell| cell.kind == CellKind::Free && cell.stored == 0.0));
    }

    #[test]
    fn damaged_metadata_is_drawn_as_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("heap").unwrap();
        let mut session = store.write_raw("heap").unwrap();
        for size in [64, 5000, 200_000] {
            session.heap().allocate(size, 16).unwrap();
        }
        session.commit().unwrap();
        session.close().unwrap();
        let objects = std::fs::read_dir(store.path().join("objects")).unwrap();
        let mut files = objects.flatten().map(|entry| entry.path());
        let file = files.find(|path| path.extension().is_none()).unwrap();
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.write_all_at(&[0x7c], PAGE_BYTES + 1).unwrap();
        let map = tools::map(store.path(), "heap").unwrap();
        assert!(Picture::of(&map, 4096).has(CellKind::Unknown));
        assert!(svg(&map, 4096, false).contains("damaged metadata"));
        // Random bytes in the chunk map and its records.
        for round in 0..200u32 {
            let noise: Vec<u8> = (0..12_000u32)
                .map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(round) >> 7) as u8)
                .collect();
            file.write_all_at(&noise, PAGE_BYTES).unwrap();
            let map = tools::map(store.path(), "heap").unwrap();
            svg(&map, 1 + round as usize, round % 2 == 0);
        }
    }
}
