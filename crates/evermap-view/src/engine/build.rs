//! Builds the engine's document from the tables of a parsed page.
//!
//! `evermap-dom` parses the page once. The engine lays out the resulting tables, which are also
//! stored. A page with stored tables is laid out again (for another width or font) without being
//! parsed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use blitz_dom::{
    Attribute, BaseDocument, Document, DocumentConfig, DocumentMutator, HtmlParserProvider,
    LocalName, Namespace, NodeId, PlainDocument, QualName,
};
use evermap_dom::html::{self, HtmlOptions};
use evermap_dom::{AttributeRef, Dom, NodeKind, NodeRef};

use super::adapt::{self, Bounds, Change};
use super::css::CssBudget;
use super::svg::is_safe_attribute;

/// Maps nodes of the tables to nodes of the engine.
#[derive(Default)]
pub(crate) struct Nodes {
    /// Engine nodes, by the id in the tables.
    mapped: Vec<Option<NodeId>>,
    /// Messages for people about parts of the page that were left out.
    pub notes: Vec<&'static str>,
}

impl Nodes {
    /// Returns the engine's node for a node of the tables.
    pub(crate) fn of(&self, id: u32) -> Option<NodeId> {
        *self.mapped.get(id as usize)?
    }
}

/// Adds all of `dom` to the empty `document`, with the changes that [`adapt`] makes.
pub(crate) fn build(dom: &Dom<'_>, document: &mut BaseDocument, css: &CssBudget) -> Nodes {
    let root = document.root_node().id;
    let mut names = Names::default();
    let mut nodes = Nodes { mapped: vec![None; dom.node_count()], notes: Vec::new() };
    // Parents for the children of each node, with their depth. Usually this is the node itself.
    let mut targets: Vec<Option<(NodeId, u32)>> = vec![None; dom.node_count()];
    let mut bounds = Bounds::default();
    let mut breaks = adapt::inline_breaks(dom).into_iter().peekable();
    let mut mutator = document.mutate();
    // Elements are appended to a parent outside the document first. Appending them to the document
    // at the end loads style sheets and images once, in document order.
    let mut last = Vec::new();
    for id in 0..dom.node_count() as u32 {
        let Some(node) = dom.node(id) else { continue };
        let parent = node.parent();
        let is_break = breaks.next_if_eq(&id).is_some();
        let is_hidden = |parent: NodeRef<'_>| {
            targets[parent.id() as usize].is_none() || adapt::is_hidden(&node, &parent)
        };
        if parent.is_some_and(is_hidden) {
            continue;
        }
        let made = match node.kind() {
            NodeKind::Element if !bounds.count(&node) => continue,
            NodeKind::Element => {
                let (namespace, name) = (node.namespace(), node.local_name());
                let attributes = node.attributes().filter(|attribute| {
                    is_safe_attribute(namespace, name, attribute.local_name(), attribute.value())
                });
                let mut attributes: Vec<Attribute> =
                    attributes.map(|attribute| names.attribute(node, attribute)).collect();
                let is_html = namespace == Some(HTML);
                if is_html {
                    for (name, value) in adapt::more_attributes(&node) {
                        attributes.push(plain_attribute(name, value));
                    }
                }
                let made = mutator.create_element(names.element(node), attributes);
                if is_html {
                    add(&mut mutator, made, adapt::additions(&node).0);
                }
                made
            }
            NodeKind::Text => {
                let text = node.value().unwrap_or_default();
                let is_style = parent.is_some_and(|parent| parent.local_name() == "style");
                let text = if is_style { css.sheet(text) } else { Cow::Borrowed(text) };
                mutator.create_text_node(&text)
            }
            NodeKind::Fragment => match node.host().and_then(|host| nodes.of(host.id())) {
                Some(host) => mutator.template_contents(host),
                None => continue,
            },
            NodeKind::Document => root,
            _ => continue,
        };
        nodes.mapped[id as usize] = Some(made);
        let Some(parent) = parent else {
            targets[id as usize] = Some((made, 0));
            continue;
        };
        let Some((target, depth)) = targets[parent.id() as usize] else { continue };
        targets[id as usize] = match depth < adapt::DEPTH_MAX {
            true => Some((made, depth + 1)),
            false => {
                bounds.note("elements nested deeper than 512 levels are shown as siblings");
                Some((target, depth))
            }
        };
        let target = match (is_break, nodes.of(parent.id())) {
            (true, Some(parent_made)) => {
                // End the current lines. The following elements go into a new block.
                let block = mutator.create_element(html_name("div"), Vec::new());
                mutator.append_children(parent_made, &[block]);
                targets[parent.id() as usize] = Some((block, depth));
                block
            }
            _ => target,
        };
        match target == root {
            true => last.push(made),
            false => mutator.append_children(target, &[made]),
        }
    }
    for id in 0..dom.node_count() as u32 {
        let html = dom.node(id).filter(|node| node.namespace() == Some(HTML));
        if let (Some(node), Some(made)) = (html, nodes.of(id)) {
            add(&mut mutator, made, adapt::additions(&node).1);
        }
    }
    append_all(&mut mutator, root, &last);
    nodes.notes = bounds.notes;
    nodes
}

