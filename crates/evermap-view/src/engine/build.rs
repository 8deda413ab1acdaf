//! The engine's document, made from the tables of a parsed page.
//!
//! The page is parsed once, by `evermap-dom`; what it made is kept, and it is what the engine lays out. So a page whose
//! tables are kept is laid out again (at another width, in another font) without being parsed.

use std::collections::HashMap;

use blitz_dom::{
    Attribute, BaseDocument, Document, DocumentConfig, DocumentMutator, HtmlParserProvider,
    LocalName, Namespace, NodeId, PlainDocument, QualName,
};
use evermap_dom::html::{self, HtmlOptions};
use evermap_dom::{AttributeRef, Dom, NodeKind, NodeRef};

use super::svg::may_stay;

/// Which of the engine's nodes stands for which node of the tables.
#[derive(Default)]
pub(crate) struct Nodes {
    /// By the id in the tables.
    ours: Vec<Option<NodeId>>,
}

impl Nodes {
    /// The engine's node for one of the tables.
    pub(crate) fn of(&self, id: u32) -> Option<NodeId> {
        *self.ours.get(id as usize)?
    }
}

/// Puts all of `dom` into `document`, which is empty.
pub(crate) fn build(dom: &Dom<'_>, document: &mut BaseDocument) -> Nodes {
    let root = document.root_node().id;
    let mut names = Names::default();
    let mut nodes = Nodes { ours: vec![None; dom.node_count()] };
    let mut mutator = document.mutate();
    // Children are appended to elements that are not in the document yet; what is appended to the document itself brings
    // all that is in it: style sheets and images are looked for once, in the order of the page.
    let mut last = Vec::new();
    for id in 0..dom.node_count() as u32 {
        let Some(node) = dom.node(id) else { continue };
        let made = match node.kind() {
            NodeKind::Element => {
                let (namespace, name) = (node.namespace(), node.local_name());
                let attributes = node.attributes().filter(|attribute| {
                    may_stay(namespace, name, attribute.local_name(), attribute.value())
                });
                let attributes = attributes.map(|attribute| names.attribute(attribute)).collect();
                mutator.create_element(names.element(node), attributes)
            }
            NodeKind::Text => mutator.create_text_node(node.value().unwrap_or_default()),
            NodeKind::Fragment => match node.host().and_then(|host| nodes.of(host.id())) {
                Some(host) => mutator.template_contents(host),
                None => continue,
            },
            NodeKind::Document => root,
            _ => continue,
        };
        nodes.ours[id as usize] = Some(made);
        let parent = node.parent().and_then(|parent| nodes.of(parent.id()));
        match parent {
            Some(parent) if parent == root => last.push(made),
            Some(parent) => mutator.append_children(parent, &[made]),
            None => (),
        }
    }
    append_all(&mut mutator, root, &last);
    nodes
}

fn append_all(mutator: &mut DocumentMutator<'_>, root: NodeId, children: &[NodeId]) {
    for child in children {
        mutator.append_children(root, &[*child]);
    }
}

/// Builds the pages of `iframe` elements, by the same way as the page itself.
pub(crate) struct Frames;

impl HtmlParserProvider for Frames {
    /// What scripts do, and there are none.
    fn parse_inner_html(&self, _: &mut DocumentMutator<'_>, _: NodeId, _: &str) {}

    fn parse_document(&self, text: &str, config: DocumentConfig) -> Box<dyn Document> {
        let mut document = BaseDocument::new(config);
        let options = HtmlOptions { scripting: false, ..Default::default() };
        if let Ok(tables) = html::parse(text, &options) {
            build(&tables.to_block().dom(), &mut document);
        }
        Box::new(PlainDocument(document))
    }
}

/// The engine's names, made once each. The tables give the same piece of memory for the same name.
#[derive(Default)]
struct Names {
    locals: HashMap<(*const u8, usize), LocalName>,
    namespaces: HashMap<(*const u8, usize), Namespace>,
}

impl Names {
    fn element(&mut self, node: NodeRef<'_>) -> QualName {
        self.qualified(node.namespace(), node.prefix(), node.local_name())
    }

    fn attribute(&mut self, attribute: AttributeRef<'_>) -> Attribute {
        let name =
            self.qualified(attribute.namespace(), attribute.prefix(), attribute.local_name());
        Attribute { name, value: attribute.value().to_string() }
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
