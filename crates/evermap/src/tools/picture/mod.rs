//! Picture of an object: its pages as cells of equal size, in the order of the file.
//!
//! A cell is one page, or a power of two of pages so that the number of cells stays below a limit.
//! This module computes the main use of each cell and how much of it is allocated, stored, in
//! memory and changed. All renderers (SVG and terminal) draw the same cells.

mod colour;
mod svg;

use crate::format::PAGE_BYTES;
use crate::object::{ChunkContent, ClassUse, MapTotals, ObjectMap, PAGES_PER_CHUNK, PageUse};

pub use colour::Colour;

/// An object as cells; see [`ObjectMap::picture`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Picture {
    /// Name of the object.
    pub name: String,
    /// Number of the last commit.
    pub sequence: u64,
    /// True if the picture includes changes that are not committed, and dirty cells are known.
    pub uncommitted: bool,
    /// Bytes per cell.
    pub cell_bytes: u64,
    /// Regions, in the order of the file.
    pub regions: Vec<PictureRegion>,
    /// Block sizes, small ones first. [`CellKind::Slab`] is an index into it.
    pub classes: Vec<ClassUse>,
    /// Totals.
    pub totals: MapTotals,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Size of the log's records in bytes.
    pub log_bytes: u64,
    /// True if a process has the object open for writing.
    pub written: bool,
}

/// Region of a picture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PictureRegion {
    /// First address.
    pub base: u64,
    /// Size of the address range in bytes.
    pub capacity_bytes: u64,
    /// Bytes in the file.
    pub length_bytes: u64,
    /// Cells. The last one may cover fewer bytes.
    pub cells: Vec<Cell>,
}

/// Main use of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CellKind {
    /// Superblock, chunk map, chunk records and checksums.
    Metadata,
    /// Blocks of one size, as an index into [`Picture::classes`].
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
pub struct CellPart {
    /// Use.
    pub kind: CellKind,
    /// Share of the cell.
    pub share: f32,
    /// Share of the part that is allocated.
    pub allocated: f32,
}

/// Cell of a picture. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Main use.
    pub kind: CellKind,
    /// Parts by use, in the order of the file.
    pub parts: Vec<CellPart>,
    /// Share that is allocated.
    pub allocated: f32,
    /// Share that was ever written. The rest are holes in the file.
    pub stored: f32,
    /// Share in memory.
    pub resident: f32,
    /// Share changed since the last commit.
    pub dirty: f32,
}

impl ObjectMap {
    /// Returns a picture of the object with at most `cells_max` cells, plus one per region.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create::<u64, _>("counter", 0)?;
    /// let mut session = store.write::<u64>("counter")?;
    /// *session.root_mut() += 1;
    /// let picture = session.map()?.picture(4096);
    /// assert!(picture.regions[0].cells[0].dirty > 0.0);
    /// assert!(picture.svg(false).starts_with("<svg"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn picture(&self, cells_max: usize) -> Picture {
        let pages: u64 = self.regions.iter().map(|r| r.length_bytes / PAGE_BYTES).sum();
        let pages_per_cell = pages.div_ceil(cells_max.max(1) as u64).next_power_of_two();
        let classes = self.classes();
        let mut large = 0;
        let regions = self
            .regions
            .iter()
            .map(|region| {
                let mut pages: Vec<(CellKind, &PageUse)> =
                    region.metadata.iter().map(|page| (CellKind::Metadata, page)).collect();
                pages.reserve(region.chunks.len() * PAGES_PER_CHUNK);
                for chunk in &region.chunks {
                    let kind = kind_of(chunk.content, &classes, &mut large);
                    let backed = chunk.pages.iter().filter(|page| page.backed);
                    pages.extend(backed.map(|page| (kind, page)));
                }
                let cells = pages.chunks(pages_per_cell as usize).map(cell_of).collect();
                PictureRegion {
                    base: region.base,
                    capacity_bytes: region.capacity_bytes,
                    length_bytes: region.length_bytes,
                    cells,
                }
            })
            .collect();
        Picture {
            name: self.name.clone(),
            sequence: self.sequence,
            uncommitted: self.uncommitted,
            cell_bytes: pages_per_cell * PAGE_BYTES,
            regions,
            classes,
            totals: self.totals(),
            file_bytes: self.file_bytes,
            log_bytes: self.log_bytes,
            written: self.written,
        }
    }
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

impl Picture {
    /// Returns true if any cell has a part of this kind.
    pub fn has(&self, kind: CellKind) -> bool {
        self.cells().any(|cell| cell.parts.iter().any(|part| part.kind == kind))
    }

    /// Iterates over all cells.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.regions.iter().flat_map(|region| &region.cells)
    }

    /// Returns the colour of a kind, for a white background.
    pub fn colour(&self, kind: CellKind) -> Colour {
        match kind {
            CellKind::Metadata => Colour::new(0x47, 0x55, 0x69),
            CellKind::Slab(class) => Colour::of_rank(class, self.classes.len()),
            CellKind::Large(0) => Colour::new(0x7c, 0x4d, 0xc4),
            CellKind::Large(_) => Colour::new(0xa0, 0x7c, 0xe0),
            CellKind::Free => Colour::new(0xe2, 0xe6, 0xec),
            CellKind::Unknown => Colour::new(0xdc, 0x26, 0x26),
        }
    }

    /// Draws the picture as a standalone SVG document with grid, legend and tooltips. It is 1000
    /// units wide, or 1900 if `wide` is true.
    pub fn svg(&self, wide: bool) -> String {
        svg::draw(self, wide)
    }
}
