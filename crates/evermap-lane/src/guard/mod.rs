//! What a lane changes for all is undone, whoever dies: journals, claims of cores, guardians.
//!
//! The state directory is the only place where lanes know of each other. A claim is a kernel lock, so no crash leaves one behind; a
//! journal is a file, so no crash loses one.

pub(crate) mod changes;
pub(crate) mod channel;
mod claim;
pub(crate) mod guardian;
pub(crate) mod journal;
mod state;
mod status;
pub(crate) mod undo;

pub use claim::{Claim, claimed};
pub use guardian::{GUARDIAN_VARIABLE, guard};
pub use state::StateDirectory;
pub use status::{LaneStatus, Status, status};
pub use undo::{LANE_VARIABLE, Undone, UndoneLane, undo};
