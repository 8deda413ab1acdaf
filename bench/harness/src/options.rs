//! Command line of all areas. Each area supplies its own choices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::Outcome;
use crate::random::Random;
use crate::units::parse_size;

/// Choices of one area.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Number of rounds: usually, and in a quick run.
    pub rounds: (usize, usize),
    pub filters: &'static [Filter],
    /// Sizes of a quick run that names none; empty if the area has no `--sizes`.
    pub sizes_quick_bytes: &'static [u64],
    /// Help text of `--full`, for areas that have the option.
    pub full: Option<&'static str>,
    /// Help text of `--pictures`, for areas that have the option.
    pub pictures: Option<&'static str>,
    /// Default folder for plots, below the repository's root.
    pub images: &'static str,
    /// The area measures the `evermap` command, and not only the library.
    pub command: bool,
}

impl Choices {
    /// Choices of an area that has none, and takes its rounds from its sections.
    pub const NONE: Choices = Choices {
        rounds: (10, 1),
        filters: &[],
        sizes_quick_bytes: &[],
        full: None,
        pictures: None,
        images: "bench/results",
        command: false,
    };
}

/// Option that selects a part of the work by name.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Name of the option, without `--`.
    pub name: &'static str,
    /// All names; empty if an argument selects all names that contain it.
    pub known: &'static [&'static str],
    /// Plural noun for the named things, for the help text.
    pub what: &'static str,
}

/// Selects the subjects to measure.
pub const SUBJECTS: Filter = Filter { name: "subjects", known: &[], what: "subjects" };

#[derive(Clone, Debug, Default)]
pub struct Options {
    sections: Vec<String>,
    rounds_given: Option<usize>,
    /// Rounds that count.
    pub rounds: usize,
    /// Small files: checks only that everything works.
    pub quick: bool,
    /// Runs slow parts as well.
    pub full: bool,
    /// Files of these sizes only; empty for all.
    pub sizes_bytes: Vec<u64>,
    /// Words of each filter. A word that begins with `=` stands for the whole name.
    filters: BTreeMap<&'static str, Vec<String>>,
    /// File for every single figure, one JSON object a line.
    pub json: Option<PathBuf>,
    /// Folder for plots.
    pub images: PathBuf,
    /// Folder for pictures of the measured programs.
    pub pictures: Option<PathBuf>,
    /// Folder on the disk to measure.
    pub folder: PathBuf,
    /// Command to measure; without it, only the peers are measured.
    pub evermap: Option<PathBuf>,
    /// The area measures the `evermap` command.
    pub command: bool,
    /// Makes the host of a virtual machine provide memory before each step.
    pub warm_memory: bool,
    /// Path of this program, which also runs as the guard. The small programs are in its folder.
    pub program: PathBuf,
}

impl Options {
    /// Reads the command line. Returns `None` if help was requested.
    pub fn read(sections: &[&str], choices: &Choices) -> Outcome<Option<Options>> {
        let arguments = std::env::args_os().skip(1);
        let options = Options::parse(arguments, sections, choices, &|name| std::env::var_os(name))?;
        let program = std::env::current_exe()?;
        Ok(options.map(|options| Options { program, ..options }))
    }

