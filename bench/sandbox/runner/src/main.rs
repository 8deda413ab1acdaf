//! Measures programs with files beside the same programs with heaps, natively and in a sandbox, and
//! prints tables in Markdown.
//!
//! `runner [SECTION ...]`; without sections, all of them. What is measured, and how, stands at the
//! top of each section's file. Every run is a new process: native programs are started as they are,
//! guests by `runner child guest`, which has their module compiled in a cache. Contestants take
//! turns, and have to come to the same results.

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

// As in the other benchmarks: repeated measurements, quiet moments to make them in, and tables.
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

/// Whatever goes wrong in a measurement ends it.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

type Section = (&'static str, fn(&mut Bench) -> Outcome);

/// `counts` comes last: it is about the runs of the others.
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
