//! Derives directories, files and renames after a power failure.
//!
//! An operation on names is durable once every directory that it changed was synced. Until then it
//! may be lost, independently of other operations, with three exceptions. Operations on one name
//! keep their order, a rename is atomic, and an operation needs its directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::random::Random;
use super::versions::Keep;
use crate::storage::parent_of;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory(u64),
    File(u64),
}

/// A change of names.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Make(PathBuf, Node),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    /// Changed directories that were not synced since.
    waiting: Vec<PathBuf>,
}

/// A tree of names: current state, durable state, and pending changes.
#[derive(Clone, Debug)]
pub(super) struct Names {
    current: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Pending>,
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, change: &Change) {
    match change {
        Change::Make(path, node) => {
            names.insert(path.clone(), *node);
        }
        Change::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
        Change::Remove(path) => {
            names.remove(path);
        }
    }
}

impl Change {
    fn paths(&self) -> Vec<&PathBuf> {
        match self {
            Change::Make(path, _) | Change::Remove(path) => vec![path],
            Change::Rename(from, to) => vec![from, to],
        }
    }

    /// Returns true if `earlier` must be applied before this change.
    fn needs(&self, earlier: &Change) -> bool {
        let earlier = earlier.paths();
        self.paths()
            .iter()
            .any(|path| earlier.iter().any(|e| e == path || path.parent() == Some(e.as_path())))
    }
}

impl Names {
    /// Creates a tree with only a root directory.
    pub(super) fn new(root: u64) -> Names {
        let current = BTreeMap::from([(PathBuf::from("/"), Node::Directory(root))]);
        Names { durable: current.clone(), current, pending: Vec::new() }
    }

    pub(super) fn find(&self, path: &Path) -> Option<Node> {
        self.current.get(path).copied()
    }

    pub(super) fn has_file(&self, id: u64) -> bool {
        self.current.values().any(|node| *node == Node::File(id))
    }

    /// Returns the files that have a name now or may have one after a crash.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let made = self.pending.iter().filter_map(|p| match &p.change {
            Change::Make(_, node) => Some(node),
            _ => None,
        });
        let all = self.current.values().chain(self.durable.values()).chain(made);
        all.filter_map(|node| match node {
            Node::File(id) => Some(*id),
            Node::Directory(_) => None,
        })
        .collect()
    }

    pub(super) fn list(&self, directory: &Path) -> Vec<String> {
        let inside = self.current.keys().filter(|path| path.parent() == Some(directory));
        inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
    }

    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        let mut waiting: Vec<PathBuf> = change.paths().iter().map(|p| parent_of(p)).collect();
        waiting.dedup();
        self.pending.push(Pending { change, waiting });
    }

    /// Makes the changes of a directory durable, and the changes that they depend on.
    pub(super) fn sync(&mut self, directory: &Path) {
        for pending in &mut self.pending {
            pending.waiting.retain(|d| d != directory);
        }
        let mut done: Vec<bool> = self.pending.iter().map(|p| p.waiting.is_empty()).collect();
        for index in (0..done.len()).rev() {
            if !done[index] {
                continue;
            }
            let change = &self.pending[index].change;
            for (earlier, pending) in self.pending[..index].iter().enumerate() {
                done[earlier] |= change.needs(&pending.change);
            }
        }
        let mut index = 0;
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            if done[index] {
                apply(durable, &pending.change);
            }
            index += 1;
            !done[index - 1]
        });
    }

    /// Makes all changes durable.
    pub(super) fn sync_all(&mut self) {
        self.durable = self.current.clone();
        self.pending.clear();
    }

    /// Returns the names after a power failure.
    pub(super) fn after_power_failure(&self, keep: Keep, random: &mut Random) -> Names {
        let mut names = self.durable.clone();
        let mut missing: Vec<&Change> = Vec::new();
        let end = random.below(self.pending.len() + 1);
        for (index, pending) in self.pending.iter().enumerate() {
            let wanted = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::Prefix => index < end,
                Keep::Random => random.chance(1, 2),
                Keep::Most => random.chance(15, 16),
                Keep::Little => random.chance(1, 16),
            };
            if wanted && !missing.iter().any(|m| pending.change.needs(m)) {
                apply(&mut names, &pending.change);
            } else {
                missing.push(&pending.change);
            }
        }
        Names { durable: names.clone(), current: names, pending: Vec::new() }
    }
}