    pub fn parse(
        arguments: impl IntoIterator<Item: Into<OsString>>,
        sections: &[&str],
        choices: &Choices,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Outcome<Option<Options>> {
        let mut parser = Parser::from_args(arguments);
        let mut options = Options::from_environment(choices, variable);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("quick") => options.quick = true,
                Arg::Long("rounds") => options.rounds_given = Some(parser.value()?.parse()?),
                Arg::Long("json") => options.json = Some(parser.value()?.into()),
                Arg::Long("images") => options.images = parser.value()?.into(),
                Arg::Long("folder") => options.folder = parser.value()?.into(),
                Arg::Long("evermap") if choices.command => {
                    options.evermap = command(parser.value()?);
                }
                Arg::Long("sizes") if !choices.sizes_quick_bytes.is_empty() => {
                    for size in list(parser.value()?)? {
                        options.sizes_bytes.push(parse_size(&size)?);
                    }
                }
                Arg::Long("full") if choices.full.is_some() => options.full = true,
                Arg::Long("pictures") if choices.pictures.is_some() => {
                    options.pictures = Some(parser.value()?.into());
                }
                Arg::Long(name) => {
                    let filter = choices.filters.iter().find(|filter| filter.name == name);
                    let Some(filter) = filter else { return Err(argument.unexpected().into()) };
                    let words = list(parser.value()?)?;
                    options.filters.entry(filter.name).or_default().extend(filter.words(words)?);
                }
                Arg::Value(section) => {
                    options.sections.extend(known(vec![section.string()?], sections)?);
                }
                Arg::Short(_) => return Err(argument.unexpected().into()),
            }
        }
        options.rounds = options.rounds_or(choices.rounds.0, choices.rounds.1);
        if options.rounds == 0 {
            return Err("--rounds 0: at least 1 is needed".into());
        }
        if options.quick && options.sizes_bytes.is_empty() {
            options.sizes_bytes = choices.sizes_quick_bytes.to_vec();
        }
        Ok(Some(options))
    }

    fn from_environment(choices: &Choices, variable: &dyn Fn(&str) -> Option<OsString>) -> Options {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        Options {
            quick: variable("EVERMAP_BENCH_QUICK").is_some_and(|value| value == "1"),
            images: folder("EVERMAP_BENCH_RESULTS")
                .unwrap_or_else(|| repository.join(choices.images)),
            folder: folder("EVERMAP_BENCH_DIR").unwrap_or_else(std::env::temp_dir),
            evermap: variable("EVERMAP_COMMAND").filter(|_| choices.command).and_then(command),
            command: choices.command,
            warm_memory: variable("EVERMAP_BENCH_MEMORY").is_none_or(|value| value != "0"),
            ..Options::default()
        }
    }

    pub fn wants(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == section)
    }

    /// Returns true if a filter selects this name, or was not given.
    pub fn selects(&self, filter: &str, name: &str) -> bool {
        let is_meant = |word: &String| match word.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(word),
        };
        self.filters.get(filter).is_none_or(|words| words.iter().any(is_meant))
    }

    /// Returns true if this filter was given.
    pub fn has(&self, filter: &str) -> bool {
        self.filters.contains_key(filter)
    }

    pub fn wants_subject(&self, name: &str) -> bool {
        self.selects(SUBJECTS.name, name)
    }

    /// Returns true if one state of a pair is wanted. If neither is named, both are.
    pub fn wants_of_pair(&self, one: &str, other: &str) -> bool {
        let named = |name: &str| self.has("states") && self.selects("states", name);
        named(one) || !named(other)
    }

    /// Returns the number of rounds for work that is usually repeated as often as this.
    pub fn rounds_or(&self, usual: usize, quick: usize) -> usize {
        self.rounds_given.unwrap_or(self.scaled(usual, quick))
    }

    /// Folder of the area's own small programs.
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

impl Filter {
    /// Checks the words of an argument. Returns them as they are compared with names.
    fn words(&self, given: Vec<String>) -> Outcome<Vec<String>> {
        match self.known {
            [] => Ok(given),
            names => Ok(known(given, names)?.iter().map(|name| format!("={name}")).collect()),
        }
    }

