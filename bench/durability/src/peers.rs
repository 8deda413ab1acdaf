//! Measures the same changes by Evermap and its peers: time and bytes of whole series.
//!
//! A series opens the engine, commits repeatedly, and closes it. The time covers a whole change:
//! reading and changing the values and making them durable. The mean includes deferred work:
//! checkpoints and the close. So do the bytes, which are counted when everything is on the disk.

use std::time::{Duration, Instant};

use super::engines::{lmdb::Lmdb, pmdk::Pmdk, redb::Redb, sqlite::Sqlite};
use super::work::{Change, Engine, PAGE_BYTES, SIZES, Scale, Work};
use super::written::Written;
use harness::Outcome;
use harness::files::Folder;
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

/// A series ends after this time, even if rounds are left.
const SERIES_LONGEST: Duration = Duration::from_secs(6);
const ROUNDS_LEAST: usize = 3;
/// An engine is left out if its commit would take longer than this, estimated from fewer pages.
const COMMIT_LONGEST_US: f64 = 3e6;

/// Goals for the time of this many pages, as fractions of LMDB's and redb's time.
const GOALS: [(usize, f64); 2] = [(100, 0.2), (10_000, 0.3)];
const BYTES_GOAL: f64 = 1.1;

/// Results of one engine's series.
pub struct Series {
    engine: String,
    change: Change,
    pages: usize,
    whole: Samples,
    commit: Samples,
    /// Time of the series, close included, divided by the number of commits.
    mean_us: f64,
    /// Pages written per changed page, by this process's count and by the disk's.
    written: f64,
    written_disk: Option<f64>,
}

/// Measures all series of one engine; `None` for a series that would take too long.
pub fn measure(engine: &mut dyn Engine, scale: Scale) -> Outcome<Vec<Option<Series>>> {
    let mut all: Vec<Option<Series>> = Vec::new();
    let mut random = Random::new(2);
    for change in [Change::EightBytes, Change::WholePage] {
        let mut us_a_page: f64 = 0.0;
        for (pages, _, rounds) in SIZES {
            // The first size is too small to estimate the cost of a page.
            if us_a_page * pages as f64 > COMMIT_LONGEST_US {
                all.push(None);
                continue;
            }
            let series = series(engine, &mut random, scale, (change, pages, scale.rounds(rounds)))?;
            if pages > 1 {
                us_a_page = series.whole.median() / pages as f64;
            }
            all.push(Some(series));
        }
    }
    Ok(all)
}

fn series(
    engine: &mut dyn Engine,
    random: &mut Random,
    scale: Scale,
    (change, pages, rounds): (Change, usize, usize),
) -> Outcome<Series> {
    let (mut whole, mut commit) = (Samples::new(), Samples::new());
    let before = Written::now()?;
    let start = Instant::now();
    engine.open()?;
    let mut spent = start.elapsed();
    while whole.count() < rounds
        && (spent < SERIES_LONGEST || whole.count() < ROUNDS_LEAST.min(rounds))
    {
        let work = Work::new(random, scale, change, pages);
        let times = engine.commit(&work)?;
        whole.push_us(times.whole());
        commit.push_us(times.commit);
        spent += times.whole();
    }
    let start = Instant::now();
    engine.close()?;
    spent += start.elapsed();
    let written = Written::now()?.since(before);
    let changed = (whole.count() * pages * PAGE_BYTES) as f64;
    Ok(Series {
        engine: engine.name(),
        change,
        pages,
        mean_us: spent.as_secs_f64() * 1e6 / whole.count() as f64,
        whole,
        commit,
        written: written.process as f64 / changed,
        written_disk: written.disk.map(|bytes| bytes as f64 / changed),
    })
}

