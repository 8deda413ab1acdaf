//! Layers: each crate's modules in `xtask/layers.toml`, from the top down. A module imports from its
//! own layer and from those below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::graph::Graph;
use crate::modules::Crate;

/// One crate in `layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Folder of `lib.rs` or `main.rs`, below the workspace's root.
    source: PathBuf,
    /// Top-level modules, the highest layer first. Modules of one line are one layer.
    #[serde(default)]
    layers: Vec<Vec<String>>,
    /// Circles that may stay, by their first file, each with a reason.
    #[serde(default)]
    circles: BTreeMap<PathBuf, String>,
}

/// Checks all crates.
///
/// # Errors
/// All imports that point up, all circles, and the modules and crates that the list lacks or does
/// not need.
pub fn check(root: &Path) -> Result<String, String> {
    let all = read_rules(root)?;
    let mut problems = Vec::new();
    for source in sources(root)? {
        if !all.values().any(|rules| rules.source == source) {
            problems.push(format!("xtask/layers.toml: lacks the crate in {}", source.display()));
        }
    }
    let mut files = 0;
    let mut imports = 0;
    for (name, rules) in &all {
        let source = Crate::read(&root.join(&rules.source))?;
        let graph = Graph::new(&source);
        files += graph.edges.len();
        imports += graph.edges.values().map(|targets| targets.len()).sum::<usize>();
        let top: Vec<&str> = source.modules[0].children.keys().map(String::as_str).collect();
        problems.extend(rules.misfits(&top).into_iter().map(|text| format!("{name}: {text}")));
        problems.extend(rules.upward(&graph).into_iter().map(|text| format!("{name}: {text}")));
        problems.extend(rules.circling(&graph).into_iter().map(|text| format!("{name}: {text}")));
    }
    if problems.is_empty() {
        let crates = all.len();
        return Ok(format!("layers: {crates} crates, {files} files, {imports} imports: in order"));
    }
    Err(problems.join("\n"))
}

/// Prints the imports of one crate, for a look at its structure.
///
/// # Errors
/// A crate that `layers.toml` does not list.
pub fn print_edges(root: &Path, name: &str) -> Result<String, String> {
    let all = read_rules(root)?;
    let rules = all.get(name).ok_or_else(|| format!("xtask/layers.toml lists no crate {name}"))?;
    let graph = Graph::new(&Crate::read(&root.join(&rules.source))?);
    let mut lines = Vec::new();
    for (file, targets) in &graph.edges {
        for target in targets {
            lines.push(format!("{} -> {}", file.display(), target.display()));
        }
    }
    Ok(lines.join("\n"))
}

fn read_rules(root: &Path) -> Result<BTreeMap<String, Rules>, String> {
    let path = root.join("xtask/layers.toml");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the `src` folders of all crates in `crates`.
fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = root.join("crates");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| Path::new("crates").join(entry.file_name()).join("src"))
        .filter(|source| root.join(source).is_dir())
        .collect();
    found.sort();
    Ok(found)
}

impl Rules {
    /// Returns the layer of a file; 0 is the highest. `None` for the crate's root, which is above
    /// and below all others.
    fn layer_of(&self, file: &Path) -> Option<usize> {
        let first = file.components().next()?.as_os_str().to_str()?;
        let module = first.strip_suffix(".rs").unwrap_or(first);
        self.layers.iter().position(|layer| layer.iter().any(|name| name == module))
    }

    fn misfits(&self, modules: &[&str]) -> Vec<String> {
        if self.layers.is_empty() {
            return Vec::new();
        }
        let listed: Vec<&str> = self.layers.iter().flatten().map(String::as_str).collect();
        let lacking = modules.iter().filter(|name| !listed.contains(name));
        let unknown = listed.iter().filter(|name| !modules.contains(name));
        lacking
            .map(|name| format!("module {name} is in no layer of xtask/layers.toml"))
            .chain(unknown.map(|name| format!("xtask/layers.toml names a missing module {name}")))
            .collect()
    }

    fn upward(&self, graph: &Graph) -> Vec<String> {
        let mut found = Vec::new();
        for (file, targets) in &graph.edges {
            for target in targets {
                if let (Some(from), Some(to)) = (self.layer_of(file), self.layer_of(target))
                    && to < from
                {
                    let (file, target) = (file.display(), target.display());
                    found.push(format!("{file} imports from {target}, a layer above it"));
                }
            }
        }
        found
    }

    fn circling(&self, graph: &Graph) -> Vec<String> {
        let circles = graph.circles();
        let mut found = Vec::new();
        for circle in &circles {
            if !circle.first().is_some_and(|file| self.circles.contains_key(file)) {
                let names: Vec<String> = circle.iter().map(|f| f.display().to_string()).collect();
                found.push(format!("circle of files: {}", names.join(", ")));
            }
        }
        for file in self.circles.keys() {
            if !circles.iter().any(|circle| circle.first() == Some(file)) {
                found.push(format!("no circle begins with {} any more", file.display()));
            }
        }
        found
    }
}
