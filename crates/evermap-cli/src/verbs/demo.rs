//! `evermap demo`: measures on real documents how much time a later process saves.
//!
//! Each document is parsed and stored by one process, then opened and queried by others. All are
//! new processes of this program, in a temporary store, so every figure includes the work of a
//! fresh process.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output as Finished, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::parse::Report;
use super::query::Timings;
use crate::comparison::{self, Export, Figure, Times};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::result_file;

/// Fewer than the queries: parsing is slower and varies less.
const PARSE_RUNS: usize = 3;
const QUERY_RUNS: usize = 21;

/// Selectors for the example documents. The last two are for other HTML and XML documents.
const QUERIES: [(&str, &str); 6] = [
    ("article.html", "article h2"),
    ("table.html", "tr.late > td.station"),
    ("outline.html", "#level-2400 > span"),
    ("guide.xml", "programme[channel='c07'] > title"),
    (".html", "a[href]"),
    (".xml", ":root > *"),
];

/// Names of the compared subjects.
const SUBJECTS: [&str; 2] = ["parsing", "opening and querying"];

/// Directory of the example documents in the project's directory.
const PAGES: &str = "examples/pages";

/// Documents for an installed command, which has no such directory.
const BUILT_IN: [(&str, &[u8]); 2] = [
    ("article.html", include_bytes!("../../../../examples/pages/article.html")),
    ("outline.html", include_bytes!("../../../../examples/pages/outline.html")),
];

const EXPLANATION: &str = "\
Each document is parsed and stored by one process, then opened and queried by new processes.
PARSE is the time from bytes in memory to a tree that can be queried. A program without Evermap
spends it at every start. STORE is the time to make the tree durable. OPEN is the time to open
store and document, and QUERY the time of the first query, in a new process (medians of 21
processes). FASTER is PARSE divided by OPEN + QUERY. PROCESS is the whole run time of a new
process. The page cache is warm.";

/// Measure how much faster reopening is than parsing on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap demo
  evermap demo page.html feed.xml")]
pub struct Demo {
    /// Your own documents, measured after the example documents
    docs: Vec<PathBuf>,
    /// Directory of the example documents [default: examples/pages, or else two pages that are part
    /// of this program]
    #[arg(long, value_name = "DIR")]
    pages: Option<PathBuf>,
    /// Print one JSON object per line for each document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    export: Export,
}

/// Measurements of one document.
#[derive(Serialize)]
struct Measured {
    document: String,
    selector: &'static str,
    matches: u64,
    nodes: u64,
    source_bytes: u64,
    stored_bytes: u64,
    parse_ms: f64,
    store_ms: f64,
    open_us: f64,
    query_us: f64,
    process_ms: f64,
    /// Times of parsing, then of opening and querying.
    #[serde(skip)]
    times: [Times; 2],
}

impl Demo {
    pub fn run(&self) -> Result<(), Failure> {
        self.export.check()?;
        let bench = Bench::new()?;
        let documents = self.documents(bench.directory.path())?;
        let mut measured = Vec::new();
        for (at, path) in documents.iter().enumerate() {
            // Documents are named by numbers, because two may have the same file name.
            measured.push(bench.measure(&at.to_string(), path)?);
        }
        let mut output = Output::new();
        match self.json {
            true => measured.iter().try_for_each(|one| output.json(one))?,
            false => show(&measured, &mut output)?,
        }
        output.finish()?;
        let times: Vec<Times> = measured.into_iter().flat_map(|one| one.times).collect();
        self.export.write(&times)
    }

