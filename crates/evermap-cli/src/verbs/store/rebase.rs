//! `evermap store rebase`: moves a store to other addresses, or undoes that.

use std::path::Path;

use evermap::tools::{Hit, HitKind, RebaseOptions, RebaseReport, Relocation, Typing};
use serde::Serialize;

use super::audit::{Sample, show_samples, typing_word};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Move the store to other addresses by rewriting its pointers
///
/// Use it if something else has the store's addresses. In objects whose root type is known, pointer
/// fields are rewritten. In other objects every word that looks like an address of the store is
/// rewritten: check with --dry-run first. No process may have the store open. The old files are
/// kept in `rebase-<time>` in the store's directory until you remove them.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("place").args(["to", "undo"])))]
#[command(after_help = "\
Examples:
  evermap store rebase --dry-run
  evermap store rebase --to 0x200000000000
  evermap store rebase --undo")]
pub struct Rebase {
    /// New first address, in hexadecimal, a multiple of 0x40000000 [default: an address that none
    /// of your other stores has]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    to: Option<u64>,
    /// Show which words would change, without changing them; the store may be in use
    #[arg(long)]
    dry_run: bool,
    /// Restore the old files; fails if anything was committed since the rebase
    #[arg(long, conflicts_with = "dry_run")]
    undo: bool,
    /// With --undo: undo even if that loses later commits. With --to: use the address even if
    /// another of your stores has it; no process can then open both
    #[arg(long, requires = "place")]
    force: bool,
    /// Show this many words of each kind, with their path from the root
    #[arg(long, value_name = "N", default_value_t = 5)]
    samples: usize,
    /// Print one JSON object per line: objects, a summary
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "give hexadecimal digits, such as 0x200000000000".to_string())
}

/// One line of JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Object(Moved<'a>),
    Summary {
        directory: String,
        from: Vec<Range>,
        to: Option<String>,
        met: Vec<Met>,
        objects: usize,
        guests: &'a [String],
        kept_in: Option<String>,
    },
    Undone {
        directory: String,
        undone: &'a str,
        arenas: Vec<Range>,
    },
}

/// The rewritten pointers of an object, in JSON.
#[derive(Serialize)]
pub struct Moved<'a> {
    name: &'a str,
    typing: &'static str,
    moved: Vec<Kind<'a>>,
    kept: u64,
    kept_samples: Vec<Sample<'a>>,
}

#[derive(Serialize)]
struct Kind<'a> {
    kind: &'static str,
    count: u64,
    samples: Vec<Sample<'a>>,
}

impl<'a> Moved<'a> {
    pub fn of(object: &'a Relocation) -> Moved<'a> {
        let kind = |hit: &'a Hit| Kind {
            kind: hit.kind.word(),
            count: hit.count,
            samples: hit.samples.iter().map(Sample::of).collect(),
        };
        Moved {
            name: &object.object,
            typing: typing_word(object.typing),
            moved: object.moved.iter().map(kind).collect(),
            kept: object.kept,
            kept_samples: object.kept_samples.iter().map(Sample::of).collect(),
        }
    }
}

/// An arena of another store at the new addresses.
#[derive(Serialize)]
struct Met {
    base: String,
    bytes: u64,
    store: String,
}

#[derive(Serialize)]
struct Range {
    base: String,
    bytes: u64,
}

fn ranges(of: &[(u64, u64)]) -> Vec<Range> {
    of.iter().map(|(base, bytes)| Range { base: format!("{base:#x}"), bytes: *bytes }).collect()
}

