//! Nodes for users: a document and an id, copied freely.

use std::fmt;

use crate::dom::{Dom, valid_str};
use crate::known;
use crate::layout::*;
use crate::names::{NAMESPACE_DEFAULT, NAMESPACE_HTML};

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// The document itself, id 0.
    Document,
    /// An element.
    Element,
    /// Text; adjacent texts are always one node.
    Text,
    /// A comment.
    Comment,
    /// A document type declaration.
    Doctype,
    /// A processing instruction.
    ProcessingInstruction,
    /// The contents of a template element: reached by [`NodeRef::template_contents`] only.
    Fragment,
}

/// One node of a document.
///
/// ```
/// use evermap_dom::{NodeKind, html};
///
/// let block = html::parse("<p class=a>Hello <b>you</b></p>", &Default::default())?.to_block();
/// let dom = block.dom();
/// let p = dom.select_first(&"p".parse().unwrap()).unwrap();
/// assert_eq!(p.kind(), NodeKind::Element);
/// assert_eq!(p.name(), "p");
/// assert_eq!(p.attr("class"), Some("a"));
/// assert_eq!(p.text(), "Hello you");
/// assert_eq!(p.outer_html(), r#"<p class="a">Hello <b>you</b></p>"#);
/// assert_eq!(p.last_child().unwrap().name(), "b");
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    dom: Dom<'a>,
    id: u32,
}

impl<'a> NodeRef<'a> {
    #[inline]
    pub(crate) fn new(dom: Dom<'a>, id: u32) -> NodeRef<'a> {
        NodeRef { dom, id }
    }

    fn record(&self) -> Node {
        self.dom.node_at(self.id)
    }

    fn at(&self, id: Option<u32>) -> Option<NodeRef<'a>> {
        id.map(|id| NodeRef::new(self.dom, id))
    }

