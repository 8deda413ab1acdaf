//! Types of the headers in Rust. The tests compare every size, offset and number.

use std::ffi::{c_char, c_void};

pub type em_status = u32;
pub type em_mode = u32;

/// Constants of the header's enums, without their `EM_`, and a list of them for the tests.
macro_rules! constants {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: u32 = $value;)*
        #[cfg(test)]
        pub const CONSTANTS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

constants! {
    READ = 1;
    WRITE = 2;
    SHARE = 3;
    DURABILITY_COMMIT = 0;
    DURABILITY_INTERVAL = 1;
    DURABILITY_CLOSE = 2;
    WHEN_LOG_FULL_REPLACE = 0;
    WHEN_LOG_FULL_REFUSE = 1;
    VERIFY_SUPERBLOCK = 0;
    VERIFY_BACKGROUND = 1;
    VERIFY_FULL = 2;
    PROTECTION_OFF = 0;
    PROTECTION_PAGES = 1;
    PROTECTION_KEYS = 2;
    IN_CHILDREN_READ_ONLY = 0;
    IN_CHILDREN_PRIVATE = 1;
    FOREIGN_REPORT = 0;
    FOREIGN_REFUSE = 1;
    FOREIGN_ALLOW = 2;
    OTHER_BUILDS_REFUSE = 0;
    OTHER_BUILDS_OPEN = 1;
    TYPED = 0;
    PARTLY = 1;
    UNTYPED = 2;
    AUDIT_FOREIGN = 0;
    AUDIT_OTHER_STORE = 1;
    AUDIT_NO_OBJECT = 2;
    AUDIT_OTHER_OBJECT = 3;
    AUDIT_DANGLING = 4;
    AUDIT_METADATA = 5;
    AUDIT_MISPLACED = 6;
    AUDIT_BROKEN = 7;
    AUDIT_SHARED = 8;
    AUDIT_LEAK = 100;
    POSSIBLE = 0;
    LIKELY = 1;
    CERTAIN = 2;
    DOUBT_NONE = 0;
    DOUBT_NO_ROOT = 1;
    DOUBT_NO_POINTERS = 2;
    DOUBT_NO_POINTERS_BY_TYPE = 3;
    MOVED_TYPED = 0;
    MOVED_BEGINNING = 1;
    MOVED_INSIDE = 2;
    MOVED_NOT_ALLOCATED = 3;
    MOVED_BOOKKEEPING = 4;
    MOVED_OTHER_OBJECT = 5;
    MOVED_NOT = 100;
    COPY_DURABILITY_NONE = 0;
    COPY_DURABILITY_DATA = 1;
    COPY_DURABILITY_FULL = 2;
    REFLINK_AUTO = 0;
    REFLINK_NEVER = 1;
    REFLINK_ALWAYS = 2;
    EXPLAINED_USED = 0;
    EXPLAINED_NOT_USED = 1;
    EXPLAINED_TRIED = 2;
    EXPLAINED_NOT_KEPT = 3;
    EXPLAINED_FAILED = 4;
    EXPLAINED_CONNECTION = 5;
    WITHOUT_MODE = 1;
    WITHOUT_OWNER = 2;
    WITHOUT_TIMES = 4;
    WITHOUT_XATTRS = 8;
    LOAD_ORDER_UNKNOWN = 0;
    LOAD_ORDER_SEQUENTIAL = 1;
    LOAD_ORDER_RANDOM = 2;
    LOAD_LATENCY_FIRST_USE = 0;
    LOAD_LATENCY_FINISH = 1;
    LOAD_CACHE_AUTO = 0;
    LOAD_CACHE_KEEP = 1;
    LOAD_CACHE_DROP = 2;
    LOAD_FORK_FINISH = 0;
    LOAD_FORK_WITHOUT = 1;
    RECORDING_NONE = 0;
    RECORDING_MADE = 1;
    RECORDING_NOT_MADE = 2;
    RECORDING_REPLAYED = 3;
    RECORDING_IGNORED = 4;
    ADVICE_WRITE_SOON = 0;
    ADVICE_READ_ONLY = 1;
    ADVICE_NEVER = 2;
    ADVICE_SEQUENTIAL = 3;
    LEFTOVER = 0;
    SUSPECT = 1;
    DAMAGE = 2;
    UNCHECKED = 3;
}

/// Bytes of a tag and of an application key.
pub const TAG_BYTES: usize = 16;
pub const NAME_BUFFER_BYTES: usize = 256;
pub const DESCRIPTION_BUFFER_BYTES: usize = 1025;
/// Room for `rebase-<time>`, with spare digits for the year.
pub const KEPT_IN_BYTES: usize = 64;

