//! Functions of `evermap.h`, one file per part of the header.

pub mod audit_calls;
mod error_calls;
mod foreign_calls;
pub mod heap_calls;
mod move_calls;
mod object_calls;
mod protection_calls;
mod sharing_calls;
mod store_calls;
mod tools_calls;
