//! The object file's format: every constant and every structure on disk.
//!
//! All numbers of the format are defined here and in the heap's half, which this module exports
//! again. Each has the reason for its value, and the size of each structure is asserted.
//! `docs/format.md` draws the same file byte by byte. A change here changes the format: it needs a
//! feature bit or a new version, and files of released formats, which the tests keep, must still
//! open.

use bytemuck::{Pod, Zeroable};

pub use evermap_heap::format::*;

/// Lines in a page. A page's changed lines fit one 64-bit mask.
pub const PAGE_LINES: usize = PAGE_BYTES as usize / LINE_BYTES;
/// Regions with at least this many bytes of chunks are aligned to [`HUGE_BYTES`], in memory and in
/// the file.
pub const LARGE_REGION_BYTES: u64 = 8 << 20;
/// Bytes of a huge page. If address and file offset agree modulo this, one fault maps a huge page.
/// If not, each 4 KiB of a large folio faults separately, and ext4 walks the folio's blocks each
/// time: a fill of 1 GiB took 3.2 s instead of 0.3.
pub const HUGE_BYTES: u64 = 2 << 20;

/// First eight bytes of every object file.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"EVERMAP\n";
/// Format version that this build writes. Older builds refuse a newer version with a typed error.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the longest object name (the limit of a file name on Linux).
pub const NAME_BYTES_MAX: usize = 255;
/// Offset of a small root in the first page. Roots that fit here need no allocation and are logged
/// with the superblock, which every commit writes anyway.
pub const ROOT_AREA_OFFSET: usize = 3072;
/// Bytes of the root area. A larger root is allocated like any other block.
pub const ROOT_AREA_BYTES: usize = PAGE_BYTES as usize - ROOT_AREA_OFFSET;
/// Bytes of the superblock page that its checksum covers.
pub const SUPERBLOCK_CHECKED_BYTES: usize = ROOT_AREA_OFFSET;

/// Object kind: the catalog of its store.
pub const KIND_CATALOG: u32 = 1;
/// Object kind: an ordinary object.
pub const KIND_OBJECT: u32 = 0;

/// Incompatible features that this build supports. A file with any other must not be opened.
pub const INCOMPATIBLE_KNOWN: u64 =
    FEATURE_HOLES | FEATURE_GUEST | FEATURE_LOG_2 | FEATURE_TEXT_IN_PLACE;
/// Incompatible feature: chunks may be [`CHUNK_HOLE`], and entries of checksum tables
/// [`CHECKSUM_UNKNOWN`].
pub const FEATURE_HOLES: u64 = 1;
/// Incompatible feature: the object's addresses are those of a guest's linear memory, see
/// [`GuestRecord`].
pub const FEATURE_GUEST: u64 = 2;
/// Incompatible feature: logs have format 2, page 0 has a checksum of its root area, and
/// `log_required` is 0 or [`LOG_REQUIRED`]. Every object that this build commits to has it.
pub const FEATURE_LOG_2: u64 = 4;
/// Incompatible feature: the text of a `PString` may lie in its own bytes. Every object whose type
/// has strings gets it with the first commit of this build.
pub const FEATURE_TEXT_IN_PLACE: u64 = 8;
/// Read-only-compatible features that this build supports. A file with any other may only be read.
pub const READ_ONLY_COMPATIBLE_KNOWN: u64 = FEATURE_PAGE_CHECKSUMS;
/// Read-only-compatible feature: the object has page checksums, which a writer must update.
pub const FEATURE_PAGE_CHECKSUMS: u64 = 1;

/// Linear memory that a guest object's addresses belong to. Objects lie in a window of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct GuestRecord {
    /// Bytes of a pointer: 4.
    pub pointer_bytes: u32,
    /// Version of the guest interface: 1.
    pub version: u32,
    /// First address of the guest window.
    pub window_base: u64,
    /// Bytes of the guest window.
    pub window_bytes: u64,
    /// Zero.
    pub reserved0: u64,
}
const _: () = assert!(size_of::<GuestRecord>() == 32);

