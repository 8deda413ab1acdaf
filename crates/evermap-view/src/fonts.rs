//! Detects changes of the installed fonts by the time stamps of font directories.
//!
//! A page that was laid out before a font was installed may look different afterwards. A font set
//! records the time stamps of fontconfig's configuration file, of the directories that it names,
//! and of all their subdirectories. Installing, removing or replacing a font changes the time stamp
//! of its directory. Overwriting a font file in place is not detected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};

/// fontconfig's main configuration file.
const CONFIGURATION: &str = "/etc/fonts/fonts.conf";
/// Limits on the depth of directories and on their number.
const DEPTH_MAX: usize = 8;
const DIRECTORIES_MAX: usize = 1024;

/// Font directories and their last modification times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FontSet {
    /// Directories and files, with nanoseconds since 1970; 0 for a missing path.
    stamps: Vec<(PathBuf, u64)>,
}

impl FontSet {
    /// Reads the current set. Costs a walk through the font directories.
    pub fn now() -> FontSet {
        let mut paths = BTreeSet::new();
        let configuration = std::env::var_os("FONTCONFIG_FILE").map(PathBuf::from);
        let configuration = configuration.unwrap_or_else(|| CONFIGURATION.into());
        for directory in directories(&configuration) {
            add(&mut paths, directory, 0);
        }
        paths.insert(configuration.with_file_name("conf.d"));
        paths.insert(configuration);
        let stamps = paths.into_iter().map(|path| {
            let stamp = stamp(&path);
            (path, stamp)
        });
        FontSet { stamps: stamps.collect() }
    }

    /// Returns the first path that has changed since the set was read. Costs one `stat` per
    /// directory.
    pub fn changed(&self) -> Option<String> {
        let changed = self.stamps.iter().find(|(path, noted)| stamp(path) != *noted)?;
        Some(changed.0.display().to_string())
    }
}

fn stamp(path: &Path) -> u64 {
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    match modified.map(|time| time.duration_since(UNIX_EPOCH)) {
        Ok(Ok(since)) => since.as_nanos() as u64,
        _ => 0,
    }
}

/// Adds `directory` and its subdirectories.
fn add(paths: &mut BTreeSet<PathBuf>, directory: PathBuf, depth: usize) {
    if depth > DEPTH_MAX || paths.len() >= DIRECTORIES_MAX {
        return;
    }
    let inside = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let inside: Vec<PathBuf> = inside
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    paths.insert(directory);
    for directory in inside {
        add(paths, directory, depth + 1);
    }
}

/// Returns the `dir` elements of the configuration, or fontconfig's defaults if it has none.
fn directories(configuration: &Path) -> Vec<PathBuf> {
    let parsed = std::fs::read(configuration)
        .ok()
        .and_then(|bytes| evermap_dom::xml::parse_bytes(&bytes, &Default::default()).ok())
        .map(|tables| tables.to_block());
    let mut directories = Vec::new();
    if let Some(block) = &parsed {
        let elements = block.dom();
        let named = elements.document_node().descendants().filter(|node| node.name() == "dir");
        directories.extend(named.filter_map(|node| directory(node.attr("prefix"), &node.text())));
    }
    if directories.is_empty() {
        directories.push("/usr/share/fonts".into());
        directories.push("/usr/local/share/fonts".into());
        directories.extend(directory(Some("xdg"), "fonts"));
        directories.extend(directory(None, "~/.fonts"));
    }
    directories
}

fn directory(prefix: Option<&str>, path: &str) -> Option<PathBuf> {
    let path = path.trim();
    let base = etcetera::base_strategy::Xdg::new().ok();
    match (prefix, path.strip_prefix("~/")) {
        (Some("xdg"), _) => Some(base?.data_dir().join(path)),
        (_, Some(below)) => Some(base?.home_dir().join(below)),
        _ => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
    }
}
