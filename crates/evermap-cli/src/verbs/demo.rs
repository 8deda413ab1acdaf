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
use crate::failure::{Failure, io_exit_code};
use crate::output::{self, Output};

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

const EXPLANATION: &str = "\
Each document is parsed and stored by one process, then opened and queried by new processes.
PARSE is the time from bytes in memory to a tree that can be queried. A program without Evermap
spends it at every start. STORE is the time to make the tree durable. OPEN is the time to open
store and document, and QUERY the time of the first query, in a new process (medians of 21
processes). FASTER is PARSE divided by OPEN + QUERY. PROCESS is the whole run time of a new
process. The page cache is warm.";

/// Measure how much faster reopening is than parsing on this machine
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Your own documents, measured after the example documents
    docs: Vec<PathBuf>,
    /// Directory of the example documents
    #[arg(long, value_name = "DIR", default_value = "examples/pages")]
    pages: PathBuf,
    /// Print one JSON object per line for each document
    #[arg(long)]
    json: bool,
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
}

impl Demo {
    pub fn run(&self) -> Result<(), Failure> {
        let documents = self.documents()?;
        let bench = Bench::new()?;
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
        output.finish()
    }

    /// Returns the example pages by size, then the user's own documents.
    fn documents(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut pages = Vec::new();
        match std::fs::read_dir(&self.pages) {
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
            Err(error) => {
                return Err(Failure::Usage(format!(
                    "no example pages at {}: {error}; run in the project's directory, or name documents to measure",
                    self.pages.display()
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

fn failed(what: &str, error: std::io::Error) -> Failure {
    Failure::Demo { code: io_exit_code(&error, 10), why: format!("{what}: {error}") }
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
            document: output::plain(&file),
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
        let finished =
            command.output().map_err(|error| failed(&self.program.display().to_string(), error))?;
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

/// Returns the median. The number of values is always odd here.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    evermap_trace::quantile(&values, 0.5).unwrap_or(f64::NAN)
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
    Ok(())
}
