//! Results of the turns: a table, JSON, and charts.

use std::collections::BTreeSet;

use serde::Serialize;

use super::background::{Load, Units};
use super::player::Preset;
use super::rung::{Rung, Subject, Turn};
use crate::{Note, Quantiles, Reads};

/// All turns and their summary.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Results {
    /// Background load.
    pub load: Load,
    /// Seed of the order.
    pub seed: u64,
    /// Number of planned turns.
    pub turns_planned: usize,
    /// Number of completed turns, which is smaller if the benchmark was stopped.
    pub turns_done: usize,
    /// Number of cores that this process may use. Costs are shares of them.
    pub cores: usize,
    /// Reason why no rung has a cost. `None` if some have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_no_cost: Option<String>,
    /// Summary for each program and rung.
    pub cells: Vec<Cell>,
    /// Turns in their order.
    #[serde(skip)]
    pub turns: Vec<Turn>,
}

/// Summary of a rung at a rate.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// Program.
    pub preset: Preset,
    /// Rung.
    pub subject: Subject,
    /// Name of the rung.
    pub name: String,
    /// Number of turns.
    pub turns: usize,
    /// Number of periods.
    pub periods: u64,
    /// Frames beyond their deadline, and dropped periods.
    pub missed: u64,
    /// Dropped periods.
    pub dropped: u64,
    /// `missed` in percent of the periods.
    pub missed_percent: f64,
    /// Completion of all frames.
    pub completion_ms: Quantiles,
    /// I/O time of all frames.
    pub io_ms: Quantiles,
    /// Wake-up delay of all frames.
    pub wake_up_ms: Quantiles,
    /// Reads by their source.
    pub reads: Reads,
    /// Number of frames with wrong contents.
    pub damaged: u64,
    /// Maximum of cached bytes of the clip before a turn.
    pub cached_bytes_max: Option<u64>,
    /// Time of all turns in which the lane's core was ready to run but the host of this virtual
    /// machine ran others, in steps of 10 ms for each. `None` without a core.
    pub stolen_ms: Option<f64>,
    /// Units that the load completed each second during the turns.
    pub units_per_s: Units,
    /// Units that the load completed alone, each second.
    pub units_alone_per_s: Units,
    /// Share of all cores used by the player's thread since its first frame, in percent, including
    /// reading, polling and verifying. Time of other threads of the lane counts as cost.
    pub own_percent: f64,
    /// Loss of the load's computing beyond that share, in percent of what remains without it.
    /// `None` if it was not counted.
    pub cost_percent: Option<f64>,
    /// Parts of the policy that were not applied.
    pub not_applied: BTreeSet<Note>,
}

impl Results {
    pub(super) fn of(load: Load, seed: u64, turns_planned: usize, turns: Vec<Turn>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut keys: Vec<(Preset, Subject)> = Vec::new();
        for turn in &turns {
            let key = (turn.preset, turn.subject);
            if turn.played.is_some() && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.sort_by_key(|(preset, subject)| (preset.fps, *subject));
        let cells: Vec<Cell> = keys.iter().map(|key| cell(*key, &turns, cores)).collect();
        let why_no_cost = why_no_cost(&load, &cells);
        let turns_done = turns.len();
        Self { load, seed, turns_planned, turns_done, cores, why_no_cost, cells, turns }
    }
}

fn why_no_cost(load: &Load, cells: &[Cell]) -> Option<String> {
    if cells.is_empty() || cells.iter().any(|cell| cell.cost_percent.is_some()) {
        return None;
    }
    Some(match (&load.command, load.hogs) {
        (Some(line), 0) => {
            format!("the work of `{line}` is not counted; only hogs count theirs")
        }
        (None, 0) => "no hogs run beside the players".into(),
        _ => "the load alone had no turn, or completed nothing".into(),
    })
}

fn cell((preset, subject): (Preset, Subject), turns: &[Turn], cores: usize) -> Cell {
    let own: Vec<&Turn> =
        turns.iter().filter(|turn| turn.preset == preset && turn.subject == subject).collect();
    let alone: Vec<&Turn> =
        turns.iter().filter(|turn| turn.preset == preset && turn.played.is_none()).collect();
    let played = || own.iter().filter_map(|turn| turn.played.as_ref());
    let timed = |time: fn(&crate::FrameTimes) -> f64| {
        let times: Vec<f64> = played().flat_map(|played| played.timed.iter().map(time)).collect();
        Quantiles::of(&times)
    };
    let (mut periods, mut missed, mut dropped, mut damaged) = (0, 0, 0, 0);
    let mut reads = Reads::default();
    let mut not_applied = BTreeSet::new();
    for played in played() {
        periods += played.report.periods;
        missed += played.report.misses + played.report.drops;
        dropped += played.report.drops;
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
        dropped,
        missed_percent: percent(missed, periods),
        completion_ms: timed(|frame| frame.completion_ms),
        io_ms: timed(|frame| frame.io_ms),
        wake_up_ms: timed(|frame| frame.wake_up_ms),
        reads,
        damaged,
        stolen_ms: played().filter_map(|played| played.report.stolen_ms).reduce(|sum, ms| sum + ms),
        cached_bytes_max: own.iter().filter_map(|turn| turn.cached_bytes).max(),
        units_per_s,
        units_alone_per_s,
        own_percent: own_share * 100.0,
        cost_percent: (left > 0.0).then(|| (1.0 - units_per_s.computed / left) * 100.0),
        not_applied,
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
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
            "{:>5}  {:<20} {:>7} {:>9} {:>9}  {:>26}  {:>17}  {:>6} {:>6}",
            "fps",
            "rung",
            "periods",
            "missed %",
            "dropped %",
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
                "{:>5}  {:<20} {:>7} {:>9.2} {:>9.2}  {:>26}  {:>17}  {:>6.1} {:>6}",
                cell.preset.fps,
                cell.name,
                cell.periods,
                cell.missed_percent,
                percent(cell.dropped, cell.periods),
                completion,
                io,
                cell.own_percent,
                cost
            )?;
        }
        self.meanings(f)?;
        self.notes(f)
    }
}

