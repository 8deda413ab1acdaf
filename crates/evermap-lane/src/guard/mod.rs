//! What a lane changes for all is undone, whoever dies: journals, claims of cores, guardians.
//!
//! The state directory is the only place where lanes know of each other. A claim is a kernel lock, so no crash leaves one behind; a
//! journal is a file, so no crash loses one.

mod claim;
pub(crate) mod journal;
mod state;
pub(crate) mod undo;

pub use claim::{Claim, claimed};
pub use state::StateDirectory;
pub use undo::{LANE_VARIABLE, Undone, UndoneLane, undo};
