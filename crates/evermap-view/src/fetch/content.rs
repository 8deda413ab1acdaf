//! Determines a resource's type from the server's header, the address, the file's name, or the
//! first bytes.
//!
//! The server's type is used, except for binary content labelled as text. A file's type comes from
//! a known signature in its first bytes, else from its name, else from its text. Nothing is
//! decoded: only the label of the encoding is reported.

use std::path::Path;

use data_url::mime::Mime;
use serde::{Deserialize, Serialize};

/// Number of bytes to examine.
const EXAMINED_BYTES: usize = 1024;

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// HTML.
    Html,
    /// XHTML, to be parsed as XML.
    Xhtml,
    /// SVG.
    Svg,
    /// Any other XML.
    Xml,
    /// Text to be shown as it is, including source code and JSON.
    Text,
    /// A picture other than SVG.
    Image,
    /// CSS.
    StyleSheet,
    /// A font.
    Font,
    /// Anything else.
    Other,
}

impl Kind {
    /// Returns true if it can be shown as a page.
    pub fn is_page(self) -> bool {
        !matches!(self, Kind::Font | Kind::Other)
    }
}

/// Source of a resource's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TypeSource {
    /// The server, or the `data:` address.
    Header,
    /// The file's name.
    Name,
    /// The first bytes.
    Content,
}

/// A media type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContentType {
    /// Type and subtype in lower case, such as `text/html`.
    pub essence: String,
    /// The label of the encoding, as it was sent.
    pub charset: Option<String>,
    /// The kind of resource.
    pub kind: Kind,
    /// Source of the type.
    pub source: TypeSource,
}

impl ContentType {
    /// Returns the type from the `Content-Type` header. Uses the first bytes instead if the header
    /// is missing or malformed, or if it declares text but the bytes are binary.
    pub(super) fn of_response(header: Option<&str>, bytes: &[u8]) -> ContentType {
        let mime = header.and_then(|value| value.parse::<Mime>().ok());
        match mime {
            Some(mime) if mime.matches("text", "plain") && looks_binary(bytes) => {
                ContentType::by_content(bytes)
            }
            // Sent by servers that do not know the type.
            Some(mime) if mime.matches("unknown", "unknown") || mime.matches("*", "*") => {
                ContentType::by_content(bytes)
            }
            Some(mime) => ContentType::of_mime(&mime),
            None => ContentType::by_content(bytes),
        }
    }

    /// Returns the type of a `data:` address.
    pub(super) fn of_mime(mime: &Mime) -> ContentType {
        let essence = format!("{}/{}", mime.type_, mime.subtype);
        let charset = mime.get_parameter("charset").map(str::to_string);
        ContentType { kind: kind_of(&essence), essence, charset, source: TypeSource::Header }
    }

    /// Returns the type of a file.
    pub(super) fn of_file(path: &Path, bytes: &[u8]) -> ContentType {
        if let Some(essence) = signature(bytes) {
            return ContentType::from_essence(essence, TypeSource::Content);
        }
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref().and_then(by_extension) {
            Some(essence) => ContentType::from_essence(essence, TypeSource::Name),
            None => ContentType::by_content(bytes),
        }
    }

    fn by_content(bytes: &[u8]) -> ContentType {
        let essence = signature(bytes).unwrap_or_else(|| {
            if looks_binary(bytes) { "application/octet-stream" } else { text_type(bytes) }
        });
        ContentType::from_essence(essence, TypeSource::Content)
    }

    fn from_essence(essence: &str, source: TypeSource) -> ContentType {
        ContentType { essence: essence.to_string(), charset: None, kind: kind_of(essence), source }
    }
}

fn kind_of(essence: &str) -> Kind {
    match essence {
        "text/html" => Kind::Html,
        "application/xhtml+xml" => Kind::Xhtml,
        "image/svg+xml" => Kind::Svg,
        "text/xml" | "application/xml" => Kind::Xml,
        "text/css" => Kind::StyleSheet,
        "application/json" | "application/javascript" | "application/x-javascript" => Kind::Text,
        "application/vnd.ms-fontobject" | "application/font-woff" | "application/font-sfnt" => {
            Kind::Font
        }
        _ if essence.ends_with("+xml") => Kind::Xml,
        _ if essence.ends_with("+json") || essence.starts_with("text/") => Kind::Text,
        _ if essence.starts_with("image/") => Kind::Image,
        _ if essence.starts_with("font/") || essence.starts_with("application/x-font-") => {
            Kind::Font
        }
        _ => Kind::Other,
    }
}

fn by_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "html" | "htm" => "text/html",
        "xhtml" | "xht" => "application/xhtml+xml",
        "svg" => "image/svg+xml",
        "xml" | "xsl" | "rss" | "atom" => "application/xml",
        "txt" | "text" | "log" | "md" | "csv" => "text/plain",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "bmp" => "image/bmp",
        "ico" => "image/x-icon",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "ttc" => "font/collection",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "pdf" => "application/pdf",
        _ => return None,
    })
}

/// Returns the type of a format with a known signature.
fn signature(bytes: &[u8]) -> Option<&'static str> {
    const SIGNATURES: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"\0\0\x01\0", "image/x-icon"),
        (b"wOFF", "font/woff"),
        (b"wOF2", "font/woff2"),
        (b"OTTO", "font/otf"),
        (b"ttcf", "font/collection"),
        (b"\0\x01\0\0", "font/ttf"),
        (b"%PDF-", "application/pdf"),
        (b"\x1f\x8b\x08", "application/gzip"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x28\xb5\x2f\xfd", "application/zstd"),
        (b"\x7fELF", "application/x-executable"),
    ];
    let known = SIGNATURES.iter().find(|(start, _)| bytes.starts_with(start));
    if let Some((_, essence)) = known {
        return Some(essence);
    }
    match (bytes.get(..4), bytes.get(4..8), bytes.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WEBP")) => Some("image/webp"),
        (_, Some(b"ftyp"), Some(b"avif" | b"avis")) => Some("image/avif"),
        _ => None,
    }
}

