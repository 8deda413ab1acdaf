//! Reports: into the struct that C reads, and line by line to who wants to know how it was done.

use std::ffi::c_void;

use evermap_transfer::FileReport;

use super::types::*;
use crate::arguments::{Out, array, out};
use crate::audit_calls::owned;
use crate::failure::Result;
use crate::types::*;

/// Where a report goes, if it goes anywhere.
pub struct Reported {
    place: Option<Out<em_transfer_report>>,
    explain: em_explanation_callback,
    context: *mut c_void,
}

impl Reported {
    /// # Safety
    /// `place` is null or what the header says, and so is what `given` points to.
    pub unsafe fn new(
        place: *mut em_transfer_report,
        given: *const em_transfer_options,
    ) -> Result<Reported> {
        // SAFETY: passed on from the caller.
        let place = if place.is_null() { None } else { Some(unsafe { out(place) }?) };
        // SAFETY: passed on from the caller.
        let given = unsafe { crate::arguments::options(given) }?;
        Ok(Reported {
            place,
            explain: given.and_then(|given| given.explain),
            context: given.map_or(std::ptr::null_mut(), |given| given.context),
        })
    }

    pub fn give(self, report: &FileReport) {
        self.explain_all(report);
        if let Some(place) = self.place {
            place.give(in_numbers(report));
        }
    }

    fn explain_all(&self, report: &FileReport) {
        let Some(call) = self.explain else { return };
        let lines = lines_of(report);
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
            // SAFETY: a function of the caller's, with what the header says it gets.
            unsafe { call(&explanation, self.context) }
        });
    }
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

fn lines_of(report: &FileReport) -> Vec<Line> {
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

fn in_numbers(report: &FileReport) -> em_transfer_report {
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
    }
}
