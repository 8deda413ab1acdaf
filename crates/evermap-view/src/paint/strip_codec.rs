//! Packs the pixels of a strip, so that unpacking is as fast as writing memory.
//!
//! Rows of a page are mostly simple: runs of one colour, repetitions of the row above, and letters
//! in a few dozen shades. A packed strip is
//!
//! | bytes | |
//! |---|---|
//! | 2 | number of colours in the palette, at most 256 |
//! | 3 each | the palette: blue, green, red |
//! | the rest | operations |
//!
//! An operation is one byte, followed by its operands. The upper two bits are its kind, and the
//! lower six the number of pixels. A length of 62 means that it follows in two bytes, and 63 in
//! four, both little-endian.
//!
//! | kind | operands | pixels |
//! |---|---|---|
//! | 0 | 1 byte, an index into the palette | all of this colour |
//! | 1 | 1 byte per pixel, an index into the palette | |
//! | 2 | - | copied from the row above |
//! | 3 | 3 bytes per pixel: blue, green, red | |
//!
//! For comparison, LZ4 of the same pixels takes 1.9 to 11 times as long to unpack and 1.7 to 3.6
//! times the bytes, on the first screens of ten pages from the web.

const RUN: u8 = 0;
const INDICES: u8 = 1;
const ABOVE: u8 = 2;
const COLORS: u8 = 3;

const KIND_SHIFT: u32 = 6;
const LENGTH_IN_TWO: u8 = 62;
const LENGTH_IN_FOUR: u8 = 63;
const PALETTE_MAX: usize = 256;
/// Minimum length of a repetition. Shorter ones cost more as a separate operation.
const REPEATED_MIN: usize = 4;

/// Packs rows of `width` pixels, each 0x00RRGGBB.
pub(super) fn pack(pixels: &[u32], width: usize) -> Vec<u8> {
    let colors = Colors::of(pixels);
    let mut packed = Vec::with_capacity(pixels.len() / 8);
    packed.extend((colors.palette.len() as u16).to_le_bytes());
    for color in &colors.palette {
        packed.extend(&color.to_le_bytes()[..3]);
    }
    let mut literals = Literals { kind: INDICES, start: 0 };
    let mut at = 0;
    while at < pixels.len() {
        let above = match at.checked_sub(width) {
            Some(above) => common(&pixels[at..], &pixels[above..]),
            None => 0,
        };
        let color = pixels[at];
        let run = pixels[at..].iter().take_while(|pixel| **pixel == color).count();
        let index = colors.index(color);
        if above >= run.max(REPEATED_MIN) {
            literals.flush(&mut packed, &colors, &pixels[..at]);
            operation(&mut packed, ABOVE, above);
            at += above;
            literals.start = at;
        } else if let (Some(index), REPEATED_MIN..) = (index, run) {
            literals.flush(&mut packed, &colors, &pixels[..at]);
            operation(&mut packed, RUN, run);
            packed.push(index);
            at += run;
            literals.start = at;
        } else {
            let kind = if index.is_some() { INDICES } else { COLORS };
            if kind != literals.kind {
                literals.flush(&mut packed, &colors, &pixels[..at]);
                literals = Literals { kind, start: at };
            }
            at += run;
        }
    }
    literals.flush(&mut packed, &colors, pixels);
    packed
}

/// Returns the length of the common prefix.
fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Pixels since the last operation that are not a repetition.
struct Literals {
    kind: u8,
    start: usize,
}

impl Literals {
    /// Writes the pixels up to the end of `pixels`.
    fn flush(&self, packed: &mut Vec<u8>, colors: &Colors, pixels: &[u32]) {
        let literals = &pixels[self.start..];
        if literals.is_empty() {
            return;
        }
        operation(packed, self.kind, literals.len());
        match self.kind {
            INDICES => packed.extend(literals.iter().filter_map(|color| colors.index(*color))),
            _ => packed.extend(literals.iter().flat_map(|color| {
                let [blue, green, red, _] = color.to_le_bytes();
                [blue, green, red]
            })),
        }
    }
}

