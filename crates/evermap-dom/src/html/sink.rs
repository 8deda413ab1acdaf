//! The sink that html5ever drives. It passes edits to the builder, and counts their work.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use html5ever::interface::{ElementFlags, ExpandedName, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::{LocalName, Namespace, QualName, local_name, ns};

use super::HtmlOptions;
use super::budget::Budget;
use super::builder::Builder;
use crate::layout::*;

/// The handle has the name, because html5ever asks for it very often.
#[derive(Clone)]
pub(super) struct Handle {
    id: u32,
    namespace: ElementNamespace,
    local: LocalName,
    /// Reference shared by all handles of a parse, to count them.
    #[expect(dead_code, reason = "its clones are counted")]
    live: Rc<()>,
}

/// Namespaces of html5ever's elements, in one byte instead of the eight of an atom.
#[derive(Clone, Copy)]
enum ElementNamespace {
    Html,
    Svg,
    MathMl,
    None,
}

static HTML: Namespace = ns!(html);
static SVG: Namespace = ns!(svg);
static MATHML: Namespace = ns!(mathml);
static NO_NAMESPACE: Namespace = ns!();

impl ElementNamespace {
    fn of(namespace: &Namespace) -> ElementNamespace {
        match *namespace {
            ns!(html) => ElementNamespace::Html,
            ns!(svg) => ElementNamespace::Svg,
            ns!(mathml) => ElementNamespace::MathMl,
            _ => ElementNamespace::None,
        }
    }

    #[inline]
    fn atom(self) -> &'static Namespace {
        match self {
            ElementNamespace::Html => &HTML,
            ElementNamespace::Svg => &SVG,
            ElementNamespace::MathMl => &MATHML,
            ElementNamespace::None => &NO_NAMESPACE,
        }
    }
}

/// The sink: the builder and its work budget.
pub(super) struct Sink {
    builder: RefCell<Builder>,
    budget: Budget,
    /// Every handle has a clone; html5ever keeps one handle per open and per active formatting
    /// element.
    live: Rc<()>,
}

impl Sink {
    pub(super) fn new(bytes_expected: usize, options: &HtmlOptions) -> Sink {
        let builder = RefCell::new(Builder::new(bytes_expected, options));
        Sink { builder, budget: Budget::new(), live: Rc::new(()) }
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns true if something is missing for lack of memory.
    pub(super) fn has_no_memory(&self) -> bool {
        self.builder.borrow().has_no_memory()
    }

    pub(super) fn into_builder(self) -> Builder {
        self.builder.into_inner()
    }

    /// Runs an edit of the builder and counts its work.
    #[inline]
    fn edit<R>(&self, edit: impl FnOnce(&mut Builder) -> R) -> R {
        let mut builder = self.builder.borrow_mut();
        let result = edit(&mut builder);
        let work = std::mem::take(&mut builder.work);
        drop(builder);
        if work > 0 {
            self.budget.spend(work);
        }
        result
    }

    fn unnamed(&self, id: u32) -> Handle {
        let live = Rc::clone(&self.live);
        Handle { id, namespace: ElementNamespace::None, local: LocalName::default(), live }
    }

    /// Returns the number of handles that html5ever holds: open elements, active formatting
    /// elements and a few others.
    #[inline]
    fn handles(&self) -> u64 {
        Rc::strong_count(&self.live) as u64
    }
}

fn id_of(child: NodeOrText<Handle>) -> NodeOrText<u32> {
    match child {
        NodeOrText::AppendNode(node) => NodeOrText::AppendNode(node.id),
        NodeOrText::AppendText(text) => NodeOrText::AppendText(text),
    }
}

/// Returns true for elements that html5ever puts into its list of active formatting elements.
fn is_formatting(name: &QualName) -> bool {
    name.ns == ns!(html)
        && matches!(
            name.local,
            local_name!("a")
                | local_name!("b")
                | local_name!("big")
                | local_name!("code")
                | local_name!("em")
                | local_name!("font")
                | local_name!("i")
                | local_name!("nobr")
                | local_name!("s")
                | local_name!("small")
                | local_name!("strike")
                | local_name!("strong")
                | local_name!("tt")
                | local_name!("u")
        )
}

impl TreeSink for Sink {
    type Handle = Handle;
    type Output = Builder;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> Builder {
        self.into_builder()
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.unnamed(0)
    }

    #[inline]
    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.budget.spend(1);
        ExpandedName { ns: target.namespace.atom(), local: &target.local }
    }

    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<html5ever::Attribute>,
        flags: ElementFlags,
    ) -> Handle {
        let value_bytes = attributes.iter().map(|attribute| attribute.value.len()).sum();
        self.budget.spend_element(attributes.len(), value_bytes);
        if is_formatting(&name) {
            self.budget.spend_formatting(attributes.len(), self.handles());
        }
        let mut builder = self.builder.borrow_mut();
        let id = builder.create_element(&name, &attributes);
        if flags.template {
            builder.add_contents(id);
        } else if flags.mathml_annotation_xml_integration_point {
            builder.node(id).extra = 1;
        }
        let live = Rc::clone(&self.live);
        Handle { id, namespace: ElementNamespace::of(&name.ns), local: name.local, live }
    }

    fn create_comment(&self, text: StrTendril) -> Handle {
        self.unnamed(self.builder.borrow_mut().create_leaf(COMMENT, text.as_bytes()))
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        self.unnamed(self.builder.borrow_mut().create_instruction(&target, data.as_bytes()))
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.edit(|builder| builder.append(parent.id, id_of(child)));
    }

    fn append_based_on_parent_node(
        &self,
        element: &Handle,
        prev_element: &Handle,
        child: NodeOrText<Handle>,
    ) {
        self.edit(|builder| match builder.node(element.id).parent {
            NONE => builder.append(prev_element.id, id_of(child)),
            _ => builder.append_before(element.id, id_of(child)),
        });
    }

    fn append_doctype_to_document(
        &self,
        name: StrTendril,
        public_id: StrTendril,
        system_id: StrTendril,
    ) {
        let text = format!("{name}\0{public_id}\0{system_id}");
        let mut builder = self.builder.borrow_mut();
        let id = builder.create_leaf(DOCTYPE, text.as_bytes());
        builder.append_node(0, id);
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.unnamed(self.builder.borrow_mut().node(target.id).extra)
    }

    #[inline]
    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        self.budget.spend_comparison(self.handles());
        x.id == y.id
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.builder.borrow_mut().quirks = match mode {
            QuirksMode::NoQuirks => 0,
            QuirksMode::LimitedQuirks => 1,
            QuirksMode::Quirks => 2,
        };
    }

    fn append_before_sibling(&self, sibling: &Handle, new_node: NodeOrText<Handle>) {
        self.edit(|builder| builder.append_before(sibling.id, id_of(new_node)));
    }

    fn add_attrs_if_missing(&self, target: &Handle, attributes: Vec<html5ever::Attribute>) {
        self.edit(|builder| builder.add_attributes(target.id, attributes));
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.builder.borrow_mut().detach(target.id);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.edit(|builder| builder.reparent_children(node.id, new_parent.id));
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Handle) -> bool {
        let mut builder = self.builder.borrow_mut();
        let node = builder.node(target.id);
        node.word & HAS_CONTENTS == 0 && node.extra == 1
    }
}
