//! The text of a document while it is being built.
//!
//! One growing array of UTF-8. Equal attribute values are stored once, with their length in front.
//! Equal short texts (most are the white space between two tags) are stored once, too. A text that
//! is still growing is always the tail of the array. So it is extended in place, and removed from
//! the tail if an equal text exists.

use crate::hash::Seeded;
use crate::room::has_room;

/// Longer values are stored every time. Long repetitions are rare (scripts, inline images), and
/// hashing them would cost more than they save.
const INTERN_BYTES_MAX: usize = 512;
/// Maximum length of a probe. Longer probes mean crafted collisions, so the value is stored again.
const PROBES_MAX: usize = 32;

/// The text section under construction.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    values: Interned,
    texts: Interned,
    seed: Seeded,
    overflow: bool,
    no_memory: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    offset: u32,
    bytes: u32,
}

const FREE: Slot = Slot { hash: 0, offset: u32::MAX, bytes: 0 };

/// An open-addressing table of pieces of the arena.
#[derive(Clone, Debug)]
struct Interned {
    slots: Vec<Slot>,
    used: usize,
}

impl Interned {
    fn new() -> Interned {
        Interned { slots: vec![FREE; 256], used: 0 }
    }

    /// Finds `value`, or the slot where it can be put.
    #[inline]
    fn find(&self, arena: &[u8], hash: u32, value: &[u8]) -> Result<u32, Option<usize>> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        for _ in 0..PROBES_MAX {
            let slot = self.slots[at];
            if slot.offset == u32::MAX {
                return Err(Some(at));
            }
            if slot.hash == hash && slot.bytes as usize == value.len() {
                let start = slot.offset as usize;
                if arena[start..start + value.len()] == *value {
                    return Ok(slot.offset);
                }
            }
            at = (at + 1) & mask;
        }
        Err(None)
    }

    fn put(&mut self, place: Option<usize>, slot: Slot) {
        let Some(place) = place else { return };
        self.slots[place] = slot;
        self.used += 1;
        if self.used * 2 > self.slots.len() {
            let larger = vec![FREE; self.slots.len() * 4];
            let old = std::mem::replace(&mut self.slots, larger);
            let mask = self.slots.len() - 1;
            for slot in old.into_iter().filter(|slot| slot.offset != u32::MAX) {
                let mut at = slot.hash as usize & mask;
                while self.slots[at].offset != u32::MAX {
                    at = (at + 1) & mask;
                }
                self.slots[at] = slot;
            }
        }
    }
}

impl Arena {
    pub(crate) fn new(bytes_expected: usize) -> Arena {
        let mut bytes = Vec::new();
        // Without that much memory the table starts smaller and grows later.
        let _ = bytes.try_reserve_exact(bytes_expected);
        Arena {
            bytes,
            values: Interned::new(),
            texts: Interned::new(),
            seed: Seeded::new(),
            overflow: false,
            no_memory: false,
        }
    }

