//! The peer: a page as html5ever's own tree, and selectors matched on it by the same `selectors`
//! crate through an implementation that is independent of the tested one.

use std::fmt;

use cssparser::{ParseError, Parser as CssParser, ToCss};
use evermap_dom::{Dom, NodeKind, NodeRef};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, QualName, ns, parse_document, parse_fragment};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use precomputed_hash::PrecomputedHash;
use selectors::attr::{AttrSelectorOperation, CaseSensitivity, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::context::*;
use selectors::matching::{ElementSelectorFlags, matches_selector_list};
use selectors::parser::{
    NonTSPseudoClass, ParseRelative, Parser, PseudoElement, SelectorImpl, SelectorParseErrorKind,
};
use selectors::{Element, OpaqueElement, SelectorList};

pub fn options(scripting: bool) -> ParseOpts {
    ParseOpts {
        tree_builder: TreeBuilderOpts {
            scripting_enabled: scripting,
            ..TreeBuilderOpts::default()
        },
        ..ParseOpts::default()
    }
}

pub fn parse(text: &str) -> RcDom {
    parse_document(RcDom::default(), options(true)).one(StrTendril::from_slice(text))
}

pub fn parse_in(text: &str, context: &str, scripting: bool) -> RcDom {
    let (namespace, local) = match context.split_once(' ') {
        Some(("svg", local)) => (ns!(svg), local),
        Some(("math", local)) => (ns!(mathml), local),
        _ => (ns!(html), context),
    };
    let name = QualName::new(None, namespace, local.into());
    parse_fragment(RcDom::default(), options(scripting), name, Vec::new(), scripting)
        .one(StrTendril::from_slice(text))
}

/// Returns one line per node: depth and all properties, attributes in order.
pub fn describe_peer(document: &Handle) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![(document.clone(), 0)];
    while let Some((node, depth)) = left.pop() {
        let what = match &node.data {
            NodeData::Document if depth == 0 => "document".to_owned(),
            NodeData::Document => "fragment".to_owned(),
            NodeData::Doctype { name, public_id, system_id } => {
                format!("doctype {:?} {:?} {:?}", &**name, &**public_id, &**system_id)
            }
            NodeData::Text { contents } => format!("text {:?}", &**contents.borrow()),
            NodeData::Comment { contents } => format!("comment {:?}", &**contents),
            NodeData::ProcessingInstruction { target, contents } => {
                format!("instruction {:?} {:?}", &**target, &**contents)
            }
            NodeData::Element { name, attrs, .. } => {
                let mut line = format!("element {} {}", &*name.ns, &*name.local);
                for attribute in attrs.borrow().iter() {
                    let name = &attribute.name;
                    line += &format!(" [{} {} {:?}]", &*name.ns, &*name.local, &*attribute.value);
                }
                line
            }
        };
        lines.push(format!("{depth} {what}"));
        left.extend(node.children.borrow().iter().rev().map(|child| (child.clone(), depth + 1)));
        if let NodeData::Element { template_contents, .. } = &node.data
            && let Some(contents) = &*template_contents.borrow()
        {
            left.push((contents.clone(), depth + 1));
        }
    }
    lines
}

/// Returns the same lines from the tables, by following links: first child, next sibling, contents.
pub fn describe(dom: Dom<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![(dom.document_node(), 0)];
    while let Some((node, depth)) = left.pop() {
        lines.push(format!("{depth} {}", describe_node(node)));
        let mut below: Vec<_> = node.children().map(|child| (child, depth + 1)).collect();
        below.reverse();
        left.extend(below);
        if let Some(contents) = node.template_contents() {
            left.push((contents, depth + 1));
        }
    }
    lines
}

fn describe_node(node: NodeRef<'_>) -> String {
    let value = node.value().unwrap_or_default();
    match node.kind() {
        NodeKind::Document => "document".to_owned(),
        NodeKind::Fragment => "fragment".to_owned(),
        NodeKind::Doctype => {
            let doctype = node.doctype().unwrap();
            let (name, public, system) = (doctype.name, doctype.public_id, doctype.system_id);
            format!("doctype {name:?} {public:?} {system:?}")
        }
        NodeKind::Text => format!("text {value:?}"),
        NodeKind::Comment => format!("comment {value:?}"),
        NodeKind::ProcessingInstruction => format!("instruction {:?} {value:?}", node.name()),
        NodeKind::Element => {
            let namespace = node.namespace().unwrap_or_default();
            let mut line = format!("element {namespace} {}", node.local_name());
            for attribute in node.attributes() {
                let namespace = attribute.namespace().unwrap_or_default();
                let (name, value) = (attribute.local_name(), attribute.value());
                line += &format!(" [{namespace} {name} {value:?}]");
            }
            line
        }
    }
}

