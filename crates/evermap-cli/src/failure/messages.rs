//! Causes and remedies of errors, with the command's verbs and options in place of Rust functions.

use std::io;
use std::path::Path;

use evermap::{Error, tools};
use evermap_dom::{SelectorError, SelectorErrorKind};

use crate::text::counted;

/// Words that occur in every remedy for missing resources: no second remedy is added.
const REMEDIES: [&str; 4] = ["ulimit", "free ", "another disk", "name a file"];

/// Adds a remedy if a limit or a full disk caused the failure and its message names none.
pub fn with_remedy(message: String, failure: &(dyn std::error::Error + 'static)) -> String {
    match resource_remedy(failure) {
        Some(remedy) if REMEDIES.iter().all(|known| !message.contains(known)) => {
            format!("{message}; {remedy}")
        }
        _ => message,
    }
}

/// Returns the remedy if a limit or a full disk caused the error.
fn resource_remedy(failure: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut error = Some(failure);
    while let Some(at) = error {
        match at.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::FileTooLarge) => {
                return Some("raise this process's file size limit (`ulimit -f`)");
            }
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                return Some("free some space there, or use another disk");
            }
            Some(io::ErrorKind::OutOfMemory) => {
                return Some("raise this process's limit (`ulimit -v`), or free memory");
            }
            Some(io::ErrorKind::WouldBlock) => {
                return Some("raise this process's limits (`ulimit -u`, `ulimit -v`)");
            }
            _ => error = at.source(),
        }
    }
    None
}

/// Returns the cause and the remedy of a failure to read a file.
pub fn read(source: &io::Error) -> String {
    let why = without_path(source);
    match source.kind() {
        io::ErrorKind::NotFound => format!("{why}; check the name"),
        io::ErrorKind::NotADirectory => {
            format!("{why}; a part of the path is a file: check the name")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{why}; run as a user with permission, or change the permissions")
        }
        _ => why,
    }
}

/// Returns the cause and the remedy of a failure to write a file.
pub fn write(path: &Path, source: &io::Error) -> String {
    let folder = parent_directory(path);
    let directory = folder.display();
    let is_device =
        || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    match source.kind() {
        io::ErrorKind::NotFound if folder.is_dir() => {
            format!("files cannot be created in {directory}; name a file elsewhere")
        }
        io::ErrorKind::NotFound => {
            format!("directory {directory} does not exist; create it, or name a file elsewhere")
        }
        io::ErrorKind::NotADirectory => {
            format!("{directory} is not a directory; name a file in a directory")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => format!(
            "{}; name a file elsewhere, or check the permissions of {directory} and whether it is \
             mounted read-only",
            without_path(source)
        ),
        io::ErrorKind::StorageFull if is_device() => {
            "this device accepts no more bytes; name a file".to_string()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no space left; free some in {directory}, or name a file on another disk")
        }
        _ => without_path(source),
    }
}

/// Returns the cause and the remedy of a failure to start a confined command.
pub fn start(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "its interpreter or its loader does not exist; install it, or correct the file's first \
             line"
                .to_string()
        }
        io::ErrorKind::PermissionDenied => "it is not executable, or needs a file that it may not \
             read, such as its interpreter or its loader; make it executable, or allow the file \
             with `--read`"
            .to_string(),
        _ => without_path(source),
    }
}

/// Returns the text of an I/O error without the path of a temporary file, which `tempfile` adds.
fn without_path(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or(&text).to_string()
}

/// Returns the message of a selector error, with the command's option in place of a Rust function.
pub fn selector(error: &SelectorError) -> String {
    match error.kind {
        SelectorErrorKind::UnknownPrefix => format!(
            "{}; declare it with `--namespace PREFIX=URI`",
            error.to_string().replace(" (see Selector::parse_with_namespaces)", "")
        ),
        _ => error.to_string(),
    }
}

/// Replaces the names of the library's builder options by the command's flags.
pub fn transfer(error: &evermap_transfer::Error) -> String {
    const FLAGS: [(&str, &str); 6] = [
        ("`keep_going` (--keep-going)", "`--keep-going`"),
        ("(keep going)", "(`--keep-going`)"),
        ("`room_bytes_max` (--room)", "`--room`"),
        ("`resume`", "`--resume`"),
        ("leave `engine` out", "leave `--engine` out"),
        ("omit `engine`", "omit `--engine`"),
    ];
    FLAGS.iter().fold(error.to_string(), |text, (option, flag)| text.replace(option, flag))
}

/// Remedy for a damaged object file, in place of the library's.
const OBJECT_REMEDY: &str = "if it is a document, parse it again with `evermap parse --force`; \
    otherwise restore it from a backup, or see what `evermap store check` can repair";

/// Returns true for an object's file. `parse --force` replaces it if the object is a document.
fn is_object_file(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|directory| directory == "objects")
}

/// Returns the message of a rebase, an export or an import, with the command's options in its
/// remedy.
pub fn tools(error: &tools::Error) -> String {
    match error {
        tools::Error::Store(error) => store(error),
        tools::Error::ChangedSince { path, what } => format!(
            "store {} has changed since its rebase: {what}; `--undo --force` undoes the rebase anyway and loses the change",
            path.display()
        ),
        tools::Error::PointsElsewhere { object, count, to, first } => format!(
            "object `{object}` has {} to {to} (the first at {first}); `--force` exports it anyway, and such pointers will be invalid",
            counted(*count, "pointer")
        ),
        other => other.to_string(),
    }
}

/// Returns the message of a store error, with the command's verbs and options in its remedy.
pub fn store(error: &Error) -> String {
    match error {
        Error::NoStore { path, why } => format!(
            "no store at {}: {why}; make one with `evermap parse FILE` (or `evermap store import`, `evermap store restore`), or name another with `--store` or EVERMAP_STORE",
            path.display()
        ),
        Error::NotFound { store, object } => format!(
            "no object `{object}` in store {}; list the names with `evermap ls`",
            store.display()
        ),
        Error::AlreadyExists { store, object } => format!(
            "object `{object}` already exists in store {}; remove it with `evermap rm`, or choose another name",
            store.display()
        ),
        // The other remedies are for the store.
        Error::Damaged { what: "the backup", .. } => error.to_string(),
        Error::Damaged { path, what, found, expected } if is_object_file(path) => format!(
            "{} is damaged: {what} (found {found}, expected {expected}); {OBJECT_REMEDY}",
            path.display()
        ),
        Error::Foreign { path, found } if is_object_file(path) => {
            format!("{} is not an Evermap file: {found}; {OBJECT_REMEDY}", path.display())
        }
        Error::SchemaMismatch { store, object, .. } => format!(
            "object `{object}` in store {} has another type and is not a document; show its type with `evermap info`, give the document another name with `--name`, or replace the object with `evermap parse --force`",
            store.display()
        ),
        Error::OtherBuild { object, recorded, found } => format!(
            "object `{object}` has pointers into {recorded}, and this process has {found}; open it with the program that made it, or inspect it with `evermap store check` and `evermap store map`"
        ),
        other => other.to_string(),
    }
}

#[cfg(feature = "sandbox")]
pub fn sandbox(error: &evermap_wasm::Error) -> String {
    match error {
        evermap_wasm::Error::Store(error) => store(error),
        other => other.to_string(),
    }
}

#[cfg(feature = "view")]
pub fn page(error: &evermap_view::ViewError) -> String {
    match error {
        evermap_view::ViewError::Store(error) => store(error),
        other => other.to_string(),
    }
}

/// Returns the directory of a file that exists or will be made.
pub fn parent_directory(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}
