//! File format of exports, with a writer and a reader. Both work front to back, so pipes suffice.
//!
//! A file has a header, page 0 of the object, runs of pages in order, and an end record with the
//! number of pages. A truncated file has no end record. The reader verifies every field before it
//! is used. `docs/tools.md` describes the format.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable, bytes_of};

use crate::checksum::crc32c;
use crate::error::Error as StoreError;
use crate::format::{FILE_BYTES_MAX, PAGE_BYTES, Superblock};
use crate::tools::error::{Error, Result};
use crate::tools::report::quantity;

const PAGE: usize = PAGE_BYTES as usize;
/// First eight bytes of an export.
const MAGIC: [u8; 8] = *b"EVEREXP\n";
/// Format version that this build writes.
const VERSION: u32 = 1;
/// Limit of pages per run.
pub(super) const RUN_PAGES_MAX: usize = 256;
/// Flag: the object has pointers to other objects.
pub(super) const POINTS_ELSEWHERE: u64 = 1;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    /// CRC32C of this header with this field zero, followed by page 0.
    checksum: u32,
    flags: u64,
    reserved: [u64; 5],
}
const _: () = assert!(size_of::<Header>() == 64);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Run {
    /// Number of the first page in the object file; all ones for the end record.
    first: u64,
    pages: u32,
    /// CRC32C of this record with this field zero, followed by the pages.
    checksum: u32,
}
const _: () = assert!(size_of::<Run>() == 16);

/// Writes an export.
pub(super) struct Writer<'a> {
    target: &'a mut dyn Write,
    display_name: PathBuf,
    run: Vec<u8>,
    first: u64,
    pub(super) pages: u64,
    pub(super) bytes: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(
        target: &'a mut dyn Write,
        display_name: &Path,
        superblock: &Superblock,
        flags: u64,
    ) -> Result<Writer<'a>> {
        let mut header =
            Header { magic: MAGIC, version: VERSION, checksum: 0, flags, reserved: [0; 5] };
        header.checksum = crc32c(&[bytes_of(&header), bytes_of(superblock)]);
        let display_name = display_name.to_path_buf();
        let mut writer =
            Writer { target, display_name, run: Vec::new(), first: 0, pages: 0, bytes: 0 };
        writer.put(bytes_of(&header))?;
        writer.put(bytes_of(superblock))?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        let written = self.target.write_all(bytes);
        written.map_err(|error| self.failed_write(error, bytes.len() as u64))
    }

    /// Adds a page. Page numbers must be ascending.
    pub(super) fn page(&mut self, number: u64, page: &[u8]) -> Result<()> {
        let next = self.first + (self.run.len() / PAGE) as u64;
        if number != next || self.run.len() >= RUN_PAGES_MAX * PAGE {
            self.end_run()?;
            self.first = number;
        }
        self.run.extend_from_slice(page);
        self.pages += 1;
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        let pages = std::mem::take(&mut self.run);
        let mut run = Run { first: self.first, pages: (pages.len() / PAGE) as u32, checksum: 0 };
        run.checksum = crc32c(&[bytes_of(&run), &pages]);
        self.put(bytes_of(&run))?;
        self.put(&pages)
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_run()?;
        let pages = self.pages.to_le_bytes();
        let mut end = Run { first: u64::MAX, pages: 0, checksum: 0 };
        end.checksum = crc32c(&[bytes_of(&end), &pages]);
        self.put(bytes_of(&end))?;
        self.put(&pages)?;
        let flushed = self.target.flush();
        flushed.map_err(|error| self.failed_write(error, self.bytes))
    }

    fn failed_write(&self, source: std::io::Error, bytes: u64) -> Error {
        StoreError::from_io_sized(source, "write", &self.display_name, bytes).into()
    }
}

