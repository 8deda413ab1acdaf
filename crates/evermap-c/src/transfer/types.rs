//! The structs of `evermap_transfer.h`. The tests compare every size and offset.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::types::{Growing, NAME_BUFFER_BYTES};

pub type em_progress_callback = Option<unsafe extern "C" fn(u64, u64, *mut c_void) -> bool>;
pub type em_explanation_callback =
    Option<unsafe extern "C" fn(*const em_explanation, *mut c_void) -> bool>;

#[repr(C)]
pub struct em_explanation {
    pub size: usize,
    pub kind: u32,
    pub copies: u32,
    pub bytes: u64,
    pub what: *const c_char,
    pub path: *const c_char,
    pub why: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_transfer_options {
    pub size: usize,
    pub engine: *const c_char,
    pub cancelled: *const c_int,
    pub progress: em_progress_callback,
    pub explain: em_explanation_callback,
    pub context: *mut c_void,
    pub durability: u32,
    pub reflink: u32,
    pub verify: u32,
    pub resume: u32,
    pub keep_going: u32,
    pub one_file_system: u32,
    pub threads: u32,
    pub sparse: u32,
    pub begin_bytes: u64,
    pub length_bytes: u64,
    pub without: u32,
    pub connections: u32,
    pub raw: u32,
    pub discard: u32,
    pub wait_ms: u32,
    pub idle_ms: u32,
}

/// Maximum length of an engine's name, with much to spare.
pub const ENGINE_BYTES: usize = 32;
/// Longer than any sentence.
pub const WHY_BYTES: usize = 224;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct em_transfer_report {
    pub size: usize,
    pub size_bytes: u64,
    pub data_bytes: u64,
    pub hole_bytes: u64,
    pub resumed_bytes: u64,
    pub calls: u64,
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub flush_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub files: u64,
    pub directories: u64,
    pub failed: u64,
    pub not_kept: u64,
    pub copied_permille: u32,
    pub verified: u32,
    pub engine: [c_char; ENGINE_BYTES],
    pub why: [c_char; WHY_BYTES],
    pub published: u32,
    pub connections: u32,
    pub name: [c_char; NAME_BUFFER_BYTES],
}

/// Opaque type of a listening receiver, used only as a pointer.
#[repr(C)]
pub struct evermap_receiver {
    _nothing: [u8; 0],
}

// SAFETY: numbers and pointers, the size first; a function pointer that is null is `None`.
unsafe impl Growing for em_transfer_options {}
// SAFETY: numbers, the size first.
unsafe impl Growing for em_transfer_report {}
