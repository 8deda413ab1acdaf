//! `evermap store check`: reports damage in a store, and repairs it.

use std::path::Path;

use evermap::tools::{CheckOptions, Finding, ObjectReport, Report, Severity, Unchecked};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;

/// Check the store for damage, and repair it with --repair
///
/// Checks superblocks, regions, logs, allocators and page checksums of the catalog and of every
/// object, and the catalog against the files. It maps nothing, needs no write permission, and works
/// while the store is in use: the last commit of each object is checked. Exits with 5 if anything
/// is damaged.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap store check
  evermap store check --repair --quarantine")]
pub struct Check {
    /// Repair damage if no data is lost, and remove damaged data of the viewer, which it makes
    /// again. The old files are kept in `repair-<time>` in the store's directory
    #[arg(long)]
    repair: bool,
    /// With --repair: accept pages that do not match their checksums. Check the data first
    #[arg(long, requires = "repair")]
    accept_data: bool,
    /// With --repair: move damaged objects out of the store
    #[arg(long, requires = "repair")]
    quarantine: bool,
    /// Print one JSON object per line: objects, findings, unchecked files, actions, a summary
    #[arg(long)]
    json: bool,
}

/// One line of JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Object {
        name: Option<&'a str>,
        file: String,
        sequence: u64,
        file_bytes: u64,
        log_commits: u64,
        blocks: u64,
        allocated_bytes: u64,
        pages_verified: Option<u64>,
        blocks_reached: Option<u64>,
    },
    Finding(Found<'a>),
    Unchecked {
        name: Option<&'a str>,
        file: String,
        error: String,
    },
    Action {
        what: &'a str,
    },
    Summary {
        objects: u64,
        damage: usize,
        suspect: usize,
        leftover: usize,
        unchecked: usize,
        repaired: usize,
        kept_in: Option<String>,
    },
}

/// A finding in JSON.
#[derive(Serialize)]
pub struct Found<'a> {
    severity: String,
    name: Option<&'a str>,
    file: String,
    what: &'a str,
    found: &'a str,
    expected: &'a str,
    remedy: &'a str,
    repairable: bool,
    repaired: bool,
}

impl<'a> Found<'a> {
    pub fn of(finding: &'a Finding) -> Found<'a> {
        Found {
            severity: finding.severity.to_string(),
            name: finding.object.as_deref(),
            file: finding.file.display().to_string(),
            what: &finding.what,
            found: &finding.found,
            expected: &finding.expected,
            remedy: &finding.remedy,
            repairable: finding.repairable,
            repaired: finding.repaired,
        }
    }
}

impl Check {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let progress = ToolProgress::new(directory, "checking");
        let options = CheckOptions::new()
            .repair(self.repair)
            .accept_data(self.accept_data)
            .quarantine(self.quarantine)
            .caches(is_viewer_object)
            .on_progress(progress.callback());
        let checked = evermap::tools::check(directory, &options);
        drop(progress);
        let report = checked?;
        let mut output = Output::new();
        match self.json {
            true => lines(&report).iter().try_for_each(|line| output.json(line))?,
            false => print_text(&report, &mut output)?,
        }
        output.finish()?;
        if report.is_damaged() {
            let damage = count(&report, |f| f.severity == Severity::Damage && !f.repaired);
            return Err(Failure::DamageFound(format!(
                "store {} is damaged in {} (listed above); `evermap store check --help` shows what can be repaired",
                directory.display(),
                output::counted(damage as u64, "place")
            )));
        }
        match report.unchecked.into_iter().next() {
            Some(unchecked) => Err(unchecked.error.into()),
            None => Ok(()),
        }
    }
}

/// Returns true for the name of an object that the viewer keeps, and makes again if it is missing.
fn is_viewer_object(name: &str) -> bool {
    let is_hash = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let shared = ["font-", "image-", "http-"];
    if let Some(hash) = shared.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        return is_hash(hash, 32);
    }
    let endings = [".document", ".slow", ".retry"];
    let page = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let hash = page.strip_prefix("page-").and_then(|page| page.rsplit_once('-'));
    hash.is_some_and(|(_, hash)| is_hash(hash, 16))
}