    /// The node's id: its place in document order, the document being 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The document that the node belongs to.
    pub fn dom(&self) -> Dom<'a> {
        self.dom
    }

    /// Returns the kind of the node.
    pub fn kind(&self) -> NodeKind {
        match self.record().kind() {
            DOCUMENT => NodeKind::Document,
            ELEMENT => NodeKind::Element,
            COMMENT => NodeKind::Comment,
            DOCTYPE => NodeKind::Doctype,
            PROCESSING_INSTRUCTION => NodeKind::ProcessingInstruction,
            FRAGMENT => NodeKind::Fragment,
            _ => NodeKind::Text,
        }
    }

    /// Returns true if the node is an element.
    pub fn is_element(&self) -> bool {
        self.record().kind() == ELEMENT
    }

    /// Returns true if the node is a text.
    pub fn is_text(&self) -> bool {
        self.record().kind() == TEXT_NODE
    }

    /// An element's qualified name (`svg`, `xsl:template`), a processing instruction's target, a
    /// doctype's name; for others the empty string.
    pub fn name(&self) -> &'a str {
        let node = self.record();
        match node.kind() {
            ELEMENT | PROCESSING_INSTRUCTION => self.dom.qualified(node.name()),
            DOCTYPE => self.doctype().map_or("", |doctype| doctype.name),
            _ => "",
        }
    }

    /// An element's name without its prefix; for others the empty string.
    pub fn local_name(&self) -> &'a str {
        let node = self.record();
        match node.kind() {
            ELEMENT => valid_str(self.dom.local_bytes(node.name())),
            _ => "",
        }
    }

    /// The prefix of an element's name.
    pub fn prefix(&self) -> Option<&'a str> {
        let node = self.record();
        match node.kind() {
            ELEMENT => self.dom.prefix(node.name()),
            _ => None,
        }
    }

    /// The namespace URI of an element.
    ///
    /// ```
    /// # use evermap_dom::{html, xml};
    /// let page = html::parse("<svg>", &Default::default()).unwrap().to_block();
    /// let svg = page.dom().select_first(&"svg".parse().unwrap()).unwrap();
    /// assert_eq!(svg.namespace(), Some("http://www.w3.org/2000/svg"));
    ///
    /// let data = xml::parse("<list/>", &Default::default()).unwrap().to_block();
    /// assert_eq!(data.dom().root_element().unwrap().namespace(), None);
    /// ```
    pub fn namespace(&self) -> Option<&'a str> {
        let node = self.record();
        if node.kind() != ELEMENT {
            return None;
        }
        let namespace = match self.dom.namespace_id(node) {
            NAMESPACE_DEFAULT if self.dom.is_html() => NAMESPACE_HTML,
            namespace => namespace,
        };
        Some(self.dom.namespace_uri(namespace)).filter(|uri| !uri.is_empty())
    }

    /// The parent. A template's contents have none: see [`host`](NodeRef::host).
    pub fn parent(&self) -> Option<NodeRef<'a>> {
        match self.record().kind() {
            FRAGMENT => None,
            _ => self.at(self.dom.parent(self.id)),
        }
    }

    /// The template element whose contents this fragment is.
    pub fn host(&self) -> Option<NodeRef<'a>> {
        match self.record().kind() {
            FRAGMENT => self.at(self.dom.parent(self.id)),
            _ => None,
        }
    }

    /// The parents, from the nearest up to the document.
    pub fn ancestors(&self) -> Ancestors<'a> {
        Ancestors { next: self.parent() }
    }

    /// The first child.
    pub fn first_child(&self) -> Option<NodeRef<'a>> {
        self.at(self.dom.first_child(self.id))
    }

    /// Returns the last child. Goes up from the last node of the subtree, so it takes as many steps
    /// as that node is deep.
    pub fn last_child(&self) -> Option<NodeRef<'a>> {
        self.at(self.dom.last_child(self.id))
    }

    /// Returns the next sibling.
    pub fn next_sibling(&self) -> Option<NodeRef<'a>> {
        self.at(self.dom.next_sibling(self.id))
    }

    /// Returns the previous sibling. Goes up from its last descendant, so it takes as many steps as
    /// that is deep.
    pub fn prev_sibling(&self) -> Option<NodeRef<'a>> {
        self.at(self.dom.prev_sibling(self.id))
    }

    /// The children, in order.
    pub fn children(&self) -> Children<'a> {
        Children { next: self.first_child() }
    }

    /// Returns all nodes below this one in document order, without template contents.
    ///
    /// ```
    /// # use evermap_dom::xml;
    /// let block = xml::parse("<a><b><c/></b>t</a>", &Default::default()).unwrap().to_block();
    /// let root = block.dom().root_element().unwrap();
    /// let names: Vec<_> = root.descendants().map(|node| node.name()).collect();
    /// assert_eq!(names, ["b", "c", ""]);
    /// ```
    pub fn descendants(&self) -> Descendants<'a> {
        Descendants { dom: self.dom, next: self.id.saturating_add(1), end: self.dom.end(self.id) }
    }

    /// The contents of a template element.
    ///
    /// ```
    /// # use evermap_dom::html;
    /// let page = "<template><p>later</p></template>";
    /// let block = html::parse(page, &Default::default()).unwrap().to_block();
    /// let p = "p".parse().unwrap();
    /// assert_eq!(block.dom().count(&p), 0);
    /// let template = block.dom().select_first(&"template".parse().unwrap()).unwrap();
    /// assert_eq!(template.template_contents().unwrap().select(&p).count(), 1);
    /// assert!(template.outer_html().contains("later"));
    /// ```
    pub fn template_contents(&self) -> Option<NodeRef<'a>> {
        let contents = self.id.checked_add(1)?;
        let found = self.record().has(HAS_CONTENTS)
            && self.is_element()
            && self.dom.node_at(contents).kind() == FRAGMENT;
        self.at(found.then_some(contents))
    }

    /// The attributes, in the order of the source.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { dom: self.dom, left: self.dom.attributes_of(self.record()).iter() }
    }

    /// The value of the attribute with this qualified name. In HTML documents names are lower
    /// case.
    pub fn attr(&self, name: &str) -> Option<&'a str> {
        let known = known::find(name).filter(|&id| id < self.dom.header().known_count);
        let found = self.dom.attributes_of(self.record()).iter().find(|attribute| {
            Some(attribute.name()) == known || self.dom.qualified(attribute.name()) == name
        })?;
        Some(valid_str(self.dom.value_bytes(*found)))
    }

    /// The node's own text: of a text, comment or processing instruction. `None` for others.
    pub fn value(&self) -> Option<&'a str> {
        let node = self.record();
        match node.kind() {
            TEXT_NODE | COMMENT | PROCESSING_INSTRUCTION => Some(self.dom.leaf_text(node)),
            _ => None,
        }
    }

    /// The texts below this node, one after the other (`textContent`); for a text, comment or
    /// processing instruction its own.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string can't fail.
        let _ = self.write_text(&mut text);
        text
    }

    /// Writes [`text`](NodeRef::text) to a formatter, in pieces.
    pub fn write_text(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(value) = self.value() {
            return out.write_str(value);
        }
        self.descendants()
            .filter(NodeRef::is_text)
            .try_for_each(|text| out.write_str(text.value().unwrap_or_default()))
    }

    /// The parts of a document type declaration.
    pub fn doctype(&self) -> Option<DoctypeRef<'a>> {
        let node = self.record();
        if node.kind() != DOCTYPE {
            return None;
        }
        let mut parts = self.dom.leaf_text(node).splitn(4, '\0');
        let mut part = || parts.next().unwrap_or_default();
        Some(DoctypeRef { name: part(), public_id: part(), system_id: part(), source: part() })
    }
}

