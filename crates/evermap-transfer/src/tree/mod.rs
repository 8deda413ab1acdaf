//! Copies directory trees with several threads. A new tree appears complete or not at all.
//!
//! A new target is created under a temporary name and renamed when it is complete. Into an existing
//! directory the tree is merged: each file is replaced atomically, and new directories appear
//! complete. Hard links within the tree are preserved, symbolic links are copied (or followed, with
//! [`TreeOptions::follow_links`]), special files are recreated if this user may.
//!
//! The threads divide the tree by directories, and large directories by shares of their files
//! (`queue`). A directory is complete when no work in it is pending, and then gets its attributes
//! (`directory`, `worker`). Small files have a fast path (`regular`). `docs/transfer.md`, section
//! 6, lists the guarantees.

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
mod temporary_names;
mod unpublished;
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
use crate::file::attributes::AttributeCopier;
use crate::file::{self, Preserve, SharedLinks};
use crate::policy::{self, Durability, Reflink, Request};
use crate::report::EngineUse;
use directory::{Descriptors, Placement, Roots};
use links::Links;
use queue::{Queue, lock};
use root::Root;
use shared::{Bounded, Shared};
use unpublished::Unpublished;
use worker::Worker;

pub use crate::tally::{Counts, Outcome};
pub use meter::TreeMeter;
pub(crate) use remove::tree as remove;
pub use report::TreeReport;

/// Options of a tree copy.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Attributes to preserve.
    pub preserve: Preserve,
    /// Durability guaranteed when the copy returns.
    pub durability: Durability,
    /// Policy for sharing extents with the source.
    pub reflink: Reflink,
    /// Read each file back from the disk and compare it with its source before publishing.
    pub verify: bool,
    /// Use this engine for all files, whatever their size.
    pub engine: Option<EngineKind>,
    /// Parameters of the engines.
    pub tuning: Tuning,
    /// Number of threads. `None`: one per processor, up to 8. Reduced if file descriptors are
    /// short.
    pub threads: Option<NonZeroUsize>,
    /// Skip the contents of directories on other file systems than the root. The directories are
    /// created.
    pub one_file_system: bool,
    /// Follow symbolic links within the tree: copy what they refer to.
    pub follow_links: bool,
    /// Files of other copies to preserve hard links to.
    pub links: Option<Arc<SharedLinks>>,
    /// Publish a new target even if some entries could not be copied. Otherwise it is removed.
    pub keep_going: bool,
    /// Maximum number of listed errors, and of listed attributes not preserved. The rest is
    /// counted.
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

/// More threads contend: files created in one file system share a journal.
const THREADS_MAX: usize = 8;
/// More pairs of open descriptors save reopening only in very wide trees.
const PAIRS_MAX: usize = 256;
/// Descriptors that a thread uses at a time: two directories, two files, and two in transition.
const DESCRIPTORS_PER_THREAD: usize = 6;

/// Copies the directory `source` to `target`. A missing target is created; an existing directory is
/// merged into.
///
/// # Errors
///
/// [`Error::Incomplete`] with the errors if some entries could not be copied, unless
/// [`TreeOptions::keep_going`]. [`Error::Cancelled`] if the meter's flag was set. In both cases no
/// temporary files remain and a new target does not exist, unless only the flush of its directory
/// failed. [`Error::Usage`] and [`Error::SameFile`] before any change if the target is within the
/// source.
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
    let mut copier = AttributeCopier::new(options.preserve);
    let mut root = Root::open(source, target, &mut copier)?;
    let (threads, pairs) = limits(options);
    let shared = Shared {
        options,
        meter,
        copier,
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
    finish(&shared, &root)?;
    report(shared, &root, start, cpu, threads)
}