/// The first 4 KiB of an object file, mapped at the object's first address.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Superblock {
    /// [`SUPERBLOCK_MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// [`PAGE_BYTES`].
    pub page_bytes: u32,
    /// Features that builds without support may ignore.
    pub features_compatible: u64,
    /// Features that builds without support may ignore as long as they only read.
    pub features_read_only_compatible: u64,
    /// Features that a build must support to open the file.
    pub features_incompatible: u64,
    /// UUID of the store that the object belongs to.
    pub store_uuid: [u8; 16],
    /// UUID of the object, and its file's name.
    pub object_uuid: [u8; 16],
    /// Key chosen by the application that created the object, or zero.
    pub application_key: [u8; 16],
    /// Number of the commit this superblock belongs to. Creation is commit 1.
    pub commit_sequence: u64,
    /// Minimum length of the file in bytes.
    pub file_length: u64,
    /// Address of the root.
    pub root_address: u64,
    /// `size_of` of the root's type.
    pub root_bytes: u64,
    /// Type id of the root (see `persist::typing`).
    pub root_type_id: [u8; 16],
    /// [`KIND_OBJECT`] or [`KIND_CATALOG`].
    pub kind: u32,
    /// Regions in use.
    pub region_count: u32,
    /// First address of the arena in which the object was created.
    pub arena_base: u64,
    /// Bytes of that arena.
    pub arena_length: u64,
    /// Creation time, nanoseconds since 1970.
    pub created_ns: u64,
    /// Bytes of `name` in use.
    pub name_length: u16,
    /// Bytes of `schema` in use.
    pub schema_length: u16,
    /// Zero.
    pub reserved0: u32,
    /// Guest record of a guest object, zero in all others.
    pub guest: GuestRecord,
    /// CRC32C of the root area with [`FEATURE_LOG_2`], else zero.
    pub root_checksum: u32,
    /// Zero.
    pub reserved1: u32,
    /// Zero.
    pub reserved2: [u64; 4],
    /// [`LOG_REQUIRED`] while the object's log may hold commits that the file lacks, else 0.
    /// Earlier builds wrote 1. The checksum does not cover it, because it is switched by a separate
    /// write, outside commits.
    pub log_required: u32,
    /// CRC32C of the first [`SUPERBLOCK_CHECKED_BYTES`] with this field and `log_required` zero.
    pub checksum: u32,
    /// The object's name, for rebuilding a lost catalog.
    pub name: [u8; 256],
    /// Region table.
    pub regions: [RegionRecord; REGIONS_MAX],
    /// Description of the root's type.
    pub schema: [u8; SCHEMA_BYTES_MAX],
    /// Space for a small root, see [`ROOT_AREA_OFFSET`].
    pub root_area: [u8; ROOT_AREA_BYTES],
}
const _: () = assert!(size_of::<Superblock>() == PAGE_BYTES as usize);
const _: () = assert!(std::mem::offset_of!(Superblock, log_required) == 248);
const _: () = assert!(std::mem::offset_of!(Superblock, commit_sequence) == 88);
const _: () = assert!(std::mem::offset_of!(Superblock, guest) == 176);
const _: () = assert!(std::mem::offset_of!(Superblock, root_checksum) == 208);
const _: () = assert!(std::mem::offset_of!(Superblock, name) == 256);
const _: () = assert!(std::mem::offset_of!(Superblock, regions) == 512);
const _: () = assert!(std::mem::offset_of!(Superblock, root_address) == ROOT_ENTRY_OFFSET);
const _: () = assert!(std::mem::offset_of!(Superblock, root_bytes) == ROOT_ENTRY_OFFSET + 8);
const _: () = assert!(std::mem::offset_of!(Superblock, root_type_id) == ROOT_ENTRY_OFFSET + 16);
const _: () = assert!(std::mem::offset_of!(Superblock, schema_length) == SCHEMA_LENGTH_OFFSET);
const _: () = assert!(std::mem::offset_of!(Superblock, schema) == SCHEMA_OFFSET);
const _: () = assert!(std::mem::offset_of!(Superblock, root_area) == ROOT_AREA_OFFSET);

/// `log_required` of an object that needs its log. Half of its bits are set, so a single flipped
/// bit cannot turn one code into the other.
pub const LOG_REQUIRED: u32 = 0x96a5_c35a;
const _: () = assert!(LOG_REQUIRED.count_ones() == 16);
/// `log_required` of an object that needs its log, as written by builds before [`FEATURE_LOG_2`].
pub const LOG_REQUIRED_OLD: u32 = 1;

/// Offset of `log_required` in the file, for the write that switches only this field.
pub const LOG_REQUIRED_OFFSET: u64 = std::mem::offset_of!(Superblock, log_required) as u64;

/// First eight bytes of a [`CodeRecord`].
pub const CODE_MAGIC: [u8; 8] = *b"EVMCODE\n";
/// Version of the code record that this build writes.
pub const CODE_VERSION: u32 = 1;
/// Maximum number of programs and libraries in a record.
pub const CODE_MODULES_MAX: usize = 10;
/// Record flag: more modules were found than the record can hold.
pub const CODE_MORE: u32 = 1;
/// Module flag: linked at a fixed address.
pub const CODE_FIXED: u8 = 1;
/// Module flag: registered by the program, so pointers into it are allowed.
pub const CODE_REGISTERED: u8 = 2;
/// Module flag: the module has no build-id; `build` is a hash of its contents.
pub const CODE_WITHOUT_BUILD_ID: u8 = 4;

