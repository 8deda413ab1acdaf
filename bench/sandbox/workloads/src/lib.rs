//! Programs that store their data in files or in a heap. Both versions read and compute the same,
//! and give the same results.
//!
//! One source serves native programs and WebAssembly guests (`wasm32-wasip1`). `workload NAME
//! VARIANT STEP` runs a step and prints figures, `generate SET` makes data sets. Every workload is
//! a module here, with its variants: `file` in the module itself, `heap` in its submodule.

pub mod blocks;
pub mod calls;
pub mod classifier;
pub mod error;
pub mod fasta;
pub mod generate;
pub mod hash;
pub mod hash_map;
pub mod k_nucleotide;
pub mod lines;
pub mod named;
pub mod options;
pub mod random;
pub mod report;
pub mod reverse_complement;
pub mod snappy;
pub mod spell_check;
pub mod words;

use error::{Error, Outcome};
use options::Options;
use report::Report;

/// Function that runs a step of a workload.
pub type Run = fn(&Options, &mut Report) -> Outcome<()>;

/// Workloads by name.
pub const WORKLOADS: [(&str, Run); 8] = [
    ("calls", calls::run),
    ("fasta", fasta::run),
    ("reverse-complement", reverse_complement::run),
    ("k-nucleotide", k_nucleotide::run),
    ("spell-check", spell_check::run),
    ("snappy", snappy::run),
    ("classifier", classifier::run),
    ("hash-map", hash_map::run),
];

/// Returns the names of the workloads, for messages.
pub fn names() -> String {
    WORKLOADS.map(|(name, _)| name).join(", ")
}

/// Runs the selected step.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let found = WORKLOADS.iter().find(|(name, _)| *name == options.workload);
    let (_, run) = found.ok_or_else(|| {
        Error::Usage(format!("unknown workload `{}`; choose from: {}", options.workload, names()))
    })?;
    run(options, report)
}
