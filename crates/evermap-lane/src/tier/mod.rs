//! The fast tier: which files go there, how they get there and back, and that nothing is lost on the way.
//!
//! Two ways. A **view** leaves the file where it is: a copy on the tier is shown to one program instead of it ([`View`]). A **switch** moves the file, and leaves a
//! link: for tiers that last. Whatever happens at whichever step, the file's path leads to its contents. `docs/lane.md`, section 7, has layout,
//! records and steps.

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
pub use plan::{Plan, Planned, Request, Skipped, Why};
pub use storage::{Kind, Storage};
pub use suitable::Unsuitable;
pub use switch::{Journal, Keep, Recovered, recover};
pub use view::{Shown, View};
pub use watch::{Progress, Step, Watch};
