//! The catalog of an open store: its creation, access beside other processes, and the changes of
//! names.

pub(super) mod access;
pub(super) mod creation;
pub(super) mod import;
pub(super) mod publish;
mod repair;
mod sweep;
