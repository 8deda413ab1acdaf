//! Names of documents: from a file's path, and from what a user types.
//!
//! A document of a file is named after the file's path: relative to the directory that the store is in
//! if the file is below that, else absolute. `.` and `..` are gone, symbolic links are not resolved.
//! What a user types is such a path, the name itself, or the end of one if only one document has it.
//!
//! An object's name has at most 255 bytes. A longer path is kept with the document, and the object's
//! name is `//`, the first 32 hexadecimal digits of the path's BLAKE3, `/` and the file's name, of
//! which 200 bytes are shown. No path begins with `//`.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use evermap::{Error, Store};
use evermap_dom::Document;

use crate::failure::Failure;

/// Bytes of an object's name.
const OBJECT_NAME_BYTES_MAX: usize = 255;
/// Bytes of a path, as the kernel has it.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a file's name that the name of an object with a long path shows.
const TAIL_BYTES_MAX: usize = 200;
/// Candidates that an error names.
const CANDIDATES_MAX: usize = 5;

/// The name of a file's document.
#[derive(Debug, PartialEq, Eq)]
pub struct FileName {
    /// All of it.
    pub whole: String,
    /// The object's name.
    pub in_store: String,
}

impl FileName {
    /// The name that the document of `file` has in the store at `directory`.
    pub fn of(directory: &Path, file: &Path) -> Result<FileName, Failure> {
        let failed = |source| Failure::Source { path: file.to_path_buf(), source };
        let file_path = absolute(file).map_err(failed)?;
        let root = parent_of(directory).map_err(failed)?;
        let path = file_path.strip_prefix(&root).unwrap_or(&file_path);
        let whole = path.to_str().ok_or_else(|| no_name(file, "it is not UTF-8"))?;
        if whole.is_empty() || whole.len() > PATH_BYTES_MAX {
            return Err(no_name(file, "it is longer than 4,096 bytes"));
        }
        if whole.chars().any(char::is_control) {
            return Err(no_name(file, "it contains a control character"));
        }
        Ok(FileName { whole: whole.to_string(), in_store: in_store(whole) })
    }
}

fn no_name(file: &Path, why: &str) -> Failure {
    Failure::Usage(format!(
        "no name for the document can be made from {}: {why}; give it one with --name",
        file.display()
    ))
}

/// The object's name for a document's.
fn in_store(whole: &str) -> String {
    if whole.len() <= OBJECT_NAME_BYTES_MAX {
        return whole.to_string();
    }
    let file_name = whole.rsplit('/').next().unwrap_or_default();
    let mut start = file_name.len().saturating_sub(TAIL_BYTES_MAX);
    while !file_name.is_char_boundary(start) {
        start += 1;
    }
    let hash = blake3::hash(whole.as_bytes()).to_hex();
    format!("//{}/{}", &hash[..32], &file_name[start..])
}

/// Is this the name of an object whose document has a longer one?
fn is_short(object: &str) -> bool {
    object.starts_with("//")
}

/// The directory that paths in a store are relative to.
pub fn parent_of(directory: &Path) -> io::Result<PathBuf> {
    let mut path = absolute(directory)?;
    path.pop();
    Ok(path)
}

/// Where the file of a document is, by its name: relative ones are below the store's parent.
pub fn file_of(directory: &Path, name: &str) -> PathBuf {
    match (directory.file_name(), directory.parent()) {
        (Some(_), Some(parent)) => parent.join(name),
        _ => parent_of(directory).unwrap_or_default().join(name),
    }
}

/// An absolute path without `.` and `..`. A `..` behind a symbolic link stays, for it leads elsewhere.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        let is_up = component == Component::ParentDir;
        match is_up && clean.file_name().is_some() && !clean.is_symlink() {
            true => {
                clean.pop();
            }
            // Above the root there is nothing.
            false if is_up && clean.parent().is_none() => {}
            false => clean.push(component),
        }
    }
    Ok(clean)
}

/// Refuses a slash in a name that is given to an object, and not made from a file.
pub fn check_given(name: &str) -> Result<&str, Failure> {
    match name.contains('/') {
        true => Err(Failure::Store(Error::InvalidName {
            name: name.to_string(),
            why: "it contains a slash, which only documents that are named after their files have",
        })),
        false => Ok(name),
    }
}

