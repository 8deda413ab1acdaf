//! Candidates of a query: the elements that it must test.
//!
//! A matching element has the id, the classes and the name of the rightmost part of the selector,
//! so the shortest of their index lists is sufficient. For a list of selectors the lists are
//! merged. Without an index, or if one of the selectors has no id, class or name there, all
//! elements below the scope are candidates, in table order.

use selectors::parser::{Component, Selector as CssSelector};

use super::grammar::{Css, Selector};
use crate::dom::Dom;
use crate::index::Postings;
use crate::layout::*;

/// Candidates in document order, each once.
pub(super) enum Candidates<'a> {
    /// All nodes of a range.
    Scan { next: u32, end: u32 },
    /// Lists from the index, restricted to a range.
    Lists { lists: Vec<List<'a>>, after: u32, end: u32 },
}

/// An increasing list and its next id.
pub(super) struct List<'a> {
    head: Option<u32>,
    rest: Source<'a>,
}

enum Source<'a> {
    Postings(Postings<'a>),
    Ids(std::vec::IntoIter<u32>),
}

impl Source<'_> {
    fn next(&mut self) -> Option<u32> {
        match self {
            Source::Postings(postings) => postings.next(),
            Source::Ids(ids) => ids.next(),
        }
    }

    fn len(&self) -> u32 {
        match self {
            Source::Postings(postings) => postings.left(),
            Source::Ids(ids) => ids.len() as u32,
        }
    }
}

impl<'a> Candidates<'a> {
    pub(super) fn new(dom: &Dom<'a>, scope: u32, selector: &Selector) -> Candidates<'a> {
        let scan = Candidates::Scan { next: scope.saturating_add(1), end: dom.end(scope) };
        // The index excludes template contents.
        if !dom.is_indexed() || dom.node_at(scope).has(IN_FRAGMENT) {
            return scan;
        }
        let mut lists = Vec::new();
        for selector in selector.list.slice() {
            match shortest(dom, selector) {
                Some(sources) => lists.extend(sources),
                None => return scan,
            }
        }
        let total: u64 = lists.iter().map(|list| u64::from(list.len())).sum();
        if total > u64::from(dom.end(scope) - scope) {
            return scan;
        }
        let with_head = |mut rest: Source<'a>| List { head: rest.next(), rest };
        Candidates::Lists {
            lists: lists.into_iter().map(with_head).collect(),
            after: scope,
            end: dom.end(scope),
        }
    }

    #[inline]
    pub(super) fn next(&mut self, dom: &Dom<'a>) -> Option<u32> {
        match self {
            Candidates::Scan { next, end } => {
                while *next < *end {
                    let id = *next;
                    match dom.node_at(id).kind() {
                        FRAGMENT => *next = dom.end(id),
                        ELEMENT => {
                            *next += 1;
                            return Some(id);
                        }
                        _ => *next += 1,
                    }
                }
                None
            }
            Candidates::Lists { lists, after, end } => {
                loop {
                    let id = lists.iter().filter_map(|list| list.head).min()?;
                    for list in lists.iter_mut() {
                        if list.head == Some(id) {
                            list.head = list.rest.next();
                        }
                    }
                    if id >= *end {
                        return None;
                    }
                    // Only a damaged list can go back.
                    if id > *after {
                        *after = id;
                        return Some(id);
                    }
                }
            }
        }
    }
}

/// Returns the shortest set of lists that contains all matches of the selector, if its rightmost
/// part has an id, a class or a name.
fn shortest<'a>(dom: &Dom<'a>, selector: &CssSelector<Css>) -> Option<Vec<Source<'a>>> {
    let length =
        |sources: &Vec<Source<'a>>| sources.iter().map(|s| u64::from(s.len())).sum::<u64>();
    selector.iter().filter_map(|component| sources(dom, component)).min_by_key(length)
}

fn sources<'a>(dom: &Dom<'a>, component: &Component<Css>) -> Option<Vec<Source<'a>>> {
    match component {
        Component::ID(id) => {
            let mut ids: Vec<u32> = dom.ids_matching(id.as_str()).collect();
            // Entries with one hash are in document order, unless the block is damaged.
            ids.sort_unstable();
            Some(vec![Source::Ids(ids.into_iter())])
        }
        Component::Class(class) => {
            let tokens = dom.tokens_matching(class.as_str());
            let postings = tokens.into_iter().map(|token| dom.class_postings(token));
            Some(postings.map(Source::Postings).collect())
        }
        Component::LocalName(name) => {
            let mut locals: Vec<u32> = [&name.name, &name.lower_name]
                .into_iter()
                .filter_map(|name| dom.find_local(name.as_str()))
                .collect();
            locals.dedup();
            let postings = locals.into_iter().map(|local| dom.name_postings(local));
            Some(postings.map(Source::Postings).collect())
        }
        _ => None,
    }
}