fn operation(packed: &mut Vec<u8>, kind: u8, length: usize) {
    let kind = kind << KIND_SHIFT;
    match length {
        0..62 => packed.push(kind | length as u8),
        62..0x1_0000 => {
            packed.push(kind | LENGTH_IN_TWO);
            packed.extend((length as u16).to_le_bytes());
        }
        _ => {
            packed.push(kind | LENGTH_IN_FOUR);
            packed.extend((length as u32).to_le_bytes());
        }
    }
}

/// Colours of a strip: a hash table without deletions, and the palette of the most frequent ones.
struct Colors {
    /// Colours with their counts, later with their indices in the palette.
    slots: Vec<(u32, u32)>,
    palette: Vec<u32>,
}

/// The table counts half as many colours as it has slots. A photo has more colours, none of them
/// frequent.
const SLOTS_BITS: u32 = 13;
const NO_COLOR: u32 = u32::MAX;
const NO_INDEX: u32 = u32::MAX;

impl Colors {
    fn of(pixels: &[u32]) -> Colors {
        let mut colors =
            Colors { slots: vec![(NO_COLOR, 0); 1 << SLOTS_BITS], palette: Vec::new() };
        let mut known = 0;
        for run in pixels.chunk_by(|one, next| one == next) {
            let color = run[0];
            let slot = colors.slot(color);
            if colors.slots[slot].0 == NO_COLOR {
                if known == 1 << (SLOTS_BITS - 1) {
                    continue;
                }
                known += 1;
                colors.slots[slot].0 = color;
            }
            colors.slots[slot].1 += run.len() as u32;
        }
        let mut frequent: Vec<(u32, u32)> =
            colors.slots.iter().filter(|(color, _)| *color != NO_COLOR).copied().collect();
        frequent.sort_unstable_by_key(|(color, count)| (std::cmp::Reverse(*count), *color));
        frequent.truncate(PALETTE_MAX);
        colors.palette = frequent.iter().map(|(color, _)| *color).collect();
        for (_, index) in &mut colors.slots {
            *index = NO_INDEX;
        }
        for (index, color) in frequent.iter().map(|(color, _)| *color).enumerate() {
            let slot = colors.slot(color);
            colors.slots[slot].1 = index as u32;
        }
        colors
    }

    /// Returns the slot of a colour, or the free slot where it would be. Half of the slots are
    /// free.
    fn slot(&self, color: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (color.wrapping_mul(0x9E37_79B1) >> (32 - SLOTS_BITS)) as usize;
        while self.slots[slot].0 != color && self.slots[slot].0 != NO_COLOR {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn index(&self, color: u32) -> Option<u8> {
        u8::try_from(self.slots[self.slot(color)].1).ok()
    }
}

/// Unpacks into all of `pixels`, which has rows of `width`. Returns `None` if `packed` does not
/// hold exactly these rows. `pixels` may be partly written then. Costs little more than writing the
/// pixels.
pub(super) fn unpack(packed: &[u8], width: usize, pixels: &mut [u32]) -> Option<()> {
    let mut packed = Packed { bytes: packed };
    let colors = usize::from(u16::from_le_bytes(packed.take_array()?));
    let mut palette = [0; PALETTE_MAX];
    let bytes = packed.take(colors * 3)?;
    for (color, bytes) in palette.get_mut(..colors)?.iter_mut().zip(bytes.as_chunks::<3>().0) {
        *color = color_of(bytes);
    }
    let mut at = 0;
    while let Some([operation]) = packed.take_array() {
        let length = match operation & LENGTH_IN_FOUR {
            LENGTH_IN_TWO => usize::from(u16::from_le_bytes(packed.take_array()?)),
            LENGTH_IN_FOUR => u32::from_le_bytes(packed.take_array()?) as usize,
            length => usize::from(length),
        };
        let (before, after) = pixels.split_at_mut(at);
        let target = after.get_mut(..length)?;
        match operation >> KIND_SHIFT {
            RUN => target.fill(palette[usize::from(packed.take_array::<1>()?[0])]),
            INDICES => {
                for (pixel, index) in target.iter_mut().zip(packed.take(length)?) {
                    *pixel = palette[usize::from(*index)];
                }
            }
            ABOVE if length <= width => {
                target.copy_from_slice(&before[at.checked_sub(width)?..][..length]);
            }
            ABOVE => {
                at.checked_sub(width)?;
                for row in (at..at + length).step_by(width) {
                    let end = (row + width).min(at + length);
                    pixels.copy_within(row - width..end - width, row);
                }
            }
            _ => {
                let colors = packed.take(length.checked_mul(3)?)?;
                for (pixel, color) in target.iter_mut().zip(colors.as_chunks::<3>().0) {
                    *pixel = color_of(color);
                }
            }
        }
        at += length;
    }
    (at == pixels.len()).then_some(())
}

fn color_of([blue, green, red]: &[u8; 3]) -> u32 {
    u32::from_le_bytes([*blue, *green, *red, 0])
}

/// Bytes that remain to be read.
struct Packed<'a> {
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*taken)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: usize = 40;

