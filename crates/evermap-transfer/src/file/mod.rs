//! Copies one file, from opening the source to publishing the target's name.
//!
//! Guarantees: the target's name refers to its previous file or to the whole copy; the source is
//! never written; holes stay holes; attributes that cannot be preserved are reported. The order of
//! the steps provides these guarantees (`docs/transfer.md`, section 5).

mod acl;
pub(crate) mod attributes;
mod identity;
mod journal;
mod names;
mod part;
mod read_fully;
mod shared_links;
mod subject;
mod symlink;
mod target;
mod unfinished;
mod verify;

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use evermap_observe::Moment;
use rustix::fs;
use rustix::io::Errno;

use crate::drive::{Drive, DriveSummary};
use crate::end::{Ends, Kind};
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::policy::rates::RateCache;
use crate::policy::{Durability, Facts, Request};
use crate::report::{EngineUse, NotUsed, Report};
use crate::space;
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

pub use attributes::Preserve;
use attributes::{AttributeCopier, Attributes, InitialAttributes, Subject, has_default_acl};
pub(crate) use identity::{Identity, statx_of};
pub use names::temporary_name;
pub(crate) use names::{
    Unfinished, c_name, part_of_journal, sibling_name, unfinished_name, with_temporary_name,
};
use part::Part;
pub use shared_links::SharedLinks;
pub(crate) use symlink::copy_symlink;
pub(crate) use target::{PublishMode, Target};
pub(crate) use unfinished::{create_and_lock, leads_to, lock_unfinished};
use verify::NamedFile;

/// Options of a file copy.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) request: Request,
    pub(crate) tuning: Tuning,
    pub(crate) verify: bool,
    pub(crate) resume: bool,
    /// Attributes to preserve. Ignored for files in a new directory, whose attributes `tree` sets.
    pub(crate) preserve: Preserve,
    /// Record in the report how much is cached before and after.
    pub(crate) explain: bool,
    pub(crate) rate_cache: RateCache,
}

/// An open source with its name for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) path: &'a Path,
}

/// The target's name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// Full path, for messages.
    pub(crate) path: &'a Path,
    pub(crate) publish_mode: PublishMode,
}

/// Copies a file or the contents of a stream to a name.
pub(crate) fn copy_at(
    source: Source<'_>,
    destination: Destination<'_>,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let stat = statx_of(source.file).map_err(Error::io("read the attributes of", source.path))?;
    let identity = Identity::of(&stat);
    // Before reading, which changes the access time.
    let attributes = Attributes::of(
        &fs::fstat(source.file).map_err(Error::io("read the attributes of", source.path))?,
    );
    let spans = evermap_observe::extents(source.file, identity.size_bytes, stat.stx_blocks * 512);
    let spans = spans.map_err(Error::io("find the data of", source.path))?;
    let data_bytes = spans.iter().map(Span::bytes).sum();
    let mut report = Report { size_bytes: identity.size_bytes, data_bytes, ..Report::default() };
    if options.explain {
        report.source_resident_before = evermap_observe::residency(source.file);
    }
    let mut work = Work::new(spans);
    let (mut part, target) =
        match options.resume && destination.publish_mode == PublishMode::Replace && !work.is_done()
        {
            true => {
                let named = NamedFile { file: source.file, path: source.path };
                let (part, target, resumed_bytes) = Part::open(
                    destination.directory,
                    destination.name,
                    destination.path,
                    named,
                    &identity,
                    &mut work,
                    meter,
                )?;
                report.resumed_bytes = resumed_bytes;
                (Some(part), target)
            }
            false => (
                None,
                Target::new(
                    destination.directory,
                    destination.name,
                    destination.path,
                    destination.publish_mode,
                )?,
            ),
        };
    let copy = Copying { source, destination, options, meter, identity, attributes };
    copy.contents(&target, &mut work, part.as_mut(), &mut report)
        .and_then(|()| copy.finish(&target, &mut report))
        .map_err(|error| match (error, &part) {
            (Error::Cancelled { .. }, Some(_)) => {
                let path = part::path_of(destination.path, destination.name);
                Error::Cancelled {
                    left: format!("the data copied so far is in {} for `resume`", path.display()),
                }
            }
            (error, _) => error,
        })?;
    if options.explain {
        report.source_resident_after = evermap_observe::residency(source.file);
        report.target_resident_after = evermap_observe::residency(target.as_fd());
    }
    match part {
        Some(part) => part.publish(destination.directory, destination.name)?,
        None => target.publish(destination.publish_mode)?,
    }
    if options.request.durability == Durability::Full
        && destination.publish_mode == PublishMode::Replace
    {
        let flushing = Instant::now();
        fs::fsync(destination.directory)
            .map_err(Error::io("flush the directory of", destination.path))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
    }
    report.calls = meter.calls();
    report.usage = start.since();
    Ok(report)
}

