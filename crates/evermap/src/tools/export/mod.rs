//! Exports one object to a file or a pipe, for an import into another store or on another machine.
//!
//! An export contains the last commit, read through an image and checked before anything is
//! written. Only metadata pages and pages with allocated blocks are written, without pages of
//! zeros. Checksum tables are left out; the import recomputes them.

mod file;
mod import;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error as StoreError, Result as StoreResult};
use crate::format::{PAGE_BYTES, RegionRecord, checksum_table_bytes};

use super::audit::{
    Bits, Defect, Location, Memory, Neighbours, Opened, Pointer, Spot, Visitor, WalkResult, open,
    path_of, refuse_guest, walk,
};
use super::check::CheckOptions;
use super::error::{Error, Result};
use super::image::Image;
use super::report::Findings;
use super::{checksums, heap};
use file::{POINTS_ELSEWHERE, RUN_PAGES_MAX, Writer};
pub use import::{ImportOptions, ImportReport, import};

const PAGE: usize = PAGE_BYTES as usize;
/// Remedy for a guest object. It depends on rights, addresses and a key that another store lacks.
const GUESTS_TRAVEL: &str = "copy the whole store with backup, which includes its access table";
/// Bytes of the object cached in memory during the walk.
const WALK_BYTES: u64 = 1 << 30;

/// Options of an export.
///
/// ```
/// let options = evermap::tools::ExportOptions::new().force(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    force: bool,
    display_name: Option<PathBuf>,
    check: CheckOptions,
}

impl ExportOptions {
    /// Defaults: refuse an object that has pointers to other objects.
    pub fn new() -> ExportOptions {
        ExportOptions::default()
    }

    /// Sets whether to export an object that has pointers to other objects of its store. They are
    /// invalid in another store. Default: no.
    pub fn force(mut self, force: bool) -> ExportOptions {
        self.force = force;
        self
    }

    /// Sets the target's name in messages. Default: `-`.
    pub fn display_name(mut self, target: impl Into<PathBuf>) -> ExportOptions {
        self.display_name = Some(target.into());
        self
    }
}

/// Result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Name of the object.
    pub object: String,
    /// Number of the exported commit.
    pub sequence: u64,
    /// Number of pages written.
    pub pages: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Number of pointers to other objects of the store.
    pub pointers_elsewhere: u64,
}

/// Writes an object's last commit to a file or a pipe.
///
/// The object may be in use. All pages are compared with their checksums first. The caller is
/// responsible for syncing the target to disk.
///
/// # Errors
/// `PointsElsewhere` if the object has pointers to other objects and `force` is not set.
/// `OtherKind` for a guest object. `Damaged` if the object is damaged. `NoStore`, `NotFound`, and
/// errors of writing to the target.
///
/// ```
/// use evermap::{PVec, Store, tools};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::create_new(directory.path().join("one"))?;
/// store.create::<PVec<u64>, _>("numbers", [1, 2, 3])?;
/// let mut file = Vec::new();
/// tools::export(store.path(), "numbers", &mut file, &tools::ExportOptions::new())?;
///
/// let other = Store::create_new(directory.path().join("two"))?;
/// let options = tools::ImportOptions::new().name("kept");
/// tools::import(other.path(), &mut file.as_slice(), &options)?;
/// assert_eq!(*other.read::<PVec<u64>>("kept")?, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export(
    directory: impl AsRef<Path>,
    name: &str,
    target: &mut dyn Write,
    options: &ExportOptions,
) -> Result<ExportReport> {
    let opened = open(directory.as_ref(), name, &options.check)?;
    let image = &opened.image;
    refuse_guest(image.superblock(), name, GUESTS_TRAVEL)?;
    let display_name = options.display_name.clone().unwrap_or_else(|| PathBuf::from("-"));
    refuse_damage(image)?;
    let (walked, elsewhere) = find_elsewhere(&opened, name)?;
    let points_elsewhere = match (elsewhere, options.force) {
        (Some(error), false) => return Err(error.into_error(name)),
        (elsewhere, _) => elsewhere.map_or(0, |found| found.count),
    };
    let mut superblock = *image.superblock();
    superblock.log_required = 0;
    let flags = if points_elsewhere > 0 { POINTS_ELSEWHERE } else { 0 };
    let mut writer = Writer::begin(target, &display_name, &superblock, flags)?;
    for (number, region) in image.regions() {
        let used = used_pages(region, number == 0, &walked);
        write_region(image, region, &used, &mut writer)?;
    }
    writer.finish()?;
    Ok(ExportReport {
        object: name.to_string(),
        sequence: superblock.commit_sequence,
        pages: writer.pages,
        bytes: writer.bytes,
        pointers_elsewhere: points_elsewhere,
    })
}

