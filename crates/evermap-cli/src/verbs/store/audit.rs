//! `evermap store audit`: reports invalid pointers and leaked blocks of an object.

use std::io;
use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::Error;
use evermap::tools::{
    AuditOptions, AuditReport, LeakSample, MemoryMap, PointerFinding, PointerSample, Severity,
    Typing,
};
use serde::Serialize;

use crate::completion::objects;
use crate::failure::Failure;
use crate::names;
use crate::output::{self, Output};

/// Find invalid pointers and leaked memory in an object
///
/// Reads the object's last commit without mapping it, so the object may be in use. If the type of
/// its root is known, its pointer fields are followed; otherwise every word that could be an
/// address counts as one. Reports pointers to programs, libraries and other stores, dangling
/// pointers, inconsistent containers, and leaks. Exits with 5 if a program that uses the object
/// would break.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap store audit index --strict
  evermap store audit index --pid 4711 --samples 20")]
pub struct Audit {
    /// Name of the object; `evermap ls` lists the names
    #[arg(add = ArgValueCompleter::new(objects))]
    name: String,
    /// Running process that uses the object; used to name the targets of foreign pointers
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Show this many pointers of each kind, with their path from the root
    #[arg(long, value_name = "N", default_value_t = 5)]
    samples: usize,
    /// Exit with 5 also for suspects and leaks
    #[arg(long)]
    strict: bool,
    /// Print one JSON object per line: findings, leaks, sizes, types, a summary
    #[arg(long)]
    json: bool,
}

/// One line of JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Finding {
        severity: String,
        kind: &'static str,
        confidence: String,
        to: &'a str,
        count: u64,
        samples: Vec<Sample<'a>>,
    },
    Warning {
        kind: &'static str,
        text: String,
    },
    Leaks {
        blocks: u64,
        bytes: u64,
        heads: u64,
        samples: Vec<Leak>,
    },
    Size {
        block_bytes: u64,
        large: bool,
        blocks: u64,
        bytes: u64,
        leaked_blocks: u64,
        leaked_bytes: u64,
    },
    Values {
        name: &'a str,
        values: u64,
        value_bytes: u64,
    },
    Summary {
        name: &'a str,
        file: String,
        sequence: u64,
        typing: &'static str,
        root: bool,
        blocks: u64,
        bytes: u64,
        reached_blocks: u64,
        reached_bytes: u64,
        looked_at: u64,
        interior: u64,
        damage: u64,
        suspect: u64,
        damaged_chunks: u64,
        table_bytes: u64,
    },
}

/// A pointer in JSON. Addresses are text, because some JSON readers have no 64-bit numbers.
#[derive(Serialize)]
pub struct Sample<'a> {
    path: &'a str,
    address: String,
    value: String,
}

impl<'a> Sample<'a> {
    pub fn of(sample: &'a PointerSample) -> Sample<'a> {
        let (address, value) = (format!("{:#x}", sample.address), format!("{:#x}", sample.value));
        Sample { path: &sample.path, address, value }
    }
}

#[derive(Serialize)]
struct Leak {
    address: String,
    bytes: u64,
    head: bool,
}

impl Audit {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let mut options = AuditOptions::new().samples(self.samples);
        if let Some(id) = self.pid {
            let map = MemoryMap::of_process(id).map_err(|error| match error {
                Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    Failure::NoProcess { id }
                }
                Error::NotPermitted { why, .. } => Failure::ProcessDenied { id, why },
                Error::Io { path, source, .. } => Failure::Source { path, source },
                other => other.into(),
            })?;
            options = options.memory_map(map);
        }
        let name = names::resolve_closed(directory, &self.name)?;
        let report = evermap::tools::audit(directory, &name, &options)?;
        let mut output = Output::new();
        match self.json {
            true => lines(&report).iter().try_for_each(|line| output.json(line))?,
            false => print_text(&report, &mut output)?,
        }
        output.finish()?;
        if report.is_damaged() || (self.strict && !report.is_clean()) {
            return Err(Failure::DamageFound(format!(
                "object `{}`: {}",
                self.name,
                verdict(&report)
            )));
        }
        Ok(())
    }
}

fn sum(report: &AuditReport, severity: Severity) -> u64 {
    report.findings.iter().filter(|f| f.severity == severity).map(|f| f.count).sum()
}

pub fn typing_word(typing: Typing) -> &'static str {
    match typing {
        Typing::Typed => "typed",
        Typing::Partly => "partly",
        _ => "untyped",
    }
}

