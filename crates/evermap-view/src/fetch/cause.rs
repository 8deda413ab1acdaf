//! Causes of a failed fetch, and their messages.

use std::fmt::Write as _;
use std::time::Duration;

use url::Url;

/// Maximum number of characters of an address in a message.
const SHOWN_MAX: usize = 300;

/// Causes of a failed fetch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The file does not exist.
    #[error("the file does not exist; check the name")]
    NoFile,
    /// The file can't be read, or is not a regular file.
    #[error("{0}")]
    File(String),
    /// The host has no address.
    #[error("host `{host}` not found ({why}); check the name and the network connection")]
    HostNotFound {
        /// Name of the host.
        host: String,
        /// Message of the system's resolver.
        why: String,
    },
    /// The host does not answer at this port, or can't be reached.
    #[error("{0}; check the address, the server and the network connection")]
    Unreachable(String),
    /// The server's certificate is not accepted.
    #[error(
        "the server's certificate is not accepted: {0}; if you trust its issuer, add the issuer to the system's certificates, or set SSL_CERT_FILE to a file with it"
    )]
    Certificate(String),
    /// The server returned an error.
    #[error("the server returned {code} {reason}{}", status_remedy(*.code))]
    Status {
        /// Status code.
        code: u16,
        /// Standard text of the status.
        reason: &'static str,
    },
    /// The redirects form a loop.
    #[error(
        "its redirects form a loop: {from} leads to {to} again; report this to the site's operator"
    )]
    RedirectLoop {
        /// First address.
        from: String,
        /// Address that occurred twice.
        to: String,
    },
    /// There are more redirects than allowed.
    #[error("it has more than {limit} redirects, from {from} to {to}; try the last address")]
    TooManyRedirects {
        /// First address.
        from: String,
        /// Last address.
        to: String,
        /// Maximum number of redirects.
        limit: usize,
    },
    /// The response is incomplete, or is not HTTP.
    #[error("{0}; try again, or report this to the site's operator")]
    Broken(String),
    /// The address is invalid.
    #[error("invalid address: {0}")]
    BadAddress(String),
    /// The page must not read the resource.
    #[error("access denied: {0}")]
    Refused(String),
    /// The resource exceeds a size limit.
    #[error("larger than {limit_bytes} bytes{}", if *.total { " together with the page's other resources" } else { "" })]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: u64,
        /// True for the limit of all resources together.
        total: bool,
    },
    /// The content is not of a type that can be shown.
    #[error("its type is {content_type}, which can't be shown as a page")]
    UnsupportedType {
        /// The content's type.
        content_type: String,
    },
    /// No complete response arrived in time.
    #[error("no complete response within {:.1} s; try again, or raise the time limit", after.as_secs_f32())]
    Timeout {
        /// Time waited.
        after: Duration,
    },
    /// The network may not be used, and no fresh response is cached.
    #[error(
        "no fresh copy is cached, and `--offline` forbids using the network; try again without `--offline`"
    )]
    Offline,
}

fn status_remedy(code: u16) -> &'static str {
    match code {
        401 | 403 | 407 => "; it requires a login, which the viewer does not support",
        404 | 410 => "; check the address",
        429 | 500..=599 => "; try again later",
        _ => "",
    }
}

impl Cause {
    /// Returns true if the same request may soon succeed although the resource has not changed.
    pub(super) fn is_transient(&self) -> bool {
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

    /// Returns a word for the kind of cause, which [`Stamp`](super::Stamp) stores and compares.
    pub fn kind(&self) -> &'static str {
        match self {
            Cause::NoFile => "no-file",
            Cause::File(_) => "file",
            Cause::HostNotFound { .. } => "host-not-found",
            Cause::Unreachable(_) => "unreachable",
            Cause::Certificate(_) => "certificate",
            Cause::Status { .. } => "status",
            Cause::RedirectLoop { .. } | Cause::TooManyRedirects { .. } => "redirects",
            Cause::Broken(_) => "broken",
            Cause::BadAddress(_) => "bad-address",
            Cause::Refused(_) => "refused",
            Cause::TooLarge { .. } => "too-large",
            Cause::UnsupportedType { .. } => "no-page",
            Cause::Timeout { .. } => "timeout",
            Cause::Offline => "offline",
        }
    }
}

/// Shortens a long address (such as `data:`) for a message.
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
