//! The storage tier: which files go there, how they are placed and taken back, and how crashes are
//! survived.
//!
//! There are two modes. A **view** leaves the file in place and shows a copy on the tier to one
//! program instead ([`View`]). A **switch** moves the file to a persistent tier and leaves a
//! symbolic link. After a failure at any step, the file's path still leads to its contents. Section
//! 7 of `docs/lane.md` documents the layout, the records and the steps.

mod copies;
mod copying;
mod error;
mod health;
mod identity;
mod layout;
mod openers;
mod path_text;
mod place;
mod plan;
mod refusal;
mod slot;
mod storage;
mod suitable;
mod switch;
mod view;
mod watch;

pub use error::{Error, Result};
pub use health::{Checked, Health};
pub use identity::Identity;
pub use openers::Opener;
pub use place::{Applied, Placed, back, commit, place, placed_path, sweep, verify, views};
pub use plan::{Plan, Planned, Request, SkipReason, Skipped};
pub use refusal::Unsuitable;
pub use storage::{Kind, Storage};
pub use switch::{Journal, Keep, Recovered, recover};
pub use view::{Shown, View};
pub use watch::{Progress, Step, Watch};
