//! Protocol between the viewer and its engine: a request on the engine's standard input, an answer
//! on its standard output. Each is a sequence of frames. A frame has a 16-byte header (kind, zero,
//! length) and its content.
//!
//! The viewer does not trust the engine: lengths are bounded, and blocks are verified where they
//! are used.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ViewError;
use crate::fetch::Stamp;
use crate::fonts::FontSet;
use crate::layout::Layout;
use crate::manifest::Resource;

/// A page to lay out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub url: String,
    pub layout: Layout,
    /// HTML to lay out instead of fetching the address.
    pub html: Option<String>,
    /// Document in the store to lay out instead of the address.
    pub document: Option<String>,
    /// Stored document of the address itself, if it may be used. The page is parsed again if the
    /// document is missing.
    pub own_document: Option<OwnDocument>,
    /// Store with the HTTP cache and the document.
    pub store: Option<PathBuf>,
    pub offline: bool,
    /// Revalidate every cached response.
    pub reload: bool,
    pub page_bytes_max: u64,
    /// Time limit for the page itself.
    pub timeout_ms: u64,
    /// Time that resources may delay the page.
    pub resources_timeout_ms: u64,
    /// Memory limit of the engine.
    pub memory_bytes_max: u64,
}

/// Stored document of an address whose source has not changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnDocument {
    pub name: String,
    /// Address after redirects.
    pub final_url: String,
    pub stamp: Stamp,
}

/// Requests the missing resources of a page again. If one has arrived, the page is laid out and
/// stored again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Retry {
    pub url: String,
    pub document: Option<String>,
    pub layout: Layout,
    pub store: PathBuf,
    pub engine_timeout_ms: u64,
    pub memory_bytes_max: u64,
}

/// Description of a page that the engine has laid out. The blocks follow in frames of their own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub final_url: String,
    pub fonts: FontSet,
    pub resources: Vec<Resource>,
    /// Reason why the page must not be stored: a server forbids it. `None` if it may be stored.
    pub keepable: Option<String>,
    /// Messages for people: resources that were missing, denied or late.
    pub notes: Vec<String>,
    pub times: Times,
    pub source_bytes: u64,
    pub source_modified_ns: u64,
    pub source_hash: [u8; 32],
}

/// Durations of the steps of a cold visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Reading or fetching the page itself.
    pub fetch_ms: f64,
    /// Decoding and parsing the page.
    pub parse_ms: f64,
    /// Fetching resources, styling, shaping and layout.
    pub layout_ms: f64,
    /// Recording the paint commands.
    pub record_ms: f64,
}

/// Reason why no page was made: the variants of [`ViewError`] that can cross between processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    NotFound { name: String, why: String },
    Fetch { url: String, why: String },
    Refused { url: String, why: String },
    TooLarge { url: String, limit_bytes: u64 },
    NoPage { url: String, content_type: String },
    Timeout { url: String, after_ms: u64 },
    Other { url: String, what: String },
}

impl Failure {
    pub(crate) fn of(url: &str, error: ViewError) -> Failure {
        match error {
            ViewError::NotFound { name, why } => Failure::NotFound { name, why },
            ViewError::Fetch { url, why } => Failure::Fetch { url, why },
            ViewError::Refused { url, why } => Failure::Refused { url, why },
            ViewError::TooLarge { url, limit_bytes } => Failure::TooLarge { url, limit_bytes },
            ViewError::UnsupportedType { url, content_type } => {
                Failure::NoPage { url, content_type }
            }
            ViewError::Timeout { url, after } => {
                Failure::Timeout { url, after_ms: after.as_millis() as u64 }
            }
            other => Failure::Other { url: url.to_string(), what: other.to_string() },
        }
    }

    pub(crate) fn into_error(self) -> ViewError {
        match self {
            Failure::NotFound { name, why } => ViewError::NotFound { name, why },
            Failure::Fetch { url, why } => ViewError::Fetch { url, why },
            Failure::Refused { url, why } => ViewError::Refused { url, why },
            Failure::TooLarge { url, limit_bytes } => ViewError::TooLarge { url, limit_bytes },
            Failure::NoPage { url, content_type } => {
                ViewError::UnsupportedType { url, content_type }
            }
            Failure::Timeout { url, after_ms } => {
                ViewError::Timeout { url, after: Duration::from_millis(after_ms) }
            }
            Failure::Other { url, what } => {
                ViewError::Engine { url, what: format!("gave up ({what})") }
            }
        }
    }
}

pub(crate) const REQUEST: u32 = 1;
/// Stage that was reached, as text.
pub(crate) const STAGE: u32 = 2;
pub(crate) const ANSWER: u32 = 3;
pub(crate) const FAILURE: u32 = 4;
pub(crate) const BLOCK: u32 = 5;
/// Block of the document.
pub(crate) const DOCUMENT: u32 = 6;
/// Hash and font file.
pub(crate) const FONT: u32 = 7;
/// Hash and pixels.
pub(crate) const IMAGE: u32 = 8;
/// Last frame of an answer.
pub(crate) const END: u32 = 9;
/// A [`Retry`] instead of a [`Request`]. The engine sends no answer.
pub(crate) const RETRY: u32 = 10;

/// Maximum length of a frame. A larger page can't be shown.
const FRAME_BYTES_MAX: u64 = 1 << 31;

pub(crate) fn write_frame(to: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&(length as u64).to_le_bytes());
    to.write_all(&header)?;
    for part in parts {
        to.write_all(part)?;
    }
    to.flush()
}

/// Reads the kind and length of the next frame.
pub(crate) fn read_header(from: &mut impl Read) -> io::Result<(u32, usize)> {
    let mut header = [0; 16];
    from.read_exact(&mut header)?;
    let [a, b, c, d, _, _, _, _, rest @ ..] = header;
    let length = u64::from_le_bytes(rest);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes"),
        ));
    }
    Ok((u32::from_le_bytes([a, b, c, d]), length as usize))
}

/// Reads a frame's content of the announced length. Allocates as the bytes arrive.
pub(crate) fn read_content(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(1 << 20));
    from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
