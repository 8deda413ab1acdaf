//! The structs of `evermap_load.h`. The tests compare every size and offset.

use std::ffi::{c_char, c_void};

use crate::abi::types::Growing;

pub type em_advice = u32;

/// A share of 0 thousandths, because 0 means "not known".
pub const LOAD_NONE: u32 = u32::MAX;
/// Maximum length of a name of a method, a file system or a memory limiter, with much to spare.
pub const LOAD_NAME_BYTES: usize = 32;
/// Longer than most sentences. `evermap_image_why()` returns the full text.
pub const LOAD_WHY_BYTES: usize = 224;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_load_options {
    pub size: usize,
    pub method: *const c_char,
    pub rules: *const evermap_rules,
    pub recording: *const c_char,
    pub replay: *const c_char,
    pub begin_bytes: u64,
    pub length_bytes: u64,
    pub memory_bytes_max: u64,
    pub touched_permille: u32,
    pub written_permille: u32,
    pub order: u32,
    pub latency: u32,
    pub cache: u32,
    pub fork: u32,
    pub threads: u32,
    pub may_map: u32,
    pub trust_rules: u32,
    pub record: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_load_facts {
    pub size: usize,
    pub bytes: u64,
    pub resident_bytes: u64,
    pub dirty_bytes: u64,
    pub direct_block_bytes: u64,
    pub available_bytes: u64,
    pub device_bytes_per_s: u64,
    pub processors: u32,
    pub is_in_memory: u32,
    pub is_compressed: u32,
    pub shares_blocks: u32,
    pub is_unchangeable: u32,
    pub reserved: u32,
    pub file_system: [c_char; LOAD_NAME_BYTES],
    pub available_limit: [c_char; LOAD_NAME_BYTES],
}

#[repr(C)]
pub struct em_load_choice {
    pub size: usize,
    pub method: *const c_char,
    pub why: *const c_char,
    pub threads: u32,
    pub maps_the_file: u32,
}

pub type em_load_choice_callback =
    Option<unsafe extern "C" fn(*const em_load_choice, *mut c_void) -> bool>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_residency {
    pub size: usize,
    pub private_bytes: u64,
    pub huge_bytes: u64,
    pub file_bytes: u64,
    pub swapped_bytes: u64,
    pub cached_bytes: u64,
    pub duplicate_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_load_report {
    pub size: usize,
    pub bytes: u64,
    pub first_use_ns: u64,
    pub complete_ns: u64,
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub peak_resident_bytes: u64,
    pub private_bytes: u64,
    pub huge_bytes: u64,
    pub file_bytes: u64,
    pub swapped_bytes: u64,
    pub cached_bytes: u64,
    pub duplicate_bytes: u64,
    pub windows_on_demand: u64,
    pub windows_streamed: u64,
    pub direct_bytes: u64,
    pub buffered_bytes: u64,
    pub hole_bytes: u64,
    pub moves_retried: u64,
    pub pages_copied: u64,
    pub windows_read_again: u64,
    pub threads_replaced: u64,
    pub device_permille: u32,
    pub serves_system_calls: u32,
    pub threads: u32,
    pub refused: u32,
    pub recording: u32,
    pub reserved: u32,
    pub method: [c_char; LOAD_NAME_BYTES],
    pub why: [c_char; LOAD_WHY_BYTES],
}

/// One file of many. Lists of these structs cannot grow in size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_load_file {
    pub path: *const c_char,
    pub options: *const em_load_options,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_recording {
    pub size: usize,
    pub windows_touched: u64,
    pub touched_permille: u32,
    pub written_permille: u32,
    pub order: u32,
    pub reserved: u32,
}

/// Opaque type of an open image, used only as a pointer.
#[repr(C)]
pub struct evermap_image {
    _nothing: [u8; 0],
}

/// Opaque type of open rules, used only as a pointer.
#[repr(C)]
pub struct evermap_rules {
    _nothing: [u8; 0],
}

// SAFETY: numbers and pointers, the size first.
unsafe impl Growing for em_load_options {}
// SAFETY: numbers, the size first.
unsafe impl Growing for em_load_facts {}
// SAFETY: numbers, the size first.
unsafe impl Growing for em_residency {}
// SAFETY: numbers, the size first.
unsafe impl Growing for em_load_report {}
// SAFETY: numbers, the size first.
unsafe impl Growing for em_recording {}