fn count(report: &Report, wanted: impl Fn(&Finding) -> bool) -> usize {
    report.findings.iter().filter(|finding| wanted(finding)).count()
}

fn lines(report: &Report) -> Vec<Line<'_>> {
    let objects = report.objects.iter().map(|object: &ObjectReport| Line::Object {
        name: object.object.as_deref(),
        file: object.file.display().to_string(),
        sequence: object.sequence,
        file_bytes: object.file_bytes,
        log_commits: object.log_commits,
        blocks: object.blocks,
        allocated_bytes: object.allocated_bytes,
        pages_verified: object.pages_verified,
        blocks_reached: object.blocks_reached,
    });
    let findings = report.findings.iter().map(|finding| Line::Finding(Found::of(finding)));
    let unchecked = report.unchecked.iter().map(|unchecked: &Unchecked| Line::Unchecked {
        name: unchecked.object.as_deref(),
        file: unchecked.file.display().to_string(),
        error: unchecked.error.to_string(),
    });
    let actions = report.actions.iter().map(|what| Line::Action { what });
    let severe = |severity| count(report, |f| f.severity == severity);
    let summary = Line::Summary {
        objects: object_count(report),
        damage: severe(Severity::Damage),
        suspect: severe(Severity::Suspect),
        leftover: severe(Severity::Leftover),
        unchecked: report.unchecked.len(),
        repaired: count(report, |f| f.repaired),
        kept_in: report.kept_in.as_ref().map(|path| path.display().to_string()),
    };
    objects.chain(findings).chain(unchecked).chain(actions).chain([summary]).collect()
}

/// Returns the number of checked objects, without the catalog.
fn object_count(report: &Report) -> u64 {
    report.objects.iter().filter(|object| object.file != Path::new("catalog")).count() as u64
}

/// Prints a finding, on several lines.
pub fn show(finding: &Finding, output: &mut Output) -> Result<(), Failure> {
    let name = finding.object.as_ref().map(|name| format!(" (`{name}`)")).unwrap_or_default();
    let line = format!(
        "{:<8}  {}{name}: {}\n          found {}, expected {}",
        finding.severity,
        finding.file.display(),
        finding.what,
        finding.found,
        finding.expected,
    );
    output.line(&output::plain(&line))?;
    match finding.repaired {
        true => output.line("          repaired"),
        false => output.line(&format!("          {}", finding.remedy)),
    }
}

fn print_text(report: &Report, output: &mut Output) -> Result<(), Failure> {
    report.findings.iter().try_for_each(|finding| show(finding, output))?;
    for unchecked in &report.unchecked {
        let line = format!("unchecked {}: {}", unchecked.file.display(), unchecked.error);
        output.line(&output::plain(&line))?;
    }
    for action in &report.actions {
        output.line(&output::plain(&format!("repair    {action}")))?;
    }
    if let Some(path) = &report.kept_in {
        output.line(&format!("kept      changed and removed files, in {}", path.display()))?;
    }
    let allocated: u64 = report.objects.iter().map(|object| object.allocated_bytes).sum();
    let verified: u64 = report.objects.iter().filter_map(|object| object.pages_verified).sum();
    output.line(&format!(
        "{} checked: {} allocated, {} compared with the checksum; {}",
        output::counted(object_count(report), "object"),
        output::bytes(allocated),
        output::counted(verified, "page"),
        verdict(report),
    ))
}

fn verdict(report: &Report) -> String {
    let mut parts = Vec::new();
    for severity in [Severity::Damage, Severity::Suspect, Severity::Leftover] {
        let number = count(report, |f| f.severity == severity && !f.repaired);
        if number > 0 {
            parts.push(format!("{number} {severity}"));
        }
    }
    let repaired = count(report, |f| f.repaired);
    if repaired > 0 {
        parts.push(format!("{repaired} repaired"));
    }
    if !report.unchecked.is_empty() {
        parts.push(format!("{} not checked", report.unchecked.len()));
    }
    match parts.is_empty() {
        true => "nothing found".to_string(),
        false => parts.join(", "),
    }
}