/// Returns true if there are bytes that do not occur in text of any encoding without zeros.
fn looks_binary(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(EXAMINED_BYTES)];
    // UTF-16 contains zeros, but its byte order mark identifies it as text.
    if start.starts_with(&[0xfe, 0xff]) || start.starts_with(&[0xff, 0xfe]) {
        return false;
    }
    let control = |byte: &u8| matches!(*byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    start.iter().any(control)
}

/// Returns HTML, XHTML, SVG, other XML, or plain text, by the first tag after blanks and comments.
fn text_type(bytes: &[u8]) -> &'static str {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(EXAMINED_BYTES)]);
    let mut rest = start.trim_start_matches('\u{feff}');
    let mut xml = false;
    loop {
        rest = rest.trim_start();
        let end = match () {
            () if rest.starts_with("<!--") => rest.find("-->").map(|at| at + 3),
            () if rest.starts_with("<?") => {
                xml |= rest.starts_with("<?xml");
                rest.find("?>").map(|at| at + 2)
            }
            () if xml && begins_with(rest, "<!doctype") && !begins_with(rest, "<!doctype html") => {
                rest.find('>').map(|at| at + 1)
            }
            () => break,
        };
        match end {
            Some(end) => rest = &rest[end..],
            None => break,
        }
    }
    let html =
        ["<!doctype html", "<html", "<head", "<body", "<title", "<meta", "<script", "<style"]
            .iter()
            .chain(&[
                "<table", "<div", "<p>", "<p ", "<h1", "<br", "<a ", "<link", "<font", "<iframe",
            ])
            .any(|tag| begins_with(rest, tag));
    match () {
        () if begins_with(rest, "<svg") => "image/svg+xml",
        () if xml && html => "application/xhtml+xml",
        () if xml => "application/xml",
        // A comment at the start means HTML, as in browsers.
        () if html || rest.starts_with("<!--") => "text/html",
        () => "text/plain",
    }
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> Kind {
        ContentType::of_file(Path::new(name), bytes).kind
    }

    #[test]
    fn a_files_type_comes_from_its_signature_then_its_name_then_its_text() {
        assert_eq!(file("a.html", b"\x89PNG\r\n\x1a\nrest"), Kind::Image);
        assert_eq!(file("a.HTM", b"just words"), Kind::Html);
        assert_eq!(file("a.txt", b"<!doctype html><p>shown as it is"), Kind::Text);
        assert_eq!(file("README", b"  <!-- note -->\n<!DOCTYPE HTML><p>x"), Kind::Html);
        assert_eq!(file("page", b"\xef\xbb\xbf<html><p>x"), Kind::Html);
        assert_eq!(file("words", b"just words, 1 < 2"), Kind::Text);
        assert_eq!(file("words", "Grüße".as_bytes()), Kind::Text);
        assert_eq!(file("words", b"Gr\xfc\xdfe"), Kind::Text);
        assert_eq!(file("empty", b""), Kind::Text);
        assert_eq!(file("picture", b"<?xml version='1.0'?>\n<svg xmlns='x'/>"), Kind::Svg);
        assert_eq!(file("feed", b"<?xml version='1.0'?><rss/>"), Kind::Xml);
        assert_eq!(file("strict", b"<?xml version='1.0'?><!DOCTYPE html><html/>"), Kind::Xhtml);
        assert_eq!(file("drawing", b"<?xml?><!DOCTYPE svg PUBLIC 'x'><svg/>"), Kind::Svg);
        assert_eq!(file("data", b"ab\0cd"), Kind::Other);
        assert_eq!(file("paper", b"%PDF-1.7"), Kind::Other);
        assert_eq!(file("utf16", b"\xff\xfeh\0i\0"), Kind::Text);
    }

    #[test]
    fn a_servers_type_is_used_except_for_binary_text() {
        let of = |header: Option<&str>, bytes: &[u8]| ContentType::of_response(header, bytes);
        let html = of(Some("Text/HTML; Charset=\"ISO-8859-1\""), b"x");
        assert_eq!((html.essence.as_str(), html.kind), ("text/html", Kind::Html));
        assert_eq!(html.charset.as_deref(), Some("ISO-8859-1"));
        assert_eq!(html.source, TypeSource::Header);
        assert_eq!(of(Some("text/plain"), b"<!doctype html>").kind, Kind::Text);
        assert_eq!(of(Some("text/plain"), b"\x89PNG\r\n\x1a\n").kind, Kind::Image);
        assert_eq!(of(Some("application/octet-stream"), b"<html>").kind, Kind::Other);
        assert_eq!(of(None, b"<html>").kind, Kind::Html);
        assert_eq!(of(Some("nonsense"), b"<html>").kind, Kind::Html);
        assert_eq!(of(Some("application/rss+xml"), b"").kind, Kind::Xml);
        assert_eq!(of(Some("font/woff2"), b"").kind, Kind::Font);
        assert_eq!(of(Some("application/ld+json"), b"").kind, Kind::Text);
        assert_eq!(of(Some("application/pdf"), b"").kind, Kind::Other);
    }
}
