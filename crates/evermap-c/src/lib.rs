//! The C library: `evermap.h`, `evermap_transfer.h`, `evermap_load.h`, `fastio.h` and `nvheap.h` over the Rust crates.
//!
//! Thin: what a function promises is written in the header, what it does is a call of the Rust
//! library. What this crate adds is what C lacks: handles that are checked at every use
//! ([`handles`], [`seats`]), errors as statuses with the detail kept for the thread ([`failure`]),
//! and the rule that no panic leaves it. A change of a header is a change here and the other way
//! round: the tests in [`header`] compare the two.

// Names and shapes are the header's.
#![allow(non_camel_case_types)]

mod addresses;
mod arguments;
mod audit_calls;
mod directory;
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
mod reserve;
mod seats;
mod sharing_calls;
mod status;
mod store_calls;
mod stores;
mod surroundings;
mod table;
mod tools_calls;
mod transfer;
mod transfer_calls;
mod types;
