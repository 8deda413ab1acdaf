//! Cuts: makes the disk that a cut leaves, opens the object on it, judges, and cuts again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::Trace;
use super::history::{HISTORIES, History, Recorded, follow, record};
use super::image::{Image, Operation};
use super::model::{End, Model};
use super::platter::Keep;
use super::random::Random;
use super::runner::{Choice, Runner, Step, describe};
use super::state::Edit;
use super::subject::Worker;
use crate::commit::LogPolicy;

/// How a history ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Kill,
    /// Everything the disk was not told to keep is kept alike, or each sector its own way.
    PowerCut(Option<Keep>),
}

/// One cut, by numbers that give it back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) history: usize,
    /// Operations that happened.
    pub(super) cut: usize,
    /// The next one was going on.
    pub(super) inside: bool,
    pub(super) stop: Stop,
    pub(super) seed: u64,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stop = match self.stop {
            Stop::Kill => "kill",
            Stop::PowerCut(Some(Keep::Nothing)) => "nothing",
            Stop::PowerCut(Some(_)) => "everything",
            Stop::PowerCut(None) => "power",
        };
        let Case { history, cut, inside, seed, .. } = self;
        let (name, inside) = (HISTORIES[*history].name, u8::from(*inside));
        write!(f, "history={name} cut={cut} inside={inside} stop={stop} seed={seed}")
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
        let name = value("history")?;
        let history = HISTORIES.iter().position(|history| history.name == name);
        Ok(Case {
            history: history.ok_or_else(|| format!("no history `{name}`"))?,
            cut: number("cut")? as usize,
            inside: number("inside")? != 0,
            stop: match value("stop")? {
                "kill" => Stop::Kill,
                "nothing" => Stop::PowerCut(Some(Keep::Nothing)),
                "everything" => Stop::PowerCut(Some(Keep::Everything)),
                "power" => Stop::PowerCut(None),
                other => return Err(format!("`stop={other}` is not known")),
            },
            seed: number("seed")?,
        })
    }
}

/// What a program does with an object that it finds after a cut.
const AFTERWARDS: &[&[Step]] = {
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
        &[NeighbourComes, OpenWith(Choice::Interval), SAME, Commit, SAME, Commit, NeighbourGoes],
        &[NeighbourComes, OpenWith(Choice::ShortLog), SAME, Commit, FEW, Commit, NeighbourGoes],
    ]
};

/// Those of them at the beginning in which nobody reads beside the writer.
const AFTERWARDS_ALONE: usize = 11;

/// Cuts on top of one another at most.
const DEPTH_MAX: usize = 4;

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) cuts: u64,
}

/// A cut that was judged wrong.
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

/// The disk that a stop leaves when `cut` operations had happened.
fn stop(
    before: &Image,
    next: Option<&Operation>,
    inside: bool,
    stop: Stop,
    random: &mut Random,
) -> Image {
    let mut image = before.clone();
    if let Some(next) = next.filter(|_| inside) {
        image.happen_in_part(next, stop == Stop::Kill, random);
    }
    match stop {
        Stop::Kill => image,
        Stop::PowerCut(keep) => image.power_cut(keep, random),
    }
}

fn end_of(stop: Stop) -> End {
    if stop == Stop::Kill { End::Kill } else { End::PowerCut }
}