/// A program or library that pointers of an object lead into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CodeModule {
    /// Base address in the process that committed the pointers.
    pub base: u64,
    /// Bytes of its address range.
    pub bytes: u64,
    /// Load bias: load address minus link address. 0 for a module with a fixed address.
    pub bias: u64,
    /// Bytes of `build` in use.
    pub build_length: u8,
    /// [`CODE_FIXED`], [`CODE_REGISTERED`], [`CODE_WITHOUT_BUILD_ID`].
    pub flags: u8,
    /// Bytes of `name` in use.
    pub name_length: u8,
    /// Zero.
    pub reserved0: [u8; 5],
    /// Build-id from the linker.
    pub build: [u8; 32],
    /// End of the module's file name.
    pub name: [u8; 32],
}
const _: () = assert!(size_of::<CodeModule>() == 96);

/// Builds of the programs and libraries that an object's pointers lead into. The record occupies
/// the root area of a raw object, whose root is a block. An area that does not begin with
/// [`CODE_MAGIC`] holds no record.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CodeRecord {
    /// [`CODE_MAGIC`].
    pub magic: [u8; 8],
    /// [`CODE_VERSION`].
    pub version: u32,
    /// CRC32C of the record with this field zero.
    pub checksum: u32,
    /// Modules in use.
    pub count: u32,
    /// [`CODE_MORE`].
    pub flags: u32,
    /// Address of the first such pointer that was found, or zero.
    pub first_at: u64,
    /// Value of the pointer at `first_at`, or zero.
    pub first_word: u64,
    /// Zero.
    pub reserved0: [u64; 3],
    /// The modules.
    pub modules: [CodeModule; CODE_MODULES_MAX],
}
const _: () = assert!(size_of::<CodeRecord>() == 1024);
const _: () = assert!(size_of::<CodeRecord>() <= ROOT_AREA_BYTES);

/// Entries in a line of a checksum table. The last four bytes of the line are its own checksum, so
/// a page's entry and the checksum that protects it are logged as one line.
pub const CHECKSUMS_PER_LINE: u64 = LINE_BYTES as u64 / 4 - 1;
/// Entry of a page whose contents are undefined: it lies in a free chunk.
pub const CHECKSUM_UNKNOWN: u32 = u32::MAX;
/// Entries in a page of a checksum table.
pub const CHECKSUMS_PER_PAGE: u64 = CHECKSUMS_PER_LINE * PAGE_LINES as u64;

/// Bytes of the checksum table of a region of `pages` pages.
pub const fn checksum_table_bytes(pages: u64) -> u64 {
    pages.div_ceil(CHECKSUMS_PER_PAGE) * PAGE_BYTES
}

/// Returns the bytes between a region's first byte and its first chunk if the region has page
/// checksums, and the bytes of the table at their end. The table has an entry for every page of the
/// region, including its own pages, whose entries are unused.
pub const fn meta_length_with_checksums(first_region: bool, chunks: u64) -> (u64, u64) {
    let meta = meta_length(first_region, chunks);
    let mut table = 0;
    loop {
        let pages = (meta + table + chunks * CHUNK_BYTES) / PAGE_BYTES;
        let needed = checksum_table_bytes(pages);
        if needed <= table {
            return (meta + table, table);
        }
        table = needed;
    }
}

/// Maximum length of a file. Sums of two offsets do not overflow.
pub const FILE_BYTES_MAX: u64 = 1 << 62;
/// Maximum of commit and generation counters. A counter can always be incremented.
pub const COUNT_MAX: u64 = 1 << 62;

/// Bytes of a log header slot. The second slot follows the first.
pub const LOG_SLOT_BYTES: u64 = 4096;
/// Offset of the first record of a log.
pub const LOG_RECORDS_OFFSET: u64 = 2 * LOG_SLOT_BYTES;
/// Alignment of records: the smallest unit that a disk writes.
pub const LOG_ALIGN: u64 = 512;
/// First eight bytes of a log header slot.
pub const LOG_MAGIC: [u8; 8] = *b"EVERLOG\n";
/// Log format version that this build writes. It also reads format 1, and converts such a log when
/// it empties it.
pub const LOG_VERSION: u32 = 2;
/// First four bytes of a log record.
pub const LOG_RECORD_MAGIC: u32 = u32::from_le_bytes(*b"evR2");
/// First four bytes of a log record of format 1.
pub const LOG_RECORD_1_MAGIC: u32 = u32::from_le_bytes(*b"evRC");

