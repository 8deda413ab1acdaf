//! Explores crash points: derives the disk state after a crash, opens the object on it, judges the
//! result, and crashes the recovery in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::Trace;
use super::image::{Image, Operation};
use super::model::{End, Model};
use super::random::Random;
use super::runner::{Choice, Runner, Step, describe};
use super::state::Edit;
use super::subject::Worker;
use super::versions::Keep;
use super::workload::{Recorded, WORKLOADS, Workload, follow, record};
use crate::commit::LogPolicy;

/// How a workload is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Kill,
    /// Power failure. With `Some`, all data that was not flushed is treated alike; with `None`,
    /// each sector on its own.
    PowerFailure(Option<Keep>),
}

/// One crash point, identified by numbers that reproduce it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) workload: usize,
    /// Number of operations completed before the crash.
    pub(super) crash_point: usize,
    /// The next operation was in progress.
    pub(super) inside: bool,
    pub(super) stop: Stop,
    pub(super) seed: u64,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stop = match self.stop {
            Stop::Kill => "kill",
            Stop::PowerFailure(Some(Keep::Nothing)) => "nothing",
            Stop::PowerFailure(Some(_)) => "everything",
            Stop::PowerFailure(None) => "power",
        };
        let Case { workload, crash_point, inside, seed, .. } = self;
        let (name, inside) = (WORKLOADS[*workload].name, u8::from(*inside));
        write!(
            f,
            "workload={name} crash_point={crash_point} inside={inside} stop={stop} seed={seed}"
        )
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let value = |key: &str| {
            let found = text.split_whitespace().filter_map(|part| part.split_once('='));
            let found = found.filter(|(k, _)| *k == key).map(|(_, v)| v).next();
            found.ok_or_else(|| format!("`{key}=` is missing in `{text}`"))
        };
        let number = |key: &str| -> Result<u64, String> {
            value(key)?.parse().map_err(|e| format!("{key}: {e}"))
        };
        let name = value("workload")?;
        let workload = WORKLOADS.iter().position(|workload| workload.name == name);
        Ok(Case {
            workload: workload.ok_or_else(|| format!("no workload `{name}`"))?,
            crash_point: number("crash_point")? as usize,
            inside: number("inside")? != 0,
            stop: match value("stop")? {
                "kill" => Stop::Kill,
                "nothing" => Stop::PowerFailure(Some(Keep::Nothing)),
                "everything" => Stop::PowerFailure(Some(Keep::Everything)),
                "power" => Stop::PowerFailure(None),
                other => return Err(format!("`stop={other}` is unknown")),
            },
            seed: number("seed")?,
        })
    }
}

/// Programs that continue with the object after a crash.
const FOLLOW_UPS: &[&[Step]] = {
    use Step::*;
    const FEW: Step = Change(Edit::Lines { blocks: 2, lines: 2 });
    const SAME: Step = Change(Edit::SameLine);
    const KEEP: Step = OpenWith(Choice::KeepLog);
    const GAIN: Step = Change(Edit::Gain { blocks: 3, bytes: 32 * 1024 });
    &[
        &[Read],
        &[Open],
        &[Read, Open, Close, Read],
        &[Open, Close],
        &[Open, FEW, Commit, SAME, Commit],
        &[Open, SAME, Commit, Close, Read],
        &[Open, SAME, Commit, Checkpoint, SAME, Commit, Abandon, Read],
        &[Open, GAIN, Commit, FEW, Commit, Close],
        &[Read, Open, SAME, Rollback, SAME, Commit, Abandon, Open, FEW, Commit],
        &[KEEP, GAIN, Commit, Close, KEEP, SAME, Commit],
        &[KEEP, Close, Read, KEEP, SAME, Commit, FEW, Commit, Close],
        &[ReaderOpens, OpenWith(Choice::Interval), SAME, Commit, SAME, Commit, ReaderCloses],
        &[ReaderOpens, OpenWith(Choice::ShortLog), SAME, Commit, FEW, Commit, ReaderCloses],
    ]
};

/// Number of leading programs that have no concurrent reader.
const FOLLOW_UPS_WITHOUT_READERS: usize = 11;

/// Maximum number of nested crashes.
const DEPTH_MAX: usize = 4;

/// Number of crash points explored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) crash_points: u64,
}

/// A crash point that broke a promise.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) case: Case,
    pub(super) why: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n  EVERMAP_SIM=\"{}\" cargo test -p evermap --lib simulation::reproduce -- --nocapture",
            self.why, self.case
        )
    }
}

/// Returns the disk after a crash in or before the operation `next`.
fn stop(
    before: &Image,
    next: Option<&Operation>,
    inside: bool,
    stop: Stop,
    random: &mut Random,
) -> Image {
    let mut image = before.clone();
    if let Some(next) = next.filter(|_| inside) {
        image.apply_partly(next, stop == Stop::Kill, random);
    }
    match stop {
        Stop::Kill => image,
        Stop::PowerFailure(keep) => image.power_failure(keep, random),
    }
}

