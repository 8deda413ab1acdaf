//! Removes references to files from SVG.
//!
//! The engine's SVG parser opens any file that an image in an SVG names, no matter who sent the
//! SVG, and blocks on pipes. So every SVG is parsed and written again before the engine reads it.
//! In the result, every `href` of an SVG element except a link's refers to a part of the same SVG
//! or to a `data:` address, and there is no DTD. Pictures from other addresses inside SVG are
//! therefore not shown. Browsers do not show them either when the SVG is used as an image.

use std::fmt::Write;

use blitz_traits::net::Bytes;
use evermap_dom::{NodeKind, NodeRef, xml};

const SVG: &str = "http://www.w3.org/2000/svg";

/// Returns false for an `href` of an SVG element that refers to something outside the SVG. Links
/// are kept, because they load nothing by themselves.
pub(crate) fn is_safe_attribute(
    namespace: Option<&str>,
    element: &str,
    attribute: &str,
    value: &str,
) -> bool {
    if namespace != Some(SVG) || element == "a" || attribute != "href" {
        return true;
    }
    let value = value.trim_start();
    value.starts_with('#')
        || value.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Returns a resource in a form that is safe for the engine. The engine parses everything as SVG
/// that is not a picture of a known format, whatever its content type. So this function looks at
/// the bytes.
pub(crate) fn sanitized(bytes: Bytes, is_style_sheet: bool) -> Bytes {
    let start = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes).trim_ascii_start();
    let compressed = bytes.starts_with(&[0x1f, 0x8b]);
    if !compressed && !start.starts_with(b"<") {
        return bytes;
    }
    if is_style_sheet {
        // CSS allows `<!--` at the beginning of a style sheet. A CSS comment in front makes it
        // invalid XML.
        return [b"/**/", &bytes[..]].concat().into();
    }
    match compressed {
        // The fetch has removed any `Content-Encoding`, so the file itself is compressed (`.svgz`).
        // Browsers do not show such SVG either.
        true => Bytes::new(),
        false => rewritten(&bytes).map_or_else(Bytes::new, Bytes::from),
    }
}

/// Returns true for HTML. The caller passes it to the engine unchanged, and `Frames` in `build.rs`
/// makes the page of an `iframe` from it.
pub(crate) fn is_html(bytes: &[u8]) -> bool {
    let start = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    let word = start.get(..9).unwrap_or(start).to_ascii_lowercase();
    word.starts_with(b"<!doctype")
        && start[9..].trim_ascii_start().get(..4).is_some_and(|w| w.eq_ignore_ascii_case(b"html"))
        || word.starts_with(b"<html")
}

/// Writes the SVG again from its elements, attributes and text.
fn rewritten(bytes: &[u8]) -> Option<String> {
    let block = xml::parse_bytes(bytes, &Default::default()).ok()?.to_block();
    let root = block.dom().root_element()?;
    let mut text = String::with_capacity(bytes.len());
    // An element is closed before the first node outside it, at any depth, so this needs no
    // recursion.
    let mut open: Vec<NodeRef<'_>> = Vec::new();
    for node in std::iter::once(root).chain(root.descendants()) {
        while open.last().is_some_and(|last| node.parent().map(|p| p.id()) != Some(last.id())) {
            close(&mut text, open.pop()?);
        }
        match node.kind() {
            NodeKind::Element => {
                begin(&mut text, node);
                open.push(node);
            }
            NodeKind::Text => escape(&mut text, node.value().unwrap_or_default()),
            _ => (),
        }
    }
    while let Some(node) = open.pop() {
        close(&mut text, node);
    }
    Some(text)
}

fn begin(text: &mut String, node: NodeRef<'_>) {
    let _ = write!(text, "<{}", node.name());
    for attribute in node.attributes() {
        // The engine treats elements without a namespace as SVG.
        let namespace = node.namespace().or(Some(SVG));
        if is_safe_attribute(
            namespace,
            node.local_name(),
            attribute.local_name(),
            attribute.value(),
        ) {
            let _ = write!(text, " {}=\"", attribute.name());
            escape(text, attribute.value());
            text.push('"');
        }
    }
    text.push('>');
}

fn close(text: &mut String, node: NodeRef<'_>) {
    let _ = write!(text, "</{}>", node.name());
}

fn escape(text: &mut String, raw: &str) {
    for char in raw.chars() {
        match char {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\n' | '\r' | '\t' => _ = write!(text, "&#{};", u32::from(char)),
            char => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sanitized_text(svg: &str) -> String {
        String::from_utf8(sanitized(Bytes::from(svg.to_string()), false).to_vec()).unwrap()
    }

    #[test]
    fn internal_references_stay_and_external_ones_are_removed() {
        let svg = "<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY f 'file:///etc/picture.png'>]>
            <svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'><style>a &lt; b</style>
            <image xlink:href='/etc/picture.png' width='3'/><image href='&f;'/><image href=' data:image/png;base64,AA=='/>
            <use href='#part'/><a href='page.html'>x</a><feImage href='other.svg#part'/></svg>";
        let output = sanitized_text(svg);
        assert!(
            !output.contains("etc") && !output.contains("other.svg") && !output.contains("DOCTYPE"),
            "{output}"
        );
        for inside in ["data:image/png;base64,AA==", "#part", "page.html", "a &lt; b", "width=3"] {
            assert!(output.replace('"', "").contains(inside), "{inside} in {output}");
        }
    }

    #[test]
    fn disguised_svg_is_sanitized() {
        let svg = "<svg><image href='/etc/picture.png'/></svg>";
        assert!(!sanitized_text(svg).contains("etc"), "without a namespace");
        assert!(!sanitized_text(&format!("\u{feff}  {svg}")).contains("etc"));
        assert!(!sanitized_text(&format!("<!-- a -->{svg}")).contains("etc"));
        assert!(sanitized(Bytes::from_static(b"\x1f\x8b\x08"), false).is_empty(), "compressed");
        assert!(
            sanitized_text("<svg><image href='/etc/x'>").is_empty(),
            "malformed SVG is dropped"
        );
        let as_style_sheet = sanitized(Bytes::from(svg), true);
        assert!(as_style_sheet.starts_with(b"/**/<"), "a style sheet must not parse as XML");
    }

    #[test]
    fn other_content_is_unchanged() {
        for bytes in [&b"\x89PNG\r\n"[..], b"body { color: red }", b"OTTO", b""] {
            assert_eq!(sanitized(Bytes::copy_from_slice(bytes), false), bytes);
        }
        assert!(
            is_html(b" <!DOCTYPE html>")
                && is_html(b"<HTML lang=en>")
                && !is_html(b"<!DOCTYPE svg>")
        );
    }
}