impl PartialEq for NodeRef<'_> {
    /// Returns true for the same node of the same block.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && std::ptr::eq(self.dom.nodes, other.dom.nodes)
    }
}

impl Eq for NodeRef<'_> {}

impl fmt::Debug for NodeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.kind(), self.id)?;
        match self.value() {
            Some(value) => write!(f, " {value:?}"),
            None => write!(f, " {}", self.name()),
        }
    }
}

/// The parts of a document type declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoctypeRef<'a> {
    /// The name of the root element.
    pub name: &'a str,
    /// The public identifier; empty without one.
    pub public_id: &'a str,
    /// The system identifier; empty without one.
    pub system_id: &'a str,
    /// XML: the source text between `<!DOCTYPE` and `>`.
    pub source: &'a str,
}

/// One attribute of an element.
///
/// ```
/// # use evermap_dom::html;
/// let page = "<svg><a xlink:href='#x' id=y></svg>";
/// let block = html::parse(page, &Default::default()).unwrap().to_block();
/// let a = block.dom().select_first(&"a".parse().unwrap()).unwrap();
/// let names: Vec<_> = a.attributes().map(|attribute| attribute.name()).collect();
/// assert_eq!(names, ["xlink:href", "id"]);
/// assert_eq!(a.attributes().next().unwrap().namespace(), Some("http://www.w3.org/1999/xlink"));
/// ```
#[derive(Clone, Copy)]
pub struct AttributeRef<'a> {
    dom: Dom<'a>,
    attribute: Attribute,
}

impl<'a> AttributeRef<'a> {
    /// The qualified name.
    pub fn name(&self) -> &'a str {
        self.dom.qualified(self.attribute.name())
    }

    /// The name without its prefix.
    pub fn local_name(&self) -> &'a str {
        valid_str(self.dom.local_bytes(self.attribute.name()))
    }

    /// The prefix.
    pub fn prefix(&self) -> Option<&'a str> {
        self.dom.prefix(self.attribute.name())
    }

    /// The namespace URI.
    pub fn namespace(&self) -> Option<&'a str> {
        let namespace = self.dom.name_namespace(self.attribute.name());
        Some(self.dom.namespace_uri(namespace)).filter(|uri| !uri.is_empty())
    }

    /// The value.
    pub fn value(&self) -> &'a str {
        valid_str(self.dom.value_bytes(self.attribute))
    }
}

