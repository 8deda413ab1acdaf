//! Checksum of all data on disk: CRC32C (Castagnoli).
//!
//! Small inputs, such as everything read to open an object, use the processor's instruction
//! directly. The `crc32c` crate computes three parts of a page at once, which is faster for large
//! inputs. But its first use queries every processor feature. Each query traps in a virtual
//! machine, 3.5 us, and together they take 30 us: a third of the cost of opening a store.

/// Maximum size of a small input.
const SMALL_BYTES_MAX: usize = 8192;

/// CRC32C of the concatenated parts.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if parts.iter().map(|part| part.len()).sum::<usize>() <= SMALL_BYTES_MAX
        && let Some(crc) = instruction::crc32c(parts)
    {
        return crc;
    }
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// CRC32C by the instruction of x86-64 processors.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod instruction {
    use std::arch::x86_64::{__cpuid, _mm_crc32_u8, _mm_crc32_u64};
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Bit of `cpuid` leaf 1 in ECX.
    const SSE4_2: u32 = 1 << 20;
    const WORD_BYTES: usize = size_of::<u64>();

    pub(super) fn crc32c(parts: &[&[u8]]) -> Option<u32> {
        if !is_supported() {
            return None;
        }
        // SAFETY: the check above found that the processor has the instruction.
        Some(!parts.iter().fold(!0, |state, part| unsafe { append(state, part) }))
    }

    /// Queries the processor once per process, and only for this feature.
    fn is_supported() -> bool {
        const UNKNOWN: u8 = 2;
        static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
        if cfg!(target_feature = "sse4.2") {
            return true;
        }
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => {
                // SAFETY: every x86-64 processor supports `cpuid`.
                #[allow(unused_unsafe, reason = "a safe function since Rust 1.94")]
                let there = unsafe { __cpuid(1) }.ecx & SSE4_2 != 0;
                KNOWN.store(there.into(), Ordering::Relaxed);
                there
            }
            known => known == 1,
        }
    }

    #[target_feature(enable = "sse4.2")]
    fn append(state: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        let state = words
            .iter()
            .fold(state.into(), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
        rest.iter().fold(state as u32, |state, byte| _mm_crc32_u8(state, *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_computed_whole_and_in_parts() {
        // The check value of the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"12345", b"", b"6789"]), 0xe306_9283);
    }

    /// Computes the checksum bit by bit, from its definition.
    fn by_bits(bytes: &[u8]) -> u32 {
        const POLYNOMIAL: u32 = 0x82f6_3b78;
        let step = |state: u32, _| state >> 1 ^ if state & 1 == 1 { POLYNOMIAL } else { 0 };
        !bytes.iter().fold(!0, |state, byte| (0..8).fold(state ^ u32::from(*byte), step))
    }

    #[test]
    fn small_and_large_inputs_have_the_same_checksum() {
        let bytes: Vec<u8> =
            (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let small = [0, 1, 7, 8, 9, 63, 64, 1023, 4096];
        let large = [SMALL_BYTES_MAX - 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 90_000];
        for length in small.into_iter().chain(large) {
            for first in [0, 1, 5] {
                let whole = &bytes[first..first + length];
                let expected = by_bits(whole);
                assert_eq!(crc32c(&[whole]), expected, "{length} bytes from {first}");
                assert_eq!(crc32c::crc32c(whole), expected, "{length} bytes from {first}");
                let (a, b) = whole.split_at(length / 3);
                assert_eq!(crc32c(&[a, b]), expected, "{length} bytes from {first}, in parts");
            }
        }
    }
}
