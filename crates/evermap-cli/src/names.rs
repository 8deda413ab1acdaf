//! Names of documents: made from a file's path, and resolved from a user's input.
//!
//! A document is named after its file's path: relative to the parent directory of the store if the
//! file is below it, else absolute. `.` and `..` are removed; symbolic links below that directory
//! are not resolved. The store's own path is resolved, so that all spellings of it lead to the same
//! names. A user types such a path, the name itself, or the end of a name if only one document has
//! it.
//!
//! An object's name has at most 255 bytes. For a longer path the document stores the whole path,
//! and the object's name is `//`, the first 32 hexadecimal digits of the path's BLAKE3, `/` and the
//! last 200 bytes of the file's name. No path begins with `//`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use evermap::{Error, Store};
use evermap_dom::Document;

use crate::failure::Failure;

/// Maximum length of an object's name.
const OBJECT_NAME_BYTES_MAX: usize = 255;
/// Maximum length of a path, as in the kernel.
const PATH_BYTES_MAX: usize = 4096;
/// Maximum length of the file's name within the object name of a long path.
const TAIL_BYTES_MAX: usize = 200;
/// Maximum number of candidates that an error lists.
const CANDIDATES_MAX: usize = 5;

/// The name of a file's document.
#[derive(Debug, PartialEq, Eq)]
pub struct FileName {
    /// Name of the document.
    pub full: String,
    /// Name of its object, which is shortened if `full` is too long.
    pub object: String,
}

impl FileName {
    /// Returns the name of the document of `file` in the store at `directory`.
    ///
    /// `Usage` for a path that is too long, not UTF-8, or contains control characters; `Source` if
    /// the current directory cannot be read.
    pub fn of(directory: &Path, file: &Path) -> Result<FileName, Failure> {
        let failed = Failure::source(file);
        let file_path = absolute(file).map_err(failed)?;
        let root = parent_of(directory).map_err(failed)?;
        let path = path_below(&root, &file_path).unwrap_or(&file_path);
        let full = path.to_str().ok_or_else(|| invalid_name(file, "it is not UTF-8"))?;
        if full.is_empty() || full.len() > PATH_BYTES_MAX {
            return Err(invalid_name(file, "it is longer than 4,096 bytes"));
        }
        if full.chars().any(char::is_control) {
            return Err(invalid_name(file, "it contains a control character"));
        }
        Ok(FileName { full: full.to_string(), object: object_name(full) })
    }
}

fn invalid_name(file: &Path, why: &str) -> Failure {
    Failure::Usage(format!(
        "cannot name the document after its path {}: {why}; give it a name with `--name`",
        file.display()
    ))
}

/// Returns the object's name for a document's full name.
fn object_name(full: &str) -> String {
    if full.len() <= OBJECT_NAME_BYTES_MAX {
        return full.to_string();
    }
    let file_name = full.rsplit('/').next().unwrap_or_default();
    let mut start = file_name.len().saturating_sub(TAIL_BYTES_MAX);
    while !file_name.is_char_boundary(start) {
        start += 1;
    }
    let hash = blake3::hash(full.as_bytes()).to_hex();
    format!("//{}/{}", &hash[..32], &file_name[start..])
}

/// Returns true for a shortened object name, whose document has a longer name.
fn is_shortened(object: &str) -> bool {
    object.starts_with("//")
}

/// Returns the parent directory of a store. Names of documents are relative to it. A store has one
/// parent, even if a symbolic link leads to it.
fn parent_of(directory: &Path) -> io::Result<PathBuf> {
    let mut path = canonical(directory)?;
    path.pop();
    Ok(path)
}

/// Returns the path of a document's file. A relative name is below the store's parent directory.
pub fn file_of(directory: &Path, name: &str) -> PathBuf {
    match name.starts_with('/') {
        true => PathBuf::from(name),
        false => parent_of(directory).unwrap_or_default().join(name),
    }
}

/// Returns the path of `file` from the directory `root`, if that is on the file's path by any
/// spelling. Both are absolute. Costs one `stat` for each part of the path if the spellings differ.
fn path_below<'a>(root: &Path, file: &'a Path) -> Option<&'a Path> {
    if let Ok(path) = file.strip_prefix(root) {
        return Some(path);
    }
    let identity =
        |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let root = identity(root)?;
    let above: Vec<&Path> = file.ancestors().skip(1).collect();
    // The outermost one, as if the path began with the root's own spelling.
    let same = above.into_iter().rev().find(|above| identity(above) == Some(root))?;
    file.strip_prefix(same).ok()
}

/// Returns an absolute path without symbolic links. The last parts need not exist.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    fn resolved(path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => resolved(parent).join(name),
            _ => path.to_path_buf(),
        })
    }
    Ok(resolved(&absolute(path)?))
}

/// Returns an absolute path without `.` and `..`. A `..` after a symbolic link stays, because it
/// refers to the parent of the link's target.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        let is_up = component == Component::ParentDir;
        match is_up && clean.file_name().is_some() && !clean.is_symlink() {
            true => {
                clean.pop();
            }
            // The root is its own parent.
            false if is_up && clean.parent().is_none() => {}
            false => clean.push(component),
        }
    }
    Ok(clean)
}

