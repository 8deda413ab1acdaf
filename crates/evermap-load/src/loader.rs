//! [`Loader`] collects the options of a load, gathers the facts about the file, and tries the
//! planned methods in turn until one produces an image.

use std::ops::{Bound, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use evermap_observe::{Moment, Span};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::facts;
use crate::history::LoadHistory;
use crate::image::{self, Image};
use crate::job::Job;
use crate::methods::on_demand::{OnDemand, Start};
use crate::methods::read::{ReadPath, drop_cache, read};
use crate::methods::recorded::Recorded;
use crate::methods::takeover::takeover;
use crate::methods::{Stop, mapped};
use crate::part::Part;
use crate::plan::{
    Cache, Choice, Facts, ForkPolicy, Latency, Method, NoMemory, Options, Order, SHORT_BYTES_MAX,
    maps_anyway, plan,
};
use crate::recording::Recording;
use crate::region::Region;
use crate::replay::{self, RecordingMode, RecordingUse};
use crate::share::Share;
use crate::source::Source;
use crate::sys::page_bytes;

/// Minimum number of bytes read directly from a device for storing its read rate. Setup dominates
/// smaller loads.
const RATED_BYTES_MIN: u64 = 64 << 20;

/// Builder for a load: the file, the range and the expected use. By default, loads the whole file
/// for early first use, and expects every page to be touched and written.
#[derive(Debug, Clone)]
pub struct Loader {
    path: PathBuf,
    range: (Bound<u64>, Bound<u64>),
    options: Options,
    recording_mode: RecordingMode,
}

impl Loader {
    /// Creates a loader for a file. Accesses nothing before [`load`](Loader::load).
    pub fn open(path: impl AsRef<Path>) -> Loader {
        Loader {
            path: path.as_ref().into(),
            range: (Bound::Unbounded, Bound::Unbounded),
            options: Options::default(),
            recording_mode: RecordingMode::Nothing,
        }
    }

    /// Limits the load to a byte range.
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Loader {
        self.range = (range.start_bound().cloned(), range.end_bound().cloned());
        self
    }

    /// Sets the share of pages that will be touched, 0 to 1.
    pub fn touched(mut self, share: f64) -> Loader {
        self.options.touched = Some(share.clamp(0.0, 1.0));
        self
    }

    /// Sets the share of pages that will be written, 0 to 1.
    pub fn written(mut self, share: f64) -> Loader {
        self.options.written = Some(share.clamp(0.0, 1.0));
        self
    }

    /// Sets the order of access.
    pub fn order(mut self, order: Order) -> Loader {
        self.options.order = order;
        self
    }

    /// Sets the optimization goal: early first use, or early completion.
    pub fn latency(mut self, latency: Latency) -> Loader {
        self.options.latency = latency;
        self
    }

    /// Sets what to do with the page cache after loading.
    pub fn cache(mut self, cache: Cache) -> Loader {
        self.options.cache = cache;
        self
    }

    /// Limits private memory, in bytes.
    pub fn memory_max(mut self, bytes: u64) -> Loader {
        self.options.memory_bytes_max = Some(bytes);
        self
    }

    /// Sets what happens if the process forks before loading is complete.
    pub fn fork(mut self, policy: ForkPolicy) -> Loader {
        self.options.fork = policy;
        self
    }

    /// Sets the number of threads for methods that read with threads.
    pub fn threads(mut self, threads: usize) -> Loader {
        self.options.threads = Some(threads.max(1));
        self
    }

    /// Uses only this method. The load fails if the method is refused.
    pub fn method(mut self, method: Method) -> Loader {
        self.options.method = Some(method);
        self
    }

    /// Records how the image is used, see [`Image::recording`]. Each window of 64 KiB is loaded on
    /// first access, by a fault and a copy, and not before. If recording is impossible, the image
    /// is loaded as if this had not been called, and the report gives the reason.
    pub fn record(mut self) -> Loader {
        self.recording_mode = RecordingMode::Record;
        self
    }

    /// Loads according to a recording: in its order, by the best method for the recorded touches
    /// and writes. A recording of another version or range of the file is ignored and reported.
    pub fn replay(mut self, recording: &Recording) -> Loader {
        self.recording_mode = RecordingMode::Replay(recording.clone());
        self
    }

    /// Replays the recording in this file. If the file does not exist or belongs to another version
    /// or range, records the use and saves it when the image is dropped. Errors of that save are
    /// ignored; see [`Image::recording`].
    #[cfg(feature = "files")]
    pub fn recording(mut self, path: impl AsRef<Path>) -> Loader {
        self.recording_mode = RecordingMode::File(path.as_ref().into());
        self
    }

    /// Allows methods that map the file.
    ///
    /// # Safety
    ///
    /// The file, or the loaded range, must not be changed or truncated while the image lives.
    /// Otherwise bytes change under references to them, or an access raises `SIGBUS`.
    pub unsafe fn may_map(mut self) -> Loader {
        self.options.may_map = true;
        self
    }

    /// Returns the facts known before a load, and the methods that it would try. Reads nothing of
    /// the file, unless its length can only be found by reading it (`/proc`).
    ///
    /// # Errors
    ///
    /// Same errors as [`load`](Loader::load) up to the choice of a method.
    pub fn probe(&self) -> Result<(Facts, Vec<Choice>)> {
        let source = Source::open(&self.path)?;
        let part = Part::new(self.range_in(&source)?, source.block_bytes());
        let facts = facts::of_cache(&source, &part);
        let facts = facts::of_machine(facts, &source, evermap_observe::memory());
        let options = self.recording_mode.plan(&source, &part)?.options(&self.options);
        let choices = choices(&source, &facts, &options)?;
        Ok((facts, choices))
    }

    /// Returns the methods that a load would try, best first. Like a load, and unlike
    /// [`probe`](Loader::probe), gathers only the facts that the choice needs. So it costs less if
    /// the file is short, or is mapped regardless of memory and device. Reasons can be less
    /// detailed then.
    ///
    /// # Errors
    ///
    /// Same errors as [`probe`](Loader::probe).
    pub fn choices(&self) -> Result<Vec<Choice>> {
        let source = Source::open(&self.path)?;
        let (part, facts) = self.gather(&source, &Share::default())?;
        let options = self.recording_mode.plan(&source, &part)?.options(&self.options);
        choices(&source, &facts, &options)
    }

    /// Loads the file. The image is usable at once, and complete unless it loads on demand.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::NotAFile`] for a file that cannot be opened,
    /// [`Error::NoSuchRange`], [`Error::NoMemory`], [`Error::Unreadable`], [`Error::Changed`] if
    /// the file changes during the load, [`Error::Refused`] for a method requested by name,
    /// [`Error::Malformed`] for an invalid recording.
    pub fn load(&self) -> Result<Image> {
        self.load_as(&Share::default())
    }

    /// Loads the file as part of a set.
    pub(crate) fn load_as(&self, share: &Share) -> Result<Image> {
        let source = Arc::new(Source::open(&self.path)?);
        let (part, mut facts) = self.gather(&source, share)?;
        let reservation = share.reserve(&mut facts);
        let replay = self.recording_mode.plan(&source, &part)?;
        let mut options = replay.options(&self.options);
        share.limit(&mut options, &facts);
        let choices = choices(&source, &facts, &options)?;
        let resident_bytes = facts.resident_bytes.unwrap_or(0);
        let job = Job {
            data: source.data(Span::new(part.begin, part.end)).into(),
            part,
            counters: Arc::new(Counters::new()),
            is_partly_cached: resident_bytes > 0,
            source,
        };
        let may_map = options.may_map || job.source.is_unchangeable;
        let load = Load { job, options, replay, may_map, resident_bytes, share };
        let image = load.load(choices)?;
        reservation.keep_if(image.method().is_private());
        Ok(image)
    }

    /// Returns the part to load, and only the facts needed to choose a method.
    fn gather(&self, source: &Source, share: &Share) -> Result<(Part, Facts)> {
        let range = self.range_in(source)?;
        let options = &self.options;
        let pages = Part::new(range.clone(), page_bytes() as u64);
        let has_no_recording = matches!(self.recording_mode, RecordingMode::Nothing);
        let is_short = pages.bytes() < SHORT_BYTES_MAX && options.cache != Cache::Drop;
        if has_no_recording && is_short && options.method.is_none() {
            return Ok((pages, facts::of_name(source, &pages)));
        }
        // Samples can only show that mapping is best, so they are of no use if it is not allowed.
        let may_map = options.may_map || source.is_unchangeable;
        if has_no_recording
            && may_map
            && let Some(facts) = facts::of_cache_by_samples(source, &pages)
            && maps_anyway(&facts, options)
        {
            return Ok((pages, facts));
        }
        let facts = facts::of_cache(source, &pages);
        if has_no_recording && maps_anyway(&facts, options) {
            return Ok((pages, facts));
        }
        let facts = facts::of_machine(facts, source, share.memory());
        Ok((Part::new(range, source.block_bytes()), facts))
    }

    fn range_in(&self, source: &Source) -> Result<Range<u64>> {
        let bytes = source.bytes();
        let begin = match self.range.0 {
            Bound::Included(begin) => begin,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match self.range.1 {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => end,
            Bound::Unbounded => bytes,
        };
        if begin > end || end > bytes || usize::try_from(end - begin).is_err() {
            return Err(Error::NoSuchRange {
                path: self.path.clone(),
                there_bytes: bytes,
                begin_bytes: begin,
                end_bytes: end,
            });
        }
        Ok(begin..end)
    }
}

/// A load with all facts known.
struct Load<'l> {
    job: Job,
    options: Options,
    replay: replay::Plan,
    may_map: bool,
    resident_bytes: u64,
    share: &'l Share,
}

impl Load<'_> {
    fn load(mut self, choices: Vec<Choice>) -> Result<Image> {
        let begun = Moment::now();
        if self.replay.is_record {
            match Recorded::start(&self.job, self.options.fork) {
                Ok(recorded) => {
                    self.replay.used = Some(RecordingUse::Made);
                    let why = "recorded: each 64 KiB window is loaded on first access".into();
                    let choice = Choice { method: Method::TakeoverOnDemand, threads: 1, why };
                    return Ok(self.image(
                        image::Memory::Recorded(recorded),
                        choice,
                        Vec::new(),
                        begun,
                    ));
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(why)) => self.replay.used = Some(RecordingUse::NotMade(why)),
            }
        }
        let mut refused = Vec::new();
        for choice in choices {
            match self.make(&choice) {
                Ok(memory) => {
                    if self.options.cache == Cache::Drop && self.resident_bytes == 0 {
                        let part = &self.job.part;
                        drop_cache(&self.job, part.begin, part.end - part.begin);
                    }
                    return Ok(self.image(memory, choice, refused, begun));
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(why)) => refused.push((choice.method, why)),
            }
        }
        // A plan within memory ends with a method that never refuses. Mappings and clones can
        // refuse, and so can a method requested by name.
        let (method, why) = refused.pop().unwrap_or((Method::Read, "no method is left".into()));
        Err(Error::Refused { path: self.job.source.path().into(), method, why })
    }

    fn image(
        self,
        memory: image::Memory,
        choice: Choice,
        refused: Vec<(Method, String)>,
        begun: Moment,
    ) -> Image {
        let Load { job, replay, may_map, .. } = self;
        Image::new(
            job,
            memory,
            LoadHistory { choice, refused, usage: begun.since(), replay, may_map },
        )
    }

    fn make(&self, choice: &Choice) -> Result<image::Memory, Stop> {
        let (job, threads) = (&self.job, choice.threads);
        if job.part.windows() == 0 {
            // An empty part needs no method.
            job.counters.complete();
            return Ok(image::Memory::Whole(Region::empty()));
        }
        match choice.method {
            method if method.maps_the_file() => {
                if !self.may_map {
                    return Err(Stop::Refused(
                        "mapping requires the promise that the file does not change (`may_map`)"
                            .into(),
                    ));
                }
                let region = mapped::map(job, method)?;
                if let Some(recording) = &self.replay.recording {
                    mapped::read_ahead(&region, &recording.ranges());
                }
                Ok(image::Memory::Whole(region))
            }
            Method::Clone => {
                mapped::map_clone(job).map(|(region, _file)| image::Memory::Whole(region))
            }
            Method::ReadHuge => {
                read(job, ReadPath::Cached, true, threads).map(image::Memory::Whole)
            }
            Method::ReadUncached => {
                read(job, ReadPath::Uncached, true, threads).map(image::Memory::Whole)
            }
            Method::Takeover => {
                let region = takeover(job, threads)?;
                store_rate(job);
                Ok(image::Memory::Whole(region))
            }
            Method::TakeoverOnDemand => {
                let recorded = self.replay.recording.as_ref().map(Recording::huge_windows);
                let start = Start::new(
                    self.options.fork,
                    recorded.unwrap_or_default(),
                    self.options.order,
                    self.share.turns.next(),
                );
                OnDemand::start(job, start).map(image::Memory::OnDemand)
            }
            _ => read(job, ReadPath::Cached, false, threads).map(image::Memory::Whole),
        }
    }
}

fn choices(source: &Source, facts: &Facts, options: &Options) -> Result<Vec<Choice>> {
    plan(facts, options).map(|plan| plan.choices).map_err(|short| {
        let NoMemory { needed_bytes, available_bytes } = short;
        let limit = match options.memory_bytes_max {
            Some(allowed) if allowed <= available_bytes => "the requested limit",
            _ => facts.available_limit,
        };
        Error::NoMemory { path: source.path().into(), needed_bytes, available_bytes, limit }
    })
}

/// Stores the device's read rate for later plans, if this load was large enough to measure it.
fn store_rate(job: &Job) {
    let direct_bytes = job.counters.direct_bytes.load(Ordering::Relaxed);
    if let Some(seconds) = job.counters.complete_s().filter(|_| direct_bytes >= RATED_BYTES_MIN) {
        let device = job.source.identity().device;
        evermap_observe::store_read_rate(device, direct_bytes as f64 / seconds);
    }
}
