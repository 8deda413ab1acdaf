//! What a lane costs the others beyond the program's own work: stress-ng alone, beside a program in a lane that is lent, in one that is held, and beside
//! the same program without a lane, in turns. Its own work is the processor time that it took; what stress-ng did less than that leaves is the cost. 24
//! frames a second of 10.5 ms: an eighth of two cores; 60 of 4 ms.

use std::time::Duration;

use common::Outcome;
use common::goals::Goal;
use common::samples::{Samples, figure};
use common::table::Table;
use evermap_lane::bench::{Clip, PRESETS, Play, Preset, Rung};
use serde::Serialize;

use crate::bench::{Bench, HOGS, WRITERS};
use crate::child::Asked;
use crate::stress::{self, Done};

/// Of others' work that a lane may cost, in percent: the study's figure.
const COST_MAX_PERCENT: f64 = 4.0;
const TURN_S: u64 = 9;
const RUNGS: [Option<Rung>; 5] = [
    None,
    Some(Rung::OrdinaryMap),
    Some(Rung::LendMap),
    Some(Rung::LendNowait),
    Some(Rung::HoldMap),
];

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    done: Done,
    processor_s: f64,
    span_s: f64,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(stress) = bench.own.stress.clone() else {
        println!("Skipped: there is no stress-ng.");
        return Ok(());
    };
    let seconds = bench.options.scaled(TURN_S, 2);
    for preset in PRESETS.into_iter().take(2) {
        let rungs: Vec<Option<Rung>> = RUNGS
            .into_iter()
            .filter(|rung| rung.is_none_or(|rung| bench.options.wants_subject(rung.name())))
            .collect();
        let mut turns: Vec<Vec<(usize, Turn)>> = vec![Vec::new(); rungs.len()];
        for (round, who) in bench.options.turns(rungs.len()) {
            common::ends::go_on()?;
            let name = rungs[who].map_or("alone", Rung::name);
            eprintln!("{} a second, {name}: round {round}", preset.fps);
            let turn = turn(bench, &stress, preset, rungs[who], seconds)?;
            let cell = preset.fps.to_string();
            let origin = common::raw::Origin { section: "cost", cell: &cell, subject: name, round };
            bench.raw.add(origin, turn)?;
            if round > 0 {
                turns[who].push((round, turn));
            }
        }
        tell(bench, preset, &rungs, &turns);
    }
    println!("\n{}", bench.goals.table());
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
    // The player ends with the load or before it, so that all it did was beside it.
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

/// The clip of a program, made once.
fn clip(bench: &Bench, preset: Preset, frames: u64) -> Outcome<std::path::PathBuf> {
    let path = bench.folder("clips")?.join(format!("{}-{frames}.clip", preset.fps));
    if !path.exists() {
        Clip { frames, frame_bytes: preset.frame_bytes }.make(&path)?;
    }
    Ok(path)
}

/// What is lost of what is left of the cores, round by round, in percent.
fn cost_percent(turn: &Turn, alone: &Turn, cores: usize) -> f64 {
    let own = turn.processor_s / turn.span_s / cores as f64;
    (1.0 - turn.done.cpu_per_s / (alone.done.cpu_per_s * (1.0 - own))) * 100.0
}

fn tell(bench: &mut Bench, preset: Preset, rungs: &[Option<Rung>], turns: &[Vec<(usize, Turn)>]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let Some(alone) = rungs.iter().position(Option::is_none).map(|at| &turns[at]) else { return };
    let titles = [
        "",
        "computed each second",
        "written each second",
        "the program's share of the cores",
        "cost beyond that",
    ];
    let mut table = Table::new(&titles);
    for (rung, turns) in rungs.iter().zip(turns) {
        let of = |value: &dyn Fn(&Turn) -> f64| {
            let mut samples = Samples::new();
            turns.iter().for_each(|(_, turn)| samples.push(value(turn)));
            samples
        };
        let mut cost = Samples::new();
        for ((_, turn), (_, alone)) in turns.iter().zip(alone) {
            cost.push(cost_percent(turn, alone, cores));
        }
        let own = of(&|turn| turn.processor_s / turn.span_s / cores as f64 * 100.0);
        table.row(&[
            rung.map_or("alone", Rung::name).to_string(),
            of(&|turn| turn.done.cpu_per_s).to_string(),
            of(&|turn| turn.done.hdd_per_s).to_string(),
            rung.map_or(String::new(), |_| format!("{} %", figure(own.median()))),
            rung.map_or(String::new(), |_| format!("{cost} %")),
        ]);
        if matches!(rung, Some(Rung::LendMap | Rung::LendNowait)) {
            let name = rung.map_or("", Rung::name);
            let what = format!("cost of {name} at {} a second to others, percent", preset.fps);
            bench.goals.judge(&what, "stress-ng alone", &cost, Goal::AtMost(COST_MAX_PERCENT));
        }
    }
    println!("\n{} periods a second:\n\n{table}", preset.fps);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_work_is_no_cost() {
        let turn = |cpu_per_s, processor_s| Turn {
            done: Done { cpu_per_s, hdd_per_s: 0.0 },
            processor_s,
            span_s: 10.0,
        };
        // A quarter of one core is an eighth of two.
        let cost = cost_percent(&turn(87.5, 2.5), &turn(100.0, 0.0), 2);
        assert!(cost.abs() < 1e-9, "{cost}");
        let cost = cost_percent(&turn(43.75, 2.5), &turn(100.0, 0.0), 2);
        assert!((cost - 50.0).abs() < 1e-9, "{cost}");
    }
}
