//! SVG, without references to files.
//!
//! The engine's SVG parser opens the files that an SVG's images name, whoever sent the SVG, and waits for them if they are
//! pipes. So every SVG is taken apart and put together again before the engine sees it: what an `href` names is then a part of the
//! same SVG or a `data:` address, and there is no DTD. (Pictures inside SVG from other places are therefore not shown; in pages,
//! browsers don't show them either when the SVG is an image.)

use std::fmt::Write;

use blitz_traits::net::Bytes;
use evermap_dom::{NodeKind, NodeRef, xml};

const SVG: &str = "http://www.w3.org/2000/svg";

/// Whether an attribute of an element may stay: all may, but for what names something outside.
pub(crate) fn may_stay(
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

/// What a resource may be given to the engine as, which tries everything as SVG that is no picture.
pub(crate) fn harmless(bytes: Bytes, is_style_sheet: bool) -> Bytes {
    let start = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes).trim_ascii_start();
    let compressed = bytes.starts_with(&[0x1f, 0x8b]);
    if !compressed && !start.starts_with(b"<") {
        return bytes;
    }
    if is_style_sheet {
        // It may begin like a comment of HTML. What begins like one of CSS is no XML.
        return [b"/**/", &bytes[..]].concat().into();
    }
    match compressed {
        // Compressed once more inside: neither browsers nor servers do that.
        true => Bytes::new(),
        false => rewritten(&bytes).map_or_else(Bytes::new, Bytes::from),
    }
}

/// HTML is none of it: an `iframe` gets its page as it is, and is built by us.
pub(crate) fn is_html(bytes: &[u8]) -> bool {
    let start = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    let word = start.get(..9).unwrap_or(start).to_ascii_lowercase();
    word.starts_with(b"<!doctype")
        && start[9..].trim_ascii_start().get(..4).is_some_and(|w| w.eq_ignore_ascii_case(b"html"))
        || word.starts_with(b"<html")
}

/// The SVG, put together again from its elements, attributes and texts.
fn rewritten(bytes: &[u8]) -> Option<String> {
    let block = xml::parse_bytes(bytes, &Default::default()).ok()?.to_block();
    let root = block.dom().root_element()?;
    let mut text = String::with_capacity(bytes.len());
    // An element's end comes after the last of what is in it, at whatever depth: no recursion.
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
        // SVG without a namespace is taken for SVG by the engine.
        let namespace = node.namespace().or(Some(SVG));
        if may_stay(namespace, node.local_name(), attribute.local_name(), attribute.value()) {
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

    fn through(svg: &str) -> String {
        String::from_utf8(harmless(Bytes::from(svg.to_string()), false).to_vec()).unwrap()
    }

    #[test]
    fn what_lies_inside_stays_and_what_lies_outside_goes() {
        let svg = "<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY f 'file:///etc/picture.png'>]>
            <svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'><style>a &lt; b</style>
            <image xlink:href='/etc/picture.png' width='3'/><image href='&f;'/><image href=' data:image/png;base64,AA=='/>
            <use href='#part'/><a href='page.html'>x</a><feImage href='other.svg#part'/></svg>";
        let kept = through(svg);
        assert!(
            !kept.contains("etc") && !kept.contains("other.svg") && !kept.contains("DOCTYPE"),
            "{kept}"
        );
        for inside in ["data:image/png;base64,AA==", "#part", "page.html", "a &lt; b", "width=3"] {
            assert!(kept.replace('"', "").contains(inside), "{inside} in {kept}");
        }
    }

    #[test]
    fn svg_in_disguise_is_svg() {
        let svg = "<svg><image href='/etc/picture.png'/></svg>";
        assert!(!through(svg).contains("etc"), "without a namespace");
        assert!(!through(&format!("\u{feff}  {svg}")).contains("etc"));
        assert!(!through(&format!("<!-- a -->{svg}")).contains("etc"));
        assert!(harmless(Bytes::from_static(b"\x1f\x8b\x08"), false).is_empty(), "compressed");
        assert!(through("<svg><image href='/etc/x'>").is_empty(), "what can't be read is nothing");
        let as_style_sheet = harmless(Bytes::from(svg), true);
        assert!(as_style_sheet.starts_with(b"/**/<"), "no XML begins like this");
    }

    #[test]
    fn what_is_no_svg_passes() {
        for bytes in [&b"\x89PNG\r\n"[..], b"body { color: red }", b"OTTO", b""] {
            assert_eq!(harmless(Bytes::copy_from_slice(bytes), false), bytes);
        }
        assert!(
            is_html(b" <!DOCTYPE html>")
                && is_html(b"<HTML lang=en>")
                && !is_html(b"<!DOCTYPE svg>")
        );
    }
}
