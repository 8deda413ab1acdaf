//! The C library: `evermap.h`, `evermap_transfer.h`, `evermap_load.h`, `fastio.h` and `nvheap.h`
//! over the Rust crates.
//!
//! The layer is thin: the header documents each function, which calls the Rust library. This crate
//! adds what C lacks: handles that are checked at every use ([`runtime`]), errors as statuses with
//! details stored per thread ([`abi`]), and the guarantee that no panic leaves it. Each header has
//! a folder or file with its name. Files named `*_calls.rs` have the exported functions.
//!
//! A change of a header requires a change here and the reverse: the tests in [`header`] compare the
//! two.

// Names and layouts come from the headers.
#![allow(non_camel_case_types)]

mod abi;
mod evermap;
mod fastio;
#[cfg(test)]
mod header;
mod load;
mod nvheap;
mod runtime;
mod transfer;
