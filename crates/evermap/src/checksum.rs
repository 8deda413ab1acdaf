//! The checksum of everything on disk: CRC32C (Castagnoli).
//!
//! Two well-kept implementations stand behind it. The quick one asks the processor what it can do
//! when it is first used, which costs 30 us in a virtual machine: a third of what opening a store
//! costs. So what is small, as all is that is read to open an object, goes to the table-driven one.

use crc::{CRC_32_ISCSI, Crc, Table};

/// Up to this many bytes the table-driven implementation is used.
const SMALL_BYTES_MAX: usize = 8192;

static TABLES: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// CRC32C of the parts, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    if parts.iter().map(|part| part.len()).sum::<usize>() <= SMALL_BYTES_MAX {
        let mut digest = TABLES.digest();
        parts.iter().for_each(|part| digest.update(part));
        digest.finalize()
    } else {
        parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_value_comes_out_whole_and_in_parts() {
        // The check value of the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"12345", b"", b"6789"]), 0xe306_9283);
    }

    #[test]
    fn small_and_large_are_computed_alike() {
        let bytes: Vec<u8> =
            (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in [SMALL_BYTES_MAX - 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 100_000] {
            let whole = &bytes[..length];
            let tables = TABLES.checksum(whole);
            assert_eq!(crc32c(&[whole]), tables);
            assert_eq!(crc32c(&[&whole[..1000], &whole[1000..]]), tables);
        }
    }
}
