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

impl<'a> Dom<'a> {
    /// Returns the matching elements in document order. They are found one at a time, so the first
    /// comes long before the last.
    ///
    /// ```
    /// # use evermap_dom::html;
    /// let page = "<a href=/x>1</a><a>2</a><a href=/y>3</a>";
    /// let block = html::parse(page, &Default::default()).unwrap().to_block();
    /// let links = "a[href]".parse().unwrap();
    /// let texts: Vec<_> = block.dom().select(&links).map(|a| a.text()).collect();
    /// assert_eq!(texts, ["1", "3"]);
    /// ```
    pub fn select<'s>(&self, selector: &'s Selector) -> Select<'a, 's> {
        Select::new(*self, 0, selector)
    }

    /// The first element that matches.
    pub fn select_first(&self, selector: &Selector) -> Option<NodeRef<'a>> {
        self.select(selector).next()
    }

    /// Returns the number of matching elements.
    pub fn count(&self, selector: &Selector) -> usize {
        self.select(selector).count()
    }
}

impl<'a> NodeRef<'a> {
    /// The elements below this node that match, in document order, found one at a time.
    pub fn select<'s>(&self, selector: &'s Selector) -> Select<'a, 's> {
        Select::new(self.dom(), self.id(), selector)
    }

    /// The first element below this node that matches.
    pub fn select_first(&self, selector: &Selector) -> Option<NodeRef<'a>> {
        self.select(selector).next()
    }

    /// Returns true if this node is an element that matches.
    ///
    /// ```
    /// # use evermap_dom::html;
    /// let block = html::parse("<p lang=en><i>x", &Default::default()).unwrap().to_block();
    /// let i = block.dom().select_first(&"i".parse().unwrap()).unwrap();
    /// assert!(i.matches(&"[lang] > i".parse().unwrap()));
    /// assert_eq!(i.closest(&"[lang]".parse().unwrap()).unwrap().name(), "p");
    /// ```
    pub fn matches(&self, selector: &Selector) -> bool {
        matches(&self.dom(), self.id(), selector)
    }

    /// This element or the nearest of its ancestors that matches.
    pub fn closest(&self, selector: &Selector) -> Option<NodeRef<'a>> {
        std::iter::once(*self).chain(self.ancestors()).find(|node| node.matches(selector))
    }
}

/// Returns true if the node is an element that matches.
fn matches(dom: &Dom<'_>, id: u32, selector: &Selector) -> bool {
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
