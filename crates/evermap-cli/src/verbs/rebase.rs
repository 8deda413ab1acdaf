//! `evermap rebase`: moves a store to other addresses, or back.

use std::path::Path;

use evermap::tools::{Hit, HitKind, RebaseOptions, RebaseReport, Relocation, Typing};
use serde::Serialize;

use super::audit::{Sample, show_samples, typing_word};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Move the store to other addresses by rewriting its pointers
///
/// For stores whose addresses something else has. Pointer fields are known where the type of an
/// object's root is; in other objects every word that looks like an address of the store is
/// rewritten: look at --dry-run first. Nobody may have the store open. The old files are kept in
/// `rebase-<time>` in the store's directory until you remove that.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("place").args(["to", "undo"])))]
pub struct Rebase {
    /// The first address the store is to have, in hexadecimal, a multiple of 0x40000000 [default:
    /// one that no other store of yours has]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    to: Option<u64>,
    /// Only tell which words would change; the store may be in use
    #[arg(long)]
    dry_run: bool,
    /// Put the old files back; refused when something was committed since
    #[arg(long, conflicts_with = "dry_run")]
    undo: bool,
    /// With --undo: go back although that loses what was committed since. With --to: go there
    /// although another store of yours has noted those addresses; no process can have both open
    #[arg(long, requires = "place")]
    force: bool,
    /// Show this many words of each kind, with their path from the root
    #[arg(long, value_name = "N", default_value_t = 5)]
    samples: usize,
    /// One JSON object per line: objects, a summary
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "an address is hexadecimal digits, such as 0x200000000000".to_string())
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

/// What happens to an object, in JSON.
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

/// An arena of another store at the place that was asked for.
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
            let stays = "a guest object, which stays as it is: its addresses are a guest's";
            output.line(&output::plain(&format!("{name}: {stays}")))?;
        }
        self.tell(&report, &mut output)?;
        output.finish()
    }

    fn tell(&self, report: &RebaseReport, output: &mut Output) -> Result<(), Failure> {
        let from: Vec<String> = report.from.iter().map(|(base, _)| format!("{base:#x}")).collect();
        let from = from.join(", ");
        let objects = output::count(report.objects.len() as u64);
        for (base, bytes, store) in &report.met {
            let end = base + bytes;
            let will =
                if self.dry_run { "; without --force the store will not go there" } else { "" };
            output.line(&output::plain(&format!(
                "warning: store {} has noted {base:#x}..{end:#x}: no process can have both open{will}",
                store.display()
            )))?;
        }
        let Some(kept) = &report.kept_in else {
            let to = report.to.map_or("a free place".to_string(), |to| format!("{to:#x}"));
            return output.line(&format!(
                "{objects} objects would move from {from} to {to}; nothing changed"
            ));
        };
        let to = report.to.map(|to| format!("{to:#x}")).unwrap_or_default();
        output.line(&format!("{objects} objects moved from {from} to {to}"))?;
        output.line(&output::plain(&format!(
            "the old files are in {}: remove them when all is well, or go back with \
             `evermap rebase --undo`",
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

/// What happens to an object, in words.
pub fn show(object: &Relocation, would: bool, output: &mut Output) -> Result<(), Failure> {
    let how = match object.typing {
        Typing::Typed => "by its types",
        Typing::Partly => "by its types as far as their description goes, the rest by value",
        _ => "by value: every word that looks like an address of the store",
    };
    let will = if would { "would be " } else { "" };
    output.line(&output::plain(&format!("{}: pointers {will}rewritten {how}", object.object)))?;
    for hit in &object.moved {
        let what = match hit.kind {
            HitKind::Typed => "pointers by their type",
            HitKind::Beginning => "to the beginning of a block",
            HitKind::Inside => "into the middle of a block",
            HitKind::NotAllocated => "into the object, where nothing is allocated",
            HitKind::Bookkeeping => "into the object's own bookkeeping",
            HitKind::OtherObject => "into another object",
            _ => "others",
        };
        output.line(&format!("  {:>12}  {what}", output::count(hit.count)))?;
        if hit.kind != HitKind::Typed {
            show_samples(&hit.samples, output)?;
        }
    }
    if object.kept > 0 {
        let kept = output::count(object.kept);
        let what = "look like addresses and stay: no pointers by their type, or out of reach";
        output.line(&format!("  {kept:>12}  {what}"))?;
        show_samples(&object.kept_samples, output)?;
    }
    Ok(())
}
