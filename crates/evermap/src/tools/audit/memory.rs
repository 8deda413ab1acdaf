//! Reads words of an object through its image, with a cache of bounded size.
//!
//! A walk jumps from block to block; a system call for each block would make it a hundred times
//! slower. So pieces of 64 KiB are cached up to a budget. Addresses outside the object's regions
//! are never read; they have no word.

use std::collections::VecDeque;

use crate::error::Result;
use crate::tools::image::Image;

/// Bytes per piece. Pieces begin at multiples of it.
const PIECE_BYTES: u64 = 64 * 1024;

/// Cached memory of one object.
pub(in crate::tools) struct Memory<'a> {
    image: &'a Image,
    regions: Vec<Region>,
    /// Region and number of each cached piece, oldest first.
    cached: VecDeque<(usize, usize)>,
    cached_max: usize,
    /// Region and number of the piece that was read last.
    last: (usize, usize),
}

struct Region {
    base: u64,
    end: u64,
    file_offset: u64,
    /// Number of the piece that contains the base.
    first: u64,
    pieces: Vec<Option<Box<[u8]>>>,
}

impl<'a> Memory<'a> {
    pub(in crate::tools) fn new(image: &'a Image, budget_bytes: u64) -> Memory<'a> {
        let regions: Vec<Region> = image
            .regions()
            .map(|(_, r)| {
                let (first, end) = (r.base / PIECE_BYTES, r.base + r.length);
                let count = end.div_ceil(PIECE_BYTES) - first;
                let pieces = std::iter::repeat_with(|| None).take(count as usize).collect();
                Region { base: r.base, end, file_offset: r.file_offset, first, pieces }
            })
            .collect();
        let cached_max = (budget_bytes / PIECE_BYTES).max(4) as usize;
        Memory { image, regions, cached: VecDeque::new(), cached_max, last: (0, 0) }
    }

    /// Returns the eight bytes at an aligned address, or `None` outside the object's regions.
    pub(in crate::tools) fn word(&mut self, address: u64) -> Result<Option<u64>> {
        let Some((start, bytes)) = self.piece(address)? else { return Ok(None) };
        let at = (address - start) as usize;
        Ok(bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes))
    }

    /// Collects the nonzero words from the aligned address `at` up to the end of a piece or to
    /// `end`, with their addresses. Returns the address to continue from.
    pub(in crate::tools) fn words(
        &mut self,
        at: u64,
        end: u64,
        words: &mut Vec<(u64, u64)>,
    ) -> Result<u64> {
        words.clear();
        let Some((start, piece)) = self.piece(at)? else { return Ok(end) };
        let stop = end.min(start + piece.len() as u64);
        let part = &piece[(at - start) as usize..(stop.max(at) - start) as usize];
        for (index, word) in part.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if word != 0 {
                words.push((at + index as u64 * 8, word));
            }
        }
        Ok(if stop - at < 8 { end } else { stop / 8 * 8 })
    }

    /// Returns the bytes at an address; fewer than `length` if the regions end before.
    pub(in crate::tools) fn bytes(&mut self, address: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let at = address + bytes.len() as u64;
            let Some((start, piece)) = self.piece(at)? else { break };
            let part = &piece[(at - start) as usize..];
            bytes.extend_from_slice(&part[..part.len().min(length - bytes.len())]);
        }
        Ok(bytes)
    }

    /// Returns the piece that contains an address: its first address and its bytes.
    fn piece(&mut self, address: u64) -> Result<Option<(u64, &[u8])>> {
        let (region, number) = match self.piece_number(address, self.last.0) {
            Some(number) => (self.last.0, number),
            None => {
                let others = 0..self.regions.len();
                let found =
                    others.into_iter().find_map(|r| Some((r, self.piece_number(address, r)?)));
                let Some(found) = found else { return Ok(None) };
                found
            }
        };
        self.last = (region, number);
        if self.regions[region].pieces[number].is_none() {
            self.load(region, number)?;
        }
        let r = &self.regions[region];
        let start = ((r.first + number as u64) * PIECE_BYTES).max(r.base);
        Ok(r.pieces[number].as_deref().map(|bytes| (start, bytes)))
    }

    fn piece_number(&self, address: u64, region: usize) -> Option<usize> {
        let r = self.regions.get(region)?;
        (address >= r.base && address < r.end).then(|| (address / PIECE_BYTES - r.first) as usize)
    }

    fn load(&mut self, region: usize, number: usize) -> Result<()> {
        if self.cached.len() >= self.cached_max
            && let Some((old_region, old_number)) = self.cached.pop_front()
        {
            self.regions[old_region].pieces[old_number] = None;
        }
        let r = &mut self.regions[region];
        let start = ((r.first + number as u64) * PIECE_BYTES).max(r.base);
        let end = ((r.first + number as u64 + 1) * PIECE_BYTES).min(r.end);
        let mut bytes = vec![0; (end - start) as usize].into_boxed_slice();
        self.image.read_pages(r.file_offset + (start - r.base), &mut bytes)?;
        r.pieces[number] = Some(bytes);
        self.cached.push_back((region, number));
        Ok(())
    }
}