/// Opaque handle of a store, see [`crate::runtime::stores`].
pub enum em_store {}
/// Opaque handle of an object, see [`crate::runtime::handles`].
pub enum em_object {}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_store_options {
    pub size: usize,
    pub arena_bytes: u64,
    pub window_base: u64,
    pub window_end: u64,
    pub busy_timeout_ms: u32,
    pub catalog_timeout_ms: u32,
    pub verify: u32,
    pub other_builds: u32,
    pub arena_registry: *const c_char,
    pub application: *const c_char,
    pub application_key: *const u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_write_options {
    pub size: usize,
    pub durability: u32,
    pub interval_ms: u32,
    pub log_bytes_max: u64,
    pub hot_bytes_max: u64,
    pub checkpoint_after_ms: u32,
    pub when_log_full: u32,
    pub log_full_pages: u32,
    pub protection: u32,
    pub early_read: u32,
    pub in_children: u32,
    pub foreign_pointers: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct em_foreign_pointer {
    pub size: usize,
    pub object: *const c_char,
    pub address: u64,
    pub value: u64,
    pub into: *const c_char,
    pub message: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_object_info {
    pub size: usize,
    pub created_ns: u64,
    pub file_bytes: u64,
    pub base_address: u64,
    pub sequence: u64,
    pub root_bytes: u64,
    pub regions: u64,
    pub capacity_bytes: u64,
    pub backed_bytes: u64,
    pub blocks: u64,
    pub allocated_bytes: u64,
    pub large_blocks: u64,
    pub large_bytes: u64,
    pub mode: u32,
    pub protection: u32,
    pub root_tag: [u8; TAG_BYTES],
    pub uuid: [c_char; 40],
    pub name: [c_char; NAME_BUFFER_BYTES],
    pub root_description: [c_char; DESCRIPTION_BUFFER_BYTES + 7],
}

#[repr(C)]
pub struct em_finding {
    pub size: usize,
    pub severity: u32,
    pub repairable: u32,
    pub file: *const c_char,
    pub object: *const c_char,
    pub what: *const c_char,
    pub found: *const c_char,
    pub expected: *const c_char,
    pub remedy: *const c_char,
}

#[repr(C)]
pub struct em_pointer_sample {
    pub path: *const c_char,
    pub address: u64,
    pub value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_audit_options {
    pub size: usize,
    pub memory_bytes: u64,
    pub samples: u32,
    pub process_id: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_audit_report {
    pub size: usize,
    pub sequence: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub reached_blocks: u64,
    pub reached_bytes: u64,
    pub leaked_blocks: u64,
    pub leaked_bytes: u64,
    pub leaked_heads: u64,
    pub looked_at: u64,
    pub interior: u64,
    pub damage: u64,
    pub suspect: u64,
    pub damaged_chunks: u64,
    pub typing: u32,
    pub has_root: u32,
    pub doubt: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct em_audit_finding {
    pub size: usize,
    pub kind: u32,
    pub severity: u32,
    pub confidence: u32,
    pub reserved: u32,
    pub count: u64,
    pub to: *const c_char,
    pub samples: *const em_pointer_sample,
    pub sample_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_copy_options {
    pub size: usize,
    pub unverified: u32,
    pub replace: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_copy_report {
    pub size: usize,
    pub objects: u64,
    pub bytes: u64,
    pub findings: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_rebase_options {
    pub size: usize,
    pub to: u64,
    pub dry_run: u32,
    pub force: u32,
    pub samples: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_rebase_report {
    pub size: usize,
    pub from: u64,
    pub to: u64,
    pub arenas: u64,
    pub objects: u64,
    pub moved: u64,
    pub kept: u64,
    pub met: u64,
    pub kept_in: [c_char; KEPT_IN_BYTES],
}

#[repr(C)]
pub struct em_moved {
    pub size: usize,
    pub object: *const c_char,
    pub typing: u32,
    pub kind: u32,
    pub count: u64,
    pub samples: *const em_pointer_sample,
    pub sample_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_export_options {
    pub size: usize,
    pub force: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_export_report {
    pub size: usize,
    pub sequence: u64,
    pub pages: u64,
    pub bytes: u64,
    pub pointers_elsewhere: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_import_options {
    pub size: usize,
    pub name: *const c_char,
    pub create: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_import_report {
    pub size: usize,
    pub base_address: u64,
    pub old_base_address: u64,
    pub file_bytes: u64,
    pub moved: u64,
    pub kept: u64,
    pub points_elsewhere: u32,
    pub reserved: u32,
    pub name: [c_char; NAME_BUFFER_BYTES],
    pub old_name: [c_char; NAME_BUFFER_BYTES],
}

pub type em_foreign_callback =
    Option<unsafe extern "C" fn(pointer: *const em_foreign_pointer, context: *mut c_void)>;
pub type em_name_callback =
    Option<unsafe extern "C" fn(name: *const c_char, context: *mut c_void) -> bool>;
pub type em_finding_callback =
    Option<unsafe extern "C" fn(finding: *const em_finding, context: *mut c_void) -> bool>;

pub type em_audit_callback =
    Option<unsafe extern "C" fn(finding: *const em_audit_finding, context: *mut c_void) -> bool>;
pub type em_moved_callback =
    Option<unsafe extern "C" fn(moved: *const em_moved, context: *mut c_void) -> bool>;

/// A struct of the header that begins with its own size, so that it can grow.
///
/// # Safety
/// `repr(C)`, begins with a `usize`, and every bit pattern, including all zeros, is a valid value.
pub unsafe trait Growing: Copy {}

// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_store_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_write_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_object_info {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_audit_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_audit_report {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_copy_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_copy_report {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_rebase_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_rebase_report {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_export_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_export_report {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_import_options {}
// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_import_report {}
