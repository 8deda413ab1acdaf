//! Copies one file, from its open source to publishing the target's name.
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
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use evermap_observe::Moment;
use rustix::fs;
use rustix::io::Errno;

use crate::drive::{Drive, DriveSummary};
use crate::end::{End, Ends, Kind, statx_of};
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
pub(crate) use identity::Identity;
pub use names::temporary_name;
pub(crate) use names::{
    Unfinished, c_name, file_name, parent_of, part_of_journal, sibling_name, unfinished_name,
    with_temporary_name,
};
use part::Part;
pub use shared_links::SharedLinks;
pub(crate) use symlink::copy_symlink;
pub(crate) use target::Target;
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

impl Default for Options {
    fn default() -> Options {
        Options {
            request: Request::default(),
            tuning: Tuning::default(),
            verify: false,
            resume: false,
            preserve: Preserve::default(),
            explain: false,
            rate_cache: RateCache::of_user(),
        }
    }
}

/// The target's name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// Full path, for messages.
    pub(crate) path: &'a Path,
}

/// Copies a file or the contents of a stream with its attributes. The copy gets its name on
/// completion, and replaces an existing file.
pub(crate) fn replace(
    source: End<'_>,
    destination: Destination<'_>,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let Destination { directory, name, path } = destination;
    let mut work = data_of(&source)?;
    let mut resumed_bytes = 0;
    let data_bytes = work.bytes();
    let resumable = |error| match error {
        Error::Cancelled { .. } => {
            let path = part::path_of(path, name);
            Error::Cancelled {
                left: format!("the data copied so far is in {} for `resume`", path.display()),
            }
        }
        error => error,
    };
    let (mut part, target) = match options.resume && !work.is_done() {
        true => {
            let named = NamedFile { file: source.fd(), path: source.path() };
            let identity = Identity::of(source.stat());
            let (part, target, bytes) =
                Part::open(directory, name, path, named, &identity, &mut work, meter)
                    .map_err(resumable)?;
            resumed_bytes = bytes;
            (Some(part), target)
        }
        false => (None, Target::new(directory, name, path)?),
    };
    let ends = Ends { source, target: End::new(target.as_fd(), path)? };
    let mut copy = Copying::new(&ends, options, meter, data_bytes.unwrap_or(0));
    copy.report.resumed_bytes = resumed_bytes;
    if options.explain {
        copy.report.source_resident_before = evermap_observe::residency(ends.source.fd());
    }
    copy.contents(&mut work, part.as_mut())
        .and_then(|()| copy.verify())
        // After the last read of the target, which would change its access time.
        .and_then(|()| copy.apply_attributes(directory))
        .and_then(|()| copy.flush())
        .map_err(|error| if part.is_some() { resumable(error) } else { error })?;
    let mut report = copy.report;
    if options.explain {
        report.source_resident_after = evermap_observe::residency(ends.source.fd());
        report.target_resident_after = evermap_observe::residency(ends.target.fd());
    }
    drop(ends);
    match part {
        Some(part) => part.publish(directory, name)?,
        None => target.publish()?,
    }
    if options.request.durability == Durability::Full {
        let flushing = Instant::now();
        fs::fsync(directory).map_err(Error::io("flush the directory of", path))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
    }
    report.calls = meter.calls();
    report.usage = start.since();
    Ok(report)
}

/// Copies the contents of a file into a new file with its own name, in a directory that is not
/// visible yet. Returns the file, whose attributes and durability are the caller's task.
pub(crate) fn create(
    source: End<'_>,
    destination: Destination<'_>,
    options: &Options,
    meter: &Meter,
) -> Result<(Report, OwnedFd)> {
    let Destination { directory, name, path } = destination;
    let mut work = data_of(&source)?;
    let target = Target::create(directory, name, path)?;
    let ends = Ends { source, target: End::new(target.as_fd(), path)? };
    let mut copy = Copying::new(&ends, options, meter, work.bytes().unwrap_or(0));
    copy.contents(&mut work, None)?;
    copy.verify()?;
    let report = copy.report;
    drop(ends);
    Ok((report, target.keep()))
}

/// Returns the spans of the source that hold data.
fn data_of(source: &End<'_>) -> Result<Work> {
    let allocated_bytes = source.stat().stx_blocks * 512;
    let spans = evermap_observe::extents(source.fd(), source.size_bytes(), allocated_bytes);
    Ok(Work::new(spans.map_err(Error::io("find the data of", source.path()))?))
}

/// Copies a source into an existing object: a FIFO, a terminal, a socket. Creates and replaces
/// nothing.
pub(crate) fn write_into(
    source: End<'_>,
    target: BorrowedFd<'_>,
    target_path: &Path,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let ends = Ends { source, target: End::new(target, target_path)? };
    let size_bytes = ends.source.size_bytes();
    let mut work = match ends.source.kind() == Kind::File && size_bytes > 0 {
        true => Work::new([Span::new(0, size_bytes)]),
        false => Work::open(0),
    };
    let facts = Facts::of(&ends, size_bytes);
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
    ends: &'a Ends<'a>,
    options: &'a Options,
    meter: &'a Meter,
    report: Report,
}

impl<'a> Copying<'a> {
    fn new(ends: &'a Ends<'a>, options: &'a Options, meter: &'a Meter, data_bytes: u64) -> Self {
        let size_bytes = ends.source.size_bytes();
        let report = Report { size_bytes, data_bytes, ..Report::default() };
        Copying { ends, options, meter, report }
    }

