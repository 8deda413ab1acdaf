//! Lists lanes, and the remains of killed ones.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::journal::{Journal, Record};
use super::undo::is_in_use;
use super::{StateDirectory, claimed};
use crate::Result;
use crate::hold;
use crate::machine::{Groups, Roots};
use crate::process::Process;

/// Lanes of a state directory.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Lanes that have a journal.
    pub lanes: Vec<LaneStatus>,
    /// Claimed cores.
    pub claimed: Vec<u32>,
    /// Groups with names of lanes but without a journal here: they belong to another state
    /// directory, or their journal was removed.
    pub unknown_groups: Vec<PathBuf>,
    /// Errors of unreadable journals.
    pub damaged: Vec<String>,
}

/// State of one lane.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct LaneStatus {
    /// Id of the lane.
    pub id: String,
    /// Command that was started in the lane.
    pub command: String,
    /// Core of the lane.
    pub core: Option<u32>,
    /// Start time in seconds since 1970.
    pub since_unix_s: u64,
    /// True while the lane's process runs. If it does not, `undo` undoes the lane.
    pub is_running: bool,
    /// Process that made the lane.
    pub lane_pid: u32,
    /// Guardian process. `None` if it does not run.
    pub guardian_pid: Option<u32>,
    /// Program in the lane. `None` if it does not run.
    pub program_pid: Option<u32>,
    /// Control groups of the lane that exist.
    pub groups: Vec<PathBuf>,
}

/// Lists the lanes of a state directory and the remains of others. Reads the journals; changes
/// nothing.
///
/// # Errors
/// The state directory cannot be read.
pub fn status(state: &StateDirectory) -> Result<Status> {
    let mut status = Status { claimed: claimed(state), ..Status::default() };
    for path in Journal::all(state)? {
        match Journal::read(&path) {
            Ok(Some(journal)) => status.lanes.push(lane_status(&journal)),
            Ok(None) => {}
            Err(error) => status.damaged.push(error.to_string()),
        }
    }
    let known = |path: &PathBuf| status.lanes.iter().any(|lane| lane.groups.contains(path));
    status.unknown_groups = lane_groups().into_iter().filter(|path| !known(path)).collect();
    Ok(status)
}

fn lane_status(journal: &Journal) -> LaneStatus {
    let Record { id, command, core, since_unix_s, lane, guardian, program, hold, .. } =
        &journal.record;
    let is_of_this_boot = journal.is_of_this_boot();
    let alive = |process: &Option<Process>| {
        process.filter(|process| is_of_this_boot && process.is_alive()).map(|process| process.pid)
    };
    let groups = hold.iter().flat_map(|hold| hold.groups()).map(PathBuf::from);
    LaneStatus {
        id: id.clone(),
        command: command.clone(),
        core: *core,
        since_unix_s: *since_unix_s,
        is_running: is_in_use(journal),
        lane_pid: lane.pid,
        guardian_pid: alive(guardian),
        program_pid: alive(program),
        groups: groups.filter(|group| group.is_dir()).collect(),
    }
}

/// Groups with names of lanes, in the places where lanes of this process would make theirs.
fn lane_groups() -> Vec<PathBuf> {
    let groups = Groups::detect_in(&Roots::default());
    let parents = [
        groups.v1.get("cpuset").map(|group| parent_of_lane_groups(&group.directory)),
        groups.v2.as_ref().map(|group| group.mount.clone()),
    ];
    let mut found = Vec::new();
    for parent in parents.into_iter().flatten() {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        found.extend(entries.filter_map(|entry| {
            let path = entry.path();
            hold::core_of(&path).map(|_| path)
        }));
    }
    found
}

/// Group in which lanes started from this one make their groups. While a core is held, the tasks of
/// a group are in a group that the lane made below it.
fn parent_of_lane_groups(group: &Path) -> PathBuf {
    let above = hold::core_of(group).and_then(|_| group.parent());
    above.unwrap_or(group).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_lanes_are_found_from_inside_one() {
        for (own, parent) in [
            ("/cg/box", "/cg/box"),
            ("/cg/box/evermap-rest-1", "/cg/box"),
            ("/cg/evermap-lane-12", "/cg"),
            ("/cg/evermap-lane-x", "/cg/evermap-lane-x"),
        ] {
            assert_eq!(parent_of_lane_groups(Path::new(own)), Path::new(parent));
        }
    }
}
