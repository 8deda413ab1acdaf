//! Measures a real decoder: ffmpeg decodes a film of 1280 x 720 at 24 frames a second with one
//! thread into a pipe. Each period takes one frame from the pipe.
//!
//! ffmpeg runs without a lane, in a lent lane (`evermap lane run`) with the film on the disk, and
//! in a lent lane with the film on the tier. The load is four programs that compute and two that
//! write.
//!
//! Draws `lane-decoder.svg`.

use std::path::Path;
use std::time::Duration;

use evermap_lane::{Policy, Quantiles, Rate};
use evermap_plot::{Kind, LineChart, Series};
use harness::samples::figure;
use harness::table::Table;
use harness::{Outcome, caches};

use crate::bench::{Bench, HOGS, WRITERS};
use crate::child::Asked;
use crate::watched::{Request, Watched};
use crate::{ffmpeg, stress};

const FRAMES: u64 = 500;
const FIRST: u64 = 24;
const SUBJECTS: [&str; 3] = ["ordinary", "lane", "lane and tier"];

pub fn report(bench: &mut Bench) -> Outcome {
    let (Some(program), Some(stress), Some(evermap)) =
        (bench.own.ffmpeg.clone(), bench.own.stress.clone(), bench.options.evermap.clone())
    else {
        println!("Skipped: needs ffmpeg, stress-ng and `evermap`.");
        return Ok(());
    };
    let rounds = bench.options.scaled(3, 1);
    let frames = bench.options.scaled(FRAMES, 24);
    let seconds = (frames + FIRST) / u64::from(ffmpeg::FPS) + 2;
    let film = bench.folder("clips")?.join("film.mp4");
    ffmpeg::film(&program, seconds, &film)?;
    let mut all: Vec<Vec<Watched>> = vec![Vec::new(); SUBJECTS.len()];
    for round in 0..rounds {
        for at in 0..SUBJECTS.len() {
            harness::ends::check_interrupted()?;
            let subject = SUBJECTS[(at + round) % SUBJECTS.len()];
            eprintln!("{subject}: round {} of {rounds}", round + 1);
            let request = Request {
                command: command(
                    bench,
                    ffmpeg::decoding(&program, &film, FIRST + frames),
                    (&evermap, &film),
                    subject,
                )?,
                frame_bytes: ffmpeg::FRAME_BYTES,
                fps: ffmpeg::FPS,
                frames,
                first: FIRST,
            };
            caches::drop_file(&film)?;
            let folder = bench.folder("stress")?;
            // Longer than the film, because late frames take longer.
            let load =
                stress::Run::start(&stress, (HOGS, WRITERS), &folder, Duration::from_secs(3_600))?;
            std::thread::sleep(Duration::from_secs(1));
            let watched = Asked::to_watch(bench, &request)?.watched()?;
            drop(load);
            let origin = harness::raw::Origin {
                section: "decoder",
                cell: "720p",
                subject,
                round: round + 1,
            };
            bench.raw.add(origin, &watched)?;
            all[(at + round) % SUBJECTS.len()].push(watched);
        }
    }
    tell(bench, &all)
}

fn command(
    bench: &Bench,
    decoding: Vec<String>,
    (evermap, film): (&Path, &Path),
    subject: &str,
) -> Outcome<Vec<String>> {
    if subject == "ordinary" {
        return Ok(decoding);
    }
    let mut policy = Policy::default();
    policy.app.fps = Some(Rate::Whole(u64::from(ffmpeg::FPS)));
    // The decoder fills a pipe before the first period, without sleeping.
    policy.guard.max_overrun = 100;
    if subject == "lane and tier" {
        policy.tier.files = vec![film.display().to_string()];
    }
    let path = bench.folder("clips")?.join(format!("{}.toml", subject.replace(' ', "-")));
    std::fs::write(&path, policy.to_toml()?)?;
    let mut words = vec![evermap.display().to_string()];
    words.extend(["lane", "run", "--policy"].map(String::from));
    words.extend([path.display().to_string(), "--".to_string()]);
    words.extend(decoding);
    Ok(words)
}

fn tell(bench: &mut Bench, all: &[Vec<Watched>]) -> Outcome {
    let mut table = Table::new(&["ffmpeg", "missed", "completion p50 (ms)", "p99", "max"]);
    let mut series = Vec::new();
    for (subject, runs) in SUBJECTS.iter().zip(all) {
        let missed: u64 = runs.iter().map(|run| run.missed).sum();
        let periods: u64 = runs.iter().map(|run| run.periods).sum();
        let completions: Vec<f64> =
            runs.iter().flat_map(|run| run.completions_ms.iter().copied()).collect();
        let completion = Quantiles::of(&completions);
        table.row(&[
            subject.to_string(),
            format!(
                "{} % ({missed} of {periods})",
                figure(100.0 * missed as f64 / periods.max(1) as f64)
            ),
            figure(completion.p50),
            figure(completion.p99),
            figure(completion.max),
        ]);
        let first = runs.first().map_or(Vec::new(), |run| run.completions_ms.clone());
        let points = first.iter().enumerate().map(|(at, ms)| (at as f64, *ms)).collect();
        series.push(Series { name: subject.to_string(), points });
    }
    println!("{table}");
    let deadline_ms = 1e3 / f64::from(ffmpeg::FPS);
    let chart = LineChart {
        title: "Completion times of ffmpeg's frames".into(),
        x_label: "frame".into(),
        y_label: "after the start of the period [ms]".into(),
        x_range: None,
        y_range: None,
        log_y: true,
        series,
        levels: vec![(deadline_ms, "deadline".into())],
        kind: Kind::Points,
    };
    bench.draw("lane-decoder.svg", &chart.svg()?)
}