    /// Returns the example pages by size, then the user's own documents. Writes the built-in pages
    /// to `directory` if there are no others.
    fn documents(&self, directory: &Path) -> Result<Vec<PathBuf>, Failure> {
        let mut pages = Vec::new();
        let folder = self.pages.as_deref().unwrap_or(Path::new(PAGES));
        match std::fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    let path = entry.path();
                    let extension = path.extension().and_then(|e| e.to_str());
                    if matches!(extension, Some("html" | "xml")) {
                        pages.push((entry.metadata().map_or(0, |m| m.len()), path));
                    }
                }
            }
            Err(_) if !self.docs.is_empty() => {}
            Err(_) if self.pages.is_none() => {
                for (name, bytes) in BUILT_IN {
                    let path = directory.join(name);
                    result_file::write(&path, bytes)?;
                    pages.push((bytes.len() as u64, path));
                }
            }
            Err(error) => {
                return Err(Failure::Usage(format!(
                    "no example pages at {}: {error}; leave `--pages` out, or name documents to measure",
                    folder.display()
                )));
            }
        }
        pages.sort();
        let mut seen = HashSet::new();
        let own = self.docs.iter().cloned();
        let all = pages.into_iter().map(|(_, path)| path).chain(own);
        Ok(all.filter(|path| seen.insert(path.clone())).collect())
    }
}

/// Returns the sentence at the end, which compares the sums of the table over all documents.
fn summary(measured: &[Measured]) -> Option<String> {
    let parsing_ms: f64 = measured.iter().map(|one| one.parse_ms).sum();
    let ready_us: f64 = measured.iter().map(|one| one.open_us + one.query_us).sum();
    let times = [
        Times::of("", SUBJECTS[0], &[parsing_ms / 1e3])?,
        Times::of("", SUBJECTS[1], &[ready_us / 1e6])?,
    ];
    let sentence = comparison::sentences(&times, SUBJECTS[0], Figure::Median).pop()?;
    Some(match measured.len() {
        1 => sentence,
        documents => format!("Sum over all {documents} documents: {sentence}"),
    })
}

fn failed(what: &str, source: std::io::Error) -> Failure {
    Failure::Measurement { what: format!("the demo failed: {what}"), source }
}

/// A temporary store, and the program to run on it.
struct Bench {
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Result<Bench, Failure> {
        let prefix = tempfile::Builder::new().prefix("evermap-demo-").tempdir();
        Ok(Bench {
            program: std::env::current_exe()
                .map_err(|e| failed("cannot find the path of this program", e))?,
            directory: prefix.map_err(|e| failed("cannot make a temporary directory", e))?,
        })
    }

    fn measure(&self, name: &str, path: &Path) -> Result<Measured, Failure> {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let mut parses = Vec::new();
        for _ in 0..PARSE_RUNS {
            let parse = ["parse", "--json", "--force", "--name", name, "--"];
            let (report, _) = self.run::<Report>(&parse, &[path.as_os_str()])?;
            parses.push(report);
        }
        let last = &parses[PARSE_RUNS - 1];
        let selector = selector_for(&file, &last.kind);
        let mut queries = Vec::new();
        for _ in 0..QUERY_RUNS {
            let query = ["query", "--count", "--timings", name, selector];
            queries.push(self.run::<Timings>(&query, &[])?);
        }
        let document = output::plain(&file);
        let parse_s: Vec<f64> = parses.iter().map(|report| report.parse_ms / 1e3).collect();
        let ready = |timings: &Timings| (timings.open_us + timings.query_us) / 1e6;
        let ready_s: Vec<f64> = queries.iter().map(|(timings, _)| ready(timings)).collect();
        let times = [(SUBJECTS[0], parse_s), (SUBJECTS[1], ready_s)];
        let times = times.map(|(name, seconds)| Times::of(&document, name, &seconds));
        let [Some(parsing), Some(querying)] = times else {
            return Err(Failure::Usage("nothing was measured".to_string()));
        };
        Ok(Measured {
            selector,
            matches: queries[0].0.matches,
            nodes: last.nodes,
            source_bytes: last.source_bytes,
            stored_bytes: last.stored_bytes.unwrap_or(0),
            parse_ms: median(parses.iter().map(|report| report.parse_ms)),
            store_ms: median(parses.iter().map(|report| report.write_ms + report.commit_ms)),
            open_us: median(queries.iter().map(|(timings, _)| timings.open_us)),
            query_us: median(queries.iter().map(|(timings, _)| timings.query_us)),
            process_ms: median(queries.iter().map(|(_, whole)| output::milliseconds(*whole))),
            document,
            times: [parsing, querying],
        })
    }