fn lines(report: &AuditReport) -> Vec<Line<'_>> {
    let findings = report.findings.iter().map(|finding: &PointerFinding| Line::Finding {
        severity: finding.severity.to_string(),
        kind: finding.kind.word(),
        confidence: finding.confidence.to_string(),
        to: &finding.to,
        count: finding.count,
        samples: finding.samples.iter().map(Sample::of).collect(),
    });
    let warning =
        report.doubt().map(|doubt| Line::Warning { kind: doubt.word(), text: doubt.to_string() });
    let leak = |leak: &LeakSample| Leak {
        address: format!("{:#x}", leak.address),
        bytes: leak.bytes,
        head: leak.is_head,
    };
    let leaks = Line::Leaks {
        blocks: report.leaks.blocks,
        bytes: report.leaks.bytes,
        heads: report.leaks.heads,
        samples: report.leaks.samples.iter().map(leak).collect(),
    };
    let sizes = report.sizes.iter().map(|size| Line::Size {
        block_bytes: size.block_bytes,
        large: size.is_large,
        blocks: size.blocks,
        bytes: size.bytes,
        leaked_blocks: size.leaked_blocks,
        leaked_bytes: size.leaked_bytes,
    });
    let types = report.types.iter().map(|of| Line::Values {
        name: &of.name,
        values: of.values,
        value_bytes: of.value_bytes,
    });
    let summary = Line::Summary {
        name: &report.object,
        file: report.file.display().to_string(),
        sequence: report.sequence,
        typing: typing_word(report.typing),
        root: report.has_root,
        blocks: report.blocks,
        bytes: report.bytes,
        reached_blocks: report.reached_blocks,
        reached_bytes: report.reached_bytes,
        looked_at: report.looked_at,
        interior: report.interior,
        damage: sum(report, Severity::Damage),
        suspect: sum(report, Severity::Suspect),
        damaged_chunks: report.damaged_chunks,
        table_bytes: report.table_bytes,
    };
    findings.chain(warning).chain([leaks]).chain(sizes).chain(types).chain([summary]).collect()
}

pub fn show_samples(samples: &[PointerSample], output: &mut Output) -> Result<(), Failure> {
    samples.iter().try_for_each(|sample| {
        let line = format!("          {} = {:#x}", sample.path, sample.value);
        output.line(&output::plain(&line))
    })
}

fn print_text(report: &AuditReport, output: &mut Output) -> Result<(), Failure> {
    for finding in &report.findings {
        let line = format!(
            "{:<8}  {} {} ({}): {}",
            finding.severity,
            output::count(finding.count),
            finding.kind,
            finding.confidence,
            finding.to,
        );
        output.line(&output::plain(&line))?;
        show_samples(&finding.samples, output)?;
    }
    if report.damaged_chunks > 0 {
        let chunks = output::counted(report.damaged_chunks, "chunk");
        output.line(&format!("damage    {chunks} of the allocator: see `evermap store check`"))?;
    }
    show_leaks(report, output)?;
    show_sizes(report, output)?;
    if !report.types.is_empty() {
        output.line("")?;
        let row = |of: &evermap::tools::TypeCount| {
            [output::plain(&of.name), output::count(of.values), output::bytes(of.value_bytes)]
        };
        let rows: Vec<[String; 3]> = report.types.iter().map(row).collect();
        output.table(["type", "values", "each"], &rows, &[0])?;
    }
    output.line("")?;
    let read = match report.typing {
        Typing::Typed => "read by type",
        Typing::Partly => "read by type where it is described",
        _ => "of unknown type: every word that could be an address counts as one",
    };
    output.line(&format!(
        "{}, {}, {} of them reachable from the root; {read}; {}",
        output::counted(report.blocks, "block"),
        output::bytes(report.bytes),
        output::count(report.reached_blocks),
        verdict(report),
    ))
}

fn show_leaks(report: &AuditReport, output: &mut Output) -> Result<(), Failure> {
    let leaks = &report.leaks;
    if leaks.blocks == 0 {
        return Ok(());
    }
    let doubt = report.doubt();
    if let Some(doubt) = doubt {
        output.line(&format!("warning   {doubt}"))?;
    }
    let word = if doubt.is_some() { "unreached" } else { "leaked   " };
    output.line(&format!(
        "{word} {}, {}, with {}",
        output::counted(leaks.blocks, "block"),
        output::bytes(leaks.bytes),
        output::counted(leaks.heads, "head"),
    ))?;
    leaks.samples.iter().try_for_each(|leak| {
        let of = if leak.is_head { "" } else { ", reachable from another leaked block" };
        output.line(&format!(
            "          {:#x}, {}{of}",
            leak.address,
            output::counted(leak.bytes, "byte")
        ))
    })
}

fn show_sizes(report: &AuditReport, output: &mut Output) -> Result<(), Failure> {
    if report.sizes.is_empty() {
        return Ok(());
    }
    if !report.findings.is_empty() || report.leaks.blocks > 0 {
        output.line("")?;
    }
    let row = |size: &evermap::tools::SizeCount| {
        let up_to = if size.is_large { "up to " } else { "" };
        [
            format!("{up_to}{}", size.block_bytes),
            output::count(size.blocks),
            output::bytes(size.bytes),
            output::count(size.leaked_blocks),
            output::bytes(size.leaked_bytes),
        ]
    };
    let rows: Vec<[String; 5]> = report.sizes.iter().map(row).collect();
    output.table(["block", "blocks", "bytes", "leaked", "bytes leaked"], &rows, &[])
}

fn verdict(report: &AuditReport) -> String {
    let mut parts = Vec::new();
    let (damage, suspect) = (sum(report, Severity::Damage), sum(report, Severity::Suspect));
    if damage > 0 {
        parts.push(format!("{} damaged", output::counted(damage, "pointer")));
    }
    if report.damaged_chunks > 0 {
        parts.push("the allocator is damaged".to_string());
    }
    if suspect > 0 {
        parts.push(format!("{} suspect", output::count(suspect)));
    }
    if report.leaks.blocks > 0 {
        let blocks = output::counted(report.leaks.blocks, "block");
        parts.push(match report.doubt() {
            None => format!("{blocks} leaked"),
            Some(_) => format!("{blocks} without a visible path from the root"),
        });
    }
    match parts.is_empty() {
        true => "nothing found".to_string(),
        false => parts.join(", "),
    }
}