/// Runs all threads, including this one, until no work is left. Returns their processor time.
fn run(shared: &Shared<'_>, root: &Root, threads: usize) -> Duration {
    let timed = |work: &mut dyn FnMut()| {
        let before = thread_cpu();
        work();
        thread_cpu().saturating_sub(before)
    };
    if matches!(root.directory.placement, Placement::New(_)) {
        shared.unpublished.started(&root.directory);
    }
    let device = root.directory.target_identity.0;
    if let Err(errno) =
        shared.unpublished.publishes_on(device, std::os::fd::AsFd::as_fd(&root.pair.target))
    {
        shared.failed(&root.directory, Error::io("open", &shared.roots.target)(errno));
        shared.queue.stop();
    }
    // Queued like any directory's entries, so that the work counts as pending and no thread ends
    // before.
    shared.queue.push(0, shared::Task::Root(std::sync::Arc::clone(&root.directory)));
    std::thread::scope(|scope| {
        // Fewer threads do the same work where a limit refuses more.
        let start = |thread| {
            let work = move || timed(&mut || Worker::new(shared, thread).run());
            std::thread::Builder::new().spawn_scoped(scope, work).ok()
        };
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let own = timed(&mut || Worker::new(shared, 0).run());
        others.into_iter().fold(own, |sum, thread| {
            sum + thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Publishes the remaining entries, and removes those that must not be published.
fn finish(shared: &Shared<'_>, root: &Root) -> Result<()> {
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
            left: match root.directory.placement {
                Placement::Existing => format!("files already copied to {target} remain"),
                _ => "no partial file remains".into(),
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
        outcome: match (&root.directory.placement, is_named) {
            (Placement::Existing, _) => Outcome::Merged,
            (_, true) => Outcome::Published,
            (_, false) => Outcome::Removed,
        },
        counts: shared.meter.counts(),
        engines,
        not_kept: not_kept.listed,
        not_kept_total: not_kept.total,
        errors: errors.listed,
        errors_total: errors.total,
        wall: start.elapsed(),
        cpu,
        threads,
    };
    let is_all_or_nothing = !shared.options.keep_going || report.outcome == Outcome::Removed;
    match report.errors_total > 0 && is_all_or_nothing {
        true => Err(Error::Incomplete(Box::new(report.into_incomplete()))),
        false => Ok(report),
    }
}

/// Returns the engines used. Small files count as `read-write` unless shared.
fn engines_used(shared: &Shared<'_>) -> Vec<EngineUse> {
    let mut used = std::mem::take(&mut *lock(&shared.used));
    let large_bytes: u64 = used.iter().map(|used| used.bytes).sum();
    let bytes = shared.meter.counts().bytes.saturating_sub(large_bytes);
    if bytes > 0 {
        shared::add_used(&mut used, EngineUse { engine: EngineKind::ReadWrite, bytes, copies: 2 });
    }
    used
}

/// Returns the number of threads and of descriptor pairs, limited by the descriptors the process
/// may still open.
fn limits(options: &TreeOptions) -> (usize, usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let used = std::fs::read_dir("/proc/self/fd").map_or(limit / 2, Iterator::count);
    let free = limit.saturating_sub(used);
    let processors =
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
    let wanted = options.threads.map_or_else(processors, NonZeroUsize::get);
    // One half is for the threads, one half for directories. Only a part of each is used, because
    // the process needs descriptors for other purposes.
    let threads = wanted.min(free / 2 / DESCRIPTORS_PER_THREAD).max(1);
    let pairs = (free.saturating_sub(threads * DESCRIPTORS_PER_THREAD) / 4).clamp(1, PAIRS_MAX);
    (threads, pairs)
}

/// Returns the options for files that are not small. They are flushed with the tree, not
/// individually.
fn file_options(options: &TreeOptions) -> file::Options {
    let request =
        Request { durability: Durability::None, reflink: options.reflink, engine: options.engine };
    let (verify, tuning) = (options.verify, options.tuning.clone());
    file::Options { request, verify, tuning, ..file::Options::default() }
}

/// Returns true if small files should be shared too. Only some file systems can share extents.
fn may_share(root: &Root, options: &TreeOptions) -> bool {
    // Treat a failed query as an unknown file system.
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