/// Returns an error if the object has any damage.
fn refuse_damage(image: &Image) -> StoreResult<()> {
    let mut findings = Findings::new(image.path().to_path_buf(), None);
    heap::check(image, &mut findings)?;
    checksums::check(image, &mut findings, None, |_| {})?;
    match findings.into_list().into_iter().next() {
        None => Ok(()),
        Some(finding) => Err(StoreError::Damaged {
            path: image.path().to_path_buf(),
            what: "the object",
            found: format!("{}: {}", finding.what, finding.found),
            expected: finding.expected,
        }),
    }
}

/// Collects pointers to other objects.
struct Elsewhere<'a> {
    neighbours: &'a Neighbours,
    first: Option<(Spot, usize)>,
    count: u64,
}

impl Visitor for Elsewhere<'_> {
    fn pointer(&mut self, pointer: &Pointer) {
        if pointer.location == Location::Outside
            && let Some(holder) = self.neighbours.holder(pointer.value)
        {
            self.first.get_or_insert((pointer.spot, holder));
            self.count += 1;
        }
    }

    fn defect(&mut self, _: Defect, _: &Pointer) {}
}

struct Found {
    count: u64,
    to: String,
    first: String,
}

impl Found {
    fn into_error(self, name: &str) -> Error {
        let Found { count, to, first } = self;
        Error::PointsElsewhere { object: name.to_string(), count, to, first }
    }
}

fn find_elsewhere(opened: &Opened, name: &str) -> StoreResult<(WalkResult, Option<Found>)> {
    // Ignore the object's own addresses, some of which may not be in a region yet.
    let mut neighbours = opened.neighbours.clone();
    neighbours.objects.retain(|(_, _, holder)| holder != name);
    let mut visitor = Elsewhere { neighbours: &neighbours, first: None, count: 0 };
    let mut memory = Memory::new(&opened.image, WALK_BYTES);
    let walked = walk(&opened.image, &mut memory, &mut visitor)?;
    let Elsewhere { first, count, .. } = visitor;
    let found = first.map(|(spot, holder)| Found {
        count,
        to: match neighbours.objects[holder].2.as_str() {
            "the catalog" => "the catalog".to_string(),
            other => format!("object `{other}`"),
        },
        first: path_of(&walked, &mut memory, spot),
    });
    Ok((walked, found))
}

/// Returns the pages of a region with metadata or allocated blocks.
fn used_pages(region: &RegionRecord, is_first: bool, walked: &WalkResult) -> Bits {
    let mut used = Bits::new(region.length / PAGE_BYTES);
    let table = match region.checksums {
        0 => 0,
        _ => checksum_table_bytes(region.capacity / PAGE_BYTES),
    };
    // Page 0 is written with the header, and checksum tables are recomputed.
    let pages = u64::from(is_first)..(region.meta_length - table) / PAGE_BYTES;
    for page in pages {
        used.set(page);
    }
    let end = region.base + region.length;
    let inside = |address: u64| (region.base..end).contains(&address);
    for block in walked.blocks.each().filter(|block| inside(block.address)) {
        let (from, to) = (block.address - region.base, block.address + block.bytes - region.base);
        for page in from / PAGE_BYTES..to.div_ceil(PAGE_BYTES) {
            used.set(page);
        }
    }
    used
}

fn write_region(
    image: &Image,
    region: &RegionRecord,
    used: &Bits,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let pages = region.length / PAGE_BYTES;
    let mut buffer = vec![0; RUN_PAGES_MAX * PAGE];
    let mut at = 0;
    while at < pages {
        if !used.has(at) {
            at += 1;
            continue;
        }
        let most = (at + RUN_PAGES_MAX as u64).min(pages);
        let end = (at..most).find(|page| !used.has(*page)).unwrap_or(most);
        let bytes = &mut buffer[..(end - at) as usize * PAGE];
        image.read_pages(region.file_offset + at * PAGE_BYTES, bytes)?;
        let first = region.file_offset / PAGE_BYTES + at;
        for (number, page) in (first..).zip(bytes.as_chunks::<PAGE>().0) {
            if page != &[0; PAGE] {
                writer.page(number, page)?;
            }
        }
        at = end;
    }
    Ok(())
}
