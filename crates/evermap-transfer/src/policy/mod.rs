//! Choice of engines, with reasons.
//!
//! `facts` queries the kernel. `plan` is a pure function of the facts and the request, so each
//! decision is tested by figures alone. `adapt` changes the number of lanes while a splice runs.
//! The thresholds of the plan and of the lanes are defined here. `drive` has those of races.

pub(crate) mod adapt;
mod facts;
mod plan;
pub(crate) mod rates;

#[cfg(test)]
pub(crate) use facts::Direct;
pub(crate) use facts::Facts;
pub(crate) use plan::{BY_NAME, Choice, Plan, Request, may_share, plan, sharing_first};
pub use plan::{Durability, Reflink};
