//! Measures programs with files and the same programs with heaps, natively and in a sandbox, and
//! prints tables in Markdown.
//!
//! Usage: `runner [SECTION ...]`; without sections, all of them run. The head of each section's
//! file says what it measures and how. Every run is a new process: native programs are started
//! directly, guests by `runner child guest`, which loads their compiled module from a cache.
//! Contestants take turns and must reach the same results.

mod bench;
mod compete;
mod cost;
mod figures;
mod goals;
mod guest;
mod machine;
mod memory;
mod objects;
mod options;
mod process;
mod raw;
mod sections;

// The common crate's files for repeated measurements, quiet moments and tables, included by path.
#[allow(dead_code)]
#[path = "../../../common/src/quiet.rs"]
mod quiet;
#[allow(dead_code)]
#[path = "../../../common/src/samples.rs"]
mod samples;
#[path = "../../../common/src/table.rs"]
mod table;

use std::process::ExitCode;

use bench::Bench;
use options::Options;

/// Result of a step. Any error ends the measurement.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

type Section = (&'static str, fn(&mut Bench) -> Outcome);

/// `counts` is last, because it uses the runs of the others.
const SECTIONS: [Section; 8] = [
    ("calls", sections::calls::report),
    ("instances", sections::instances::report),
    ("hash-map", sections::hash_map::report),
    ("dna", sections::dna::report),
    ("spell-check", sections::spell_check::report),
    ("snappy", sections::snappy::report),
    ("classifier", sections::classifier::report),
    ("counts", sections::counts::report),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["child", "guest", module, data, store, ..] => {
            guest::run(module, data, store, &arguments[5..])
        }
        ["child", "make", store] => objects::make(store),
        ["child", "start", count, store] => objects::start(count, store),
        ["child", "instances", count, rounds, store] => objects::instances(count, rounds, store),
        _ => drive(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &[String]) -> Outcome {
    let names = SECTIONS.map(|(name, _)| name);
    let Some(options) = Options::read(arguments, &names)? else {
        println!("{}", options::help(&names));
        return Ok(());
    };
    machine::describe(&options)?;
    let mut bench = Bench::new(options)?;
    for (name, report) in SECTIONS {
        if bench.options.wants(name) {
            quiet::wait();
            println!("\n## {name}\n");
            report(&mut bench)?;
        }
    }
    bench.goals.print();
    bench.goals.write(&bench.options.results)?;
    Ok(())
}
