//! Functions of `evermap.h` that move or copy whole stores and objects: backup and restore, rebase,
//! export and import.

use std::ffi::{c_char, c_void};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::PathBuf;

use evermap_core::tools::{
    self, BackupOptions, BackupReport, ExportOptions, HitKind, ImportOptions, PointerSample,
    RebaseOptions, RebaseReport, Relocation,
};
use libc::c_int;

use crate::abi::arguments::{array, options, out, owned, path, refuse_reserved, text};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::*;
use crate::evermap::audit_calls::{Samples, typing_number};
use crate::evermap::tools_calls::Listener;
use crate::runtime::fork;
use crate::runtime::start::prepare;

const BUFFER_BYTES: usize = 1 << 20;

fn counts_of(report: &BackupReport) -> em_copy_report {
    em_copy_report {
        size: size_of::<em_copy_report>(),
        objects: report.objects,
        bytes: report.bytes,
        findings: report.findings.len() as u64,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_backup(
    at: *const c_char,
    to: *const c_char,
    given: *const em_copy_options,
    report: *mut em_copy_report,
    callback: em_finding_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (at, to, given, out) = unsafe { (path(at)?, path(to)?, options(given)?, out(report)?) };
        let made = BackupOptions::new().verify(given.is_none_or(|given| given.unverified == 0));
        if given.is_some_and(|given| given.replace != 0) {
            return Err(Failure::argument(
                "a backup cannot replace a store; `replace` is for em_restore()",
            ));
        }
        let copied = tools::backup(at, to, &made)?;
        let mut listener = Listener::new(callback, context);
        copied.findings.iter().for_each(|finding| listener.tell_finding(finding));
        out.give(counts_of(&copied));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_restore(
    backup: *const c_char,
    at: *const c_char,
    given: *const em_copy_options,
    report: *mut em_copy_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (backup, at, given, out) =
            unsafe { (path(backup)?, path(at)?, options(given)?, out(report)?) };
        if given.is_some_and(|given| given.unverified != 0) {
            return Err(Failure::argument("a backup is always checked before it is restored"));
        }
        let replace = given.is_some_and(|given| given.replace != 0);
        out.give(counts_of(&tools::restore(backup, at, replace, &BackupOptions::new())?));
        Ok(())
    })
}

/// Returns the number of changed words and of unchanged words.
fn words_of(object: &Relocation) -> (u64, u64) {
    (object.moved.iter().map(|hit| hit.count).sum(), object.kept)
}

fn rebased(report: &RebaseReport) -> em_rebase_report {
    let words = report.objects.iter().map(words_of);
    let (moved, kept) = words.fold((0, 0), |(m, k), (moved, kept)| (m + moved, k + kept));
    let kept_in = report.kept_in.as_ref().and_then(|path| path.file_name()?.to_str());
    em_rebase_report {
        size: size_of::<em_rebase_report>(),
        from: report.from.first().map_or(0, |(base, _)| *base),
        to: report.to.unwrap_or(0),
        arenas: report.from.len() as u64,
        objects: report.objects.len() as u64,
        moved,
        kept,
        met: report.met.len() as u64,
        kept_in: array(kept_in.unwrap_or("")),
    }
}

fn moved_number(kind: HitKind) -> u32 {
    match kind {
        HitKind::Beginning => MOVED_BEGINNING,
        HitKind::Inside => MOVED_INSIDE,
        HitKind::NotAllocated => MOVED_NOT_ALLOCATED,
        HitKind::Bookkeeping => MOVED_BOOKKEEPING,
        HitKind::OtherObject => MOVED_OTHER_OBJECT,
        _ => MOVED_TYPED,
    }
}

/// # Safety
/// `callback` and `context` are as the header requires.
unsafe fn tell_moved(report: &RebaseReport, callback: em_moved_callback, context: *mut c_void) {
    let Some(call) = callback else { return };
    for object in &report.objects {
        let name = owned(&object.object);
        let tell = |kind: u32, count: u64, samples: &[PointerSample]| {
            let samples = Samples::of(samples);
            let moved = em_moved {
                size: size_of::<em_moved>(),
                object: name.as_ptr(),
                typing: typing_number(object.typing),
                kind,
                count,
                samples: samples.as_ptr(),
                sample_count: samples.len(),
            };
            // SAFETY: the caller's function, called with the arguments that the header documents.
            unsafe { call(&moved, context) }
        };
        let mut hits = object.moved.iter();
        if !hits.all(|hit| tell(moved_number(hit.kind), hit.count, &hit.samples)) {
            return;
        }
        if object.kept > 0 && !tell(MOVED_NOT, object.kept, &object.kept_samples) {
            return;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_rebase(
    at: *const c_char,
    given: *const em_rebase_options,
    report: *mut em_rebase_report,
    callback: em_moved_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (at, given, out) = unsafe { (path(at)?, options(given)?, out(report)?) };
        let mut made = RebaseOptions::new();
        if let Some(given) = given {
            refuse_reserved(given.reserved)?;
            made = made.dry_run(given.dry_run != 0).force(given.force != 0);
            if given.to != 0 {
                made = made.to(given.to);
            }
            if given.samples != 0 {
                made = made.samples(given.samples as usize);
            }
        }
        let done = tools::rebase(at, &made)?;
        // SAFETY: the caller passes a callback as the header requires.
        unsafe { tell_moved(&done, callback, context) };
        out.give(rebased(&done));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_rebase_undo(at: *const c_char, force: bool) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes null or a text.
        tools::undo_rebase(unsafe { path(at) }?, force)?;
        Ok(())
    })
}

/// Returns a file descriptor of the caller's, which stays open, and its path for messages.
fn lent(descriptor: c_int) -> Result<(ManuallyDrop<File>, PathBuf)> {
    // SAFETY: querying the flags is harmless for any number.
    if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
        let message = format!("{descriptor} is not an open file descriptor");
        return Err(Failure::argument(message));
    }
    let called = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    let called = called.unwrap_or_else(|_| format!("file descriptor {descriptor}").into());
    // SAFETY: the descriptor is open, and never closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    Ok((file, called))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_export(
    at: *const c_char,
    name: *const c_char,
    descriptor: c_int,
    given: *const em_export_options,
    report: *mut em_export_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (at, name, given, out) =
            unsafe { (path(at)?, text(name, "the name")?, options(given)?, out(report)?) };
        let (file, called) = lent(descriptor)?;
        let mut made = ExportOptions::new().display_name(called);
        if let Some(given) = given {
            refuse_reserved(given.reserved)?;
            made = made.force(given.force != 0);
        }
        let mut target = BufWriter::with_capacity(BUFFER_BYTES, &*file);
        let done = tools::export(at, name, &mut target, &made)?;
        out.give(em_export_report {
            size: size_of::<em_export_report>(),
            sequence: done.sequence,
            pages: done.pages,
            bytes: done.bytes,
            pointers_elsewhere: done.pointers_elsewhere,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_import(
    at: *const c_char,
    descriptor: c_int,
    given: *const em_import_options,
    report: *mut em_import_report,
) -> em_status {
    failure::status(|| {
        prepare()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (at, given, out) = unsafe { (path(at)?, options(given)?, out(report)?) };
        let (file, called) = lent(descriptor)?;
        let mut made = ImportOptions::new().display_name(called);
        if let Some(given) = given {
            refuse_reserved(given.reserved)?;
            made = made.create(given.create != 0);
            if !given.name.is_null() {
                // SAFETY: not null, so the caller guarantees a text.
                made = made.name(unsafe { text(given.name, "the name") }?);
            }
        }
        let mut source = BufReader::with_capacity(BUFFER_BYTES, &*file);
        let done = tools::import(at, &mut source, &made)?;
        let (moved, kept) = done.relocation.as_ref().map_or((0, 0), words_of);
        out.give(em_import_report {
            size: size_of::<em_import_report>(),
            base_address: done.base_address,
            old_base_address: done.old_base_address,
            file_bytes: done.file_bytes,
            moved,
            kept,
            points_elsewhere: done.points_elsewhere.into(),
            reserved: 0,
            name: array(&done.object),
            old_name: array(&done.old_name),
        });
        Ok(())
    })
}
