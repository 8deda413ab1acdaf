//! Cost of a lane to other programs, beyond the program's own work.
//!
//! stress-ng runs beside a program in a lent lane, in a held lane, and without a lane, each turn
//! between two turns of stress-ng alone. The program's own work is its processor time. The cost is
//! the loss of stress-ng's work beyond that time. The programs compute 10.5 ms at 24 frames a
//! second, an eighth of two cores, and 4 ms at 60.

use std::time::Duration;

use evermap_lane::bench::{Clip, PRESETS, Play, Preset, Rung};
use harness::Outcome;
use harness::goals::Goal;
use harness::samples::{Samples, figure};
use harness::table::Table;
use serde::Serialize;

use crate::bench::{Bench, HOGS, WRITERS};
use crate::child::Asked;
use crate::stress::{self, Done};

/// Most work of others that a lane may cost, in percent: the study's figure.
const COST_MAX_PERCENT: f64 = 4.0;
/// Short turns, so that drift of the machine changes little between adjacent turns.
const TURN_S: u64 = 6;
const RUNGS: [Rung; 4] = [Rung::OrdinaryMap, Rung::LendMap, Rung::LendNowait, Rung::HoldMap];

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    done: Done,
    /// Processor time of the program; zero if stress-ng is alone.
    processor_s: f64,
    span_s: f64,
}

/// One turn, and the load's work alone: the mean of the turns before and after.
#[derive(Clone, Copy, Debug)]
struct Pair {
    beside: Turn,
    alone: Done,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(stress) = bench.own.stress.clone() else {
        println!("Skipped: stress-ng is not installed.");
        return Ok(());
    };
    let seconds = bench.options.scaled(TURN_S, 2);
    for preset in PRESETS.into_iter().take(2) {
        let rungs: Vec<Rung> =
            RUNGS.into_iter().filter(|rung| bench.options.wants_subject(rung.name())).collect();
        let mut pairs: Vec<Vec<Pair>> = vec![Vec::new(); rungs.len()];
        let mut before = turn(bench, &stress, preset, None, seconds)?;
        for (round, who) in bench.options.turns(rungs.len()) {
            harness::ends::check_interrupted()?;
            let name = rungs[who].name();
            eprintln!("{} a second, {name}: round {round}", preset.fps);
            let beside = turn(bench, &stress, preset, Some(rungs[who]), seconds)?;
            let after = turn(bench, &stress, preset, None, seconds)?;
            let cell = preset.fps.to_string();
            for (subject, turn) in [("before", before), (name, beside), ("after", after)] {
                let origin = harness::raw::Origin { section: "cost", cell: &cell, subject, round };
                bench.raw.add(origin, turn)?;
            }
            if round > 0 {
                let alone = Done::mean(before.done, after.done);
                pairs[who].push(Pair { beside, alone });
            }
            before = after;
        }
        tell(bench, preset, &rungs, &pairs);
    }
    Ok(())
}

fn turn(
    bench: &Bench,
    stress: &std::path::Path,
    preset: Preset,
    rung: Option<Rung>,
    seconds: u64,
) -> Outcome<Turn> {
    let folder = bench.folder("stress")?;
    // The player ends no later than the load, so all its work is under the load.
    let periods = (seconds - 1) * u64::from(preset.fps);
    let clip = clip(bench, preset, periods)?;
    let run = stress::Run::start(stress, (HOGS, WRITERS), &folder, Duration::from_secs(seconds))?;
    let mut processor_s = 0.0;
    if let Some(rung) = rung {
        let policy = rung.policy(preset, 0);
        let play = Play {
            clip,
            frame_bytes: preset.frame_bytes,
            periods,
            decode_us: preset.decode_us,
            is_verified: true,
            is_direct: false,
        };
        let played = Asked::to_play(bench, &policy, &play)?.played()?;
        processor_s = played.report.processor_ms / 1e3;
    }
    Ok(Turn { done: run.finish()?, processor_s, span_s: seconds as f64 })
}

/// Returns the clip of a program, which is made once.
fn clip(bench: &Bench, preset: Preset, frames: u64) -> Outcome<std::path::PathBuf> {
    let path = bench.folder("clips")?.join(format!("{}-{frames}.clip", preset.fps));
    if !path.exists() {
        Clip { frames, frame_bytes: preset.frame_bytes }.make(&path)?;
    }
    Ok(path)
}

impl Pair {
    /// The program's share of the cores, in percent.
    fn own_percent(&self, cores: usize) -> f64 {
        self.beside.processor_s / self.beside.span_s / cores as f64 * 100.0
    }

    /// Lost work in percent of the work that the program's time leaves possible.
    fn cost_percent(&self, cores: usize) -> f64 {
        let left = 1.0 - self.own_percent(cores) / 100.0;
        (1.0 - self.beside.done.cpu_per_s / (self.alone.cpu_per_s * left)) * 100.0
    }

    /// Processor time that stress-ng lost and the program did not use, in percent.
    fn time_percent(&self) -> f64 {
        let gone_s = self.alone.processor_s - self.beside.done.processor_s;
        (gone_s - self.beside.processor_s) / self.alone.processor_s * 100.0
    }
}

fn tell(bench: &mut Bench, preset: Preset, rungs: &[Rung], pairs: &[Vec<Pair>]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let titles = [
        "",
        "computed each second",
        "alone",
        "written each second",
        "alone",
        "the program's share of the cores",
        "others' processor time lost beyond that",
        "others' work lost beyond that",
    ];
    let mut table = Table::new(&titles);
    for (rung, pairs) in rungs.iter().zip(pairs) {
        let of = |value: &dyn Fn(&Pair) -> f64| {
            let mut samples = Samples::new();
            pairs.iter().for_each(|pair| samples.push(value(pair)));
            samples
        };
        let cost = of(&|pair| pair.cost_percent(cores));
        let time = of(&Pair::time_percent);
        table.row(&[
            rung.name().to_string(),
            of(&|pair| pair.beside.done.cpu_per_s).to_string(),
            of(&|pair| pair.alone.cpu_per_s).to_string(),
            of(&|pair| pair.beside.done.hdd_per_s).to_string(),
            of(&|pair| pair.alone.hdd_per_s).to_string(),
            format!("{} %", figure(of(&|pair| pair.own_percent(cores)).median())),
            format!("{time} %"),
            format!("{cost} %"),
        ]);
        if matches!(rung, Rung::LendMap | Rung::LendNowait) {
            let what =
                format!("cost of {} at {} a second to others, percent", rung.name(), preset.fps);
            bench.goals.judge(&what, "stress-ng alone", &cost, Goal::AtMost(COST_MAX_PERCENT));
        }
    }
    println!("\n{} periods a second:\n\n{table}", preset.fps);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_work_is_not_counted_as_cost() {
        let done = |cpu_per_s, processor_s| Done { cpu_per_s, hdd_per_s: 0.0, processor_s };
        // A quarter of one core is an eighth of two.
        let pair = |cpu_per_s, left_s| Pair {
            beside: Turn { done: done(cpu_per_s, left_s), processor_s: 2.5, span_s: 10.0 },
            alone: done(100.0, 20.0),
        };
        let free = pair(87.5, 17.5);
        assert!(free.cost_percent(2).abs() < 1e-9, "{free:?}");
        assert!(free.time_percent().abs() < 1e-9, "{free:?}");
        let half = pair(43.75, 7.5);
        assert!((half.cost_percent(2) - 50.0).abs() < 1e-9, "{half:?}");
        assert!((half.time_percent() - 50.0).abs() < 1e-9, "{half:?}");
    }
}
