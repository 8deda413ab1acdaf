//! A load, from wishes to an image.

use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evermap_observe::{FileSystem, LimitedBy, Moment, Span};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::image::{Image, Memory};
use crate::methods::on_demand::{OnDemand, Start};
use crate::methods::read::{Way, drop_cache, read};
use crate::methods::takeover::takeover;
use crate::methods::{Job, Stop, mapped};
use crate::part::Part;
use crate::plan::{
    Cache, Choice, Facts, ForkPolicy, Latency, Method, NoMemory, Order, Wishes, plan,
};
use crate::region::Region;
use crate::source::Source;

/// Loads of less tell of setting up, and not of a device's rate.
const RATED_BYTES_MIN: u64 = 64 << 20;

/// What is to be loaded, and what is known of what will be done with it. Without any wish: all of the file, to be used as soon as
/// possible, touched and written everywhere.
#[derive(Debug, Clone)]
pub struct Loader {
    path: PathBuf,
    range: (Bound<u64>, Bound<u64>),
    wishes: Wishes,
}

impl Loader {
    /// Will load this file. Nothing happens before [`load`](Loader::load).
    pub fn open(path: impl AsRef<Path>) -> Loader {
        Loader {
            path: path.as_ref().into(),
            range: (Bound::Unbounded, Bound::Unbounded),
            wishes: Wishes::default(),
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
        let part = self.part(&source)?;
        let facts = facts(&source, &part);
        let choices = self.plan(&source, &facts)?;
        Ok((facts, choices))
    }

    /// Loads it: the image can be used when this returns, and all of it is there unless it comes on demand.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::NotAFile`] for a file that cannot be opened, [`Error::NoSuchRange`], [`Error::NoMemory`],
    /// [`Error::Unreadable`], [`Error::Changed`] if somebody changes it meanwhile, [`Error::Refused`] for a method that was asked
    /// for by name.
    pub fn load(&self) -> Result<Image> {
        let source = Arc::new(Source::open(&self.path)?);
        let part = self.part(&source)?;
        let facts = facts(&source, &part);
        let choices = self.plan(&source, &facts)?;
        let resident_bytes = facts.resident_bytes.unwrap_or(0);
        let job = Job {
            data: source.data(Span::new(part.begin, part.end)).into(),
            part,
            counters: Arc::new(Counters::new()),
            is_partly_cached: resident_bytes > 0,
            source,
        };
        let begun = Moment::now();
        let mut refused = Vec::new();
        for choice in choices {
            match self.make(&job, &choice) {
                Ok(memory) => {
                    if self.wishes.cache == Cache::Drop && resident_bytes == 0 {
                        drop_cache(&job, part.begin, part.end - part.begin);
                    }
                    let may_map = self.wishes.may_map || job.source.is_unchangeable;
                    return Ok(Image::new(job, memory, choice, refused, begun.since(), may_map));
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(why)) => refused.push((choice.method, why)),
            }
        }
        // The last of a plan refuses nothing; a method that was asked for does.
        let (method, why) = refused.pop().unwrap_or((Method::Read, "no method is left".into()));
        Err(Error::Refused { path: self.path.clone(), method, why })
    }

    fn make(&self, job: &Job, choice: &Choice) -> Result<Memory, Stop> {
        let threads = choice.threads;
        if job.part.windows() == 0 {
            // No method has anything to do.
            job.counters.complete();
            return Ok(Memory::Whole(Region::empty()));
        }
        match choice.method {
            method if method.maps_the_file() => {
                if !self.wishes.may_map && !job.source.is_unchangeable {
                    return Err(Stop::Refused(
                        "somebody may change the file: promise that nobody does (may_map)".into(),
                    ));
                }
                mapped::map(job, method).map(Memory::Whole)
            }
            Method::Clone => mapped::map_clone(job).map(|(region, _file)| Memory::Whole(region)),
            Method::ReadHuge => read(job, Way::Cached, true, threads).map(Memory::Whole),
            Method::ReadUncached => read(job, Way::Uncached, true, threads).map(Memory::Whole),
            Method::Takeover => {
                let region = takeover(job, threads)?;
                keep_rate(job);
                Ok(Memory::Whole(region))
            }
            Method::TakeoverOnDemand => {
                let start = Start { fork: self.wishes.fork, ..Start::default() };
                OnDemand::start(job, start).map(Memory::OnDemand)
            }
            _ => read(job, Way::Cached, false, threads).map(Memory::Whole),
        }
    }

    fn part(&self, source: &Source) -> Result<Part> {
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
                file_bytes: bytes,
                begin_bytes: begin,
                end_bytes: end,
            });
        }
        Ok(Part::new(begin..end, source.block_bytes()))
    }

    fn plan(&self, source: &Source, facts: &Facts) -> Result<Vec<Choice>> {
        plan(facts, &self.wishes).map(|plan| plan.choices).map_err(|short| {
            let NoMemory { needed_bytes, available_bytes } = short;
            let limit = match self.wishes.memory_bytes_max {
                Some(allowed) if allowed <= available_bytes => "what was allowed",
                _ => facts.available_limit,
            };
            Error::NoMemory { path: source.path().into(), needed_bytes, available_bytes, limit }
        })
    }
}

/// Remembers what the device can do, if this load has shown it.
fn keep_rate(job: &Job) {
    let direct_bytes = job.counters.direct_bytes.load(std::sync::atomic::Ordering::Relaxed);
    if let Some(seconds) = job.counters.complete_s().filter(|_| direct_bytes >= RATED_BYTES_MIN) {
        let device = job.source.identity().device;
        evermap_observe::keep_read_rate(device, direct_bytes as f64 / seconds);
    }
}

fn facts(source: &Source, part: &Part) -> Facts {
    let file_system = source.file_system();
    let bytes = part.end - part.begin;
    let residency = match bytes {
        0 => None,
        bytes => evermap_observe::residency_of(source.cached(), part.begin, bytes),
    };
    let memory = evermap_observe::memory();
    Facts {
        bytes,
        file_system: file_system.name().into_owned(),
        is_in_memory: file_system.is_memory(),
        is_compressed: file_system.is_compressed_read_only() && source.direct().is_none(),
        shares_blocks: file_system == FileSystem::XFS || file_system == FileSystem::BTRFS,
        is_unchangeable: source.is_unchangeable,
        resident_bytes: residency.map(|residency| residency.resident_bytes),
        dirty_bytes: residency.map_or(0, |residency| residency.dirty_bytes),
        direct_block_bytes: source.direct().map(|_| source.block_bytes()),
        available_bytes: memory.map(|memory| memory.available_bytes),
        available_limit: match memory.map(|memory| memory.limited_by) {
            Some(LimitedBy::Group) => "the control group",
            _ => "the system",
        },
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        device_bytes_per_s: evermap_observe::read_rate(source.identity().device),
    }
}
