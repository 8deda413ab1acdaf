//! Random damage to files.

use crate::common::random::Random;

/// Bytes of page 0 covered by its checksum, and the checksum's offset.
const SUPERBLOCK_CHECKED_BYTES: usize = 3072;
const LOG_REQUIRED_AT: usize = 248;
const CHECKSUM_AT: usize = 252;
/// The incompatible features, and the feature for a checksum of the root area.
const FEATURES_AT: usize = 32;
const FEATURE_LOG_2: u8 = 4;
const ROOT_CHECKSUM_AT: usize = 208;
/// Region records: offset of the first one, bytes per record, maximum number.
const REGIONS_AT: usize = 512;
const REGION_BYTES: usize = 48;
const METADATA_BYTES: u64 = 64 << 10;

/// Damages an object file in a random way. Returns the way.
pub fn damage_object(random: &mut Random, bytes: &mut Vec<u8>) -> &'static str {
    match random.below(10) {
        0 => flip(random, bytes, 4096, "page 0, flipped"),
        1 => flip(random, bytes, METADATA_BYTES, "metadata, flipped"),
        2 => flip(random, bytes, u64::MAX, "anything, flipped"),
        3 => overwrite(random, bytes, METADATA_BYTES, "metadata, overwritten"),
        4 => overwrite(random, bytes, u64::MAX, "anything, overwritten"),
        5 => resize(random, bytes),
        6 => {
            reseal(bytes);
            "sealed again"
        }
        _ => {
            for _ in 0..=random.below(3) {
                change_field(random, bytes);
            }
            reseal(bytes);
            "page 0, changed and sealed again"
        }
    }
}

/// Damages a log in a random way. Returns the way.
pub fn damage_log(random: &mut Random, bytes: &mut Vec<u8>) -> &'static str {
    match random.below(4) {
        0 => flip(random, bytes, 4096, "log, header flipped"),
        1 => flip(random, bytes, u64::MAX, "log, flipped"),
        2 => overwrite(random, bytes, u64::MAX, "log, overwritten"),
        _ => resize(random, bytes),
    }
}

fn flip(
    random: &mut Random,
    bytes: &mut [u8],
    among_first: u64,
    said: &'static str,
) -> &'static str {
    for _ in 0..=random.below(8) {
        let at = random.below(among_first.min(bytes.len() as u64)) as usize;
        bytes[at] ^= 1 + random.below(255) as u8;
    }
    said
}

/// Overwrites a range with zeros, ones or noise.
fn overwrite(
    random: &mut Random,
    bytes: &mut [u8],
    among_first: u64,
    said: &'static str,
) -> &'static str {
    let start = random.below(among_first.min(bytes.len() as u64)) as usize;
    let length = 1 + random.below(20_000) as usize;
    let end = bytes.len().min(start + length);
    match random.below(3) {
        0 => bytes[start..end].fill(0),
        1 => bytes[start..end].fill(0xff),
        _ => random.fill(&mut bytes[start..end]),
    }
    said
}

fn resize(random: &mut Random, bytes: &mut Vec<u8>) -> &'static str {
    let page = |length: u64| (length & !0xfff) as usize;
    match random.below(4) {
        0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        1 => bytes.truncate(page(random.below(bytes.len() as u64))),
        2 => bytes.truncate(random.below(4097) as usize),
        _ => {
            let mut more = vec![0; random.below(100_000) as usize];
            random.fill(&mut more);
            bytes.extend(more);
        }
    }
    "truncated or extended"
}

/// Sets a field of page 0 to a value at which arithmetic may fail. Fields of 4 bytes get halves of
/// such values.
fn change_field(random: &mut Random, bytes: &mut [u8]) {
    let words = match random.one_in(2) {
        true => 1..REGIONS_AT / 2,
        false => REGIONS_AT..REGIONS_AT + 4 * REGION_BYTES,
    };
    let at = words.start + random.below((words.end - words.start) as u64) as usize;
    let at = at & !7;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let corners = [0, 1, 0xfff, 0x1000, 0x1000_0000, 0x5000_0000, 1 << 32, 1 << 63, u64::MAX];
    let value = match random.below(5) {
        0 => corners[random.below(corners.len() as u64) as usize],
        1 => word(at).wrapping_add(4096),
        2 => word(at).wrapping_sub(4096),
        3 => word((random.below(96) * 8) as usize),
        _ => word(at) ^ 1 << random.below(64),
    };
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Updates the checksums of page 0 to its contents.
fn reseal(bytes: &mut [u8]) {
    if bytes[FEATURES_AT] & FEATURE_LOG_2 != 0 {
        let root = crc32c::crc32c(&bytes[SUPERBLOCK_CHECKED_BYTES..4096]);
        bytes[ROOT_CHECKSUM_AT..ROOT_CHECKSUM_AT + 4].copy_from_slice(&root.to_le_bytes());
    }
    let mut checked = bytes[..SUPERBLOCK_CHECKED_BYTES].to_vec();
    checked[LOG_REQUIRED_AT..CHECKSUM_AT + 4].fill(0);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
}
