//! `evermap store map`: draws the layout of an object, in the terminal or as SVG.

use std::path::{Path, PathBuf};

use clap_complete::ArgValueCompleter;
use evermap::tools::{self, Chunk, ChunkContent, ObjectMap, PageUse};
use serde::Serialize;

use crate::completion::objects;
use crate::failure::Failure;
use crate::names;
use crate::output::Output;
use crate::picture::{self, PAGE_BYTES, Style};
use crate::result_file;

/// Maximum number of cells of an SVG: by default, and with --wide.
const CELLS_MAX: (usize, usize) = (4096, 10_000);

/// Draw the memory layout of an object
///
/// Shows blocks by size, large blocks, free and unwritten parts, and the parts that are in memory,
/// as of the object's last commit. The object may be in use.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap store map page.html
  evermap store map page.html --svg page.svg --wide")]
pub struct Map {
    /// Name of the object; `evermap ls` lists the names
    #[arg(add = ArgValueCompleter::new(objects))]
    name: String,
    /// Write an SVG picture to FILE outside the store, replacing an existing file; `-` is standard
    /// output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw with more detail: an SVG twice as wide, a terminal's whole width and twice the lines
    #[arg(long)]
    wide: bool,
    /// Use letters instead of colours
    #[arg(long)]
    no_color: bool,
    /// Print one JSON object, with runs of equal chunks
    #[arg(long, conflicts_with = "svg")]
    json: bool,
}

impl Map {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        if let Some(file) = &self.svg {
            result_file::check_outside_store(directory, file)?;
        }
        let name = names::resolve_closed(directory, &self.name)?;
        let map = tools::map(directory, &name)?;
        let mut output = Output::new();
        if self.json {
            output.json(&MapReport::of(&map))?;
        } else if let Some(file) = &self.svg {
            let cells_max = if self.wide { CELLS_MAX.1 } else { CELLS_MAX.0 };
            let svg = picture::svg(&map, cells_max, self.wide);
            match file.as_os_str() == "-" {
                true => output.raw().write_all(svg.as_bytes())?,
                false => result_file::write(file, svg)?,
            }
        } else {
            picture::draw(&map, &Style::of_terminal(self.wide, self.no_color), &mut output)?;
        }
        output.finish()
    }
}

/// The map in JSON.
#[derive(Serialize)]
struct MapReport {
    name: String,
    uuid: String,
    commit: u64,
    file_bytes: u64,
    log_bytes: u64,
    #[serde(flatten)]
    totals: Totals,
    classes: Vec<Class>,
    regions: Vec<Region>,
}

/// Sums over an object, for `map` and `stats`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    pub blocks: u64,
    pub allocated_bytes: u64,
    pub large_blocks: u64,
    pub large_bytes: u64,
    pub free_bytes: u64,
    pub metadata_bytes: u64,
    pub backed_bytes: u64,
    pub stored_bytes: u64,
    pub resident_bytes: u64,
}

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    pub block_bytes: u32,
    pub slabs: u64,
    pub blocks: u64,
    pub blocks_max: u64,
}

#[derive(Serialize)]
struct Region {
    address: String,
    capacity_bytes: u64,
    length_bytes: u64,
    metadata_bytes: u64,
    chunks: Vec<Run>,
}

/// Adjacent chunks with the same use.
#[derive(Serialize)]
struct Run {
    first: u64,
    count: u64,
    r#use: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<u32>,
    allocated_bytes: u64,
    stored_bytes: u64,
    resident_bytes: u64,
}

impl Totals {
    pub fn of(map: &ObjectMap) -> Totals {
        let totals = map.totals();
        Totals {
            blocks: totals.blocks,
            allocated_bytes: totals.allocated_bytes,
            large_blocks: totals.large_blocks,
            large_bytes: totals.large_bytes,
            free_bytes: totals.free_chunks * tools::PAGES_PER_CHUNK as u64 * PAGE_BYTES,
            metadata_bytes: totals.metadata_bytes,
            backed_bytes: totals.backed_bytes,
            stored_bytes: totals.stored_bytes,
            resident_bytes: totals.resident_bytes,
        }
    }
}

impl Class {
    pub fn all_of(map: &ObjectMap) -> Vec<Class> {
        map.classes()
            .iter()
            .map(|class| Class {
                block_bytes: class.block_bytes,
                slabs: class.slabs,
                blocks: class.blocks,
                blocks_max: class.blocks_max,
            })
            .collect()
    }
}

impl MapReport {
    fn of(map: &ObjectMap) -> MapReport {
        MapReport {
            name: map.name.clone(),
            uuid: map.uuid.clone(),
            commit: map.sequence,
            file_bytes: map.file_bytes,
            log_bytes: map.log_bytes,
            totals: Totals::of(map),
            classes: Class::all_of(map),
            regions: map
                .regions
                .iter()
                .map(|region| Region {
                    address: format!("{:#x}", region.base),
                    capacity_bytes: region.capacity_bytes,
                    length_bytes: region.length_bytes,
                    metadata_bytes: region.metadata.len() as u64 * PAGE_BYTES,
                    chunks: runs(&region.chunks),
                })
                .collect(),
        }
    }
}

fn runs(chunks: &[Chunk]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let (r#use, block_bytes) = match chunk.content {
            ChunkContent::Free => ("free", None),
            ChunkContent::Slab { block_bytes, .. } => ("slab", Some(block_bytes)),
            ChunkContent::Large { .. } | ChunkContent::LargeBody => ("large", None),
            ChunkContent::Unknown => ("damaged", None),
        };
        let begins = matches!(chunk.content, ChunkContent::Large { .. });
        let of = |page: fn(&PageUse) -> u64| chunk.pages.iter().map(page).sum::<u64>();
        let allocated_bytes = of(|page| u64::from(page.allocated_bytes));
        let stored_bytes = of(|page| u64::from(page.stored) * PAGE_BYTES);
        let resident_bytes = of(|page| u64::from(page.resident) * PAGE_BYTES);
        match runs.last_mut() {
            Some(run) if run.r#use == r#use && run.block_bytes == block_bytes && !begins => {
                run.count += 1;
                run.allocated_bytes += allocated_bytes;
                run.stored_bytes += stored_bytes;
                run.resident_bytes += resident_bytes;
            }
            _ => runs.push(Run {
                first: number as u64,
                count: 1,
                r#use,
                block_bytes,
                allocated_bytes,
                stored_bytes,
                resident_bytes,
            }),
        }
    }
    runs
}
