//! Boundary to C: types, statuses, failures and arguments.
//!
//! This folder knows the types of the headers and how a call fails, but no open object. All other
//! folders use it.

pub mod arguments;
pub mod failure;
pub mod status;
pub mod types;
