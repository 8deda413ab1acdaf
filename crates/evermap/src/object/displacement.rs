//! Translation between an object's addresses and this process's addresses.
//!
//! For a guest object, host address = guest address + base of the linear memory. A native object is
//! mapped at its own addresses, so its displacement is zero. Region records are translated when a
//! superblock is read, and translated back when one is sealed. All code in between uses addresses
//! of this process.

use crate::format::RegionRecord;

/// Offset added to an object's addresses to get this process's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Displacement(u64);

impl Displacement {
    /// Returns the displacement for a linear memory whose address zero is `memory_base` in this
    /// process.
    pub(crate) fn by(memory_base: u64) -> Displacement {
        Displacement(memory_base)
    }

    /// Converts an object's address to this process's.
    pub(crate) fn to_here(self, address: u64) -> u64 {
        address.wrapping_add(self.0)
    }

    /// Converts this process's address to the object's.
    pub(crate) fn to_object(self, address: u64) -> u64 {
        address.wrapping_sub(self.0)
    }

    /// Converts a record of the file to this process's addresses.
    pub(crate) fn record_here(self, record: &RegionRecord) -> RegionRecord {
        let checksums = if record.checksums == 0 { 0 } else { self.to_here(record.checksums) };
        RegionRecord { base: self.to_here(record.base), checksums, ..*record }
    }

    /// Converts a record to the addresses stored in the file.
    pub(crate) fn record_in_file(self, record: &RegionRecord) -> RegionRecord {
        let checksums = if record.checksums == 0 { 0 } else { self.to_object(record.checksums) };
        RegionRecord { base: self.to_object(record.base), checksums, ..*record }
    }

    /// Converts all records to the addresses stored in the file.
    pub(crate) fn records_in_file(self, records: &[RegionRecord]) -> Vec<RegionRecord> {
        records.iter().map(|record| self.record_in_file(record)).collect()
    }

    /// Converts all records of a file to this process's addresses.
    pub(crate) fn records_here(self, records: &[RegionRecord]) -> Vec<RegionRecord> {
        records.iter().map(|record| self.record_here(record)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip_and_a_missing_table_stays_missing() {
        let there = Displacement::by(0x7f00_0000_0000);
        let mut record = RegionRecord {
            base: 0x1000_0000,
            capacity: 4 << 20,
            length: 65536,
            file_offset: 0,
            meta_length: 65536,
            checksums: 0x1000_f000,
        };
        assert_eq!(there.record_here(&record).base, 0x7f00_1000_0000);
        assert_eq!(there.record_here(&record).checksums, 0x7f00_1000_f000);
        assert_eq!(there.record_in_file(&there.record_here(&record)), record);
        record.checksums = 0;
        assert_eq!(there.record_here(&record).checksums, 0);
        assert_eq!(Displacement::default().record_here(&record), record);
    }
}
