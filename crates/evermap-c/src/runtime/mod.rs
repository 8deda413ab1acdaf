//! Open stores and objects, and what the library does before and between calls.
//!
//! A handle is checked at every use ([`handles`], [`table`]). A thread publishes the handle that
//! it uses ([`reader_slots`]), and [`addresses`] maps an address back to its object. A forked child
//! is refused most calls ([`fork`]). The functions in the headers' folders use only this folder to
//! reach an open object.

pub mod addresses;
pub mod env;
pub mod foreign_reports;
pub mod fork;
pub mod handles;
pub mod object;
pub mod open;
pub mod reader_slots;
pub mod reserve;
pub mod start;
pub mod stores;
pub mod table;
