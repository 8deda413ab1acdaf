//! A file that a result goes to, which takes a while to have: whether it can be written is asked before that while is spent.

use std::fs::{self, File};
use std::path::Path;

use crate::failure::{Failure, folder_of};

/// Looks whether a result can be written there later. Nothing is left, and what is there stays as it is.
pub fn ask(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let failed = |source| Failure::Target { path: path.into(), source };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let what =
                format!("cannot write {}: it is a folder; name a file in it", path.display());
            Err(Failure::Usage(what))
        }
        Ok(found) if found.is_file() => {
            File::options().append(true).open(path).map(drop).map_err(failed)
        }
        // Opening a named pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(_) => tempfile::tempfile_in(folder_of(path)).map(drop).map_err(failed),
    }
}
