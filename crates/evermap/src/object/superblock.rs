//! Reads and checks superblocks, and writes them.
//!
//! No field of a file is used before it was checked: magic, format, features, checksum, identity,
//! lengths, region table, root. After [`read`] every field may be used without a further check.

use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of};

use super::{Identity, ObjectPaths};
use crate::checksum::crc32c;
use crate::commit::{Log, Overlay, locks};
use crate::error::{Error, Result};
use crate::format::{
    BLOCK_BYTES_MIN, CHUNK_BYTES, COUNT_MAX, FEATURE_GUEST, FEATURE_LOG_2, FEATURE_TEXT_IN_PLACE,
    FORMAT_VERSION, GuestRecord, INCOMPATIBLE_KNOWN, LOG_REQUIRED, LOG_REQUIRED_OLD, PAGE_BYTES,
    READ_ONLY_COMPATIBLE_KNOWN, REGIONS_MAX, ROOT_AREA_OFFSET, RegionRecord, SCHEMA_BYTES_MAX,
    SUPERBLOCK_CHECKED_BYTES, SUPERBLOCK_MAGIC, Superblock, checksum_table_bytes, meta_length,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, Storage};

/// A checked superblock, and the commits that its log holds beyond the object file.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) superblock: Box<Superblock>,
    pub(crate) log: Option<Log>,
    /// The combined lines of those commits.
    pub(crate) overlay: Overlay,
}

/// Source of the log, if the object needs it. The caller keeps the log from being reset.
pub(crate) enum LogSource<'a> {
    /// Path of the log, and the mode to open it with.
    Path(&'a dyn Storage, &'a Path, OpenMode),
    /// The open file.
    File(&'a Arc<dyn File>),
}

/// Like [`read`] for a reader, which holds the content lock only. Locks the log while it reads it.
pub(crate) fn read_shared(
    file: &dyn File,
    (storage, paths): (&dyn Storage, &ObjectPaths),
) -> Result<Loaded> {
    let expected = &paths.identity;
    // Most objects are read while nobody writes them. Page 0 then says that the log does not
    // matter. Take the lock only if it says otherwise, or if its writer is just changing it.
    if let Ok(page) = read_page(file)
        && page.needs_log() == Some(false)
        && let Ok(superblock) = checked(file, page, expected)
    {
        return Ok(Loaded { superblock, log: None, overlay: Overlay::default() });
    }
    let _log_lock = locks::hold_log_for_reading(file, &paths.display_name)?;
    read(file, LogSource::Path(storage, &paths.log_path, OpenMode::Read), expected)
}

/// Reads and checks page 0, with the log's commits applied to it.
pub(crate) fn read(file: &dyn File, log: LogSource<'_>, expected: &Identity) -> Result<Loaded> {
    let mut raw = read_page(file)?;
    let log_source = log;
    let mut log = None;
    let mut overlay = Overlay::default();
    if needs_log(file.path(), &raw)? {
        let log_file = match log_source {
            LogSource::File(file) => Arc::clone(file),
            LogSource::Path(storage, log_path, mode) => match storage.open(log_path, mode) {
                Err(e) if e.is_missing_file() => return Err(log_missing(file, log_path)?),
                other => other?,
            },
        };
        let log_path = log_file.path().to_path_buf();
        let (opened, commits) = Log::open(log_file, raw.object_uuid, raw.commit_sequence)?;
        check_ages(file, &log_path, raw.commit_sequence, &opened)?;
        overlay = Overlay::of_commits(&commits);
        overlay.patch(0, bytemuck::cast_mut(&mut *raw));
        log = Some(opened);
    }
    Ok(Loaded { superblock: checked(file, raw, expected)?, log, overlay })
}

fn checked(
    file: &dyn File,
    superblock: Box<Superblock>,
    expected: &Identity,
) -> Result<Box<Superblock>> {
    // The file may have grown since it was opened.
    let length = match file.length_after_open()? {
        enough if enough >= superblock.file_length => enough,
        _ => file.length()?,
    };
    check(file.path(), &superblock, length, expected)?;
    Ok(superblock)
}

/// Returns true if the object needs its log. This code is read before the checksum is checked and
/// is not covered by it, which is why its values differ in many bits.
fn needs_log(path: &Path, s: &Superblock) -> Result<bool> {
    s.needs_log().ok_or_else(|| {
        let found = format!("{:#010x}", s.log_required);
        damaged(path, "the code that says whether the log is needed", found, LOG_CODES)
    })
}

const LOG_CODES: &str = "0x00000000 for no, 0x96a5c35a for yes";

