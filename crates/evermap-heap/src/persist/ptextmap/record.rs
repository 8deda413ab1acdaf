//! The records of a text map: their bytes, and how blocks of them are read.
//!
//! A record is two numbers, the key, the value, and a zero if they are an odd number of bytes. The
//! first number is twice the key's length, plus 1 if the entry was removed; the second is the
//! value's length. Each is an LEB128 number: seven bits a byte, the lowest first, with the highest
//! bit set in all bytes but the last. So most records have two bytes of lengths.

use crate::persist::PVec;

/// Records begin at multiples of this many bytes.
pub(super) const UNIT_BYTES: usize = 2;
/// A record begins in the first mebibyte of its block.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
/// Units of a block in which a record may begin.
pub(super) const BLOCK_UNITS: u32 = (BLOCK_BYTES / UNIT_BYTES) as u32;

const NUMBER_BYTES_MAX: usize = 10;

/// An entry as it lies in a block.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) is_removed: bool,
    /// Bytes up to the next record.
    pub(super) bytes: usize,
}

/// Reads the record at an offset of a block. Returns `None` at the block's end.
#[inline]
pub(super) fn read(block: &[u8], offset: usize) -> Option<Record<'_>> {
    let rest = block.get(offset..)?;
    let (first, at) = number(rest, 0)?;
    let (value_bytes, at) = number(rest, at)?;
    let key_end = at.checked_add((first >> 1) as usize)?;
    let end = key_end.checked_add(value_bytes as usize)?;
    let (key, value) = (rest.get(at..key_end)?, rest.get(key_end..end)?);
    Some(Record { key, value, is_removed: first & 1 != 0, bytes: padded(end) })
}

/// Reads a number. Returns it with the position after it.
#[inline]
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((first.into(), at + 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, byte) in bytes.get(at + 1..)?.iter().enumerate().take(NUMBER_BYTES_MAX - 1) {
        value |= u64::from(byte & 0x7f) << (7 * (index + 1));
        if *byte < 0x80 {
            return Some((value, at + index + 2));
        }
    }
    None
}

const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT_BYTES)
}

/// Lengths of a new record, as they are written.
pub(super) struct Header {
    bytes: [u8; 2 * NUMBER_BYTES_MAX],
    len: usize,
    /// Bytes of the whole record.
    pub(super) record_bytes: usize,
}

impl Header {
    /// Returns the header of a record; `None` if the record would exceed the address space.
    pub(super) fn of(key: &[u8], value: &[u8]) -> Option<Header> {
        let mut header = Header { bytes: [0; 2 * NUMBER_BYTES_MAX], len: 0, record_bytes: 0 };
        header.push((key.len() as u64).checked_mul(2)?);
        header.push(value.len() as u64);
        let bytes = header.len.checked_add(key.len())?.checked_add(value.len())?;
        header.record_bytes = bytes.checked_next_multiple_of(UNIT_BYTES)?;
        Some(header)
    }

    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Place of a record: the number of its unit in all blocks, plus 1. Never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(pub(super) u32);

impl Position {
    pub(super) fn new(block: usize, offset: usize) -> Position {
        Position(block as u32 * BLOCK_UNITS + (offset / UNIT_BYTES) as u32 + 1)
    }

    /// Returns the number of the block, and the offset in it.
    #[inline]
    pub(super) fn split(self) -> (usize, usize) {
        let unit = self.0 - 1;
        ((unit / BLOCK_UNITS) as usize, (unit % BLOCK_UNITS) as usize * UNIT_BYTES)
    }
}

/// Iterator over the records of all blocks, removed ones included, with their positions.
#[derive(Clone)]
pub(super) struct Records<'a> {
    blocks: &'a [PVec<u8>],
    block: usize,
    offset: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(blocks: &'a [PVec<u8>]) -> Self {
        Records { blocks, block: 0, offset: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Position, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let block = self.blocks.get(self.block)?;
            if let Some(record) = read(block, self.offset) {
                let position = Position::new(self.block, self.offset);
                self.offset += record.bytes;
                return Some((position, record));
            }
            (self.block, self.offset) = (self.block + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_all_lengths_are_read_as_they_were_written() {
        for (key, value) in [(0, 0), (1, 2), (63, 127), (64, 128), (300, 20_000), (5, 3 << 20)] {
            let (key, value) = (vec![b'k'; key], vec![b'v'; value]);
            let header = Header::of(&key, &value).unwrap();
            let mut block = vec![0xff; UNIT_BYTES];
            block.extend_from_slice(header.as_bytes());
            block.extend_from_slice(&key);
            block.extend_from_slice(&value);
            block.resize(UNIT_BYTES + header.record_bytes, 0);
            let record = read(&block, UNIT_BYTES).unwrap();
            assert_eq!((record.key, record.value), (&key[..], &value[..]));
            assert_eq!((record.bytes, record.is_removed), (header.record_bytes, false));
            block[UNIT_BYTES] |= 1;
            assert!(read(&block, UNIT_BYTES).unwrap().is_removed);
            assert!(read(&block, block.len()).is_none());
        }
    }

    #[test]
    fn damaged_lengths_are_no_record() {
        for bytes in [&[0xff; 30][..], &[2], &[2, 0], &[0, 2, 0x80], &[0x80]] {
            assert_eq!(read(bytes, 0).map(|record| record.bytes), None, "{bytes:?}");
        }
        assert!(read(&[0, 0], 3).is_none());
    }
}