pub fn assert_same(name: &str, dom: Dom<'_>, peer: &RcDom) {
    let (ours, theirs) = (describe(dom), describe_peer(&peer.document));
    for (at, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(a, b, "{name}: node {at}");
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: number of nodes");
}

/// Returns the elements of a page in document order, without template contents.
pub struct Peer {
    pub elements: Vec<PeerElement>,
    pub quirks: QuirksMode,
}

pub struct PeerElement {
    pub name: QualName,
    pub attributes: Vec<(QualName, String)>,
    /// Index among all nodes in document order.
    pub place: usize,
    parent: Option<usize>,
    is_root: bool,
    previous: Option<usize>,
    next: Option<usize>,
    first: Option<usize>,
    is_empty: bool,
}

impl PeerElement {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found =
            self.attributes.iter().find(|(found, _)| found.ns == ns!() && &*found.local == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Peer {
    pub fn new(dom: &RcDom) -> Peer {
        let mut elements: Vec<PeerElement> = Vec::new();
        let mut place = 0;
        let mut left: Vec<(Handle, Option<usize>, bool)> =
            vec![(dom.document.clone(), None, false)];
        let mut last_child: Vec<Option<usize>> = Vec::new();
        let mut last_top = None;
        while let Some((node, parent, in_document)) = left.pop() {
            let mut me = None;
            if let NodeData::Element { name, attrs, .. } = &node.data {
                let index = elements.len();
                me = Some(index);
                let previous = match parent {
                    Some(parent) => last_child[parent].replace(index),
                    None => last_top.replace(index),
                };
                if let Some(previous) = previous {
                    elements[previous].next = Some(index);
                } else if let Some(parent) = parent {
                    elements[parent].first = Some(index);
                }
                let is_empty = node.children.borrow().iter().all(|child| match &child.data {
                    NodeData::Element { .. } => false,
                    NodeData::Text { contents } => contents.borrow().is_empty(),
                    _ => true,
                });
                let attributes = attrs.borrow();
                let attributes = attributes.iter().map(|a| (a.name.clone(), a.value.to_string()));
                elements.push(PeerElement {
                    name: name.clone(),
                    attributes: attributes.collect(),
                    place,
                    parent,
                    is_root: in_document,
                    previous,
                    next: None,
                    first: None,
                    is_empty,
                });
                last_child.push(None);
            }
            place += 1;
            let is_document = matches!(node.data, NodeData::Document);
            let children = node.children.borrow();
            left.extend(children.iter().rev().map(|child| (child.clone(), me, is_document)));
        }
        let quirks = match dom.quirks_mode.get() {
            html5ever::tree_builder::QuirksMode::Quirks => QuirksMode::Quirks,
            html5ever::tree_builder::QuirksMode::LimitedQuirks => QuirksMode::LimitedQuirks,
            html5ever::tree_builder::QuirksMode::NoQuirks => QuirksMode::NoQuirks,
        };
        Peer { elements, quirks }
    }

    /// Returns the indices of the elements that match, in document order.
    pub fn select(&self, selector: &str) -> Vec<usize> {
        let mut input = CssParser::new(selector);
        let list = SelectorList::parse(&PeerGrammar, &mut input, ParseRelative::No)
            .unwrap_or_else(|error| panic!("{selector}: {error:?}"));
        let mut caches = SelectorCaches::default();
        let mut context = MatchingContext::new(
            MatchingMode::Normal,
            None,
            &mut caches,
            self.quirks,
            NeedsSelectorFlags::No,
            MatchingForInvalidation::No,
        );
        (0..self.elements.len())
            .map(|index| PeerHandle { peer: self, index })
            .filter(|element| matches_selector_list(&list, *element, &mut context))
            .map(|element| self.elements[element.index].place)
            .collect()
    }
}

#[derive(Clone, Copy)]
struct PeerHandle<'p> {
    peer: &'p Peer,
    index: usize,
}

impl PeerHandle<'_> {
    fn element(&self) -> &PeerElement {
        &self.peer.elements[self.index]
    }

    fn at(&self, index: Option<usize>) -> Option<Self> {
        index.map(|index| PeerHandle { peer: self.peer, index })
    }
}

impl fmt::Debug for PeerHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.index)
    }
}

