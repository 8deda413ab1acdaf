//! Compares the trees of real XML files with roxmltree's.
#![allow(clippy::unwrap_used)]

mod common;

use common::corpus;
use evermap_dom::{Dom, NodeKind, xml};

/// Files larger than this are compared in full by the ignored test only: roxmltree and the
/// comparison take most of a minute in a debug build.
const QUICK_BYTES: usize = 8 << 20;

fn sources() -> Vec<(String, String)> {
    common::files("xml", "xml")
}

fn compare(name: &str, text: &str) {
    let tables = xml::parse(text, &Default::default()).unwrap();
    eprintln!(
        "{name}: {} bytes, block {} bytes, {} nodes",
        text.len(),
        tables.block_len(),
        tables.node_count()
    );
    let block = tables.to_block();
    let dom = Dom::new(block.as_bytes()).unwrap();
    dom.validate().unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let peer = roxmltree::Document::parse_with_options(text, options).unwrap();
    // roxmltree has no nodes for doctypes.
    let mut ours = std::iter::once(dom.document_node())
        .chain(dom.document_node().descendants())
        .filter(|node| node.kind() != NodeKind::Doctype);
    let mut counts = [0usize; 3];
    for theirs in peer.descendants() {
        let node = ours.next().unwrap();
        match theirs.node_type() {
            roxmltree::NodeType::Root => assert_eq!(node.kind(), NodeKind::Document),
            roxmltree::NodeType::Element => {
                counts[0] += 1;
                let name = theirs.tag_name();
                assert_eq!((node.local_name(), node.namespace()), (name.name(), name.namespace()));
                let mut attributes = node
                    .attributes()
                    .filter(|a| a.namespace() != Some("http://www.w3.org/2000/xmlns/"));
                for attribute in theirs.attributes() {
                    counts[1] += 1;
                    let mine = attributes.next().unwrap();
                    assert_eq!(
                        (mine.local_name(), mine.namespace(), mine.value()),
                        (attribute.name(), attribute.namespace(), attribute.value())
                    );
                }
                assert!(attributes.next().is_none());
            }
            roxmltree::NodeType::Text => {
                counts[2] += 1;
                assert_eq!((node.kind(), node.value()), (NodeKind::Text, theirs.text()));
            }
            roxmltree::NodeType::Comment => {
                assert_eq!((node.kind(), node.value()), (NodeKind::Comment, theirs.text()));
            }
            roxmltree::NodeType::PI => {
                let pi = theirs.pi().unwrap();
                assert_eq!((node.name(), node.value()), (pi.target, Some(pi.value.unwrap_or(""))));
            }
        }
        let parents = (node.parent().is_some(), theirs.parent().is_some());
        assert_eq!(parents.0, parents.1);
        assert_eq!(node.ancestors().count(), theirs.ancestors().count() - 1);
    }
    assert!(ours.next().is_none());
    eprintln!("  {} elements, {} attributes, {} texts", counts[0], counts[1], counts[2]);
}

#[test]
fn small_files_have_roxmltrees_tree() {
    for (name, text) in sources().iter().filter(|(_, text)| text.len() < QUICK_BYTES) {
        compare(name, text);
    }
}

#[test]
#[ignore = "long in a debug build; run with --release --ignored"]
fn large_files_have_roxmltrees_tree() {
    for (name, text) in sources().iter().filter(|(_, text)| text.len() >= QUICK_BYTES) {
        compare(name, text);
    }
}

#[test]
fn serialized_files_parse_to_the_same_block() {
    for (name, text) in sources().iter().filter(|(_, text)| text.len() < QUICK_BYTES) {
        let first = xml::parse(text, &Default::default()).unwrap().to_block();
        let written = first.dom().document_node().outer_html();
        let again = xml::parse(&written, &Default::default()).unwrap().to_block();
        // Only the length of the source in the header may differ.
        assert!(first.as_bytes()[48..] == again.as_bytes()[48..], "{name}");
    }
}

/// The W3C suite's malformed documents, and its well-formed ones that need no external file. The
/// counts are those that quick-xml and the checks here reach.
#[test]
fn conformance_does_not_get_worse() {
    let Some(folder) = corpus("xml-conformance/xmlconf") else {
        return;
    };
    let mut wrong = (Vec::new(), Vec::new());
    let (mut bad, mut good) = (0, 0);
    for part in ["not-wf", "valid"] {
        for kind in ["sa", "not-sa"] {
            let Ok(entries) = std::fs::read_dir(folder.join("xmltest").join(part).join(kind))
            else {
                continue;
            };
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.extension().is_none_or(|extension| extension != "xml") {
                    continue;
                }
                let bytes = std::fs::read(&path).unwrap();
                let parsed = xml::parse_bytes(&bytes, &Default::default());
                match (part, &parsed) {
                    ("not-wf", Ok(_)) => wrong.0.push(path),
                    ("valid", Err(error)) => wrong.1.push((path, error.to_string())),
                    _ => {}
                }
                if part == "valid" {
                    good += 1;
                } else {
                    bad += 1;
                }
            }
        }
    }
    eprintln!("{} of {bad} malformed documents were accepted", wrong.0.len());
    eprintln!("{} of {good} valid documents were rejected", wrong.1.len());
    if std::env::var_os("EVERMAP_VERBOSE").is_some() {
        eprintln!("{wrong:#?}");
    }
    // Most of these break rules inside the DTD, which is searched only for entities.
    assert!(wrong.0.len() <= 71 && wrong.1.len() <= 2, "{wrong:#?}");
}