/// Opens the object on what a cut left, judges, and cuts what that did in turn.
pub(super) fn descend(
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
    tally.cuts += 1;
    let (image_is_permanent, replayed) = (image.permanent_log, image.replayed);
    let afterwards = match depth {
        0 if random.chance(1, 4) => random.below(2),
        // A log that is kept for good shuts readers out while it is written.
        _ if image_is_permanent => random.below(AFTERWARDS_ALONE),
        _ => random.below(AFTERWARDS.len()),
    };
    let mut runner = Runner::new(worker, image, random.next());
    if image_is_permanent {
        // After a kill there may be a process that had the log replayed before.
        runner.policy = LogPolicy::Permanent { applied: replayed && random.chance(1, 2) };
    }
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(AFTERWARDS[afterwards])));
    let trace = runner.disk.trace();
    drop(runner);
    if std::env::var_os("EVERMAP_SIM_TRACE").is_some() {
        println!("cut {}, then {:?}", depth + 1, AFTERWARDS[afterwards]);
        trace.operations.iter().enumerate().for_each(|(n, o)| println!("  {n}: {}", describe(o)));
    }
    let story =
        |why: String| format!("cut {}, then {:?}: {why}", depth + 1, AFTERWARDS[afterwards]);
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(trouble)) => return Err(story(format!("{trouble}; {model}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            return Err(story(format!("a panic: {}", text.unwrap_or_default())));
        }
    }
    follow(&mut model.clone(), &trace.operations).map_err(story)?;
    if depth + 1 == DEPTH_MAX || !random.chance(3, 5) {
        return Ok(());
    }
    // A state that was seen must not go back: the instant after it is as good as any other.
    let cut = match random.below(4) {
        0 => trace.operations.len(),
        _ => random.below(trace.operations.len() + 1),
    };
    let mut before = trace.start.clone();
    for operation in &trace.operations[..cut] {
        before.happen(operation);
    }
    follow(&mut model, &trace.operations[..cut]).map_err(story)?;
    let (inside, kill) = (random.chance(1, 2), random.chance(1, 3));
    let how = if kill { Stop::Kill } else { Stop::PowerCut(None) };
    let next = stop(&before, trace.operations.get(cut), inside, how, random);
    model.ended(end_of(how));
    descend(worker, next, model, depth + 1, random, tally).map_err(|why| {
        let at = trace.operations.get(cut).map_or("the end".to_string(), describe);
        format!(
            "cut {}, then {:?} cut ({how:?}) at {cut}, {at};\n  {why}",
            depth + 1,
            AFTERWARDS[afterwards]
        )
    })
}

/// Tries one cut of a history, given the disk before it and the model up to there.
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
        Stop::PowerCut(None) => 2,
        Stop::PowerCut(Some(Keep::Nothing)) => 3,
        Stop::PowerCut(Some(_)) => 4,
    };
    let parts =
        [case.history as u64, case.cut as u64, u64::from(case.inside), stop_code, case.seed];
    let mut random = Random::of(&parts);
    let next = recorded.operations.get(case.cut);
    let image = stop(before, next, case.inside, case.stop, &mut random);
    let mut model = model.clone();
    model.ended(end_of(case.stop));
    descend(worker, image, model, 0, &mut random, tally).map_err(|why| {
        let at = next.map_or("the end".to_string(), describe);
        Failed { case, why: format!("cut at {at}\n  {why}") }
    })
}

/// The ways in which every point of a history is cut.
pub(super) fn cases_at(
    history: usize,
    cut: usize,
    next: Option<&Operation>,
    seeds: std::ops::Range<u64>,
) -> Vec<Case> {
    let case = |inside, stop, seed| Case { history, cut, inside, stop, seed };
    let mut cases = Vec::new();
    let long = next.is_some_and(Operation::is_long);
    for seed in seeds {
        if seed == 0 {
            cases.push(case(false, Stop::PowerCut(Some(Keep::Nothing)), seed));
            cases.push(case(false, Stop::PowerCut(Some(Keep::Everything)), seed));
        }
        cases.push(case(false, Stop::Kill, seed));
        cases.push(case(false, Stop::PowerCut(None), seed));
        if long {
            cases.push(case(true, Stop::PowerCut(None), seed));
            cases.push(case(true, Stop::Kill, seed));
        }
    }
    cases
}

