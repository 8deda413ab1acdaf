//! A page to show: its address, or a document in the store.

use std::borrow::Cow;

use url::Url;

/// A page to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address, without the fragment.
    pub url: Url,
    /// The `#fragment`, without the `#`.
    pub fragment: Option<String>,
    /// Document in the store to show instead of fetching the address.
    pub document: Option<String>,
}

impl Target {
    /// Returns the target at an address.
    pub fn of_url(mut url: Url) -> Target {
        let fragment = url.fragment().map(str::to_string);
        url.set_fragment(None);
        Target { url, fragment, document: None }
    }

    /// Returns the address under which the target's pages are stored. A document of the store has a
    /// different key than its source file or server, whose content may have changed since.
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
}
