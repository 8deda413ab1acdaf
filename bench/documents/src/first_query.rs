//! Measures the first answer in a new process: from a store, or by parsing again.
//!
//! Every figure comes from a separate process. Three kinds take turns: one that ends at once (the
//! base cost of a process of this program), one that opens the store and the document and counts,
//! and one of the peer that reads the file, parses and counts. Files and program are in the page
//! cache.
//!
//! This program contains all parsers, whose tables the loader relocates in every process.
//! `reopener-small` only reopens, like a program that never parses.

use std::path::Path;

use evermap::Store;
use evermap_dom::{Document, Dom, NewDocument, NodeKind, html, xml};

use crate::Bench;
use crate::corpus::Page;
use crate::parsing::source;
use harness::files::text;
use harness::samples::{Samples, figure, head, row};
use harness::{Outcome, children};

const ROUNDS: usize = 41;
const ROUNDS_XML: usize = 31;
/// The XML query asks for the element whose count is nearest to this.
const ELEMENTS_ABOUT: usize = 1000;

/// Document and its query.
struct Question<'c> {
    page: &'c Page,
    selector: String,
    peer: &'static str,
    rounds: usize,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let (corpus, folder) = (&bench.own, bench.temporary("first-query")?);
    let path = folder.join("store");
    let store = Store::create_new(&path)?;
    let mut questions = Vec::new();
    for page in corpus.some_pages() {
        let tables = html::parse(&page.text, &Default::default())?;
        let document = NewDocument { tables: &tables, source: &source(page) };
        store.replace::<Document, _>(&page.name, document)?;
        let selector = "a[href]".to_string();
        questions.push(Question {
            page,
            selector,
            peer: "parse-html",
            rounds: bench.options.rounds_or(ROUNDS, 2),
        });
    }
    if let Some(page) = corpus.xml.first() {
        let tables = xml::parse(&page.text, &Default::default())?;
        let document = NewDocument { tables: &tables, source: &source(page) };
        store.replace::<Document, _>(&page.name, document)?;
        let document = store.read::<Document>(&page.name)?;
        for selector in some_elements(&document.dom()?) {
            questions.push(Question {
                page,
                selector,
                peer: "parse-xml",
                rounds: bench.options.rounds_or(ROUNDS_XML, 2),
            });
        }
    }
    drop(store);
    head(&[
        "document, query",
        "found",
        "empty process, us",
        "reopened, whole process, us",
        "in the process: store open",
        "document open",
        "answer, us",
        "parsed, whole process, us",
        "in the process, us",
        "reopened by a small program, whole process, us",
        "ratio, whole",
        "ratio, in the process",
        "ratio, whole, small program",
    ]);
    let small = children::sibling("reopener-small")?;
    for question in &questions {
        ask(text(&path)?, &small, question)?;
    }
    println!("\nTimes of store open, document open and answer are from the first line of `main`.");
    Ok(())
}

fn ask(store: &str, small: &Path, question: &Question<'_>) -> Outcome {
    let (page, selector) = (question.page, question.selector.as_str());
    let file = text(&page.path)?;
    let mut of: [Samples; 8] = Default::default();
    let [empty, whole, store_us, open, answer, peer_whole, peer_answer, small_whole] = &mut of;
    let mut found = (0.0, 0.0);
    for _ in 0..question.rounds {
        empty.push_us(children::run(&["empty"])?.whole);
        let ours = children::run(&["reopen", store, &page.name, selector])?;
        whole.push_us(ours.whole);
        store_us.push(ours.figure("store_us")?);
        open.push(ours.figure("open_us")?);
        answer.push(ours.figure("total_us")?);
        small_whole.push_us(children::run_program(small, &[store, &page.name, selector])?.whole);
        let arguments = match question.peer {
            "parse-xml" => vec![question.peer, file, selector],
            _ => vec![question.peer, file],
        };
        let theirs = children::run(&arguments)?;
        peer_whole.push_us(theirs.whole);
        peer_answer.push(theirs.figure("total_us")?);
        found = (ours.figure("found")?, theirs.figure("found")?);
    }
    if found.0 != found.1 {
        return Err(format!("{}: {} found, the peer has {}", page.name, found.0, found.1).into());
    }
    let ratios = [
        peer_whole.median() / whole.median(),
        peer_answer.median() / answer.median(),
        peer_whole.median() / small_whole.median(),
    ];
    let mut cells = vec![
        format!("{} ({} bytes), `{selector}`", page.name, page.text.len()),
        found.0.to_string(),
    ];
    cells.extend(of.iter().map(Samples::to_string));
    cells.extend(ratios.map(figure));
    row(&cells);
    Ok(())
}

/// Returns the most frequent element name, and the one whose count is nearest to a thousand.
fn some_elements(dom: &Dom<'_>) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for node in dom.document_node().descendants() {
        if node.kind() == NodeKind::Element {
            *counts.entry(node.local_name()).or_default() += 1;
        }
    }
    let plain = counts.iter().filter(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase()));
    let near = plain.clone().min_by_key(|(_, count)| count.abs_diff(ELEMENTS_ABOUT));
    let most = plain.max_by_key(|(_, count)| **count);
    near.into_iter().chain(most).map(|(name, _)| name.to_string()).collect()
}
