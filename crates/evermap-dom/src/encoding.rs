//! From bytes to UTF-8.
//!
//! HTML: byte order mark, then the transport's label, then a `meta` element near the start, then
//! UTF-8; invalid bytes are replaced. XML: byte order mark, then the XML declaration, then UTF-8;
//! invalid bytes are an error.

use std::borrow::Cow;

use encoding_rs::{Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

use crate::error::{ParseError, ParseErrorKind};

/// Bytes of a page that are searched for the name of its encoding, as in the HTML standard.
const PRESCAN_BYTES: usize = 1024;
/// Bytes decoded at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Decodes a page that arrives in pieces.
pub(crate) struct HtmlDecoder {
    label: Option<&'static Encoding>,
    /// Input before the encoding is decided.
    start: Vec<u8>,
    decoder: Option<Decoder>,
    text: String,
}

impl HtmlDecoder {
    pub(crate) fn new(label: Option<&str>) -> HtmlDecoder {
        HtmlDecoder {
            label: label.and_then(|label| Encoding::for_label(label.as_bytes())),
            start: Vec::new(),
            decoder: None,
            text: String::new(),
        }
    }

    pub(crate) fn decode(&mut self, bytes: &[u8], last: bool, sink: &mut dyn FnMut(&str)) {
        if self.decoder.is_none() {
            if self.start.is_empty() && bytes.len() >= PRESCAN_BYTES {
                self.decoder = Some(self.decide(bytes));
            } else {
                self.start.extend_from_slice(bytes);
                if self.start.len() < PRESCAN_BYTES && !last {
                    return;
                }
                self.decoder = Some(self.decide(&self.start));
                let start = std::mem::take(&mut self.start);
                self.pieces(&start, last, sink);
                return;
            }
        }
        self.pieces(bytes, last, sink);
    }

    /// The decoder itself recognises a byte order mark.
    fn decide(&self, start: &[u8]) -> Decoder {
        let encoding = self
            .label
            .or_else(|| prescan(&start[..start.len().min(PRESCAN_BYTES)]))
            .unwrap_or(UTF_8);
        encoding.new_decoder()
    }

    fn pieces(&mut self, mut bytes: &[u8], last: bool, sink: &mut dyn FnMut(&str)) {
        let Some(decoder) = &mut self.decoder else {
            return;
        };
        loop {
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES));
            let at_end = last && rest.is_empty();
            let mut piece = piece;
            loop {
                self.text.clear();
                let room =
                    decoder.max_utf8_buffer_length(piece.len()).unwrap_or(PIECE_BYTES).max(64);
                self.text.reserve(room);
                let (result, read, _) = decoder.decode_to_string(piece, &mut self.text, at_end);
                sink(&self.text);
                piece = &piece[read..];
                if result == encoding_rs::CoderResult::InputEmpty {
                    break;
                }
            }
            bytes = rest;
            if bytes.is_empty() {
                return;
            }
        }
    }
}

/// Looks for `<meta ... charset=...>` in the first bytes of a page.
fn prescan(start: &[u8]) -> Option<&'static Encoding> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'<', &start[at..]) {
        at += found;
        let tag = &start[at..];
        if tag.starts_with(b"<!--") {
            at += 4 + memchr::memmem::find(&tag[4..], b"-->")?;
        } else if is_meta(tag) {
            let end = memchr::memchr(b'>', tag).unwrap_or(tag.len());
            if let Some(encoding) = charset(&tag[..end]) {
                return Some(encoding);
            }
            at += end;
        } else {
            at += 1;
        }
    }
    None
}

fn is_meta(tag: &[u8]) -> bool {
    tag.len() > 5
        && tag[1..5].eq_ignore_ascii_case(b"meta")
        && (tag[5].is_ascii_whitespace() || tag[5] == b'/')
}

/// Returns the encoding in a tag's `charset=`, as an attribute or inside `content`.
fn charset(tag: &[u8]) -> Option<&'static Encoding> {
    let lower = tag.to_ascii_lowercase();
    let after = memchr::memmem::find(&lower, b"charset")? + b"charset".len();
    let value = lower[after..].trim_ascii_start().strip_prefix(b"=")?;
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let value = value.strip_prefix(b"'").unwrap_or(value);
    let end = value
        .iter()
        .position(|byte| {
            matches!(byte, b'"' | b'\'' | b';' | b'/' | b'>') || byte.is_ascii_whitespace()
        })
        .unwrap_or(value.len());
    let encoding = Encoding::for_label(&value[..end])?;
    // The tag was read as ASCII, so these encodings cannot be right.
    Some(match encoding {
        wide if wide == UTF_16LE || wide == UTF_16BE => UTF_8,
        user if user == X_USER_DEFINED => WINDOWS_1252,
        other => other,
    })
}

/// Decodes an XML document.
pub(crate) fn decode_xml(bytes: &[u8]) -> Result<Cow<'_, str>, ParseError> {
    let encoding = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding,
        None if bytes.starts_with(b"<\0?\0") => UTF_16LE,
        None if bytes.starts_with(b"\0<\0?") => UTF_16BE,
        None => declared(bytes)?.unwrap_or(UTF_8),
    };
    let (text, had_errors) = encoding.decode_with_bom_removal(bytes);
    if !had_errors {
        return Ok(text);
    }
    let kind = ParseErrorKind::Encoding { encoding: encoding.name().to_owned() };
    let valid = match std::str::from_utf8(bytes) {
        Err(error) if encoding == UTF_8 => error.valid_up_to(),
        _ => 0,
    };
    let before = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
    Err(ParseError::at(kind, before, valid))
}

/// The encoding that `<?xml ... encoding="..."?>` names.
fn declared(bytes: &[u8]) -> Result<Option<&'static Encoding>, ParseError> {
    if !bytes.starts_with(b"<?xml") {
        return Ok(None);
    }
    let end = memchr::memmem::find(bytes, b"?>").unwrap_or(bytes.len().min(PRESCAN_BYTES));
    let declaration = &bytes[..end];
    let Some(at) = memchr::memmem::find(declaration, b"encoding") else {
        return Ok(None);
    };
    let value = declaration[at + 8..].trim_ascii_start();
    let Some(value) = value.strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else {
        return Ok(None);
    };
    let Some((&quote, value)) = value.split_first() else {
        return Ok(None);
    };
    let end = memchr::memchr(quote, value).unwrap_or(value.len());
    match Encoding::for_label(&value[..end]) {
        // The declaration was read as ASCII.
        Some(wide) if wide == UTF_16LE || wide == UTF_16BE => Ok(Some(UTF_8)),
        Some(encoding) => Ok(Some(encoding)),
        None => Err(ParseError::whole(ParseErrorKind::Encoding {
            encoding: String::from_utf8_lossy(&value[..end]).into_owned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_element_names_the_encoding() {
        let name = |page: &str| prescan(page.as_bytes()).map(Encoding::name);
        assert_eq!(name("<meta charset=\"latin1\">"), Some("windows-1252"));
        assert_eq!(name("<META charset = sjis >"), Some("Shift_JIS"));
        assert_eq!(
            name("<meta http-equiv=content-type content='text/html; charset=koi8-r'>"),
            Some("KOI8-R")
        );
        assert_eq!(name("<!-- <meta charset=latin1> --><p>"), None);
        assert_eq!(name("<meta charset=utf-16>"), Some("UTF-8"));
        assert_eq!(name("<metal charset=latin1>"), None);
    }
}
