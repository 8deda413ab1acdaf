//! What rustix lacks, each call in a file of its own: the only unsafe code outside the rings.

pub(crate) mod cachestat;
pub(crate) mod rusage;
mod signals;
pub use signals::cancelled_by_signals;
