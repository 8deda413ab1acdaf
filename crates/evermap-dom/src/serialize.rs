//! Serialization: converts tables to text.
//!
//! HTML follows the HTML standard (void elements, raw text, escaping). XML is written as it was
//! parsed: prefixes and declarations are attributes like any other, so names stay the same. One
//! pass over the ids of the subtree, with a list of the open elements instead of recursion, so the
//! depth of the tree does not matter. Output is written in pieces.

use std::fmt::{self, Write};
use std::io;

use crate::dom::{Dom, valid_str};
use crate::layout::*;
use crate::names::{NAMESPACE_DEFAULT, NAMESPACE_XMLNS};
use crate::node::NodeRef;

impl NodeRef<'_> {
    /// The node as markup: HTML for HTML documents, XML for XML documents.
    ///
    /// ```
    /// # use evermap_dom::{html, xml};
    /// let block = html::parse("<p title='\"'>a&b<br>", &Default::default()).unwrap().to_block();
    /// let p = block.dom().select_first(&"p".parse().unwrap()).unwrap();
    /// assert_eq!(p.outer_html(), "<p title=\"&quot;\">a&amp;b<br></p>");
    ///
    /// let source = r#"<x:a xmlns:x="urn:x"><x:b/>1 &lt; 2</x:a>"#;
    /// let block = xml::parse(source, &Default::default()).unwrap().to_block();
    /// assert_eq!(block.dom().document_node().outer_html(), source);
    /// ```
    pub fn outer_html(&self) -> String {
        let mut out = String::new();
        // Writing into a string can't fail.
        let _ = self.write_html(&mut out);
        out
    }

    /// Returns the contents of the node as markup; for a template, its template contents.
    pub fn inner_html(&self) -> String {
        let mut out = String::new();
        let _ = self.write_inner_html(&mut out);
        out
    }

    /// Writes [`outer_html`](NodeRef::outer_html) to a formatter, in pieces.
    pub fn write_html(&self, out: &mut dyn Write) -> fmt::Result {
        Serializer::new(self.dom(), out).range(self.id(), self.dom().end(self.id()), self.id())
    }

    /// Writes [`inner_html`](NodeRef::inner_html) to a formatter, in pieces.
    pub fn write_inner_html(&self, out: &mut dyn Write) -> fmt::Result {
        let (dom, id) = (self.dom(), self.id());
        Serializer::new(dom, out).range(id.saturating_add(1), dom.end(id), id)
    }

    /// Writes [`outer_html`](NodeRef::outer_html) to a file or socket. Wrap it in a
    /// [`std::io::BufWriter`]: the pieces are small.
    ///
    /// ```
    /// # use evermap_dom::html;
    /// let block = html::parse("<p>x", &Default::default()).unwrap().to_block();
    /// let mut file = std::io::BufWriter::new(Vec::new());
    /// block.dom().document_node().write_to(&mut file)?;
    /// assert_eq!(file.buffer(), b"<html><head></head><body><p>x</p></body></html>");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_to(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut adapter = Adapter { out, error: None };
        match self.write_html(&mut adapter) {
            Ok(()) => Ok(()),
            Err(_) => Err(adapter.error.unwrap_or_else(|| io::Error::other("formatting failed"))),
        }
    }
}

/// Lets formatting go to a file, and keeps the file's own error.
struct Adapter<'o> {
    out: &'o mut dyn io::Write,
    error: Option<io::Error>,
}

impl Write for Adapter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

struct Serializer<'a, 'o> {
    dom: Dom<'a>,
    out: &'o mut dyn Write,
    /// The elements that are open, and where each one's subtree ends.
    open: Vec<(u32, u32)>,
}

impl<'a, 'o> Serializer<'a, 'o> {
    fn new(dom: Dom<'a>, out: &'o mut dyn Write) -> Serializer<'a, 'o> {
        Serializer { dom, out, open: Vec::new() }
    }

    /// Writes the nodes from `start` to before `end`; `top` is the node that was asked for.
    fn range(&mut self, start: u32, end: u32, top: u32) -> fmt::Result {
        let mut id = start;
        while id < end {
            self.close_before(id)?;
            let node = self.dom.node_at(id);
            let text = self.dom.leaf_text(node);
            match node.kind() {
                ELEMENT => {
                    id = self.element(id, node, id == top)?;
                    continue;
                }
                TEXT_NODE if self.dom.writes_html() => self.html_text(id, text)?,
                TEXT_NODE => escape(self.out, text, Escape::XmlText)?,
                COMMENT => write!(self.out, "<!--{text}-->")?,
                DOCTYPE => self.doctype(id)?,
                PROCESSING_INSTRUCTION => {
                    let end = if self.dom.writes_html() { ">" } else { "?>" };
                    let target = self.dom.qualified(node.name());
                    let space = if text.is_empty() && end == "?>" { "" } else { " " };
                    write!(self.out, "<?{target}{space}{text}{end}")?;
                }
                _ => {}
            }
            id += 1;
        }
        self.close_before(u32::MAX)
    }