/// Reads an export.
pub(super) struct Reader<'a> {
    source: &'a mut dyn Read,
    display_name: PathBuf,
    pub(super) superblock: Box<Superblock>,
    pub(super) flags: u64,
    /// Number after the last page read.
    next: u64,
    pages: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn begin(source: &'a mut dyn Read, display_name: &Path) -> Result<Reader<'a>> {
        let display_name = display_name.to_path_buf();
        let superblock = Box::new(Superblock::zeroed());
        let mut reader = Reader { source, display_name, superblock, flags: 0, next: 1, pages: 0 };
        let mut bytes = [0; size_of::<Header>()];
        let got = reader.some(&mut bytes)?;
        if bytes[..got.min(8)] != MAGIC[..got.min(8)] || got == 0 {
            let shown: String = bytes[..got.min(8)].escape_ascii().to_string();
            let found = if got == 0 {
                "the file is empty".into()
            } else {
                format!("it begins with \"{shown}\" instead of \"EVEREXP\"")
            };
            return Err(StoreError::Foreign { path: reader.display_name, found }.into());
        }
        let header: Header = bytemuck::pod_read_unaligned(&bytes);
        if got >= 12 && header.version > VERSION {
            return Err(Error::Store(StoreError::NewerFormat {
                path: reader.display_name,
                found: format!("export version {}", header.version),
                known: format!("export version {VERSION}"),
            }));
        }
        if got < bytes.len() {
            return Err(reader.cut("a header of 64 bytes"));
        }
        let mut page = [0; PAGE];
        reader.whole(&mut page, "page 0 of the object")?;
        let unsigned = Header { checksum: 0, ..header };
        let computed = crc32c(&[bytes_of(&unsigned), &page]);
        if computed != header.checksum || header.version == 0 {
            return Err(reader.bad("the header's checksum", header.checksum, computed));
        }
        reader.superblock = Box::new(*bytemuck::cast_ref(&page));
        reader.flags = header.flags;
        let length = reader.superblock.file_length;
        if length > FILE_BYTES_MAX || !length.is_multiple_of(PAGE_BYTES) {
            let found = format!("an object of {}", quantity(length, "byte"));
            let expected = format!("whole pages, at most {FILE_BYTES_MAX} bytes");
            return Err(reader.refuse(found, expected));
        }
        Ok(reader)
    }

    /// Reads the next run of pages. Returns the number of its first page, or `None` at the end.
    pub(super) fn run(&mut self, pages: &mut Vec<u8>) -> Result<Option<u64>> {
        let mut bytes = [0; size_of::<Run>()];
        self.whole(&mut bytes, "a run of pages or the end")?;
        let run: Run = bytemuck::pod_read_unaligned(&bytes);
        let unsigned = Run { checksum: 0, ..run };
        if run.first == u64::MAX {
            let mut count = [0; 8];
            self.whole(&mut count, "the number of pages")?;
            let computed = crc32c(&[bytes_of(&unsigned), &count]);
            if run.pages != 0 || computed != run.checksum {
                return Err(self.bad("the end's checksum", run.checksum, computed));
            }
            let count = u64::from_le_bytes(count);
            if count != self.pages {
                let (found, expected) = (quantity(self.pages, "page"), quantity(count, "page"));
                return Err(self.refuse(found, expected));
            }
            return match self.some(&mut [0])? {
                0 => Ok(None),
                _ => Err(self.refuse("more bytes after the end", "none")),
            };
        }
        let end = run.first.checked_add(run.pages.into());
        let last = self.superblock.file_length / PAGE_BYTES;
        let sound = (1..=RUN_PAGES_MAX).contains(&(run.pages as usize))
            && run.first >= self.next
            && end.is_some_and(|end| end <= last);
        if !sound {
            let found = format!("{} from page {}", quantity(run.pages.into(), "page"), run.first);
            let expected = format!("1 to {RUN_PAGES_MAX} pages from {} to {last}", self.next);
            return Err(self.refuse(found, expected));
        }
        pages.resize(run.pages as usize * PAGE, 0);
        self.whole(pages, "the pages of a run")?;
        let computed = crc32c(&[bytes_of(&unsigned), pages]);
        if computed != run.checksum {
            return Err(self.bad("a run's checksum", run.checksum, computed));
        }
        self.next = run.first + u64::from(run.pages);
        self.pages += u64::from(run.pages);
        Ok(Some(run.first))
    }

    /// Reads until the buffer is full or the source ends. Returns the number of bytes.
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.source.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(StoreError::from_io(e, "read", &self.display_name).into()),
            }
        }
        Ok(got)
    }

    fn whole(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        let got = self.some(buffer)?;
        if got < buffer.len() { Err(self.cut(what)) } else { Ok(()) }
    }

    fn cut(&self, expected: &str) -> Error {
        self.refuse("the end of the file, which was cut short", expected)
    }

    fn bad(&self, what: &str, stored: u32, computed: u32) -> Error {
        self.refuse(format!("{what} {stored:#010x}"), format!("{computed:#010x}"))
    }

    fn refuse(&self, found: impl Into<String>, expected: impl Into<String>) -> Error {
        let path = self.display_name.clone();
        Error::BadExport { path, found: found.into(), expected: expected.into() }
    }
}