/// One of the two header slots of a log. Of the valid ones, the one with the higher generation
/// counts.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct LogHeader {
    /// [`LOG_MAGIC`].
    pub magic: [u8; 8],
    /// [`LOG_VERSION`].
    pub format_version: u32,
    /// CRC32C of this header with this field zero.
    pub checksum: u32,
    /// The object the log belongs to.
    pub object_uuid: [u8; 16],
    /// Incremented at every reset of the log.
    pub generation: u64,
    /// Random number that is repeated in every record of this generation, so that left-over records
    /// of an earlier generation do not chain.
    pub salt: u64,
    /// Sequence of the commit that the object file holds durably. The first record has the next
    /// one.
    pub base_sequence: u64,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<LogHeader>() == 64);

/// Offset of [`LogProgress`] in a header slot: a separate sector, so writing it never touches the
/// header.
pub const LOG_PROGRESS_OFFSET: u64 = LOG_ALIGN;
/// First four bytes of [`LogProgress`].
pub const LOG_PROGRESS_MAGIC: u32 = u32::from_le_bytes(*b"evPR");

/// Progress of the log of a header slot. Written after each record, without a flush. While the
/// machine runs, every process reads the newest version; after a power cut it may be an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct LogProgress {
    /// [`LOG_PROGRESS_MAGIC`].
    pub magic: u32,
    /// CRC32C of this structure with this field zero.
    pub checksum: u32,
    /// Salt of the generation.
    pub salt: u64,
    /// Boot in which it was written, as named by the kernel.
    pub boot: [u8; 16],
    /// Index of the last record that was written. A reader in the same boot finds that record.
    pub written: u64,
    /// Index of the last record known to be durable.
    pub durable: u64,
    /// Zero.
    pub reserved: [u64; 2],
}
const _: () = assert!(size_of::<LogProgress>() == 64);

/// Bytes of a header slot written when a generation begins: the header and its progress.
pub const LOG_SLOT_WRITTEN_BYTES: usize = LOG_PROGRESS_OFFSET as usize + size_of::<LogProgress>();

/// [`LogRecord::kind`]: changed lines of pages, see [`LogPage`]. Kind 1 is reserved for the
/// contents of a new object, kind 2 for a removal.
pub const RECORD_OF_LINES: u32 = 0;

/// Head of a log record. The body follows: for each page a [`LogPage`] and the changed lines. Zeros
/// pad the record to a multiple of [`LOG_ALIGN`].
///
/// A head with a valid checksum proves that all records up to `durable` are durable.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct LogRecord {
    /// [`LOG_RECORD_MAGIC`].
    pub magic: u32,
    /// CRC32C of the record's first [`LOG_ALIGN`] bytes with this field zero: the sector that holds
    /// the head and the beginning of the body.
    pub checksum: u32,
    /// Salt of the log's header.
    pub salt: u64,
    /// Number of the record in its generation, from 1.
    pub index: u64,
    /// Sequence of the commit.
    pub sequence: u64,
    /// UUID of the committed object.
    pub object_uuid: [u8; 16],
    /// Bytes of the body.
    pub body_length: u64,
    /// Length of the object file after this commit.
    pub file_length: u64,
    /// Pages in the body.
    pub page_count: u64,
    /// Index of the newest record that was known to be durable when this one was written.
    pub durable: u64,
    /// `checksum` of the previous record, 0 for the first record.
    pub previous: u32,
    /// CRC32C of the record after its first [`LOG_ALIGN`] bytes, including padding. 0 if there are
    /// no more bytes.
    pub rest_checksum: u32,
    /// [`RECORD_OF_LINES`].
    pub kind: u32,
    /// Zero. A build must not read a record with flags that it does not know.
    pub flags: u32,
    /// Zero.
    pub reserved: [u64; 4],
}
const _: () = assert!(size_of::<LogRecord>() == 128);

/// Flag of a record of format 1: all records before it were durable when it was written.
pub const RECORD_1_FOLLOWS_DURABLE: u32 = 1;

/// Head of a log record of format 1, which is read but no longer written.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct LogRecord1 {
    /// [`LOG_RECORD_1_MAGIC`].
    pub magic: u32,
    /// CRC32C of this head (with this field zero) and the body.
    pub checksum: u32,
    /// Salt of the log's header.
    pub salt: u64,
    /// Sequence of the commit.
    pub sequence: u64,
    /// Bytes of the body.
    pub body_length: u64,
    /// Length of the object file after this commit.
    pub file_length: u64,
    /// Pages in the body.
    pub page_count: u64,
    /// Checksum of the previous record, 0 for the first record.
    pub previous: u32,
    /// [`RECORD_1_FOLLOWS_DURABLE`] or zero.
    pub flags: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<LogRecord1>() == 64);

/// Head of one page in a record's body. Bit `i` of `lines` says that line `i` follows.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct LogPage {
    /// Number of the page in the object file.
    pub page: u64,
    /// Mask of the lines that follow, lowest first.
    pub lines: u64,
}
const _: () = assert!(size_of::<LogPage>() == 16);
