//! Lanes for one's own program: [`Lane::enter`], [`Lane::frame`], [`Frame::read`], [`Lane::leave`].
//!
//! A lane changes the thread that enters, and for locked memory its process; all of it is set back by leaving, dropping or unwinding, and by the kernel when
//! the process ends. A frame allocates nothing, takes no lock, and waits for nothing but its period and its reads.

mod clock;
mod entered;
mod file;
mod frame;
mod lane;
mod memory;
mod pace;
mod watch;

pub use file::{Access, File};
pub use frame::Frame;
pub use lane::Lane;
