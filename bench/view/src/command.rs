//! Runs the `evermap` command, and parses its reports about pages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use crate::environment;
use crate::pages::Page;
use harness::Outcome;
use harness::process::find_program;
use harness::running::{Ended, Running};

pub const WIDTH: u32 = 1024;
pub const HEIGHT: u32 = 768;

/// Output of `render --timing --json`. Times are within the process, up to the last pixel in
/// memory.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    pub warm: bool,
    /// Reasons why the page is warm or cold.
    #[serde(default)]
    pub reasons: Vec<String>,
    pub disk_ms: f64,
    pub parse_ms: f64,
    pub layout_ms: f64,
    /// From the finished layout to a page block.
    pub record_ms: f64,
    pub paint_ms: f64,
    pub total_ms: f64,
    /// Time of the last pixel in memory, in nanoseconds of the monotonic clock.
    pub painted_ns: u64,
    #[serde(default)]
    pub commands: u64,
    /// Sizes, if they were requested.
    #[serde(default)]
    pub sizes: Sizes,
}

/// Sizes of the stored parts of a page.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Sizes {
    pub tree_bytes: u64,
    pub font_bytes: u64,
    pub image_bytes: u64,
    pub strip_bytes: u64,
    pub document_bytes: u64,
}

impl Report {
    pub fn read(output: &str) -> Outcome<Report> {
        let line = output.lines().find(|line| line.starts_with('{'));
        let line = line.ok_or("`evermap render --timing --json` printed no JSON")?;
        serde_json::from_str(line).map_err(|error| format!("{error} in: {line}").into())
    }
}

impl Sizes {
    /// Sum of all stored layers.
    pub fn kept_bytes(&self) -> u64 {
        self.tree_bytes
            + self.font_bytes
            + self.image_bytes
            + self.strip_bytes
            + self.document_bytes
    }
}

/// Source of a page's first paint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// The page's source; stores nothing.
    Cold,
    /// The page's source; stores the page.
    ColdKeeping,
    /// All stored layers.
    Warm,
    /// These stored layers only.
    Layers(&'static str),
}

impl Start {
    fn arguments(self) -> Vec<&'static str> {
        match self {
            Start::Cold => vec!["--cold", "--no-keep"],
            Start::ColdKeeping => vec!["--cold"],
            // Without `--no-keep` the command would record its speed and might choose another
            // source in a later round.
            Start::Warm => vec!["--no-keep"],
            Start::Layers(layers) => vec!["--layers", layers, "--no-keep"],
        }
    }
}

/// Page that a new process painted.
pub struct Painted {
    /// From before the start of the process until the last pixel was in memory.
    pub shown: Duration,
    pub ended: Ended,
    pub report: Report,
}

#[derive(Clone)]
pub struct Evermap {
    program: PathBuf,
}

impl Evermap {
    /// Finds the command, by its path or in PATH.
    pub fn find(given: &Path) -> Outcome<Evermap> {
        let program = given.canonicalize().ok();
        let program = program.or_else(|| find_program(&given.to_string_lossy()));
        let program = program.ok_or_else(|| format!("{} was not found", given.display()))?;
        Ok(Evermap { program })
    }
}

/// Store of pages, and the home folder of the programs that use it.
pub struct PageStore {
    evermap: Evermap,
    home: TempDir,
    store: PathBuf,
}

impl PageStore {
    /// Creates a page store in this folder.
    pub fn new(evermap: &Evermap, folder: &Path) -> Outcome<PageStore> {
        let home = tempfile::tempdir()?;
        Ok(PageStore { evermap: evermap.clone(), home, store: folder.join("store") })
    }

