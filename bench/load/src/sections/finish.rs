//! Main figure: a file of 1 GiB that is not cached, all of it written. Also evaluates the goals,
//! some of which use results of other sections.
//!
//! Each round measures the device's rate, by 16 direct reads of 2 MiB in flight into reused memory.
//! A subject's share of that rate covers the load until the whole file was usable, without the work
//! after it.

use std::path::{Path, PathBuf};

use harness::goals::Goal;
use harness::process::{self, Job};
use harness::raw::Origin;
use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::units::{GIB, MIB, grouped, size};
use harness::volumes::Packed;
use harness::{Outcome, volumes};

use super::{systems, tables};
use crate::bench::{self, Bench};
use crate::compete::{
    Cell, Measured, Standings, compete, compete_beside, finished_ms, make_cold, methods,
};
use crate::corpus::{self, Content};
use crate::subjects::{AUTOMATIC, FINISH, MAP, READ};
use crate::work::{Order, Work};

pub(super) const SUBJECTS: [&str; 6] =
    [READ, MAP, "evermap takeover", "evermap takeover-on-demand", AUTOMATIC, FINISH];
const ALL_WRITTEN: Work = Work::written(100, Order::Sequential);
const ALL_READ: Work = Work::read(100, Order::Sequential);
const PACKED_BYTES: u64 = 256 * MIB;
const NO_COLD: &str = "the folder is in memory, where nothing is cold";

pub fn report(bench: &mut Bench) -> Outcome {
    let named = bench.options.sizes_bytes.first().copied();
    let (bytes, packed_bytes) = (named.unwrap_or(GIB), named.unwrap_or(PACKED_BYTES));
    let folder = bench.folder("finish")?;
    let file = corpus::make(&folder, "file", bytes, Content::Random)?;
    if volumes::kind(&folder) == Some("tmpfs") {
        bench.goals.unmeasured("cold, all written", Goal::AtLeast(1.5), NO_COLD);
    } else {
        headline(bench, &file, bytes)?;
    }
    warm(bench, &file, bytes)?;
    std::fs::remove_dir_all(folder)?;
    compressed(bench, packed_bytes)?;
    every_cell(bench);
    Ok(())
}

fn cell(name: String, file: &Path, bytes: u64, is_cold: bool, work: Work) -> Cell {
    let (section, file) = ("finish", PathBuf::from(file));
    Cell { section, name, file, bytes, is_cold, work, is_packed: false }
}

fn headline(bench: &mut Bench, file: &Path, bytes: u64) -> Outcome {
    let name = format!("{}, cold, all written", size(bytes));
    let cell = cell(name, file, bytes, true, ALL_WRITTEN);
    let subjects = bench::named(bench, &SUBJECTS);
    let mut rates = Vec::new();
    let mut rate = |bench: &mut Bench, round: usize| -> Outcome {
        let rate = device_rate(bench, file)?;
        let origin = Origin {
            section: "finish",
            cell: "device",
            subject: "16 direct reads of 2 MiB",
            round,
        };
        bench.raw.add(origin, serde_json::json!({ "bytes_per_s": rate }))?;
        if round > 0 {
            rates.push(rate);
        }
        Ok(())
    };
    let all = compete_beside(bench, &cell, &subjects, Some(&mut rate))?;
    println!("### {}\n\n{}", cell.name, headline_table(&all, &rates));
    println!("The device reads {} MB/s.\n", figure(samples(&rates).median() / 1e6));
    println!("{}", tables::costs(&all));
    tables::failures(std::slice::from_ref(&all));
    for policy in [AUTOMATIC, FINISH] {
        judge_headline(bench, &all, &rates, policy);
    }
    Ok(())
}

/// Measures the device's rate of this round, in bytes a second.
fn device_rate(bench: &Bench, file: &Path) -> Outcome<f64> {
    make_cold(file, false)?;
    let output = tempfile::NamedTempFile::new()?;
    let mut command = std::process::Command::new(&bench.options.program);
    command.args(["child", "rate"]).arg(file);
    process::run(Job { output: Some(output.path().to_path_buf()), ..Job::new(command) })??;
    Ok(std::fs::read_to_string(output.path())?.trim().parse()?)
}

fn samples(values: &[f64]) -> Samples {
    let mut samples = Samples::new();
    values.iter().for_each(|value| samples.push(*value));
    samples
}

/// Returns the rate of each round divided by the device's rate. `None` if the subject has no known
/// time of completion before the pages are touched.
fn device_shares(all: &Standings, name: &str, rates: &[f64]) -> Option<Samples> {
    let steps = all.result(name)?.steps.as_ref().ok()?;
    let mut shares = Samples::new();
    for (step, rate) in steps.iter().zip(rates) {
        let complete_s = match name {
            READ => step.taken.loaded_s,
            _ => step.taken.complete_s?,
        };
        shares.push(step.bytes as f64 / complete_s / rate);
    }
    Some(shares)
}

fn headline_table(all: &Standings, rates: &[f64]) -> Table {
    let mut table = Table::new(&[
        "",
        "method",
        "finished, ms: mean",
        "median",
        "first page, ms",
        "system, ms",
        "faults",
        "twice, MiB",
        "of the device's rate",
    ]);
    for result in all.results.iter().filter(|result| result.steps.is_ok()) {
        let shares = device_shares(all, &result.name, rates);
        table.row(&[
            result.name.clone(),
            methods(result),
            figure(finished_ms(result).mean()),
            finished_ms(result).to_string(),
            tables::first_page(result),
            result.samples(Measured::system_ms).to_string(),
            grouped(result.samples(Measured::faults).median()),
            figure(result.samples(|step| step.duplicate_bytes as f64).median() / MIB as f64),
            shares.map_or("-".to_string(), |shares| shares.to_string()),
        ]);
    }
    table
}