/// Copies a source into an existing object: a FIFO, a terminal, a socket. Creates and replaces
/// nothing.
pub(crate) fn write_into(
    source: Source<'_>,
    target: BorrowedFd<'_>,
    target_path: &Path,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let stat = statx_of(source.file).map_err(Error::io("read the attributes of", source.path))?;
    let identity = Identity::of(&stat);
    let ends = Ends::new((&source.file, source.path), (&target, target_path))?;
    let is_file = ends.source.kind() == Kind::File && identity.size_bytes > 0;
    let mut work = match is_file {
        true => Work::new([Span::new(0, identity.size_bytes)]),
        false => Work::open(0),
    };
    let facts = Facts::of(&ends, identity.size_bytes);
    let drive = Drive {
        ends: &ends,
        facts: &facts,
        request: &options.request,
        tuning: &options.tuning,
        meter,
        rate_cache: &options.rate_cache,
        reserve: &|_| Ok(()),
    };
    let (summary, moved) = {
        // The reader may close the pipe or socket.
        let _no_signal = WriteSignalsBlocked::new();
        drive.run(&mut work)
    };
    moved?;
    let arrived_bytes = meter.arrived_bytes();
    let mut report =
        Report { size_bytes: arrived_bytes, data_bytes: arrived_bytes, ..Report::default() };
    describe(summary, &ends, &mut report);
    report.calls = meter.calls();
    report.usage = start.since();
    Ok(report)
}

/// State of a running copy.
struct Copying<'a> {
    source: Source<'a>,
    destination: Destination<'a>,
    options: &'a Options,
    meter: &'a Meter,
    identity: Identity,
    attributes: Attributes,
}

