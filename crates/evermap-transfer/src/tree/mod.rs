//! Directories: a tree with all that is in it, by several threads, all at once or not at all.
//!
//! A target that is not there yet is made under a temporary name and named when it is complete. Into one
//! that is there the tree is merged: each file is replaced as a whole, new directories appear with all they hold.
//! Hard links among what is copied are kept, symbolic links are copied and never followed, special files are made anew where
//! this user may.
//!
//! Threads share out the tree by directories, and large directories by shares of their files (`queue`); a directory is
//! complete when nothing in it is due any more, and gets its attributes then (`directory`, `worker`); small
//! files have a path of their own (`regular`). `docs/transfer.md`, section 6, has the promises.

mod complete;
mod directory;
mod enter;
mod links;
mod listing;
mod meter;
mod others;
mod publish;
mod queue;
mod regular;
mod remove;
mod report;
mod root;
mod shared;
mod temporary;
mod worker;

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evermap_observe::FileSystem;
use rustix::time::{ClockId, clock_gettime};

use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::file::attributes::Keeper;
use crate::file::{self, Preserve, SharedLinks};
use crate::policy::{self, Durability, Reflink, Wish};
use crate::report::EngineUse;
use directory::{Descriptors, Place, Roots};
use links::Links;
use publish::Unpublished;
use queue::{Queue, lock};
use root::Root;
use shared::{Bounded, Shared};
use worker::Worker;

pub use meter::{Counts, TreeMeter};
pub(crate) use remove::tree as remove;
pub use report::{Outcome, TreeReport};

/// How a tree is copied.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// What is kept beside the bytes.
    pub preserve: Preserve,
    /// What survives a power cut.
    pub durability: Durability,
    /// Whether files may share extents with the source.
    pub reflink: Reflink,
    /// Each file is read back from where it was stored and compared with its source, before anything is published.
    pub verify: bool,
    /// All files go by this engine, whatever their size.
    pub engine: Option<EngineKind>,
    /// What engines are told.
    pub tuning: Tuning,
    /// Threads that copy; `None`: as many as there are processors, up to 8. Fewer where descriptors are short.
    pub threads: Option<NonZeroUsize>,
    /// Directories on other file systems than the uppermost one are made, and what is in them is left out.
    pub one_file_system: bool,
    /// Symbolic links in the tree are followed: what they lead to is copied in their place.
    pub follow_links: bool,
    /// Hard links to what other copies made.
    pub links: Option<Arc<SharedLinks>>,
    /// A new target is published with what could be copied. Otherwise it is removed when anything could not be.
    pub keep_going: bool,
    /// Errors, and things not kept, that the report lists; the others are counted.
    pub listed_max: usize,
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions {
            preserve: Preserve::default(),
            durability: Durability::None,
            reflink: Reflink::default(),
            verify: false,
            engine: None,
            tuning: Tuning::default(),
            threads: None,
            one_file_system: false,
            follow_links: false,
            links: None,
            keep_going: false,
            listed_max: 100,
        }
    }
}

/// More threads than this only wait for each other: what is created in one file system shares a journal.
const THREADS_MAX: usize = 8;
/// Pairs of descriptors beyond this only save opening directories of very wide trees again.
const PAIRS_MAX: usize = 256;
/// Descriptors that a thread has open at a time: two directories, two files, and two on the way.
const DESCRIPTORS_A_THREAD: usize = 6;