impl fmt::Debug for AttributeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}", self.name(), self.value())
    }
}

/// The attributes of an element: see [`NodeRef::attributes`].
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    dom: Dom<'a>,
    left: std::slice::Iter<'a, Attribute>,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = AttributeRef<'a>;

    fn next(&mut self) -> Option<AttributeRef<'a>> {
        let attribute = *self.left.next()?;
        Some(AttributeRef { dom: self.dom, attribute })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Attributes<'_> {}

/// The parents of a node: see [`NodeRef::ancestors`].
#[derive(Clone, Debug)]
pub struct Ancestors<'a> {
    next: Option<NodeRef<'a>>,
}

impl<'a> Iterator for Ancestors<'a> {
    type Item = NodeRef<'a>;

    fn next(&mut self) -> Option<NodeRef<'a>> {
        let node = self.next?;
        self.next = node.parent();
        Some(node)
    }
}

/// The children of a node: see [`NodeRef::children`].
#[derive(Clone, Debug)]
pub struct Children<'a> {
    next: Option<NodeRef<'a>>,
}

impl<'a> Iterator for Children<'a> {
    type Item = NodeRef<'a>;

    fn next(&mut self) -> Option<NodeRef<'a>> {
        let node = self.next?;
        self.next = node.next_sibling();
        Some(node)
    }
}

/// The nodes below a node: see [`NodeRef::descendants`].
#[derive(Clone, Debug)]
pub struct Descendants<'a> {
    dom: Dom<'a>,
    next: u32,
    end: u32,
}

impl<'a> Iterator for Descendants<'a> {
    type Item = NodeRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<NodeRef<'a>> {
        while self.next < self.end {
            let id = self.next;
            if self.dom.node_at(id).kind() == FRAGMENT {
                self.next = self.dom.end(id);
                continue;
            }
            self.next += 1;
            return Some(NodeRef::new(self.dom, id));
        }
        None
    }
}

impl<'a> Dom<'a> {
    /// The node with this id.
    ///
    /// ```
    /// # use evermap_dom::html;
    /// let block = html::parse("<p>", &Default::default()).unwrap().to_block();
    /// assert_eq!(block.dom().node(0), Some(block.dom().document_node()));
    /// assert_eq!(block.dom().node(99), None);
    /// ```
    pub fn node(&self, id: u32) -> Option<NodeRef<'a>> {
        ((id as usize) < self.nodes.len()).then(|| NodeRef::new(*self, id))
    }

    /// The document: the root of everything.
    pub fn document_node(&self) -> NodeRef<'a> {
        NodeRef::new(*self, 0)
    }

    /// The outermost element, `html` in an HTML document.
    ///
    /// ```
    /// # use evermap_dom::xml;
    /// let block = xml::parse("<?style?><list/>", &Default::default()).unwrap().to_block();
    /// assert_eq!(block.dom().root_element().unwrap().local_name(), "list");
    /// ```
    pub fn root_element(&self) -> Option<NodeRef<'a>> {
        self.document_node().children().find(NodeRef::is_element)
    }

    /// The text of the first `title` element of an HTML document, white space collapsed as
    /// browsers show it.
    pub fn title(&self) -> Option<String> {
        let mut titles = self.elements_named(known::TITLE);
        let title = titles.find(|&id| self.namespace_id(self.node_at(id)) == NAMESPACE_DEFAULT)?;
        let text = NodeRef::new(*self, title).text();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        Some(words.join(" "))
    }

    /// The first element, in document order, with this id. Uses the index if there is one.
    pub fn element_by_id(&self, id: &str) -> Option<NodeRef<'a>> {
        self.ids_matching(id)
            .map(|node| NodeRef::new(*self, node))
            .find(|node| node.attr("id") == Some(id))
    }
}
