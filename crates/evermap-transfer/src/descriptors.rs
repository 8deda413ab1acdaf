//! Moves bytes between two open descriptors: files, pipes, sockets, devices.
//!
//! Handles no names and no attributes. Bytes that have arrived stay in the target, even after an
//! error. For programs that create their files themselves, such as `evermap`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use evermap_observe::Moment;
use rustix::fs;
use rustix::process::{Resource, getrlimit};

use crate::drive::{Drive, DriveSummary};
use crate::end::{Ends, Kind};
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::file::describe;
use crate::meter::Meter;
use crate::policy::rates::RateCache;
use crate::policy::{Choice, Durability, Facts, Reflink, Request, plan};
use crate::report::Report;
use crate::segments::FullSegments;
use crate::space;
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

/// Transfer of bytes from one descriptor to another.
///
/// Between files, each byte keeps its offset, and the descriptors' positions are not used. Engine
/// `sendfile` changes the target's position. Pipes, sockets and terminals are read from their
/// current position and written at their end.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::fs::FileExt;
/// use evermap_transfer::{Move, Span};
///
/// let (source, target) = (tempfile::tempfile()?, tempfile::tempfile()?);
/// source.write_all_at(b"bytes that are moved", 0)?;
/// let report = Move::new(&source, &target).run()?;
/// assert_eq!(report.data_bytes, 20);
///
/// // Move a part of it into a pipe.
/// let (mut reader, writer) = std::io::pipe()?;
/// Move::new(&source, &writer).spans([Span::new(15, 20)]).run()?;
/// drop(writer);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "moved");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Move<'a> {
    source: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
    names: (Option<PathBuf>, Option<PathBuf>),
    spans: Option<Vec<Span>>,
    sparse: bool,
    engines: Vec<EngineKind>,
    request: Request,
    tuning: Tuning,
    explain: bool,
    rate_cache: RateCache,
    meter: Arc<Meter>,
}