/// The object that a user means by `typed`: a document's path from here, its name, or the end of one.
///
/// # Errors
/// Without one object that can be meant, or with several.
pub fn resolve(store: &Store, directory: &Path, typed: &str) -> Result<String, Failure> {
    let is_exact = is_possible(typed) && store.contains(typed)?;
    resolve_known(store, directory, typed, is_exact)
}

/// As [`resolve`], when it is known whether there is an object of just this name.
pub fn resolve_known(
    store: &Store,
    directory: &Path,
    typed: &str,
    is_exact: bool,
) -> Result<String, Failure> {
    let not_found = || Error::NotFound { store: store.path().into(), object: typed.to_string() };
    if !typed.contains('/') && !is_possible(typed) {
        // Says what is wrong with it.
        return store.contains(typed).map(|_| typed.to_string()).map_err(Failure::from);
    }
    let from_here = FileName::of(directory, Path::new(typed)).ok();
    if let Some(name) = &from_here {
        let is_file = name.in_store == typed || store.contains(&name.in_store)?;
        match (is_exact, is_file && name.in_store != typed) {
            (true, true) => return Err(ambiguous(typed, &[typed.to_string(), name.whole.clone()])),
            (false, true) => return Ok(name.in_store.clone()),
            _ => {}
        }
    }
    if is_exact {
        return Ok(typed.to_string());
    }
    if let Some(name) = of_its_source(store, typed) {
        return Ok(name);
    }
    let mut candidates = ending_in(store, typed)?;
    match candidates.len() {
        0 => Err(not_found().into()),
        1 => Ok(candidates.remove(0).in_store),
        _ => {
            let names: Vec<String> = candidates.into_iter().map(|name| name.whole).collect();
            Err(ambiguous(typed, &names))
        }
    }
}

/// As [`resolve`], for tools that look at a store without opening it. A store that cannot be opened
/// has what is typed, and the tool says what is wrong.
pub fn resolve_closed(directory: &Path, typed: &str) -> Result<String, Failure> {
    match Store::open(directory) {
        Ok(store) => match resolve(&store, directory, typed) {
            Err(Failure::Store(error)) if !matches!(error, Error::NotFound { .. }) => {
                tracing::debug!(%error, "names are taken as they are typed");
                Ok(typed.to_string())
            }
            resolved => resolved,
        },
        Err(_) => Ok(typed.to_string()),
    }
}

/// Can an object be called so, as far as a path's end goes?
fn is_possible(typed: &str) -> bool {
    let length = 1..=OBJECT_NAME_BYTES_MAX;
    length.contains(&typed.len())
        && typed != "."
        && typed != ".."
        && !typed.chars().any(char::is_control)
}

/// A document that has its file's base name, as older versions named them.
fn of_its_source(store: &Store, typed: &str) -> Option<String> {
    let path = absolute(Path::new(typed)).ok()?;
    let base = path.file_name().and_then(OsStr::to_str)?;
    is_named_by_base(store, base, &path).then(|| base.to_string())
}

/// Is `base` the document of the file `path`, kept under the file's base name?
pub fn is_named_by_base(store: &Store, base: &str, path: &Path) -> bool {
    let document = store.read::<Document>(base);
    document.is_ok_and(|document| {
        document.file_name().is_none() && Path::new(&document.source().path) == path
    })
}

/// Documents whose names end in a slash and what is typed.
fn ending_in(store: &Store, typed: &str) -> Result<Vec<FileName>, Failure> {
    let mut end = typed;
    while let Some(rest) = end.strip_prefix("./") {
        end = rest.trim_start_matches('/');
    }
    if end.is_empty() || end.starts_with('/') {
        return Ok(Vec::new());
    }
    let end = format!("/{end}");
    let mut found = Vec::new();
    for object in store.list()? {
        let whole = match is_short(&object) {
            true => whole_name(store, &object).unwrap_or_else(|| object.clone()),
            false => object.clone(),
        };
        if whole.ends_with(&end) {
            found.push(FileName { whole, in_store: object });
        }
    }
    found.sort_unstable_by(|a, b| a.whole.cmp(&b.whole));
    Ok(found)
}

