//! Converts transfer reports into the struct that C reads, and passes explanations to callbacks.

use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use evermap_transfer::net::{ReceiveReport, SendReport, Traffic};
use evermap_transfer::{NotKept, Report};

use super::types::*;
use crate::abi::arguments::{Out, array, out, owned};
use crate::abi::failure::Result;
use crate::abi::types::*;

/// Destination of a report, if any.
pub struct Reported {
    place: Option<Out<em_transfer_report>>,
    explain: em_explanation_callback,
    context: *mut c_void,
}

impl Reported {
    /// # Safety
    /// `place` and the members of `given` are null or as the header requires.
    pub unsafe fn new(
        place: *mut em_transfer_report,
        given: *const em_transfer_options,
    ) -> Result<Reported> {
        // SAFETY: the caller guarantees null or a struct that begins with its size.
        let place = if place.is_null() { None } else { Some(unsafe { out(place) }?) };
        // SAFETY: the caller guarantees null or a struct as the header requires.
        let given = unsafe { crate::abi::arguments::options(given) }?;
        Ok(Reported {
            place,
            explain: given.and_then(|given| given.explain),
            context: given.map_or(std::ptr::null_mut(), |given| given.context),
        })
    }

    pub fn give(self, told: &Told) {
        self.explain_all(&told.lines);
        if let Some(place) = self.place {
            place.give(told.numbers);
        }
    }

    fn explain_all(&self, lines: &[Line]) {
        let Some(call) = self.explain else { return };
        lines.iter().all(|line| {
            let [what, path, why] = [&line.what, &line.path, &line.why].map(|text| owned(text));
            let explanation = em_explanation {
                size: size_of::<em_explanation>(),
                kind: line.kind,
                copies: line.copies,
                bytes: line.bytes,
                what: what.as_ptr(),
                path: path.as_ptr(),
                why: why.as_ptr(),
            };
            // SAFETY: the caller's function, called with the arguments that the header documents.
            unsafe { call(&explanation, self.context) }
        });
    }
}

/// Report of a transfer, independent of the engine.
pub struct Told {
    numbers: em_transfer_report,
    lines: Vec<Line>,
}

impl Told {
    /// Report of a copy or a move.
    pub fn copied(report: &Report) -> Told {
        Told { numbers: in_numbers(report), lines: lines_of(report) }
    }

    /// Report of a sender. Raw bytes have no holes, and a stream's size is the number of bytes
    /// sent.
    pub fn sent(report: &SendReport, raw: bool) -> Told {
        let mut told = Told::carried(&report.traffic, report.size_bytes, raw, Vec::new());
        told.numbers.verified = report.verified.into();
        told.numbers.published = report.published.into();
        told
    }

    /// Report of a receiver.
    pub fn received(report: &ReceiveReport, raw: bool) -> Told {
        let not_kept = report.not_kept.clone();
        let mut told = Told::carried(&report.traffic, report.size_bytes, raw, not_kept);
        told.numbers.verified = report.verified.into();
        told.numbers.published = report.path.is_some().into();
        let name = report.path.as_deref().and_then(std::path::Path::file_name);
        told.numbers.name = array_of_bytes(name.map_or(&[], OsStrExt::as_bytes));
        told
    }

    fn carried(traffic: &Traffic, size_bytes: u64, raw: bool, not_kept: Vec<NotKept>) -> Told {
        let report = Report {
            size_bytes,
            data_bytes: traffic.bytes,
            hole_bytes: if raw { 0 } else { size_bytes.saturating_sub(traffic.bytes) },
            not_used: traffic.not_used.clone(),
            calls: traffic.calls,
            usage: traffic.usage,
            not_kept,
            ..Report::default()
        };
        let mut told = Told::copied(&report);
        told.numbers.connections = traffic.connections.len() as u32;
        told.numbers.engine = array(traffic.engine().map_or("", |engine| engine.name()));
        let lines = traffic.connections.iter().map(|connection| Line {
            kind: EXPLAINED_CONNECTION,
            bytes: connection.bytes,
            what: connection.engine.map_or(String::new(), |engine| engine.to_string()),
            path: connection.peer.clone(),
            ..Line::default()
        });
        told.lines.splice(0..0, lines);
        told
    }
}

/// Converts a file's name, which may contain any bytes and always fits.
fn array_of_bytes<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes.iter().take(N - 1)) {
        *to = *from as c_char;
    }
    array
}

#[derive(Default)]
struct Line {
    kind: u32,
    copies: u32,
    bytes: u64,
    what: String,
    path: String,
    why: String,
}

fn lines_of(report: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, used) in report.engines.iter().enumerate() {
        lines.push(Line {
            kind: EXPLAINED_USED,
            copies: used.copies.into(),
            bytes: used.bytes,
            what: used.engine.to_string(),
            why: if number == 0 { report.why.clone() } else { String::new() },
            ..Line::default()
        });
    }
    for not in &report.not_used {
        let (what, why) = (not.engine.to_string(), not.why.clone());
        lines.push(Line { kind: EXPLAINED_NOT_USED, what, why, ..Line::default() });
    }
    for tried in &report.log {
        lines.push(Line { kind: EXPLAINED_TRIED, why: tried.clone(), ..Line::default() });
    }
    for not in &report.not_kept {
        let path = not.path.to_string_lossy().into_owned();
        let (what, why) = (not.what.clone(), not.why.clone());
        lines.push(Line { kind: EXPLAINED_NOT_KEPT, what, path, why, ..Line::default() });
    }
    for failed in report.tree.iter().flat_map(|tree| &tree.errors) {
        lines.push(Line { kind: EXPLAINED_FAILED, why: failed.clone(), ..Line::default() });
    }
    lines
}

fn in_numbers(report: &Report) -> em_transfer_report {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let usage = &report.usage;
    let counts = report.tree.as_ref().map(|tree| tree.counts);
    let most = report.engines.iter().max_by_key(|used| used.bytes);
    em_transfer_report {
        size: size_of::<em_transfer_report>(),
        size_bytes: report.size_bytes,
        data_bytes: report.data_bytes,
        hole_bytes: report.hole_bytes,
        resumed_bytes: report.resumed_bytes,
        calls: report.calls,
        wall_ns: ns(usage.wall_s),
        user_ns: ns(usage.user_s),
        system_ns: ns(usage.system_s),
        flush_ns: ns(report.flush_s),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        files: counts.map_or(1, |counts| counts.files),
        directories: counts.map_or(0, |counts| counts.directories),
        failed: report.tree.as_ref().map_or(0, |tree| tree.errors_total),
        not_kept: report
            .tree
            .as_ref()
            .map_or(report.not_kept.len() as u64, |tree| tree.not_kept_total),
        copied_permille: report.copies_per_byte().map_or(0, |copies| (copies * 1e3).round() as u32),
        verified: report.verified.into(),
        engine: array(most.map_or("", |used| used.engine.name())),
        why: array(&report.why),
        published: 0,
        connections: 0,
        name: array(""),
    }
}
