//! Which file of a crate names items of which other file, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{Crate, Module, ModuleId};

/// Imports between the files of a crate: each file with the files that it names.
pub struct Graph {
    pub edges: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// Pairs of a file and the file of its parent module.
    parents: BTreeSet<(PathBuf, PathBuf)>,
}

/// Re-exports that are followed at most, so that a circle of them ends.
const HOPS_MAX: usize = 16;

impl Graph {
    pub fn new(source: &Crate) -> Graph {
        let mut graph = Graph { edges: BTreeMap::new(), parents: BTreeSet::new() };
        for (id, module) in source.modules.iter().enumerate() {
            if let Some(parent) = module.parent {
                let parent = &source.modules[parent].file;
                graph.parents.insert((module.file.clone(), parent.clone()));
            }
            let named = graph.edges.entry(module.file.clone()).or_default();
            for path in &module.paths {
                if let Some(target) = source.resolve(id, path, 0)
                    && source.modules[target].file != module.file
                {
                    named.insert(source.modules[target].file.clone());
                }
            }
        }
        graph
    }

    fn are_parent_and_child(&self, one: &Path, other: &Path) -> bool {
        let pair = (one.to_path_buf(), other.to_path_buf());
        let reversed = (other.to_path_buf(), one.to_path_buf());
        self.parents.contains(&pair) || self.parents.contains(&reversed)
    }

    /// Returns the groups of files that import each other, directly or around a circle. Imports
    /// between the files of a module and of its direct child do not count.
    pub fn circles(&self) -> Vec<Vec<PathBuf>> {
        let reachable: BTreeMap<&Path, BTreeSet<&Path>> =
            self.edges.keys().map(|file| (&**file, self.reachable(file))).collect();
        let mut found = Vec::new();
        let mut done: BTreeSet<&Path> = BTreeSet::new();
        for (file, others) in &reachable {
            if done.contains(file) || !others.contains(file) {
                continue;
            }
            let is_mutual =
                |other: &&&Path| reachable.get(**other).is_some_and(|back| back.contains(file));
            let group: Vec<&Path> = others.iter().filter(is_mutual).copied().collect();
            done.extend(&group);
            found.push(group.into_iter().map(Path::to_path_buf).collect());
        }
        found
    }

    fn reachable<'a>(&'a self, from: &'a Path) -> BTreeSet<&'a Path> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            for target in self.edges.get(file).into_iter().flatten() {
                if !self.are_parent_and_child(file, target) && seen.insert(&**target) {
                    next.push(target);
                }
            }
        }
        seen
    }
}

impl Crate {
    /// Finds the module that defines what a path names, seen from a module. `None` for a path into
    /// another crate.
    fn resolve(&self, from: ModuleId, path: &[String], hops: usize) -> Option<ModuleId> {
        let (first, rest) = path.split_first()?;
        if hops > HOPS_MAX {
            return None;
        }
        let module = &self.modules[from];
        match &**first {
            "crate" => self.descend(0, rest, hops),
            "self" => self.descend(from, rest, hops),
            "super" => self.descend_from_super(from, path, hops),
            name => match (module.children.get(name), module.aliases.get(name)) {
                (Some(child), _) => self.descend(*child, rest, hops),
                (None, Some(alias)) if alias.as_slice() != path => {
                    let whole: Vec<String> = alias.iter().chain(rest).cloned().collect();
                    self.resolve(from, &whole, hops + 1)
                }
                _ => None,
            },
        }
    }

    fn descend_from_super(&self, from: ModuleId, path: &[String], hops: usize) -> Option<ModuleId> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let mut at = from;
        for _ in 0..ups {
            at = self.modules[at].parent?;
        }
        self.descend(at, &path[ups..], hops)
    }

    fn descend(&self, at: ModuleId, rest: &[String], hops: usize) -> Option<ModuleId> {
        let Some((name, rest)) = rest.split_first() else { return Some(at) };
        let module = &self.modules[at];
        if let Some(child) = module.children.get(name) {
            return self.descend(*child, rest, hops);
        }
        if module.items.contains(name) {
            return Some(at);
        }
        if let Some(alias) = module.aliases.get(name) {
            let whole: Vec<String> = alias.iter().chain(rest).cloned().collect();
            return self.resolve(at, &whole, hops + 1);
        }
        self.behind_globs(at, module, name, hops).or(Some(at))
    }

    fn behind_globs(
        &self,
        at: ModuleId,
        module: &Module,
        name: &str,
        hops: usize,
    ) -> Option<ModuleId> {
        module.globs.iter().find_map(|glob| {
            let target = self.resolve(at, glob, hops + 1)?;
            let there = &self.modules[target];
            there.items.contains(name).then_some(target).or_else(|| {
                there.aliases.get(name).and_then(|path| self.resolve(target, path, hops + 1))
            })
        })
    }
}
