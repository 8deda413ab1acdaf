//! What the command lines of all benchmarks say. What there is to choose from is each benchmark's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::Outcome;
use crate::random::Random;
use crate::units::parse_size;

/// As often as the paper.
const ROUNDS: usize = 10;
const ROUNDS_QUICK: usize = 1;

/// What there is to choose from.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    /// What the benchmark itself is called.
    pub program: &'a str,
    pub sections: Vec<&'a str>,
    pub file_systems: &'a [&'a str],
    /// In pairs, such as `warm` and `cold`.
    pub states: &'a [&'a str],
    /// The sizes of a quick run, if none are named.
    pub sizes_quick_bytes: &'a [u64],
    /// Shares of a file in percent, where those are measured.
    pub shares_percent: &'a [u8],
    /// What `--full` adds, where it is an option.
    pub full: Option<&'a str>,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    sections: Vec<String>,
    pub rounds: usize,
    /// Small files: does everything work?
    pub quick: bool,
    /// What takes long as well.
    pub full: bool,
    /// Only files of these sizes.
    pub sizes_bytes: Vec<u64>,
    shares_percent: Vec<u8>,
    file_systems: Vec<String>,
    subjects: Vec<String>,
    states: Vec<String>,
    /// Every single figure, a JSON object a line.
    pub json: Option<PathBuf>,
    /// Where plots are drawn to.
    pub images: PathBuf,
    /// A folder on the disk to measure.
    pub folder: PathBuf,
    /// The command to measure; without it, the peers alone.
    pub evermap: Option<PathBuf>,
    /// Have the host of a virtual machine give memory before each step.
    pub warm_memory: bool,
    /// This program, which also has the guard and the small programs beside it.
    pub program: PathBuf,
}

impl Options {
    /// Nothing if help was asked for.
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
            return Err("--rounds 0: at least one is needed".into());
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

    /// Subjects whose names contain one of the words, or are one of those that begin with `=`.
    pub fn wants_subject(&self, name: &str) -> bool {
        let is_meant = |word: &String| match word.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(word),
        };
        self.subjects.is_empty() || self.subjects.iter().any(is_meant)
    }

    /// Is one state of a pair wanted? Where neither is named, both are.
    pub fn wants_of_pair(&self, one: &str, other: &str) -> bool {
        let named = |name: &str| self.states.iter().any(|state| state == name);
        named(one) || !named(other)
    }

    pub fn names_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// Where the benchmark's own small programs are.
    pub fn own_folder(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("."))
    }

    /// The round to begin with: 0 does not count, and a quick run is not about figures.
    pub fn first_round(&self) -> usize {
        self.scaled(0, 1)
    }

    /// Everybody's turn in every round: `(round, who)`. Each round has an order of its own, the same in every run, so that nobody always comes
    /// after the same one: what that one left behind (memory, caches, the host's patience) is in the next one's figures.
    pub fn turns(&self, subjects: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let rounds = self.first_round()..=self.rounds;
        rounds.flat_map(move |round| {
            shuffled(subjects, round as u64).into_iter().map(move |subject| (round, subject))
        })
    }

    /// A number at this scale.
    pub fn scaled<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// The numbers below `count` in an order that only the seed decides.
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
        Some(name) => Err(format!("no `{name}`; there are {}", all.join(", ")).into()),
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
         --quick            little to do, {ROUNDS_QUICK} round: does everything work?\n\
         --sizes A,B        only files of these sizes (4KiB,64MiB)\n\
         --file-systems A,B only these ({})\n\
         --subjects A,B     only those whose names contain A or B; =A: whose name is A\n\
         --states A,B       only these ({})\n\
         {more}--json FILE        every single figure, a JSON object a line\n\
         --images DIR       where plots are drawn to (default: EVERMAP_BENCH_RESULTS, or bench/results)\n\
         --folder DIR       a folder on the disk to measure (default: EVERMAP_BENCH_DIR, or that of temporary files)\n\
         --evermap PATH     the evermap command (default: EVERMAP_COMMAND); `none` measures the peers alone\n\n\
         EVERMAP_BENCH_QUICK=1   as --quick\n\
         EVERMAP_BENCH_WAIT=0    do not wait for a quiet moment before a section\n\
         EVERMAP_BENCH_MEMORY=0  do not have the host of a virtual machine give memory before each step",
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
    fn each_round_has_everybody_in_an_order_of_its_own_that_is_the_same_in_every_run() {
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
        assert_eq!(before_the_first.len(), 4, "nobody always comes after the same one");
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
    fn a_quick_run_takes_sizes_of_its_own_where_none_are_named() {
        assert_eq!(parse(&["--quick"]).unwrap().unwrap().sizes_bytes, [4096]);
        assert_eq!(parse(&["--quick", "--sizes", "1G"]).unwrap().unwrap().sizes_bytes, [1 << 30]);
        assert!(parse(&[]).unwrap().unwrap().sizes_bytes.is_empty());
    }

    #[test]
    fn shares_and_full_runs_are_options_only_where_there_are_some() {
        assert!(parse(&["--full"]).is_err() && parse(&["--shares", "10"]).is_err());
        let choices = Choices { shares_percent: &[10, 50], full: Some("more"), ..choices() };
        let parse = |arguments: &[&str]| Options::parse(arguments, &choices, &|_| None);
        let options = parse(&["--full", "--shares", "50"]).unwrap().unwrap();
        assert!(options.full && options.wants_share(50) && !options.wants_share(10));
        assert!(parse(&[]).unwrap().unwrap().wants_share(10) && parse(&["--shares=5"]).is_err());
        assert!(help(&choices).contains("(10, 50)") && help(&choices).contains("--full"));
    }

    #[test]
    fn help_says_what_there_is() {
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
    fn what_is_not_known_is_refused_with_what_there_is() {
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
