//! Lanes for the calling program: [`Lane::enter`], [`Lane::frame`], [`Frame::read`],
//! [`Lane::leave`].
//!
//! A lane changes the thread that enters it and, for locked memory, its process. Leaving, dropping
//! and unwinding restore both, and the kernel does so when the process ends. A frame allocates
//! nothing, takes no lock, and waits only for its period and its reads.

mod clock;
mod file;
mod frame;
mod frame_loop;
mod lane;
mod memory;
mod recorder;
mod thread_state;
mod watchdog;

pub use file::{Access, File};
pub use frame::Frame;
pub use lane::Lane;