fn end_of(stop: Stop) -> End {
    if stop == Stop::Kill { End::Kill } else { End::PowerFailure }
}

/// Opens the object after a crash, judges the result, and crashes that program in turn.
pub(super) fn recover_and_judge(
    worker: &Worker,
    image: Image,
    mut model: Model,
    depth: usize,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    if !model.has_object() {
        return Ok(());
    }
    tally.crash_points += 1;
    let (image_is_permanent, replayed) = (image.permanent_log, image.replayed);
    let follow_up = match depth {
        0 if random.chance(1, 4) => random.below(2),
        // A permanent log locks readers out while it is written.
        _ if image_is_permanent => random.below(FOLLOW_UPS_WITHOUT_READERS),
        _ => random.below(FOLLOW_UPS.len()),
    };
    let mut runner = Runner::new(worker, image, random.next());
    if image_is_permanent {
        // After a kill, a process that had the log replayed earlier may still run.
        runner.policy = LogPolicy::Permanent { applied: replayed && random.chance(1, 2) };
    }
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(FOLLOW_UPS[follow_up])));
    let trace = runner.disk.trace();
    drop(runner);
    if std::env::var_os("EVERMAP_SIM_TRACE").is_some() {
        println!("crash {}, then {:?}", depth + 1, FOLLOW_UPS[follow_up]);
        trace.operations.iter().enumerate().for_each(|(n, o)| println!("  {n}: {}", describe(o)));
    }
    let context =
        |why: String| format!("crash {}, then {:?}: {why}", depth + 1, FOLLOW_UPS[follow_up]);
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(context(format!("{error}; {model}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            return Err(context(format!("a panic: {}", text.unwrap_or_default())));
        }
    }
    follow(&mut model.clone(), &trace.operations).map_err(context)?;
    if depth + 1 == DEPTH_MAX || !random.chance(3, 5) {
        return Ok(());
    }
    // Once seen, a state must not be lost. The moment right after the end is therefore a crash
    // point too.
    let crash_point = match random.below(4) {
        0 => trace.operations.len(),
        _ => random.below(trace.operations.len() + 1),
    };
    let mut before = trace.start.clone();
    for operation in &trace.operations[..crash_point] {
        before.apply(operation);
    }
    follow(&mut model, &trace.operations[..crash_point]).map_err(context)?;
    let (inside, kill) = (random.chance(1, 2), random.chance(1, 3));
    let how = if kill { Stop::Kill } else { Stop::PowerFailure(None) };
    let next = stop(&before, trace.operations.get(crash_point), inside, how, random);
    model.ended(end_of(how));
    recover_and_judge(worker, next, model, depth + 1, random, tally).map_err(|why| {
        let at = trace.operations.get(crash_point).map_or("the end".to_string(), describe);
        format!(
            "crash {}, then {:?} crashed ({how:?}) at {crash_point}, {at};\n  {why}",
            depth + 1,
            FOLLOW_UPS[follow_up]
        )
    })
}

/// Explores one crash point of a workload, with the disk and the model as they were before it.
fn try_case(
    worker: &Worker,
    recorded: &Recorded,
    before: &Image,
    model: &Model,
    case: Case,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let stop_code = match case.stop {
        Stop::Kill => 1,
        Stop::PowerFailure(None) => 2,
        Stop::PowerFailure(Some(Keep::Nothing)) => 3,
        Stop::PowerFailure(Some(_)) => 4,
    };
    let parts = [
        case.workload as u64,
        case.crash_point as u64,
        u64::from(case.inside),
        stop_code,
        case.seed,
    ];
    let mut random = Random::of(&parts);
    let next = recorded.operations.get(case.crash_point);
    let image = stop(before, next, case.inside, case.stop, &mut random);
    let mut model = model.clone();
    model.ended(end_of(case.stop));
    recover_and_judge(worker, image, model, 0, &mut random, tally).map_err(|why| {
        let at = next.map_or("the end".to_string(), describe);
        Failed { case, why: format!("crash at {at}\n  {why}") }
    })
}

/// Lists the ways to crash at one point of a workload.
pub(super) fn cases_at(
    workload: usize,
    crash_point: usize,
    next: Option<&Operation>,
    seeds: std::ops::Range<u64>,
) -> Vec<Case> {
    let case = |inside, stop, seed| Case { workload, crash_point, inside, stop, seed };
    let mut cases = Vec::new();
    let long = next.is_some_and(Operation::is_long);
    for seed in seeds {
        if seed == 0 {
            cases.push(case(false, Stop::PowerFailure(Some(Keep::Nothing)), seed));
            cases.push(case(false, Stop::PowerFailure(Some(Keep::Everything)), seed));
        }
        cases.push(case(false, Stop::Kill, seed));
        cases.push(case(false, Stop::PowerFailure(None), seed));
        if long {
            cases.push(case(true, Stop::PowerFailure(None), seed));
            cases.push(case(true, Stop::Kill, seed));
        }
    }
    cases
}

