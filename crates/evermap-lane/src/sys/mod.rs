//! What the kernel can do for a lane and the libraries lack, one call or structure a file. `unsafe` is here and nowhere else.

pub(crate) mod generation;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod namespace;
pub(crate) mod probe;
pub(crate) mod scheduler;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod wait;
