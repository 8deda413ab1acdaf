//! The calls that no library has, each behind a safe function that says what the kernel promises.

pub(crate) mod generation;
pub(crate) mod lease;
pub(crate) mod namespace;
