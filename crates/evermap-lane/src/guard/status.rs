//! Which lanes there are, and what was left behind.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::journal::{Journal, Record};
use super::undo::is_in_use;
use super::{StateDirectory, claimed};
use crate::Result;
use crate::hold;
use crate::machine::{Groups, Roots};
use crate::process::Process;

/// What is known of the lanes of a state directory.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// By their journals.
    pub lanes: Vec<LaneStatus>,
    /// The cores that are claimed.
    pub claimed: Vec<u32>,
    /// Groups with names of lanes that no journal here knows: of another state directory, or of a journal that was removed.
    pub unknown_groups: Vec<PathBuf>,
    /// Journals that cannot be understood, and why.
    pub damaged: Vec<String>,
}

/// One lane.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct LaneStatus {
    /// Its id.
    pub id: String,
    /// What was started in it.
    pub command: String,
    /// Its core.
    pub core: Option<u32>,
    /// Since when, in seconds since 1970.
    pub since_unix_s: u64,
    /// Whether its process is there. One that is not was left behind: `undo` undoes it.
    pub is_running: bool,
    /// The process that made it.
    pub lane_pid: u32,
    /// Who guards it; none if nobody does.
    pub guardian_pid: Option<u32>,
    /// The program in it; none if it is not there.
    pub program_pid: Option<u32>,
    /// The groups that it made.
    pub groups: Vec<PathBuf>,
}

/// The lanes of a state directory, and what is left of others. Cost: reads the journals; changes nothing.
///
/// # Errors
/// If the state directory cannot be read.
pub fn status(state: &StateDirectory) -> Result<Status> {
    let mut status = Status { claimed: claimed(state), ..Status::default() };
    for path in Journal::all(state)? {
        match Journal::read(&path) {
            Ok(Some(journal)) => status.lanes.push(of(&journal)),
            Ok(None) => {}
            Err(error) => status.damaged.push(error.to_string()),
        }
    }
    let known = |path: &PathBuf| status.lanes.iter().any(|lane| lane.groups.contains(path));
    status.unknown_groups = of_lanes().into_iter().filter(|path| !known(path)).collect();
    Ok(status)
}

fn of(journal: &Journal) -> LaneStatus {
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

/// The groups with names of lanes, where lanes of this process would make theirs.
fn of_lanes() -> Vec<PathBuf> {
    let groups = Groups::look_in(&Roots::default());
    let parents = [
        groups.v1.get("cpuset").map(|group| beside(&group.directory)),
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

/// Where groups of lanes are beside this one: while a core is held, all that was in the group is in one that the lane made beneath.
fn beside(group: &Path) -> PathBuf {
    let above = hold::core_of(group).and_then(|_| group.parent());
    above.unwrap_or(group).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_lanes_are_found_from_within_one() {
        for (own, parent) in [
            ("/cg/box", "/cg/box"),
            ("/cg/box/evermap-rest-1", "/cg/box"),
            ("/cg/evermap-lane-12", "/cg"),
            ("/cg/evermap-lane-x", "/cg/evermap-lane-x"),
        ] {
            assert_eq!(beside(Path::new(own)), Path::new(parent));
        }
    }
}
