//! One file, from its source to its name.
//!
//! What is promised here: the target's name has what it had before, or the whole copy; the source is never written to; holes stay
//! holes; what cannot be kept is said. The order of the steps is the promise (`docs/transfer.md`, section 5).

mod acl;
pub(crate) mod attributes;
mod identity;
mod journal;
mod part;
mod shared_links;
mod subject;
mod symlink;
mod target;
mod unfinished;
mod verify;
mod whole;

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use evermap_observe::Moment;
use rustix::fs;
use rustix::io::Errno;

use crate::drive::{Drive, Driven};
use crate::end::{Ends, Kind};
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::policy::rates::Kept;
use crate::policy::{Durability, Facts, Wish};
use crate::report::{EngineUse, NotUsed, Report};
use crate::room;
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

pub use attributes::Preserve;
use attributes::{Attributes, Keeper, Made, Subject, gives_acls};
pub(crate) use identity::{Identity, look};
use part::Part;
pub use shared_links::SharedLinks;
pub(crate) use symlink::copy_symlink;
pub(crate) use target::{Placing, Target, beside, c_name, with_temporary_name};
pub use unfinished::temporary_name;
pub(crate) use unfinished::{
    Unfinished, hold, leads_to, make_and_hold, part_of_journal, unfinished_name,
};
use verify::Named;

/// How a file is to be copied.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) wish: Wish,
    pub(crate) tuning: Tuning,
    pub(crate) verify: bool,
    pub(crate) resume: bool,
    /// Kept beside the bytes, where the file gets its name here.
    pub(crate) preserve: Preserve,
    /// Ask what is cached, before and after, for the report.
    pub(crate) explain: bool,
    pub(crate) kept: Kept,
}

/// A source that is open, and its name in messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) path: &'a Path,
}

/// Where the copy goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// The whole of it, for messages.
    pub(crate) path: &'a Path,
    pub(crate) placing: Placing,
}

/// Copies one file, or what a stream has, to a name.
pub(crate) fn copy_at(
    source: Source<'_>,
    place: Place<'_>,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let stat = look(source.file).map_err(Error::io("look at", source.path))?;
    let identity = Identity::of(&stat);
    // Before it is read, which changes the time of its last access.
    let attributes =
        Attributes::of(&fs::fstat(source.file).map_err(Error::io("look at", source.path))?);
    let spans = evermap_observe::extents(source.file, identity.size_bytes, stat.stx_blocks * 512);
    let spans = spans.map_err(Error::io("find the data of", source.path))?;
    let data_bytes = spans.iter().map(Span::bytes).sum();
    let mut report = Report { size_bytes: identity.size_bytes, data_bytes, ..Report::default() };
    if options.explain {
        report.source_resident_before = evermap_observe::residency(source.file);
    }
    let mut work = Work::new(spans);
    let (mut part, target) =
        match options.resume && place.placing == Placing::Replacing && !work.is_done() {
            true => {
                let named = Named { file: source.file, path: source.path };
                let (part, target, resumed_bytes) = Part::open(
                    place.directory,
                    place.name,
                    place.path,
                    named,
                    &identity,
                    &mut work,
                    meter,
                )?;
                report.resumed_bytes = resumed_bytes;
                (Some(part), target)
            }
            false => (None, Target::new(place.directory, place.name, place.path, place.placing)?),
        };
    let copy = Copying { source, place, options, meter, identity, attributes };
    copy.contents(&target, &mut work, part.as_mut(), &mut report)
        .and_then(|()| copy.finish(&target, &mut report))
        .map_err(|error| match (error, &part) {
            (Error::Cancelled { .. }, Some(_)) => {
                let path = part::path_of(place.path, place.name);
                Error::Cancelled { left: format!("{} is kept for `resume`", path.display()) }
            }
            (error, _) => error,
        })?;
    if options.explain {
        report.source_resident_after = evermap_observe::residency(source.file);
        report.target_resident_after = evermap_observe::residency(target.as_fd());
    }
    match part {
        Some(part) => part.publish(place.directory, place.name)?,
        None => target.publish(place.placing)?,
    }
    if options.wish.durability == Durability::Full && place.placing == Placing::Replacing {
        let flushing = Instant::now();
        fs::fsync(place.directory).map_err(Error::io("flush the directory of", place.path))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
    }
    report.calls = meter.calls();
    report.usage = start.since();
    Ok(report)
}

/// Copies what a source has into something that is there: a FIFO, a terminal, a socket. Nothing is made, nothing is replaced.
pub(crate) fn write_into(
    source: Source<'_>,
    target: BorrowedFd<'_>,
    target_path: &Path,
    options: &Options,
    meter: &Meter,
) -> Result<Report> {
    let start = Moment::now();
    let stat = look(source.file).map_err(Error::io("look at", source.path))?;
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
        wish: &options.wish,
        tuning: &options.tuning,
        meter,
        kept: &options.kept,
        reserve: &|_| Ok(()),
    };
    let (driven, moved) = {
        // Its reader may go away.
        let _no_signal = WriteSignalsBlocked::new();
        drive.run(&mut work)
    };
    moved?;
    let arrived_bytes = meter.arrived_bytes();
    let mut report =
        Report { size_bytes: arrived_bytes, data_bytes: arrived_bytes, ..Report::default() };
    describe(driven, &ends, &mut report);
    report.calls = meter.calls();
    report.usage = start.since();
    Ok(report)
}

/// A copy on its way.
struct Copying<'a> {
    source: Source<'a>,
    place: Place<'a>,
    options: &'a Options,
    meter: &'a Meter,
    identity: Identity,
    attributes: Attributes,
}

