//! Measures Evermap and its peers and prints tables in Markdown.
//!
//! Usage: `evermap-bench [SECTION ...]`; without sections, all of them run. Figures of new
//! processes are measured in new processes: the driver starts itself as `evermap-bench child VERB
//! ...`. The head of each section's file says what it measures and how.

mod answers;
mod children;
mod commits;
mod corpus;
mod durability;
mod files;
mod first_query;
mod fresh_memory;
mod goals;
mod heap;
mod machine;
mod opening;
mod parsing;
mod parts;
mod reopening;

// The common crate's files for repeated measurements, quiet moments and random numbers, included by
// path.
#[path = "../common/src/quiet.rs"]
mod quiet;
#[path = "../common/src/random.rs"]
mod random;
#[path = "../common/src/samples.rs"]
mod samples;

use std::process::ExitCode;
use std::time::Instant;

use corpus::Corpus;

/// Result of a step. Any error ends the measurement.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

type Section = (&'static str, fn(&Corpus) -> Outcome);

const SECTIONS: [Section; 8] = [
    ("parsing", parsing::report),
    ("first-query", first_query::report),
    ("opening", opening::report),
    ("commits", commits::report),
    ("durability", durability::report),
    ("fresh-memory", fresh_memory::report),
    ("heap", heap::report),
    ("reopening", reopening::report),
];

fn main() -> ExitCode {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == "child" => child(start, rest),
        _ => drive(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evermap-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive(wanted: &[String]) -> Outcome {
    if let Some(unknown) = wanted.iter().find(|w| !SECTIONS.iter().any(|(name, _)| name == w)) {
        let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        return Err(
            format!("unknown section `{unknown}`; choose from: {}", names.join(", ")).into()
        );
    }
    let corpus = Corpus::load()?;
    machine::describe(&corpus)?;
    for (name, report) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            quiet::wait();
            println!("\n## {name}\n");
            report(&corpus)?;
        }
    }
    Ok(())
}

fn child(start: Instant, arguments: &[String]) -> Outcome {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["empty"] => Ok(()),
        ["spin", processor] => quiet::spin(processor.parse()?),
        ["reopen", store, name, selector] => answers::reopen(start, store, name, selector),
        ["parse-html", file] => answers::parse_html(start, file),
        ["parse-xml", file, element] => answers::parse_xml(start, file, element),
        ["open", store, name, root, repeats] => {
            opening::child(start, store, name, root, repeats.parse()?)
        }
        ["heap", verb, ref rest @ ..] => heap::child(start, verb, rest),
        ["durability-read", store, repeats] => {
            durability::child_read(start, store, repeats.parse()?)
        }
        ["durability-leave", store, pages] => durability::child_leave(store, pages.parse()?),
        ["durability-map", file, repeats] => durability::child_map(file, repeats.parse()?),
        _ => Err(format!("unknown child: {arguments:?}").into()),
    }
}
