//! Information about an object that does not depend on its type. Read from the superblock and the
//! allocator's metadata.

use std::time::{Duration, SystemTime};

use crate::alloc::{HeapStatistics, statistics_of};
use crate::error::Result;
use crate::format::Superblock;
use crate::object::{ActiveProtection, Reader, Writer, hex};

/// Information about one object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// Name of the object.
    pub name: String,
    /// Id of the object, 32 hexadecimal digits. Also the name of its file.
    pub uuid: String,
    /// Time of creation.
    pub created: SystemTime,
    /// Size of the file.
    pub file_bytes: u64,
    /// First address.
    pub base_address: u64,
    /// First address of each region, and the bytes of it that the file holds.
    pub regions: Vec<(u64, u64)>,
    /// Number of the last commit.
    pub sequence: u64,
    /// Description of the root's type, truncated to 1024 bytes.
    pub root_type: String,
    /// Id of the root's type, 32 hexadecimal digits.
    pub root_type_id: String,
    /// Size of the root itself.
    pub root_bytes: u64,
    /// Statistics of the object's allocator.
    pub heap: HeapStatistics,
    /// Write protection that a session has in effect. [`Nothing`](ActiveProtection::Nothing) unless
    /// the information is from a protected session.
    pub protection: ActiveProtection,
}

impl ObjectInfo {
    pub(super) fn of_reader(name: &str, reader: &Reader) -> Result<ObjectInfo> {
        let superblock = reader.superblock();
        // SAFETY: the reader maps these regions for as long as it is borrowed here.
        let heap = unsafe { statistics_of(reader.regions()) };
        Ok(ObjectInfo::new(name, superblock, reader.file().length()?, heap))
    }

    pub(super) fn of_writer(name: &str, writer: &Writer) -> Result<ObjectInfo> {
        let file_bytes = writer.file().length()?;
        let info = ObjectInfo::new(name, writer.superblock(), file_bytes, writer.statistics());
        Ok(ObjectInfo { protection: writer.protection(), ..info })
    }

    fn new(name: &str, s: &Superblock, file_bytes: u64, heap: HeapStatistics) -> ObjectInfo {
        ObjectInfo {
            name: name.to_string(),
            uuid: hex(&s.object_uuid),
            created: SystemTime::UNIX_EPOCH + Duration::from_nanos(s.created_ns),
            file_bytes,
            base_address: s.regions[0].base,
            regions: s.regions().iter().map(|r| (r.base, r.length)).collect(),
            sequence: s.commit_sequence,
            root_type: s.schema(),
            root_type_id: hex(&s.root_type_id),
            root_bytes: s.root_bytes,
            heap,
            protection: ActiveProtection::Nothing,
        }
    }
}