    /// Moves the source's bytes to the target, and checks that the source did not change.
    fn contents(&mut self, work: &mut Work, part: Option<&mut Part>) -> Result<()> {
        let Ends { source, target } = self.ends;
        let (is_file, size_bytes) = (source.kind() == Kind::File, source.size_bytes());
        if !is_file || size_bytes == 0 {
            *work = Work::open(0);
        } else if work.spans().last().is_none_or(|last| last.end < size_bytes) {
            // The file ends with a hole, so no write reaches its end.
            fs::ftruncate(target.fd(), size_bytes)
                .map_err(|errno| self.write_error(errno, "set the length of"))?;
        }
        let facts = Facts::of(self.ends, self.report.data_bytes);
        let reserve = |due: &Work| {
            space::reserve(target.fd(), target.path(), due, facts.target_file_system, self.meter)
        };
        let drive = Drive {
            ends: self.ends,
            facts: &facts,
            request: &self.options.request,
            tuning: &self.options.tuning,
            meter: self.meter,
            rate_cache: &self.options.rate_cache,
            reserve: &reserve,
        };
        let (summary, moved) = match part {
            None => drive.run(work),
            Some(part) => in_steps(&drive, work, part),
        };
        describe(summary, self.ends, &mut self.report);
        if !is_file {
            self.report.size_bytes = self.meter.arrived_bytes();
            self.report.data_bytes = self.report.size_bytes;
        }
        self.report.hole_bytes = self.report.size_bytes.saturating_sub(self.report.data_bytes);
        let unchanged = if is_file { self.source_is_unchanged() } else { Ok(()) };
        // A changed source is a better explanation than the error it caused in a call.
        match moved {
            Err(error @ (Error::Cancelled { .. } | Error::NoSpace { .. })) => Err(error),
            moved => unchanged.and(moved),
        }
    }

    /// Compares the copy with the source, if requested.
    fn verify(&mut self) -> Result<()> {
        if self.options.verify {
            let [source, stored] = [&self.ends.source, &self.ends.target]
                .map(|end| NamedFile { file: end.fd(), path: end.path() });
            verify::compare(source, stored, self.meter)?;
            self.source_is_unchanged()?;
            self.report.verified = true;
        }
        Ok(())
    }

    /// Copies owner, extended attributes, mode and times.
    fn apply_attributes(&mut self, directory: BorrowedFd<'_>) -> Result<()> {
        let Ends { source, target } = self.ends;
        let mut copier = AttributeCopier::for_single_file(self.options.preserve);
        let mut refusals = Vec::new();
        let failed = |path| move |(operation, errno)| Error::io(operation, path)(errno);
        let xattrs = copier
            .xattrs(Subject::Open(source.fd()), &mut refusals)
            .map_err(failed(source.path()))?;
        let may_have_acl = has_default_acl(directory);
        let made = InitialAttributes { may_have_acl, ..InitialAttributes::of_statx(target.stat()) };
        // As they were before reading, which changes the access time.
        let attributes = Attributes::of_statx(source.stat());
        copier
            .apply(&attributes, &xattrs, Subject::Open(target.fd()), &made, true, &mut refusals)
            .map_err(failed(target.path()))?;
        self.report.not_kept =
            refusals.into_iter().map(|refusal| refusal.at(target.path())).collect();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let flushing = Instant::now();
        let file = self.ends.target.fd();
        let flushed = match self.options.request.durability {
            Durability::None => Ok(()),
            Durability::Data => fs::fdatasync(file),
            Durability::Full => fs::fsync(file),
        };
        flushed.map_err(|errno| self.write_error(errno, "flush"))?;
        self.report.flush_s += flushing.elapsed().as_secs_f64();
        Ok(())
    }

    fn source_is_unchanged(&self) -> Result<()> {
        let source = &self.ends.source;
        let now =
            statx_of(source.fd()).map_err(Error::io("read the attributes of", source.path()))?;
        match Identity::of(source.stat()).differs(&Identity::of(&now)) {
            Some(what) => Err(Error::SourceChanged { path: source.path().into(), what }),
            None => Ok(()),
        }
    }

    fn write_error(&self, errno: Errno, operation: &'static str) -> Error {
        let path = self.ends.target.path();
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                let needed_bytes = self.ends.source.size_bytes();
                Error::NoSpace { path: path.into(), needed_bytes }
            }
            errno => Error::io(operation, path)(errno),
        }
    }
}

/// Moves in steps. Each step's data is flushed and recorded, even after an error.
fn in_steps(drive: &Drive<'_>, work: &mut Work, part: &mut Part) -> (DriveSummary, Result<()>) {
    let mut summary = DriveSummary::default();
    while !work.is_done() {
        let step = work.take(part::STEP_BYTES);
        let mut due = Work::new(step.iter().copied());
        let (stepped, moved) = drive.run(&mut due);
        summary.add(stepped);
        let mut arrived = Work::new(step.iter().copied());
        due.spans().iter().for_each(|span| arrived.arrived_at(*span));
        arrived.spans().iter().for_each(|span| work.arrived_at(*span));
        let recorded = part.record(drive.ends.target.fd(), arrived.spans());
        if let Err(error) = moved.and(recorded) {
            return (summary, Err(error));
        }
    }
    (summary, Ok(()))
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