impl<'a> Move<'a> {
    /// Moves all of `source` to `target`. A longer target keeps its remaining bytes.
    pub fn new(source: &'a impl AsFd, target: &'a impl AsFd) -> Move<'a> {
        Move {
            source: source.as_fd(),
            target: target.as_fd(),
            names: (None, None),
            spans: None,
            sparse: false,
            engines: Vec::new(),
            request: Request::default(),
            tuning: Tuning::default(),
            explain: false,
            rate_cache: RateCache::of_user(),
            meter: Arc::default(),
        }
    }

    /// Sets the names of both ends in messages. Default: the kernel's names.
    pub fn named(mut self, source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Move<'a> {
        self.names = (Some(source.into()), Some(target.into()));
        self
    }

    /// Moves only these spans, which must ascend and not overlap. The last one may be open. A
    /// source without offsets is read for as many bytes as the spans have.
    pub fn spans(mut self, spans: impl IntoIterator<Item = Span>) -> Move<'a> {
        self.spans = Some(spans.into_iter().collect());
        self
    }

    /// Skips the source's holes. The target must have only holes or zeros there, as in a new file.
    /// Its length is set as without this option. Ignored unless both ends are regular files and the
    /// target is not open for appending.
    pub fn sparse(mut self, sparse: bool) -> Move<'a> {
        self.sparse = sparse;
        self
    }

    /// Uses only this engine. Data that it cannot move is an error.
    pub fn engine(self, engine: EngineKind) -> Move<'a> {
        self.engines([engine])
    }

    /// Uses only these engines. Each continues where the one before it was refused. For callers
    /// that need a fixed order: the default order depends on measurements.
    pub fn engines(mut self, engines: impl IntoIterator<Item = EngineKind>) -> Move<'a> {
        self.engines = engines.into_iter().collect();
        self.request.engine = self.engines.first().copied();
        self
    }

    /// Sets the engines' parameters. [`Tuning::default`] has the measured values.
    pub fn tuning(mut self, tuning: Tuning) -> Move<'a> {
        self.tuning = tuning;
        self
    }

    /// Sets the durability guaranteed when [`Move::run`] returns. With `Data` and `Full` a target
    /// file or device is flushed. The caller flushes the target's directory.
    pub fn durability(mut self, durability: Durability) -> Move<'a> {
        self.request.durability = durability;
        self
    }

    /// Sets whether extents may be shared with the source. Default: shared if possible.
    pub fn reflink(mut self, reflink: Reflink) -> Move<'a> {
        self.request.reflink = reflink;
        self
    }

    /// Records in the report how much is cached before and after.
    pub fn explain(mut self, explain: bool) -> Move<'a> {
        self.explain = explain;
        self
    }

    /// Cancels the move with [`Error::Cancelled`] soon after the flag is set by another thread or a
    /// signal handler. Replaces the counters, so call it before [`Move::meter`].
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Move<'a> {
        self.meter = Arc::new(Meter::new(cancelled));
        self
    }

    /// Returns the live counters, to show progress from another thread, or to read after an error
    /// how many bytes arrived.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Runs the move.
    ///
    /// Unless extents are shared, space for all of it is reserved first if the target is a file and
    /// its file system supports that. This extends the file. The source may be written
    /// concurrently: each byte arrives as it was at some time during the move.
    ///
    /// SIGPIPE and SIGXFSZ are blocked in this thread while bytes move, if the target has a peer or
    /// the process a file size limit. So a closed peer or the limit is an error and not a signal.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::NoSpace`], [`Error::Refused`] by the last of [`Move::engines`],
    /// [`Error::Cancelled`], [`Error::SourceChanged`] if the source ends within a span,
    /// [`Error::SameFile`], [`Error::Usage`] for invalid spans. Bytes that have arrived stay in the
    /// target.
    pub fn run(&self) -> Result<Report> {
        let start = Moment::now();
        let names = (
            self.names.0.clone().unwrap_or_else(|| name_of(self.source)),
            self.names.1.clone().unwrap_or_else(|| name_of(self.target)),
        );
        let ends = Ends::new((&self.source, &names.0), (&self.target, &names.1))?;
        if ends.have_offsets() && ends.source.identity() == ends.target.identity() {
            return Err(Error::SameFile { source_path: names.0, target_path: names.1 });
        }
        let mut work = self.pending_work(&ends)?;
        let mut report = Report::default();
        if self.explain {
            report.source_resident_before = evermap_observe::residency(self.source);
        }
        let (due_bytes, before_bytes) = (work.bytes(), self.meter.arrived_bytes());
        let before_calls = self.meter.calls();
        let moved = {
            // Files have no peer. This saves four calls if the file size is unlimited.
            let has_peer = !matches!(ends.target.kind(), Kind::File | Kind::Block);
            let has_limit = || getrlimit(Resource::Fsize).current.is_some();
            let _no_signal = (has_peer || has_limit()).then(WriteSignalsBlocked::new);
            let _full = has_peer.then(|| FullSegments::of(&ends));
            self.drive(&ends, &mut work, &mut report)
        };
        moved.map_err(|error| match error {
            Error::Cancelled { .. } => Error::Cancelled {
                left: format!("{} has the bytes that arrived", names.1.display()),
            },
            error => error,
        })?;
        report.data_bytes = self.meter.arrived_bytes() - before_bytes;
        report.size_bytes = due_bytes.unwrap_or(report.data_bytes);
        report.hole_bytes = report.size_bytes.saturating_sub(report.data_bytes);
        self.flush(&ends, &mut report)?;
        if self.explain {
            report.source_resident_after = evermap_observe::residency(self.source);
            report.target_resident_after = evermap_observe::residency(self.target);
        }
        report.calls = self.meter.calls() - before_calls;
        report.usage = start.since();
        Ok(report)
    }

    /// Returns the spans to move. An open end is closed at the size of a source file that has one.
    fn pending_work(&self, ends: &Ends<'_>) -> Result<Work> {
        let mut spans = match &self.spans {
            Some(spans) => spans.clone(),
            None => vec![Span::new(0, Span::OPEN)],
        };
        let ascend = spans.windows(2).all(|pair| pair[0].end <= pair[1].begin);
        let is_span =
            |span: &Span| span.begin <= span.end && (span.is_open() || span.end <= i64::MAX as u64);
        if !ascend || !spans.iter().all(is_span) {
            return Err(Error::Usage(
                "invalid spans: they must ascend, not overlap, and end below 2^63; only the last may be open".into(),
            ));
        }
        let has_a_size = ends.source.kind() == Kind::File && ends.source.size_bytes() > 0;
        if let Some(last) = spans.last_mut().filter(|last| last.is_open() && has_a_size) {
            last.end = ends.source.size_bytes().max(last.begin);
        }
        Ok(Work::new(spans))
    }

    fn drive(&self, ends: &Ends<'_>, work: &mut Work, report: &mut Report) -> Result<()> {
        let facts = Facts::of(ends, work.bytes().unwrap_or(ends.source.size_bytes()));
        let reserve = |due: &Work| self.reserve(ends, due);
        let drive = Drive {
            ends,
            facts: &facts,
            request: &self.request,
            tuning: &self.tuning,
            meter: &self.meter,
            rate_cache: &self.rate_cache,
            reserve: &reserve,
        };
        let (summary, moved) = match self.sparse && is_between_files(ends) {
            true => self.without_holes(&drive, work),
            false => self.by_engines_or_plan(&drive, work),
        };
        describe(summary, ends, report);
        moved
    }

    fn by_engines_or_plan(&self, drive: &Drive<'_>, work: &mut Work) -> (DriveSummary, Result<()>) {
        match self.engines.is_empty() {
            true => drive.run(work),
            false => drive.run_by(&self.engines, work),
        }
    }

    /// Shares extents first if that is the first choice: one call copies all holes too. For the
    /// other engines the holes are removed from the work.
    fn without_holes(&self, drive: &Drive<'_>, work: &mut Work) -> (DriveSummary, Result<()>) {
        let first = match self.engines.first() {
            Some(engine) => Some(*engine),
            None => plan(drive.facts, &self.request).choices.first().map(|choice| choice.engine),
        };
        if first != Some(EngineKind::Reflink) {
            let data = self.remove_holes(drive.ends, work);
            return match data {
                Ok(()) => self.by_engines_or_plan(drive, work),
                Err(error) => (DriveSummary::default(), Err(error)),
            };
        }
        let (mut summary, shared) = drive.run_by(&[EngineKind::Reflink], work);
        let others: Vec<EngineKind> =
            self.engines.iter().copied().filter(|engine| *engine != EngineKind::Reflink).collect();
        let is_last = match self.engines.is_empty() {
            true => self.request.reflink == Reflink::Always,
            false => others.is_empty(),
        };
        match shared {
            Err(Error::Refused { .. }) if !is_last => {}
            shared => return (summary, shared),
        }
        if let Err(error) = self.remove_holes(drive.ends, work) {
            return (summary, Err(error));
        }
        let (rest, moved) = match self.engines.is_empty() {
            true => {
                let request = Request { reflink: Reflink::Never, ..self.request };
                Drive { request: &request, ..drive.clone() }.run(work)
            }
            false => drive.run_by(&others, work),
        };
        let refused = std::mem::take(&mut summary.rejected);
        summary.add(rest);
        let is_other = |choice: &Choice| choice.engine != EngineKind::Reflink;
        summary.rejected.retain(is_other);
        summary.rejected.splice(0..0, refused);
        (summary, moved)
    }

    /// Narrows `work` to the source's extents. Extends the target to its final length if no write
    /// will do so.
    fn remove_holes(&self, ends: &Ends<'_>, work: &mut Work) -> Result<()> {
        let source = &ends.source;
        let stat =
            fs::fstat(source.fd()).map_err(Error::io("read the attributes of", source.path()))?;
        let position =
            fs::tell(source.fd()).map_err(Error::io("read the position of", source.path()))?;
        let extents =
            evermap_observe::extents(source.fd(), stat.st_size as u64, stat.st_blocks as u64 * 512)
                .map_err(Error::io("find the data of", source.path()))?;
        // The extent query moved the position, which belongs to the caller.
        fs::seek(source.fd(), fs::SeekFrom::Start(position))
            .map_err(Error::io("find the data of", source.path()))?;
        let end = work.spans().last().map_or(0, |last| last.end);
        let data = intersection(work.spans(), &extents);
        let target = &ends.target;
        if end != Span::OPEN
            && end > target.size_bytes()
            && data.last().is_none_or(|last| last.end < end)
        {
            fs::ftruncate(target.fd(), end)
                .map_err(Error::io("set the length of", target.path()))?;
        }
        *work = Work::new(data);
        Ok(())
    }

    fn reserve(&self, ends: &Ends<'_>, due: &Work) -> Result<()> {
        let target = &ends.target;
        if target.kind() != Kind::File || target.appends() {
            return Ok(());
        }
        space::reserve(target.fd(), target.path(), due, target.file_system(), &self.meter)
    }

    fn flush(&self, ends: &Ends<'_>, report: &mut Report) -> Result<()> {
        let target = &ends.target;
        if !matches!(target.kind(), Kind::File | Kind::Block) {
            return Ok(());
        }
        let flushing = Instant::now();
        let flushed = match self.request.durability {
            Durability::None => return Ok(()),
            Durability::Data => fs::fdatasync(target.fd()),
            Durability::Full => fs::fsync(target.fd()),
        };
        flushed.map_err(Error::io("flush", target.path()))?;
        report.flush_s += flushing.elapsed().as_secs_f64();
        Ok(())
    }
}

