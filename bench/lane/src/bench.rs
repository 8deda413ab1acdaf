//! State of this benchmark's sections beyond the shared state: the load and the machine's
//! description.

use std::path::PathBuf;

use evermap_lane::bench::{Ladder, Launcher, Load, Preset, Results, Rung};
use evermap_lane::guard::GUARDIAN_VARIABLE;
use evermap_lane::machine::Machine;
use harness::Outcome;
use harness::machine::{self, Fact, Remarks};
use harness::options::Options;

use crate::{ffmpeg, stress};

/// Bench that a section receives.
pub type Bench = harness::bench::Bench<Own>;

pub struct Own {
    /// Path of stress-ng; without it the benchmark's own load runs.
    pub stress: Option<PathBuf>,
    pub ffmpeg: Option<PathBuf>,
}

/// Finds the installed programs and prints the description of the machine.
pub fn start(mut options: Options) -> Outcome<Bench> {
    let (stress, ffmpeg) = (stress::find(), ffmpeg::find());
    // A process that holds a core has a guardian, which is the command.
    if let Some(evermap) = &options.evermap {
        let evermap = evermap.canonicalize()?;
        // SAFETY: this process has no other thread yet.
        unsafe { std::env::set_var(GUARDIAN_VARIABLE, &evermap) };
        options.evermap = Some(evermap);
    }
    let mut bench = Bench::new(options, Own { stress, ffmpeg })?;
    let machine = Machine::detect()?;
    let core = machine.choose_core(evermap_lane::Core::Auto, &[])?;
    let mut missing = Vec::new();
    if bench.own.stress.is_none() {
        missing.push("stress-ng: the load is the benchmark's own hogs and writers");
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
    let cold =
        "the clip's pages were dropped before each turn that reads the disk, and that was checked";
    let notes = machine::notes(&bench, each, cold);
    machine::describe(&mut bench, &Remarks { facts: &facts, notes, missing: &missing })?;
    Ok(bench)
}

/// Load of the goals: four programs that compute, two that write.
pub const HOGS: usize = 4;
pub const WRITERS: usize = 2;

/// Returns this load, by stress-ng if it is installed.
pub fn load(bench: &Bench, hogs: usize) -> Outcome<Load> {
    let folder = bench.folder("stress")?;
    Ok(match &bench.own.stress {
        Some(program) => {
            Load { command: Some(stress::line(program, hogs, WRITERS, &folder)), ..Load::default() }
        }
        None => counted_load(hogs),
    })
}

/// Returns a load of the same shape by the benchmark itself, which counts its work.
pub fn counted_load(hogs: usize) -> Load {
    Load { hogs, writers: WRITERS, command: None }
}

/// Runs a ladder for one program, its rungs in turns; each rung gets at least `periods` in all.
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
    harness::ends::check_interrupted()?;
    Ok(results)
}

/// Returns the length of a turn: its periods, and at least two seconds, because a load needs time
/// to settle after another program has started.
fn common_turn(preset: Preset, periods: u64) -> std::time::Duration {
    let least_s = if periods < 50 { 0.5 } else { 2.0 };
    std::time::Duration::from_secs_f64((periods as f64 / f64::from(preset.fps)).max(least_s))
}
