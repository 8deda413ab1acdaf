//! Why a resource was not fetched, and as what the viewer reports it.

use std::fmt::Write as _;
use std::time::Duration;

use url::Url;

use super::stamp::Stamp;
use crate::ViewError;

/// Characters of an address that a message shows.
const SHOWN_MAX: usize = 300;

/// A resource that was not fetched: its address, the cause, and the remedy where there is one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{url} can't be fetched: {cause}")]
#[non_exhaustive]
pub struct FetchError {
    /// As it was asked for; long ones are cut.
    pub url: String,
    /// The cause.
    pub cause: Cause,
    /// By which a later process tells whether the resource is there now.
    pub stamp: Box<Stamp>,
}

/// What stood in the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no such file.
    #[error("there is no such file; check the name")]
    NoFile,
    /// The file can't be read, or is none.
    #[error("{0}")]
    File(String),
    /// The host has no address.
    #[error(
        "the host `{host}` was not found ({why}); check the name, and whether there is a network"
    )]
    HostNotFound {
        /// Its name.
        host: String,
        /// What the system's resolver said.
        why: String,
    },
    /// The host does not answer at this port, or can't be reached.
    #[error("{0}; check the address, and whether the server runs and the network lets through")]
    Unreachable(String),
    /// The server's certificate is not accepted.
    #[error(
        "the server's certificate is not accepted: {0}; if you trust its issuer, add that to the system's certificates, or name a file with it in SSL_CERT_FILE"
    )]
    Certificate(String),
    /// The server answered with an error.
    #[error("the server answers {code} {reason}{}", status_remedy(*.code))]
    Status {
        /// The status.
        code: u16,
        /// Its usual text.
        reason: &'static str,
    },
    /// Redirects that lead back to where they came from.
    #[error(
        "its redirects go round in a circle: from {from} to {to}, where they were before; tell who runs the server"
    )]
    RedirectCircle {
        /// The first address.
        from: String,
        /// The one that came twice.
        to: String,
    },
    /// More redirects than allowed.
    #[error(
        "it is redirected more than {limit} times: from {from}, at last to {to}; try the last address"
    )]
    TooManyRedirects {
        /// The first address.
        from: String,
        /// The last one.
        to: String,
        /// How many are allowed.
        limit: usize,
    },
    /// What the server sent is not whole, or not HTTP.
    #[error("{0}; try again, or tell who runs the server")]
    Broken(String),
    /// The address can't be understood.
    #[error("it is no address that can be fetched: {0}")]
    BadAddress(String),
    /// The page may not have it.
    #[error("it is not read: {0}")]
    Refused(String),
    /// Larger than the limit.
    #[error("it is larger than {limit_bytes} bytes{}", if *.total { ", together with what the page has read before" } else { "" })]
    TooLarge {
        /// The limit that it is over.
        limit_bytes: u64,
        /// Is it the limit of everything together?
        total: bool,
    },
    /// No page.
    #[error("it is {content_type}, which is no page")]
    NoPage {
        /// What it is.
        content_type: String,
    },
    /// No whole answer in time.
    #[error("there was no whole answer within {:.1} s; try again, or give it more time", after.as_secs_f32())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The network may not be used, and nothing fresh is kept.
    #[error(
        "nothing fresh of it is kept, and the network may not be used; try again without `--offline`"
    )]
    Offline,
}

fn status_remedy(code: u16) -> &'static str {
    match code {
        401 | 403 | 407 => "; it asks for a login, which the viewer does not have",
        404 | 410 => "; check the address",
        429 | 500..=599 => "; try again later",
        _ => "",
    }
}

impl Cause {
    /// Might the same question get another answer soon, without anybody changing the resource?
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Cause::HostNotFound { .. }
            | Cause::Unreachable(_)
            | Cause::Certificate(_)
            | Cause::Broken(_)
            | Cause::Timeout { .. }
            | Cause::Offline => true,
            Cause::Status { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    /// One word for the kind: what [`Stamp`] compares.
    pub fn kind(&self) -> &'static str {
        match self {
            Cause::NoFile => "no-file",
            Cause::File(_) => "file",
            Cause::HostNotFound { .. } => "host-not-found",
            Cause::Unreachable(_) => "unreachable",
            Cause::Certificate(_) => "certificate",
            Cause::Status { .. } => "status",
            Cause::RedirectCircle { .. } | Cause::TooManyRedirects { .. } => "redirects",
            Cause::Broken(_) => "broken",
            Cause::BadAddress(_) => "bad-address",
            Cause::Refused(_) => "refused",
            Cause::TooLarge { .. } => "too-large",
            Cause::NoPage { .. } => "no-page",
            Cause::Timeout { .. } => "timeout",
            Cause::Offline => "offline",
        }
    }
}

impl From<FetchError> for ViewError {
    fn from(error: FetchError) -> ViewError {
        let FetchError { url, cause, .. } = error;
        match cause {
            Cause::NoFile | Cause::Status { code: 404 | 410, .. } => {
                ViewError::NotFound { name: url, why: cause.to_string() }
            }
            Cause::Refused(why) => ViewError::Refused { url, why },
            Cause::BadAddress(_) => ViewError::Refused { url, why: cause.to_string() },
            Cause::TooLarge { limit_bytes, .. } => ViewError::TooLarge { url, limit_bytes },
            Cause::NoPage { content_type } => ViewError::NoPage { url, content_type },
            Cause::Timeout { after } => ViewError::Timeout { url, after },
            other => ViewError::Fetch { url, why: other.to_string() },
        }
    }
}

/// An address for a message: long ones (`data:`) are cut.
pub(super) fn shown(url: &Url) -> String {
    let text = url.as_str();
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_string(),
        Some((end, _)) => {
            let mut cut = text[..end].to_string();
            let _ = write!(cut, "... ({} bytes)", text.len());
            cut
        }
    }
}
