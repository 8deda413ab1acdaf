//! Options from the arguments and the environment: sections, rounds, scale and folders.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::Outcome;

/// Default number of rounds that count.
const ROUNDS: usize = 11;
const ROUNDS_QUICK: usize = 2;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    sections: Vec<String>,
    /// Rounds that count; one warm-up round precedes them.
    pub rounds: usize,
    /// Small data, to check that everything works.
    pub quick: bool,
    /// Makes the host provide memory before each step; see `memory`.
    pub warm_memory: bool,
    /// Folder on the disk to measure: data sets, stores, compiled modules.
    pub folder: PathBuf,
    /// Folder of the data sets, which guests may access.
    pub data: PathBuf,
    /// Folder for raw figures.
    pub results: PathBuf,
    /// Native program.
    pub workload: PathBuf,
    /// The program's guest module.
    pub module: PathBuf,
}

/// Text of `--help`.
pub fn help(names: &[&str]) -> String {
    format!(
        "bench/sandbox/run.sh [SECTION ...]\n\n\
         Sections: {}\n\n\
         EVERMAP_BENCH_DIR      a folder on the disk to measure\n\
         EVERMAP_BENCH_RESULTS  folder for tables and raw figures (results in that folder)\n\
         EVERMAP_BENCH_ROUNDS   how often everything is measured ({ROUNDS})\n\
         EVERMAP_BENCH_QUICK=1  small data and {ROUNDS_QUICK} rounds: does it work?\n\
         EVERMAP_BENCH_WAIT=0   do not wait for a quiet moment before a section\n\
          EVERMAP_BENCH_MEMORY=0 do not make the host of a virtual machine provide memory before each step",
        names.join(", ")
    )
}

impl Options {
    /// Reads the options. Returns `None` if help was requested.
    pub fn read(arguments: &[String], names: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(arguments, names, &|name| std::env::var_os(name))
    }

    fn parse(
        arguments: &[String],
        names: &[&str],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Outcome<Option<Options>> {
        if arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
            return Ok(None);
        }
        if let Some(other) = arguments.iter().find(|argument| !names.contains(&argument.as_str())) {
            return Err(
                format!("unknown section `{other}`; choose from: {}", names.join(", ")).into()
            );
        }
        let path = |name: &str| {
            let missing = || format!("{name} is not set; bench/sandbox/run.sh sets it");
            variable(name).map(PathBuf::from).ok_or_else(missing)
        };
        let quick = variable("EVERMAP_BENCH_QUICK").is_some_and(|value| value == "1");
        let rounds = match variable("EVERMAP_BENCH_ROUNDS") {
            Some(text) => {
                let rounds = text.to_str().and_then(|text| text.parse().ok());
                rounds
                    .filter(|rounds| *rounds > 0)
                    .ok_or("EVERMAP_BENCH_ROUNDS: a number above 0")?
            }
            None if quick => ROUNDS_QUICK,
            None => ROUNDS,
        };
        Ok(Some(Options {
            sections: arguments.to_vec(),
            rounds,
            quick,
            warm_memory: variable("EVERMAP_BENCH_MEMORY").is_none_or(|value| value != "0"),
            folder: path("EVERMAP_BENCH_DIR")?,
            data: path("EVERMAP_BENCH_DATA")?,
            results: path("EVERMAP_BENCH_RESULTS")?,
            workload: path("EVERMAP_BENCH_WORKLOAD")?,
            module: path("EVERMAP_BENCH_MODULE")?,
        }))
    }

    /// Returns true if this section is selected.
    pub fn wants(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == section)
    }

    /// Returns the size at this scale.
    pub fn size(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const NAMES: [&str; 2] = ["calls", "dna"];

    fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome<Option<Options>> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Options::parse(&arguments, &NAMES, &|name| {
            let given = variables.iter().find(|(given, _)| *given == name);
            let path = name
                .strip_prefix("EVERMAP_BENCH_")
                .filter(|name| ["DIR", "DATA", "RESULTS", "WORKLOAD", "MODULE"].contains(name));
            given.map(|(_, value)| value.into()).or(path.map(OsString::from))
        })
    }

    #[test]
    fn without_sections_all_are_wanted_eleven_times() {
        let options = parse(&[], &[]).unwrap().unwrap();
        assert!(options.wants("calls") && options.wants("dna"));
        assert_eq!((options.rounds, options.size(10, 1)), (11, 10));
    }

    #[test]
    fn quick_is_small_and_rounds_can_be_set() {
        let quick = ("EVERMAP_BENCH_QUICK", "1");
        let options = parse(&["dna"], &[quick]).unwrap().unwrap();
        assert!(!options.wants("calls"));
        assert_eq!((options.rounds, options.size(10, 1)), (2, 1));
        let options = parse(&[], &[quick, ("EVERMAP_BENCH_ROUNDS", "5")]).unwrap().unwrap();
        assert_eq!(options.rounds, 5);
    }

    #[test]
    fn unknown_sections_and_bad_numbers_are_refused_with_the_choices() {
        let error = parse(&["dns"], &[]).unwrap_err().to_string();
        assert!(error.contains("`dns`") && error.contains("calls, dna"), "{error}");
        assert!(parse(&[], &[("EVERMAP_BENCH_ROUNDS", "0")]).is_err());
        assert!(parse(&["--help"], &[]).unwrap().is_none());
    }
}