impl Results {
    fn meanings(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.turns_done < self.turns_planned {
            let (done, planned) = (self.turns_done, self.turns_planned);
            writeln!(
                f,
                "stopped after {done} of {planned} turns: rungs have different numbers of turns"
            )?;
        }
        writeln!(
            f,
            "missed: frames beyond their deadline and dropped periods; dropped: dropped periods only"
        )?;
        writeln!(
            f,
            "own: processor time of the player's thread, as a share of all {} cores",
            self.cores
        )?;
        match &self.why_no_cost {
            Some(why) => writeln!(f, "cost: unknown, because {why}"),
            None => {
                writeln!(
                    f,
                    "cost: loss of the hogs' computing against running alone, beyond the player's own time"
                )
            }
        }
    }

    fn notes(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for cell in &self.cells {
            for note in &cell.not_applied {
                writeln!(
                    f,
                    "{} at {}: not applied: {}: {}",
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
            if let Some(stolen_ms) = cell.stolen_ms.filter(|ms| *ms > 0.0) {
                let (name, fps) = (&cell.name, cell.preset.fps);
                writeln!(
                    f,
                    "{name} at {fps}: the host of this machine took {stolen_ms:.0} ms from the lane's core"
                )?;
            }
            let is_disk = cell.subject.rung.is_some_and(Rung::reads_disk);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::player::Played;
    use super::*;
    use crate::Report;

    const PRESET: Preset = Preset { fps: 100, frame_bytes: 64, decode_us: 0 };

    /// Turn of ten seconds; the player ran for a quarter of it, with 7 of 1,000 frames late and 3
    /// dropped.
    fn turn(rung: Option<Rung>, computed: f64) -> Turn {
        let mut report = Report::default();
        (report.periods, report.misses, report.drops) = (1_000, 7, 3);
        (report.processor_ms, report.stolen_ms) = (2_500.0, Some(20.0));
        let played = Played { report, timed: Vec::new(), damaged: 0, span_ns: (0, 10_000_000_000) };
        Turn {
            round: 0,
            preset: PRESET,
            subject: Subject { rung, inject_ns_per_4k: 0 },
            played: rung.map(|_| played),
            span_s: Duration::from_secs(10).as_secs_f64(),
            units_per_s: Units { computed, written: 0.0 },
            cached_bytes: None,
        }
    }

    #[test]
    fn missed_counts_late_and_dropped_frames() {
        let load = Load { hogs: 4, ..Load::default() };
        let turns = vec![turn(None, 100.0), turn(Some(Rung::LendMap), 50.0)];
        let results = Results::of(load, 1, 2, turns);
        let cell = &results.cells[0];
        assert_eq!((cell.missed, cell.dropped, cell.missed_percent), (10, 3, 1.0));
        let text = results.to_string();
        assert!(text.contains("1.00") && text.contains("0.30"), "{text}");
        assert!(text.contains("dropped periods"), "{text}");
        assert!(text.contains("took 20 ms"), "{text}");
        assert!(!text.contains("stopped after") && !text.contains("cost: unknown"), "{text}");
    }

    #[test]
    fn the_player_s_own_work_is_not_a_cost() {
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let load = Load { hogs: 4, ..Load::default() };
        let left = 100.0 * (1.0 - 0.25 / cores);
        for (computed, cost_percent) in [(left, 0.0), (left / 2.0, 50.0)] {
            let turns = vec![turn(None, 100.0), turn(Some(Rung::LendMap), computed)];
            let results = Results::of(load.clone(), 1, 2, turns);
            let cost = results.cells[0].cost_percent.unwrap();
            assert!((cost - cost_percent).abs() < 1e-9, "{cost}");
            assert_eq!(results.why_no_cost, None);
        }
    }

    #[test]
    fn an_unknown_cost_has_a_reason() {
        let command = Load { command: Some("make".into()), ..Load::default() };
        let hogs = Load { hogs: 1, ..Load::default() };
        for (load, alone, why) in [
            (command, true, "the work of `make` is not counted"),
            (Load { writers: 1, ..Load::default() }, true, "no hogs"),
            (hogs, false, "the load alone had no turn"),
        ] {
            let mut turns = vec![turn(Some(Rung::LendMap), 0.0)];
            turns.extend(alone.then(|| turn(None, 0.0)));
            let results = Results::of(load, 1, 9, turns);
            assert!(results.why_no_cost.as_ref().unwrap().contains(why), "{results}");
            assert!(results.to_string().contains("cost: unknown"), "{results}");
            assert!(results.to_string().contains("of 9 turns"), "{results}");
        }
    }
}
