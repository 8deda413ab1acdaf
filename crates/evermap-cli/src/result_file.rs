//! Files for the results of verbs. They are checked before long work, so that an unwritable file is
//! an error before the work begins.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::failure::{Failure, parent_directory};
use crate::names;
use crate::output::{Stdout, is_standard_output};

/// Checks whether the file can be written later. Leaves no file, and leaves an existing one
/// unchanged.
pub fn check_writable(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    if path == Path::new("-") {
        return Err(Failure::Usage(
            "cannot write a result file to `-`: standard output has the report; name a file, or \
             `./-` for a file of that name"
                .to_string(),
        ));
    }
    let failed = Failure::target(path);
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let what =
                format!("cannot write {}: it is a directory; name a file in it", path.display());
            Err(Failure::Usage(what))
        }
        Ok(found) if found.is_file() => {
            File::options().append(true).open(path).map(drop).map_err(failed)
        }
        // Opening a named pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(_) => tempfile::tempfile_in(parent_directory(path)).map(drop).map_err(failed),
    }
}

/// Refuses a file inside a store, where a result could replace a file of the store itself. Follows
/// symbolic links. `-` is standard output.
pub fn check_outside_store(directory: &Path, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Ok(());
    }
    let failed = Failure::target(path);
    let store = names::canonical(directory).map_err(failed)?;
    let target = names::canonical(path).map_err(failed)?;
    // The store itself is refused as a directory.
    match target != store && target.starts_with(&store) {
        true => Err(Failure::InsideStore { path: path.into(), store: directory.into() }),
        false => Ok(()),
    }
}

/// Writes a file, replacing an existing one. Appends if the file is standard output.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    if is_standard_output(path) {
        return Ok(Stdout.write_all(contents.as_ref())?);
    }
    fs::write(path, contents).map_err(Failure::target(path))
}
