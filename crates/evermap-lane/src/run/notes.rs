//! Notes on a lane while it is prepared and while it lasts, for the report.

use serde::Serialize;

use crate::guard::UndoneLane;
use crate::{Applied, Result};

/// Part of a lane that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotApplied {
    /// Part that was wanted.
    pub what: String,
    /// Missing right or setting.
    pub why: String,
    /// Way to provide it.
    pub remedy: String,
}

/// Thread that lost its priority because it did not sleep.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Demotion {
    /// Thread number.
    pub thread: u32,
    /// Thread name.
    pub name: String,
    /// Processor time without sleep, in milliseconds.
    pub ran_ms: f64,
}

/// Parts of the lane that were applied and that were not, and events.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Core of the lane, or `None`.
    pub(super) core: Option<u32>,
    /// Reasons for that core, in sentences.
    pub(super) core_why: Vec<String>,
    pub(super) applied: Vec<Applied>,
    pub(super) not_applied: Vec<NotApplied>,
    pub(super) events: Vec<String>,
    pub(super) demotions: Vec<Demotion>,
    /// Changes undone at the end, in sentences.
    pub(super) undone: Vec<String>,
    /// Processes started by the program, which were moved off the core.
    pub(super) children: usize,
}

impl Notes {
    /// Adds the result of undoing. A failure to undo is an event: the program's exit status stays
    /// valid.
    pub(super) fn add_undone(&mut self, undone: Result<UndoneLane>) {
        match undone {
            Ok(lane) => self.undone.extend(lane.did),
            Err(error) => self.events.push(format!("the lane is not completely undone: {error}")),
        }
    }
}
