//! What a user names: an address, a file, or something in the store.

use std::borrow::Cow;
use std::path::Path;

use evermap::Store;
use url::Url;

use crate::home::{self, is_home};
use crate::keep;
use crate::{Result, ViewError};

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address, without the fragment.
    pub url: Url,
    /// The `#fragment`, without the `#`.
    pub fragment: Option<String>,
    /// A document of the store that is shown as it is, instead of what the address leads to now.
    pub document: Option<String>,
}

impl Target {
    /// What an address leads to.
    pub fn of_url(mut url: Url) -> Target {
        let fragment = url.fragment().map(str::to_string);
        url.set_fragment(None);
        Target { url, fragment, document: None }
    }

    /// A document of the store, shown as it is. Its relative addresses are relative to where it came from.
    ///
    /// # Errors
    /// If the store has no page and no document of this name, or cannot read it.
    pub fn named(name: &str, store: &Store) -> Result<Target> {
        keep::target_named(store, name)?.ok_or_else(|| not_found(name, "no object of the store"))
    }

    /// The address under which its pages are kept. A document of the store has another than the file or the
    /// server that it came from, which may have changed since.
    pub fn key(&self) -> Cow<'_, Url> {
        match &self.document {
            None => Cow::Borrowed(&self.url),
            Some(name) => {
                let mut key = self.url.clone();
                key.set_fragment(Some(&format!("document={name}")));
                Cow::Owned(key)
            }
        }
    }

    /// What `name` means: an address, if it has a scheme; else a file, if there is one; else what is called so in the
    /// store; else a host, if it looks like one. Costs a look at the file system and one at the store's catalog.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn find(name: &str, store: Option<&Store>) -> Result<Target> {
        let name = name.trim();
        let (scheme, rest) = name.split_once(':').unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        if matches!(scheme.as_str(), "http" | "https" | "file" | "data" | "evermap") {
            let url = Url::parse(name).map_err(|error| not_found(name, &error.to_string()))?;
            if scheme != "evermap" || is_home(&url) {
                return Ok(Target::of_url(url));
            }
            // As a user types it, or as a page links to it.
            let object = match kept(rest, store)? {
                None => kept(&home::name_in(rest), store)?,
                found => found,
            };
            return object.ok_or_else(|| not_found(name, "no object of the store"));
        }
        let (path, fragment) = match name.split_once('#') {
            Some((path, fragment)) if !Path::new(name).exists() => (path, Some(fragment)),
            _ => (name, None),
        };
        if Path::new(path).exists() {
            let path = std::fs::canonicalize(path)
                .map_err(|source| ViewError::File { path: path.into(), source })?;
            let url = Url::from_file_path(&path)
                .map_err(|()| not_found(name, "its path is no address"))?;
            return Ok(Target { url, fragment: fragment.map(str::to_string), document: None });
        }
        if let Some(target) =
            store.map(|store| keep::target_named(store, name)).transpose()?.flatten()
        {
            return Ok(target);
        }
        if looks_like_host(name)
            && let Ok(url) = Url::parse(&format!("https://{name}"))
        {
            return Ok(Target::of_url(url));
        }
        Err(not_found(name, "no file, no object of the store, and no address"))
    }
}

fn kept(name: &str, store: Option<&Store>) -> Result<Option<Target>> {
    let found = store.map(|store| keep::target_named(store, name)).transpose()?;
    Ok(found.flatten())
}

fn not_found(name: &str, why: &str) -> ViewError {
    ViewError::NotFound { name: name.to_string(), why: why.to_string() }
}

/// What files end with that can be shown. A name of this kind that is no file is a mistyped file, and no host.
const FILE_ENDINGS: [&str; 9] = ["html", "htm", "xhtml", "xml", "txt", "png", "jpg", "gif", "svg"];

/// `example.org/page`, `localhost:8000`.
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
    fn a_host_is_told_from_a_mistyped_file() {
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
