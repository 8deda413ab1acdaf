//! Measures programs with files and the same programs with heaps, natively and in a sandbox.
//!
//! Every run is a new process: native programs are started directly, guests by `bench-sandbox child
//! guest`, which loads their compiled module from a cache. Contestants take turns and must reach
//! the same results. The head of each section's file says what it measures and how.

mod bench;
mod compete;
mod cost;
mod figures;
mod guest;
mod objects;
mod sections;

use std::process::ExitCode;

use harness::area::{Area, unknown_child};
use harness::options::Choices;

use bench::Own;

/// `counts` is last, because it uses the runs of the others.
const AREA: Area<Own> = Area {
    name: "sandbox",
    choices: Choices { rounds: (11, 2), ..Choices::NONE },
    sections: &[
        ("calls", sections::calls::report),
        ("instances", sections::instances::report),
        ("hash-map", sections::hash_map::report),
        ("dna", sections::dna::report),
        ("spell-check", sections::spell_check::report),
        ("snappy", sections::snappy::report),
        ("classifier", sections::classifier::report),
        ("counts", sections::counts::report),
    ],
    start: bench::start,
    child: |_, arguments| match *arguments {
        ["guest", module, data, store, ref rest @ ..] => guest::run(module, data, store, rest),
        ["make", store] => objects::make(store),
        ["start", count, store] => objects::start(count, store),
        ["instances", count, rounds, store] => objects::instances(count, rounds, store),
        _ => unknown_child(arguments),
    },
};

fn main() -> ExitCode {
    AREA.main()
}
