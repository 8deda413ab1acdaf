//! Purpose of a request, and the access rules: code that follows an address calls
//! [`Origin::may_read`] first.

use serde::{Deserialize, Serialize};
use url::Url;

use super::cause::Cause;

/// Purpose of a resource.
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
    /// Returns the `Accept` header. It lists the picture formats that the engine decodes, for
    /// servers that choose the format by it.
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

/// Origin of the page that makes a request. A page that the user requests has the origin
/// [`Origin::of`] its own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A local file: may read files, `data:` and http(s).
    File,
    /// A server: may read http(s) and `data:`.
    Network,
    /// A `data:` address, or a document with an unknown source. Same rights as `Network`.
    Data,
}

impl Origin {
    /// Returns the origin of a page at this address.
    pub fn of(url: &Url) -> Origin {
        match url.scheme() {
            "file" => Origin::File,
            "data" => Origin::Data,
            _ => Origin::Network,
        }
    }

    /// Checks whether a page of this origin may read `url`.
    ///
    /// # Errors
    /// Returns [`Cause::Refused`] with the rule, or [`Cause::BadAddress`].
    pub fn may_read(self, url: &Url) -> Result<(), Cause> {
        match url.scheme() {
            "data" => Ok(()),
            "file" if self == Origin::File => Ok(()),
            "file" => Err(Cause::Refused("only a local page may read files".to_string())),
            "http" | "https" => {
                if !url.username().is_empty() || url.password().is_some() {
                    return Err(Cause::Refused(
                        "addresses with a user name or a password are not supported; remove them"
                            .to_string(),
                    ));
                }
                match url.host_str() {
                    Some(host) if !host.is_empty() => Ok(()),
                    _ => Err(Cause::BadAddress("it has no host".to_string())),
                }
            }
            other => Err(Cause::Refused(format!(
                "the scheme `{other}:` is not supported; use file, data, http or https"
            ))),
        }
    }
}
