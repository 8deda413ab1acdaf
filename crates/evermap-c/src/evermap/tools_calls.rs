//! Tools functions of `evermap.h`.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr;

use evermap_core::Error;
use evermap_core::tools::{CheckOptions, Finding, Report, Severity, check};

use crate::abi::arguments::{owned, path};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::status;
use crate::abi::types::{
    DAMAGE, LEFTOVER, SUSPECT, UNCHECKED, em_finding, em_finding_callback, em_status,
};
use crate::runtime::fork;

/// Texts of a finding: file, object, what, found, expected, remedy.
type Texts<'a> = (&'a Path, Option<&'a str>, [&'a str; 4]);

pub struct Listener {
    callback: em_finding_callback,
    context: *mut c_void,
    ended: bool,
}

impl Listener {
    /// Creates a listener. `callback` and `context` are as the header requires.
    pub fn new(callback: em_finding_callback, context: *mut c_void) -> Listener {
        Listener { callback, context, ended: false }
    }

    pub fn tell_finding(&mut self, finding: &Finding) {
        let severity = match finding.severity {
            Severity::Leftover => LEFTOVER,
            Severity::Suspect => SUSPECT,
            _ => DAMAGE,
        };
        let object = finding.object.as_deref();
        let texts = [&*finding.what, &finding.found, &finding.expected, &finding.remedy];
        self.tell(severity, finding.repairable, (&finding.file, object, texts));
    }

    fn tell(&mut self, severity: u32, repairable: bool, (file, object, texts): Texts<'_>) {
        let Some(call) = self.callback.filter(|_| !self.ended) else { return };
        let own = owned;
        let file = own(&file.to_string_lossy());
        let object = object.map(own);
        let texts = texts.map(own);
        let [what, found, expected, remedy] = texts.each_ref().map(|text| text.as_ptr());
        let finding = em_finding {
            size: size_of::<em_finding>(),
            severity,
            repairable: repairable.into(),
            file: file.as_ptr(),
            object: object.as_ref().map_or(ptr::null::<c_char>(), |name| name.as_ptr()),
            what,
            found,
            expected,
            remedy,
        };
        // SAFETY: the caller's function, called with the arguments that the header documents.
        self.ended = !unsafe { call(&finding, self.context) };
    }
}

fn tell_all(report: &Report, listener: &mut Listener) {
    report.findings.iter().for_each(|finding| listener.tell_finding(finding));
    for unchecked in &report.unchecked {
        let error = unchecked.error.to_string();
        let texts = ["the file", &error, "a file that can be read", "see what was found"];
        listener.tell(UNCHECKED, false, (&unchecked.file, unchecked.object.as_deref(), texts));
    }
}

fn verdict(report: Report) -> Result<()> {
    let worse = |f: &&Finding| f.severity > Severity::Leftover;
    let count = report.findings.iter().filter(worse).count();
    if let Some(first) = report.findings.iter().filter(worse).max_by_key(|f| f.severity) {
        let message = format!(
            "{count} findings in store {}, such as {} of {}: {} where {} was expected; {}",
            report.directory.display(),
            first.what,
            first.file.display(),
            first.found,
            first.expected,
            first.remedy
        );
        return Err(Failure::new(status::DAMAGED, message));
    }
    match report.unchecked.into_iter().next() {
        Some(unchecked) => Err(Error::into(unchecked.error)),
        None => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_check(
    at: *const c_char,
    callback: em_finding_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes null or a text.
        let report = check(unsafe { path(at) }?, &CheckOptions::new())?;
        tell_all(&report, &mut Listener::new(callback, context));
        verdict(report)
    })
}