/// Returns the error for a missing log. A file that was replaced while it was being opened still
/// asks for the log, which its successor may have removed.
fn log_missing(file: &dyn File, log_path: &Path) -> Result<Error> {
    let path = file.path();
    if file.has_a_name()? {
        let log = log_path.to_path_buf();
        return Ok(Error::LogMissing { path: path.to_path_buf(), log });
    }
    Ok(Error::from_io(std::io::ErrorKind::NotFound.into(), "open", path))
}

/// Checks that the file and its log belong together.
fn check_ages(file: &dyn File, log_path: &Path, file_sequence: u64, log: &Log) -> Result<()> {
    // Pages are written to the object only after their record is durable: if the object is ahead of
    // its log, a part of the log is lost.
    if file_sequence > log.sequence() && !mutated(Mutant::AgesIgnored) {
        return Err(damaged(
            log_path,
            "the log",
            format!("commits up to {}", log.sequence()),
            format!("commits up to {file_sequence}, which the object file has"),
        ));
    }
    if log.base_sequence() <= file_sequence {
        return Ok(());
    }
    // A log is reset only when the object file has caught up, so this file is an old one. It was
    // replaced while it was being opened, or an old copy was put back.
    if !file.has_a_name()? {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(Error::from_io(source, "open", file.path()));
    }
    Err(damaged(
        file.path(),
        "the object file",
        format!("commit {file_sequence}"),
        format!("at least commit {}, with which its log begins", log.base_sequence()),
    ))
}

/// Reads the superblock from the file and checks only its head, which is enough to find the arena.
/// Fields that never change are correct even while a commit is partly applied; all others are not
/// reliable.
pub(crate) fn peek(file: &dyn File) -> Result<Box<Superblock>> {
    let head = read_page(file)?;
    check_arena(file.path(), &head)?;
    Ok(head)
}

/// Reads page 0 and checks only its head. It is read directly into its final place: each copy on
/// the stack would cost another page fault when a store is opened.
fn read_page(file: &dyn File) -> Result<Box<Superblock>> {
    let mut page: Box<Superblock> = bytemuck::zeroed_box();
    let bytes = bytemuck::bytes_of_mut(&mut *page);
    let got = file.read_at(bytes, 0)?;
    check_head(file.path(), &bytes[..got])?;
    Ok(page)
}

/// Checks that the arena is a plausible range, because it is reserved before the checksum can be
/// checked.
pub(crate) fn check_arena(path: &Path, s: &Superblock) -> Result<()> {
    let (base, length) = (s.arena_base, s.arena_length);
    let aligned = base.is_multiple_of(PAGE_BYTES) && length.is_multiple_of(PAGE_BYTES);
    let end = base.checked_add(length);
    if base > 0 && length > 0 && aligned && end.is_some_and(|end| end <= ADDRESSES_END) {
        return Ok(());
    }
    let found = format!("{length} bytes from {base:#x}");
    Err(damaged(path, "the arena", found, "an address range that a program can map"))
}

/// End of the addresses that a program can map: 47 bits on x86-64, 48 on others.
const ADDRESSES_END: u64 = 1 << 48;

/// Checks what does not need the checksum: magic and format version.
fn check_head(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Err(damaged(path, "the file", "an empty file", "a superblock of 4096 bytes"));
    }
    let magic = &bytes[..bytes.len().min(8)];
    if magic != &SUPERBLOCK_MAGIC[..magic.len()] {
        let shown: String =
            magic.iter().flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
        return Err(Error::Foreign {
            path: path.to_path_buf(),
            found: format!("it begins with \"{shown}\""),
        });
    }
    if bytes.len() < PAGE_BYTES as usize {
        let found = format!("{} bytes", bytes.len());
        return Err(damaged(path, "the file", found, "a superblock of 4096 bytes"));
    }
    let page: [u8; 4] = bytes[8..12].try_into().unwrap_or_default();
    let version = u32::from_le_bytes(page);
    if version > FORMAT_VERSION {
        if is_sound_with_known_version(bytes) {
            let (found, expected) = (format!("{version}"), format!("{FORMAT_VERSION}"));
            return Err(damaged(path, "the format version", found, expected));
        }
        return Err(Error::NewerFormat {
            path: path.to_path_buf(),
            found: format!("version {version}"),
            known: format!("version {FORMAT_VERSION}"),
        });
    }
    Ok(())
}

/// Returns true if the checksum is correct for this page with the version that this build writes.
/// Then the version field is damaged, and the file is not from a newer build.
fn is_sound_with_known_version(page: &[u8]) -> bool {
    let mut s: Box<Superblock> = bytemuck::zeroed_box();
    bytemuck::bytes_of_mut(&mut *s).copy_from_slice(&page[..PAGE_BYTES as usize]);
    s.format_version = FORMAT_VERSION;
    s.checksum == checksum(&s)
}

