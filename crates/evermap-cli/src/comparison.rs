//! Results of a benchmark as all benchmarks of the command show them: the sentence at the end, and
//! the files of `--export-json`, `--export-markdown` and `--export-csv`.
//!
//! A benchmark measures subjects in one or more groups, such as engines for several file sizes.
//! Only subjects of one group are compared with each other.

use std::path::PathBuf;

use evermap_observe::Quantiles;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;
use crate::result_file;

/// Files for the times of a benchmark.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// Write the times to FILE as a JSON list
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,
    /// Write the times to FILE as a Markdown table
    #[arg(long, value_name = "FILE")]
    export_markdown: Option<PathBuf>,
    /// Write the times to FILE as comma-separated values, in seconds
    #[arg(long, value_name = "FILE")]
    export_csv: Option<PathBuf>,
}

/// Times of one subject.
#[derive(Debug, Clone, Serialize)]
pub struct Times {
    /// Group of the subject, such as a file size. Empty if there is only one.
    pub group: String,
    pub name: String,
    pub median_s: f64,
    pub p99_s: f64,
    pub min_s: f64,
    pub max_s: f64,
    /// Number of measurements.
    pub rounds: u64,
}

/// The figure by which subjects are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    Median,
    /// 99th percentile, for frames.
    P99,
}

impl Times {
    /// Summarises measurements in seconds. Returns `None` if there are none.
    pub fn of(group: &str, name: &str, seconds: &[f64]) -> Option<Times> {
        let seconds = Quantiles::of(seconds);
        (seconds.count > 0).then(|| Times {
            group: group.to_string(),
            name: name.to_string(),
            median_s: seconds.p50,
            p99_s: seconds.p99,
            min_s: seconds.min,
            max_s: seconds.max,
            rounds: seconds.count as u64,
        })
    }

    fn figure(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Median => self.median_s,
            Figure::P99 => self.p99_s,
        }
    }
}

/// Returns the median of the values, or `None` for an empty list.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let quantiles = Quantiles::of(&values.collect::<Vec<f64>>());
    (quantiles.count > 0).then_some(quantiles.p50)
}

/// Returns a sentence for each group: the fastest subject against `baseline`, or against the second
/// if the baseline is the fastest or was not measured.
pub fn sentences(times: &[Times], baseline: &str, figure: Figure) -> Vec<String> {
    let mut groups: Vec<&str> = times.iter().map(|one| one.group.as_str()).collect();
    groups.dedup();
    groups.iter().filter_map(|group| sentence(times, group, baseline, figure)).collect()
}

fn sentence(times: &[Times], group: &str, baseline: &str, figure: Figure) -> Option<String> {
    let mut ranked: Vec<&Times> = times.iter().filter(|one| one.group == group).collect();
    ranked.sort_by(|one, other| one.figure(figure).total_cmp(&other.figure(figure)));
    let (fastest, others) = ranked.split_first()?;
    let other = others.iter().find(|one| one.name == baseline).or(others.first())?;
    let ratio = other.figure(figure) / fastest.figure(figure);
    if !ratio.is_finite() {
        return None;
    }
    let (name, than) = (&fastest.name, &other.name);
    let decimals = if ratio < 10.0 { 2 } else { 0 };
    let words = match figure {
        Figure::Median => format!("{name} ran {ratio:.decimals$} times faster than {than}"),
        Figure::P99 => format!(
            "{name} completed 99 % of the frames {ratio:.decimals$} times faster than {than}"
        ),
    };
    Some(if group.is_empty() { words } else { format!("{group}: {words}") })
}

impl Export {
    /// Checks before the benchmark that the files can be written after it.
    pub fn check(&self) -> Result<(), Failure> {
        [&self.export_json, &self.export_markdown, &self.export_csv]
            .into_iter()
            .try_for_each(|file| result_file::check_writable(file.as_deref()))
    }

    pub fn write(&self, times: &[Times]) -> Result<(), Failure> {
        let write = |file: &Option<PathBuf>, text: &dyn Fn() -> String| match file {
            Some(path) => result_file::write(path, text()),
            None => Ok(()),
        };
        write(&self.export_json, &|| format!("{}\n", serde_json::json!(times)))?;
        write(&self.export_markdown, &|| markdown(times))?;
        write(&self.export_csv, &|| csv(times))
    }
}

fn markdown(times: &[Times]) -> String {
    let text = |text: &str| output::plain(text).replace('|', "\\|").replace('\n', " ");
    let mut table =
        "| group | subject | median | p99 | min | max | rounds |\n|:--|:--|--:|--:|--:|--:|--:|\n"
            .to_string();
    for one in times {
        let seconds =
            [one.median_s, one.p99_s, one.min_s, one.max_s].map(output::seconds).join(" | ");
        let (group, name) = (text(&one.group), text(&one.name));
        table += &format!("| {group} | {name} | {seconds} | {} |\n", one.rounds);
    }
    table
}

fn csv(times: &[Times]) -> String {
    let field = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    };
    let mut lines = "group,subject,median_s,p99_s,min_s,max_s,rounds\n".to_string();
    for one in times {
        let Times { median_s, p99_s, min_s, max_s, rounds, .. } = one;
        let (group, name) = (field(&one.group), field(&one.name));
        lines += &format!("{group},{name},{median_s},{p99_s},{min_s},{max_s},{rounds}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(group: &str, name: &str, seconds: &[f64]) -> Times {
        Times::of(group, name, seconds).unwrap()
    }

    #[test]
    fn times_are_summarised() {
        assert!(Times::of("", "none", &[]).is_none());
        let one = times("", "x", &[3.0, 1.0, 2.0, 10.0]);
        assert_eq!((one.median_s, one.p99_s, one.min_s, one.max_s), (2.0, 10.0, 1.0, 10.0));
        assert_eq!((one.rounds, times("", "x", &[7.0]).median_s), (4, 7.0));
    }

    #[test]
    fn the_fastest_is_compared_with_the_baseline_else_with_the_second() {
        let all = [
            times("1 kB", "a", &[0.2]),
            times("1 kB", "b", &[0.1]),
            times("1 kB", "base", &[0.5]),
            times("2 kB", "a", &[20.0]),
            times("2 kB", "base", &[1.0]),
            times("3 kB", "a", &[1.0]),
        ];
        assert_eq!(
            sentences(&all, "base", Figure::Median),
            ["1 kB: b ran 5.00 times faster than base", "2 kB: base ran 20 times faster than a"]
        );
        let frames = [times("", "lane", &[0.1]), times("", "none", &[0.25])];
        assert_eq!(
            sentences(&frames, "none", Figure::P99),
            ["lane completed 99 % of the frames 2.50 times faster than none"]
        );
    }

    #[test]
    fn exports_have_a_row_for_each_subject() {
        let all = [times("a, \"b\"", "x|y", &[0.5, 1.5])];
        assert_eq!(
            csv(&all),
            "group,subject,median_s,p99_s,min_s,max_s,rounds\n\
             \"a, \"\"b\"\"\",x|y,0.5,1.5,0.5,1.5,2\n"
        );
        assert!(
            markdown(&all)
                .ends_with("| a, \"b\" | x\\|y | 500 ms | 1.50 s | 500 ms | 1.50 s | 2 |\n")
        );
    }
}
