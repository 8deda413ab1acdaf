//! Errors of fetching, laying out, storing and painting a page. Each names its subject, the cause
//! and the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Reasons why a page can't be shown, or can't be shown as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The name is neither an address nor a file nor an object in the store.
    #[error("no page `{name}`: {why}; name a URL, a file, or an object that `evermap ls` lists")]
    NotFound {
        /// The name as the user gave it.
        name: String,
        /// Places that were searched.
        why: String,
    },
    /// A file, a server or the network failed to deliver the page.
    #[error("cannot fetch {url}: {why}")]
    Fetch {
        /// The address.
        url: String,
        /// The cause, and a remedy if there is one.
        why: String,
    },
    /// A page from the network requested a resource that it must not read.
    #[error("access to {url} is denied: {why}")]
    Refused {
        /// The address of the resource.
        url: String,
        /// The access rule.
        why: String,
    },
    /// The response is larger than the limit.
    #[error("{url} is larger than {limit_bytes} bytes; `--limit` raises the limit")]
    TooLarge {
        /// The address.
        url: String,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The content is not of a type that can be shown.
    #[error("cannot show {url}: its type is {content_type}; save it with another program")]
    UnsupportedType {
        /// The address.
        url: String,
        /// Type from the server's header or the file's content.
        content_type: String,
    },
    /// No answer arrived in time.
    #[error("{url} did not answer within {} s; try again, or raise `--patience`", after.as_secs())]
    Timeout {
        /// The address.
        url: String,
        /// Time waited.
        after: Duration,
    },
    /// The engine was stopped or ended before the page was laid out.
    #[error("the layout engine {what} on {url}; stored pages are unaffected")]
    Engine {
        /// The page.
        url: String,
        /// Verb phrase that describes its end.
        what: String,
    },
    /// The engine's program was not found.
    #[error(
        "cannot start the layout engine: {why}; install `evermap-engine` next to `evermap`, or set EVERMAP_ENGINE to its path"
    )]
    NoEngine {
        /// Places that were searched, and the result.
        why: String,
    },
    /// The stored page is damaged, or its content is not a page. A visit that finds this lays the
    /// page out again.
    #[error("the stored page is not valid: {0}; the next visit lays it out again")]
    InvalidPage(String),
    /// A font or an image that pages share is missing or damaged. A visit that finds this lays the
    /// page out again and stores the part.
    #[error(
        "the page needs `{object}`, which is missing or damaged: {why}; the next visit stores it again"
    )]
    MissingPart {
        /// Name of the object.
        object: String,
        /// The cause.
        why: String,
    },
    /// The requested size can't be painted.
    #[error("cannot paint {width} x {height} pixels: {why}")]
    BadSize {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The bound that the size exceeds.
        why: String,
    },
    /// No window can be opened.
    #[error("cannot open a window: {0}; use `evermap render` to paint into a file")]
    NoWindow(String),
    /// An operation on the store failed.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// A file other than the page itself can't be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl ViewError {
    /// Returns true if stored data of the page is damaged or missing. Laying the page out again
    /// repairs it.
    pub fn is_damage(&self) -> bool {
        matches!(self, ViewError::InvalidPage(_) | ViewError::MissingPart { .. })
    }
}

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, ViewError>;
