//! One element of a document, with the interface that the `selectors` crate needs.

use selectors::attr::{AttrSelectorOperation, CaseSensitivity, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::matching::{ElementSelectorFlags, MatchingContext, matches_selector};
use selectors::parser::{Combinator, Selector as CssSelector};
use selectors::{OpaqueElement, SelectorList};

use super::grammar::{Css, CssName, CssNamespace, CssString, NoPseudoElement, Pseudo};
use crate::dom::{Dom, valid_str};
use crate::known::{self, ID};
use crate::layout::*;
use crate::names::{FIXED_NAMESPACES, NAMESPACE_DEFAULT, NAMESPACE_HTML};

/// A node of a document; small, because the matcher copies it a lot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'d> {
    dom: &'d Dom<'d>,
    id: u32,
}

impl<'d> Element<'d> {
    #[inline]
    pub(super) fn new(dom: &'d Dom<'d>, id: u32) -> Element<'d> {
        Element { dom, id }
    }

    #[inline]
    fn node(&self) -> Node {
        self.dom.node_at(self.id)
    }

    #[inline]
    pub(super) fn is_element(&self) -> bool {
        self.node().kind() == ELEMENT
    }

    #[inline]
    fn at(&self, id: u32) -> Element<'d> {
        Element { dom: self.dom, id }
    }

    fn is_html(&self) -> bool {
        match self.dom.namespace_id(self.node()) {
            NAMESPACE_DEFAULT => self.dom.is_html(),
            namespace => namespace == NAMESPACE_HTML,
        }
    }

    /// Returns true if this is an HTML element with one of these names.
    fn is_any_of(&self, names: &[&str]) -> bool {
        let name = valid_str(self.dom.local_bytes(self.node().name()));
        names.contains(&name) && self.is_html()
    }

    fn attribute(&self, name: &str) -> Option<&'d [u8]> {
        let known = known::find(name)?;
        let mut attributes = self.dom.attributes_of(self.node()).iter();
        let found = attributes.find(|attribute| attribute.name() == known)?;
        Some(self.dom.value_bytes(*found))
    }

    fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    #[inline]
    fn local_is(&self, name: u32, wanted: &CssName) -> bool {
        match wanted.known {
            Some(known) if known < self.dom.header().known_count => {
                self.dom.local_id(name) == known
            }
            _ => self.dom.local_bytes(name) == wanted.as_str().as_bytes(),
        }
    }

    fn is_checked(&self) -> bool {
        if self.is_any_of(&["option"]) {
            return self.has("selected");
        }
        let kind = self.attribute("type").unwrap_or_default();
        let has_state =
            [&b"checkbox"[..], b"radio"].iter().any(|state| kind.eq_ignore_ascii_case(state));
        self.is_any_of(&["input"]) && has_state && self.has("checked")
    }

    fn can_be_disabled(&self) -> bool {
        self.is_any_of(&["button", "input", "select", "textarea", "optgroup", "option", "fieldset"])
    }

    fn is_disabled(&self) -> bool {
        if !self.can_be_disabled() {
            return false;
        }
        if self.has("disabled") {
            return true;
        }
        if self.is_any_of(&["option"]) {
            let parent = selectors::Element::parent_element(self);
            return parent
                .is_some_and(|parent| parent.is_any_of(&["optgroup"]) && parent.has("disabled"));
        }
        !self.is_any_of(&["optgroup"]) && self.is_in_disabled_fieldset()
    }

    /// Returns true inside a disabled fieldset, except inside its first legend.
    fn is_in_disabled_fieldset(&self) -> bool {
        let mut below = *self;
        while let Some(above) = selectors::Element::parent_element(&below) {
            if above.is_any_of(&["fieldset"]) && above.has("disabled") {
                let mut child = selectors::Element::first_element_child(&above);
                while let Some(element) = child.filter(|child| !child.is_any_of(&["legend"])) {
                    child = selectors::Element::next_sibling_element(&element);
                }
                if child.is_none_or(|legend| legend.id != below.id) {
                    return true;
                }
            }
            below = above;
        }
        false
    }

    /// `:has(...)`: tests the elements that the relative selectors can reach, in table order.
    fn has_relative(&self, list: &SelectorList<Css>, context: &mut MatchingContext<Css>) -> bool {
        if context.relative_selector_anchor().is_some() {
            return false;
        }
        context.nest_for_relative_selector(selectors::Element::opaque(self), |context| {
            list.slice().iter().any(|selector| self.reaches(selector, context))
        })
    }

    fn reaches(&self, selector: &CssSelector<Css>, context: &mut MatchingContext<Css>) -> bool {
        let combinators =
            selector.iter_raw_match_order().filter(|component| component.is_combinator()).count();
        let dom = self.dom;
        let (first, end, only_children) = match selector.combinator_at_parse_order(1) {
            Combinator::Child => (self.id + 1, dom.end(self.id), combinators == 1),
            Combinator::Descendant => (self.id + 1, dom.end(self.id), false),
            _ => {
                let end = dom.parent(self.id).map_or(0, |parent| dom.end(parent));
                (dom.end(self.id), end, combinators == 1)
            }
        };
        let mut id = first;
        while id < end {
            let node = dom.node_at(id);
            if node.kind() == ELEMENT && matches_selector(selector, 0, None, self.at(id), context) {
                return true;
            }
            id = match only_children || node.kind() == FRAGMENT {
                true => dom.end(id),
                false => id + 1,
            };
        }
        false
    }
}