impl Copying<'_> {
    /// Brings the source's bytes to the target, and makes sure that they are those of one state of it.
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
            // A hole at the end: nothing that is written would reach so far.
            fs::ftruncate(target, self.identity.size_bytes)
                .map_err(|errno| self.not_written(errno, "set the length of"))?;
        }
        let facts = Facts::of(&ends, report.data_bytes);
        let reserve = |due: &Work| {
            room::reserve(target.as_fd(), target.path(), due, facts.target_file_system, self.meter)
        };
        let drive = Drive {
            ends: &ends,
            facts: &facts,
            wish: &self.options.wish,
            tuning: &self.options.tuning,
            meter: self.meter,
            kept: &self.options.kept,
            reserve: &reserve,
        };
        let (driven, moved) = match part {
            None => drive.run(work),
            Some(part) => self.in_steps(&drive, target, work, part),
        };
        describe(driven, &ends, report);
        if !is_file {
            report.size_bytes = self.meter.arrived_bytes();
            report.data_bytes = report.size_bytes;
        }
        report.hole_bytes = report.size_bytes.saturating_sub(report.data_bytes);
        let unchanged = if is_file { self.source_is_unchanged() } else { Ok(()) };
        // What a source that was cut short makes of a call is less to the point than that it was.
        match moved {
            Err(error @ (Error::Cancelled { .. } | Error::NoSpace { .. })) => Err(error),
            moved => unchanged.and(moved),
        }
    }

    /// Moves in steps, each of which is made durable and noted, whatever ends it.
    fn in_steps(
        &self,
        drive: &Drive<'_>,
        target: &Target<'_>,
        work: &mut Work,
        part: &mut Part,
    ) -> (Driven, Result<()>) {
        let mut driven = Driven::default();
        while !work.is_done() {
            let step = work.take(part::STEP_BYTES);
            let mut due = Work::new(step.iter().copied());
            let (stepped, moved) = drive.run(&mut due);
            driven.add(stepped);
            let mut arrived = Work::new(step.iter().copied());
            due.spans().iter().for_each(|span| arrived.arrived_at(*span));
            arrived.spans().iter().for_each(|span| work.arrived_at(*span));
            let recorded = part.record(target.as_fd(), arrived.spans());
            if let Err(error) = moved.and(recorded) {
                return (driven, Err(error));
            }
        }
        (driven, Ok(()))
    }

    /// Reading back, attributes, flushing: all that comes before the name.
    fn finish(&self, target: &Target<'_>, report: &mut Report) -> Result<()> {
        if self.options.verify {
            let source = Named { file: self.source.file, path: self.source.path };
            let stored = Named { file: target.as_fd(), path: target.path() };
            verify::compare(source, stored, self.meter)?;
            self.source_is_unchanged()?;
            report.verified = true;
        }
        // After the last read of the target, which would change the time of its last access.
        if self.place.placing == Placing::Replacing {
            self.keep_attributes(target, report)?;
        }
        let flushing = Instant::now();
        // A file that is within a new directory is flushed with all of that.
        let flushed = match (self.place.placing, self.options.wish.durability) {
            (Placing::Direct, _) | (_, Durability::None) => Ok(()),
            (_, Durability::Data) => fs::fdatasync(target),
            (_, Durability::Full) => fs::fsync(target),
        };
        flushed.map_err(|errno| self.not_written(errno, "flush"))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
        Ok(())
    }

    /// Owner, extended attributes, mode, times. (Of what is within a new directory, whoever fills that sees to them.)
    fn keep_attributes(&self, target: &Target<'_>, report: &mut Report) -> Result<()> {
        let mut keeper = Keeper::for_one(self.options.preserve);
        let mut refusals = Vec::new();
        let failed = |path| move |(operation, errno)| Error::io(operation, path)(errno);
        let xattrs = keeper
            .xattrs(Subject::Open(self.source.file), &mut refusals)
            .map_err(failed(self.source.path))?;
        let stat = fs::fstat(target).map_err(Error::io("look at", target.path()))?;
        let may_have_acl = gives_acls(self.place.directory);
        let made = Made { may_have_acl, ..Made::of(&stat) };
        keeper
            .keep(
                &self.attributes,
                &xattrs,
                Subject::Open(target.as_fd()),
                &made,
                true,
                &mut refusals,
            )
            .map_err(failed(target.path()))?;
        report.not_kept = refusals.into_iter().map(|refusal| refusal.at(self.place.path)).collect();
        Ok(())
    }

    fn source_is_unchanged(&self) -> Result<()> {
        let now = look(self.source.file).map_err(Error::io("look at", self.source.path))?;
        match self.identity.differs(&Identity::of(&now)) {
            Some(what) => Err(Error::SourceChanged { path: self.source.path.into(), what }),
            None => Ok(()),
        }
    }

    fn not_written(&self, errno: Errno, operation: &'static str) -> Error {
        let path = self.place.path;
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                Error::NoSpace { path: path.into(), needed_bytes: self.identity.size_bytes }
            }
            errno => Error::io(operation, path)(errno),
        }
    }
}

/// What was driven, in words of the report.
pub(crate) fn describe(driven: Driven, ends: &Ends<'_>, report: &mut Report) {
    let used = |(engine, bytes): (EngineKind, u64)| EngineUse {
        engine,
        bytes,
        copies: engine.copies(ends),
    };
    report.engines = driven.moved.into_iter().map(used).collect();
    report.why = driven.why;
    report.log = driven.log;
    report.not_used =
        driven.not.into_iter().map(|not| NotUsed { engine: not.engine, why: not.why }).collect();
}