/// Explores all crash points of a workload for which `is_mine` returns true. Stops at the first
/// failure.
pub(super) fn explore_workload(
    worker: &Worker,
    index: usize,
    seeds: std::ops::Range<u64>,
    mut is_mine: impl FnMut() -> bool,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let workload: &Workload = &WORKLOADS[index];
    let nowhere =
        Case { workload: index, crash_point: 0, inside: false, stop: Stop::Kill, seed: 0 };
    let recorded = catch_unwind(AssertUnwindSafe(|| record(worker, workload)))
        .unwrap_or_else(|_| Err(format!("workload {} panics", workload.name)))
        .map_err(|why| Failed { case: nowhere, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for crash_point in 0..=recorded.operations.len() {
        let next = recorded.operations.get(crash_point);
        if next.is_none_or(Operation::matters) {
            for case in cases_at(index, crash_point, next, seeds.clone()) {
                if is_mine() {
                    try_case(worker, &recorded, &before, &model, case, tally)?;
                }
            }
        }
        if let Some(next) = next {
            before.apply(next);
            if let Operation::Mark(mark) = next {
                model.follow(*mark).map_err(|why| Failed { case: nowhere, why })?;
            }
        }
    }
    Ok(())
}

/// Kills a workload at every operation, runs every follow-up program, and fails the power at every
/// operation of it: data that a process finds in the page cache may not be on the disk.
pub(super) fn explore_twice(
    worker: &Worker,
    index: usize,
    mut is_mine: impl FnMut() -> bool,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let name = WORKLOADS[index].name;
    let mut case =
        Case { workload: index, crash_point: 0, inside: false, stop: Stop::Kill, seed: 0 };
    let recorded = record(worker, &WORKLOADS[index]).map_err(|why| Failed { case, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for next in &recorded.operations {
        for inside in [false, true] {
            let mut image = before.clone();
            if inside {
                image.apply_partly(next, false, &mut Random::new(0));
            }
            let skip = !model.has_object() || !next.matters() || inside && !next.is_long();
            for steps in FOLLOW_UPS.iter().filter(|_| !skip) {
                if is_mine() {
                    case.inside = inside;
                    fail_power_everywhere(worker, &image, &model, steps, tally).map_err(|why| {
                        let at = describe(next);
                        let why = format!(
                            "{name} killed at {}, {at}, inside={inside}, {why}",
                            case.crash_point
                        );
                        Failed { case, why }
                    })?;
                }
            }
        }
        before.apply(next);
        if let Operation::Mark(mark) = next {
            model.follow(*mark).map_err(|why| Failed { case, why })?;
        }
        case.crash_point += 1;
    }
    Ok(())
}

fn fail_power_everywhere(
    worker: &Worker,
    image: &Image,
    model: &Model,
    steps: &'static [Step],
    tally: &mut Tally,
) -> Result<(), String> {
    let context = |why: String| format!("then {steps:?}: {why}");
    let (ran, trace) = run_steps(worker, image.clone(), 3, steps);
    ran.map_err(context)?;
    follow(&mut model.clone(), &trace.operations).map_err(context)?;
    let (mut before, mut model) = (trace.start, model.clone());
    for (crash_point, next) in trace.operations.iter().enumerate() {
        for keep in [Keep::Nothing, Keep::Random] {
            if !next.matters() {
                continue;
            }
            tally.crash_points += 1;
            let mut random = Random::of(&[crash_point as u64, 11]);
            let found = before.power_failure(Some(keep), &mut random);
            let mut model = model.clone();
            model.ended(End::PowerFailure);
            let at = |why: String| {
                format!("then {steps:?}, power failure ({keep:?}) at {crash_point}: {why}")
            };
            let (ran, trace) = run_steps(worker, found, 4, &[Step::Open]);
            ran.map_err(at)?;
            follow(&mut model, &trace.operations).map_err(at)?;
        }
        before.apply(next);
        if let Operation::Mark(mark) = next {
            model.follow(*mark)?;
        }
    }
    Ok(())
}

/// Runs a program to its end. Returns its result and the trace.
pub(super) fn run_steps(
    worker: &Worker,
    image: Image,
    seed: u64,
    steps: &[Step],
) -> (Result<(), String>, Trace) {
    let mut runner = Runner::new(worker, image, seed);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(steps)));
    let trace = runner.disk.trace();
    let outcome = match ran {
        Ok(ran) => ran.map_err(|error| error.to_string()),
        Err(_) => Err("a panic".to_string()),
    };
    (outcome, trace)
}

/// Explores one crash point again.
pub(super) fn reproduce(case: Case) -> Result<Tally, Failed> {
    let worker = Worker::new();
    let recorded =
        record(&worker, &WORKLOADS[case.workload]).map_err(|why| Failed { case, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for operation in &recorded.operations[..case.crash_point.min(recorded.operations.len())] {
        before.apply(operation);
        if let Operation::Mark(mark) = operation {
            model.follow(*mark).map_err(|why| Failed { case, why })?;
        }
    }
    let mut tally = Tally::default();
    try_case(&worker, &recorded, &before, &model, case, &mut tally)?;
    Ok(tally)
}