/// Namespace of HTML elements.
const HTML: &str = "http://www.w3.org/1999/xhtml";

fn html_name(local: &str) -> QualName {
    QualName { prefix: None, ns: Namespace::from(HTML), local: LocalName::from(local) }
}

fn plain_attribute(name: &str, value: String) -> Attribute {
    let name = QualName { prefix: None, ns: Namespace::from(""), local: LocalName::from(name) };
    Attribute { name, value }
}

/// Appends the nodes that [`adapt`] adds to an element.
fn add(mutator: &mut DocumentMutator<'_>, element: NodeId, additions: Vec<adapt::Addition>) {
    for addition in additions {
        let text = addition.text.map(|text| mutator.create_text_node(&text));
        let made = match addition.name {
            "" => text,
            name => {
                let attributes = addition.attributes.into_iter();
                let attributes =
                    attributes.map(|(name, value)| plain_attribute(name, value)).collect();
                let made = mutator.create_element(html_name(name), attributes);
                if let Some(text) = text {
                    mutator.append_children(made, &[text]);
                }
                Some(made)
            }
        };
        mutator.append_children(element, made.as_slice());
    }
}

fn append_all(mutator: &mut DocumentMutator<'_>, root: NodeId, children: &[NodeId]) {
    for child in children {
        mutator.append_children(root, &[*child]);
    }
}

/// Builds the pages of `iframe` elements in the same way as the page itself.
pub(crate) struct Frames(pub Arc<CssBudget>);

impl HtmlParserProvider for Frames {
    /// Does nothing: only scripts set inner HTML, and no script runs.
    fn parse_inner_html(&self, _: &mut DocumentMutator<'_>, _: NodeId, _: &str) {}

    fn parse_document(&self, text: &str, config: DocumentConfig) -> Box<dyn Document> {
        let mut document = BaseDocument::new(config);
        let options = HtmlOptions { scripting: false, ..Default::default() };
        if let Ok(tables) = html::parse(text, &options) {
            build(&tables.to_block().dom(), &mut document, &self.0);
        }
        Box::new(PlainDocument(document))
    }
}

/// Caches the engine's interned names. The tables return the same memory for the same name, so its
/// address is the key.
#[derive(Default)]
struct Names {
    locals: HashMap<(*const u8, usize), LocalName>,
    namespaces: HashMap<(*const u8, usize), Namespace>,
}

impl Names {
    fn element(&mut self, node: NodeRef<'_>) -> QualName {
        self.qualified(node.namespace(), node.prefix(), node.local_name())
    }

    fn attribute(&mut self, node: NodeRef<'_>, attribute: AttributeRef<'_>) -> Attribute {
        let name =
            self.qualified(attribute.namespace(), attribute.prefix(), attribute.local_name());
        let value = match adapt::attribute(&node, attribute.local_name(), attribute.value()) {
            Change::Unchanged => attribute.value().to_string(),
            Change::Value(value) => value,
        };
        Attribute { name, value }
    }

    fn qualified(
        &mut self,
        namespace: Option<&str>,
        prefix: Option<&str>,
        local: &str,
    ) -> QualName {
        let namespace = namespace.unwrap_or_default();
        QualName {
            prefix: prefix.map(Into::into),
            ns: self
                .namespaces
                .entry((namespace.as_ptr(), namespace.len()))
                .or_insert_with(|| Namespace::from(namespace))
                .clone(),
            local: self
                .locals
                .entry((local.as_ptr(), local.len()))
                .or_insert_with(|| LocalName::from(local))
                .clone(),
        }
    }
}