/// Copies the directory `source` to `target`: a new directory, or one that is there, into which the tree is merged.
///
/// # Errors
///
/// [`Error::Incomplete`] when anything could not be copied, unless [`TreeOptions::keep_going`]: then the report lists it.
/// [`Error::Cancelled`] when the meter was told to stop. Either way nothing is left under a temporary name, and a new target
/// is not there. [`Error::Usage`] and [`Error::SameFile`] before anything is made, when the target lies in the source.
///
/// # Example
///
/// ```
/// use evermap_transfer::tree::{self, Outcome, TreeMeter, TreeOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let (source, target) = (directory.path().join("source"), directory.path().join("target"));
/// std::fs::create_dir_all(source.join("inner"))?;
/// std::fs::write(source.join("inner/file"), b"some bytes")?;
///
/// let report = tree::copy(&source, &target, &TreeOptions::default(), &TreeMeter::default())?;
///
/// assert_eq!(report.outcome, Outcome::Published);
/// assert_eq!((report.counts.directories, report.counts.files, report.counts.bytes), (2, 1, 10));
/// assert_eq!(std::fs::read(target.join("inner/file"))?, b"some bytes");
/// # Ok(())
/// # }
/// ```
pub fn copy(
    source: &Path,
    target: &Path,
    options: &TreeOptions,
    meter: &TreeMeter,
) -> Result<TreeReport> {
    let start = Instant::now();
    let mut keeper = Keeper::new(options.preserve);
    let mut root = Root::open(source, target, &mut keeper)?;
    let (threads, pairs) = shares(options);
    let shared = Shared {
        options,
        meter,
        keeper,
        file: file_options(options),
        may_share: AtomicBool::new(may_share(&root, options)),
        used: Mutex::default(),
        roots: Roots { source: source.into(), target: target.into() },
        target_parent: root.target_parent.take(),
        source_identity: root.directory.source_identity,
        target_identity: root.directory.target_identity,
        queue: Queue::new(threads),
        descriptors: Descriptors::new(pairs, options.follow_links),
        links: Links::default(),
        unpublished: Unpublished::default(),
        errors: Mutex::new(Bounded::new(options.listed_max)),
        not_kept: Mutex::new(Bounded::new(options.listed_max)),
    };
    shared.refused(&mut root.refusals, || target.to_path_buf());
    let cpu = run(&shared, &root, threads);
    end(&shared, &root)?;
    report(shared, &root, start, cpu, threads)
}

