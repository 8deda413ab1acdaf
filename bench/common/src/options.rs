//! Command line that all benchmarks share. Each benchmark supplies its own choices.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::Outcome;
use crate::random::Random;
use crate::units::parse_size;

/// The paper's number of rounds.
const ROUNDS: usize = 10;
const ROUNDS_QUICK: usize = 1;

/// Choices of one benchmark.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    /// Name of the benchmark.
    pub program: &'a str,
    pub sections: Vec<&'a str>,
    pub file_systems: &'a [&'a str],
    /// Pairs of states, such as `warm` and `cold`.
    pub states: &'a [&'a str],
    /// Sizes of a quick run that names none.
    pub sizes_quick_bytes: &'a [u64],
    /// Shares of a file in percent, for benchmarks that measure shares.
    pub shares_percent: &'a [u8],
    /// Help text of `--full`, for benchmarks that have the option.
    pub full: Option<&'a str>,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    sections: Vec<String>,
    pub rounds: usize,
    /// Small files: checks only that everything works.
    pub quick: bool,
    /// Runs slow parts as well.
    pub full: bool,
    /// Files of these sizes only; empty for all.
    pub sizes_bytes: Vec<u64>,
    shares_percent: Vec<u8>,
    file_systems: Vec<String>,
    subjects: Vec<String>,
    states: Vec<String>,
    /// File for every single figure, one JSON object a line.
    pub json: Option<PathBuf>,
    /// Folder for plots.
    pub images: PathBuf,
    /// Folder on the disk to measure.
    pub folder: PathBuf,
    /// Command to measure; without it, only the peers are measured.
    pub evermap: Option<PathBuf>,
    /// Makes the host of a virtual machine provide memory before each step.
    pub warm_memory: bool,
    /// Path of this program, which also runs as the guard. The small programs are in its folder.
    pub program: PathBuf,
}

impl Options {
    /// Reads the command line. Returns `None` if help was requested.
    pub fn read(choices: &Choices<'_>) -> Outcome<Option<Options>> {
        let options =
            Options::parse(std::env::args_os().skip(1), choices, &|name| std::env::var_os(name))?;
        let program = std::env::current_exe()?;
        Ok(options.map(|options| Options { program, ..options }))
    }

    pub fn parse(
        arguments: impl IntoIterator<Item: Into<OsString>>,
        choices: &Choices<'_>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Outcome<Option<Options>> {
        let mut parser = Parser::from_args(arguments);
        let mut options = Options::from_environment(variable);
        let mut rounds = None;
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("quick") => options.quick = true,
                Arg::Long("rounds") => rounds = Some(parser.value()?.parse::<usize>()?),
                Arg::Long("json") => options.json = Some(parser.value()?.into()),
                Arg::Long("images") => options.images = parser.value()?.into(),
                Arg::Long("folder") => options.folder = parser.value()?.into(),
                Arg::Long("evermap") => options.evermap = command(parser.value()?),
                Arg::Long("sizes") => {
                    for size in list(parser.value()?)? {
                        options.sizes_bytes.push(parse_size(&size)?);
                    }
                }
                Arg::Long("full") if choices.full.is_some() => options.full = true,
                Arg::Long("shares") if !choices.shares_percent.is_empty() => {
                    options.shares_percent = shares(parser.value()?, choices.shares_percent)?;
                }
                Arg::Long("subjects") => options.subjects = list(parser.value()?)?,
                Arg::Long("file-systems") => {
                    options.file_systems = known(list(parser.value()?)?, choices.file_systems)?;
                }
                Arg::Long("states") => {
                    options.states = known(list(parser.value()?)?, choices.states)?
                }
                Arg::Value(section) => {
                    options.sections.extend(known(vec![section.string()?], &choices.sections)?);
                }
                _ => return Err(argument.unexpected().into()),
            }
        }
        let usual = if options.quick { ROUNDS_QUICK } else { ROUNDS };
        options.rounds = rounds.unwrap_or(usual);
        if options.rounds == 0 {
            return Err("--rounds 0: at least 1 is needed".into());
        }
        if options.quick && options.sizes_bytes.is_empty() {
            options.sizes_bytes = choices.sizes_quick_bytes.to_vec();
        }
        Ok(Some(options))
    }

    fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Options {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        Options {
            quick: variable("EVERMAP_BENCH_QUICK").is_some_and(|value| value == "1"),
            images: folder("EVERMAP_BENCH_RESULTS")
                .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../results").into()),
            folder: folder("EVERMAP_BENCH_DIR").unwrap_or_else(std::env::temp_dir),
            evermap: variable("EVERMAP_COMMAND").and_then(command),
            warm_memory: variable("EVERMAP_BENCH_MEMORY").is_none_or(|value| value != "0"),
            ..Options::default()
        }
    }

    pub fn wants(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == section)
    }

    pub fn wants_file_system(&self, name: &str) -> bool {
        self.file_systems.is_empty() || self.file_systems.iter().any(|wanted| wanted == name)
    }

    pub fn wants_share(&self, percent: u8) -> bool {
        self.shares_percent.is_empty() || self.shares_percent.contains(&percent)
    }

    pub fn names_shares(&self) -> bool {
        !self.shares_percent.is_empty()
    }

    /// Returns true if the name contains one of the words, or equals a word that begins with
    /// `=`.
    pub fn wants_subject(&self, name: &str) -> bool {
        let is_meant = |word: &String| match word.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(word),
        };
        self.subjects.is_empty() || self.subjects.iter().any(is_meant)
    }

    /// Returns true if one state of a pair is wanted. If neither is named, both are.
    pub fn wants_of_pair(&self, one: &str, other: &str) -> bool {
        let named = |name: &str| self.states.iter().any(|state| state == name);
        named(one) || !named(other)
    }

    pub fn names_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// Folder of the benchmark's own small programs.
    pub fn own_folder(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("."))
    }

    /// First round to run. Round 0 warms up and does not count; a quick run skips it.
    pub fn first_round(&self) -> usize {
        self.scaled(0, 1)
    }

    /// Returns the turns of all subjects in every round: `(round, subject)`. Each round has its
    /// own order, the same in every run, so that no subject always follows the same other one,
    /// whose remains (memory, caches, host delays) would be in its figures.
    pub fn turns(&self, subjects: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let rounds = self.first_round()..=self.rounds;
        rounds.flat_map(move |round| {
            shuffled(subjects, round as u64).into_iter().map(move |subject| (round, subject))
        })
    }

    /// Returns `quick` in a quick run, else `full`.
    pub fn scaled<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Shuffles the numbers below `count`. The order depends on the seed only.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Random::new(seed + 1).shuffle(&mut order);
    order
}

