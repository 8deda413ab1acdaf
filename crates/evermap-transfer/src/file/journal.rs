//! Journal of a part: identifies the source and the durable spans.
//!
//! A header, then records, all little-endian:
//!
//! ```text
//!   0   8  magic "EVMPART\n"
//!   8   4  version, 1
//!  12   4  salt, which distinguishes records of earlier journals in the same blocks
//!  16   8  the source's device        24   8  its inode
//!  32   8  its size in bytes          40   8  mtime, seconds
//!  48   8  ctime, seconds             56   4  mtime, nanoseconds     60   4  ctime, nanoseconds
//!  64  56  zero                      120   4  zero
//! 124   4  CRC32C of the 124 bytes before
//!
//!   0   8  first byte of a span       8   8  the byte after its last one
//!  16   4  salt                      20   4  CRC32C of the 20 bytes before
//! ```
//!
//! A record is written after its span was flushed. A torn record ends the journal, and its span is
//! copied again.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{Errno, pwrite};

use super::identity::Identity;
use super::read_fully::read_fully;
use crate::span::Span;

const MAGIC: &[u8; 8] = b"EVMPART\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 24;
/// Maximum number of records read: at 64 MiB each, 64 TiB.
const RECORDS_MAX: usize = 1 << 20;

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: OwnedFd,
    name: CString,
    salt: u32,
    records: u64,
}

impl Journal {
    /// Opens the journal and returns the spans it records for `source`. If it is invalid or of
    /// another source, it is reset and no spans are returned.
    pub(super) fn open(
        directory: BorrowedFd<'_>,
        name: &CStr,
        source: &Identity,
    ) -> Result<(Journal, Vec<Span>), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut header = [0; HEADER_BYTES];
        let read = read_fully(file.as_fd(), &mut header, 0)?;
        if let (HEADER_BYTES, Some((salt, of))) = (read, decode_header(&header))
            && of == *source
        {
            let mut journal = Journal { file, name: name.into(), salt, records: 0 };
            let spans = journal.read_records(source.size_bytes)?;
            return Ok((journal, spans));
        }
        let mut journal = Journal { file, name: name.into(), salt: 0, records: 0 };
        journal.reset(source)?;
        Ok((journal, Vec::new()))
    }

    /// Discards all records and writes a new header.
    pub(super) fn reset(&mut self, source: &Identity) -> Result<(), Errno> {
        self.salt = getrandom::u32().map_err(|_| Errno::IO)?;
        self.records = 0;
        fs::ftruncate(&self.file, 0)?;
        write_fully(&self.file, &encode_header(self.salt, source), 0)?;
        fs::fsync(&self.file)
    }

    /// Records that `span` is durable.
    pub(super) fn record(&mut self, span: Span) -> Result<(), Errno> {
        let at = HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64;
        write_fully(&self.file, &encode_record(self.salt, span), at)?;
        fs::fdatasync(&self.file)?;
        self.records += 1;
        Ok(())
    }

    /// Removes the journal of a complete or abandoned copy.
    pub(super) fn remove(self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        fs::unlinkat(directory, &self.name, AtFlags::empty())
    }

    fn read_records(&mut self, size_bytes: u64) -> Result<Vec<Span>, Errno> {
        let mut spans = Vec::new();
        while spans.len() < RECORDS_MAX {
            let mut record = [0; RECORD_BYTES];
            let at = HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64;
            if read_fully(self.file.as_fd(), &mut record, at)? < RECORD_BYTES {
                break;
            }
            match decode_record(&record, self.salt) {
                Some(span) if !span.is_empty() && span.end <= size_bytes => spans.push(span),
                _ => break,
            }
            self.records += 1;
        }
        Ok(spans)
    }
}

fn encode_header(salt: u32, source: &Identity) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &salt.to_le_bytes());
    put(16, &source.device.to_le_bytes());
    put(24, &source.inode.to_le_bytes());
    put(32, &source.size_bytes.to_le_bytes());
    put(40, &source.modified.0.to_le_bytes());
    put(48, &source.changed.0.to_le_bytes());
    put(56, &source.modified.1.to_le_bytes());
    put(60, &source.changed.1.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Option<(u32, Identity)> {
    let u32_at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    if &bytes[..8] != MAGIC
        || u32_at(8)? != VERSION
        || u32_at(124)? != crc32c::crc32c(&bytes[..124])
    {
        return None;
    }
    let identity = Identity {
        device: u64_at(16)?,
        inode: u64_at(24)?,
        size_bytes: u64_at(32)?,
        modified: (u64_at(40)? as i64, u32_at(56)?),
        changed: (u64_at(48)? as i64, u32_at(60)?),
    };
    Some((u32_at(12)?, identity))
}

fn encode_record(salt: u32, span: Span) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&span.begin.to_le_bytes());
    bytes[8..16].copy_from_slice(&span.end.to_le_bytes());
    bytes[16..20].copy_from_slice(&salt.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_record(bytes: &[u8; RECORD_BYTES], salt: u32) -> Option<Span> {
    let u32_at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    if u32_at(16)? != salt || u32_at(20)? != crc32c::crc32c(&bytes[..20]) {
        return None;
    }
    Some(Span::new(u64_at(0)?, u64_at(8)?))
}

fn write_fully(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const SOURCE: Identity =
        Identity { device: 1, inode: 2, size_bytes: 1000, modified: (3, 4), changed: (-5, 6) };

    fn opened(directory: &File, source: &Identity) -> (Journal, Vec<Span>) {
        Journal::open(directory.as_fd(), c"journal", source).unwrap()
    }

    #[test]
    fn records_are_valid_only_for_the_same_source() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let (mut journal, spans) = opened(&directory, &SOURCE);
        assert_eq!(spans, []);
        let recorded = [Span::new(0, 500), Span::new(700, 1000)];
        recorded.into_iter().for_each(|span| journal.record(span).unwrap());
        assert_eq!(opened(&directory, &SOURCE).1, recorded);
        assert_eq!(opened(&directory, &Identity { modified: (3, 5), ..SOURCE }).1, []);
        assert_eq!(
            opened(&directory, &SOURCE).1,
            [],
            "opening for another source must reset the journal"
        );
    }

    #[test]
    fn damaged_record_ends_the_journal() {
        for at in 0..(HEADER_BYTES + 2 * RECORD_BYTES) as u64 {
            let place = tempfile::tempdir().unwrap();
            let directory = File::open(place.path()).unwrap();
            let (mut journal, _) = opened(&directory, &SOURCE);
            let recorded = [Span::new(0, 500), Span::new(700, 1000)];
            recorded.into_iter().for_each(|span| journal.record(span).unwrap());
            let file =
                File::options().read(true).write(true).open(place.path().join("journal")).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            let left = ((at.saturating_sub(HEADER_BYTES as u64)) / RECORD_BYTES as u64) as usize;
            assert_eq!(opened(&directory, &SOURCE).1, recorded[..left]);
        }
    }
}