/// The name of an object's document, if the object's own is made from it.
pub fn whole_name(store: &Store, object: &str) -> Option<String> {
    let document = store.read::<Document>(object).ok()?;
    document.file_name().filter(|name| in_store(name) == object).map(str::to_string)
}

/// The name that is shown for an object.
pub fn shown(store: &Store, object: &str) -> String {
    match is_short(object) {
        true => whole_name(store, object).unwrap_or_else(|| object.to_string()),
        false => object.to_string(),
    }
}

/// Returns true for an object of a sandbox's guest. An object that cannot be opened is taken for none.
pub fn is_of_guest(store: &Store, object: &str) -> bool {
    matches!(store.read::<Document>(object), Err(Error::OtherKind { .. }))
}

/// An error of opening a document, for a user of the command.
pub fn not_a_document(name: &str, error: Error) -> Failure {
    match error {
        Error::SchemaMismatch { .. } | Error::OtherKind { .. } => {
            Failure::NotADocument { name: name.to_string() }
        }
        other => other.into(),
    }
}

fn ambiguous(typed: &str, candidates: &[String]) -> Failure {
    let named: Vec<String> =
        candidates.iter().take(CANDIDATES_MAX).map(|name| format!("`{name}`")).collect();
    let more = match candidates.len().saturating_sub(CANDIDATES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Failure::Usage(format!(
        "`{typed}` can mean {} documents: {}{more}; name one by more of its path, or with `./` by its \
         path from here",
        candidates.len(),
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(directory: &str, file: &str) -> String {
        FileName::of(Path::new(directory), Path::new(file)).unwrap().whole
    }

    #[test]
    fn a_file_below_the_stores_parent_has_a_relative_name_and_another_an_absolute_one() {
        assert_eq!(name("/data/store", "/data/a/index.html"), "a/index.html");
        assert_eq!(name("/data/store", "/data/./a/../b//index.html"), "b/index.html");
        assert_eq!(name("/data/store", "/database/index.html"), "/database/index.html");
        assert_eq!(name("/data/x/../store", "/data/index.html"), "index.html");
        assert_eq!(name("/data/store", "/../data/../../data/a"), "a");
        assert_eq!(name("/store", "/a"), "a");
    }

    #[test]
    fn long_paths_are_told_apart_and_their_objects_names_fit() {
        let long = |first: &str| format!("/data/{first}/{}/index.html", "directory/".repeat(100));
        let [a, b] = ["a", "b"]
            .map(|first| FileName::of(Path::new("/data/store"), Path::new(&long(first))).unwrap());
        assert!(a.whole.len() > 1000 && a.whole != b.whole && a.in_store != b.in_store);
        assert!(a.in_store.starts_with("//") && a.in_store.ends_with("/index.html"), "{a:?}");
        let wide = format!("/data/{}/{}", "d".repeat(255), "ö".repeat(127));
        let wide = FileName::of(Path::new("/data/store"), Path::new(&wide)).unwrap();
        assert!(wide.in_store.len() <= OBJECT_NAME_BYTES_MAX, "{wide:?}");
        let limit = format!("/data/{}", "d/".repeat(2048));
        assert_eq!(name("/data/store", &limit[..6 + 4095]).len(), 4095);
    }

    #[test]
    fn a_path_that_makes_no_name_is_refused_with_the_reason() {
        use std::os::unix::ffi::OsStrExt;
        let beyond = format!("/data/{}", "d/".repeat(2050));
        let paths: [(&[u8], &str); 5] = [
            (beyond.as_bytes(), "longer than 4,096 bytes"),
            (b"/data/a\nb.html", "control character"),
            (b"/data/\x1b[2J/page.html", "control character"),
            (b"/elsewhere/a\x7f", "control character"),
            (b"/data/caf\xe9.html", "not UTF-8"),
        ];
        for (path, why) in paths {
            let path = Path::new(OsStr::from_bytes(path));
            match FileName::of(Path::new("/data/store"), path) {
                Err(Failure::Usage(told)) => {
                    assert!(told.contains(why) && told.contains("--name"), "{told}");
                }
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }
}
