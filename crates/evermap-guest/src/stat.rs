//! `ObjectStat`: the host's description of a mapped object.

use std::mem::offset_of;

use evermap_heap::format::{REGIONS_MAX, RegionRecord};

use crate::error::{Code, Error, Result};

const VERSION: u32 = 1;
const EMPTY: RegionRecord =
    RegionRecord { base: 0, capacity: 0, length: 0, file_offset: 0, meta_length: 0, checksums: 0 };

/// Record that the host fills.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct ObjectStat {
    version: u32,
    level: u32,
    base: u32,
    region_count: u32,
    sequence: u64,
    left_bytes: u64,
    address_bytes: u64,
    reserved: [u64; 3],
    regions: [RegionRecord; REGIONS_MAX],
}

const _: () = assert!(offset_of!(ObjectStat, sequence) == 16);
const _: () = assert!(offset_of!(ObjectStat, address_bytes) == 32);
const _: () = assert!(offset_of!(ObjectStat, regions) == 64);
const _: () = assert!(size_of::<ObjectStat>() == 64 + 32 * 48);

impl ObjectStat {
    /// Returns an empty record.
    pub(crate) const fn empty() -> ObjectStat {
        ObjectStat {
            version: 0,
            level: 0,
            base: 0,
            region_count: 0,
            sequence: 0,
            left_bytes: 0,
            address_bytes: 0,
            reserved: [0; 3],
            regions: [EMPTY; REGIONS_MAX],
        }
    }

    /// Returns the object's regions, if the record has a known version and is complete.
    ///
    /// # Errors
    /// `OtherKind`, `Damaged`.
    pub(crate) fn regions(&self, filled_bytes: usize, object: &str) -> Result<Vec<RegionRecord>> {
        if self.version != VERSION {
            let why = format!(
                "the host describes objects in version {}, but this program knows version {VERSION}; build it \
                 with the host's version of the crate `evermap-guest`",
                self.version
            );
            return Err(Error::new(Code::OtherKind, object, why));
        }
        let count = self.region_count as usize;
        let needed_bytes = offset_of!(ObjectStat, regions) + count * size_of::<RegionRecord>();
        match self.regions.get(..count) {
            Some(regions)
                if count > 0 && needed_bytes <= filled_bytes && regions.iter().all(is_sound) =>
            {
                Ok(regions.to_vec())
            }
            _ => {
                let why = "the host's list of its regions is inconsistent";
                Err(Error::new(Code::Damaged, object, why))
            }
        }
    }
}

/// Returns true if the region ends within a guest's memory and its lengths are consistent.
fn is_sound(region: &RegionRecord) -> bool {
    let end = region.base.checked_add(region.capacity);
    region.base > 0
        && end.is_some_and(|end| end <= 1 << 32)
        && region.meta_length <= region.length
        && region.length <= region.capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(count: u32) -> ObjectStat {
        let region = RegionRecord { base: 0x1000_0000, capacity: 9, length: 5, ..EMPTY };
        let meta_length = 3;
        let regions = [RegionRecord { meta_length, ..region }; REGIONS_MAX];
        ObjectStat { version: 1, region_count: count, regions, ..ObjectStat::empty() }
    }

    #[test]
    fn regions_returns_as_many_as_the_host_lists() {
        assert_eq!(stat(2).regions(64 + 96, "o").unwrap().len(), 2);
        assert_eq!(stat(32).regions(1600, "o").unwrap().len(), 32);
    }

    #[test]
    fn inconsistent_records_are_errors() {
        let code = |stat: &ObjectStat, bytes| stat.regions(bytes, "o").unwrap_err().code();
        assert_eq!(code(&ObjectStat { version: 2, ..stat(1) }, 1600), Code::OtherKind);
        assert_eq!(code(&stat(0), 1600), Code::Damaged);
        assert_eq!(code(&stat(33), 4000), Code::Damaged);
        assert_eq!(code(&stat(2), 64 + 95), Code::Damaged);
        for change in [
            |r: &mut RegionRecord| r.base = 0,
            |r: &mut RegionRecord| r.base = 1 << 32,
            |r: &mut RegionRecord| r.base = u64::MAX,
            |r: &mut RegionRecord| r.length = 10,
            |r: &mut RegionRecord| r.meta_length = 6,
        ] {
            let mut stat = stat(1);
            change(&mut stat.regions[0]);
            assert_eq!(code(&stat, 1600), Code::Damaged);
        }
    }
}
