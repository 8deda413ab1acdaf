//! A load, from wishes to an image.

use std::ops::{Bound, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use evermap_observe::{Moment, Span};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::facts;
use crate::image::{self, Image, Made};
use crate::methods::on_demand::{OnDemand, Start};
use crate::methods::read::{Way, drop_cache, read};
use crate::methods::recorded::Recorded;
use crate::methods::takeover::takeover;
use crate::methods::{Job, Stop, mapped};
use crate::part::Part;
use crate::plan::{
    BRIEF_BYTES_MAX, Cache, Choice, Facts, ForkPolicy, Latency, Method, NoMemory, Order, Wishes,
    maps_anyway, plan,
};
use crate::recording::Recording;
use crate::region::Region;
use crate::replay::{self, RecordingUse, Told};
use crate::share::Share;
use crate::source::Source;
use crate::sys::page_bytes;

/// Loads of less tell of setting up, and not of a device's rate.
const RATED_BYTES_MIN: u64 = 64 << 20;

/// What is to be loaded, and what is known of what will be done with it. Without any wish: all of the file, to be used as soon as
/// possible, touched and written everywhere.
#[derive(Debug, Clone)]
pub struct Loader {
    path: PathBuf,
    range: (Bound<u64>, Bound<u64>),
    wishes: Wishes,
    told: Told,
}

impl Loader {
    /// Will load this file. Nothing happens before [`load`](Loader::load).
    pub fn open(path: impl AsRef<Path>) -> Loader {
        Loader {
            path: path.as_ref().into(),
            range: (Bound::Unbounded, Bound::Unbounded),
            wishes: Wishes::default(),
            told: Told::Nothing,
        }
    }

    /// Only these bytes of it.
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Loader {
        self.range = (range.start_bound().cloned(), range.end_bound().cloned());
        self
    }

    /// The share of its pages that will be touched, 0 to 1.
    pub fn touched(mut self, share: f64) -> Loader {
        self.wishes.touched = Some(share.clamp(0.0, 1.0));
        self
    }

    /// The share of its pages that will be written, 0 to 1.
    pub fn written(mut self, share: f64) -> Loader {
        self.wishes.written = Some(share.clamp(0.0, 1.0));
        self
    }

    /// In which order it will be touched.
    pub fn order(mut self, order: Order) -> Loader {
        self.wishes.order = order;
        self
    }

    /// Whether the first use is to be soon, or the finish.
    pub fn latency(mut self, latency: Latency) -> Loader {
        self.wishes.latency = latency;
        self
    }

    /// What is to be with the page cache afterwards.
    pub fn cache(mut self, cache: Cache) -> Loader {
        self.wishes.cache = cache;
        self
    }

    /// No more private memory than this, in bytes.
    pub fn memory_max(mut self, bytes: u64) -> Loader {
        self.wishes.memory_bytes_max = Some(bytes);
        self
    }

    /// What happens when the process forks before all is there.
    pub fn fork(mut self, policy: ForkPolicy) -> Loader {
        self.wishes.fork = policy;
        self
    }

    /// So many threads, where threads read.
    pub fn threads(mut self, threads: usize) -> Loader {
        self.wishes.threads = Some(threads.max(1));
        self
    }

    /// By this method, or not at all.
    pub fn method(mut self, method: Method) -> Loader {
        self.wishes.method = Some(method);
        self
    }

    /// Has the image note how it is used, see [`Image::recording`]: each window of 64 KiB comes when it is first touched, by a fault and a
    /// copy. Nothing of it comes before. Where that is not possible, it is loaded as if this had not been said, and the report tells why.
    pub fn record(mut self) -> Loader {
        self.told = Told::Record;
        self
    }

    /// Loads as the image was used when this was recorded: in its order, and by the method that is best for what was touched and written.
    /// A recording of another version or range of the file is ignored, and the report says so.
    pub fn replay(mut self, recording: &Recording) -> Loader {
        self.told = Told::Replay(recording.clone());
        self
    }

    /// Loads by the recording in this file; if there is none, or one of another version or range, records, and saves it when the image is dropped (what goes wrong
    /// then nobody learns: see [`Image::recording`]).
    #[cfg(feature = "files")]
    pub fn recording(mut self, path: impl AsRef<Path>) -> Loader {
        self.told = Told::File(path.as_ref().into());
        self
    }

    /// Allows methods that map the file.
    ///
    /// # Safety
    ///
    /// Nobody changes or truncates the file, or the range of it, while the image lives: its bytes would change under references to them, or
    /// raise `SIGBUS`.
    pub unsafe fn may_map(mut self) -> Loader {
        self.wishes.may_map = true;
        self
    }

    /// What is known before a load, and what would be tried. Touches nothing of the file, unless its length is known only by reading it (`/proc`).
    ///
    /// # Errors
    ///
    /// As [`load`](Loader::load) before it reads anything.
    pub fn probe(&self) -> Result<(Facts, Vec<Choice>)> {
        let source = Source::open(&self.path)?;
        let part = Part::new(self.range_in(&source)?, source.block_bytes());
        let facts = facts::of_cache(&source, &part);
        let facts = facts::of_machine(facts, &source, evermap_observe::memory());
        let wishes = self.told.plan(&source, &part)?.wishes(&self.wishes);
        let choices = choices(&source, &facts, &wishes)?;
        Ok((facts, choices))
    }

    /// What would be tried, the best first, by no more of a look than a load begins with: where the file is mapped anyway, less than
    /// [`probe`](Loader::probe) takes, and reasons may say less.
    ///
    /// # Errors
    ///
    /// As [`probe`](Loader::probe).
    pub fn choices(&self) -> Result<Vec<Choice>> {
        let source = Source::open(&self.path)?;
        let (part, facts) = self.look(&source, &Share::default())?;
        let wishes = self.told.plan(&source, &part)?.wishes(&self.wishes);
        choices(&source, &facts, &wishes)
    }

    /// Loads it: the image can be used when this returns, and all of it is there unless it comes on demand.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::NotAFile`] for a file that cannot be opened, [`Error::NoSuchRange`], [`Error::NoMemory`],
    /// [`Error::Unreadable`], [`Error::Changed`] if somebody changes it meanwhile, [`Error::Refused`] for a method that was asked
    /// for by name, [`Error::Malformed`] for a recording that is none.
    pub fn load(&self) -> Result<Image> {
        self.load_as(&Share::default())
    }

    /// Loads it as one of many.
    pub(crate) fn load_as(&self, share: &Share) -> Result<Image> {
        let source = Arc::new(Source::open(&self.path)?);
        let (part, mut facts) = self.look(&source, share)?;
        let promised = share.promise(&mut facts);
        let replay = self.told.plan(&source, &part)?;
        let mut wishes = replay.wishes(&self.wishes);
        share.limit(&mut wishes, &facts);
        let choices = choices(&source, &facts, &wishes)?;
        let resident_bytes = facts.resident_bytes.unwrap_or(0);
        let job = Job {
            data: source.data(Span::new(part.begin, part.end)).into(),
            part,
            counters: Arc::new(Counters::new()),
            is_partly_cached: resident_bytes > 0,
            source,
        };
        let may_map = wishes.may_map || job.source.is_unchangeable;
        let load = Load { job, wishes, replay, may_map, resident_bytes, share };
        let image = load.load(choices)?;
        promised.keep_if(image.method().is_private());
        Ok(image)
    }

    /// What of the file is to be loaded, and no more about it than is needed to decide how.
    fn look(&self, source: &Source, share: &Share) -> Result<(Part, Facts)> {
        let range = self.range_in(source)?;
        let wishes = &self.wishes;
        let pages = Part::new(range.clone(), page_bytes() as u64);
        let is_free = matches!(self.told, Told::Nothing);
        let is_brief = pages.bytes() < BRIEF_BYTES_MAX && wishes.cache != Cache::Drop;
        if is_free && is_brief && wishes.method.is_none() {
            return Ok((pages, facts::of_name(source, &pages)));
        }
        // Else nothing that a glance says could be enough.
        let may_map = wishes.may_map || source.is_unchangeable;
        if is_free
            && may_map
            && let Some(facts) = facts::of_cache_at_a_glance(source, &pages)
            && maps_anyway(&facts, wishes)
        {
            return Ok((pages, facts));
        }
        let facts = facts::of_cache(source, &pages);
        if is_free && maps_anyway(&facts, wishes) {
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

/// A load of which all is known.
struct Load<'l> {
    job: Job,
    wishes: Wishes,
    replay: replay::Plan,
    may_map: bool,
    resident_bytes: u64,
    share: &'l Share,
}

impl Load<'_> {
    fn load(mut self, choices: Vec<Choice>) -> Result<Image> {
        let begun = Moment::now();
        if self.replay.is_record {
            match Recorded::start(&self.job, self.wishes.fork) {
                Ok(recorded) => {
                    self.replay.used = Some(RecordingUse::Made);
                    let why = "recorded: each 64 KiB come when they are touched first".into();
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
                    if self.wishes.cache == Cache::Drop && self.resident_bytes == 0 {
                        let part = &self.job.part;
                        drop_cache(&self.job, part.begin, part.end - part.begin);
                    }
                    return Ok(self.image(memory, choice, refused, begun));
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(why)) => refused.push((choice.method, why)),
            }
        }
        // The last of a plan refuses nothing; a method that was asked for does.
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
        Image::new(job, memory, Made { choice, refused, usage: begun.since(), replay, may_map })
    }

    fn make(&self, choice: &Choice) -> Result<image::Memory, Stop> {
        let (job, threads) = (&self.job, choice.threads);
        if job.part.windows() == 0 {
            // No method has anything to do.
            job.counters.complete();
            return Ok(image::Memory::Whole(Region::empty()));
        }
        match choice.method {
            method if method.maps_the_file() => {
                if !self.may_map {
                    return Err(Stop::Refused(
                        "it is mapped only with the promise that nobody changes the file meanwhile (`may_map`)".into(),
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
            Method::ReadHuge => read(job, Way::Cached, true, threads).map(image::Memory::Whole),
            Method::ReadUncached => {
                read(job, Way::Uncached, true, threads).map(image::Memory::Whole)
            }
            Method::Takeover => {
                let region = takeover(job, threads)?;
                keep_rate(job);
                Ok(image::Memory::Whole(region))
            }
            Method::TakeoverOnDemand => {
                let recorded = self.replay.recording.as_ref().map(Recording::huge_windows);
                let start = Start::new(
                    self.wishes.fork,
                    recorded.unwrap_or_default(),
                    self.wishes.order,
                    self.share.turns.next(),
                );
                OnDemand::start(job, start).map(image::Memory::OnDemand)
            }
            _ => read(job, Way::Cached, false, threads).map(image::Memory::Whole),
        }
    }
}

fn choices(source: &Source, facts: &Facts, wishes: &Wishes) -> Result<Vec<Choice>> {
    plan(facts, wishes).map(|plan| plan.choices).map_err(|short| {
        let NoMemory { needed_bytes, available_bytes } = short;
        let limit = match wishes.memory_bytes_max {
            Some(allowed) if allowed <= available_bytes => "what was allowed",
            _ => facts.available_limit,
        };
        Error::NoMemory { path: source.path().into(), needed_bytes, available_bytes, limit }
    })
}

/// Remembers what the device can do, if this load has shown it.
fn keep_rate(job: &Job) {
    let direct_bytes = job.counters.direct_bytes.load(Ordering::Relaxed);
    if let Some(seconds) = job.counters.complete_s().filter(|_| direct_bytes >= RATED_BYTES_MIN) {
        let device = job.source.identity().device;
        evermap_observe::keep_read_rate(device, direct_bytes as f64 / seconds);
    }
}
