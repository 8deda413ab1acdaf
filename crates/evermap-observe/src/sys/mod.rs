//! System calls that have no safe wrapper in `rustix`. The only module with `unsafe` code.

pub(crate) mod cachestat;
pub(crate) mod rusage;
