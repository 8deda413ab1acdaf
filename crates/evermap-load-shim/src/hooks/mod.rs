//! Functions that replace those of the C library. Each checks by its arguments whether the call can
//! concern the shim, and otherwise passes it on.

mod files;
mod memory;
mod streams;
