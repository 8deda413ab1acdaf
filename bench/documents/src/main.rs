//! Measures documents: what they cost from text to a stored object, and until their first answer.
//!
//! Most figures come from new processes: the program starts itself as `bench-documents child VERB
//! ...`. The head of each section's file says what it measures and how.

mod answers;
mod corpus;
mod first_query;
mod opening;
mod parsing;
mod reopening;

use std::process::ExitCode;
use std::time::Instant;

use harness::Outcome;
use harness::area::{Area, unknown_child};
use harness::machine::{self, Fact, Remarks};
use harness::options::{Choices, Options};

use corpus::Corpus;

/// Bench that a section receives.
type Bench = harness::bench::Bench<Corpus>;

const AREA: Area<Corpus> = Area {
    name: "documents",
    choices: Choices::NONE,
    sections: &[
        ("parsing", parsing::report),
        ("first-query", first_query::report),
        ("opening", opening::report),
        ("reopening", reopening::report),
    ],
    start,
    child,
};

fn main() -> ExitCode {
    AREA.main()
}

fn start(options: Options) -> Outcome<Bench> {
    let mut bench = Bench::new(options, Corpus::load()?)?;
    let Corpus { folders, html, .. } = &bench.own;
    let value = format!("{folders}: {} pages of {} bytes", html.len(), bench.own.html_bytes());
    let facts = [Fact { key: "documents", name: "documents", value }];
    machine::describe(&mut bench, &Remarks { facts: &facts, ..Remarks::default() })?;
    Ok(bench)
}

fn child(start: Instant, arguments: &[&str]) -> Outcome {
    match *arguments {
        ["empty"] => Ok(()),
        ["reopen", store, name, selector] => answers::reopen(start, store, name, selector),
        ["parse-html", file] => answers::parse_html(start, file),
        ["parse-xml", file, element] => answers::parse_xml(start, file, element),
        ["open", store, name, root, repeats] => {
            opening::child(start, store, name, root, repeats.parse()?)
        }
        _ => unknown_child(arguments),
    }
}
