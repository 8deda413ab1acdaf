//! Documents parsed in one process and queried in another through a store return the results of a
//! tree in memory. The second process is this test program again, at other addresses because of
//! address space randomisation.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Command, Stdio};

use common::peer::Peer;
use common::{Random, files, peer, selectors};
use evermap::Store;
use evermap_dom::{Document, NewDocument, NodeKind, Selector, Source, Tables, html, xml};

/// A generated page, for machines without the corpus.
fn own_page() -> String {
    let mut page = String::from("<!doctype html><title>Own page</title><body class='main wide'>");
    for i in 0..200 {
        let class = if i % 3 == 0 { "row odd" } else { "row" };
        page += &format!(
            "<div class='{class}' id=r{i}><p>Row <b>{i}</b> of <i>two hundred</i><a href='/r/{i}'>go</a>\
             <ul><li>one<li class=x>two<li data-n={i}>three</ul></div><!-- {i} -->"
        );
    }
    page + "<table><tr><td>a<td>b<p>foster<svg><circle r=3/></svg>"
}

fn own_xml() -> String {
    let mut text =
        String::from("<?xml version='1.0'?><g:guide xmlns:g='urn:guide' xmlns='urn:tv'>");
    for i in 0..300 {
        text += &format!(
            "<programme id='p{i}' g:start='{i}'><title>Show &amp; tell {i}</title></programme>\n"
        );
    }
    text + "</g:guide>"
}

fn pages() -> Vec<(String, String)> {
    let mut pages = files("html", "html");
    pages.push(("own.html".to_string(), own_page()));
    pages
}

fn xml_files() -> Vec<(String, String)> {
    let mut all = files("xml", "xml");
    all.push(("own.xml".to_string(), own_xml()));
    all
}

fn keep(all: &[(String, String)], parse: impl Fn(&str) -> Tables) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    let mut batch = store.batch().unwrap();
    for (name, text) in all {
        let tables = parse(text);
        let source = Source {
            path: name.clone(),
            size_bytes: text.len() as u64,
            modified_ns: 0,
            hash: [0; 32],
        };
        let new = NewDocument { tables: &tables, source: &source };
        batch.create::<Document, _>(name, new).unwrap();
    }
    batch.commit().unwrap();
    // Each object's file has its document's block and a few more pages.
    for (name, text) in all {
        let file = store.info(name).unwrap().file_bytes;
        let block = store.read::<Document>(name).unwrap().block_bytes();
        assert!(file <= block * 51 / 50 + 4 * 4096, "{name}: {file} bytes for a block of {block}");
        let parts = file as f64 / text.len() as f64;
        assert!(text.len() < 300_000 || parts <= 1.4, "{name}: {parts} bytes per byte");
    }
    directory
}

/// Runs the ignored tests `names` of this program in parallel, each in a child process.
fn run_in_new_processes(names: &[&str], store: &std::path::Path) {
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--ignored", "--nocapture"])
                .env("EVERMAP_TEST_STORE", store)
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success(), "the second process failed; see above");
    }
}

/// Opens the store of the first process; `None` if the child was started by hand.
fn store_of_first_process() -> Option<Store> {
    let path = std::env::var_os("EVERMAP_TEST_STORE")?;
    Some(Store::open(path).unwrap())
}

#[test]
fn two_hundred_selectors_per_page_match_the_same_as_in_rcdom() {
    let directory = keep(&pages(), |text| html::parse(text, &Default::default()).unwrap());
    let children =
        ["child_compares_selectors_on_even_pages", "child_compares_selectors_on_odd_pages"];
    run_in_new_processes(&children, &directory.path().join("store"));
}

#[test]
#[ignore = "a child"]
fn child_compares_selectors_on_even_pages() {
    compare_selectors(0);
}

#[test]
#[ignore = "a child"]
fn child_compares_selectors_on_odd_pages() {
    compare_selectors(1);
}

fn compare_selectors(half: usize) {
    let Some(store) = store_of_first_process() else { return };
    let (mut selectors, mut found) = (0usize, 0usize);
    for (seed, (name, text)) in pages().into_iter().enumerate().filter(|(at, _)| at % 2 == half) {
        let document = store.read::<Document>(&name).unwrap();
        let dom = document.dom().unwrap();
        dom.validate().unwrap();
        // Converts ids to the peer's numbering, which skips template contents.
        let mut places = vec![0usize; dom.node_count()];
        for (place, node) in dom.document_node().descendants().enumerate() {
            places[node.id() as usize] = place + 1;
        }
        let peer = Peer::new(&peer::parse(&text));
        let mut random = Random::new(seed as u64 + 1);
        for _ in 0..200 {
            let source = selectors::list(&mut random, &peer);
            let selector: Selector = source.parse().unwrap_or_else(|error| panic!("{error}"));
            let ours: Vec<usize> = dom.select(&selector).map(|n| places[n.id() as usize]).collect();
            assert_eq!(ours, peer.select(&source), "{name}: {source}");
            selectors += 1;
            found += ours.len();
        }
    }
    eprintln!("{selectors} selectors, {found} matches in a second process");
    assert!(selectors >= 200 || half == 1);
}

#[test]
fn xml_in_a_second_process_has_the_node_counts_of_another_library() {
    let directory = keep(&xml_files(), |text| xml::parse(text, &Default::default()).unwrap());
    run_in_new_processes(&["child_counts_xml"], &directory.path().join("store"));
}

#[test]
#[ignore = "a child"]
fn child_counts_xml() {
    let Some(store) = store_of_first_process() else { return };
    for (name, text) in xml_files() {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = store.read::<Document>(&name).unwrap();
        let dom = document.dom().unwrap();
        let (mut elements, mut attributes, mut text_bytes) = (0usize, 0usize, 0usize);
        for node in dom.document_node().descendants() {
            match node.kind() {
                NodeKind::Element => {
                    elements += 1;
                    // The other library treats these as namespace declarations, not attributes.
                    attributes += node
                        .attributes()
                        .filter(|a| a.name() != "xmlns" && !a.name().starts_with("xmlns:"))
                        .count();
                }
                NodeKind::Text => text_bytes += node.value().unwrap_or_default().len(),
                _ => {}
            }
        }
        let theirs = roxmltree::Document::parse_with_options(&text, options).unwrap();
        let mut expected = (0usize, 0usize, 0usize);
        for node in theirs.descendants() {
            if node.is_element() {
                expected.0 += 1;
                expected.1 += node.attributes().len();
            } else if node.is_text() {
                expected.2 += node.text().unwrap_or_default().len();
            }
        }
        assert_eq!((elements, attributes, text_bytes), expected, "{name}");
        eprintln!(
            "{name}: {elements} elements, {attributes} attributes, {text_bytes} bytes of text"
        );
    }
}
