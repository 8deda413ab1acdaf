//! Child processes that answer one question about one document: Evermap reads it from a store, the
//! peers parse it.
//!
//! Each prints the number of elements found and the microseconds from the first line of `main` to
//! the answer. None frees its memory, because the process ends. The peers count with a loop over
//! their tree that is written for this one question, which is faster than a selector engine.

use std::time::Instant;

use evermap::Store;
use evermap_dom::{Document, Selector};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use harness::Outcome;
use harness::children::{print, us_since};

/// Opens the document and counts the elements that match the selector.
pub fn reopen(start: Instant, store: &str, name: &str, selector: &str) -> Outcome {
    let store = Store::open(store)?;
    let store_us = us_since(start);
    let document = store.read::<Document>(name)?;
    let dom = document.dom()?;
    let open_us = us_since(start);
    let selector: Selector = selector.parse()?;
    let found = dom.count(&selector);
    let total_us = us_since(start);
    print(&[
        ("found", found as f64),
        ("store_us", store_us),
        ("open_us", open_us),
        ("total_us", total_us),
        ("place", (&raw const found).addr() as f64),
    ]);
    std::process::exit(0)
}

/// Parses the page and counts `a[href]`.
pub fn parse_html(start: Instant, file: &str) -> Outcome {
    let text = StrTendril::from(String::from_utf8_lossy(&std::fs::read(file)?).into_owned());
    let dom = parse_document(RcDom::default(), ParseOpts::default()).one(text);
    let found = links(&dom.document);
    let total_us = us_since(start);
    print(&[("found", found as f64), ("total_us", total_us)]);
    std::process::exit(0)
}

fn links(document: &Handle) -> usize {
    let mut found = 0;
    let mut left = vec![document.clone()];
    while let Some(node) = left.pop() {
        if let NodeData::Element { name, attrs, .. } = &node.data
            && &*name.local == "a"
            && attrs.borrow().iter().any(|attribute| &*attribute.name.local == "href")
        {
            found += 1;
        }
        left.extend(node.children.borrow().iter().cloned());
    }
    found
}

/// Parses the XML file and counts the elements with this name.
pub fn parse_xml(start: Instant, file: &str, element: &str) -> Outcome {
    let text = std::fs::read_to_string(file)?;
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options)?;
    let named = |node: &roxmltree::Node<'_, '_>| node.tag_name().name() == element;
    let found = document.descendants().filter(named).count();
    let total_us = us_since(start);
    print(&[("found", found as f64), ("total_us", total_us)]);
    std::process::exit(0)
}