    fn help(&self) -> String {
        let option = format!("--{} A,B", self.name);
        match self.known {
            [] => format!(
                "{option:<18} only {} whose names contain A or B; =A: only the name A\n",
                self.what
            ),
            names => format!("{option:<18} only these {} ({})\n", self.what, names.join(", ")),
        }
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
    let words = text.split(',').map(|part| part.trim().to_string());
    Ok(words.filter(|part| !part.is_empty()).collect())
}

fn known(given: Vec<String>, all: &[&str]) -> Outcome<Vec<String>> {
    match given.iter().find(|name| !all.contains(&name.as_str())) {
        Some(name) => Err(format!("unknown name `{name}`; choose from: {}", all.join(", ")).into()),
        None => Ok(given),
    }
}

/// Returns the text of `--help`.
pub fn help(area: &str, sections: &[&str], choices: &Choices) -> String {
    let mut text = format!(
        "bench {area} [SECTION ...] [OPTIONS]\n\n\
         Sections: {}\n\n\
         --rounds N         measure everything N times\n\
         --quick            small sizes, few rounds: checks that everything works\n",
        sections.join(", "),
    );
    if !choices.sizes_quick_bytes.is_empty() {
        text += "--sizes A,B        only files of these sizes (4KiB,64MiB)\n";
    }
    text.extend(choices.filters.iter().map(Filter::help));
    if let Some(what) = choices.full {
        text += &format!("--full             {what}\n");
    }
    if let Some(what) = choices.pictures {
        text += &format!("--pictures DIR     {what}\n");
    }
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "--json FILE        write every single figure, one JSON object a line\n\
         --images DIR       folder for plots (default: EVERMAP_BENCH_RESULTS, or {})\n\
         --folder DIR       folder on the disk to measure (default: EVERMAP_BENCH_DIR, or the folder for temporary files)\n",
        choices.images
    );
    if choices.command {
        text += "--evermap PATH     the evermap command (default: EVERMAP_COMMAND); `none` measures only the peers\n";
    }
    text + "\n\
         EVERMAP_BENCH_QUICK=1   as --quick\n\
         EVERMAP_BENCH_WAIT=0    do not wait for a quiet moment before a section\n\
         EVERMAP_BENCH_MEMORY=0  do not make the host of a virtual machine provide memory before each step"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SECTIONS: [&str; 2] = ["files", "pipes"];
    const FILTERS: [Filter; 3] = [
        SUBJECTS,
        Filter { name: "file-systems", known: &["erofs", "erofs-lz4hc"], what: "file systems" },
        Filter { name: "states", known: &["warm", "cold", "unsynced", "synced"], what: "states" },
    ];
    const CHOICES: Choices =
        Choices { filters: &FILTERS, sizes_quick_bytes: &[4096], command: true, ..Choices::NONE };

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(arguments, &SECTIONS, &CHOICES, &|_| None)
    }

    fn options(arguments: &[&str]) -> Options {
        parse(arguments).unwrap().unwrap()
    }

    #[test]
    fn without_options_everything_is_wanted_ten_times() {
        let options = options(&[]);
        assert!(options.wants("files") && options.selects("file-systems", "erofs"));
        assert!(options.wants_subject("cp") && !options.has("states"));
        assert_eq!((options.rounds, options.scaled(10, 1)), (10, 10));
        assert_eq!(options.rounds_or(21, 2), 21);
        assert!(options.warm_memory && options.evermap.is_none());
        assert!(options.images.ends_with("bench/results"));
    }

    #[test]
    fn options_and_sections_mix() {
        let quick = options(&["pipes", "--quick", "--sizes=4K,64MiB", "--states", "cold,synced"]);
        assert!(quick.wants("pipes") && !quick.wants("files"));
        assert_eq!(quick.sizes_bytes, [4096, 64 << 20]);
        assert_eq!((quick.rounds, quick.first_round(), quick.scaled(10, 1)), (1, 1, 1));
        assert_eq!((quick.rounds_or(21, 2), options(&["--rounds", "5"]).rounds_or(21, 2)), (2, 5));
    }

    #[test]
    fn filters_select_parts_of_names_or_whole_names() {
        let named = options(&["--states", "cold", "--subjects", "cp,dd"]);
        assert!(named.wants_subject("dd bs=1M") && !named.wants_subject("pv"));
        let named = options(&["--subjects", "=mmap,read"]);
        assert!(named.wants_subject("mmap") && named.wants_subject("malloc+read"));
        assert!(!named.wants_subject("mmap+WILLNEED"));
        let named = options(&["--file-systems", "erofs"]);
        assert!(named.selects("file-systems", "erofs"));
        assert!(!named.selects("file-systems", "erofs-lz4hc"), "known names are whole names");
    }

    #[test]
    fn each_round_shuffles_all_subjects_the_same_way_in_every_run() {
        let forty = options(&["--quick", "--rounds", "40"]);
        let turns: Vec<_> = forty.turns(5).collect();
        assert_eq!(turns, forty.turns(5).collect::<Vec<_>>());
        let mut before_the_first = std::collections::BTreeSet::new();
        for (number, round) in turns.chunks(5).enumerate() {
            let mut who: Vec<usize> = round.iter().map(|(_, who)| *who).collect();
            assert!(round.iter().all(|(of, _)| *of == number + 1), "{round:?}");
            let place = who.iter().position(|who| *who == 0).unwrap();
            before_the_first.extend(place.checked_sub(1).map(|before| who[before]));
            who.sort_unstable();
            assert_eq!(who, [0, 1, 2, 3, 4]);
        }
        let others = before_the_first.len();
        assert_eq!(others, 4, "each other subject precedes the first one in some round");
        assert_eq!(options(&[]).turns(3).count(), 33);
        assert_eq!(forty.turns(0).count(), 0);
    }

    #[test]
    fn one_state_of_a_pair_excludes_the_other_and_none_means_both() {
        let options = options(&["--states", "cold"]);
        assert!(options.has("states") && options.wants_of_pair("cold", "warm"));
        assert!(!options.wants_of_pair("warm", "cold"));
        assert!(options.wants_of_pair("synced", "unsynced"));
        assert!(options.wants_of_pair("unsynced", "synced"));
    }

    #[test]
    fn a_quick_run_uses_its_own_sizes_unless_some_are_named() {
        assert_eq!(options(&["--quick"]).sizes_bytes, [4096]);
        assert_eq!(options(&["--quick", "--sizes", "1G"]).sizes_bytes, [1 << 30]);
        assert!(options(&[]).sizes_bytes.is_empty());
    }

    #[test]
    fn options_exist_only_for_areas_that_have_them() {
        for given in [&["--full"][..], &["--shares", "10"], &["--pictures", "x"]] {
            assert!(parse(given).is_err(), "{given:?}");
        }
        for given in [&["--sizes", "4K"][..], &["--evermap", "x"], &["--subjects", "a"]] {
            assert!(Options::parse(given, &SECTIONS, &Choices::NONE, &|_| None).is_err());
        }
        let choices = Choices { full: Some("more"), pictures: Some("keep"), ..CHOICES };
        let given = ["--full", "--pictures", "x"];
        let options = Options::parse(given, &SECTIONS, &choices, &|_| None).unwrap().unwrap();
        assert!(options.full && options.pictures == Some("x".into()));
        let help = help("some", &SECTIONS, &choices);
        assert!(
            help.contains("--full             more") && help.contains("--pictures DIR     keep")
        );
    }

    #[test]
    fn help_lists_the_choices() {
        let help = help("some", &SECTIONS, &CHOICES);
        for wanted in
            ["bench some [SECTION", "files, pipes", "(erofs, erofs-lz4hc)", "(warm, cold, "]
        {
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
        let options = Options::parse(given, &SECTIONS, &CHOICES, &variables).unwrap().unwrap();
        assert_eq!(options.evermap, Some("/bin/evermap".into()));
        assert_eq!((options.rounds, options.quick, options.warm_memory), (5, true, false));
        let options = Options::parse([""; 0], &SECTIONS, &CHOICES, &variables);
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
