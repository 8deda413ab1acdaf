//! `evermap store stats`: prints sizes and counts of objects, once or periodically.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use clap_complete::ArgValueCompleter;
use console::Term;
use evermap::tools::{self, ObjectMap};
use serde::Serialize;

use super::map::{Class, Totals};
use crate::completion::objects;
use crate::failure::Failure;
use crate::names;
use crate::output::{self, Output};

/// Show sizes, blocks and commits of objects
///
/// Shows allocated, stored and resident bytes, the number of commits, the log, open readers and
/// writers, and blocks by size, as of each object's last commit. The objects may be in use.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap store stats index --watch")]
pub struct Stats {
    /// Names of the objects; `evermap ls` lists them
    #[arg(value_name = "NAME", required = true)]
    #[arg(add = ArgValueCompleter::new(objects))]
    names: Vec<String>,
    /// Repeat every SECONDS (1) until interrupted, and show changes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
    /// Print one JSON object per line for each object and sample
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.01 and 86400 seconds".to_string()),
    }
}

/// State of one object at one time.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    name: String,
    /// Milliseconds since the first sample.
    at_ms: u64,
    #[serde(flatten)]
    found: Found,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Found {
    Present(Box<State>),
    Gone { gone: String },
}

#[derive(Clone, Debug, Serialize)]
struct State {
    uuid: String,
    commit: u64,
    writer: bool,
    reader: bool,
    file_bytes: u64,
    log_bytes: u64,
    #[serde(flatten)]
    totals: Totals,
    classes: Vec<Class>,
    /// Changes since the previous sample. Empty in the first sample and after a replacement.
    #[serde(flatten)]
    since: Since,
    /// True if another object took the name since the previous sample.
    replaced: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Since {
    commits_since: Option<u64>,
    blocks_since: Option<i64>,
    allocated_bytes_since: Option<i64>,
}

impl Since {
    fn of(before: &State, now: &State) -> Since {
        let change = |of: fn(&Totals) -> u64| {
            Some(of(&now.totals).wrapping_sub(of(&before.totals)).cast_signed())
        };
        Since {
            commits_since: Some(now.commit.saturating_sub(before.commit)),
            blocks_since: change(|totals| totals.blocks),
            allocated_bytes_since: change(|totals| totals.allocated_bytes),
        }
    }
}

impl State {
    fn of(map: &ObjectMap) -> State {
        State {
            uuid: map.uuid.clone(),
            commit: map.sequence,
            writer: map.written,
            reader: map.read == Some(true),
            file_bytes: map.file_bytes,
            log_bytes: map.log_bytes,
            totals: Totals::of(map),
            classes: Class::all_of(map),
            since: Since::default(),
            replaced: false,
        }
    }
}

impl Stats {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let started = Instant::now();
        let terminal = Term::stdout();
        let redraw = self.watch.is_some() && terminal.is_term() && !self.json;
        let mut before: BTreeMap<String, State> = BTreeMap::new();
        let names: Vec<String> = self
            .names
            .iter()
            .map(|name| names::resolve_closed(directory, name))
            .collect::<Result<_, _>>()?;
        let mut next = started;
        for number in 0.. {
            let mut samples = Vec::new();
            for name in &names {
                let state = match tools::map(directory, name) {
                    Ok(map) => Ok(State::of(&map)),
                    // An object that existed before may be in the middle of a replacement or a
                    // rename, so the watch continues.
                    Err(error) if number > 0 => Err(error.to_string()),
                    Err(error) => return Err(error.into()),
                };
                let at_ms = started.elapsed().as_millis() as u64;
                samples.push(compared(name, at_ms, state, &mut before));
            }
            let mut output = Output::new();
            if redraw {
                // Clears the whole screen, whose size may have changed.
                output.raw().write_all(b"\x1b[H\x1b[J")?;
            }
            self.show(&samples, (number, redraw), &mut output)?;
            output.finish()?;
            let Some(period) = self.watch else { break };
            next += period;
            // Samples that were missed while the machine was suspended are not made up for.
            next = next.max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()).max(MIN_PAUSE));
        }
        Ok(())
    }

    fn show(
        &self,
        samples: &[Sample],
        (number, redraw): (u64, bool),
        output: &mut Output,
    ) -> Result<(), Failure> {
        if self.json {
            return samples.iter().try_for_each(|sample| output.json(sample));
        }
        if number > 0 && !redraw {
            output.line("")?;
        }
        summary(samples, output)?;
        let lines = match redraw {
            // The summary, a blank line and a header are above the classes.
            true => Term::stdout().size().0.saturating_sub(samples.len() as u16 + 4) as usize,
            false => usize::MAX,
        };
        classes(samples, lines, output)
    }
}