fn is_between_files(ends: &Ends<'_>) -> bool {
    ends.source.kind() == Kind::File && ends.target.kind() == Kind::File && !ends.target.appends()
}

/// Returns the kernel's name for an open descriptor.
fn name_of(descriptor: BorrowedFd<'_>) -> PathBuf {
    let number = descriptor.as_raw_fd();
    std::fs::read_link(format!("/proc/self/fd/{number}"))
        .unwrap_or_else(|_| format!("descriptor {number}").into())
}

/// Intersects two ascending lists of spans.
fn intersection(spans: &[Span], extents: &[Span]) -> Vec<Span> {
    let mut found = Vec::new();
    let mut extents = extents.iter().copied().peekable();
    for span in spans {
        while let Some(extent) = extents.peek().copied().filter(|extent| extent.begin < span.end) {
            let both = Span::new(extent.begin.max(span.begin), extent.end.min(span.end));
            if !both.is_empty() {
                found.push(both);
            }
            if extent.end > span.end {
                break;
            }
            extents.next();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(parts: &[(u64, u64)]) -> Vec<Span> {
        let mut at = 0;
        let next = |(gap, bytes): &(u64, u64)| {
            at += gap + bytes;
            Span::new(at - bytes, at)
        };
        parts.iter().map(next).collect()
    }

    /// Three engines race in turns, the fastest moves the rest, and the next copy uses it without a
    /// race.
    #[test]
    fn engines_race_once_between_two_devices() {
        use std::os::unix::fs::FileExt;
        let directory = tempfile::tempdir().unwrap();
        let file = || tempfile::tempfile_in(directory.path()).unwrap();
        let content: Vec<u8> =
            (0..4 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let source = file();
        source.write_all_at(&content, 0).unwrap();
        if evermap_observe::residency(source.as_fd()).is_none() {
            eprintln!("SKIPPED: page cache residency is unknown here, so no race runs");
            return;
        }
        let tuning =
            Tuning { race_bytes_min: 2 << 20, race_round_bytes: 64 << 10, ..Tuning::default() };
        let run = |bytes: u64| {
            let target = file();
            let mut moved = Move::new(&source, &target)
                .spans([Span::new(0, bytes)])
                .reflink(Reflink::Never)
                .tuning(tuning.clone());
            moved.rate_cache = RateCache::at(directory.path().join("rates"));
            let report = moved.run().unwrap();
            let mut copied = vec![0; bytes as usize];
            target.read_exact_at(&mut copied, 0).unwrap();
            assert!(copied == content[..bytes as usize]);
            report
        };
        // Too small for a race.
        assert_eq!(run(1 << 20).engines.len(), 1);
        assert!(!directory.path().join("rates").exists());
        let raced = run(4 << 20);
        let heats = 3 * (64 << 10);
        let mut moved: Vec<u64> = raced.engines.iter().map(|engine| engine.bytes).collect();
        moved.sort_unstable();
        let losers = moved.len() - 1;
        assert!(losers >= 1 && moved[..losers].iter().all(|bytes| *bytes == heats), "{raced:?}");
        assert_eq!(moved.iter().sum::<u64>(), 4 << 20);
        assert!(raced.log.iter().any(|line| line.contains("us/MiB")), "{raced:?}");
        // The winner is used from now on, for small and large moves.
        let fastest = raced.engines.iter().max_by_key(|engine| engine.bytes).unwrap().engine;
        for bytes in [1 << 20, 4 << 20] {
            let next = run(bytes);
            assert_eq!(next.engines.len(), 1, "{next:?}");
            assert_eq!(next.engines[0].engine, fastest);
        }
    }

    proptest! {
        /// Compares with one flag per byte.
        #[test]
        fn intersection_is_in_a_span_and_in_an_extent(
            parts in prop::collection::vec((1u64..9, 1u64..9), 0..12),
            others in prop::collection::vec((1u64..9, 1u64..9), 0..12),
        ) {
            let (wanted, extents) = (spans(&parts), spans(&others));
            let has = |spans: &[Span], at: u64| spans.iter().any(|s| (s.begin..s.end).contains(&at));
            let found = intersection(&wanted, &extents);
            for at in 0..256 {
                prop_assert_eq!(has(&found, at), has(&wanted, at) && has(&extents, at), "{}", at);
            }
        }
    }
}