/// Measures the peers one after the other, and prints them together with Evermap's earlier results.
pub fn report(
    own: Vec<Option<Series>>,
    folder: &Folder,
    scale: Scale,
    goals: &mut Goals,
) -> Outcome {
    println!("\n### Comparison with other engines\n");
    let own: Option<Vec<Series>> = own.into_iter().collect();
    let own = own.ok_or("Evermap's commits take too long to be measured")?;
    let (mut all, mut made) = (Vec::new(), Vec::new());
    for peer in PEERS {
        let path = folder.join("peer");
        let start = Instant::now();
        match peer(&path, scale)? {
            Some(mut engine) => {
                made.push(format!("{} {} s", engine.name(), figure(start.elapsed().as_secs_f64())));
                all.push(measure(engine.as_mut(), scale)?);
            }
            None => println!(
                "**PMDK is not measured: libpmemobj.so.1 is not installed (Debian: libpmemobj1).**\n"
            ),
        }
        remove(&path)?;
    }
    println!("Time to create the pages durably in one transaction: {}.\n", made.join("; "));
    print(&own, &all);
    println!(
        "\nAn engine is left out if a commit would take more than {} s.",
        figure(COMMIT_LONGEST_US / 1e6)
    );
    judge(&own, &all, goals);
    Ok(())
}

type Maker = fn(&std::path::Path, Scale) -> Outcome<Option<Box<dyn Engine>>>;

const PEERS: [Maker; 5] = [
    |path, scale| Ok(Some(Box::new(Lmdb::new(path, scale, PAGE_BYTES)?))),
    |path, scale| Ok(Some(Box::new(Lmdb::new(path, scale, PAGE_BYTES - 16)?))),
    |path, scale| Ok(Some(Box::new(Redb::new(path, scale)?))),
    |path, scale| Ok(Some(Box::new(Sqlite::new(path, scale)?))),
    |path, scale| match Pmdk::new(path, scale)? {
        Some(pmdk) => Ok(Some(Box::new(pmdk))),
        None => Ok(None),
    },
];

fn remove(path: &std::path::Path) -> Outcome {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => Ok(std::fs::remove_dir_all(path)?),
        Ok(_) => Ok(std::fs::remove_file(path)?),
        Err(_) => Ok(()),
    }
}

fn print(own: &[Series], peers: &[Vec<Option<Series>>]) {
    head(&[
        "changed",
        "engine",
        "change and commit, us",
        "commit alone, us",
        "mean with close, us",
        "Evermap / engine",
        "ratio of means",
        "pages written per changed page",
        "by the disk's count",
        "commits",
    ]);
    for (index, ours) in own.iter().enumerate() {
        let theirs = peers.iter().filter_map(|all| all[index].as_ref());
        for series in std::iter::once(ours).chain(theirs) {
            row(&[
                format!("{} {} pages", series.change.name(), series.pages),
                series.engine.clone(),
                series.whole.to_string(),
                figure(series.commit.median()),
                figure(series.mean_us),
                figure(ours.whole.median() / series.whole.median()),
                figure(ours.mean_us / series.mean_us),
                figure(series.written),
                series.written_disk.map_or("unknown".to_string(), figure),
                series.whole.count().to_string(),
            ]);
        }
    }
}

fn judge(own: &[Series], peers: &[Vec<Option<Series>>], goals: &mut Goals) {
    for (index, ours) in own.iter().enumerate() {
        let what = format!("{} {} pages", ours.change.name(), ours.pages);
        for theirs in peers.iter().filter_map(|all| all[index].as_ref()) {
            let matters = theirs.engine.starts_with("LMDB") || theirs.engine.starts_with("redb");
            if let Some((_, most)) = GOALS.iter().find(|(size, _)| *size == ours.pages && matters) {
                let got = (ours.whole.median(), format!("{} us", ours.whole));
                let floor = (theirs.whole.median(), theirs.engine.as_str());
                goals.ratio(&format!("change and commit, {what}"), *most, got, floor);
            }
        }
        if ours.change == Change::EightBytes {
            let written = ours.written_disk.unwrap_or(ours.written);
            goals.at_most(
                &format!("written a changed page, {what}"),
                (BYTES_GOAL, "pages"),
                (written, format!("{} pages", figure(written))),
                format!("1; by the process's count {}", figure(ours.written)),
            );
        }
    }
}
