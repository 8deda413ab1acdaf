//! Compares two files or two trees in everything that a copy preserves.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns true if two files have the same contents.
pub fn are_equal(a: &Path, b: &Path) -> Result<bool, String> {
    const BLOCK: u64 = 256 * 1024;
    let [a, b] = [a, b].map(|path| File::open(path).map_err(|e| format!("{path:?}: {e}")));
    let (mut a, mut b) = (a?, b?);
    let (mut blocks, text) = ([Vec::new(), Vec::new()], |e: std::io::Error| e.to_string());
    loop {
        let [x, y] = &mut blocks;
        x.clear();
        y.clear();
        a.by_ref().take(BLOCK).read_to_end(x).map_err(text)?;
        b.by_ref().take(BLOCK).read_to_end(y).map_err(text)?;
        if x != y {
            return Ok(false);
        }
        if x.is_empty() {
            return Ok(true);
        }
    }
}

fn names(directory: &Path) -> Result<BTreeSet<OsString>, String> {
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{directory:?}: {e}"))?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(|e| e.to_string())).collect()
}

/// Returns owner, mode and modification time.
pub fn same_attributes(source: &Path, target: &Path) -> Result<(), String> {
    let of = |path: &Path| path.symlink_metadata().map_err(|e| format!("{path:?}: {e}"));
    let kept = |at: &Metadata| (at.uid(), at.gid(), at.mode(), at.mtime(), at.mtime_nsec());
    let (source_kept, target_kept) = (kept(&of(source)?), kept(&of(target)?));
    match source_kept == target_kept {
        true => Ok(()),
        false => Err(format!("{target:?} has {target_kept:?}, its source {source_kept:?}")),
    }
}

/// Returns how `target` differs from `source`.
pub fn check_same(source: &Path, target: &Path) -> Result<(), String> {
    same_attributes(source, target)?;
    let metadata = source.symlink_metadata().map_err(|e| e.to_string())?;
    if metadata.is_dir() {
        let (wanted, found) = (names(source)?, names(target)?);
        if wanted != found {
            return Err(format!("{target:?} has {found:?} in it, not {wanted:?}"));
        }
        return wanted
            .iter()
            .try_for_each(|name| check_same(&source.join(name), &target.join(name)));
    }
    if metadata.is_symlink() {
        let [wanted, found] = [source, target].map(|path| path.read_link().ok());
        return if wanted == found { Ok(()) } else { Err(format!("{target:?} leads elsewhere")) };
    }
    let links = target.symlink_metadata().map_err(|e| e.to_string())?.nlink();
    if links != metadata.nlink() {
        return Err(format!("{target:?} has {links} names, its source {}", metadata.nlink()));
    }
    match are_equal(source, target)? {
        true => Ok(()),
        false => Err(format!("{target:?} differs from its source")),
    }
}