/// Refuses a slash in a name that a user gives to an object.
pub fn check_given(name: &str) -> Result<&str, Failure> {
    match name.contains('/') {
        true => Err(Failure::Store(Error::InvalidName {
            name: name.to_string(),
            why: "it contains a slash; only documents that are named after files may have one",
        })),
        false => Ok(name),
    }
}

/// Refuses a new name that cannot be the path of a file, because a user could not name the object
/// by it later.
pub fn check_new(name: &str) -> Result<&str, Failure> {
    let mut parts = name.strip_prefix('/').unwrap_or(name).split('/');
    match name.contains('/') && parts.any(|part| matches!(part, "" | "." | "..")) {
        true => Err(Failure::Store(Error::InvalidName {
            name: name.to_string(),
            why: "a part between its slashes is empty, `.` or `..`; write it as `ls` shows names",
        })),
        false => Ok(name),
    }
}

/// Returns the object's name for a new name of the object `from`. A document gets the name of its
/// file back even if that is too long for an object.
pub fn renamed(store: &Store, from: &str, to: &str) -> Result<String, Failure> {
    let to = check_new(to)?;
    let document = store.read::<Document>(from);
    let is_own_name = document.is_ok_and(|document| document.file_name() == Some(to));
    Ok(if is_own_name { object_name(to) } else { to.to_string() })
}

/// Returns the object that `typed` refers to: the path of a document's file from the current
/// directory, the object's name, or the end of a document's name.
///
/// # Errors
/// `Store(NotFound)` without a match; `Usage` with several.
pub fn resolve(store: &Store, directory: &Path, typed: &str) -> Result<String, Failure> {
    let is_exact = is_possible(typed) && store.contains(typed)?;
    resolve_known(store, directory, typed, is_exact)
}

/// Like [`resolve`], for verbs that remove or rename the object: the end of a name is not enough.
///
/// # Errors
/// `Store(NotFound)` without a match; `Usage` if only the end of a name matches.
pub fn resolve_whole(store: &Store, directory: &Path, typed: &str) -> Result<String, Failure> {
    let is_exact = is_possible(typed) && store.contains(typed)?;
    if let Some(object) = find_whole(store, directory, typed, is_exact)? {
        return Ok(object);
    }
    let names: Vec<String> =
        find_by_ending(store, typed)?.into_iter().map(|name| name.full).collect();
    match names.is_empty() {
        true => Err(not_found(store, typed)),
        false => Err(Failure::Usage(format!(
            "`{typed}` is only the end of {}; type the whole name, or the path of its file",
            listed(&names)
        ))),
    }
}

/// Like [`resolve`], for callers that know whether an object has exactly this name.
pub fn resolve_known(
    store: &Store,
    directory: &Path,
    typed: &str,
    is_exact: bool,
) -> Result<String, Failure> {
    if let Some(object) = find_whole(store, directory, typed, is_exact)? {
        return Ok(object);
    }
    let mut candidates = find_by_ending(store, typed)?;
    match candidates.len() {
        0 => Err(not_found(store, typed)),
        1 => Ok(candidates.remove(0).object),
        _ => {
            let names: Vec<String> = candidates.into_iter().map(|name| name.full).collect();
            Err(ambiguous(typed, &names))
        }
    }
}

fn not_found(store: &Store, typed: &str) -> Failure {
    Error::NotFound { store: store.path().into(), object: typed.to_string() }.into()
}

/// Returns the object whose name is `typed`, or whose file's path it is.
fn find_whole(
    store: &Store,
    directory: &Path,
    typed: &str,
    is_exact: bool,
) -> Result<Option<String>, Failure> {
    if !typed.contains('/') && !is_possible(typed) {
        // Returns the error for the invalid name.
        return store.contains(typed).map(|_| Some(typed.to_string())).map_err(Failure::from);
    }
    let by_path = FileName::of(directory, Path::new(typed)).ok();
    if let Some(name) = &by_path {
        let is_file = name.object == typed || store.contains(&name.object)?;
        match (is_exact, is_file && name.object != typed) {
            (true, true) => return Err(ambiguous(typed, &[typed.to_string(), name.full.clone()])),
            (false, true) => return Ok(Some(name.object.clone())),
            _ => {}
        }
    }
    if is_exact {
        return Ok(Some(typed.to_string()));
    }
    // The name of a document, as `ls` shows it, can be too long for an object.
    let object = object_name(typed);
    if object != typed && store.contains(&object)? {
        return Ok(Some(object));
    }
    Ok(find_by_base_name(store, typed))
}