impl Copying<'_> {
    /// Moves the source's bytes to the target, and checks that the source did not change.
    fn contents(
        &self,
        target: &Target<'_>,
        work: &mut Work,
        part: Option<&mut Part>,
        report: &mut Report,
    ) -> Result<()> {
        let ends = Ends::new((&self.source.file, self.source.path), (target, target.path()))?;
        let is_file = ends.source.kind() == Kind::File;
        if !is_file || self.identity.size_bytes == 0 {
            *work = Work::open(0);
        } else if work.spans().last().is_none_or(|last| last.end < self.identity.size_bytes) {
            // The file ends with a hole, so no write reaches its end.
            fs::ftruncate(target, self.identity.size_bytes)
                .map_err(|errno| self.write_error(errno, "set the length of"))?;
        }
        let facts = Facts::of(&ends, report.data_bytes);
        let reserve = |due: &Work| {
            space::reserve(target.as_fd(), target.path(), due, facts.target_file_system, self.meter)
        };
        let drive = Drive {
            ends: &ends,
            facts: &facts,
            request: &self.options.request,
            tuning: &self.options.tuning,
            meter: self.meter,
            rate_cache: &self.options.rate_cache,
            reserve: &reserve,
        };
        let (summary, moved) = match part {
            None => drive.run(work),
            Some(part) => self.in_steps(&drive, target, work, part),
        };
        describe(summary, &ends, report);
        if !is_file {
            report.size_bytes = self.meter.arrived_bytes();
            report.data_bytes = report.size_bytes;
        }
        report.hole_bytes = report.size_bytes.saturating_sub(report.data_bytes);
        let unchanged = if is_file { self.source_is_unchanged() } else { Ok(()) };
        // A changed source is a better explanation than the error it caused in a call.
        match moved {
            Err(error @ (Error::Cancelled { .. } | Error::NoSpace { .. })) => Err(error),
            moved => unchanged.and(moved),
        }
    }

    /// Moves in steps. Each step's data is flushed and recorded, even after an error.
    fn in_steps(
        &self,
        drive: &Drive<'_>,
        target: &Target<'_>,
        work: &mut Work,
        part: &mut Part,
    ) -> (DriveSummary, Result<()>) {
        let mut summary = DriveSummary::default();
        while !work.is_done() {
            let step = work.take(part::STEP_BYTES);
            let mut due = Work::new(step.iter().copied());
            let (stepped, moved) = drive.run(&mut due);
            summary.add(stepped);
            let mut arrived = Work::new(step.iter().copied());
            due.spans().iter().for_each(|span| arrived.arrived_at(*span));
            arrived.spans().iter().for_each(|span| work.arrived_at(*span));
            let recorded = part.record(target.as_fd(), arrived.spans());
            if let Err(error) = moved.and(recorded) {
                return (summary, Err(error));
            }
        }
        (summary, Ok(()))
    }

    /// Does the remaining steps before publishing: verification, attributes, flush.
    fn finish(&self, target: &Target<'_>, report: &mut Report) -> Result<()> {
        if self.options.verify {
            let source = NamedFile { file: self.source.file, path: self.source.path };
            let stored = NamedFile { file: target.as_fd(), path: target.path() };
            verify::compare(source, stored, self.meter)?;
            self.source_is_unchanged()?;
            report.verified = true;
        }
        // After the last read of the target, which would change its access time.
        if self.destination.publish_mode == PublishMode::Replace {
            self.apply_attributes(target, report)?;
        }
        let flushing = Instant::now();
        // Files in a new directory are flushed together with it.
        let flushed = match (self.destination.publish_mode, self.options.request.durability) {
            (PublishMode::AtCreation, _) | (_, Durability::None) => Ok(()),
            (_, Durability::Data) => fs::fdatasync(target),
            (_, Durability::Full) => fs::fsync(target),
        };
        flushed.map_err(|errno| self.write_error(errno, "flush"))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
        Ok(())
    }

    /// Copies owner, extended attributes, mode and times. Not called for files in a new directory,
    /// whose attributes `tree` sets.
    fn apply_attributes(&self, target: &Target<'_>, report: &mut Report) -> Result<()> {
        let mut copier = AttributeCopier::for_single_file(self.options.preserve);
        let mut refusals = Vec::new();
        let failed = |path| move |(operation, errno)| Error::io(operation, path)(errno);
        let xattrs = copier
            .xattrs(Subject::Open(self.source.file), &mut refusals)
            .map_err(failed(self.source.path))?;
        let stat = fs::fstat(target).map_err(Error::io("read the attributes of", target.path()))?;
        let may_have_acl = has_default_acl(self.destination.directory);
        let made = InitialAttributes { may_have_acl, ..InitialAttributes::of(&stat) };
        copier
            .apply(
                &self.attributes,
                &xattrs,
                Subject::Open(target.as_fd()),
                &made,
                true,
                &mut refusals,
            )
            .map_err(failed(target.path()))?;
        report.not_kept =
            refusals.into_iter().map(|refusal| refusal.at(self.destination.path)).collect();
        Ok(())
    }

    fn source_is_unchanged(&self) -> Result<()> {
        let now = statx_of(self.source.file)
            .map_err(Error::io("read the attributes of", self.source.path))?;
        match self.identity.differs(&Identity::of(&now)) {
            Some(what) => Err(Error::SourceChanged { path: self.source.path.into(), what }),
            None => Ok(()),
        }
    }

    fn write_error(&self, errno: Errno, operation: &'static str) -> Error {
        let path = self.destination.path;
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                Error::NoSpace { path: path.into(), needed_bytes: self.identity.size_bytes }
            }
            errno => Error::io(operation, path)(errno),
        }
    }
}

/// Adds the engines used and not used to the report.
pub(crate) fn describe(summary: DriveSummary, ends: &Ends<'_>, report: &mut Report) {
    let used = |(engine, bytes): (EngineKind, u64)| EngineUse {
        engine,
        bytes,
        copies: engine.copies(ends),
    };
    report.engines = summary.moved.into_iter().map(used).collect();
    report.why = summary.why;
    report.log = summary.log;
    report.not_used = summary
        .rejected
        .into_iter()
        .map(|not| NotUsed { engine: not.engine, why: not.why })
        .collect();
}
