//! Real pages: the tree, the queries and the markup are those of html5ever's own tree.
#![allow(clippy::unwrap_used)]

mod common;

use common::peer::{Peer, PeerElement};
use common::{Random, files, peer};
use evermap_dom::{Block, Dom, Selector, html};
use html5ever::serialize::{SerializeOpts, serialize};
use markup5ever_rcdom::SerializableHandle;

fn block(text: &str) -> Block {
    html::parse(text, &Default::default()).unwrap().to_block()
}

#[test]
fn every_page_has_the_tree_that_html5ever_builds() {
    for (name, text) in files("html", "html") {
        let block = block(&text);
        let dom = Dom::new(block.as_bytes()).unwrap();
        dom.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
        peer::assert_same(&name, dom, &peer::parse(&text));
    }
}

#[test]
fn every_page_fed_in_pieces_gives_the_same_block() {
    let mut random = Random::new(3);
    for (name, text) in files("html", "html").iter().step_by(5) {
        let whole = html::parse_bytes(text.as_bytes(), &Default::default()).unwrap();
        let mut parser = html::HtmlParser::new(&Default::default());
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(1 + random.below(5000)));
            parser.feed(piece);
            rest = after;
        }
        let pieces = parser.finish().unwrap();
        let (a, b) = (whole.to_block(), pieces.to_block());
        assert_eq!(peer::describe(a.dom()), peer::describe(b.dom()), "{name}");
    }
}

#[test]
fn every_page_is_written_as_html5ever_writes_it() {
    for (name, text) in files("html", "html") {
        let block = block(&text);
        let dom = peer::parse(&text);
        let mut theirs = Vec::new();
        let document: SerializableHandle = dom.document.clone().into();
        serialize(&mut theirs, &document, SerializeOpts::default()).unwrap();
        let theirs = String::from_utf8(theirs).unwrap();
        let ours = block.dom().document_node().outer_html();
        // rcdom leaves template contents out; the standard and this crate don't.
        if block.dom().count(&"template".parse().unwrap()) == 0 {
            assert!(ours == theirs, "{name}: markup differs");
        }
    }
}

/// Pages without `noscript` in odd places survive a second parse unchanged; most do.
#[test]
fn markup_that_was_written_parses_to_the_same_tree_again() {
    let mut same = 0;
    let pages = files("html", "html");
    for (_, text) in &pages {
        let first = block(text);
        let again = block(&first.dom().document_node().outer_html());
        same += usize::from(peer::describe(first.dom()) == peer::describe(again.dom()));
    }
    eprintln!("{same} of {} pages are fixed points", pages.len());
    assert!(same * 4 >= pages.len() * 3);
}

// In two halves, which the test harness runs side by side.

#[test]
fn two_hundred_selectors_per_page_find_what_the_same_matcher_finds_over_rcdom_on_odd_pages() {
    compare_selectors(1);
}

#[test]
fn two_hundred_selectors_per_page_find_what_the_same_matcher_finds_over_rcdom_on_even_pages() {
    compare_selectors(0);
}

fn compare_selectors(half: usize) {
    let (mut selectors, mut found) = (0usize, 0usize);
    let pages = files("html", "html").into_iter().enumerate();
    for (seed, (name, text)) in pages.filter(|(at, _)| at % 2 == half) {
        let block = block(&text);
        let dom = block.dom();
        // Ids to places: the peer does not count template contents.
        let mut places = vec![0usize; dom.node_count()];
        for (place, node) in dom.document_node().descendants().enumerate() {
            places[node.id() as usize] = place + 1;
        }
        let peer = Peer::new(&peer::parse(&text));
        let mut random = Random::new(seed as u64 + 1);
        for _ in 0..200 {
            let source = list(&mut random, &peer);
            let selector: Selector = source.parse().unwrap_or_else(|error| panic!("{error}"));
            let ours: Vec<usize> = dom.select(&selector).map(|n| places[n.id() as usize]).collect();
            let theirs = peer.select(&source);
            assert_eq!(ours, theirs, "{name}: {source}");
            selectors += 1;
            found += ours.len();
        }
    }
    eprintln!("{selectors} selectors, {found} matches");
}

