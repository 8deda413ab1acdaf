//! Undoes a lane's global changes whichever processes are killed: journals, claims of cores,
//! guardians.
//!
//! Lanes know of each other only through the state directory. A claim is a kernel lock, so a crash
//! releases it; a journal is a file, so a crash does not lose it.

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