fn check(path: &Path, s: &Superblock, file_length: u64, expected: &Identity) -> Result<()> {
    let stored = s.checksum;
    let computed = checksum(s);
    if stored != computed {
        return Err(damaged(
            path,
            "the superblock's checksum",
            format!("{stored:#010x}"),
            format!("{computed:#010x}"),
        ));
    }
    if s.has(FEATURE_LOG_2) && !mutated(Mutant::RootChecksumIgnored) {
        let computed = root_checksum(&s.root_area);
        if s.root_checksum != computed {
            let (found, expected) = (s.root_checksum, computed);
            return Err(damaged(
                path,
                "the checksum of the root in page 0",
                format!("{found:#010x}"),
                format!("{expected:#010x}"),
            ));
        }
    }
    if s.format_version == 0 || s.page_bytes as u64 != PAGE_BYTES {
        let found = format!("version {} with pages of {} bytes", s.format_version, s.page_bytes);
        return Err(damaged(path, "the format", found, "version 1 with pages of 4096 bytes"));
    }
    let unknown = s.features_incompatible & !INCOMPATIBLE_KNOWN;
    if unknown != 0 {
        return Err(Error::NewerFormat {
            path: path.to_path_buf(),
            found: format!("features {unknown:#x}, which this build does not support"),
            known: format!("features {INCOMPATIBLE_KNOWN:#x}"),
        });
    }
    if expected.store_uuid.is_some_and(|uuid| uuid != s.store_uuid) {
        return Err(damaged(path, "the store id", hex(&s.store_uuid), "the id of this store"));
    }
    if expected.object_uuid.is_some_and(|uuid| uuid != s.object_uuid) {
        return Err(damaged(
            path,
            "the object id",
            hex(&s.object_uuid),
            "the id in the file's name",
        ));
    }
    if s.kind != expected.kind {
        return Err(damaged(path, "the kind", s.kind.to_string(), expected.kind.to_string()));
    }
    if s.commit_sequence >= COUNT_MAX {
        let found = s.commit_sequence.to_string();
        return Err(damaged(path, "the commit's number", found, "a plausible number"));
    }
    if s.file_length > file_length {
        return Err(damaged(
            path,
            "the file's length",
            format!("{file_length} bytes"),
            format!("{} bytes: it was truncated", s.file_length),
        ));
    }
    if s.name_length as usize > s.name.len() || s.schema_length as usize > SCHEMA_BYTES_MAX {
        return Err(damaged(path, "the name's length", s.name_length.to_string(), "at most 255"));
    }
    check_regions(path, s)?;
    check_guest(path, s)?;
    // A raw object has no root until the program sets one.
    if s.root_address == 0 && s.root_bytes == 0 {
        return Ok(());
    }
    let root_end = s.root_address.checked_add(s.root_bytes);
    let inside = s.regions[..s.region_count as usize].iter().enumerate().any(|(i, r)| {
        let first = if i == 0 { r.base + ROOT_AREA_OFFSET as u64 } else { r.base + r.meta_length };
        s.root_address >= first && root_end.is_some_and(|end| end <= r.base + r.length)
    });
    // Blocks and the root area begin at such multiples.
    let aligned = s.is_guest() || s.root_address.is_multiple_of(BLOCK_BYTES_MIN as u64);
    if !inside || !aligned {
        let found = format!("{:#x} and {} bytes", s.root_address, s.root_bytes);
        return Err(damaged(path, "the root", found, "an aligned address inside the object"));
    }
    Ok(())
}

/// Checks that a guest object's window fits a linear memory and contains its regions, and that a
/// native object has none.
fn check_guest(path: &Path, s: &Superblock) -> Result<()> {
    let guest = s.guest;
    let sound = match s.is_guest() {
        false => guest == GuestRecord::zeroed(),
        true => {
            let end = guest.window_base.checked_add(guest.window_bytes);
            let within = |r: &RegionRecord| {
                r.base >= guest.window_base && end.is_some_and(|end| r.base + r.capacity <= end)
            };
            guest.window_base > 0
                && end.is_some_and(|end| end <= LINEAR_MEMORY_END)
                && s.regions().iter().all(within)
        }
    };
    if sound {
        return Ok(());
    }
    Err(damaged(
        path,
        "the guest window",
        format!("{guest:x?}"),
        "a window that contains all regions",
    ))
}

/// End of a linear memory with 32-bit pointers.
const LINEAR_MEMORY_END: u64 = 1 << 32;

