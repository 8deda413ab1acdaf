//! Which engine, and why not the others.
//!
//! `facts` asks the kernel, once and only what matters; `plan` is a pure function of what it said and of what the user wishes, so that each
//! decision can be tested by its figures alone; `adapt` changes the number of lanes while a splice runs.
//! Every threshold stands here, with the measurement behind it.

pub(crate) mod adapt;
mod facts;
mod plan;
pub(crate) mod rates;

#[cfg(test)]
pub(crate) use facts::Direct;
pub(crate) use facts::Facts;
pub(crate) use plan::{BY_NAME, Choice, Plan, Wish, may_share, plan};
pub use plan::{Durability, Reflink};