impl Element for PeerHandle<'_> {
    type Impl = PeerCss;

    fn opaque(&self) -> OpaqueElement {
        OpaqueElement::new(self.element())
    }

    fn parent_element(&self) -> Option<Self> {
        self.at(self.element().parent)
    }

    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }

    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }

    fn is_pseudo_element(&self) -> bool {
        false
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        self.at(self.element().previous)
    }

    fn next_sibling_element(&self) -> Option<Self> {
        self.at(self.element().next)
    }

    fn first_element_child(&self) -> Option<Self> {
        self.at(self.element().first)
    }

    fn is_html_element_in_html_document(&self) -> bool {
        self.element().name.ns == ns!(html)
    }

    fn has_local_name(&self, name: &Text) -> bool {
        *self.element().name.local == *name.0
    }

    fn has_namespace(&self, namespace: &Text) -> bool {
        *self.element().name.ns == *namespace.0
    }

    fn is_same_type(&self, other: &Self) -> bool {
        let (a, b) = (&self.element().name, &other.element().name);
        a.local == b.local && a.ns == b.ns
    }

    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&Text>,
        local_name: &Text,
        operation: &AttrSelectorOperation<&Text>,
    ) -> bool {
        self.element().attributes.iter().any(|(name, value)| {
            *name.local == *local_name.0
                && match namespace {
                    NamespaceConstraint::Any => true,
                    NamespaceConstraint::Specific(wanted) => *name.ns == *wanted.0,
                }
                && operation.eval_str(value)
        })
    }

    fn match_non_ts_pseudo_class(&self, pseudo: &Never, _: &mut MatchingContext<PeerCss>) -> bool {
        match *pseudo {}
    }

    fn match_pseudo_element(&self, pseudo: &Never, _: &mut MatchingContext<PeerCss>) -> bool {
        match *pseudo {}
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        false
    }

    fn is_html_slot_element(&self) -> bool {
        false
    }

    fn has_id(&self, id: &Text, case: CaseSensitivity) -> bool {
        let found = self.element().attribute("id");
        found.is_some_and(|found| case.eq(found.as_bytes(), id.0.as_bytes()))
    }

    fn has_class(&self, class: &Text, case: CaseSensitivity) -> bool {
        let value = self.element().attribute("class").unwrap_or_default();
        let mut tokens = value.split([' ', '\t', '\n', '\r', '\x0C']);
        tokens.any(|token| !token.is_empty() && case.eq(token.as_bytes(), class.0.as_bytes()))
    }

    fn has_custom_state(&self, _: &Text) -> bool {
        false
    }

    fn imported_part(&self, _: &Text) -> Option<Text> {
        None
    }

    fn is_part(&self, _: &Text) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.element().is_empty
    }

    fn is_root(&self) -> bool {
        self.element().is_root
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}

struct PeerGrammar;

impl<'i> Parser<'i> for PeerGrammar {
    type Impl = PeerCss;
    type Error = SelectorParseErrorKind;

    fn parse_is_and_where(&self) -> bool {
        true
    }

    fn parse_has(&self) -> bool {
        true
    }

    fn parse_nth_child_of(&self) -> bool {
        true
    }

    fn parse_non_ts_pseudo_class(
        &self,
        _: &str,
    ) -> Result<Never, ParseError<SelectorParseErrorKind>> {
        Err(ParseError::custom(SelectorParseErrorKind::UnexpectedIdent))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCss;

impl SelectorImpl for PeerCss {
    type ExtraMatchingData<'a> = ();
    type AttrValue = Text;
    type Identifier = Text;
    type LocalName = Text;
    type NamespaceUrl = Text;
    type NamespacePrefix = Text;
    type BorrowedNamespaceUrl = Text;
    type BorrowedLocalName = Text;
    type NonTSPseudoClass = Never;
    type PseudoElement = Never;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.to_owned())
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl ToCss for Text {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl PrecomputedHash for Text {
    fn precomputed_hash(&self) -> u32 {
        self.0.bytes().fold(7, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {}

impl ToCss for Never {
    fn to_css<W: fmt::Write>(&self, _: &mut W) -> fmt::Result {
        match *self {}
    }
}

impl PseudoElement for Never {}

impl NonTSPseudoClass for Never {
    fn is_active_or_hover(&self) -> bool {
        match *self {}
    }

    fn is_user_action_state(&self) -> bool {
        match *self {}
    }
}
