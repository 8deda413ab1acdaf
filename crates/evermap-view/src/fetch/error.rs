//! Error of a fetch, and its conversion to the viewer's errors.

use super::cause::Cause;
use super::stamp::Stamp;
use crate::ViewError;

/// A resource that was not fetched: its address, the cause, and a remedy if there is one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot fetch {url}: {cause}")]
#[non_exhaustive]
pub struct FetchError {
    /// Requested address; shortened if long.
    pub url: String,
    /// The cause.
    pub cause: Cause,
    /// Identifies this failure, so that a later process can check whether the resource is
    /// available.
    pub stamp: Box<Stamp>,
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
            Cause::UnsupportedType { content_type } => {
                ViewError::UnsupportedType { url, content_type }
            }
            Cause::Timeout { after } => ViewError::Timeout { url, after },
            other => ViewError::Fetch { url, why: other.to_string() },
        }
    }
}
