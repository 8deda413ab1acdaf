//! The fast tier: which files go there, how they get there and back, and that nothing is lost on the way.
//!
//! Two ways. A **view** leaves the file where it is: a copy on the tier is shown to one program instead of it ([`View`]). A **switch** moves the file, and leaves a
//! link: for tiers that last. Whatever happens at whichever step, the file's path leads to its contents. `docs/lane.md`, section 7, has layout,
//! records and steps.

mod error;
mod identity;
mod openers;
mod path_text;
mod suitable;
mod view;

pub use error::{Error, Result};
pub use identity::Identity;
pub use openers::Opener;
pub use suitable::Unsuitable;
pub use view::{Shown, View};
