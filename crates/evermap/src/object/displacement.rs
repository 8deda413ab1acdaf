//! Where an object's addresses are in this process.
//!
//! A native object lies at its own addresses. A guest object has addresses of a guest's linear
//! memory, and lies so much further on as that memory does. Region records are displaced when
//! a superblock was read, and displaced back when one is sealed: everything between works with
//! addresses of this process and knows nothing of guests.

use crate::format::RegionRecord;

/// What is added to an object's addresses to get this process's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Displacement(u64);

impl Displacement {
    /// Of objects in a linear memory whose address zero is `memory_base` here.
    pub(crate) fn by(memory_base: u64) -> Displacement {
        Displacement(memory_base)
    }

    /// An address of this process, from the object's.
    pub(crate) fn to_here(self, address: u64) -> u64 {
        address.wrapping_add(self.0)
    }

    /// The object's address, from this process's.
    pub(crate) fn to_object(self, address: u64) -> u64 {
        address.wrapping_sub(self.0)
    }

    /// A record of the file, with this process's addresses.
    pub(crate) fn record_here(self, record: &RegionRecord) -> RegionRecord {
        let checksums = if record.checksums == 0 { 0 } else { self.to_here(record.checksums) };
        RegionRecord { base: self.to_here(record.base), checksums, ..*record }
    }

    /// A record as it stands in the file.
    pub(crate) fn record_in_file(self, record: &RegionRecord) -> RegionRecord {
        let checksums = if record.checksums == 0 { 0 } else { self.to_object(record.checksums) };
        RegionRecord { base: self.to_object(record.base), checksums, ..*record }
    }

    /// All records, as they stand in the file.
    pub(crate) fn records_in_file(self, records: &[RegionRecord]) -> Vec<RegionRecord> {
        records.iter().map(|record| self.record_in_file(record)).collect()
    }

    /// All records of a file.
    pub(crate) fn records_here(self, records: &[RegionRecord]) -> Vec<RegionRecord> {
        records.iter().map(|record| self.record_here(record)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_and_a_missing_table_stays_missing() {
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