    fn unpacked(packed: &[u8], pixels: usize) -> Option<Vec<u32>> {
        let mut all = vec![0x00AB_CDEF; pixels];
        unpack(packed, WIDTH, &mut all).map(|()| all)
    }

    #[test]
    fn plain_rows_take_a_few_bytes() {
        let pixels = [0x00FF_FFFF; WIDTH * 64];
        let packed = pack(&pixels, WIDTH);
        // A palette of one colour, and one operation.
        assert_eq!(packed.len(), 2 + 3 + 4);
        assert!(unpacked(&packed, pixels.len()).unwrap() == pixels);
    }

    #[test]
    fn repeated_rows_cost_one_operation() {
        let row: Vec<u32> = (0..WIDTH as u32).map(|x| x * 0x01_0305).collect();
        let one = pack(&row, WIDTH);
        let many = pack(&row.repeat(64), WIDTH);
        assert_eq!(many.len(), one.len() + 3);
        assert!(unpacked(&many, WIDTH * 64).unwrap() == row.repeat(64));
    }

    #[test]
    fn colors_beyond_the_palette_are_stored_uncompressed() {
        let pixels: Vec<u32> = (0..WIDTH as u32 * 500).map(|n| n * 7919 % 0x0100_0000).collect();
        let packed = pack(&pixels, WIDTH);
        assert!(packed.len() <= pixels.len() * 3 + 1_000);
        assert!(unpacked(&packed, pixels.len()).unwrap() == pixels);
    }

    #[test]
    fn a_long_run_of_a_rare_color_is_packed_at_once() {
        // 300 frequent colours in runs, and one that is not in the palette.
        let mut pixels: Vec<u32> = (0..300).flat_map(|n| [n; 90]).collect();
        pixels.extend([0x00AA_AAAA; 80]);
        pixels.extend((0..20_000).map(|n| n % 5_000 + 1_000));
        assert!(unpacked(&pack(&pixels, WIDTH), pixels.len()).unwrap() == pixels);
    }

    #[test]
    fn a_row_above_the_first_is_an_error() {
        for length in [1, WIDTH, WIDTH * 2] {
            let mut packed = vec![0, 0];
            operation(&mut packed, ABOVE, length);
            assert!(unpacked(&packed, length).is_none());
        }
    }

    /// Generates rows that resemble pages: runs of a few colours, and repeated rows.
    fn page() -> impl Strategy<Value = Vec<u32>> {
        let stretch = (0_u32..12, 0_u32..3, 1_usize..70);
        let row = prop::collection::vec(stretch, 1..12);
        prop::collection::vec((row, 1_usize..4), 1..20).prop_map(|rows| {
            let mut pixels = Vec::new();
            for (stretches, times) in rows {
                let row: Vec<u32> = stretches
                    .iter()
                    .flat_map(|(color, step, count)| {
                        (0..*count as u32).map(move |n| color * 0x11_1111 + n * step)
                    })
                    .take(WIDTH)
                    .collect();
                pixels.extend(row.repeat(times));
            }
            pixels
        })
    }

    proptest! {
        #[test]
        fn unpacking_restores_the_pixels(pixels in page()) {
            let packed = pack(&pixels, WIDTH);
            prop_assert!(unpacked(&packed, pixels.len()) == Some(pixels.clone()));
            // A truncated strip must be rejected at every length.
            for end in 0..packed.len() {
                prop_assert!(unpacked(&packed[..end], pixels.len()).is_none());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(packed in prop::collection::vec(any::<u8>(), 0..200)) {
            unpacked(&packed, WIDTH * 8);
        }
    }
}