fn check_regions(path: &Path, s: &Superblock) -> Result<()> {
    let count = s.region_count as usize;
    if count == 0 || count > REGIONS_MAX {
        return Err(damaged(path, "the region count", count.to_string(), "1 to 32"));
    }
    match first_unsound(&s.regions[..count], s.file_length) {
        Some(r) => Err(damaged(path, "the region table", format!("{r:?}"), "a valid region")),
        None => Ok(()),
    }
}

/// Returns the first region that is not valid. Checked where a superblock is sealed, and where it
/// is read.
fn first_unsound(regions: &[RegionRecord], file_length: u64) -> Option<&RegionRecord> {
    let mut file_end = 0;
    for (index, r) in regions.iter().enumerate() {
        let pages = [r.base, r.capacity, r.length, r.file_offset, r.meta_length];
        let ordered =
            r.meta_length >= PAGE_BYTES && r.meta_length <= r.length && r.length <= r.capacity;
        let chunks = r.capacity.wrapping_sub(r.meta_length) / CHUNK_BYTES;
        let sound = pages.iter().all(|p| p % PAGE_BYTES == 0)
            && ordered
            && r.base.checked_add(r.capacity).is_some()
            && r.file_offset.checked_add(r.capacity).is_some()
            && (r.base + r.meta_length).is_multiple_of(CHUNK_BYTES)
            && r.capacity < 1 << 46
            && meta_length(index == 0, chunks) <= r.meta_length
            && (index > 0 || r.file_offset == 0)
            && checksums_fit(r)
            && r.file_offset >= file_end
            && r.file_offset + r.length <= file_length;
        if !sound {
            return Some(r);
        }
        file_end = r.file_offset + r.capacity;
    }
    None
}

/// Returns true if the table, if there is one, is the end of the metadata and does not overlap the
/// rest of it.
fn checksums_fit(r: &RegionRecord) -> bool {
    let table = checksum_table_bytes(r.capacity / PAGE_BYTES);
    let chunks = r.capacity.wrapping_sub(r.meta_length) / CHUNK_BYTES;
    r.checksums == 0
        || (table <= r.meta_length
            && r.checksums == r.base + r.meta_length - table
            && meta_length(r.file_offset == 0, chunks) <= r.meta_length - table)
}

/// Refuses writing if the object has unknown features that only reading may ignore.
pub(crate) fn check_writable(path: &Path, s: &Superblock) -> Result<()> {
    let unknown = s.features_read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN;
    if unknown == 0 {
        return Ok(());
    }
    Err(Error::NewerFormat {
        path: path.to_path_buf(),
        found: format!("features {unknown:#x}: this build may only read the object"),
        known: format!("features {READ_ONLY_COMPATIBLE_KNOWN:#x}"),
    })
}

/// Computes the checksum of a superblock.
pub(crate) fn checksum(s: &Superblock) -> u32 {
    // These fields count as zeros: a copy without them would touch one more page.
    const UNSIGNED: Range<usize> =
        offset_of!(Superblock, log_required)..offset_of!(Superblock, checksum) + size_of::<u32>();
    const _: () = assert!(UNSIGNED.end - UNSIGNED.start == 2 * size_of::<u32>());
    let bytes = &bytes_of(s)[..SUPERBLOCK_CHECKED_BYTES];
    crc32c(&[&bytes[..UNSIGNED.start], &[0; 8], &bytes[UNSIGNED.end..]])
}

/// Computes the checksum of a root area.
fn root_checksum(root_area: &[u8]) -> u32 {
    crc32c(&[root_area])
}

/// Returns a superblock with the constant fields filled in.
pub(crate) fn blank() -> Superblock {
    Superblock {
        magic: SUPERBLOCK_MAGIC,
        format_version: FORMAT_VERSION,
        page_bytes: PAGE_BYTES as u32,
        ..Superblock::zeroed()
    }
}

impl Superblock {
    /// The object's name at its last commit.
    pub(crate) fn name(&self) -> String {
        text(&self.name, self.name_length)
    }

    /// Sets the name, which is at most 255 bytes.
    pub(crate) fn set_name(&mut self, name: &str) {
        self.name_length = put_text(&mut self.name, name);
    }

    /// Description of the root's type, cut at 1024 bytes.
    pub(crate) fn schema(&self) -> String {
        text(&self.schema, self.schema_length)
    }

    /// Sets the description.
    pub(crate) fn set_schema(&mut self, schema: &str) {
        self.schema_length = put_text(&mut self.schema, schema);
    }

    /// Returns true for a guest object, which has the addresses of a linear memory.
    pub(crate) fn is_guest(&self) -> bool {
        self.has(FEATURE_GUEST)
    }