/// Minimum pause between two samples, also if a sample took longer than the period.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// Makes a sample: computes the changes since the previous state, and replaces that in `before`.
fn compared(
    name: &str,
    at_ms: u64,
    state: Result<State, String>,
    before: &mut BTreeMap<String, State>,
) -> Sample {
    let found = match state {
        Ok(mut state) => {
            if let Some(last) = before.get(name) {
                state.replaced = last.uuid != state.uuid;
                if !state.replaced {
                    state.since = Since::of(last, &state);
                }
            }
            before.insert(name.to_string(), state.clone());
            Found::Present(Box::new(state))
        }
        Err(gone) => Found::Gone { gone },
    };
    Sample { name: name.to_string(), at_ms, found }
}

/// Columns of the table of objects.
const COLUMNS: usize = 12;

fn summary(samples: &[Sample], output: &mut Output) -> Result<(), Failure> {
    let rows: Vec<[String; COLUMNS]> = samples.iter().map(row).collect();
    let head = [
        "COMMIT",
        "+",
        "BLOCKS",
        "+",
        "ALLOCATED",
        "FREE",
        "FILE",
        "STORED",
        "MEMORY",
        "LOG",
        "OPEN",
        "NAME",
    ];
    output.table(head, &rows, &[COLUMNS - 2, COLUMNS - 1])
}

fn row(sample: &Sample) -> [String; COLUMNS] {
    let name = output::plain(&sample.name);
    let state = match &sample.found {
        Found::Present(state) => state,
        Found::Gone { gone } => {
            let why = output::plain(gone);
            let mut row: [String; COLUMNS] = std::array::from_fn(|_| "-".to_string());
            row[COLUMNS - 1] = format!("{name} ({why})");
            return row;
        }
    };
    let totals = &state.totals;
    let open = match (state.writer, state.reader) {
        (true, true) => "write read",
        (true, false) => "write",
        (false, true) => "read",
        (false, false) => "-",
    };
    [
        state.commit.to_string(),
        match (state.replaced, state.since.commits_since) {
            (true, _) => "new".to_string(),
            (false, Some(commits)) => format!("+{commits}"),
            (false, None) => String::new(),
        },
        output::count(totals.blocks),
        state.since.blocks_since.map_or_else(String::new, |blocks| format!("{blocks:+}")),
        output::bytes(totals.allocated_bytes),
        output::bytes(totals.free_bytes),
        output::bytes(state.file_bytes),
        output::bytes(totals.stored_bytes),
        output::bytes(totals.resident_bytes),
        output::bytes(state.log_bytes),
        open.to_string(),
        name,
    ]
}

/// Prints the blocks of all objects by size. If there are more sizes than `lines`, prints those
/// with the most bytes.
fn classes(samples: &[Sample], lines: usize, output: &mut Output) -> Result<(), Failure> {
    let mut all: BTreeMap<u32, Class> = BTreeMap::new();
    for sample in samples {
        let Found::Present(state) = &sample.found else { continue };
        for class in &state.classes {
            let sum = all.entry(class.block_bytes).or_insert(Class {
                block_bytes: class.block_bytes,
                slabs: 0,
                blocks: 0,
                blocks_max: 0,
            });
            sum.slabs += class.slabs;
            sum.blocks += class.blocks;
            sum.blocks_max += class.blocks_max;
        }
    }
    if all.is_empty() || lines == 0 {
        return Ok(());
    }
    let mut shown: Vec<Class> = all.into_values().collect();
    let bytes = |class: &Class| class.blocks * u64::from(class.block_bytes);
    if shown.len() > lines {
        shown.sort_by_key(|class| std::cmp::Reverse(bytes(class)));
        shown.truncate(lines);
        shown.sort_by_key(|class| class.block_bytes);
    }
    let rows: Vec<[String; 5]> = shown
        .iter()
        .map(|class| {
            [
                output::count(u64::from(class.block_bytes)),
                output::count(class.slabs),
                output::count(class.blocks),
                output::count(class.blocks_max),
                output::bytes(bytes(class)),
            ]
        })
        .collect();
    output.line("")?;
    output.table(["SIZE", "SLABS", "BLOCKS", "OF", "BYTES"], &rows, &[])
}
