//! Derives the contents of a file after a power failure.
//!
//! A file has the bytes in the page cache, the bytes that are certainly on the disk, and the list
//! of changes between the two. A power failure leaves in each sector the durable version or any
//! later one, independently of other sectors. The file's length becomes any length since the last
//! durable one. File systems keep changes of the length in order, and truncated data does not
//! reappear once the truncation is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocks::Blocks;
use super::pages::Pages;
use super::random::Random;

/// Sizes that a medium writes atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Medium {
    /// Bytes that are written independently of their neighbours.
    pub(super) sector: u64,
    /// Unit that is never torn; equal to `sector` if sectors are atomic.
    pub(super) word: u64,
}

impl Medium {
    /// A disk.
    pub(super) const DISK: Medium = Medium { sector: 512, word: 512 };
    /// Persistent memory: cache lines, which can be torn between 8-byte stores.
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
    /// Length of the file after the change.
    length: u64,
}

/// How much pending data a power failure keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Everything,
    /// Each sector gets a random version.
    Random,
    /// Nearly all sectors get the newest version.
    Most,
    /// Nearly all sectors get the durable version.
    Little,
    /// A prefix of the changes, the last one in part.
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

/// One file: its cached contents, its durable contents, and the pending changes.
#[derive(Clone, Debug, Default)]
pub(super) struct FileVersions {
    cache: Pages,
    durable: Pages,
    pending: Vec<Pending>,
    /// Pages that have disk space.
    blocks: Blocks,
    /// Pages that certainly have disk space after a power failure.
    blocks_durable: Blocks,
    /// For each sector: pending changes before this index are durable there.
    durable_up_to: BTreeMap<u64, usize>,
    /// The length before all pending changes.
    length_before: u64,
    /// Changes of the length before this index are durable.
    lengths_durable: usize,
    /// A flush of the pending changes before this index failed. The kernel treats their pages as
    /// clean, and no later flush writes them.
    failed_up_to: usize,
}

impl FileVersions {
    /// Returns the contents of the page cache.
    pub(super) fn cache(&self) -> &Pages {
        &self.cache
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Arc<[u8]>) {
        self.cache.write(offset, &bytes);
        self.blocks.reserve(offset, bytes.len() as u64);
        let length = self.cache.length();
        self.pending.push(Pending { change: Change::Write { offset, bytes }, length });
    }

    /// Allocates disk space for a range.
    pub(super) fn reserve(&mut self, offset: u64, length: u64) {
        if self.cache.length() < offset + length {
            self.set_length(offset + length);
        }
        self.blocks.reserve(offset, length);
    }

    /// Releases the disk space of a range.
    pub(super) fn free_space(&mut self, offset: u64, length: u64) {
        self.blocks.free_space(offset, length);
    }

    /// Returns true if every page of a range has disk space.
    pub(super) fn is_reserved(&self, offset: u64, length: u64) -> bool {
        self.blocks.has(offset, length)
    }

    /// Returns the disk space in bytes.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// Makes a range durable, and as much of the length as is needed to read it.
    pub(super) fn make_durable(&mut self, offset: u64, length: u64, medium: Medium) {
        let end = offset + length;
        let undecided = &self.pending[self.lengths_durable..];
        let truncated = undecided.iter().any(|p| matches!(p.change, Change::Length(l) if l < end));
        if truncated || self.length_at(self.lengths_durable) < end {
            self.make_lengths_durable();
        }
        self.blocks_durable.reserve(offset, length);
        let mut buffer = vec![0; medium.sector as usize];
        let durable_length = self.durable.length();
        for sector in offset / medium.sector..end.div_ceil(medium.sector) {
            let at = sector * medium.sector;
            self.cache.read(at, &mut buffer);
            self.durable.write(at, &buffer);
            self.durable_up_to.insert(sector, self.pending.len());
        }
        self.durable.set_length(durable_length);
    }