/// Like [`resolve`], for tools that read a store without opening it. Returns `typed` if the store
/// cannot be opened; the tool then reports the cause.
pub fn resolve_closed(directory: &Path, typed: &str) -> Result<String, Failure> {
    match Store::open(directory) {
        Ok(store) => match resolve(&store, directory, typed) {
            Err(Failure::Store(error)) if !matches!(error, Error::NotFound { .. }) => {
                tracing::debug!(%error, "cannot resolve the name, using it as typed");
                Ok(typed.to_string())
            }
            resolved => resolved,
        },
        Err(_) => Ok(typed.to_string()),
    }
}

/// Returns true if an object may have this name. Slashes are not checked.
fn is_possible(typed: &str) -> bool {
    let length = 1..=OBJECT_NAME_BYTES_MAX;
    length.contains(&typed.len())
        && typed != "."
        && typed != ".."
        && !typed.chars().any(char::is_control)
}

/// Returns the document of the file `typed` that has its file's base name, as in older versions.
fn find_by_base_name(store: &Store, typed: &str) -> Option<String> {
    let path = absolute(Path::new(typed)).ok()?;
    let base = path.file_name().and_then(OsStr::to_str)?;
    is_named_by_base(store, base, &path).then(|| base.to_string())
}

/// Returns true if `base` is the document of the file `path`, named after the file's base name.
pub fn is_named_by_base(store: &Store, base: &str, path: &Path) -> bool {
    let document = store.read::<Document>(base);
    document.is_ok_and(|document| {
        document.file_name().is_none() && Path::new(&document.source().path) == path
    })
}

/// Returns the documents whose names end in a slash and `typed`.
fn find_by_ending(store: &Store, typed: &str) -> Result<Vec<FileName>, Failure> {
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
        let full = match is_shortened(&object) {
            true => full_name(store, &object).unwrap_or_else(|| object.clone()),
            false => object.clone(),
        };
        if full.ends_with(&end) {
            found.push(FileName { full, object });
        }
    }
    found.sort_unstable_by(|a, b| a.full.cmp(&b.full));
    Ok(found)
}

/// Returns the full name of an object's document, if the object's name was made from it.
pub fn full_name(store: &Store, object: &str) -> Option<String> {
    let document = store.read::<Document>(object).ok()?;
    document.file_name().filter(|name| object_name(name) == object).map(str::to_string)
}

/// Returns the name to display for an object.
pub fn display_name(store: &Store, object: &str) -> String {
    match is_shortened(object) {
        true => full_name(store, object).unwrap_or_else(|| object.to_string()),
        false => object.to_string(),
    }
}

/// Returns true for a guest object of a sandbox. Returns false if the object cannot be opened.
pub fn is_guest_object(store: &Store, object: &str) -> bool {
    matches!(store.read::<Document>(object), Err(Error::OtherKind { .. }))
}

/// Converts an error of opening a document: another type becomes [`Failure::NotADocument`].
pub fn document_error(name: &str, error: Error) -> Failure {
    match error {
        Error::SchemaMismatch { .. } | Error::OtherKind { .. } => {
            Failure::NotADocument { name: name.to_string() }
        }
        other => other.into(),
    }
}

/// Returns the names as a list for a message, up to [`CANDIDATES_MAX`].
fn listed(candidates: &[String]) -> String {
    let named: Vec<String> =
        candidates.iter().take(CANDIDATES_MAX).map(|name| format!("`{name}`")).collect();
    let more = match candidates.len().saturating_sub(CANDIDATES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

fn ambiguous(typed: &str, candidates: &[String]) -> Failure {
    Failure::Usage(format!(
        "`{typed}` matches {} documents: {}; type more of the path, or `./` and the path from \
         the current directory",
        candidates.len(),
        listed(candidates)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(directory: &str, file: &str) -> String {
        FileName::of(Path::new(directory), Path::new(file)).unwrap().full
    }

    #[test]
    fn files_below_the_stores_parent_have_relative_names_and_others_absolute_ones() {
        assert_eq!(name("/data/store", "/data/a/index.html"), "a/index.html");
        assert_eq!(name("/data/store", "/data/./a/../b//index.html"), "b/index.html");
        assert_eq!(name("/data/store", "/database/index.html"), "/database/index.html");
        assert_eq!(name("/data/x/../store", "/data/index.html"), "index.html");
        assert_eq!(name("/data/store", "/../data/../../data/a"), "a");
        assert_eq!(name("/store", "/a"), "a");
    }

    #[test]
    fn long_paths_have_distinct_object_names_within_the_limit() {
        let long = |first: &str| format!("/data/{first}/{}/index.html", "directory/".repeat(100));
        let [a, b] = ["a", "b"]
            .map(|first| FileName::of(Path::new("/data/store"), Path::new(&long(first))).unwrap());
        assert!(a.full.len() > 1000 && a.full != b.full && a.object != b.object);
        assert!(a.object.starts_with("//") && a.object.ends_with("/index.html"), "{a:?}");
        let wide = format!("/data/{}/{}", "d".repeat(255), "ö".repeat(127));
        let wide = FileName::of(Path::new("/data/store"), Path::new(&wide)).unwrap();
        assert!(wide.object.len() <= OBJECT_NAME_BYTES_MAX, "{wide:?}");
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
