//! What of this layer a guest in a sandbox has: memory for objects that are not kept. Its host maps
//! the others.

#[path = "anonymous.rs"]
mod anonymous;

pub(crate) use anonymous::AnonymousRange;
