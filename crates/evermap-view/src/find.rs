//! Resolves a name that the user gives: an address, a file, or an object in the store.

use std::path::Path;

use evermap::{Error, Store};
use evermap_dom::Document;
use url::Url;

use crate::home::{self, is_home};
use crate::page_store::StoredPage;
use crate::stored_object::Unusable;
use crate::target::Target;
use crate::{Result, ViewError};

/// Resolves `name`: an address if it has a scheme; else a file if one exists; else an object of
/// this name in the store; else a host if it looks like one. Costs a `stat` and a catalog
/// lookup.
///
/// # Errors
/// Fails if nothing matches.
pub fn find_target(name: &str, store: Option<&Store>) -> Result<Target> {
    let name = name.trim();
    let (scheme, rest) = name.split_once(':').unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    if matches!(scheme.as_str(), "http" | "https" | "file" | "data" | "evermap") {
        let url = Url::parse(name).map_err(|error| not_found(name, &error.to_string()))?;
        if scheme != "evermap" || is_home(&url) {
            return Ok(Target::of_url(url));
        }
        // The name may be as typed by a user, or percent-encoded in a link.
        let object = match stored(rest, store)? {
            None => stored(&home::name_in(rest), store)?,
            found => found,
        };
        return object.ok_or_else(|| not_found(name, "no such object in the store"));
    }
    let (path, fragment) = match name.split_once('#') {
        Some((path, fragment)) if !Path::new(name).exists() => (path, Some(fragment)),
        _ => (name, None),
    };
    if Path::new(path).exists() {
        let path = std::fs::canonicalize(path)
            .map_err(|source| ViewError::File { path: path.into(), source })?;
        let url = Url::from_file_path(&path)
            .map_err(|()| not_found(name, "its path can't be written as a URL"))?;
        return Ok(Target { url, fragment: fragment.map(str::to_string), document: None });
    }
    if let Some(target) = stored(name, store)? {
        return Ok(target);
    }
    if looks_like_host(name)
        && let Ok(url) = Url::parse(&format!("https://{name}"))
    {
        return Ok(Target::of_url(url));
    }
    Err(not_found(name, "not a file, not an object of the store, and not an address"))
}

/// Returns the target for a document or page in the store. Relative addresses are resolved
/// against the document's source.
///
/// # Errors
/// Fails if the store has no page and no document of this name, or can't read it.
pub fn find_object(name: &str, store: &Store) -> Result<Target> {
    target_of(store, name)?.ok_or_else(|| not_found(name, "no such object in the store"))
}

fn stored(name: &str, store: Option<&Store>) -> Result<Option<Target>> {
    let found = store.map(|store| target_of(store, name)).transpose()?;
    Ok(found.flatten())
}

/// Returns the target that an object of the store stands for: a page or a document.
fn target_of(store: &Store, name: &str) -> Result<Option<Target>> {
    match StoredPage::of_object(store, name) {
        Ok(page) => {
            let manifest = page.manifest().map_err(|why| not_found(name, &why))?;
            return Ok(manifest.target());
        }
        Err(Unusable::Missing | Unusable::Store(Error::InvalidName { .. })) => return Ok(None),
        Err(Unusable::Damaged(why)) => {
            return Err(not_found(name, &format!("the object of this name is damaged: {why}")));
        }
        Err(Unusable::Store(Error::SchemaMismatch { .. })) => (),
        Err(Unusable::Store(error)) => return Err(error.into()),
    }
    let document = match store.read::<Document>(name) {
        Ok(document) => document,
        Err(Error::SchemaMismatch { .. }) => {
            return Err(not_found(
                name,
                "the object of this name is neither a page nor a document",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let path = document.source().path;
    let url =
        Url::parse(&path).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "file"));
    let url = url.or_else(|| Url::from_file_path(&path).ok());
    // A document from standard input has no address, so it can't resolve relative links.
    let url = url.or_else(|| Url::parse(&format!("evermap:{name}")).ok());
    Ok(url.map(|url| Target { document: Some(name.to_string()), ..Target::of_url(url) }))
}

fn not_found(name: &str, why: &str) -> ViewError {
    ViewError::NotFound { name: name.to_string(), why: why.to_string() }
}

/// Extensions of files that can be shown. A name with one of these is a mistyped file rather than a
/// host.
const FILE_ENDINGS: [&str; 9] = ["html", "htm", "xhtml", "xml", "txt", "png", "jpg", "gif", "svg"];

/// Returns true for names such as `example.org/page` and `localhost:8000`.
fn looks_like_host(name: &str) -> bool {
    let host = name.split(['/', '?', '#']).next().unwrap_or_default();
    if host.rsplit('.').next().is_some_and(|ending| FILE_ENDINGS.contains(&ending)) {
        return false;
    }
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let dotted = host.contains('.') && !host.starts_with('.') && !host.ends_with('.');
    (dotted || host == "localhost")
        && port.chars().all(|char| char.is_ascii_digit())
        && host.chars().all(|char| char.is_alphanumeric() || matches!(char, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_distinguished_from_mistyped_files() {
        for host in
            ["example.org", "example.org/page.html", "localhost:8000", "www.example.co.uk?q"]
        {
            assert!(looks_like_host(host), "{host}");
        }
        for other in ["page.html", "notes.txt#end", "letter", ".hidden", "a b.org", "no.such:thing"]
        {
            assert!(!looks_like_host(other), "{other}");
        }
    }
}