impl selectors::Element for Element<'_> {
    type Impl = Css;

    fn opaque(&self) -> OpaqueElement {
        match self.dom.nodes.get(self.id as usize) {
            Some(node) => OpaqueElement::new(node),
            None => OpaqueElement::new(self.dom),
        }
    }

    #[inline]
    fn parent_element(&self) -> Option<Self> {
        let parent = self.at(self.dom.parent(self.id)?);
        parent.is_element().then_some(parent)
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
        let mut id = self.dom.prev_sibling(self.id)?;
        while self.dom.node_at(id).kind() != ELEMENT {
            id = self.dom.prev_sibling(id)?;
        }
        Some(self.at(id))
    }

    fn next_sibling_element(&self) -> Option<Self> {
        let mut id = self.dom.next_sibling(self.id)?;
        while self.dom.node_at(id).kind() != ELEMENT {
            id = self.dom.next_sibling(id)?;
        }
        Some(self.at(id))
    }

    fn first_element_child(&self) -> Option<Self> {
        let mut id = self.dom.first_child(self.id)?;
        while self.dom.node_at(id).kind() != ELEMENT {
            id = self.dom.next_sibling(id)?;
        }
        Some(self.at(id))
    }

    #[inline]
    fn is_html_element_in_html_document(&self) -> bool {
        self.dom.is_html() && self.dom.namespace_id(self.node()) == NAMESPACE_DEFAULT
    }

    #[inline]
    fn has_local_name(&self, name: &CssName) -> bool {
        self.local_is(self.node().name(), name)
    }

    fn has_namespace(&self, namespace: &CssNamespace) -> bool {
        let uri = match self.dom.namespace_id(self.node()) {
            NAMESPACE_DEFAULT if self.dom.is_html() => FIXED_NAMESPACES[NAMESPACE_HTML as usize],
            id => self.dom.namespace_uri(id),
        };
        uri == namespace.as_str()
    }

    fn is_same_type(&self, other: &Self) -> bool {
        let (a, b) = (self.node().name(), other.node().name());
        a == b
            || self.dom.local_id(a) == self.dom.local_id(b)
                && self.dom.name_namespace(a) == self.dom.name_namespace(b)
    }

    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&CssNamespace>,
        local_name: &CssName,
        operation: &AttrSelectorOperation<&CssString>,
    ) -> bool {
        let dom = self.dom;
        dom.attributes_of(self.node()).iter().any(|attribute| {
            let name = attribute.name();
            self.local_is(name, local_name)
                && match namespace {
                    NamespaceConstraint::Any => true,
                    NamespaceConstraint::Specific(wanted) => {
                        dom.namespace_uri(dom.name_namespace(name)) == wanted.as_str()
                    }
                }
                && match operation {
                    AttrSelectorOperation::Exists => true,
                    operation => operation.eval_str(valid_str(dom.value_bytes(*attribute))),
                }
        })
    }

    fn has_attr_in_no_namespace(&self, local_name: &CssName) -> bool {
        let dom = self.dom;
        dom.attributes_of(self.node()).iter().any(|attribute| {
            let name = attribute.name();
            self.local_is(name, local_name) && dom.name_namespace(name) == NAMESPACE_DEFAULT
        })
    }

    fn match_non_ts_pseudo_class(
        &self,
        pseudo: &Pseudo,
        context: &mut MatchingContext<Css>,
    ) -> bool {
        let takes_input = || self.is_any_of(&["input", "select", "textarea"]);
        match pseudo {
            Pseudo::Link => self.is_link(),
            Pseudo::Checked => self.is_checked(),
            Pseudo::Disabled => self.is_disabled(),
            Pseudo::Enabled => self.can_be_disabled() && !self.is_disabled(),
            Pseudo::Required => takes_input() && self.has("required"),
            Pseudo::Optional => takes_input() && !self.has("required"),
            Pseudo::Has(list) => self.has_relative(list, context),
        }
    }

    fn match_pseudo_element(&self, pseudo: &NoPseudoElement, _: &mut MatchingContext<Css>) -> bool {
        match *pseudo {}
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        self.is_any_of(&["a", "area"]) && self.has("href")
    }

    fn is_html_slot_element(&self) -> bool {
        false
    }

    fn has_id(&self, id: &CssString, case: CaseSensitivity) -> bool {
        let node = self.node();
        if !node.has(HAS_ID) {
            return false;
        }
        let mut attributes = self.dom.attributes_of(node).iter();
        let value = attributes.find(|attribute| attribute.name() == ID);
        value.is_some_and(|value| case.eq(self.dom.value_bytes(*value), id.as_str().as_bytes()))
    }

    fn has_class(&self, class: &CssString, case: CaseSensitivity) -> bool {
        let tokens = self.dom.class_tokens(self.node()).iter();
        let mut spellings = tokens.map(|&token| self.dom.token_bytes(token));
        spellings.any(|token| case.eq(token, class.as_str().as_bytes()))
    }

    fn has_custom_state(&self, _: &CssString) -> bool {
        false
    }

    fn imported_part(&self, _: &CssString) -> Option<CssString> {
        None
    }

    fn is_part(&self, _: &CssString) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        let mut child = self.dom.first_child(self.id);
        while let Some(id) = child {
            let node = self.dom.node_at(id);
            if node.kind() == ELEMENT || node.kind() == TEXT_NODE && node.extent > 0 {
                return false;
            }
            child = self.dom.next_sibling(id);
        }
        true
    }

    fn is_root(&self) -> bool {
        let parent = self.dom.parent(self.id);
        parent.is_some_and(|parent| self.dom.node_at(parent).kind() == DOCUMENT)
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}
