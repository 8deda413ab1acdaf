//! What the viewer and its engine say to each other: a request on the engine's standard input, an answer on its standard
//! output, both frames of 16 bytes (kind, zero, length) and what follows.
//!
//! The viewer believes the engine as little as it believes a file: lengths are bounded, blocks are looked at where they are
//! used.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ViewError;
use crate::fetch::Stamp;
use crate::fonts::FontSet;
use crate::layout::Layout;
use crate::manifest::Resource;

/// What is to be laid out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub url: String,
    pub layout: Layout,
    /// The page itself, instead of what the address leads to.
    pub html: Option<String>,
    /// A document of the store to lay out instead of what the address leads to.
    pub document: Option<String>,
    /// The address's own document, if it may be used: it is parsed again if that is not there.
    pub own_document: Option<OwnDocument>,
    /// The store with the HTTP cache and the document.
    pub store: Option<PathBuf>,
    pub offline: bool,
    /// Ask the servers about everything.
    pub reload: bool,
    pub page_bytes_max: u64,
    /// How long the page itself may take.
    pub timeout_ms: u64,
    /// How long resources may hold up the page.
    pub resources_timeout_ms: u64,
    /// Most bytes of memory.
    pub memory_bytes_max: u64,
}

/// The document that is kept of an address, and what it was parsed from, which is still the same.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnDocument {
    pub name: String,
    /// The address after redirects.
    pub final_url: String,
    pub stamp: Stamp,
}

/// What a page lacks is to be asked for again; if something has come, the page is laid out and kept anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Retry {
    pub url: String,
    pub document: Option<String>,
    pub layout: Layout,
    pub store: PathBuf,
    pub engine_timeout_ms: u64,
    pub memory_bytes_max: u64,
}

/// What the engine says about a page that it has laid out; the blocks follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub final_url: String,
    pub fonts: FontSet,
    pub resources: Vec<Resource>,
    /// Why the page may not be kept: a server forbids it.
    pub keepable: Option<String>,
    /// For people: what is missing, refused, late.
    pub notes: Vec<String>,
    pub times: Times,
    pub source_bytes: u64,
    pub source_modified_ns: u64,
    pub source_hash: [u8; 32],
}

/// What the parts of a cold visit took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Reading or fetching the page itself.
    pub fetch_ms: f64,
    /// Decoding and parsing it.
    pub parse_ms: f64,
    /// Resources, style, shaping, layout.
    pub layout_ms: f64,
    /// Recording what is painted.
    pub record_ms: f64,
}

/// Why there is no page: [`ViewError`], as far as it can cross from one process to another.
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
            ViewError::NoPage { url, content_type } => Failure::NoPage { url, content_type },
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
            Failure::NoPage { url, content_type } => ViewError::NoPage { url, content_type },
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
/// The stage that was reached, as text.
pub(crate) const STAGE: u32 = 2;
pub(crate) const ANSWER: u32 = 3;
pub(crate) const FAILURE: u32 = 4;
pub(crate) const BLOCK: u32 = 5;
/// The document's block.
pub(crate) const DOCUMENT: u32 = 6;
/// The hash, and a font file.
pub(crate) const FONT: u32 = 7;
/// The hash, and pixels.
pub(crate) const IMAGE: u32 = 8;
/// Nothing follows.
pub(crate) const END: u32 = 9;
/// A [`Retry`], instead of a request. There is no answer.
pub(crate) const RETRY: u32 = 10;

/// No frame is longer: a page with more than this is not shown.
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

/// The next frame's kind and length.
pub(crate) fn read_header(from: &mut impl Read) -> io::Result<(u32, usize)> {
    let mut header = [0; 16];
    from.read_exact(&mut header)?;
    let [a, b, c, d, _, _, _, _, rest @ ..] = header;
    let length = u64::from_le_bytes(rest);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a part of {length} bytes"),
        ));
    }
    Ok((u32::from_le_bytes([a, b, c, d]), length as usize))
}

/// A frame's content, of a length that was announced. Memory is taken as the bytes come.
pub(crate) fn read_content(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(1 << 20));
    from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