    /// The home folder of the programs that use it.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self) -> Command {
        let mut command = environment::command(&self.evermap.program, self.home.path());
        command.arg("--store").arg(&self.store);
        command
    }

    fn render(&self, page: &Page, start: Start) -> Command {
        let mut command = self.command();
        command.arg("render").arg(&page.path).args(start.arguments());
        command.args(["--width", &WIDTH.to_string(), "--height", &HEIGHT.to_string()]);
        command
    }

    /// Returns the command for a window with the page. The page must be stored for a warm start.
    pub fn view(&self, page: &Page) -> Command {
        let mut command = self.command();
        command.arg("view").arg(&page.path);
        command
    }

    /// Returns the command that writes a picture of the window's part of the page, or of the whole
    /// page.
    pub fn picture(&self, page: &Page, start: Start, full: bool, to: &Path) -> Command {
        let mut command = self.render(page, start);
        if full {
            command.arg("--full");
        }
        command.arg("-o").arg(to);
        command
    }

    /// Paints a page into memory, in a new process.
    pub fn time(&self, page: &Page, start: Start) -> Outcome<Painted> {
        self.paint(page, start, &[])
    }

    /// Returns true if the viewer uses the stored page when it may choose.
    pub fn shows_kept(&self, page: &Page) -> Outcome<bool> {
        let mut command = self.command();
        command.arg("render").arg(&page.path).args(["--timing", "--json"]);
        Ok(Report::read(&Running::start_family(command)?.finish()?.output)?.warm)
    }

    fn paint(&self, page: &Page, start: Start, options: &[&str]) -> Outcome<Painted> {
        let mut command = self.render(page, start);
        command.args(["--timing", "--json"]).args(options);
        let ended = Running::start_family(command)?.finish()?;
        let report = Report::read(&ended.output)?;
        let warm = matches!(start, Start::Warm);
        if warm != report.warm && !matches!(start, Start::Layers(_)) {
            let (is, should) = (heat(report.warm), heat(warm));
            let reasons = report.reasons.join("; ");
            return Err(format!("{} is {is} and should be {should}: {reasons}", page.name).into());
        }
        let shown = report.painted_ns.checked_sub(ended.started_ns);
        let shown = shown.map(Duration::from_nanos).filter(|shown| *shown <= ended.whole);
        let shown =
            shown.ok_or("the reported time of the last pixel is outside the process's lifetime")?;
        Ok(Painted { shown, ended, report })
    }

    /// Stores a page, checks that it is stored, and returns its sizes.
    pub fn keep(&self, page: &Page) -> Outcome<Report> {
        self.time(page, Start::ColdKeeping)?;
        Ok(self.paint(page, Start::Warm, &["--sizes"])?.report)
    }
}

fn heat(warm: bool) -> &'static str {
    if warm { "warm" } else { "cold" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LINE: &str = r#"{"page":"file:///p.html","warm":true,"reasons":["all the same"],"width":1024,
        "height":768,"disk_ms":0.5,"parse_ms":0,"layout_ms":0,"record_ms":0,"paint_ms":2.25,"total_ms":3,"painted_ns":17,
        "keep_ms":0,"commands":10,"sizes":{"tree_bytes":1,"font_bytes":2,"image_bytes":4,"strip_bytes":8,
        "document_bytes":16}}"#;

    #[test]
    fn a_report_is_found_among_other_lines() {
        let line = LINE.replace('\n', " ");
        let report = Report::read(&format!("note: something\n{line}\n")).unwrap();
        assert!(report.warm && report.paint_ms == 2.25 && report.commands == 10);
        assert_eq!(report.sizes.kept_bytes(), 31);
    }

    #[test]
    fn a_report_without_a_time_is_refused_and_the_time_named() {
        let line = LINE.replace('\n', " ").replace("\"paint_ms\":2.25,", "");
        let error = Report::read(&line).unwrap_err().to_string();
        assert!(error.contains("paint_ms"), "{error}");
        assert!(Report::read("painted\n").is_err());
    }

    #[test]
    fn each_start_has_its_own_options() {
        assert_eq!(Start::Cold.arguments(), ["--cold", "--no-keep"]);
        assert_eq!(Start::Layers("ab").arguments(), ["--layers", "ab", "--no-keep"]);
        assert_eq!(Start::Warm.arguments(), ["--no-keep"]);
    }
}
