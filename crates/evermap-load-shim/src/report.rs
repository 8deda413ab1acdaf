//! Reports of loads: one line of JSON each, to the destination in `EVERMAP_LOAD_REPORT`. Each line
//! is appended by one call, so lines of several processes do not mix.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use evermap_load::{Choice, Image};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::loading::state;

/// Descriptor number or path.
const REPORT: &str = "EVERMAP_LOAD_REPORT";

/// Report of one load, or of all reads of a file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pid: u32,
    program: String,
    call: &'static str,
    path: String,
    offset_bytes: u64,
    bytes: u64,
    /// Number of calls, for reads.
    calls: u64,
    method: Option<String>,
    why: String,
    first_use_s: Option<f64>,
    complete_s: Option<f64>,
    user_s: f64,
    system_s: f64,
    minor_faults: u64,
    major_faults: u64,
    windows_on_demand: u64,
    error: Option<String>,
}

impl Line {
    pub(crate) fn new(call: &'static str, path: &Path, offset: u64, bytes: u64) -> Line {
        Line {
            pid: std::process::id(),
            program: program(),
            call,
            path: path.to_string_lossy().into_owned(),
            offset_bytes: offset,
            bytes,
            calls: 1,
            method: None,
            why: String::new(),
            first_use_s: None,
            complete_s: None,
            user_s: 0.0,
            system_s: 0.0,
            minor_faults: 0,
            major_faults: 0,
            windows_on_demand: 0,
            error: None,
        }
    }

    /// Adds the current state of an image. Walks its page tables, so only if a report is requested.
    pub(crate) fn of_image(mut self, image: &Image) -> Line {
        if !is_wanted() {
            return self;
        }
        let report = image.report();
        self.method = Some(report.choice.method.name().into());
        self.why = image.why();
        (self.first_use_s, self.complete_s) = (report.first_use_s, report.complete_s);
        (self.user_s, self.system_s) = (report.usage.user_s, report.usage.system_s);
        self.minor_faults = report.usage.minor_faults;
        self.major_faults = report.usage.major_faults;
        self.windows_on_demand = report.windows_on_demand;
        self
    }

    /// Records an ordinary mapping chosen by the policy.
    pub(crate) fn mapped(mut self, choice: &Choice) -> Line {
        self.method = Some(choice.method.name().into());
        self.why = format!("{}: {}", choice.method, choice.why);
        self
    }

    /// Records a failure. The program's call is passed on.
    pub(crate) fn failed(mut self, error: &impl ToString) -> Line {
        self.error = Some(error.to_string());
        self
    }
}

fn program() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn destination() -> Option<&'static str> {
    static DESTINATION: OnceLock<Option<String>> = OnceLock::new();
    let found = DESTINATION.get_or_init(|| std::env::var(REPORT).ok());
    found.as_deref().filter(|text| !text.is_empty())
}

/// Returns true if a report is requested.
pub(crate) fn is_wanted() -> bool {
    destination().is_some()
}

/// Writes a line. Failures are ignored.
pub(crate) fn write(line: Line) {
    let Some(destination) = destination() else { return };
    let Ok(mut text) = serde_json::to_vec(&line) else { return };
    text.push(b'\n');
    if let Ok(number) = destination.parse() {
        // SAFETY: the user passed this descriptor for reports.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::write(file, &text);
        return;
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(destination, flags, Mode::RUSR | Mode::WUSR) {
        let _ = rustix::io::write(&file, &text);
    }
}

/// Counts a read of a file, reported when the program ends.
pub(crate) fn count_read(call: &'static str, path: &Path, bytes: u64, took: Duration) {
    if !is_wanted() {
        return;
    }
    let name = path.to_string_lossy();
    let mut state = state();
    let took_s = took.as_secs_f64();
    if let Some(line) = state.reads.iter_mut().find(|line| line.call == call && line.path == name) {
        line.bytes += bytes;
        line.calls += 1;
        line.complete_s = line.complete_s.map(|before| before + took_s);
        return;
    }
    let mut line = Line::new(call, path, 0, bytes);
    line.method = Some("read".into());
    line.why = "read by several threads, into huge pages where possible".into();
    line.complete_s = Some(took_s);
    state.reads.push(line);
}

/// Reports what remains at the end: reads, and unfinished loads.
pub(crate) fn write_rest() {
    let mut state = state();
    for image in state.loading.iter().filter_map(|loading| loading.image.as_ref()) {
        if image.recording().is_some_and(|recording| recording.touched_share() > 0.0) {
            let _ = image.save_recording();
        }
    }
    if !is_wanted() {
        return;
    }
    let mut lines = std::mem::take(&mut state.reads);
    let images = state.loading.iter().filter_map(|loading| {
        loading.image.as_ref().map(|image| loading.line.clone().of_image(image))
    });
    lines.extend(images);
    drop(state);
    lines.into_iter().for_each(write);
}
