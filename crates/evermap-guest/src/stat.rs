//! What the host says of a mapped object: `ObjectStat`, as it lies in the guest's memory.

use std::mem::offset_of;

use evermap::__guest::{REGIONS_MAX, RegionRecord};

use crate::error::{Code, Error, Result};

const VERSION: u32 = 1;
const EMPTY: RegionRecord =
    RegionRecord { base: 0, capacity: 0, length: 0, file_offset: 0, meta_length: 0, checksums: 0 };

/// The host fills it, as far as it has something to say.
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
    /// Nothing known.
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

    /// The object's regions, if the structure is one that this program knows and all of it is there.
    ///
    /// # Errors
    /// `OtherKind`, `Damaged`.
    pub(crate) fn regions(&self, filled_bytes: usize, object: &str) -> Result<Vec<RegionRecord>> {
        if self.version != VERSION {
            let why = format!(
                "the host speaks of objects in version {}, this program knows {VERSION}; build it \
                 with a crate `evermap-guest` of the host's version",
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
                let why = "the host's account of its regions contradicts itself";
                Err(Error::new(Code::Damaged, object, why))
            }
        }
    }
}

/// Ends in a guest's memory, and holds what the allocator looks at.
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
    fn as_many_regions_come_out_as_the_host_says() {
        assert_eq!(stat(2).regions(64 + 96, "o").unwrap().len(), 2);
        assert_eq!(stat(32).regions(1600, "o").unwrap().len(), 32);
    }

    #[test]
    fn what_contradicts_itself_is_no_region() {
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
