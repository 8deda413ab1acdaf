//! Strips: painted rows of a page, compressed.
//!
//! A strip is 64 rows of the layout's width. Each pixel has four bytes (blue, green, red, 0), the
//! format of window systems. Each strip is packed separately ([`strip_codec`]). The first frame of
//! a stored page is copied from strips, without reading its commands or any font.
//!
//! Little-endian: magic `EVMSTRIP`, format version, width, number of strips, zero (4 bytes each).
//! Then offset and length of each strip (4 bytes each). Then the strips.

use super::strip_codec;
use crate::page::{AlignedBytes, Guarded};
use crate::{Result, ViewError};

/// Rows in a strip. The last strip of a page is padded with its background.
pub const STRIP_ROWS: u32 = 64;
const MAGIC: &[u8; 8] = b"EVMSTRIP";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 24;

/// Strips in memory owned by the caller.
#[derive(Clone, Copy)]
pub struct Strips<'a> {
    bytes: &'a [u8],
    width: u32,
    count: u32,
    /// Verifies ranges before their use, if the bytes may be damaged.
    guard: Option<&'a Guarded>,
}

impl<'a> Strips<'a> {
    /// Returns the strips in `bytes`. Checks only the header.
    ///
    /// # Errors
    /// Fails if the bytes are not strips of a format that this build can read.
    pub fn new(bytes: &'a [u8]) -> Result<Strips<'a>> {
        let invalid = |why: &str| ViewError::InvalidPage(format!("painted rows: {why}"));
        if bytes.get(..8) != Some(MAGIC) {
            return Err(invalid("the magic number is wrong"));
        }
        let strips = Strips {
            bytes,
            width: number(bytes, 12).unwrap_or(0),
            count: number(bytes, 16).unwrap_or(0),
            guard: None,
        };
        if number(bytes, 8) != Some(VERSION) {
            return Err(invalid("unknown format version"));
        }
        let table = HEADER_BYTES as u64 + 8 * u64::from(strips.count);
        if strips.width == 0 || table > bytes.len() as u64 {
            return Err(invalid("they are truncated"));
        }
        Ok(strips)
    }

    /// Returns strips in bytes that are verified at their first use. Verifies the header now.
    ///
    /// # Errors
    /// Fails if the header is damaged or has an unknown format.
    pub(crate) fn guarded(guard: &'a Guarded) -> Result<Strips<'a>> {
        let bytes = guard.bytes();
        if !guard.verify(0..HEADER_BYTES.min(bytes.len())) {
            let why = guard.damage().unwrap_or("the header of the painted rows is damaged");
            return Err(ViewError::InvalidPage(why.to_string()));
        }
        Ok(Strips { guard: Some(guard), ..Strips::new(bytes)? })
    }

    /// Returns the number of strips. They start at the top of the page.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Unpacks a strip into `pixels`, which must have the size of one strip.
    ///
    /// # Errors
    /// Fails if the strip does not exist or is damaged. `pixels` must not be used then.
    pub fn unpack(&self, strip: u32, pixels: &mut [u32]) -> Result<()> {
        let invalid = || ViewError::InvalidPage(format!("painted strip {strip} is damaged"));
        if strip >= self.count || pixels.len() != self.width as usize * STRIP_ROWS as usize {
            return Err(invalid());
        }
        let entry = HEADER_BYTES + 8 * strip as usize;
        self.verify(entry..entry + 8)?;
        let offset = number(self.bytes, entry).ok_or_else(invalid)? as usize;
        let length = number(self.bytes, entry + 4).ok_or_else(invalid)? as usize;
        let end = offset.checked_add(length).ok_or_else(invalid)?;
        let packed = self.bytes.get(offset..end).ok_or_else(invalid)?;
        self.verify(offset..end)?;
        strip_codec::unpack(packed, self.width as usize, pixels).ok_or_else(invalid)
    }

    fn verify(&self, range: std::ops::Range<usize>) -> Result<()> {
        match self.guard {
            Some(guard) if !guard.verify(range) => {
                let why = guard.damage().unwrap_or("a painted strip is damaged");
                Err(ViewError::InvalidPage(why.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Packs strips, from the top of the page.
pub struct StripPacker {
    width: u32,
    packed: Vec<Vec<u8>>,
}

impl StripPacker {
    /// Creates a packer for rows of `width` pixels.
    pub fn new(width: u32) -> StripPacker {
        StripPacker { width, packed: Vec::new() }
    }

    /// Adds the next strips. Ignores an incomplete strip at the end.
    pub fn push(&mut self, pixels: &[u32]) {
        let strip = self.width as usize * STRIP_ROWS as usize;
        for pixels in pixels.chunks_exact(strip) {
            self.packed.push(strip_codec::pack(pixels, self.width as usize));
        }
    }

    /// Returns the number of strips so far.
    pub fn count(&self) -> u32 {
        self.packed.len() as u32
    }

    /// Returns the strips in their stored form.
    pub fn finish(self) -> AlignedBytes {
        let table = HEADER_BYTES + 8 * self.packed.len();
        let length = table + self.packed.iter().map(Vec::len).sum::<usize>();
        let mut all = AlignedBytes::zeroed(length);
        let bytes = all.as_mut_bytes();
        bytes[..8].copy_from_slice(MAGIC);
        for (at, value) in [VERSION, self.width, self.packed.len() as u32].into_iter().enumerate() {
            bytes[8 + 4 * at..][..4].copy_from_slice(&value.to_le_bytes());
        }
        let mut offset = table;
        for (at, packed) in self.packed.iter().enumerate() {
            let entry = HEADER_BYTES + 8 * at;
            bytes[entry..][..4].copy_from_slice(&(offset as u32).to_le_bytes());
            bytes[entry + 4..][..4].copy_from_slice(&(packed.len() as u32).to_le_bytes());
            bytes[offset..][..packed.len()].copy_from_slice(packed);
            offset += packed.len();
        }
        all
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}