    fn has(&self, feature: u64) -> bool {
        self.features_incompatible & feature != 0
    }

    /// Returns true if the object needs its log; `None` if the code is invalid.
    pub(crate) fn needs_log(&self) -> Option<bool> {
        match self.log_required {
            0 => Some(false),
            LOG_REQUIRED => Some(true),
            LOG_REQUIRED_OLD if !self.has(FEATURE_LOG_2) => Some(true),
            _ if mutated(Mutant::LogRequiredCodesIgnored) => Some(false),
            _ => None,
        }
    }

    /// Sets the features of this build's logs and page 0. `root_area` is the part of page 0 after
    /// the superblock.
    pub(crate) fn seal_root(&mut self, root_area: &[u8]) {
        if mutated(Mutant::EarlierFormat) {
            return;
        }
        self.features_incompatible |= FEATURE_LOG_2;
        if !self.has(FEATURE_TEXT_IN_PLACE) && self.may_have_strings() {
            self.features_incompatible |= FEATURE_TEXT_IN_PLACE;
        }
        self.root_checksum = root_checksum(root_area);
    }

    /// Returns true if the root's type has strings, or the part of its description that is cut off
    /// may have some.
    fn may_have_strings(&self) -> bool {
        let schema = &self.schema[..self.schema.len().min(self.schema_length.into())];
        // The cut may remove up to three more bytes: the rest of a character.
        schema.len() > SCHEMA_BYTES_MAX - 4 || schema.windows(7).any(|part| part == b"PString")
    }

    /// Updates regions, length and checksum. The records have the addresses stored in the file.
    pub(crate) fn seal(&mut self, records: &[RegionRecord], file_length: u64) {
        debug_assert!(records.len() <= REGIONS_MAX);
        self.file_length = file_length;
        self.region_count = records.len() as u32;
        self.regions = Zeroable::zeroed();
        self.regions[..records.len()].copy_from_slice(records);
        self.checksum = checksum(self);
    }

    /// Prepares page 0 for the commit with this number.
    pub(crate) fn seal_commit(
        &mut self,
        sequence: u64,
        page: &mut [u8; PAGE_BYTES as usize],
        records: &[RegionRecord],
        file_length: u64,
    ) {
        self.commit_sequence = sequence;
        self.require_log();
        self.seal_root(&page[ROOT_AREA_OFFSET..]);
        self.seal(records, file_length);
        debug_assert!(
            first_unsound(records, file_length).is_none(),
            "a reader accepts the regions"
        );
        self.lay_over(page);
    }

    /// Marks the object as needing its log.
    pub(crate) fn require_log(&mut self) {
        let earlier = mutated(Mutant::EarlierFormat);
        self.log_required = if earlier { LOG_REQUIRED_OLD } else { LOG_REQUIRED };
    }

    /// Copies the superblock over the checked part of page 0; the root area after it belongs to the
    /// program.
    pub(crate) fn lay_over(&self, page: &mut [u8; PAGE_BYTES as usize]) {
        let bytes = &bytes_of(self)[..SUPERBLOCK_CHECKED_BYTES];
        page[..SUPERBLOCK_CHECKED_BYTES].copy_from_slice(bytes);
    }

    /// Like [`lay_over`](Superblock::lay_over), for a mapped page.
    ///
    /// # Safety
    /// Page 0 of the object is mapped writable at this address, and its superblock is not
    /// referenced elsewhere.
    pub(crate) unsafe fn lay_at(&self, address: u64) {
        const _: () = assert!(SUPERBLOCK_CHECKED_BYTES <= ROOT_AREA_OFFSET);
        let bytes = &bytes_of(self)[..SUPERBLOCK_CHECKED_BYTES];
        // SAFETY: as the caller promises; the bytes stop before the root area.
        unsafe { (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The regions in use.
    pub(crate) fn regions(&self) -> &[RegionRecord] {
        &self.regions[..(self.region_count as usize).min(REGIONS_MAX)]
    }
}

fn text(bytes: &[u8], length: u16) -> String {
    String::from_utf8_lossy(&bytes[..(length as usize).min(bytes.len())]).into_owned()
}

fn put_text(place: &mut [u8], text: &str) -> u16 {
    let mut end = text.len().min(place.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    place.fill(0);
    place[..end].copy_from_slice(&text.as_bytes()[..end]);
    end as u16
}

/// Lower-case hexadecimal, as in file names.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn damaged(
    path: &Path,
    what: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Damaged {
        path: path.to_path_buf(),
        what,
        found: found.into(),
        expected: expected.into(),
    }
}