/// Runs all threads, this one among them, until nothing is left to do; gives back what they took.
fn run(shared: &Shared<'_>, root: &Root, threads: usize) -> Duration {
    let timed = |work: &mut dyn FnMut()| {
        let before = thread_cpu();
        work();
        thread_cpu().saturating_sub(before)
    };
    if matches!(root.directory.place, Place::Fresh(_)) {
        shared.unpublished.begun(&root.directory);
    }
    let device = root.directory.target_identity.0;
    if let Err(errno) =
        shared.unpublished.publishes_on(device, std::os::fd::AsFd::as_fd(&root.pair.target))
    {
        shared.failed(&root.directory, Error::io("open", &shared.roots.target)(errno));
        shared.queue.stop();
    }
    // Listed by a thread like any other directory's entries; counted as due, so that no thread leaves before that.
    shared.queue.push(0, shared::Task::Uppermost(std::sync::Arc::clone(&root.directory)));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|thread| scope.spawn(move || timed(&mut || Worker::new(shared, thread).run())))
            .collect();
        let own = timed(&mut || Worker::new(shared, 0).run());
        others.into_iter().fold(own, |sum, thread| {
            sum + thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Publishes what is held back, or removes what is not to be published.
fn end(shared: &Shared<'_>, root: &Root) -> Result<()> {
    if !shared.queue.is_stopped() {
        let flushed = loop {
            match shared.publish_held() {
                Ok(true) => {}
                Ok(false) => break shared.flush_names(),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = flushed {
            shared.failed(&root.directory, error);
        }
    }
    shared.discard_all();
    if shared.meter.is_cancelled() && shared.queue.is_stopped() {
        let target = shared.roots.target.display();
        return Err(Error::Cancelled {
            left: match root.directory.place {
                Place::Existing => format!("what was copied to {target} before stays there"),
                _ => "nothing is left behind".into(),
            },
        });
    }
    Ok(())
}

fn report(
    shared: Shared<'_>,
    root: &Root,
    start: Instant,
    cpu: Duration,
    threads: usize,
) -> Result<TreeReport> {
    let is_named = root.directory.is_named.load(std::sync::atomic::Ordering::Acquire);
    let errors = std::mem::replace(&mut *lock(&shared.errors), Bounded::new(0));
    let not_kept = std::mem::replace(&mut *lock(&shared.not_kept), Bounded::new(0));
    let engines = engines_used(&shared);
    if let Some(links) = &shared.options.links {
        for (inode, name) in shared.links.copied() {
            let path = name.directory.path(&shared.roots.target, Some(&name.name));
            links.copied(inode, &path);
        }
    }
    let report = TreeReport {
        source: shared.roots.source.clone(),
        target: shared.roots.target.clone(),
        outcome: match (&root.directory.place, is_named) {
            (Place::Existing, _) => Outcome::Merged,
            (_, true) => Outcome::Published,
            (_, false) => Outcome::Removed,
        },
        counts: shared.meter.counts(),
        engines,
        not_kept: not_kept.kept,
        not_kept_total: not_kept.total,
        errors: errors.kept,
        errors_total: errors.total,
        wall: start.elapsed(),
        cpu,
        threads,
    };
    let is_all_or_nothing = !shared.options.keep_going || report.outcome == Outcome::Removed;
    match report.errors_total > 0 && is_all_or_nothing {
        true => Err(Error::Incomplete(Box::new(report))),
        false => Ok(report),
    }
}

/// What moved the bytes: of small files, reading and writing, or sharing; of large ones, whatever was picked.
fn engines_used(shared: &Shared<'_>) -> Vec<EngineUse> {
    let mut used = std::mem::take(&mut *lock(&shared.used));
    let large_bytes: u64 = used.iter().map(|used| used.bytes).sum();
    let bytes = shared.meter.counts().bytes.saturating_sub(large_bytes);
    if bytes > 0 {
        shared::add_used(&mut used, EngineUse { engine: EngineKind::ReadWrite, bytes, copies: 2 });
    }
    used
}

/// Threads, and pairs of descriptors that may stay open, by what the process may still open.
fn shares(options: &TreeOptions) -> (usize, usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let used = std::fs::read_dir("/proc/self/fd").map_or(limit / 2, Iterator::count);
    let free = limit.saturating_sub(used);
    let processors =
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
    let wanted = options.threads.map_or_else(processors, NonZeroUsize::get);
    // A half for what threads have in their hands, a half for directories; and of either only a part, as the process
    // has other things to open.
    let threads = wanted.min(free / 2 / DESCRIPTORS_A_THREAD).max(1);
    let pairs = (free.saturating_sub(threads * DESCRIPTORS_A_THREAD) / 4).clamp(1, PAIRS_MAX);
    (threads, pairs)
}

/// How files go that are not small. They are flushed with the tree, not each by itself.
fn file_options(options: &TreeOptions) -> file::Options {
    let wish = Wish {
        durability: Durability::None,
        reflink: options.reflink,
        engine: options.engine,
        ..Wish::default()
    };
    let (verify, tuning) = (options.verify, options.tuning.clone());
    file::Options { wish, verify, tuning, ..file::Options::default() }
}

/// Whether small files are tried to be shared, too: some file systems share extents, and the others need not be asked.
fn may_share(root: &Root, options: &TreeOptions) -> bool {
    // What cannot be asked is one that nothing is known of.
    let file_system = |directory: &OwnedFd| {
        FileSystem::of(directory.as_fd()).unwrap_or(FileSystem::from_magic(0))
    };
    let directory = &root.directory;
    let same_device = directory.source_identity.0 == directory.target_identity.0;
    options.reflink == Reflink::Auto
        && policy::may_share(
            same_device,
            file_system(&root.pair.source),
            file_system(&root.pair.target),
        )
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
