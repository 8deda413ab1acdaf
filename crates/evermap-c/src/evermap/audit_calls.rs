//! Audit functions of `evermap.h`, and lists of words in objects, as tools pass them to C.

use std::ffi::{CString, c_char, c_void};

use evermap_core::tools::{
    AuditOptions, AuditReport, Confidence, Doubt, MemoryMap, PointerKind, PointerSample, Severity,
    Typing, audit,
};

use crate::abi::arguments::{options, out, owned, path, text};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::*;
use crate::runtime::fork;

/// Words of an object, with the texts that C reads.
pub struct Samples {
    list: Vec<em_pointer_sample>,
    // The list points to these texts.
    _paths: Vec<CString>,
}

impl Samples {
    fn new(samples: impl Iterator<Item = (String, u64, u64)>) -> Samples {
        let (mut list, mut paths) = (Vec::new(), Vec::new());
        for (path, address, value) in samples {
            let path = owned(&path);
            list.push(em_pointer_sample { path: path.as_ptr(), address, value });
            paths.push(path);
        }
        Samples { list, _paths: paths }
    }

    pub fn of(samples: &[PointerSample]) -> Samples {
        Samples::new(samples.iter().map(|s| (s.path.clone(), s.address, s.value)))
    }

    pub fn as_ptr(&self) -> *const em_pointer_sample {
        self.list.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }
}

pub fn typing_number(typing: Typing) -> u32 {
    match typing {
        Typing::Typed => TYPED,
        Typing::Partly => PARTLY,
        _ => UNTYPED,
    }
}

fn kind_number(kind: PointerKind) -> u32 {
    match kind {
        PointerKind::OtherStore => AUDIT_OTHER_STORE,
        PointerKind::NoObject => AUDIT_NO_OBJECT,
        PointerKind::OtherObject => AUDIT_OTHER_OBJECT,
        PointerKind::Dangling => AUDIT_DANGLING,
        PointerKind::Metadata => AUDIT_METADATA,
        PointerKind::Misplaced => AUDIT_MISPLACED,
        PointerKind::Broken => AUDIT_BROKEN,
        PointerKind::Shared => AUDIT_SHARED,
        // The enum may grow; a test counts its kinds.
        _ => AUDIT_FOREIGN,
    }
}

fn confidence_number(confidence: Confidence) -> u32 {
    match confidence {
        Confidence::Certain => CERTAIN,
        Confidence::Likely => LIKELY,
        _ => POSSIBLE,
    }
}

fn severity_number(severity: Severity) -> u32 {
    match severity {
        Severity::Damage => DAMAGE,
        _ => SUSPECT,
    }
}

fn doubt_number(doubt: Option<Doubt>) -> u32 {
    match doubt {
        None => DOUBT_NONE,
        Some(Doubt::NoRoot) => DOUBT_NO_ROOT,
        Some(Doubt::NoPointersByType) => DOUBT_NO_POINTERS_BY_TYPE,
        Some(_) => DOUBT_NO_POINTERS,
    }
}

fn counts_of(report: &AuditReport) -> em_audit_report {
    let sum = |severity| -> u64 {
        report.findings.iter().filter(|f| f.severity == severity).map(|f| f.count).sum()
    };
    em_audit_report {
        size: size_of::<em_audit_report>(),
        sequence: report.sequence,
        blocks: report.blocks,
        bytes: report.bytes,
        reached_blocks: report.reached_blocks,
        reached_bytes: report.reached_bytes,
        leaked_blocks: report.leaks.blocks,
        leaked_bytes: report.leaks.bytes,
        leaked_heads: report.leaks.heads,
        looked_at: report.looked_at,
        interior: report.interior,
        damage: sum(Severity::Damage),
        suspect: sum(Severity::Suspect),
        damaged_chunks: report.damaged_chunks,
        typing: typing_number(report.typing),
        has_root: report.has_root.into(),
        doubt: doubt_number(report.doubt()),
        reserved: 0,
    }
}

/// Reports every finding, the leaks last.
///
/// # Safety
/// `callback` and `context` are as the header requires.
unsafe fn tell(report: &AuditReport, callback: em_audit_callback, context: *mut c_void) {
    let Some(call) = callback else { return };
    let tell = |numbers: [u32; 3], count: u64, to: &str, samples: Samples| {
        let to = owned(to);
        let [kind, severity, confidence] = numbers;
        let finding = em_audit_finding {
            size: size_of::<em_audit_finding>(),
            kind,
            severity,
            confidence,
            reserved: 0,
            count,
            to: to.as_ptr(),
            samples: samples.as_ptr(),
            sample_count: samples.len(),
        };
        // SAFETY: the caller's function, called with the arguments that the header documents.
        unsafe { call(&finding, context) }
    };
    for finding in &report.findings {
        let numbers = [
            kind_number(finding.kind),
            severity_number(finding.severity),
            confidence_number(finding.confidence),
        ];
        if !tell(numbers, finding.count, &finding.to, Samples::of(&finding.samples)) {
            return;
        }
    }
    if report.leaks.blocks > 0 {
        let sample = |leak: &evermap_core::tools::LeakSample| {
            let path =
                if leak.is_head { "no pointer leads to it" } else { "reached from a leaked block" };
            (path.to_string(), leak.address, leak.bytes)
        };
        let samples = Samples::new(report.leaks.samples.iter().map(sample));
        let why = report.doubt().map_or_else(String::new, |doubt| doubt.to_string());
        let confidence = if report.doubt().is_some() { POSSIBLE } else { LIKELY };
        tell([AUDIT_LEAK, SUSPECT, confidence], report.leaks.blocks, &why, samples);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_audit(
    at: *const c_char,
    name: *const c_char,
    given: *const em_audit_options,
    report: *mut em_audit_report,
    callback: em_audit_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes pointers as the header requires.
        let (at, name, given, out) =
            unsafe { (path(at)?, text(name, "the name")?, options(given)?, out(report)?) };
        let found = audit(at, name, &audit_options(given)?)?;
        // SAFETY: the caller passes a callback as the header requires.
        unsafe { tell(&found, callback, context) };
        out.give(counts_of(&found));
        Ok(())
    })
}

fn audit_options(given: Option<em_audit_options>) -> Result<AuditOptions> {
    let mut made = AuditOptions::new();
    let Some(given) = given else { return Ok(made) };
    if given.memory_bytes != 0 {
        made = made.memory_bytes(given.memory_bytes);
    }
    if given.samples != 0 {
        made = made.samples(given.samples as usize);
    }
    if given.process_id != 0 {
        let map = MemoryMap::of_process(given.process_id);
        made = made.memory_map(map.map_err(|error| {
            let id = given.process_id;
            Failure::argument(format!("cannot query process {id}: {error}"))
        })?);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_pointer_has_a_number() {
        let source = include_str!("../../../evermap/src/tools/audit/report.rs");
        let arms = source.matches("            PointerKind::").count();
        // One constant is in `word` per kind, and two are in `severity`.
        let own = CONSTANTS.iter().filter(|(name, _)| name.starts_with("AUDIT_")).count() - 1;
        assert_eq!(arms - 2, own, "a kind of pointer has no number in evermap.h");
        let words: Vec<&str> =
            source.lines().filter_map(|l| l.split_once("=> \"")?.1.split('"').next()).collect();
        for word in &words[..own] {
            let name = format!("AUDIT_{}", word.to_uppercase());
            assert!(CONSTANTS.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}
