//! What a lane changes for all is undone, whoever dies: state, claims of cores.
//!
//! The state directory is the only place where lanes know of each other. A claim is a kernel lock, so no crash leaves one behind; a
//! journal is a file, so no crash loses one.

mod claim;
mod state;

pub use claim::{Claim, claimed};
pub use state::StateDirectory;
