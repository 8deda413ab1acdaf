//! Measures the viewer and other browsers, from exec to pixels, and prints tables in Markdown.
//!
//! Usage: `evermap-view-bench [--help] [SECTION ...]`; without sections, all of them run. The head
//! of each section's file says what it measures and how. Programs are always measured from outside,
//! as new processes.

mod chart;
mod command;
mod environment;
mod machine;
mod media;
mod options;
mod pages;
mod peers;
mod process;
mod ratios;
mod screen;
mod sections;

// The common crate's files for repeated measurements and quiet moments, included by path.
#[allow(dead_code)]
#[path = "../../common/src/quiet.rs"]
mod quiet;
#[allow(dead_code)]
#[path = "../../common/src/samples.rs"]
mod samples;

use std::process::ExitCode;

use command::Evermap;
use options::Options;
use pages::Page;

/// Result of a step. Any error ends the measurement.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// State that every section receives.
struct Bench {
    options: Options,
    walls: environment::Walls,
    pages: Vec<Page>,
    /// `None` if only peers are measured.
    evermap: Option<Evermap>,
}

type Section = (&'static str, fn(&Bench) -> Outcome);

const SECTIONS: [Section; 6] = [
    ("warm-cold", sections::warm_cold::report),
    ("layers", sections::layers::report),
    ("peers", sections::peers::report),
    ("size", sections::size::report),
    ("media", sections::media::report),
    ("pixels", sections::pixels::report),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["child", "disk", mount_point] => media::disk_model::serve(mount_point),
        _ => drive(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evermap-view-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive() -> Outcome {
    let names = SECTIONS.map(|(name, _)| name);
    let Some(options) = Options::read(&names)? else {
        println!("{}", options::help(&names));
        return Ok(());
    };
    let walls = environment::prepare()?;
    let pages = pages::load(&options.filter)?;
    let evermap = Evermap::find()?;
    machine::describe(&pages, &walls, evermap.as_ref())?;
    let bench = Bench { options, walls, pages, evermap };
    for (name, report) in SECTIONS {
        if bench.options.wants(name) {
            quiet::wait();
            println!("\n## {name}\n");
            report(&bench)?;
        }
    }
    Ok(())
}
