//! What a power cut leaves of one file.
//!
//! A file has the bytes that everybody reads (the kernel's cache), the bytes that are surely on the
//! disk, and the list of what happened in between. A cut takes of every sector the durable version
//! or any later one, whatever the neighbours do; of the length, any that the file had since. A file
//! system orders changes of the length among themselves, and what was cut off does not come back
//! when the cut is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocks::Blocks;
use super::pages::Pages;
use super::random::Random;

/// Sizes that a disk writes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Medium {
    /// Bytes that are written independently of their neighbours.
    pub(super) sector: u64,
    /// Bytes below which nothing is torn; `sector` where sectors are written whole.
    pub(super) word: u64,
}

impl Medium {
    /// A disk.
    pub(super) const DISK: Medium = Medium { sector: 512, word: 512 };
    /// Persistent memory: lines of the processor's cache, torn between its stores.
    pub(super) const MEMORY: Medium = Medium { sector: 64, word: 8 };
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Length(u64),
}

#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    /// Of the file, after the change.
    length: u64,
}

/// How much of what was pending a cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Everything,
    /// Each sector any version of its own.
    Random,
    /// Nearly all sectors the newest version.
    Most,
    /// Nearly all sectors the durable version.
    Little,
    /// Everything up to some change, of which a part.
    Prefix,
}

impl Keep {
    pub(super) fn pick(random: &mut Random) -> Keep {
        match random.below(8) {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            2 | 3 => Keep::Random,
            4 => Keep::Most,
            5 => Keep::Little,
            _ => Keep::Prefix,
        }
    }
}

/// One file as the cache has it and as the disk may have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Platter {
    cache: Pages,
    durable: Pages,
    pending: Vec<Pending>,
    /// Pages that have disk space.
    blocks: Blocks,
    /// The same as a power cut surely leaves it.
    blocks_durable: Blocks,
    /// By sector: pending changes before this index are durable there.
    settled: BTreeMap<u64, usize>,
    /// The length before all pending changes.
    length_before: u64,
    /// Changes of the length before this index are durable.
    length_settled: usize,
    /// A flush of the pending changes before this index failed: the kernel holds their pages for
    /// clean, and no later flush writes them.
    given_up: usize,
}

impl Platter {
    /// What everybody reads.
    pub(super) fn cache(&self) -> &Pages {
        &self.cache
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Arc<[u8]>) {
        self.cache.write(offset, &bytes);
        self.blocks.reserve(offset, bytes.len() as u64);
        let length = self.cache.length();
        self.pending.push(Pending { change: Change::Write { offset, bytes }, length });
    }

    /// Reserves disk space for a range.
    pub(super) fn reserve(&mut self, offset: u64, length: u64) {
        if self.cache.length() < offset + length {
            self.set_length(offset + length);
        }
        self.blocks.reserve(offset, length);
    }

    /// Gives the disk space of a range back.
    pub(super) fn give_back(&mut self, offset: u64, length: u64) {
        self.blocks.give_back(offset, length);
    }

    /// Has every page of a range disk space?
    pub(super) fn is_reserved(&self, offset: u64, length: u64) -> bool {
        self.blocks.has(offset, length)
    }

    /// Bytes of disk space.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// A range became durable, and as much of the length as it takes to read it.
    pub(super) fn settle(&mut self, offset: u64, length: u64, medium: Medium) {
        let end = offset + length;
        let undecided = &self.pending[self.length_settled..];
        let truncated = undecided.iter().any(|p| matches!(p.change, Change::Length(l) if l < end));
        if truncated || self.length_at(self.length_settled) < end {
            self.settle_lengths();
        }
        self.blocks_durable.reserve(offset, length);
        let mut buffer = vec![0; medium.sector as usize];
        let durable_length = self.durable.length();
        for sector in offset / medium.sector..end.div_ceil(medium.sector) {
            let at = sector * medium.sector;
            self.cache.read(at, &mut buffer);
            self.durable.write(at, &buffer);
            self.settled.insert(sector, self.pending.len());
        }
        self.durable.set_length(durable_length);
    }