impl Rebase {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        if self.undo {
            return self.undo(directory);
        }
        let mut options =
            RebaseOptions::new().dry_run(self.dry_run).force(self.force).samples(self.samples);
        if let Some(to) = self.to {
            options = options.to(to);
        }
        let report = evermap::tools::rebase(directory, &options)?;
        let mut output = Output::new();
        if self.json {
            for object in &report.objects {
                output.json(&Line::Object(Moved::of(object)))?;
            }
            output.json(&Line::Summary {
                directory: report.directory.display().to_string(),
                from: ranges(&report.from),
                to: report.to.map(|to| format!("{to:#x}")),
                met: report
                    .met
                    .iter()
                    .map(|(base, bytes, store)| Met {
                        base: format!("{base:#x}"),
                        bytes: *bytes,
                        store: store.display().to_string(),
                    })
                    .collect(),
                objects: report.objects.len(),
                guests: &report.guests,
                kept_in: report.kept_in.as_ref().map(|path| path.display().to_string()),
            })?;
            return output.finish();
        }
        for object in &report.objects {
            show(object, self.dry_run, &mut output)?;
        }
        for name in &report.guests {
            let unchanged = "a guest object, not changed: its addresses are those of its guest";
            output.line(&output::plain(&format!("{name}: {unchanged}")))?;
        }
        self.print_summary(&report, &mut output)?;
        output.finish()
    }

    fn print_summary(&self, report: &RebaseReport, output: &mut Output) -> Result<(), Failure> {
        let from: Vec<String> = report.from.iter().map(|(base, _)| format!("{base:#x}")).collect();
        let from = from.join(", ");
        let objects = output::counted(report.objects.len() as u64, "object");
        for (base, bytes, store) in &report.met {
            let end = base + bytes;
            let refused = if self.dry_run { "; without --force the rebase is refused" } else { "" };
            output.line(&output::plain(&format!(
                "warning: store {} has {base:#x}..{end:#x}: no process can have both open{refused}",
                store.display()
            )))?;
        }
        let Some(kept) = &report.kept_in else {
            let to = report.to.map_or("a free place".to_string(), |to| format!("{to:#x}"));
            return output
                .line(&format!("{objects} would move from {from} to {to}; nothing was changed"));
        };
        let to = report.to.map(|to| format!("{to:#x}")).unwrap_or_default();
        output.line(&output::plain(&format!(
            "{objects} moved from {from} to {to}; the old files are in {}: remove them when they are \
             no longer needed, or undo with `evermap store rebase --undo`",
            kept.display()
        )))
    }

    fn undo(&self, directory: &Path) -> Result<(), Failure> {
        let report = evermap::tools::undo_rebase(directory, self.force)?;
        let mut output = Output::new();
        let arenas = ranges(&report.arenas);
        match self.json {
            true => output.json(&Line::Undone {
                directory: report.directory.display().to_string(),
                undone: &report.undone,
                arenas,
            })?,
            false => {
                let at: Vec<&str> = arenas.iter().map(|arena| arena.base.as_str()).collect();
                output.line(&format!(
                    "undid {}: the store is at {}",
                    report.undone,
                    at.join(", ")
                ))?;
            }
        }
        output.finish()
    }
}

/// Prints the rewritten pointers of an object. `dry_run` means that nothing was changed.
pub fn show(object: &Relocation, dry_run: bool, output: &mut Output) -> Result<(), Failure> {
    let how = match object.typing {
        Typing::Typed => "by type",
        Typing::Partly => "by type where it is described, the rest by value",
        _ => "by value: every word that looks like an address of the store",
    };
    let would_be = if dry_run { "would be " } else { "" };
    let moved: u64 = object.moved.iter().map(|hit| hit.count).sum();
    let pointers = output::counted(moved, "pointer");
    let name = &object.object;
    output.line(&output::plain(&format!("{name}: {pointers} {would_be}rewritten {how}")))?;
    // The line above has the count if there are typed pointers only.
    let is_counted = object.moved.iter().all(|hit| hit.kind == HitKind::Typed);
    for hit in object.moved.iter().filter(|_| !is_counted) {
        let what = match hit.kind {
            HitKind::Typed => "by type",
            HitKind::Beginning => "to the start of a block",
            HitKind::Inside => "into the middle of a block",
            HitKind::NotAllocated => "to unallocated memory of the object",
            HitKind::Bookkeeping => "to the object's metadata",
            HitKind::OtherObject => "to another object",
            _ => "others",
        };
        output.line(&format!("  {:>12}  {what}", output::count(hit.count)))?;
        if hit.kind != HitKind::Typed {
            show_samples(&hit.samples, output)?;
        }
    }
    if object.kept > 0 {
        let kept = output::count(object.kept);
        let what = "look like addresses but stay: not pointers by type, or not reachable";
        output.line(&format!("  {kept:>12}  {what}"))?;
        show_samples(&object.kept_samples, output)?;
    }
    Ok(())
}