/// Tries every cut of a history for which `mine` says yes; stops at the first failure.
pub(super) fn explore_history(
    worker: &Worker,
    index: usize,
    seeds: std::ops::Range<u64>,
    mut mine: impl FnMut() -> bool,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let history: &History = &HISTORIES[index];
    let nowhere = Case { history: index, cut: 0, inside: false, stop: Stop::Kill, seed: 0 };
    let recorded = catch_unwind(AssertUnwindSafe(|| record(worker, history)))
        .unwrap_or_else(|_| Err(format!("history {} panics", history.name)))
        .map_err(|why| Failed { case: nowhere, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for cut in 0..=recorded.operations.len() {
        let next = recorded.operations.get(cut);
        if next.is_none_or(Operation::matters) {
            for case in cases_at(index, cut, next, seeds.clone()) {
                if mine() {
                    try_case(worker, &recorded, &before, &model, case, tally)?;
                }
            }
        }
        if let Some(next) = next {
            before.happen(next);
            if let Operation::Mark(mark) = next {
                model.follow(*mark).map_err(|why| Failed { case: nowhere, why })?;
            }
        }
    }
    Ok(())
}

/// Kills a history at every operation, lets every program go on, and cuts the power at every operation
/// of that: what a process finds in the page cache may not be on the disk.
pub(super) fn explore_twice(
    worker: &Worker,
    index: usize,
    mut mine: impl FnMut() -> bool,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let name = HISTORIES[index].name;
    let mut case = Case { history: index, cut: 0, inside: false, stop: Stop::Kill, seed: 0 };
    let recorded = record(worker, &HISTORIES[index]).map_err(|why| Failed { case, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for next in &recorded.operations {
        for inside in [false, true] {
            let mut image = before.clone();
            if inside {
                image.happen_in_part(next, false, &mut Random::new(0));
            }
            let skip = !model.has_object() || !next.matters() || inside && !next.is_long();
            for steps in AFTERWARDS.iter().filter(|_| !skip) {
                if mine() {
                    case.inside = inside;
                    cut_everywhere(worker, &image, &model, steps, tally).map_err(|why| {
                        let at = describe(next);
                        let why =
                            format!("{name} killed at {}, {at}, inside={inside}, {why}", case.cut);
                        Failed { case, why }
                    })?;
                }
            }
        }
        before.happen(next);
        if let Operation::Mark(mark) = next {
            model.follow(*mark).map_err(|why| Failed { case, why })?;
        }
        case.cut += 1;
    }
    Ok(())
}

fn cut_everywhere(
    worker: &Worker,
    image: &Image,
    model: &Model,
    steps: &'static [Step],
    tally: &mut Tally,
) -> Result<(), String> {
    let story = |why: String| format!("then {steps:?}: {why}");
    let (ran, trace) = go_on(worker, image.clone(), 3, steps);
    ran.map_err(story)?;
    follow(&mut model.clone(), &trace.operations).map_err(story)?;
    let (mut before, mut model) = (trace.start, model.clone());
    for (cut, next) in trace.operations.iter().enumerate() {
        for keep in [Keep::Nothing, Keep::Random] {
            if !next.matters() {
                continue;
            }
            tally.cuts += 1;
            let mut random = Random::of(&[cut as u64, 11]);
            let found = before.power_cut(Some(keep), &mut random);
            let mut model = model.clone();
            model.ended(End::PowerCut);
            let at = |why: String| format!("then {steps:?}, power cut ({keep:?}) at {cut}: {why}");
            let (ran, trace) = go_on(worker, found, 4, &[Step::Open]);
            ran.map_err(at)?;
            follow(&mut model, &trace.operations).map_err(at)?;
        }
        before.happen(next);
        if let Operation::Mark(mark) = next {
            model.follow(*mark)?;
        }
    }
    Ok(())
}

/// Runs a program on a disk to its end, and gives what it came to and what it did.
pub(super) fn go_on(
    worker: &Worker,
    image: Image,
    seed: u64,
    steps: &[Step],
) -> (Result<(), String>, Trace) {
    let mut runner = Runner::new(worker, image, seed);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(steps)));
    let trace = runner.disk.trace();
    let came_to = match ran {
        Ok(ran) => ran.map_err(|trouble| trouble.to_string()),
        Err(_) => Err("a panic".to_string()),
    };
    (came_to, trace)
}

/// Tries one cut again.
pub(super) fn reproduce(case: Case) -> Result<Tally, Failed> {
    let worker = Worker::new();
    let recorded = record(&worker, &HISTORIES[case.history]).map_err(|why| Failed { case, why })?;
    let mut before = recorded.start.clone();
    let mut model = Model::default();
    for operation in &recorded.operations[..case.cut.min(recorded.operations.len())] {
        before.happen(operation);
        if let Operation::Mark(mark) = operation {
            model.follow(*mark).map_err(|why| Failed { case, why })?;
        }
    }
    let mut tally = Tally::default();
    try_case(&worker, &recorded, &before, &model, case, &mut tally)?;
    Ok(tally)
}
