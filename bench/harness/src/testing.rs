//! Runs an area's program in its tests, and finds what a run leaves behind: loop devices, mounts,
//! files and processes.

// Test code: an unexpected error ends the test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Program of an area, with folders for its work and its results.
pub struct Program {
    program: &'static str,
    /// Working folder, empty after each run.
    pub folder: TempDir,
    pub results: TempDir,
}

impl Program {
    pub fn new(program: &'static str) -> Program {
        let [folder, results] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Program { program, folder, results }
    }

    /// Returns the command of a quick run with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(["--quick", "--rounds", "1", "--folder"]).arg(self.folder.path());
        command.arg("--images").arg(self.results.path());
        command.arg("--json").arg(self.results.path().join("raw")).args(arguments);
        command.env("EVERMAP_BENCH_WAIT", "0").env("EVERMAP_BENCH_MEMORY", "0");
        command.env_remove("EVERMAP_CORPUS");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Returns the output of a run that must succeed and leave nothing behind.
    pub fn report(&self, arguments: &[&str]) -> String {
        self.report_of(&mut self.command(arguments))
    }

    /// Like [`report`](Self::report), for a command of this program.
    pub fn report_of(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        self.until_nothing_is_left();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error output of a run that must fail and leave nothing behind.
    pub fn failure(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        self.until_nothing_is_left();
        String::from_utf8(output.stderr).unwrap()
    }

    /// Checks that an unknown section is refused with these choices.
    pub fn refuses_unknown_sections(&self, choices: &str) {
        let stderr = self.failure(&mut self.command(&["no-section"]));
        assert!(stderr.contains(choices), "{stderr}");
    }

    pub fn until_nothing_is_left(&self) {
        until("everything is undone", || left_behind(self.folder.path()).is_empty());
    }

    /// Returns the raw figures.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.results.path().join("raw")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns a picture of the results.
    pub fn picture(&self, name: &str) -> String {
        let svg = std::fs::read_to_string(self.results.path().join(name)).unwrap();
        assert!(svg.starts_with("<svg"), "{svg}");
        svg
    }

    /// Starts a run, waits until it has a loop device, and sends a signal. Everything must be
    /// undone. Returns false if the run ends without a loop device.
    pub fn interrupt(&self, arguments: &[&str], signal: &str) -> bool {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut ended = false;
        until("a loop device", || {
            ended = child.try_wait().unwrap().is_some();
            ended || !loop_devices(self.folder.path()).is_empty()
        });
        if ended {
            return false;
        }
        // Lets the run get some way into its work.
        std::thread::sleep(Duration::from_millis(700));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(!child.wait().unwrap().success());
        self.until_nothing_is_left();
        true
    }
}

/// Checks that a report contains all these texts.
pub fn has(report: &str, all: &[&str]) {
    for wanted in all {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
}

/// Returns the loop devices on files of this folder, unlinked files included.
pub fn loop_devices(folder: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices
        .filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.starts_with(folder.to_str().unwrap())).collect()
}

/// Returns the loop devices, mounts and files of this folder, and processes with the folder in
/// their arguments.
pub fn left_behind(folder: &Path) -> Vec<String> {
    let mut found = loop_devices(folder);
    let name = folder.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(name)).map(str::to_string));
    let files = std::fs::read_dir(folder).unwrap().flatten();
    found.extend(files.map(|file| file.path().display().to_string()));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains(name) {
            found.push(line.replace('\0', " "));
        }
    }
    found
}

/// Waits up to a minute until the condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