fn command(value: OsString) -> Option<PathBuf> {
    if value.is_empty() || value == "none" { None } else { Some(value.into()) }
}

fn list(value: OsString) -> Outcome<Vec<String>> {
    let text = value.string()?;
    Ok(text
        .split(',')
        .map(|part| part.trim().to_string())
        .filter(|part| !part.is_empty())
        .collect())
}

fn shares(value: OsString, all: &[u8]) -> Outcome<Vec<u8>> {
    let all: Vec<String> = all.iter().map(u8::to_string).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let given = known(list(value)?, &all)?;
    Ok(given.iter().filter_map(|share| share.parse().ok()).collect())
}

fn known(given: Vec<String>, all: &[&str]) -> Outcome<Vec<String>> {
    match given.iter().find(|name| !all.contains(&name.as_str())) {
        Some(name) => Err(format!("unknown name `{name}`; choose from: {}", all.join(", ")).into()),
        None => Ok(given),
    }
}

pub fn help(choices: &Choices<'_>) -> String {
    let mut more = String::new();
    if !choices.shares_percent.is_empty() {
        let all: Vec<String> = choices.shares_percent.iter().map(u8::to_string).collect();
        more += &format!("--shares A,B       only these shares, in percent ({})\n", all.join(", "));
    }
    if let Some(what) = choices.full {
        more += &format!("--full             {what}\n");
    }
    format!(
        "{} [OPTIONS] [SECTION ...]\n\n\
         Sections: {}\n\n\
         --rounds N         measure everything N times ({ROUNDS})\n\
         --quick            small sizes, {ROUNDS_QUICK} round: checks that everything works\n\
         --sizes A,B        only files of these sizes (4KiB,64MiB)\n\
         --file-systems A,B only these ({})\n\
         --subjects A,B     only names that contain A or B; =A: only the name A\n\
         --states A,B       only these ({})\n\
         {more}--json FILE        write every single figure, one JSON object a line\n\
         --images DIR       folder for plots (default: EVERMAP_BENCH_RESULTS, or bench/results)\n\
         --folder DIR       folder on the disk to measure (default: EVERMAP_BENCH_DIR, or the folder for temporary files)\n\
         --evermap PATH     the evermap command (default: EVERMAP_COMMAND); `none` measures only the peers\n\n\
         EVERMAP_BENCH_QUICK=1   as --quick\n\
         EVERMAP_BENCH_WAIT=0    do not wait for a quiet moment before a section\n\
         EVERMAP_BENCH_MEMORY=0  do not make the host of a virtual machine provide memory before each step",
        choices.program,
        choices.sections.join(", "),
        choices.file_systems.join(", "),
        choices.states.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn choices() -> Choices<'static> {
        Choices {
            program: "some-bench",
            sections: vec!["files", "pipes"],
            file_systems: &["ext4", "xfs"],
            states: &["warm", "cold", "unsynced", "synced"],
            sizes_quick_bytes: &[4096],
            shares_percent: &[],
            full: None,
        }
    }

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(arguments, &choices(), &|_| None)
    }

    #[test]
    fn without_options_everything_is_wanted_ten_times() {
        let options = parse(&[]).unwrap().unwrap();
        assert!(options.wants("files") && options.wants_file_system("xfs"));
        assert!(options.wants_subject("cp") && !options.names_states());
        assert_eq!((options.rounds, options.scaled(10, 1)), (10, 10));
        assert!(options.warm_memory && options.evermap.is_none());
    }

    #[test]
    fn options_and_sections_mix() {
        let arguments = ["pipes", "--quick", "--sizes=4K,64MiB", "--states", "cold,synced"];
        let options = parse(&arguments).unwrap().unwrap();
        assert!(options.wants("pipes") && !options.wants("files"));
        assert_eq!(options.sizes_bytes, [4096, 64 << 20]);
        assert_eq!((options.rounds, options.first_round(), options.scaled(10, 1)), (1, 1, 1));
        let options = parse(&["--states", "cold", "--subjects", "cp,dd"]).unwrap().unwrap();
        assert!(options.wants_subject("dd bs=1M") && !options.wants_subject("pv"));
        let options = parse(&["--subjects", "=mmap,read"]).unwrap().unwrap();
        assert!(options.wants_subject("mmap") && options.wants_subject("malloc+read"));
        assert!(!options.wants_subject("mmap+WILLNEED"));
    }

    #[test]
    fn each_round_shuffles_all_subjects_the_same_way_in_every_run() {
        let options = parse(&["--quick", "--rounds", "40"]).unwrap().unwrap();
        let turns: Vec<_> = options.turns(5).collect();
        assert_eq!(turns, options.turns(5).collect::<Vec<_>>());
        let mut before_the_first = std::collections::BTreeSet::new();
        for (number, round) in turns.chunks(5).enumerate() {
            let mut who: Vec<usize> = round.iter().map(|(_, who)| *who).collect();
            assert!(round.iter().all(|(of, _)| *of == number + 1), "{round:?}");
            let place = who.iter().position(|who| *who == 0).unwrap();
            before_the_first.extend(place.checked_sub(1).map(|before| who[before]));
            who.sort_unstable();
            assert_eq!(who, [0, 1, 2, 3, 4]);
        }
        assert_eq!(
            before_the_first.len(),
            4,
            "each other subject precedes the first one in some round"
        );
        assert_eq!(parse(&[]).unwrap().unwrap().turns(3).count(), 33);
        assert_eq!(options.turns(0).count(), 0);
    }

    #[test]
    fn one_state_of_a_pair_excludes_the_other_and_none_means_both() {
        let options = parse(&["--states", "cold"]).unwrap().unwrap();
        assert!(options.names_states() && options.wants_of_pair("cold", "warm"));
        assert!(!options.wants_of_pair("warm", "cold"));
        assert!(options.wants_of_pair("synced", "unsynced"));
        assert!(options.wants_of_pair("unsynced", "synced"));
    }

    #[test]
    fn a_quick_run_uses_its_own_sizes_unless_some_are_named() {
        assert_eq!(parse(&["--quick"]).unwrap().unwrap().sizes_bytes, [4096]);
        assert_eq!(parse(&["--quick", "--sizes", "1G"]).unwrap().unwrap().sizes_bytes, [1 << 30]);
        assert!(parse(&[]).unwrap().unwrap().sizes_bytes.is_empty());
    }

    #[test]
    fn shares_and_full_exist_only_for_benchmarks_that_have_them() {
        assert!(parse(&["--full"]).is_err() && parse(&["--shares", "10"]).is_err());
        let choices = Choices { shares_percent: &[10, 50], full: Some("more"), ..choices() };
        let parse = |arguments: &[&str]| Options::parse(arguments, &choices, &|_| None);
        let options = parse(&["--full", "--shares", "50"]).unwrap().unwrap();
        assert!(options.full && options.wants_share(50) && !options.wants_share(10));
        assert!(parse(&[]).unwrap().unwrap().wants_share(10) && parse(&["--shares=5"]).is_err());
        assert!(help(&choices).contains("(10, 50)") && help(&choices).contains("--full"));
    }

    #[test]
    fn help_lists_the_choices() {
        let help = help(&choices());
        for wanted in ["some-bench [OPTIONS]", "files, pipes", "(ext4, xfs)", "(warm, cold, "] {
            assert!(help.contains(wanted), "{wanted} in:\n{help}");
        }
    }

    #[test]
    fn the_environment_is_overruled_by_options() {
        let variables = |name: &str| match name {
            "EVERMAP_COMMAND" => Some("none".into()),
            "EVERMAP_BENCH_MEMORY" => Some("0".into()),
            "EVERMAP_BENCH_QUICK" => Some("1".into()),
            _ => None,
        };
        let given = ["--evermap", "/bin/evermap", "--rounds", "5"];
        let options = Options::parse(given, &choices(), &variables).unwrap().unwrap();
        assert_eq!(options.evermap, Some("/bin/evermap".into()));
        assert_eq!((options.rounds, options.quick, options.warm_memory), (5, true, false));
        let options = Options::parse([""; 0], &choices(), &variables);
        assert_eq!(options.unwrap().unwrap().evermap, None);
    }

    #[test]
    fn unknown_names_are_refused_with_a_list_of_choices() {
        let error = parse(&["file"]).unwrap_err().to_string();
        assert!(error.contains("`file`") && error.contains("files, pipes"), "{error}");
        for wrong in
            [["--file-systems", "ntfs"], ["--states", "hot"], ["--sizes", "4X"], ["--rounds", "0"]]
        {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--help"]).unwrap().is_none());
    }
}
