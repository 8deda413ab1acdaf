//! Detects sources that are neither HTML nor XML by their bytes.
//!
//! By the HTML standard any bytes are a page, so a source is refused only if its bytes are
//! certainly of another format. A file name with an extension of HTML or XML overrides missing
//! tags, but not the first bytes of a known binary format.

use evermap_dom::DocumentKind;
use serde::de::IgnoredAny;

/// Number of leading bytes that are searched for control characters.
const HEAD_BYTES: usize = 64 * 1024;
/// A source is binary if more than one in this many bytes is a control character.
const CONTROLS_SHARE: usize = 20;

/// A format that is neither HTML nor XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonMarkup {
    /// Name of the format, with its article.
    pub description: &'static str,
    /// Remedy for the error message.
    pub remedy: &'static str,
}

const UNPACK: &str = "unpack it first, or pipe it: `gunzip -c FILE | evermap parse - --name NAME`";
const CONVERT: &str = "convert it to HTML or XML first";
const NOT_A_DOCUMENT: &str = "name a file with markup";

/// First bytes of formats that are certainly not markup.
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

/// Returns the format of the bytes if they are certainly neither HTML nor XML. `named` is the kind
/// by the file's extension. `is_all` is false if more bytes follow.
pub fn non_markup(bytes: &[u8], named: Option<DocumentKind>, is_all: bool) -> Option<NonMarkup> {
    let other = |description, remedy| Some(NonMarkup { description, remedy });
    let magic = MAGICS.iter().find(|(magic, ..)| bytes.starts_with(magic));
    if let Some(&(_, description, remedy)) = magic {
        return other(description, remedy);
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return other("a film or an image", NOT_A_DOCUMENT);
    }
    if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        // UTF-16 encodes control characters and tags differently.
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

/// Returns true for a JSON object or array, or a sequence of JSON values that begins with an
/// object.
fn is_json(start: &[u8]) -> bool {
    if !matches!(start.first(), Some(b'{' | b'[')) {
        return false;
    }
    let mut values = serde_json::Deserializer::from_slice(start).into_iter::<IgnoredAny>();
    if !matches!(values.next(), Some(Ok(_))) {
        return false;
    }
    // A text may begin with `[1]`, so a first value that is an array must be the only one.
    match values.next() {
        None => true,
        Some(next) => next.is_ok() && start.starts_with(b"{"),
    }
}

/// Returns true if the text contains the start of a tag, a comment or a declaration.
fn has_tag(text: &[u8]) -> bool {
    let is_tag = |pair: &[u8]| {
        pair[0] == b'<' && (pair[1].is_ascii_alphabetic() || matches!(pair[1], b'!' | b'?' | b'/'))
    };
    text.windows(2).any(is_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(bytes: impl AsRef<[u8]>, named: Option<DocumentKind>) -> Option<&'static str> {
        non_markup(bytes.as_ref(), named, true).map(|format| format.description)
    }

    #[test]
    fn other_formats_are_detected() {
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
            assert_eq!(detected(bytes, None), Some(found));
            assert_eq!(detected(bytes, html), Some(found), "an extension of HTML changes nothing");
        }
        for (bytes, found) in [
            (&b"a,b\n1,2\n"[..], "text without a tag"),
            (b"if a < b and c > d:", "text without a tag"),
            (b"", "empty"),
        ] {
            assert_eq!(detected(bytes, None), Some(found));
            assert_eq!(detected(bytes, html), None, "with an extension of HTML it is a page");
        }
    }

    #[test]
    fn possible_markup_is_accepted() {
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
            assert_eq!(detected(bytes, None), None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