fn list(random: &mut Random, peer: &Peer) -> String {
    let mut source = complex(random, peer);
    while random.one_in(6) {
        source += ", ";
        source += &complex(random, peer);
    }
    source
}

fn complex(random: &mut Random, peer: &Peer) -> String {
    let mut source = compound(random, peer);
    while random.one_in(3) {
        source += *random.pick::<&str>(&[" ", " > ", " ~ ", " + ", " "]);
        source += &compound(random, peer);
    }
    source
}

fn compound(random: &mut Random, peer: &Peer) -> String {
    let element = random.pick(&peer.elements);
    let mut source = match random.below(8) {
        0 => "*".to_owned(),
        1 => attribute(random, element),
        2 | 3 => class(random, element),
        4 => id(element),
        _ => identifier(&element.name.local),
    };
    if random.one_in(3) {
        source += &match random.below(14) {
            0 => format!(":not({})", simple(random, peer)),
            1 => format!(":nth-child({}n+{})", random.below(4), random.below(5)),
            2 => format!(":nth-last-child({})", 1 + random.below(4)),
            3 => format!(":nth-of-type({}n)", 1 + random.below(3)),
            4 => ":first-child".to_owned(),
            5 => ":last-of-type".to_owned(),
            6 => ":empty".to_owned(),
            7 => ":only-child".to_owned(),
            8 => format!(":is({}, {})", simple(random, peer), simple(random, peer)),
            9 => format!(":nth-child(2n of {})", simple(random, peer)),
            10 => ":root".to_owned(),
            11 | 12 => {
                let combinator = random.pick::<&str>(&["", "> ", "+ ", "~ "]);
                let mut inner = simple(random, peer);
                if random.one_in(3) {
                    inner += *random.pick::<&str>(&[" ", " > ", " ~ "]);
                    inner += &simple(random, peer);
                }
                format!(":has({combinator}{inner})")
            }
            _ => attribute(random, element),
        };
    }
    source
}

fn simple(random: &mut Random, peer: &Peer) -> String {
    let element = random.pick(&peer.elements);
    match random.below(4) {
        0 => class(random, element),
        1 => attribute(random, element),
        _ => identifier(&element.name.local),
    }
}

fn class(random: &mut Random, element: &PeerElement) -> String {
    let classes: Vec<&str> =
        element.attribute("class").unwrap_or_default().split_ascii_whitespace().collect();
    match classes.is_empty() {
        true => identifier(&element.name.local),
        false => format!(".{}", identifier(random.pick::<&str>(&classes))),
    }
}

fn id(element: &PeerElement) -> String {
    match element.attribute("id") {
        Some(id) if !id.is_empty() => format!("#{}", identifier(id)),
        _ => identifier(&element.name.local),
    }
}

fn attribute(random: &mut Random, element: &PeerElement) -> String {
    if element.attributes.is_empty() {
        return "[class]".to_owned();
    }
    let (name, value) = random.pick(&element.attributes);
    let name = identifier(&name.local);
    let chars: Vec<char> = value.chars().take(60).collect();
    let part = |from: usize, to: usize| -> String { chars[from..to].iter().collect() };
    let cut = random.below(chars.len() + 1);
    let (operator, value) = match random.below(8) {
        0 | 1 => return format!("[{name}]"),
        2 => ("=", value.clone()),
        3 => ("^=", part(0, cut)),
        4 => ("$=", value.chars().skip(value.chars().count() / 2).collect()),
        5 => ("*=", part(cut / 2, cut)),
        6 => ("~=", value.split_ascii_whitespace().next().unwrap_or_default().to_owned()),
        _ => ("|=", value.split('-').next().unwrap_or_default().to_owned()),
    };
    let flag = random.pick::<&str>(&["", "", "", " i", " s"]);
    let mut quoted = String::new();
    cssparser::serialize_string(&value, &mut quoted).unwrap();
    format!("[{name}{operator}{quoted}{flag}]")
}

fn identifier(name: &str) -> String {
    let mut escaped = String::new();
    cssparser::serialize_identifier(name, &mut escaped).unwrap();
    escaped
}
