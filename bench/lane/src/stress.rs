//! Runs stress-ng as the load, and reads the work it did.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::Outcome;
use harness::process::find_program;

/// Returns the path of stress-ng, if it is installed.
pub fn find() -> Option<PathBuf> {
    find_program("stress-ng")
}

/// Returns the first words of the program's version line.
pub fn version(program: &Path) -> String {
    let flag = if program.ends_with("ffmpeg") { "-version" } else { "--version" };
    let output = Command::new(program).arg(flag).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    words.iter().take(3).copied().collect::<Vec<_>>().join(" ").trim_end_matches(',').to_string()
}

fn arguments(hogs: usize, writers: usize, folder: &Path) -> Vec<String> {
    let mut words = vec!["--quiet".to_string()];
    if hogs > 0 {
        words.extend(["--cpu", &hogs.to_string(), "--cpu-method", "matrixprod"].map(String::from));
    }
    if writers > 0 {
        words.extend(["--hdd", &writers.to_string()].map(String::from));
    }
    words.extend(["--temp-path".to_string(), folder.display().to_string()]);
    words
}

/// Returns the command as a line for a shell.
pub fn line(program: &Path, hogs: usize, writers: usize, folder: &Path) -> String {
    let words = arguments(hogs, writers, folder);
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("exec {} {}", quoted(&program.display().to_string()), words.join(" "))
}

/// Run of stress-ng that reports its work at the end.
pub struct Run {
    child: Child,
    metrics: PathBuf,
}

/// Work of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Done {
    pub cpu_per_s: f64,
    pub hdd_per_s: f64,
    /// Processor time of all stressors, over the whole run.
    pub processor_s: f64,
}

impl Done {
    pub fn mean(one: Done, other: Done) -> Done {
        Done {
            cpu_per_s: (one.cpu_per_s + other.cpu_per_s) / 2.0,
            hdd_per_s: (one.hdd_per_s + other.hdd_per_s) / 2.0,
            processor_s: (one.processor_s + other.processor_s) / 2.0,
        }
    }
}

impl Run {
    pub fn start(
        program: &Path,
        (hogs, writers): (usize, usize),
        folder: &Path,
        time: Duration,
    ) -> Outcome<Run> {
        let metrics = folder.join("metrics.yaml");
        let mut command = Command::new(program);
        command.args(arguments(hogs, writers, folder));
        command.args(["--metrics", "--timeout", &format!("{}s", time.as_secs())]);
        command.arg("--yaml").arg(&metrics);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Run { child: command.spawn()?, metrics })
    }

    /// Waits for the end and reads the metrics.
    pub fn finish(mut self) -> Outcome<Done> {
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("stress-ng: {status}").into());
        }
        let text = std::fs::read_to_string(&self.metrics)
            .map_err(|error| format!("{}: {error}", self.metrics.display()))?;
        done(&text).ok_or_else(|| format!("stress-ng reported no work:\n{text}").into())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Workers end on SIGTERM to their parent, but not if the parent is killed.
        if let (Ok(None), Some(pid)) =
            (self.child.try_wait(), rustix::process::Pid::from_raw(self.child.id() as i32))
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Parses the YAML metrics: `stressor: cpu`, and some lines below it
/// `bogo-ops-per-second-real-time: 123.4`, `user-time: 5.6` and `system-time: 0.1`.
fn done(yaml: &str) -> Option<Done> {
    let mut done = Done::default();
    let mut stressor = "";
    let mut is_any = false;
    for line in yaml.lines() {
        let line = line.trim().trim_start_matches("- ");
        let Some((key, value)) = line.split_once(':') else { continue };
        match key {
            "stressor" => stressor = value.trim(),
            "user-time" | "system-time" if !stressor.is_empty() => {
                done.processor_s += value.trim().parse::<f64>().ok()?;
            }
            "bogo-ops-per-second-real-time" => {
                let rate: f64 = value.trim().parse().ok()?;
                match stressor {
                    "cpu" => done.cpu_per_s = rate,
                    "hdd" => done.hdd_per_s = rate,
                    _ => continue,
                }
                is_any = true;
            }
            _ => {}
        }
    }
    is_any.then_some(done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rates_belong_to_their_stressors() {
        let text = "---\nmetrics:\n    - stressor: cpu\n      bogo-ops: 6\n      bogo-ops-per-second-real-time: 2244.5\n\
                    \x20     user-time: 7.5\n      system-time: 0.25\n\
                    \x20   - stressor: hdd\n      bogo-ops-per-second-usr-sys-time: 1\n      bogo-ops-per-second-real-time: 31.25\n\
                    \x20     user-time: 1\n      system-time: 2\n";
        let all = Done { cpu_per_s: 2244.5, hdd_per_s: 31.25, processor_s: 10.75 };
        assert_eq!(done(text).unwrap(), all);
        assert_eq!(done("---\nsystem-info:\n"), None);
    }

    #[test]
    fn a_line_survives_the_shell() {
        let line = line(Path::new("/usr/bin/stress-ng"), 0, 2, Path::new("/tmp/it's here"));
        assert_eq!(
            line,
            "exec '/usr/bin/stress-ng' '--quiet' '--hdd' '2' '--temp-path' '/tmp/it'\\''s here'"
        );
    }
}
