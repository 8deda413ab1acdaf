//! `ObjectStat`: the record that describes a mapped object to a guest, as in `docs/sandbox.md`.

use super::Mapped;
use crate::access::Level;

/// Version of the structure.
const VERSION: u32 = 1;
/// Offset of the first region record.
const REGIONS_OFFSET: usize = 64;

/// Encodes 64 bytes of numbers and a record per region, little-endian.
pub(super) fn encode(base: u32, level: Level, mapped: &Mapped, left_bytes: u64) -> Vec<u8> {
    let regions = mapped.regions();
    let leased_bytes: u64 = regions.iter().map(|region| region.lease().1).sum();
    let level = match level {
        Level::None => 0u32,
        Level::Snapshot => 1,
        Level::Read => 2,
        Level::Write => 3,
    };
    let mut stat = Vec::with_capacity(REGIONS_OFFSET + regions.len() * 48);
    for number in [VERSION, level, base, regions.len() as u32] {
        stat.extend(number.to_le_bytes());
    }
    for number in [mapped.sequence(), left_bytes, leased_bytes] {
        stat.extend(number.to_le_bytes());
    }
    stat.resize(REGIONS_OFFSET, 0);
    for region in regions {
        stat.extend(region.to_bytes());
    }
    stat
}
