//! Reasons for refusals, with remedies. Errors and the modules that refuse share them.

mod cores;
mod hold;
mod observe;

pub use cores::CoreRefusal;
pub use hold::HoldRefusal;
pub use observe::Unobservable;
