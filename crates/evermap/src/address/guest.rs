//! The address layer of a guest in a sandbox: only memory for objects that are not stored. The
//! guest's host maps all other objects.

#[path = "anonymous.rs"]
mod anonymous;

pub(crate) use anonymous::AnonymousRange;
