//! What goes wrong when a page is fetched, laid out, kept or painted: what it was about, the cause, the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a page can't be shown, or can't be shown as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// What was to be shown is neither an address nor a file nor a name in the store.
    #[error(
        "nothing to show is called `{name}`: {why}; name a URL, a file, or what `evermap ls` lists"
    )]
    NotFound {
        /// As it was asked for.
        name: String,
        /// What was looked for in vain.
        why: String,
    },
    /// A file, a server or the network did not give the page.
    #[error("{url} can't be fetched: {why}")]
    Fetch {
        /// The address.
        url: String,
        /// The cause, with a remedy where there is one.
        why: String,
    },
    /// A page from the network asked for something that it may not have.
    #[error("{url} is not read: {why}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The rule.
        why: String,
    },
    /// Larger than the limit.
    #[error("{url} is larger than {limit_bytes} bytes; `--limit` raises the limit")]
    TooLarge {
        /// The address.
        url: String,
        /// The limit that it is over.
        limit_bytes: u64,
    },
    /// What came back is no page.
    #[error(
        "{url} is {content_type}, which the viewer does not show; save it with another program"
    )]
    NoPage {
        /// The address.
        url: String,
        /// As the server or the file's content says.
        content_type: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {} s; try again, or give it more time with `--patience`", after.as_secs())]
    Timeout {
        /// The address.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The engine was ended, or ended itself, before the page was laid out.
    #[error(
        "the layout engine {what} on {url}; nothing was lost, and other pages are not concerned"
    )]
    Engine {
        /// The page.
        url: String,
        /// How it ended.
        what: String,
    },
    /// The engine's program is not where it is looked for.
    #[error(
        "the layout engine can't be started: {why}; install `evermap-engine` beside `evermap`, or name it in EVERMAP_ENGINE"
    )]
    NoEngine {
        /// Where it was looked for, and what was found.
        why: String,
    },
    /// What is kept of a page is damaged, or no page. A visit that meets this makes the page anew.
    #[error("what is kept of the page is not valid: {0}; the next visit makes it anew")]
    InvalidPage(String),
    /// A font or an image that the page shares with others is missing or damaged. A visit that meets this makes it
    /// anew.
    #[error(
        "the page needs `{object}`, which is missing or damaged: {why}; the next visit makes it anew"
    )]
    MissingPart {
        /// The object.
        object: String,
        /// The cause.
        why: String,
    },
    /// A picture or page is asked for in a size that can't be painted.
    #[error("{width} x {height} pixels can't be painted: {why}")]
    BadSize {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The bound.
        why: String,
    },
    /// No window can be opened.
    #[error("no window can be opened: {0}; `evermap render` paints into a file instead")]
    NoWindow(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// A file other than the page's own.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl ViewError {
    /// Is it that something that is kept of the page is damaged or missing? Then laying the page out anew mends it.
    pub fn is_flaw(&self) -> bool {
        matches!(self, ViewError::InvalidPage(_) | ViewError::MissingPart { .. })
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, ViewError>;
