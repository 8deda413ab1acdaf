//! What the turns came to: a table, JSON, and pictures.

use std::collections::BTreeSet;

use serde::Serialize;

use super::background::{Load, Units};
use super::ladder::{Subject, Turn};
use super::player::Preset;
use crate::{Note, Quantiles, Reads};

/// All turns, and what they came to.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Results {
    /// What ran beside.
    pub load: Load,
    /// Of the order.
    pub seed: u64,
    /// Cores that were online: what costs are shares of.
    pub cores: usize,
    /// For each program and rung.
    pub cells: Vec<Cell>,
    /// As they were had.
    #[serde(skip)]
    pub turns: Vec<Turn>,
}

/// A rung at a rate.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// The program.
    pub preset: Preset,
    /// The rung.
    pub subject: Subject,
    /// Its name.
    pub name: String,
    /// Turns it had.
    pub turns: usize,
    /// Periods of all of them.
    pub periods: u64,
    /// Frames beyond their deadline, and periods that were dropped.
    pub missed: u64,
    /// The share of those, in percent.
    pub missed_percent: f64,
    /// Of all frames.
    pub completion_ms: Quantiles,
    /// Of all frames.
    pub io_ms: Quantiles,
    /// Of all frames.
    pub wake_up_ms: Quantiles,
    /// Reads by how they were served.
    pub reads: Reads,
    /// Frames that were not what they should have been.
    pub damaged: u64,
    /// Bytes of the clip that were cached before a turn began: the most.
    pub cached_bytes_max: Option<u64>,
    /// What the load got done beside it, each second.
    pub units_per_s: Units,
    /// What it got done alone.
    pub units_alone_per_s: Units,
    /// The player's share of all cores, in percent.
    pub own_percent: f64,
    /// What the load's computing lost beyond that share, in percent of what it would have had; none without hogs.
    pub cost_percent: Option<f64>,
    /// What could not be had.
    pub not_applied: BTreeSet<Note>,
}

impl Results {
    pub(super) fn of(load: Load, seed: u64, turns: Vec<Turn>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut keys: Vec<(Preset, Subject)> = Vec::new();
        for turn in &turns {
            let key = (turn.preset, turn.subject);
            if turn.played.is_some() && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.sort_by_key(|(preset, subject)| (preset.fps, *subject));
        let cells = keys.iter().map(|key| cell(*key, &turns, cores)).collect();
        Self { load, seed, cores, cells, turns }
    }
}

fn cell((preset, subject): (Preset, Subject), turns: &[Turn], cores: usize) -> Cell {
    let own: Vec<&Turn> =
        turns.iter().filter(|turn| turn.preset == preset && turn.subject == subject).collect();
    let alone: Vec<&Turn> =
        turns.iter().filter(|turn| turn.preset == preset && turn.played.is_none()).collect();
    let played = || own.iter().filter_map(|turn| turn.played.as_ref());
    let timed = |time: fn(&crate::Timed) -> f64| {
        let times: Vec<f64> = played().flat_map(|played| played.timed.iter().map(time)).collect();
        Quantiles::of(&times)
    };
    let (mut periods, mut missed, mut damaged) = (0, 0, 0);
    let mut reads = Reads::default();
    let mut not_applied = BTreeSet::new();
    for played in played() {
        periods += played.report.periods;
        missed += played.report.misses + played.report.drops;
        damaged += played.damaged;
        reads.add(played.report.reads);
        not_applied.extend(played.report.not_applied.iter().cloned());
    }
    let span_s: f64 = own.iter().map(|turn| turn.span_s).sum();
    let processor_s: f64 = played().map(|played| played.report.processor_ms / 1e3).sum();
    let own_share = if span_s > 0.0 { processor_s / span_s / cores as f64 } else { 0.0 };
    let (units_per_s, units_alone_per_s) = (mean(&own), mean(&alone));
    let left = units_alone_per_s.computed * (1.0 - own_share);
    Cell {
        preset,
        subject,
        name: subject.name(),
        turns: own.len(),
        periods,
        missed,
        missed_percent: 100.0 * missed as f64 / periods.max(1) as f64,
        completion_ms: timed(|frame| frame.completion_ms),
        io_ms: timed(|frame| frame.io_ms),
        wake_up_ms: timed(|frame| frame.wake_up_ms),
        reads,
        damaged,
        cached_bytes_max: own.iter().filter_map(|turn| turn.cached_bytes).max(),
        units_per_s,
        units_alone_per_s,
        own_percent: own_share * 100.0,
        cost_percent: (left > 0.0).then(|| (1.0 - units_per_s.computed / left) * 100.0),
        not_applied,
    }
}

fn mean(turns: &[&Turn]) -> Units {
    let span_s: f64 = turns.iter().map(|turn| turn.span_s).sum();
    if span_s <= 0.0 {
        return Units::default();
    }
    let of = |units: fn(&Units) -> f64| {
        turns.iter().map(|turn| units(&turn.units_per_s) * turn.span_s).sum::<f64>() / span_s
    };
    Units { computed: of(|units| units.computed), written: of(|units| units.written) }
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:>5}  {:<20} {:>7} {:>9}  {:>26}  {:>17}  {:>6} {:>6}",
            "fps",
            "rung",
            "periods",
            "missed %",
            "completion p50/p99/max ms",
            "I/O p99/max ms",
            "own %",
            "cost %"
        )?;
        for cell in &self.cells {
            let cost = cell.cost_percent.map_or("-".to_string(), |cost| format!("{cost:.1}"));
            let completion = format!(
                "{:.2}/{:.2}/{:.2}",
                cell.completion_ms.p50, cell.completion_ms.p99, cell.completion_ms.max
            );
            let io = format!("{:.2}/{:.2}", cell.io_ms.p99, cell.io_ms.max);
            writeln!(
                f,
                "{:>5}  {:<20} {:>7} {:>9.2}  {:>26}  {:>17}  {:>6.1} {:>6}",
                cell.preset.fps,
                cell.name,
                cell.periods,
                cell.missed_percent,
                completion,
                io,
                cell.own_percent,
                cost
            )?;
        }
        self.notes(f)
    }
}

impl Results {
    fn notes(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for cell in &self.cells {
            for note in &cell.not_applied {
                writeln!(
                    f,
                    "{} at {}: not {}: {}",
                    cell.name, cell.preset.fps, note.what, note.why
                )?;
            }
            if cell.damaged > 0 {
                writeln!(
                    f,
                    "{} at {}: {} frames were damaged",
                    cell.name, cell.preset.fps, cell.damaged
                )?;
            }
            let is_disk = cell.subject.rung.is_some_and(super::Rung::reads_disk);
            if let Some(bytes) = cell.cached_bytes_max.filter(|bytes| is_disk && *bytes > 0) {
                let (name, fps) = (&cell.name, cell.preset.fps);
                writeln!(
                    f,
                    "{name} at {fps}: {bytes} bytes of the clip were cached when a turn began"
                )?;
            }
        }
        Ok(())
    }
}
