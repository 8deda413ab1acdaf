//! Audit of an object: finds invalid raw pointers and leaked blocks.
//!
//! The object is read through an image of its last commit and walked from its root ([`walk`]). The
//! pointers found are counted by kind and target ([`tally`]); blocks not reached are leaked. Every
//! pointer is looked up before it is followed. Nothing is mapped or changed. `docs/tools.md`
//! defines the kinds of findings.

mod blocks;
mod grammar;
mod memory;
mod open;
mod path;
mod ranges;
mod report;
mod schema;
mod tally;
mod walk;
mod walked;

use std::collections::BTreeMap;
use std::path::Path;

use crate::api::known_arenas;
use crate::error::Result;

use super::check::CheckOptions;
use super::image::Image;
pub(super) use blocks::{Bits, Location};
pub(super) use memory::Memory;
pub(super) use open::{Neighbours, Opened, is_gone, open, open_found, read_listing, refuse_guest};
pub(super) use path::path_of;
use ranges::Ranges;
pub use ranges::{Confidence, MemoryMap};
pub use report::{
    AuditReport, Doubt, LeakSample, Leaks, PointerFinding, PointerKind, PointerSample, SizeCount,
    TypeCount, Typing,
};
use schema::{Kind, Schema};
use tally::Tally;
pub(super) use walk::walk;
pub(super) use walked::{Defect, Evidence, Pointer, ROOT, Spot, Visitor, WalkResult};

/// Options of an audit.
///
/// ```
/// let options = evermap::tools::AuditOptions::new().samples(3);
/// # let directory = tempfile::tempdir()?;
/// # let store = evermap::Store::create_new(directory.path().join("store"))?;
/// # store.create::<u64, _>("answer", 42)?;
/// assert!(evermap::tools::audit(store.path(), "answer", &options)?.is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AuditOptions {
    samples: usize,
    memory_bytes: u64,
    map: Option<MemoryMap>,
    check: CheckOptions,
}

impl Default for AuditOptions {
    fn default() -> Self {
        AuditOptions { samples: 5, memory_bytes: 1 << 30, map: None, check: CheckOptions::new() }
    }
}

impl AuditOptions {
    /// Defaults: five samples of each kind, at most 1 GiB of the object cached in memory.
    pub fn new() -> AuditOptions {
        AuditOptions::default()
    }

    /// Sets how many pointers of each kind are reported with their path. Default: five.
    pub fn samples(mut self, samples: usize) -> AuditOptions {
        self.samples = samples;
        self
    }

    /// Sets how many bytes of the object are cached in memory. If the object is larger, parts of it
    /// are read more than once. Default: 1 GiB.
    pub fn memory_bytes(mut self, bytes: u64) -> AuditOptions {
        self.memory_bytes = bytes;
        self
    }

    /// Sets the memory map of the process that used the object. It names the targets of foreign
    /// pointers. Without it, targets are guessed from typical address ranges.
    pub fn memory_map(mut self, map: MemoryMap) -> AuditOptions {
        self.map = Some(map);
        self
    }
}

/// Audits the last commit of one object of the store in a directory.
///
/// Finds pointers out of the object or to unallocated memory, inconsistent containers, and blocks
/// that cannot be reached from the root. The object may be in use: it is read as a reader does.
/// Nothing is mapped, so the object's addresses need not be free and its contents need not be
/// sound. Takes a few seconds for five million blocks, and 10 bytes of memory per block in addition
/// to the cached pages.
///
/// # Errors
/// `NoStore`, `NotFound`, `OtherKind` for a guest object, and `Damaged` if the catalog or the
/// object's superblock cannot be read. All other damage is in the report.
///
/// ```
/// use evermap::tools::{AuditOptions, PointerKind, audit};
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create_raw("raw")?;
/// let mut session = store.write_raw("raw")?;
/// let (root, lost) = (session.heap().allocate(64, 8)?, session.heap().allocate(64, 8)?);
/// let foreign = Box::new(7u64);
/// // SAFETY: both blocks have room for eight words.
/// unsafe {
///     root.cast::<[u64; 8]>().write([&raw const *foreign as u64, 0, 0, 0, 0, 0, 0, 0]);
///     lost.cast::<[u64; 8]>().write([0; 8]);
/// }
/// // SAFETY: the tag is no Rust type's.
/// unsafe { session.set_root(Some(root), 64, [0; 16], "") }?;
/// session.commit()?;
/// session.close()?;
///
/// let report = audit(store.path(), "raw", &AuditOptions::new())?;
/// assert_eq!(report.count(PointerKind::Foreign), 1);
/// assert_eq!(report.leaks.blocks, 1);
/// assert_eq!(report.findings[0].samples[0].path, "root +0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn audit(
    directory: impl AsRef<Path>,
    name: &str,
    options: &AuditOptions,
) -> Result<AuditReport> {
    let directory = directory.as_ref();
    let opened = open(directory, name, &options.check)?;
    let remedy = "use check, backup and restore, which support guest objects";
    refuse_guest(opened.image.superblock(), name, remedy)?;
    let Opened { image, neighbours, .. } = &opened;
    let s = image.superblock();
    let mut memory = Memory::new(image, options.memory_bytes);
    let own = |base: u64| neighbours.arenas.iter().any(|(b, end)| (*b..*end).contains(&base));
    let mut stores = known_arenas(&*options.check.storage);
    stores.retain(|(base, ..)| !own(*base));
    let ranges = Ranges { neighbours, stores, map: options.map.as_ref() };
    let mut tally = Tally::new(ranges, options.samples);
    let walked = walk(image, &mut memory, &mut tally)?;
    let findings = tally.findings(&walked, &mut memory);
    let mut report = AuditReport {
        object: name.to_string(),
        file: image.path().to_path_buf(),
        sequence: s.commit_sequence,
        typing: match &walked.schema {
            None => Typing::Untyped,
            Some(schema) if schema.is_truncated => Typing::Partly,
            Some(_) => Typing::Typed,
        },
        has_root: s.root_address != 0,
        blocks: 0,
        bytes: 0,
        reached_blocks: 0,
        reached_bytes: 0,
        reached_from_root: 0,
        looked_at: walked.looked_at,
        interior: walked.interior,
        findings,
        leaks: Leaks::default(),
        sizes: Vec::new(),
        types: types_of(&walked),
        damaged_chunks: walked.blocks.damaged,
        table_bytes: walked.memory_bytes(),
    };
    count_sizes(&walked, &mut report);
    let is_block = matches!(walked.blocks.locate(s.root_address), Location::Block(..));
    report.reached_from_root = report.reached_blocks.saturating_sub(is_block.into());
    find_leaks(&walked, &mut memory, options.samples, &mut report)?;
    Ok(report)
}

