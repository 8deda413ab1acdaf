//! What is asked for, by whom, and what comes back. Here is the rule who may read what; whoever
//! follows an address calls [`Origin::may_read`] first.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use url::Url;

use super::content::ContentType;
use super::error::Cause;
use super::stamp::Stamp;

/// What a resource is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The page itself.
    Page,
    /// A style sheet.
    StyleSheet,
    /// A picture.
    Image,
    /// A font.
    Font,
    /// Anything else.
    Other,
}

impl Purpose {
    /// The `Accept` header. Servers that choose a picture's format by it are told those that the
    /// engine decodes.
    pub(super) fn accept(self) -> &'static str {
        match self {
            Purpose::Page => {
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/*;q=0.8,*/*;q=0.5"
            }
            Purpose::StyleSheet => "text/css,*/*;q=0.1",
            Purpose::Image => {
                "image/png,image/jpeg,image/gif,image/webp,image/svg+xml,image/*;q=0.5,*/*;q=0.1"
            }
            Purpose::Font | Purpose::Other => "*/*",
        }
    }
}

/// Where the page comes from that asks. A page that the user asks for is its own:
/// [`Origin::of`] its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A local file: may read files, `data:` and http(s).
    File,
    /// A server: may read http(s) and `data:`.
    Network,
    /// A `data:` address, or a document whose source nobody knows: as `Network`.
    Data,
}

impl Origin {
    /// The origin of a page at this address.
    pub fn of(url: &Url) -> Origin {
        match url.scheme() {
            "file" => Origin::File,
            "data" => Origin::Data,
            _ => Origin::Network,
        }
    }

    /// May a page of this origin read `url`?
    ///
    /// # Errors
    /// [`Cause::Refused`] with the rule, or [`Cause::BadAddress`].
    pub fn may_read(self, url: &Url) -> Result<(), Cause> {
        match url.scheme() {
            "data" => Ok(()),
            "file" if self == Origin::File => Ok(()),
            "file" => {
                Err(Cause::Refused("only a page that is a file itself may read files".to_string()))
            }
            "http" | "https" => {
                if !url.username().is_empty() || url.password().is_some() {
                    return Err(Cause::Refused(
                        "an address with a user or a password is not sent; leave them out"
                            .to_string(),
                    ));
                }
                match url.host_str() {
                    Some(host) if !host.is_empty() => Ok(()),
                    _ => Err(Cause::BadAddress("it names no host".to_string())),
                }
            }
            other => Err(Cause::Refused(format!(
                "`{other}:` is not one of file, data, http and https, which are all that is read"
            ))),
        }
    }
}

/// Where the bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CameFrom {
    /// A server sent them.
    Network,
    /// The HTTP cache: fresh, or the server said that they have not changed.
    Cache,
    /// A file.
    File,
    /// The address itself.
    Data,
}

/// A resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fetched {
    /// Its address, after redirects.
    pub final_url: Url,
    /// Its bytes, decompressed. Cheap to clone.
    pub bytes: Bytes,
    /// What it is.
    pub content_type: ContentType,
    /// By which a later process tells whether it is still the same.
    pub stamp: Stamp,
    /// Where the bytes were.
    pub from: CameFrom,
    /// The server's status; other than 2xx only for a page whose error has a body to show.
    pub status: Option<u16>,
    /// The server forbids that anything of this is kept (`Cache-Control: no-store`).
    pub no_store: bool,
    /// Why the HTTP cache could not be used; the fetch went on without it.
    pub cache_problem: Option<String>,
}
