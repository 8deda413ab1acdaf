//! CSS selectors over a document.
//!
//! The `selectors` crate, which browsers use, does the matching. This module gives it access to the
//! tables ([`element`]), finds candidate elements ([`candidates`]) and parses selectors
//! ([`grammar`]). No code here recurses with the depth of a document.

mod candidates;
mod element;
mod grammar;

use selectors::context::{
    MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode as CssQuirks,
    SelectorCaches,
};
use selectors::matching::{MatchingContext, matches_selector_list};
use selectors::{Element as _, OpaqueElement};

use crate::dom::{Dom, QuirksMode};
use crate::layout::*;
use crate::node::NodeRef;

use candidates::Candidates;
use element::Element;
use grammar::Css;
pub use grammar::{Selector, SelectorError, SelectorErrorKind};

/// The elements that match a selector, in document order: see [`Dom::select`].
pub struct Select<'a, 's> {
    dom: Dom<'a>,
    scope: u32,
    selector: &'s Selector,
    candidates: Candidates<'a>,
    caches: SelectorCaches,
}

impl<'a, 's> Select<'a, 's> {
    pub(crate) fn new(dom: Dom<'a>, scope: u32, selector: &'s Selector) -> Select<'a, 's> {
        Select {
            candidates: Candidates::new(&dom, scope, selector),
            dom,
            scope,
            selector,
            caches: SelectorCaches::default(),
        }
    }
}

impl<'a> Iterator for Select<'a, '_> {
    type Item = NodeRef<'a>;

    fn next(&mut self) -> Option<NodeRef<'a>> {
        let dom = &self.dom;
        let scope = Element::new(dom, self.scope);
        let scope = scope.is_element().then(|| scope.opaque());
        let mut context = context(dom, scope, &mut self.caches);
        loop {
            let id = self.candidates.next(dom)?;
            let element = Element::new(dom, id);
            if element.is_element()
                && matches_selector_list(&self.selector.list, element, &mut context)
            {
                return Some(NodeRef::new(self.dom, id));
            }
        }
    }
}

impl std::fmt::Debug for Select<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Select({})", self.selector)
    }
}

/// Returns true if the node is an element that matches.
pub(crate) fn matches(dom: &Dom<'_>, id: u32, selector: &Selector) -> bool {
    let element = Element::new(dom, id);
    let mut caches = SelectorCaches::default();
    dom.node_at(id).kind() == ELEMENT
        && matches_selector_list(&selector.list, element, &mut context(dom, None, &mut caches))
}

fn context<'c>(
    dom: &Dom<'_>,
    scope: Option<OpaqueElement>,
    caches: &'c mut SelectorCaches,
) -> MatchingContext<'c, Css> {
    let quirks = match dom.quirks_mode() {
        QuirksMode::NoQuirks => CssQuirks::NoQuirks,
        QuirksMode::LimitedQuirks => CssQuirks::LimitedQuirks,
        QuirksMode::Quirks => CssQuirks::Quirks,
    };
    let mut context = MatchingContext::new(
        MatchingMode::Normal,
        None,
        caches,
        quirks,
        NeedsSelectorFlags::No,
        MatchingForInvalidation::No,
    );
    context.scope_element = scope;
    context
}