    /// Returns the length before the change with this index.
    fn length_at(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(before) => self.pending[before].length,
            None => self.length_before,
        }
    }

    fn make_lengths_durable(&mut self) {
        for pending in &self.pending[self.lengths_durable..] {
            self.durable.set_length(match pending.change {
                Change::Length(length) => length,
                Change::Write { .. } => pending.length,
            });
        }
        self.lengths_durable = self.pending.len();
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.cache.set_length(length);
        self.blocks.shorten(length);
        self.pending.push(Pending { change: Change::Length(length), length });
    }

    /// Notes a failed flush: its data stays undecided for good.
    pub(super) fn flush_failed(&mut self) {
        self.failed_up_to = self.pending.len();
    }

    /// Makes everything durable that the kernel still treats as dirty.
    pub(super) fn sync(&mut self, medium: Medium) {
        self.blocks_durable = self.blocks.clone();
        if self.failed_up_to > 0 {
            let writes: Vec<(u64, u64)> = self.pending[self.failed_up_to..]
                .iter()
                .filter_map(|pending| match &pending.change {
                    Change::Write { offset, bytes } => Some((*offset, bytes.len() as u64)),
                    Change::Length(_) => None,
                })
                .collect();
            writes
                .into_iter()
                .for_each(|(offset, length)| self.make_durable(offset, length, medium));
            self.make_lengths_durable();
        } else if !self.pending.is_empty() {
            self.durable = self.cache.clone();
            self.pending.clear();
            self.durable_up_to.clear();
            self.lengths_durable = 0;
            self.length_before = self.durable.length();
        }
    }

    /// Returns true if no change is pending.
    pub(super) fn is_durable(&self) -> bool {
        self.pending.is_empty() && self.blocks == self.blocks_durable
    }

    /// Returns the file after a power failure.
    pub(super) fn after_power_failure(
        &self,
        keep: Keep,
        medium: Medium,
        random: &mut Random,
    ) -> FileVersions {
        let all = self.pending.len();
        // End of the prefix. The change there is applied in part.
        let end = match keep {
            Keep::Nothing => 0,
            Keep::Prefix => random.below(all + 1),
            _ => all,
        };
        let lengths = match keep {
            Keep::Nothing => self.lengths_durable,
            Keep::Everything => all,
            Keep::Prefix => end.max(self.lengths_durable),
            _ => self.lengths_durable + random.below(all + 1 - self.lengths_durable),
        };
        let mut content = self.durable.clone();
        for pending in &self.pending[self.lengths_durable..lengths] {
            if let Change::Length(length) = pending.change
                && length < content.length()
            {
                content.set_length(length);
            }
        }
        for (sector, writes) in self.writes_by_sector(medium) {
            self.crash_sector(&mut content, sector, &writes, (keep, end, lengths), medium, random);
        }
        content.set_length(self.length_at(lengths));
        let blocks = match keep {
            Keep::Nothing => self.blocks_durable.clone(),
            Keep::Everything => self.blocks.clone(),
            _ => self.blocks_durable.after_power_failure(&self.blocks, random),
        };
        let blocks = blocks.of_file(&content);
        FileVersions {
            blocks_durable: blocks.clone(),
            blocks,
            length_before: content.length(),
            cache: content.clone(),
            durable: content,
            pending: Vec::new(),
            durable_up_to: BTreeMap::new(),
            lengths_durable: 0,
            failed_up_to: 0,
        }
    }

    /// Returns the indices of pending writes by sector, without writes that are durable there.
    fn writes_by_sector(&self, medium: Medium) -> BTreeMap<u64, Vec<usize>> {
        let mut sectors: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, pending) in self.pending.iter().enumerate() {
            let Change::Write { offset, bytes } = &pending.change else { continue };
            let last = (offset + bytes.len() as u64).div_ceil(medium.sector);
            for sector in offset / medium.sector..last {
                if self.durable_up_to.get(&sector).is_none_or(|settled| index >= *settled) {
                    sectors.entry(sector).or_default().push(index);
                }
            }
        }
        sectors
    }

    fn crash_sector(
        &self,
        content: &mut Pages,
        sector: u64,
        writes: &[usize],
        (keep, end, lengths): (Keep, usize, usize),
        medium: Medium,
        random: &mut Random,
    ) {
        let at = sector * medium.sector;
        // A truncation that was applied discards all earlier writes. One that was not applied has
        // no later writes.
        let truncates_here = |p: &Pending| matches!(p.change, Change::Length(l) if l <= at);
        let from = self.pending[..lengths].iter().rposition(truncates_here).map_or(0, |i| i + 1);
        let to = self.pending[lengths..]
            .iter()
            .position(truncates_here)
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
            // Each sector may miss the last change of the prefix.
            Keep::Prefix if usable.last() == Some(&(end - 1)) && random.chance(1, 2) => {
                usable.len() - 1
            }
            Keep::Prefix => usable.len(),
        };
        let mut buffer = vec![0; medium.sector as usize];
        content.read(at, &mut buffer);
        for (position, index) in usable[..count].iter().enumerate() {
            let Change::Write { offset, bytes } = &self.pending[*index].change else { continue };
            // The last version may be torn between two words.
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