/// Returns true if the object's superblock describes the type of its root.
pub(super) fn is_typed(image: &Image) -> bool {
    Schema::of(image.superblock()).is_some()
}

/// Counts values by type, without numbers and arrays.
fn types_of(walked: &WalkResult) -> Vec<TypeCount> {
    let Some(schema) = &walked.schema else { return Vec::new() };
    let is_listed = |schema: &Schema, number: usize| match &schema.at(number).kind {
        Kind::Plain => !is_number(&schema.at(number).name),
        Kind::Array(..) => false,
        _ => true,
    };
    let mut types: Vec<TypeCount> = (0..schema.types.len())
        .filter(|&number| walked.values[number] > 0 && is_listed(schema, number))
        .map(|number| TypeCount {
            name: schema.at(number).name.clone(),
            values: walked.values[number],
            value_bytes: schema.at(number).size.unwrap_or(0),
        })
        .collect();
    types.sort_by(|a, b| b.values.cmp(&a.values).then_with(|| a.name.cmp(&b.name)));
    types
}

fn is_number(name: &str) -> bool {
    let numbers = ["bool", "char", "f32", "f64", "u128", "i128"];
    numbers.contains(&name)
        || name.starts_with("PhantomData<")
        || name.strip_prefix(['u', 'i']).is_some_and(|bits| ["8", "16", "32", "64"].contains(&bits))
}

fn count_sizes(walked: &WalkResult, report: &mut AuditReport) {
    let mut sizes: BTreeMap<(bool, u64), SizeCount> = BTreeMap::new();
    for block in walked.blocks.each() {
        let is_large = block.class.is_none();
        let block_bytes = if is_large { block.bytes.next_power_of_two() } else { block.bytes };
        let size = sizes.entry((is_large, block_bytes)).or_insert(SizeCount {
            block_bytes,
            is_large,
            blocks: 0,
            bytes: 0,
            leaked_blocks: 0,
            leaked_bytes: 0,
        });
        size.blocks += 1;
        size.bytes += block.bytes;
        match walked.is_reached(block.number) {
            true => {
                report.reached_blocks += 1;
                report.reached_bytes += block.bytes;
            }
            false => {
                size.leaked_blocks += 1;
                size.leaked_bytes += block.bytes;
            }
        }
    }
    report.sizes = sizes.into_values().collect();
    report.blocks = report.sizes.iter().map(|size| size.blocks).sum();
    report.bytes = report.sizes.iter().map(|size| size.bytes).sum();
}

/// Counts the blocks not reached, and finds the heads of leaked structures: leaked blocks that no
/// other leaked block points at.
fn find_leaks(
    walked: &WalkResult,
    memory: &mut Memory<'_>,
    samples_max: usize,
    report: &mut AuditReport,
) -> Result<()> {
    let leaked = || walked.blocks.each().filter(|block| !walked.is_reached(block.number));
    let mut held = Bits::new(walked.blocks.slots().into());
    let mut words = Vec::new();
    for block in leaked() {
        let (mut at, end) = (block.address, block.address + block.bytes);
        while at < end {
            at = memory.words(at, end, &mut words)?;
            for &(_, value) in &words {
                if let Location::Block(number, _) = walked.blocks.locate(value)
                    && number != block.number
                {
                    held.set(number.into());
                }
            }
        }
    }
    let leaks = &mut report.leaks;
    let mut others = Vec::new();
    for block in leaked() {
        leaks.blocks += 1;
        leaks.bytes += block.bytes;
        let is_head = !held.has(block.number.into());
        leaks.heads += u64::from(is_head);
        let list = if is_head { &mut leaks.samples } else { &mut others };
        if list.len() < samples_max {
            list.push(LeakSample { address: block.address, bytes: block.bytes, is_head });
        }
    }
    others.truncate(samples_max - leaks.samples.len());
    leaks.samples.extend(others);
    Ok(())
}
