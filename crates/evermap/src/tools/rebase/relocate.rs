//! Rewrites one object's pointers for other addresses.
//!
//! A walk of the object finds the words that are pointers by type. Then a pass over all allocated
//! blocks decides for each word that looks like an old address whether it is moved or kept, and
//! counts it. [`plan`] only counts; [`write`] repeats the pass on a copy and moves the words. So a
//! dry run and a rebase always agree.

use std::path::Path;
use std::sync::Arc;

use crate::commit::checksums::{entry_at, seal as seal_line, set_entry};
use crate::error::Result;
use crate::format::{
    CHECKSUM_UNKNOWN, CHECKSUMS_PER_LINE, LINE_BYTES, PAGE_BYTES, ROOT_AREA_BYTES,
    ROOT_AREA_OFFSET, RegionRecord, SUPERBLOCK_CHECKED_BYTES, Superblock,
};
use crate::object::{ObjectPaths, superblock_checksum};
use crate::storage::{File, Storage};
use crate::tools::audit::{
    Bits, Defect, Evidence, Location, Memory, Pointer, PointerSample, Spot, Typing, Visitor,
    WalkResult, path_of, walk,
};
use crate::tools::backup::write_image;
use crate::tools::checksums;
use crate::tools::image::Image;

use super::report::{Hit, HitKind, Relocation};

/// Bytes of the object cached in memory during the walk.
const WALK_BYTES: u64 = 1 << 30;
/// Bytes of the object cached in memory while blocks are read in order.
const PASS_BYTES: u64 = 1 << 20;
/// Bytes of the copy that are patched at a time.
const PIECE_BYTES: u64 = 64 * 1024;

/// Map from old to new addresses.
#[derive(Clone, Debug, Default)]
pub(in crate::tools) struct Moves {
    /// Base, end and new base of disjoint ranges.
    ranges: Vec<(u64, u64, u64)>,
    /// Base and end of the objects. A word of unknown type counts as an address only inside them.
    /// Sorted.
    objects: Vec<(u64, u64)>,
}

impl Moves {
    pub(in crate::tools) fn new(
        ranges: Vec<(u64, u64, u64)>,
        mut objects: Vec<(u64, u64)>,
    ) -> Moves {
        objects.sort_unstable();
        Moves { ranges, objects }
    }

    /// Returns the new value of an address. The end of a range moves with the range.
    pub(in crate::tools) fn of(&self, address: u64) -> Option<u64> {
        let inside = |(base, end, _): &&(u64, u64, u64)| (*base..*end).contains(&address);
        let ends = |(_, end, _): &&(u64, u64, u64)| *end == address;
        let found = self.ranges.iter().find(inside).or_else(|| self.ranges.iter().find(ends))?;
        Some(found.2 + (address - found.0))
    }

    /// Returns the new value of a word of unknown type, if it looks like an address.
    fn of_word(&self, word: u64) -> Option<u64> {
        let at = self.objects.partition_point(|(base, _)| *base <= word).checked_sub(1)?;
        if word > self.objects[at].1 { None } else { self.of(word) }
    }
}

/// Set of words, as a bit set per region.
struct WordSet {
    regions: Vec<(u64, u64, Bits)>,
}

impl WordSet {
    fn new(image: &Image, wanted: bool) -> WordSet {
        let of = |r: &RegionRecord| (r.base, r.base + r.length, Bits::new(r.length / 8));
        let regions = image.superblock().regions().iter().filter(|_| wanted).map(of).collect();
        WordSet { regions }
    }

    fn set(&mut self, address: u64) {
        for (base, end, bits) in &mut self.regions {
            if (*base..*end).contains(&address) {
                bits.set((address - *base) / 8);
            }
        }
    }

    fn has(&self, address: u64) -> bool {
        self.regions.iter().any(|(base, end, bits)| {
            (*base..*end).contains(&address) && bits.has((address - base) / 8)
        })
    }
}