    /// Writes the end tags of elements whose subtrees end at or before `id`.
    fn close_before(&mut self, id: u32) -> fmt::Result {
        while let Some(&(element, end)) = self.open.last() {
            if end > id {
                break;
            }
            self.open.pop();
            let name = self.tag_name(self.dom.node_at(element));
            write!(self.out, "</{name}>")?;
        }
        Ok(())
    }

    fn tag_name(&self, node: Node) -> &'a str {
        self.dom.qualified(node.name())
    }

    /// Writes a start tag. Returns the next id.
    fn element(&mut self, id: u32, node: Node, is_top: bool) -> Result<u32, fmt::Error> {
        let end = self.dom.end(id);
        write!(self.out, "<{}", self.tag_name(node))?;
        for attribute in self.dom.attributes_of(node) {
            let name = self.dom.qualified(attribute.name());
            let value = valid_str(self.dom.value_bytes(*attribute));
            self.attribute(name, value)?;
        }
        if self.dom.writes_html() {
            self.out.write_char('>')?;
            if self.dom.namespace_id(node) == NAMESPACE_DEFAULT
                && VOID_ELEMENTS.contains(&self.tag_name(node))
            {
                return Ok(end);
            }
        } else {
            if is_top {
                self.inherited_namespaces(id)?;
            }
            if end == id + 1 {
                self.out.write_str("/>")?;
                return Ok(end);
            }
            self.out.write_char('>')?;
        }
        self.open.push((id, end));
        Ok(id + 1)
    }

    fn attribute(&mut self, name: &str, value: &str) -> fmt::Result {
        write!(self.out, " {name}=\"")?;
        let how = match self.dom.writes_html() {
            true => Escape::HtmlAttribute,
            false => Escape::XmlAttribute,
        };
        escape(self.out, value, how)?;
        self.out.write_char('"')
    }

    /// A part of an XML document keeps the declarations that were in force where it stood.
    fn inherited_namespaces(&mut self, id: u32) -> fmt::Result {
        let dom = self.dom;
        let declarations = |id: u32| {
            let attributes = dom.attributes_of(dom.node_at(id)).iter();
            attributes.filter(|attribute| dom.name_namespace(attribute.name()) == NAMESPACE_XMLNS)
        };
        let mut seen: Vec<u32> = declarations(id).map(Attribute::name).collect();
        let mut above = dom.parent(id);
        while let Some(id) = above {
            for attribute in declarations(id) {
                if seen.contains(&attribute.name()) {
                    continue;
                }
                seen.push(attribute.name());
                let value = valid_str(dom.value_bytes(*attribute));
                if !value.is_empty() {
                    self.attribute(dom.qualified(attribute.name()), value)?;
                }
            }
            above = dom.parent(id);
        }
        Ok(())
    }

    fn html_text(&mut self, id: u32, text: &str) -> fmt::Result {
        let parent = self.dom.parent(id).map(|parent| self.dom.node_at(parent));
        let raw = parent.is_some_and(|parent| {
            let name = self.tag_name(parent);
            let scripting = self.dom.header().flags & FLAG_SCRIPTING != 0;
            parent.kind() == ELEMENT
                && self.dom.namespace_id(parent) == NAMESPACE_DEFAULT
                && (RAW_TEXT_ELEMENTS.contains(&name) || scripting && name == "noscript")
        });
        match raw {
            true => self.out.write_str(text),
            false => escape(self.out, text, Escape::HtmlText),
        }
    }

    fn doctype(&mut self, id: u32) -> fmt::Result {
        let Some(doctype) = NodeRef::new(self.dom, id).doctype() else {
            return Ok(());
        };
        match doctype.source {
            "" => write!(self.out, "<!DOCTYPE {}>", doctype.name),
            source => write!(self.out, "<!DOCTYPE {source}>"),
        }
    }
}

const VOID_ELEMENTS: [&str; 18] = [
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input",
    "keygen", "link", "meta", "param", "source", "track", "wbr",
];

const RAW_TEXT_ELEMENTS: [&str; 7] =
    ["style", "script", "xmp", "iframe", "noembed", "noframes", "plaintext"];

#[derive(Clone, Copy, PartialEq)]
enum Escape {
    HtmlText,
    HtmlAttribute,
    XmlText,
    XmlAttribute,
}

fn escape(out: &mut dyn Write, text: &str, how: Escape) -> fmt::Result {
    let html = matches!(how, Escape::HtmlText | Escape::HtmlAttribute);
    let attribute = matches!(how, Escape::HtmlAttribute | Escape::XmlAttribute);
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let (replacement, bytes) = match byte {
            b'&' => ("&amp;", 1),
            b'<' => ("&lt;", 1),
            b'>' => ("&gt;", 1),
            b'"' if attribute => ("&quot;", 1),
            // Parsers turn these into spaces or line feeds unless they are written as numbers.
            b'\r' if !html => ("&#13;", 1),
            b'\n' if how == Escape::XmlAttribute => ("&#10;", 1),
            b'\t' if how == Escape::XmlAttribute => ("&#9;", 1),
            0xC2 if html && text.as_bytes().get(at + 1) == Some(&0xA0) => ("&nbsp;", 2),
            _ => continue,
        };
        out.write_str(&text[written..at])?;
        out.write_str(replacement)?;
        written = at + bytes;
    }
    out.write_str(&text[written..])
}
