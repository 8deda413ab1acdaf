//! Pictures of an object: cells of equal size, in the order of the file.
//!
//! A cell is a page, or as many pages as it takes to stay below a number of cells that an eye can
//! take in. What is drawn of a cell is decided here, once, for every kind of picture: what most of
//! it is used for, how much of it is allocated, stored, in memory and changed.

mod colour;
mod svg;

use crate::format::PAGE_BYTES;
use crate::object::{ChunkContent, ClassUse, MapTotals, ObjectMap, PAGES_PER_CHUNK, PageUse};

pub use colour::Colour;

/// An object as cells; see [`ObjectMap::picture`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Picture {
    /// The object's name.
    pub name: String,
    /// Number of the commit, or of the last one before what is drawn.
    pub sequence: u64,
    /// What is not committed yet is drawn too, and dirty cells are known.
    pub uncommitted: bool,
    /// Bytes that a cell stands for.
    pub cell_bytes: u64,
    /// The regions, in the order of the file.
    pub regions: Vec<PictureRegion>,
    /// Sizes of blocks, small ones first: what [`CellKind::Slab`] counts in.
    pub classes: Vec<ClassUse>,
    /// Sums.
    pub totals: MapTotals,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of records in the log.
    pub log_bytes: u64,
    /// Somebody has it open for writing.
    pub written: bool,
}

/// A region of a picture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PictureRegion {
    /// First address.
    pub base: u64,
    /// Bytes of addresses.
    pub capacity_bytes: u64,
    /// Bytes that the file holds.
    pub length_bytes: u64,
    /// Its cells; the last one may stand for less.
    pub cells: Vec<Cell>,
}

/// What most of a cell is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CellKind {
    /// Superblock, chunk map, chunk records, checksums.
    Metadata,
    /// Blocks of one size: its place in [`Picture::classes`].
    Slab(usize),
    /// A large block; the number tells neighbours apart.
    Large(u8),
    /// Nothing.
    Free,
    /// A state that the allocator does not know.
    Unknown,
}

/// A part of a cell: what one kind has of it. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellPart {
    /// What it is used for.
    pub kind: CellKind,
    /// Share of the cell.
    pub share: f32,
    /// Share of the part that is allocated.
    pub allocated: f32,
}

/// A cell. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What most of it is used for.
    pub kind: CellKind,
    /// The kinds that it has pages of, in the order of the file.
    pub parts: Vec<CellPart>,
    /// Share that is allocated.
    pub allocated: f32,
    /// Share that was written at some time: the rest are holes of the file.
    pub stored: f32,
    /// Share in memory.
    pub resident: f32,
    /// Share that was changed since the last commit.
    pub dirty: f32,
}

impl ObjectMap {
    /// The object as at most `cells_max` cells (and one a region).
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
    // Among equals the one that comes first in the file.
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
    /// Is there a cell of this kind?
    pub fn has(&self, kind: CellKind) -> bool {
        self.cells().any(|cell| cell.parts.iter().any(|part| part.kind == kind))
    }

    /// All cells.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.regions.iter().flat_map(|region| &region.cells)
    }

    /// The colour that stands for a kind, on white.
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

    /// The picture as an SVG document of its own, 1000 units wide or, `wide`, 1900: grid, legend,
    /// and what each cell is when the mouse is over it.
    pub fn svg(&self, wide: bool) -> String {
        svg::draw(self, wide)
    }
}