/// Collects the words that a walk finds.
struct Collector<'a> {
    moves: &'a Moves,
    pointers: WordSet,
    /// Words in parts of unknown type.
    unknown: WordSet,
    is_typed: bool,
}

impl Visitor for Collector<'_> {
    fn pointer(&mut self, pointer: &Pointer) {
        if pointer.evidence == Evidence::Word {
            if self.is_typed && self.moves.of_word(pointer.value).is_some() {
                self.unknown.set(pointer.address);
            }
        } else if self.moves.of(pointer.value).is_some() {
            self.pointers.set(pointer.address);
        }
    }

    fn defect(&mut self, _: Defect, _: &Pointer) {}
}

/// Plan for the relocation of an object.
pub(in crate::tools) struct Plan<'a> {
    image: &'a Image,
    moves: &'a Moves,
    walked: WalkResult,
    pointers: WordSet,
    unknown: WordSet,
    pub(in crate::tools) report: Relocation,
}

/// Determines which words of an object change.
pub(in crate::tools) fn plan<'a>(
    image: &'a Image,
    name: &str,
    moves: &'a Moves,
    samples_max: usize,
) -> Result<Plan<'a>> {
    let is_typed = crate::tools::audit::is_typed(image);
    let mut collector = Collector {
        moves,
        pointers: WordSet::new(image, is_typed),
        unknown: WordSet::new(image, is_typed),
        is_typed,
    };
    let walked = walk(image, &mut Memory::new(image, WALK_BYTES), &mut collector)?;
    let Collector { pointers, unknown, .. } = collector;
    let typing = match &walked.schema {
        None => Typing::Untyped,
        Some(schema) if schema.is_truncated => Typing::Partly,
        Some(_) => Typing::Typed,
    };
    let report = Relocation::new(name, typing);
    let mut plan = Plan { image, moves, walked, pointers, unknown, report };
    let mut counter = HitCounter { groups: Vec::new(), samples_max };
    plan.pass(&mut |spot, address, value, fate| {
        counter.add(spot, address, value, fate);
        Ok(())
    })?;
    plan.report = counter.into_relocation(&plan, name, typing);
    Ok(plan)
}

/// Fate of a word that looks like an old address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Moved(HitKind, u64),
    /// The word is not a pointer and stays.
    Kept,
}

/// Words of one kind, with samples: spot, address, value. The kind is `None` for kept words.
#[derive(Default)]
struct Group {
    kind: Option<HitKind>,
    count: u64,
    samples: Vec<(Spot, u64, u64)>,
}

struct HitCounter {
    groups: Vec<Group>,
    samples_max: usize,
}

