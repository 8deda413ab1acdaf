//! The C library: `evermap.h`, `evermap_transfer.h`, `evermap_load.h`, `fastio.h` and `nvheap.h`
//! over the Rust crates.
//!
//! The layer is thin: the header documents each function, which calls the Rust library. This crate
//! adds what C lacks: handles that are checked at every use ([`handles`], [`reader_slots`]), errors
//! as statuses with details stored per thread ([`failure`]), and the guarantee that no panic leaves
//! it. A change of a header requires a change here and the reverse: the tests in [`header`] compare
//! the two.

// Names and layouts come from the headers.
#![allow(non_camel_case_types)]

mod addresses;
mod arguments;
mod audit_calls;
mod directory;
mod env;
mod error_calls;
mod failure;
mod fastio;
mod foreign_calls;
mod fork;
mod handles;
#[cfg(test)]
mod header;
mod heap_calls;
mod image_calls;
mod load;
mod load_calls;
mod load_rules_calls;
mod move_calls;
mod network_calls;
mod nvheap;
mod object;
mod object_calls;
mod protection_calls;
mod reader_slots;
mod reserve;
mod sharing_calls;
mod status;
mod store_calls;
mod stores;
mod table;
mod tools_calls;
mod transfer;
mod transfer_calls;
mod types;
