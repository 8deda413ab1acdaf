//! Postings: for each key, the ids of the nodes that have it, in document order.
//!
//! Ids of one key increase, so each is stored as the difference from the previous one (the first
//! from 0) in a variable-length integer. On real pages this takes 1.2 bytes per element instead of
//! the 4 of a plain array. Reading is sequential, which is sufficient for queries.

/// Start and number of one key's postings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub offset: u32,
    pub count: u32,
}

/// Groups (key, node) pairs by key. `pairs` is called twice and must return the same pairs, with
/// increasing nodes within a key.
pub(crate) fn build(
    keys: usize,
    mut pairs: impl FnMut(&mut dyn FnMut(u32, u32)),
) -> (Vec<Place>, Vec<u8>) {
    let mut places = vec![Place::default(); keys];
    pairs(&mut |key, _| places[key as usize].count += 1);
    let mut starts = Vec::with_capacity(keys);
    let mut total = 0usize;
    for place in &places {
        starts.push(total);
        total += place.count as usize;
    }
    let mut nodes = vec![0u32; total];
    pairs(&mut |key, node| {
        let at = &mut starts[key as usize];
        nodes[*at] = node;
        *at += 1;
    });
    let mut bytes = Vec::with_capacity(total + total / 2);
    let mut at = 0usize;
    for place in &mut places {
        place.offset = bytes.len() as u32;
        let mut last = 0;
        for &node in &nodes[at..at + place.count as usize] {
            push_varint(&mut bytes, node - last);
            last = node;
        }
        at += place.count as usize;
    }
    (places, bytes)
}

/// Appends a number, 7 bits per byte, low bits first, high bit set on all but the last byte.
#[inline]
fn push_varint(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number at `at`. Returns it and the offset after it.
#[inline]
fn read_varint(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        if shift == 28 && byte > 0x0F {
            return None;
        }
        number |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some((number, at));
        }
        shift += 7;
    }
}

/// Reads the postings of one key. For any bytes, ids increase and the reader ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Postings<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
    last: u32,
}

impl<'a> Postings<'a> {
    pub(crate) fn new(bytes: &'a [u8], offset: u32, count: u32) -> Postings<'a> {
        Postings { bytes, at: offset as usize, left: count, last: 0 }
    }

    /// Returns an upper bound on the number of remaining ids.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Returns the offset after the ids read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }
}

impl Iterator for Postings<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let next = read_varint(self.bytes, self.at)
            .and_then(|(distance, at)| Some((self.last.checked_add(distance)?, at)))
            .filter(|&(id, _)| id > self.last);
        match next {
            Some((id, at)) => {
                self.at = at;
                self.last = id;
                Some(id)
            }
            None => {
                self.left = 0;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postings_come_back_sorted_by_key() {
        let pairs = [(1, 1), (0, 2), (1, 3), (1, 900), (0, 70_000)];
        let (places, bytes) = build(3, |put| pairs.iter().for_each(|&(k, n)| put(k, n)));
        let read = |key: usize| -> Vec<u32> {
            Postings::new(&bytes, places[key].offset, places[key].count).collect()
        };
        assert_eq!(read(0), [2, 70_000]);
        assert_eq!(read(1), [1, 3, 900]);
        assert!(read(2).is_empty());
    }

    #[test]
    fn differences_round_trip() {
        for number in [1, 127, 128, 16383, 16384, 1 << 21, 1 << 28, u32::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            assert_eq!(read_varint(&bytes, 0), Some((number, bytes.len())));
            assert_eq!(read_varint(&bytes[..bytes.len() - 1], 0), None);
        }
    }

    #[test]
    fn damaged_postings_increase_and_end() {
        assert_eq!(Postings::new(&[5, 0, 7], 0, 3).collect::<Vec<_>>(), [5]);
        assert_eq!(Postings::new(&[5, 0xFF], 0, u32::MAX).count(), 1);
        assert_eq!(Postings::new(&[1], 400, 9).count(), 0);
    }
}
