//! Lines of the report: one line of JSON for each load, to the destination in
//! `EVERMAP_LOAD_REPORT`. Each line is appended by one call, so lines of several processes do not
//! mix.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use evermap_load::{Choice, Image};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

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

    /// Records the reads of a file.
    pub(crate) fn of_read(call: &'static str, path: &Path, bytes: u64, took: Duration) -> Line {
        let mut line = Line::new(call, path, 0, bytes);
        line.method = Some("read".into());
        line.why = "read by several threads, into huge pages where possible".into();
        line.complete_s = Some(took.as_secs_f64());
        line
    }

    /// Adds a read to the line of its file. Returns false if this is another line.
    pub(crate) fn add_read(&mut self, read: &Line) -> bool {
        if self.call != read.call || self.path != read.path {
            return false;
        }
        self.bytes += read.bytes;
        self.calls += read.calls;
        self.complete_s = self.complete_s.zip(read.complete_s).map(|(a, b)| a + b);
        true
    }

    /// Writes the line. Failures are ignored.
    pub(crate) fn write(&self) {
        let Some(destination) = destination() else { return };
        let Ok(mut text) = serde_json::to_vec(self) else { return };
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