    /// Of the length as it was before the change of this index.
    fn length_at(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(before) => self.pending[before].length,
            None => self.length_before,
        }
    }

    fn settle_lengths(&mut self) {
        for pending in &self.pending[self.length_settled..] {
            self.durable.set_length(match pending.change {
                Change::Length(length) => length,
                Change::Write { .. } => pending.length,
            });
        }
        self.length_settled = self.pending.len();
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.cache.set_length(length);
        self.blocks.shorten(length);
        self.pending.push(Pending { change: Change::Length(length), length });
    }

    /// A flush failed: what was to be flushed is undecided for good.
    pub(super) fn flush_failed(&mut self) {
        self.given_up = self.pending.len();
    }

    /// Everything is durable that the kernel still means to write.
    pub(super) fn sync(&mut self, medium: Medium) {
        self.blocks_durable = self.blocks.clone();
        if self.given_up > 0 {
            let writes: Vec<(u64, u64)> = self.pending[self.given_up..]
                .iter()
                .filter_map(|pending| match &pending.change {
                    Change::Write { offset, bytes } => Some((*offset, bytes.len() as u64)),
                    Change::Length(_) => None,
                })
                .collect();
            writes.into_iter().for_each(|(offset, length)| self.settle(offset, length, medium));
            self.settle_lengths();
        } else if !self.pending.is_empty() {
            self.durable = self.cache.clone();
            self.pending.clear();
            self.settled.clear();
            self.length_settled = 0;
            self.length_before = self.durable.length();
        }
    }

    /// Is anything undecided?
    pub(super) fn is_durable(&self) -> bool {
        self.pending.is_empty() && self.blocks == self.blocks_durable
    }

    /// The file after a power cut.
    pub(super) fn cut(&self, keep: Keep, medium: Medium, random: &mut Random) -> Platter {
        let all = self.pending.len();
        // Where a prefix ends; the change there happens in part.
        let end = match keep {
            Keep::Nothing => 0,
            Keep::Prefix => random.below(all + 1),
            _ => all,
        };
        let lengths = match keep {
            Keep::Nothing => self.length_settled,
            Keep::Everything => all,
            Keep::Prefix => end.max(self.length_settled),
            _ => self.length_settled + random.below(all + 1 - self.length_settled),
        };
        let mut content = self.durable.clone();
        for pending in &self.pending[self.length_settled..lengths] {
            if let Change::Length(length) = pending.change
                && length < content.length()
            {
                content.set_length(length);
            }
        }
        for (sector, writes) in self.writes_by_sector(medium) {
            self.cut_sector(&mut content, sector, &writes, (keep, end, lengths), medium, random);
        }
        content.set_length(self.length_at(lengths));
        let blocks = match keep {
            Keep::Nothing => self.blocks_durable.clone(),
            Keep::Everything => self.blocks.clone(),
            _ => self.blocks_durable.cut(&self.blocks, random),
        };
        let blocks = blocks.of_file(&content);
        Platter {
            blocks_durable: blocks.clone(),
            blocks,
            length_before: content.length(),
            cache: content.clone(),
            durable: content,
            pending: Vec::new(),
            settled: BTreeMap::new(),
            length_settled: 0,
            given_up: 0,
        }
    }

    /// Indices of the pending writes that touched each sector and are not durable there.
    fn writes_by_sector(&self, medium: Medium) -> BTreeMap<u64, Vec<usize>> {
        let mut sectors: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, pending) in self.pending.iter().enumerate() {
            let Change::Write { offset, bytes } = &pending.change else { continue };
            let last = (offset + bytes.len() as u64).div_ceil(medium.sector);
            for sector in offset / medium.sector..last {
                if self.settled.get(&sector).is_none_or(|settled| index >= *settled) {
                    sectors.entry(sector).or_default().push(index);
                }
            }
        }
        sectors
    }

    fn cut_sector(
        &self,
        content: &mut Pages,
        sector: u64,
        writes: &[usize],
        (keep, end, lengths): (Keep, usize, usize),
        medium: Medium,
        random: &mut Random,
    ) {
        let at = sector * medium.sector;
        // A cut of the file that happened wiped what was written before; one that did not happen
        // has nothing behind it.
        let cuts_here = |p: &Pending| matches!(p.change, Change::Length(l) if l <= at);
        let from = self.pending[..lengths].iter().rposition(cuts_here).map_or(0, |i| i + 1);
        let to = self.pending[lengths..]
            .iter()
            .position(cuts_here)
            .map_or(end, |i| end.min(lengths + i));
        let usable: Vec<usize> = writes.iter().copied().filter(|i| *i >= from && *i < to).collect();
        if usable.is_empty() {
            return;
        }
        let count = match keep {
            Keep::Nothing => 0,
            Keep::Everything => usable.len(),
            Keep::Random => random.below(usable.len() + 1),
            Keep::Most if random.chance(1, 16) => random.below(usable.len() + 1),
            Keep::Most => usable.len(),
            Keep::Little if random.chance(1, 16) => random.below(usable.len() + 1),
            Keep::Little => 0,
            // Of the last change of the prefix each sector may be missing.
            Keep::Prefix if usable.last() == Some(&(end - 1)) && random.chance(1, 2) => {
                usable.len() - 1
            }
            Keep::Prefix => usable.len(),
        };
        let mut buffer = vec![0; medium.sector as usize];
        content.read(at, &mut buffer);
        for (position, index) in usable[..count].iter().enumerate() {
            let Change::Write { offset, bytes } = &self.pending[*index].change else { continue };
            // The last version may be there in part, cut between two words.
            let words = medium.sector / medium.word;
            let torn = position + 1 == count && words > 1 && random.chance(1, 2);
            let reach = if torn {
                random.below(words as usize) as u64 * medium.word
            } else {
                medium.sector
            };
            let start = at.max(*offset);
            let stop = (at + reach).min(offset + bytes.len() as u64);
            if start < stop {
                let from = &bytes[(start - offset) as usize..(stop - offset) as usize];
                buffer[(start - at) as usize..(stop - at) as usize].copy_from_slice(from);
            }
        }
        content.write(at, &buffer);
    }
}
