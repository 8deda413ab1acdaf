//! Result of a fetch.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use url::Url;

use super::content::ContentType;
use super::stamp::Stamp;

/// Source of a resource's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchSource {
    /// The response of a server.
    Network,
    /// The HTTP cache. The response was fresh, or the server revalidated it.
    Cache,
    /// A file.
    File,
    /// The address itself, a `data:` URL.
    Data,
}

/// A fetched resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fetched {
    /// Address after redirects.
    pub final_url: Url,
    /// Content, decompressed. Cheap to clone.
    pub bytes: Bytes,
    /// Type of the content.
    pub content_type: ContentType,
    /// Identifies the version, so that a later process can check whether it has changed.
    pub stamp: Stamp,
    /// Source of the bytes.
    pub from: FetchSource,
    /// Status of the server's response; `None` for files and `data:` addresses. It is outside 2xx
    /// only for a page whose error response has a body to show.
    pub status: Option<u16>,
    /// True if the server forbids storing anything of this response (`Cache-Control: no-store`).
    pub no_store: bool,
    /// Reason why the HTTP cache could not be used. The fetch succeeded without it.
    pub cache_problem: Option<String>,
}
