//! Measures both ways of starting: a new process each time, in turns, from its start to its first
//! frame.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use crate::error::{Result, TvError};

/// Ways to start: name and options.
pub const WAYS: [(&str, &[&str]); 3] =
    [("parse", &["--parse"]), ("kept, painted", &["--kept", "--repaint"]), ("kept", &["--kept"])];

/// Times of one way, in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Cost {
    pub way: &'static str,
    pub screen: String,
    pub median_ms: f64,
    pub quarter_ms: f64,
    pub three_quarters_ms: f64,
    pub fastest_ms: f64,
    /// Ratio to the time of `kept`.
    pub ratio: f64,
}

/// Starts `program` `rounds` times each way.
///
/// # Errors
/// If the program can't be started, or ends without a frame.
pub fn compare(
    program: &Path,
    common: &[String],
    screen: &str,
    rounds: usize,
) -> Result<Vec<Cost>> {
    let mut times = [const { Vec::new() }; WAYS.len()];
    // The first start fills the store, and brings all files into the page cache.
    one(program, common, screen, WAYS[2].1)?;
    for _ in 0..rounds.max(1) {
        for (times, (_, options)) in times.iter_mut().zip(WAYS) {
            times.push(one(program, common, screen, options)?);
        }
    }
    let mut costs: Vec<Cost> = times
        .into_iter()
        .zip(WAYS)
        .map(|(mut times, (way, _))| {
            times.sort_by(f64::total_cmp);
            let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
            Cost {
                way,
                screen: screen.to_string(),
                median_ms: at(0.5),
                quarter_ms: at(0.25),
                three_quarters_ms: at(0.75),
                fastest_ms: at(0.0),
                ratio: 1.0,
            }
        })
        .collect();
    let kept_ms = costs.last().map_or(1.0, |cost| cost.median_ms);
    costs.iter_mut().for_each(|cost| cost.ratio = cost.median_ms / kept_ms);
    Ok(costs)
}

/// Returns the milliseconds from the start of a process to its line about the first frame.
fn one(program: &Path, common: &[String], screen: &str, options: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let mut child = Command::new(program)
        .arg("start")
        .args(common)
        .args(["--screen", screen, "--timing", "--json"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(TvError::file(program, "name a program that can be started"))?;
    let mut line = String::new();
    let mut rest = Vec::new();
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        let read = out.read_line(&mut line);
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        // The process may still write to the store.
        let ended = read.and_then(|_| out.read_to_end(&mut rest)).and_then(|_| child.wait());
        let ended = ended.map_err(TvError::file(program, "try again"))?;
        let kept = !options.contains(&"--kept") || line.contains("\"kept\":true");
        return match (line.is_empty(), ended.success()) {
            (false, true) if kept || options == WAYS[2].1 => Ok(ms),
            (false, true) => Err(TvError::Child("could not store the user interface".to_string())),
            _ => Err(TvError::Child(format!("ended with {ended}"))),
        };
    }
    Err(TvError::Child("has no output".to_string()))
}
