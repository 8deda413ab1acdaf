//! Size classes of small blocks: multiples of 16 up to 128 bytes, then four classes per doubling up
//! to 32 KiB. Above 128 bytes a block wastes at most a fifth of its size.

use crate::format::{BLOCK_BYTES_MIN, CHUNK_BYTES};

/// Number of classes.
pub const CLASSES: usize = 40;
/// Largest size served from slabs.
pub(crate) const SMALL_BYTES_MAX: usize = 32 * 1024;

/// Block size of each class.
const SIZES: [u32; CLASSES] = sizes();

const fn sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = if class < 8 {
            (class as u32 + 1) * BLOCK_BYTES_MIN as u32
        } else {
            let group = (class as u32 - 8) / 4;
            let step = (class as u32 - 8) % 4;
            (5 + step) << (5 + group)
        };
        class += 1;
    }
    sizes
}
const _: () = assert!(SIZES[CLASSES - 1] as usize == SMALL_BYTES_MAX);

/// Bytes of a block of `class`.
#[inline]
pub fn block_bytes(class: usize) -> usize {
    SIZES[class] as usize
}

/// Blocks in a slab of `class`.
#[inline]
pub fn blocks_per_slab(class: usize) -> u32 {
    CHUNK_BYTES as u32 / SIZES[class]
}

/// Maximum number of blocks in use at which a slab of `blocks` is offered for allocation: an
/// eighth, and at least one block, must be free. A fragmented heap then allocates from few slabs,
/// and the cost of switching to a slab is spread over many blocks.
#[inline]
pub const fn offered_used_max(blocks: u32) -> u32 {
    let eighth = blocks / 8;
    blocks.saturating_sub(if eighth == 0 { 1 } else { eighth })
}

/// Bits of a chunk's granules at which blocks of each class begin.
static STARTS: [[u64; 64]; CLASSES] = {
    let mut starts = [[0; 64]; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let step = SIZES[class] as usize / BLOCK_BYTES_MIN;
        let mut granule = 0;
        while granule + step <= 64 * 64 {
            starts[class][granule / 64] |= 1 << (granule % 64);
            granule += step;
        }
        class += 1;
    }
    starts
};

/// Returns a bit per 16 bytes of a chunk, set where a block of `class` begins.
#[inline]
pub(super) fn starts_of_class(class: usize) -> &'static [u64; 64] {
    &STARTS[class % CLASSES]
}

/// Sizes up to this limit find their class in a table.
const QUICK_BYTES_MAX: usize = 1024;
const QUICK: [u8; QUICK_BYTES_MAX / BLOCK_BYTES_MIN + 1] = {
    let mut classes = [0; QUICK_BYTES_MAX / BLOCK_BYTES_MIN + 1];
    let mut at = 1;
    while at < classes.len() {
        let mut class = classes[at - 1];
        while (SIZES[class as usize] as usize) < at * BLOCK_BYTES_MIN {
            class += 1;
        }
        classes[at] = class;
        at += 1;
    }
    classes
};

/// Like [`class_of`], for small sizes and alignments up to the minimum block alignment. Returns
/// `None` for others and for invalid alignments.
#[inline(always)]
pub(crate) fn quick_class_of(size: usize, align: usize) -> Option<usize> {
    if size > QUICK_BYTES_MAX || align > BLOCK_BYTES_MIN || !align.is_power_of_two() {
        return None;
    }
    Some(QUICK[size.div_ceil(BLOCK_BYTES_MIN)] as usize)
}

/// Returns the smallest class whose blocks hold `size` bytes at multiples of `align`, or `None` if
/// only a large block can. `align` is a power of two.
pub(crate) fn class_of(size: usize, align: usize) -> Option<usize> {
    let size = size.max(1);
    if size > SMALL_BYTES_MAX || align > SMALL_BYTES_MAX {
        return None;
    }
    let mut class = if size <= 128 {
        size.div_ceil(BLOCK_BYTES_MIN) - 1
    } else {
        let last = size - 1;
        let shift = last.ilog2() as usize;
        8 + (shift - 7) * 4 + ((last >> (shift - 2)) & 3)
    };
    // Slabs begin at chunk multiples: block `i` is aligned when the block size is.
    while class < CLASSES && !block_bytes(class).is_multiple_of(align) {
        class += 1;
    }
    (class < CLASSES).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=SMALL_BYTES_MAX {
            let class = class_of(size, 16).unwrap();
            assert!(block_bytes(class) >= size, "{size}");
            assert!(class == 0 || block_bytes(class - 1) < size, "{size}");
            assert!(block_bytes(class) <= (size.max(16)).next_multiple_of(16).max(size * 5 / 4));
        }
        assert_eq!(class_of(SMALL_BYTES_MAX + 1, 1), None);
    }

    #[test]
    fn the_class_table_agrees_with_class_of() {
        for size in 0..=2 * QUICK_BYTES_MAX {
            for align in 0..=32 {
                let class = quick_class_of(size, align);
                let sound = align.is_power_of_two() && align <= 16 && size <= QUICK_BYTES_MAX;
                assert_eq!(class.is_some(), sound);
                assert!(class.is_none() || class == class_of(size, align), "{size} {align}");
            }
        }
    }

    #[test]
    fn blocks_of_every_class_are_aligned() {
        for align in (0..16).map(|b| 1usize << b) {
            for size in [1, 17, 100, 700, 5000, 20_000] {
                let class = class_of(size, align).unwrap();
                assert!(block_bytes(class) >= size && block_bytes(class).is_multiple_of(align));
            }
        }
        assert_eq!(class_of(1, 65536), None);
    }

    #[test]
    fn every_slab_fits_its_bitmap() {
        assert!((0..CLASSES).all(|c| blocks_per_slab(c) <= 4096 && blocks_per_slab(c) >= 2));
    }
}