/// Compares a figure of one subject with a goal.
fn judge(bench: &mut Bench, what: &str, peer: &str, figures: Option<Samples>, goal: Goal) {
    match figures {
        Some(figures) => {
            bench.goals.judge(what, peer, &figures, goal);
        }
        None => bench.goals.unmeasured(what, goal, "the compared subject was not measured"),
    }
}

/// Judges the peers' time divided by the policy's time.
fn judge_times(bench: &mut Bench, all: &Standings, policy: &str, peers: &[&str], goal: Goal) {
    for peer in peers {
        let what = format!("{}: {peer} / {policy}", all.cell.name);
        judge(bench, &what, peer, all.ratios(peer, policy, Measured::finished_ms), goal);
    }
}

fn judge_headline(bench: &mut Bench, all: &Standings, rates: &[f64], policy: &str) {
    judge_times(bench, all, policy, &[READ, MAP], Goal::AtLeast(1.5));
    let cell = &all.cell.name;
    let own = |of: &dyn Fn(&Measured) -> f64| all.result(policy).map(|result| result.samples(of));
    let system = all.ratios(policy, READ, Measured::system_ms);
    let what = |what: &str| format!("{cell}: {policy}: {what}");
    judge(bench, &what("system time, / malloc+read"), READ, system, Goal::AtMost(1.0 / 3.0));
    if policy == AUTOMATIC {
        let first = own(&|step| step.taken.first_page_s * 1e3);
        judge(bench, &what("first page, ms"), "", first, Goal::AtMost(4.0));
    }
    judge(bench, &what("faults"), "", own(&Measured::faults), Goal::AtMost(1100.0));
    let twice = own(&|step| step.duplicate_bytes as f64 / MIB as f64);
    judge(bench, &what("in memory twice, MiB"), "", twice, Goal::AtMost(0.0));
    let shares = device_shares(all, policy, rates);
    judge(bench, &what("share of the device's rate"), "the device", shares, Goal::AtLeast(0.9));
}

fn warm(bench: &mut Bench, file: &Path, bytes: u64) -> Outcome {
    let subjects = bench::named(bench, &[READ, MAP, AUTOMATIC, FINISH]);
    let name = format!("{}, warm, all written", size(bytes));
    let all = compete(bench, &cell(name, file, bytes, false, ALL_WRITTEN), &subjects)?;
    println!("### {}\n\n{}", all.cell.name, tables::costs(&all));
    judge_times(bench, &all, AUTOMATIC, &[READ, MAP], Goal::AtLeast(2.0));
    let name = format!("{}, warm, all read", size(bytes));
    let all = compete(bench, &cell(name, file, bytes, false, ALL_READ), &subjects)?;
    println!("### {}\n\n{}", all.cell.name, tables::costs(&all));
    let what = format!("{}: {AUTOMATIC} / {MAP}", all.cell.name);
    let ratios = all.ratios(AUTOMATIC, MAP, Measured::finished_ms);
    judge(bench, &what, MAP, ratios, Goal::AtMost(1.03));
    Ok(())
}

fn compressed(bench: &mut Bench, bytes: u64) -> Outcome {
    let (name, goal) =
        (format!("squashfs zstd, {}, cold, all written", size(bytes)), Goal::AtLeast(2.0));
    let volume = match bench.can_drop {
        true => systems::packed(bench, Packed::SquashfsZstd, bytes)?,
        false => None,
    };
    let Some(volume) = volume else {
        bench.goals.unmeasured(&name, goal, "squashfs can't be mounted here");
        return Ok(());
    };
    let file = systems::file_in(volume.folder());
    let cell = Cell { is_packed: true, ..cell(name, &file, bytes, true, ALL_WRITTEN) };
    let subjects = bench::named(bench, &[READ, MAP, AUTOMATIC, FINISH]);
    let all = compete(bench, &cell, &subjects)?;
    println!("### {}\n\n{}", all.cell.name, tables::costs(&all));
    judge_times(bench, &all, AUTOMATIC, &[READ, MAP], goal);
    Ok(())
}

/// Judges the cells of `cells` and `systems`, if these sections ran before.
fn every_cell(bench: &mut Bench) {
    for policy in [AUTOMATIC, FINISH] {
        let what = format!("cells in which {policy} is within 10 % of the best, of all");
        let goal = Goal::AtLeast(1.0);
        match tables::within(&bench.own.standings, policy) {
            Some((met, cells)) => {
                let share = samples(&[met as f64 / cells as f64]);
                let what = format!("{what} {cells}");
                bench.goals.judge(&what, "the best of each", &share, goal);
            }
            None => bench.goals.unmeasured(&what, goal, "run `cells` in the same run"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::child::Taken;
    use crate::compete::SubjectResult;
    use harness::process::Cost;

    #[test]
    fn a_share_of_the_devices_rate_covers_only_the_load() {
        let taken =
            Taken { loaded_s: 1.0, complete_s: Some(0.5), finished_s: 9.0, ..Taken::default() };
        let step = Measured::of(taken, Cost::default(), 100, 0);
        let mut bare = step.clone();
        bare.taken.complete_s = None;
        let result = |name: &str, step: &Measured| SubjectResult {
            name: name.to_string(),
            steps: Ok(vec![step.clone()]),
            about: (),
        };
        let cell = cell(String::new(), Path::new(""), 100, true, ALL_WRITTEN);
        let results = vec![result(READ, &bare), result(MAP, &bare), result(AUTOMATIC, &step)];
        let all = Standings { cell, results };
        let share = |name| device_shares(&all, name, &[400.0]).map(|shares| shares.median());
        assert_eq!((share(READ), share(MAP), share(AUTOMATIC)), (Some(0.25), None, Some(0.5)));
    }
}