impl HitCounter {
    fn add(&mut self, spot: Spot, address: u64, value: u64, fate: Fate) {
        let kind = match fate {
            Fate::Moved(kind, _) => Some(kind),
            Fate::Kept => None,
        };
        let at = self.groups.iter().position(|group| group.kind == kind);
        let at = at.unwrap_or_else(|| {
            self.groups.push(Group { kind, ..Group::default() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.count += 1;
        if group.samples.len() < self.samples_max {
            group.samples.push((spot, address, value));
        }
    }

    fn into_relocation(self, plan: &Plan<'_>, name: &str, typing: Typing) -> Relocation {
        let mut report = Relocation::new(name, typing);
        let mut memory = Memory::new(plan.image, PASS_BYTES);
        for Group { kind, count, samples } in self.groups {
            let samples = samples.into_iter().map(|(spot, address, value)| {
                PointerSample::new(path_of(&plan.walked, &mut memory, spot), address, value)
            });
            let samples: Vec<PointerSample> = samples.collect();
            match kind {
                Some(kind) => report.moved.push(Hit { kind, count, samples }),
                None => (report.kept, report.kept_samples) = (count, samples),
            }
        }
        report.moved.sort_by_key(|hit| hit.kind);
        report
    }
}

type Each<'e> = &'e mut dyn FnMut(Spot, u64, u64, Fate) -> Result<()>;

impl Plan<'_> {
    /// Visits the words of a small root in the superblock's page and of all allocated blocks.
    fn pass(&self, each: Each<'_>) -> Result<()> {
        let mut memory = Memory::new(self.image, PASS_BYTES);
        let (root, bytes) = (self.walked.root_address, self.walked.root_bytes);
        if self.walked.blocks.locate(root) == Location::RootArea {
            let holder = crate::tools::audit::ROOT;
            self.range(&mut memory, holder, (root, root.saturating_add(bytes)), each)?;
        }
        for block in self.walked.blocks.each() {
            let range = (block.address, block.address + block.bytes);
            self.range(&mut memory, block.number, range, each)?;
        }
        Ok(())
    }

    fn range(
        &self,
        memory: &mut Memory<'_>,
        holder: u32,
        (from, end): (u64, u64),
        each: Each<'_>,
    ) -> Result<()> {
        let mut words = Vec::new();
        let mut at = from.next_multiple_of(8);
        while at < end {
            at = memory.words(at, end, &mut words)?;
            for &(address, value) in &words {
                if let Some(fate) = self.fate(address, value) {
                    each(Spot { holder, offset: address - from }, address, value, fate)?;
                }
            }
        }
        Ok(())
    }

    fn fate(&self, address: u64, value: u64) -> Option<Fate> {
        if self.pointers.has(address) {
            return Some(Fate::Moved(HitKind::Typed, self.moves.of(value)?));
        }
        let new = self.moves.of_word(value)?;
        if self.walked.schema.is_some() && !self.unknown.has(address) {
            return Some(Fate::Kept);
        }
        let kind = match self.walked.blocks.locate(value) {
            Location::Block(_, 0) => HitKind::Beginning,
            Location::Block(..) => HitKind::Inside,
            Location::Unallocated => HitKind::NotAllocated,
            Location::RootArea | Location::Metadata => HitKind::Bookkeeping,
            Location::Outside => HitKind::OtherObject,
        };
        Some(Fate::Moved(kind, new))
    }
}

/// Changes of a superblock other than its addresses.
pub(in crate::tools) struct SuperblockChanges {
    pub(in crate::tools) arena: (u64, u64),
    /// New store id, object id and name, if they change.
    pub(in crate::tools) identity: Option<([u8; 16], [u8; 16], String)>,
}

/// Writes the relocated object to a new file and flushes it.
pub(in crate::tools) fn write(
    storage: &dyn Storage,
    plan: &Plan<'_>,
    changes: &SuperblockChanges,
    paths: &ObjectPaths,
) -> Result<Arc<dyn File>> {
    let target = write_image(storage, plan.image, &paths.path)?;
    let mut patches = Patches { target: &*target, at: 0, bytes: Vec::new() };
    plan.pass(&mut |_, address, _, fate| match fate {
        Fate::Moved(_, new) => match offset_of(plan.image, address) {
            Some(offset) => patches.put(offset, new),
            None => Ok(()),
        },
        Fate::Kept => Ok(()),
    })?;
    patches.flush()?;
    write_superblock(plan.image.superblock(), plan.moves, changes, &*target)?;
    seal(storage, paths, &*target)?;
    Ok(target)
}

/// Writes the object to a new file and flushes it. Only the superblock changes.
pub(super) fn write_unmoved(
    storage: &dyn Storage,
    image: &Image,
    changes: &SuperblockChanges,
    paths: &ObjectPaths,
) -> Result<()> {
    let target = write_image(storage, image, &paths.path)?;
    write_superblock(image.superblock(), &Moves::default(), changes, &*target)?;
    target.sync_data()
}

fn offset_of(image: &Image, address: u64) -> Option<u64> {
    let inside = |r: &&RegionRecord| (r.base..r.base + r.length).contains(&address);
    let region = image.superblock().regions().iter().find(inside)?;
    Some(region.file_offset + (address - region.base))
}

/// Patches words of a file, one piece at a time. Words come mostly in order.
struct Patches<'a> {
    target: &'a dyn File,
    at: u64,
    bytes: Vec<u8>,
}

impl Patches<'_> {
    fn put(&mut self, offset: u64, value: u64) -> Result<()> {
        let piece = offset / PIECE_BYTES * PIECE_BYTES;
        if piece != self.at || self.bytes.is_empty() {
            self.flush()?;
            self.at = piece;
            self.bytes = vec![0; PIECE_BYTES as usize];
            let got = self.target.read_at(&mut self.bytes, piece)?;
            self.bytes.truncate(got);
        }
        let at = (offset - piece) as usize;
        if let Some(place) = self.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() { Ok(()) } else { self.target.write_at(&bytes, self.at) }
    }
}

/// Writes the superblock with the new addresses. Leaves the root area as it is.
fn write_superblock(
    old: &Superblock,
    moves: &Moves,
    changes: &SuperblockChanges,
    target: &dyn File,
) -> Result<()> {
    let mut new = *old;
    for region in &mut new.regions[..old.region_count as usize] {
        let to = moves.of(region.base).unwrap_or(region.base);
        if region.checksums != 0 {
            region.checksums = to + (region.checksums - region.base);
        }
        region.base = to;
    }
    new.root_address = moves.of(old.root_address).unwrap_or(old.root_address);
    (new.arena_base, new.arena_length) = changes.arena;
    if let Some((store, object, name)) = &changes.identity {
        (new.store_uuid, new.object_uuid) = (*store, *object);
        new.set_name(name);
    }
    new.log_required = 0;
    // The root area has a checksum in the superblock, and its pointers have changed.
    let mut root_area = [0; ROOT_AREA_BYTES];
    target.read_at(&mut root_area, ROOT_AREA_OFFSET as u64)?;
    new.seal_root(&root_area);
    new.checksum = superblock_checksum(&new);
    target.write_at(&bytemuck::bytes_of(&new)[..SUPERBLOCK_CHECKED_BYTES], 0)
}

/// Writes the changed page checksums and flushes the file. The object passed a check before, so
/// this hides no damage.
fn seal(storage: &dyn Storage, paths: &ObjectPaths, target: &dyn File) -> Result<()> {
    let image = Image::open(storage, paths)?;
    checksums::recompute(&image, |offset, page| {
        let mut there = [0; PAGE_BYTES as usize];
        target.read_at(&mut there, offset)?;
        let page = with_unknown_kept(&there, page);
        if there == page { Ok(()) } else { target.write_at(&page, offset) }
    })?;
    target.sync_data()
}

/// Returns the new page of a checksum table, with the entries that were unknown left unknown. The
/// pages of such entries may be returned to the file system at any time, whatever they hold now.
fn with_unknown_kept(
    old: &[u8; PAGE_BYTES as usize],
    new: &[u8; PAGE_BYTES as usize],
) -> [u8; PAGE_BYTES as usize] {
    let mut page = *new;
    let lines = page.as_chunks_mut::<LINE_BYTES>().0;
    for (line, old) in lines.iter_mut().zip(old.as_chunks::<LINE_BYTES>().0) {
        for index in 0..CHECKSUMS_PER_LINE as usize {
            if entry_at(old, index) == CHECKSUM_UNKNOWN {
                set_entry(line, index, CHECKSUM_UNKNOWN);
            }
        }
        seal_line(line);
    }
    page
}

/// Returns the paths of an object in the directory of the new store.
pub(in crate::tools) fn paths_in(folder: &Path, uuid: [u8; 16], store: [u8; 16]) -> ObjectPaths {
    let path = folder.join(crate::object::hex(&uuid));
    let identity = crate::object::Identity {
        store_uuid: Some(store),
        object_uuid: Some(uuid),
        kind: crate::format::KIND_OBJECT,
    };
    let display_name = path.display().to_string();
    ObjectPaths { log_path: path.with_extension("log"), path, identity, display_name }
}