    /// Runs this program and reads the line of JSON that it prints. Returns also the time from its
    /// start to its end.
    fn run<T: DeserializeOwned>(
        &self,
        arguments: &[&str],
        more: &[&std::ffi::OsStr],
    ) -> Result<(T, Duration), Failure> {
        let mut command = Command::new(&self.program);
        command.arg("--store").arg(self.directory.path().join("store"));
        command.args(arguments).args(more).stdin(Stdio::null());
        let start = Instant::now();
        let finished = command
            .output()
            .map_err(|error| failed(&format!("cannot start {}", self.program.display()), error))?;
        let whole = start.elapsed();
        // `parse` prints its report to stdout, `query --count --timings` its times to stderr.
        let Finished { stdout, stderr, status } = &finished;
        let line = if arguments[0] == "parse" { stdout } else { stderr };
        match serde_json::from_slice(line) {
            Ok(report) => Ok((report, whole)),
            Err(_) => Err(Failure::Demo {
                why: String::from_utf8_lossy(stderr)
                    .trim()
                    .trim_start_matches("evermap: ")
                    .to_string(),
                // The process's exit code tells the cause. A code of 0 means a missing report.
                code: status
                    .code()
                    .and_then(|code| u8::try_from(code).ok())
                    .filter(|&code| code != 0)
                    .unwrap_or(10),
            }),
        }
    }
}

fn selector_for(file: &str, kind: &str) -> &'static str {
    let fallback = if kind == "xml" { ".xml" } else { ".html" };
    let find = |wanted| QUERIES.iter().find(|(name, _)| *name == wanted);
    find(file).or_else(|| find(fallback)).map_or("*", |(_, selector)| selector)
}

fn times(ratio: f64) -> String {
    let decimals = usize::from(ratio < 10.0);
    format!("{ratio:.decimals$} x")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    comparison::median(values).unwrap_or(f64::NAN)
}

fn show(measured: &[Measured], output: &mut Output) -> Result<(), Failure> {
    let us = |us: f64| output::duration(Duration::from_secs_f64(us / 1e6));
    let rows: Vec<[String; 11]> = measured
        .iter()
        .map(|one| {
            let ready_us = one.open_us + one.query_us;
            let per_node = one.stored_bytes as f64 / one.nodes.max(1) as f64;
            let kept = one.stored_bytes as f64 / one.source_bytes.max(1) as f64;
            [
                one.document.clone(),
                output::bytes(one.source_bytes),
                output::count(one.nodes),
                us(one.parse_ms * 1e3),
                us(one.store_ms * 1e3),
                us(one.open_us),
                us(one.query_us),
                times(one.parse_ms * 1e3 / ready_us),
                us(one.process_ms * 1e3),
                format!("{per_node:.1}"),
                format!("{kept:.2}"),
            ]
        })
        .collect();
    output.line(EXPLANATION)?;
    output.line("")?;
    let head = [
        "DOCUMENT", "SOURCE", "NODES", "PARSE", "STORE", "OPEN", "QUERY", "FASTER", "PROCESS",
        "B/NODE", "KEPT",
    ];
    output.table(head, &rows, &[0])?;
    output.line("")?;
    output.line("KEPT is bytes in the store per byte of source. The queries:")?;
    for one in measured {
        let (document, selector) = (&one.document, one.selector);
        let matches = output::count(one.matches);
        let noun = if one.matches == 1 { "match" } else { "matches" };
        output.line(&format!("  {document}: {selector}  ({matches} {noun})"))?;
    }
    output.line("")?;
    summary(measured).iter().try_for_each(|sentence| output.line(sentence))
}
