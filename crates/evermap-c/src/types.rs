//! The types of the headers, as Rust sees them. The tests compare every size, offset and number.

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
    DURABILITY_COMMIT = 0;
    DURABILITY_INTERVAL = 1;
    DURABILITY_CLOSE = 2;
    WHEN_LOG_FULL_REPLACE = 0;
    WHEN_LOG_FULL_REFUSE = 1;
    VERIFY_SUPERBLOCK = 0;
    VERIFY_BACKGROUND = 1;
    VERIFY_FULL = 2;
    LEFTOVER = 0;
    SUSPECT = 1;
    DAMAGE = 2;
    UNCHECKED = 3;
}

/// Bytes of a tag and of an application key.
pub const TAG_BYTES: usize = 16;
pub const NAME_BUFFER_BYTES: usize = 256;
pub const DESCRIPTION_BUFFER_BYTES: usize = 1025;

/// A number in disguise: see [`crate::stores`].
pub enum em_store {}
/// A number in disguise: see [`crate::handles`].
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
    pub reserved: u32,
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
    pub reserved: u32,
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
    pub reserved: u32,
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

pub type em_name_callback =
    Option<unsafe extern "C" fn(name: *const c_char, context: *mut c_void) -> bool>;
pub type em_finding_callback =
    Option<unsafe extern "C" fn(finding: *const em_finding, context: *mut c_void) -> bool>;

/// A struct of the header that begins with its own size, so that it can grow.
///
/// # Safety
/// `repr(C)`, begins with a `usize`, and every bit pattern is a value, all zeros among them.
pub unsafe trait Growing: Copy {}

// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_store_options {}
// SAFETY: as above.
unsafe impl Growing for em_write_options {}
