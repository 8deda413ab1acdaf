//! What a source is, told by its bytes: HTML, XML, or something that is neither.
//!
//! Any bytes are an HTML page to the standard, so a page is refused only where the bytes say surely that
//! they are something else. A name that says HTML or XML counts more than missing tags, and never more
//! than the first bytes of a known binary format.

use evermap_dom::DocumentKind;
use serde::de::IgnoredAny;

/// Looked at for control characters.
const HEAD_BYTES: usize = 64 * 1024;
/// One control character in so many bytes is no text.
const CONTROLS_SHARE: usize = 20;

/// Something that is neither HTML nor XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// With its article.
    pub what: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

const UNPACK: &str = "unpack it first, or pipe it: `gunzip -c FILE | evermap parse - --name NAME`";
const CONVERT: &str = "convert it to HTML or XML first";
const NOT_A_DOCUMENT: &str = "name a file with markup";

/// First bytes of formats that are surely no markup.
const MAGICS: [(&[u8], &str, &str); 22] = [
    (b"\x7FELF", "an executable", NOT_A_DOCUMENT),
    (b"MZ\x90\0", "an executable", NOT_A_DOCUMENT),
    (b"\0asm", "a WebAssembly module", NOT_A_DOCUMENT),
    (b"\xCA\xFE\xBA\xBE", "a compiled class", NOT_A_DOCUMENT),
    (b"!<arch>\n", "an archive", NOT_A_DOCUMENT),
    (b"\x89PNG\r\n\x1A\n", "a PNG image", NOT_A_DOCUMENT),
    (b"\xFF\xD8\xFF", "a JPEG image", NOT_A_DOCUMENT),
    (b"GIF8", "a GIF image", NOT_A_DOCUMENT),
    (b"RIFF", "a RIFF file (an image, sound or film)", NOT_A_DOCUMENT),
    (b"OggS", "a sound or film", NOT_A_DOCUMENT),
    (b"ID3", "a sound", NOT_A_DOCUMENT),
    (b"fLaC", "a sound", NOT_A_DOCUMENT),
    (b"\x1A\x45\xDF\xA3", "a film", NOT_A_DOCUMENT),
    (b"%PDF-", "a PDF", CONVERT),
    (b"%!PS", "PostScript", CONVERT),
    (b"PK\x03\x04", "a ZIP archive (or an office document)", "unpack it, and name the files in it"),
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive", "unpack it, and name the files in it"),
    (b"\x1F\x8B", "compressed by gzip", UNPACK),
    (b"BZh", "compressed by bzip2", "unpack it first"),
    (b"\xFD7zXZ\0", "compressed by xz", "unpack it first"),
    (b"\x28\xB5\x2F\xFD", "compressed by zstd", "unpack it first"),
    (b"SQLite format 3\0", "an SQLite database", NOT_A_DOCUMENT),
];

/// Returns what the bytes are if they are surely neither HTML nor XML. `named` is the kind that the
/// name says. `is_all` is false if more bytes follow.
pub fn other(bytes: &[u8], named: Option<DocumentKind>, is_all: bool) -> Option<Other> {
    let other = |what, remedy| Some(Other { what, remedy });
    let magic = MAGICS.iter().find(|(magic, ..)| bytes.starts_with(magic));
    if let Some(&(_, what, remedy)) = magic {
        return other(what, remedy);
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return other("a film or an image", NOT_A_DOCUMENT);
    }
    if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        // UTF-16, whose control characters and tags look otherwise.
        return None;
    }
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let start = text.trim_ascii_start();
    if start.starts_with(b"<") {
        return None;
    }
    let head = &text[..text.len().min(HEAD_BYTES)];
    if is_binary(head) {
        return other("binary", NOT_A_DOCUMENT);
    }
    if is_all && is_json(start) {
        return other("JSON", CONVERT);
    }
    match named.is_none() && is_all && !has_tag(text) {
        true if start.is_empty() => other("empty", "name a file with markup"),
        true => other("text without a tag", CONVERT),
        false => None,
    }
}

fn is_binary(head: &[u8]) -> bool {
    let is_control = |byte: &&u8| matches!(byte, 0..=8 | 0x0E..=0x1A | 0x1C..=0x1F);
    let controls = head.iter().filter(is_control).count();
    controls * CONTROLS_SHARE > head.len()
}

/// Is it JSON, or JSON values one after the other?
fn is_json(start: &[u8]) -> bool {
    if !matches!(start.first(), Some(b'{' | b'[')) {
        return false;
    }
    let mut values = serde_json::Deserializer::from_slice(start).into_iter::<IgnoredAny>();
    if !matches!(values.next(), Some(Ok(_))) {
        return false;
    }
    // `[1]` may begin a text: all of it has to be JSON, or the first value has to be an object's line.
    match values.next() {
        None => true,
        Some(next) => next.is_ok() && start.starts_with(b"{"),
    }
}

/// Is there anything like a tag, a comment or a declaration?
fn has_tag(text: &[u8]) -> bool {
    let is_tag = |pair: &[u8]| {
        pair[0] == b'<' && (pair[1].is_ascii_alphabetic() || matches!(pair[1], b'!' | b'?' | b'/'))
    };
    text.windows(2).any(is_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(bytes: impl AsRef<[u8]>, named: Option<DocumentKind>) -> Option<&'static str> {
        other(bytes.as_ref(), named, true).map(|other| other.what)
    }

    #[test]
    fn what_is_surely_no_markup_is_refused() {
        let html = Some(DocumentKind::Html);
        for (bytes, found) in [
            (&b"{\"a\": [1, 2, \"<b>\"]}"[..], "JSON"),
            (b" [{\"a\": 1}]\n", "JSON"),
            (b"{\"a\":1}\n{\"a\":2}\n", "JSON"),
            (b"{}", "JSON"),
            (b"\x7FELF\x02\x01\x01<p>", "an executable"),
            (b"\x89PNG\r\n\x1A\n....", "a PNG image"),
            (b"%PDF-1.7 <</Type/Catalog>>", "a PDF"),
            (b"PK\x03\x04", "a ZIP archive (or an office document)"),
            (b"\x1F\x8B\x08<html>", "compressed by gzip"),
            (b"....ftypmp42", "a film or an image"),
            (b"\x00\x01\x02\x03 <p> \x00\x00\x00\x00", "binary"),
        ] {
            assert_eq!(what(bytes, None), Some(found));
            assert_eq!(what(bytes, html), Some(found), "also under the name of a page");
        }
        for (bytes, found) in [
            (&b"a,b\n1,2\n"[..], "text without a tag"),
            (b"if a < b and c > d:", "text without a tag"),
            (b"", "empty"),
        ] {
            assert_eq!(what(bytes, None), Some(found));
            assert_eq!(what(bytes, html), None, "under the name of a page it is one");
        }
    }

    #[test]
    fn what_may_be_markup_is_not_refused() {
        for bytes in [
            &b"<p>"[..],
            b"  \n<?xml version='1.0'?><a/>",
            b"\xEF\xBB\xBF<a/>",
            b"text <b>bold</b>",
            b"{{ title }}<p>{{ text }}",
            b"[1] a note <p>",
            b"{\"a\": 1} <p>",
            b"[1, 2] <b>",
            b"<p>\x00\x00\x00\x00\x00",
            b"\xFF\xFE<\0p\0>\0",
            b"\xFE\xFF\0<\0p\0>",
            b"caf\xE9 <br>",
            b"<!-- c --><html>",
        ] {
            assert_eq!(what(bytes, None), None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