    /// Returns true if something did not fit. Offsets returned since then are invalid.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflow
    }

    /// Returns true if something did not fit for lack of memory.
    pub(crate) fn has_no_memory(&self) -> bool {
        self.no_memory
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn slice(&self, offset: u32, bytes: u32) -> &[u8] {
        &self.bytes[offset as usize..offset as usize + bytes as usize]
    }

    /// Makes room for `extra` bytes within the 32-bit offsets.
    #[inline]
    fn has_room(&mut self, extra: usize) -> bool {
        // The last 16 bytes stay free, so that no offset is ever `NONE`.
        if self.bytes.len() + extra > u32::MAX as usize - 16 {
            self.overflow = true;
        } else if !has_room(&mut self.bytes, extra) {
            (self.overflow, self.no_memory) = (true, true);
        }
        !self.overflow
    }

    /// Appends bytes without deduplication. Returns their offset.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) -> u32 {
        if !self.has_room(text.len()) {
            return 0;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        offset
    }

    /// Stores an attribute value with its length in front. Returns its offset.
    #[inline]
    pub(crate) fn value(&mut self, value: &[u8]) -> u32 {
        if !self.has_room(value.len() + 6) {
            return 0;
        }
        if value.len() > INTERN_BYTES_MAX {
            return self.push_value(value).0;
        }
        let hash = self.seed.hash(value);
        match self.values.find(&self.bytes, hash, value) {
            Ok(offset) => offset - length_bytes(value.len() as u32),
            Err(place) => {
                let (start, offset) = self.push_value(value);
                let slot = Slot { hash, offset, bytes: value.len() as u32 };
                self.values.put(place, slot);
                start
            }
        }
    }

    fn push_value(&mut self, value: &[u8]) -> (u32, u32) {
        let start = self.bytes.len() as u32;
        push_length(&mut self.bytes, value.len() as u32);
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        (start, offset)
    }

    /// Extends a text. Returns its new offset. An `open` text, the unfinished tail of the arena,
    /// grows in place. Any other text may be shared, so it is copied to the tail.
    pub(crate) fn extend(
        &mut self,
        open: bool,
        offset: u32,
        bytes: u32,
        more: &[u8],
    ) -> (u32, u32) {
        let end = offset as usize + bytes as usize;
        let in_place = open && end == self.bytes.len();
        let copied = if in_place { 0 } else { bytes as usize };
        if !self.has_room(copied + more.len()) {
            return (0, 0);
        }
        let start = if in_place {
            offset
        } else {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_within(offset as usize..end);
            start
        };
        self.bytes.extend_from_slice(more);
        (start, bytes + more.len() as u32)
    }

    /// Returns the offset of an equal text, or remembers this one.
    pub(crate) fn same_text(&mut self, offset: u32, bytes: u32) -> u32 {
        let (start, end) = (offset as usize, offset as usize + bytes as usize);
        let hash = self.seed.hash(&self.bytes[start..end]);
        match self.texts.find(&self.bytes, hash, &self.bytes[start..end]) {
            Ok(same) => same,
            Err(place) => {
                let slot = Slot { hash, offset, bytes };
                self.texts.put(place, slot);
                offset
            }
        }
    }

    /// Called when the text at the tail is complete. Returns the offset of an equal text and
    /// removes the tail, or remembers this text.
    #[inline]
    pub(crate) fn intern_tail(&mut self, offset: u32, bytes: u32) -> u32 {
        let (start, end) = (offset as usize, offset as usize + bytes as usize);
        if bytes == 0 || bytes as usize > INTERN_BYTES_MAX || end != self.bytes.len() {
            return offset;
        }
        let same = self.same_text(offset, bytes);
        if same != offset {
            self.bytes.truncate(start);
        }
        same
    }

    /// Stores a complete text, deduplicated if it is short. Returns its offset.
    #[inline]
    pub(crate) fn text(&mut self, text: &[u8]) -> u32 {
        let offset = self.push(text);
        self.intern_tail(offset, text.len() as u32)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns the number of bytes that [`push_length`] writes.
#[inline]
pub(crate) fn length_bytes(length: u32) -> u32 {
    match length {
        0..0x40 => 1,
        0x40..0x1000 => 2,
        0x1000..0x4_0000 => 3,
        0x4_0000..0x100_0000 => 4,
        0x100_0000..0x4000_0000 => 5,
        _ => 6,
    }
}

/// Appends a length, 6 bits per byte, low bits first, bit 6 set on all but the last byte. Bit 7
/// stays clear, so the text section including the lengths is UTF-8 and can be checked as a whole.
#[inline]
fn push_length(bytes: &mut Vec<u8>, mut length: u32) {
    while length >= 0x40 {
        bytes.push((length & 0x3F) as u8 | 0x40);
        length >>= 6;
    }
    bytes.push(length as u8);
}

/// Reads a length at `at`. Returns it and the offset after it.
#[inline]
pub(crate) fn read_length(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x40 {
        return Some((u32::from(first), at + 1));
    }
    let mut length = u32::from(first & 0x3F);
    let mut shift = 6;
    loop {
        at += 1;
        let byte = *bytes.get(at)?;
        if byte >= 0x80 || shift == 30 && byte > 0x03 {
            return None;
        }
        length |= u32::from(byte & 0x3F) << shift;
        if byte < 0x40 {
            return Some((length, at + 1));
        }
        shift += 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_trip_and_are_ascii() {
        for length in [0, 63, 64, 4095, 4096, 1 << 18, 1 << 24, 1 << 30, u32::MAX] {
            let mut bytes = Vec::new();
            push_length(&mut bytes, length);
            assert!(bytes.is_ascii());
            assert_eq!(bytes.len() as u32, length_bytes(length));
            assert_eq!(read_length(&bytes, 0), Some((length, bytes.len())));
            assert_eq!(read_length(&bytes[..bytes.len() - 1], 0), None);
        }
        assert_eq!(read_length(&[0x7F; 9], 0), None);
        assert_eq!(read_length(&[0x40, 0xFF], 0), None);
    }

    #[test]
    fn equal_values_and_equal_short_texts_are_stored_once() {
        let mut arena = Arena::new(0);
        let (a, b) = (arena.value(b"x"), arena.value(b"x"));
        let (c, d) = (arena.text(b"\n  "), arena.text(b"\n  "));
        assert_eq!((a, c), (b, d));
        assert_eq!(arena.bytes(), b"\x01x\n  ");
    }

    #[test]
    fn a_shared_text_is_copied_when_it_grows() {
        let mut arena = Arena::new(0);
        let shared = arena.text(b"ab");
        arena.value(b"v");
        let (offset, bytes) = arena.extend(false, shared, 2, b"cd");
        assert_eq!(arena.slice(offset, bytes), b"abcd");
        assert_eq!(arena.slice(shared, 2), b"ab");
    }
}
