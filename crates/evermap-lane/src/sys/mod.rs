//! What the kernel can do for a lane and the libraries lack, one call or structure a file. `unsafe` is here and nowhere else.

pub(crate) mod lock;
pub(crate) mod scheduler;
