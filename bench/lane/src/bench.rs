//! What this benchmark's sections are given besides what those of all benchmarks are: what runs beside, and on what is measured.

use std::path::PathBuf;

use common::Outcome;
use common::machine::{self, Fact, Remarks};
use common::options::Options;
use evermap_lane::bench::{Ladder, Launcher, Load, Preset, Results, Rung};
use evermap_lane::guard::GUARDIAN_VARIABLE;
use evermap_lane::machine::Machine;

use crate::{ffmpeg, stress};

/// What a section is given.
pub type Bench = common::bench::Bench<Own>;

pub struct Own {
    /// The load, or why it is another one.
    pub stress: Option<PathBuf>,
    pub ffmpeg: Option<PathBuf>,
}

/// Finds what is there, and says what everything is measured on.
pub fn start(mut options: Options) -> Outcome<Bench> {
    let (stress, ffmpeg) = (stress::find(), ffmpeg::find());
    // Who holds a core has a guardian, which is the command.
    if let Some(evermap) = &options.evermap {
        let evermap = evermap.canonicalize()?;
        // SAFETY: nothing else of this process runs yet.
        unsafe { std::env::set_var(GUARDIAN_VARIABLE, &evermap) };
        options.evermap = Some(evermap);
    }
    let mut bench = Bench::new(options, Own { stress, ffmpeg })?;
    let machine = Machine::look()?;
    let core = machine.choose_core(evermap_lane::Core::Auto, &[])?;
    let mut missing = Vec::new();
    if bench.own.stress.is_none() {
        missing.push("stress-ng: what runs beside are hogs and writers of the benchmark itself");
    }
    if bench.own.ffmpeg.is_none() {
        missing.push("ffmpeg");
    }
    let version =
        |program: &Option<PathBuf>| program.as_deref().map_or_else(String::new, stress::version);
    let facts = [
        Fact { key: "stress", name: "stress-ng", value: version(&bench.own.stress) },
        Fact { key: "decoder", name: "ffmpeg", value: version(&bench.own.ffmpeg) },
        Fact {
            key: "core",
            name: "core of lanes",
            value: format!("{}: {}", core.core, core.why.join("; ")),
        },
    ];
    let each = "a program of its own for each turn";
    let cold = "the clip's pages were dropped before each turn that reads the disk, and it was looked that they are";
    machine::describe(&mut bench, &Remarks { facts: &facts, each, cold, missing: &missing })?;
    Ok(bench)
}

/// The load of the goals: four that compute, two that write.
pub const HOGS: usize = 4;
pub const WRITERS: usize = 2;

/// This load, by stress-ng where it is there.
pub fn load(bench: &Bench, hogs: usize) -> Outcome<Load> {
    let folder = bench.folder("stress")?;
    Ok(match &bench.own.stress {
        Some(program) => {
            Load { command: Some(stress::line(program, hogs, WRITERS, &folder)), ..Load::default() }
        }
        None => counted_load(hogs),
    })
}

/// The same shape of load, whose work is counted.
pub fn counted_load(hogs: usize) -> Load {
    Load { hogs, writers: WRITERS, command: None }
}

/// A ladder for one program, its rungs in turns; `periods` of each together at least.
pub fn climb(
    bench: &Bench,
    preset: Preset,
    rungs: &[Rung],
    inject_ns_per_4k: &[u64],
    load: Load,
    periods: u64,
) -> Outcome<Results> {
    let rungs: Vec<Rung> =
        rungs.iter().copied().filter(|rung| bench.options.wants_subject(rung.name())).collect();
    let rounds = bench.options.rounds;
    let ladder = Ladder {
        launcher: Launcher {
            program: bench.options.program.clone(),
            arguments: ["child", "serve"].map(String::from).into(),
        },
        rungs,
        presets: vec![preset],
        inject_ns_per_4k: inject_ns_per_4k.to_vec(),
        turn: common_turn(preset, periods.div_ceil(rounds as u64)),
        rounds,
        load,
        folder: bench.folder("clips")?,
        state: None,
        seed: 1,
    };
    let results = ladder.run(|turn, turns, subject, preset| {
        eprintln!("{} a second, {}: {turn} of {turns}", preset.fps, subject.name());
    })?;
    common::ends::go_on()?;
    Ok(results)
}

/// So many periods, and two seconds at least: a load that has just met somebody settles.
fn common_turn(preset: Preset, periods: u64) -> std::time::Duration {
    let least_s = if periods < 50 { 0.5 } else { 2.0 };
    std::time::Duration::from_secs_f64((periods as f64 / f64::from(preset.fps)).max(least_s))
}
