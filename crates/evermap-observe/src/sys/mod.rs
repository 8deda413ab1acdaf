//! What the crate asks of the kernel and `rustix` has no safe call for. `unsafe` is here, nowhere else.

pub(crate) mod cachestat;
pub(crate) mod rusage;
