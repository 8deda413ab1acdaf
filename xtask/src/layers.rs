//! Layers: each crate's modules in `xtask/layers.toml`, from the top down. A module imports from
//! its own layer and from those below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::graph::Graph;
use crate::modules::Crate;

/// Modules in layers, the highest first.
type Layers = Vec<Vec<String>>;

/// One crate in `layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Folder of `lib.rs` or `main.rs`, below the workspace's root.
    source: PathBuf,
    /// Top-level modules, the highest layer first. Modules of one line are one layer.
    #[serde(default)]
    layers: Layers,
    /// Layers of the files in a folder, by its path below `source`.
    #[serde(default)]
    folders: BTreeMap<PathBuf, Layers>,
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
        problems.extend(rules.misfits(&source).into_iter().map(|text| format!("{name}: {text}")));
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

/// Returns the layer of a file; 0 is the highest. `None` for the file of the folder itself, which
/// is above and below all others, and for a file outside of the folder.
fn layer_of(layers: &Layers, folder: &Path, file: &Path) -> Option<usize> {
    let first = file.strip_prefix(folder).ok()?.components().next()?.as_os_str().to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    layers.iter().position(|layer| layer.iter().any(|name| name == module))
}

impl Rules {
    /// Returns each folder with layers, first the crate itself, as an empty path.
    fn folders(&self) -> impl Iterator<Item = (&Path, &Layers)> {
        let top = (!self.layers.is_empty()).then_some((Path::new(""), &self.layers));
        top.into_iter().chain(self.folders.iter().map(|(folder, layers)| (&**folder, layers)))
    }

    fn misfits(&self, source: &Crate) -> Vec<String> {
        let mut found = Vec::new();
        for (folder, layers) in self.folders() {
            let at = folder.display();
            let Some(modules) = source.modules_in(folder) else {
                found.push(format!("xtask/layers.toml names a missing folder {at}"));
                continue;
            };
            let listed: Vec<&str> = layers.iter().flatten().map(String::as_str).collect();
            for name in modules.iter().filter(|name| !listed.contains(name)) {
                let path = folder.join(name);
                found
                    .push(format!("module {} is in no layer of xtask/layers.toml", path.display()));
            }
            for name in listed.iter().filter(|name| !modules.contains(name)) {
                let path = folder.join(name);
                found.push(format!("xtask/layers.toml names a missing module {}", path.display()));
            }
        }
        found
    }

    fn upward(&self, graph: &Graph) -> Vec<String> {
        let mut found = Vec::new();
        for (folder, layers) in self.folders() {
            for (file, targets) in &graph.edges {
                let Some(from) = layer_of(layers, folder, file) else { continue };
                for target in targets {
                    if layer_of(layers, folder, target).is_some_and(|to| to < from) {
                        let (file, target) = (file.display(), target.display());
                        found.push(format!("{file} imports from {target}, a layer above it"));
                    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn layers(top: &str, bottom: &str) -> Layers {
        vec![vec![top.to_string()], vec![bottom.to_string()]]
    }

    /// A crate of these files, with the module `low` below `high`.
    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        problems_in_folders(files, BTreeMap::new())
    }

    fn problems_in_folders(
        files: &[(&str, &str)],
        folders: BTreeMap<PathBuf, Layers>,
    ) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let rules = Rules {
            source: PathBuf::new(),
            layers: layers("high", "low"),
            folders,
            circles: BTreeMap::new(),
        };
        let source = Crate::read(folder.path()).unwrap();
        let graph = Graph::new(&source);
        let mut found = rules.misfits(&source);
        found.extend(rules.upward(&graph));
        found.extend(rules.circling(&graph));
        found
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod high; mod low; pub use low::Low;");

    #[test]
    fn imports_from_a_lower_layer_are_in_order() {
        let found = problems(&[
            ROOT,
            ("high.rs", "use crate::Low; pub struct High(Low);"),
            ("low.rs", "pub struct Low;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn an_import_from_a_higher_layer_is_found_behind_a_reexport() {
        let found = problems(&[
            ("lib.rs", "mod high; mod low; pub use high::High;"),
            ("high.rs", "pub struct High;"),
            ("low.rs", "use crate::High; pub struct Low(High);"),
        ]);
        assert_eq!(found, ["low.rs imports from high.rs, a layer above it"]);
    }

    #[test]
    fn a_path_in_an_expression_or_a_macro_counts() {
        for body in ["crate::high::call()", "println!(\"{}\", crate::high::call())"] {
            let low = format!("pub struct Low; fn f() {{ {body}; }}");
            let found = problems(&[ROOT, ("high.rs", "pub fn call() {}"), ("low.rs", &low)]);
            assert_eq!(found, ["low.rs imports from high.rs, a layer above it"], "{body}");
        }
    }

    #[test]
    fn code_for_tests_does_not_count() {
        let low = "pub struct Low; #[cfg(test)] mod tests { use crate::high::call; }";
        let found = problems(&[ROOT, ("high.rs", "pub fn call() {}"), ("low.rs", low)]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_visibility_is_not_an_import() {
        let found = problems(&[
            ROOT,
            ("low.rs", "pub struct Low;"),
            ("high/mod.rs", "mod one; use one::Two;"),
            ("high/one/mod.rs", "mod two; pub(super) use two::Two;"),
            ("high/one/two.rs", "pub(in crate::high) struct Two;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_circle_of_siblings_is_found_and_parents_are_excepted() {
        let found = problems(&[
            ROOT,
            ("low.rs", "pub struct Low;"),
            ("high/mod.rs", "mod one; mod two; pub struct Shared; use one::One;"),
            ("high/one.rs", "use super::{Shared, two::Two}; pub struct One(Two, Shared);"),
            ("high/two.rs", "use super::one::One; pub struct Two(Box<One>);"),
        ]);
        assert_eq!(found, ["circle of files: high/one.rs, high/two.rs"]);
    }

    #[test]
    fn a_folder_has_layers_of_its_own() {
        let files = [
            ROOT,
            ("low.rs", "pub struct Low;"),
            ("high/mod.rs", "mod one; mod two; mod three; pub struct Shared;"),
            ("high/one.rs", "use super::two::Two; pub struct One(Two);"),
            ("high/two.rs", "use super::Shared; pub struct Two(Shared);"),
            ("high/three.rs", "use crate::Low; pub struct Three(Low);"),
        ];
        let in_high = |layers| BTreeMap::from([(PathBuf::from("high"), layers)]);
        let mut listed = layers("one", "two");
        listed[1].push("three".to_string());
        assert_eq!(problems_in_folders(&files, in_high(listed)), Vec::<String>::new());
        let found = problems_in_folders(&files, in_high(layers("two", "one")));
        assert_eq!(
            found,
            [
                "module high/three is in no layer of xtask/layers.toml",
                "high/one.rs imports from high/two.rs, a layer above it"
            ]
        );
    }

    #[test]
    fn a_module_without_a_layer_is_named() {
        let found = problems(&[
            ("lib.rs", "mod high; mod other;"),
            ("high.rs", "pub struct High;"),
            ("other.rs", ""),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("module other is in no layer"), "{found:?}");
        assert!(found[1].ends_with("names a missing module low"), "{found:?}");
    }
}
