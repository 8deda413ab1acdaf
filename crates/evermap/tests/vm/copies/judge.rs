//! Judges the copies after a power failure against the promises, and continues them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use evermap_transfer::{Copy, Durability};

use super::journal::{self, journal_of, part_of};
use super::same::{are_equal, check_same, same_attributes};
use super::{
    FILE, LONG, Name, Promise, TARGETS, TREE_EVERY, file_source, long_source, method_of,
    tree_source, tree_target,
};

/// Results of the judgement.
#[derive(Default)]
pub struct Judged {
    /// Power failures after which the journal of an interrupted copy guaranteed some data.
    pub resumed: u64,
    /// Power failures that left a tree that was not yet reported, and those that left no part of
    /// it.
    pub early_trees: u64,
    pub absent_trees: u64,
}

impl Judged {
    /// Returns the state that `file` has.
    pub fn judge(&mut self, promise: Promise) -> Result<u64, String> {
        check_names()?;
        let found = check_name(FILE, promise.file, file_source)?;
        if found > 0 && method_of(found).durability == Durability::Full {
            same_attributes(&file_source(found), Path::new(FILE))?;
        }
        self.long(promise)?;
        self.trees(promise)?;
        // Leftovers do not prevent a new copy.
        let source = file_source(1);
        Copy::new(&source, FILE).run().map_err(|e| format!("afterwards: {e}"))?;
        match are_equal(&source, Path::new(FILE))? {
            true => Ok(found),
            false => Err("the next copy differs".to_string()),
        }
    }

    fn long(&mut self, promise: Promise) -> Result<(), String> {
        let found = check_name(LONG, promise.long, long_source)?;
        let state = promise.long.ceiling;
        if state == 0 {
            return Ok(());
        }
        let source = long_source(state);
        let part = part_of(LONG);
        let journal = journal::read(LONG).filter(|journal| journal.is_of(&source));
        let vouched_bytes = journal.as_ref().map_or(0, |journal| journal.vouched_bytes());
        if found != state && vouched_bytes < promise.vouched_bytes {
            let before = promise.vouched_bytes;
            return Err(format!("the journal vouched for {before} bytes, now for {vouched_bytes}"));
        }
        let mut expected_bytes = 0;
        if let Some(journal) = journal.filter(|_| found != state || part.exists()) {
            journal.check(&source, &part)?;
            expected_bytes = vouched_bytes;
        }
        let report = Copy::new(&source, LONG).resume(true).run();
        let resumed_bytes = report.map_err(|e| format!("resuming: {e}"))?.resumed_bytes;
        if resumed_bytes != expected_bytes {
            return Err(format!("{resumed_bytes} bytes were resumed, not {expected_bytes}"));
        }
        self.resumed += u64::from(resumed_bytes > 0);
        if !are_equal(&source, Path::new(LONG))? {
            return Err("what was resumed differs from its source".to_string());
        }
        match part.exists() || journal_of(LONG).exists() {
            true => Err("what was resumed left its part or journal".to_string()),
            false => Ok(()),
        }
    }

    fn trees(&mut self, promise: Promise) -> Result<(), String> {
        let Promise { tree_floor: floor, tree_ceiling: ceiling, .. } = promise;
        for state in (floor..=ceiling).filter(|state| *state > 0 && state % TREE_EVERY == 0) {
            let target = tree_target(state);
            if target.symlink_metadata().is_ok() {
                check_same(&tree_source(state), &target)?;
                self.early_trees += u64::from(state > floor);
            } else if state == floor {
                return Err(format!("tree {state} was reported and is not there"));
            } else {
                self.absent_trees += 1;
            }
        }
        Ok(())
    }
}

/// Returns the complete state that a name has, or 0.
fn check_name(path: &str, promised: Name, source_of: fn(u64) -> PathBuf) -> Result<u64, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match promised.may_be_free {
                true => Ok(0),
                false => Err(format!("nothing has the name {path}, {promised:?} was promised")),
            };
        }
        Err(error) => return Err(format!("{path}: {error}")),
    };
    let bytes = file.metadata().map_err(|e| format!("{path}: {e}"))?.len();
    let mut number = [0; 8];
    if file.read_exact_at(&mut number, 0).is_err() {
        return Err(format!("{path} has {bytes} bytes, {promised:?} was promised"));
    }
    let number = u64::from_le_bytes(number);
    if number == 0 || number < promised.floor || number > promised.ceiling {
        return Err(format!("{path} begins as state {number}, {promised:?} was promised"));
    }
    match are_equal(&source_of(number), Path::new(path))? {
        true => Ok(number),
        false => Err(format!("{path} is not the whole of state {number}: {bytes} bytes")),
    }
}

/// Asserts that no incomplete copy has a user-visible name.
fn check_names() -> Result<(), String> {
    for entry in std::fs::read_dir(TARGETS).map_err(|e| e.to_string())? {
        let name = entry.map_err(|e| e.to_string())?.file_name().to_string_lossy().into_owned();
        let is_temporary = name.starts_with('.') && name.contains(".evermap-");
        let is_known = ["file", "long", "lost+found"].contains(&name.as_str());
        if !is_temporary && !is_known && !name.starts_with("tree-") {
            return Err(format!("there is a {name}"));
        }
    }
    Ok(())
}
