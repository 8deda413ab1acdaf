//! Work that remains when a page is on the screen: stores a new page, or prepares for the next
//! visit of a stored one.

use std::time::{Duration, Instant};

use evermap::Store;
use evermap_dom::{NewBlock, Source};

use super::{PageSource, Visit, VisitRequest, milliseconds};
use crate::fetch::now_ns;
use crate::manifest::{Manifest, engine_version};
use crate::page_store::{PageBatch, SlowPage};
use crate::paint::Painter;
use crate::prune::prune;
use crate::run_engine::{self, EngineOutput};
use crate::{Result, ViewError};

/// Maximum number of rows whose pixels are stored; several screens.
const STRIP_ROWS_MAX: u32 = 4096;
/// Maximum size of all stored pages with their fonts and images.
const PAGES_BYTES_MAX: u64 = 2 << 30;
/// Timeout and polling interval while another process stores the same page.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Factor by which a warm visit must exceed the cold one before the disk counts as too slow. Times
/// vary by less.
const SLOW_DISK_FACTOR: f64 = 1.25;

/// A visit whose page is on the screen, or is not painted at all.
#[must_use]
pub struct Shown {
    visit: Visit,
    /// Duration of a warm visit until its first screen was painted, if it was measured.
    warm_ms: Option<f64>,
}

/// Result of [`Shown::finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The page came from the store and stays there.
    Unchanged,
    /// The page came from the store, but laying it out is faster than reading it from this disk.
    /// Visits lay it out for the next 24 hours, and give this reason.
    SlowDisk,
    /// The page was stored.
    Stored,
    /// The page must not be stored, with the reason.
    NotStored(String),
}

impl Shown {
    pub(super) fn now(mut visit: Visit) -> Shown {
        let took_ms = milliseconds(visit.start);
        if visit.warm {
            return Shown { visit, warm_ms: Some(took_ms) };
        }
        visit.cold_ms = took_ms;
        Shown { visit, warm_ms: None }
    }

    pub(super) fn untimed(visit: Visit) -> Shown {
        Shown { visit, warm_ms: None }
    }

    /// Discards the duration of a warm visit, because it painted more than the first screen and
    /// can't be compared with the cold visit.
    pub fn without_time(self) -> Shown {
        Shown { warm_ms: None, ..self }
    }

    /// Returns the visit.
    pub fn visit(&self) -> &Visit {
        &self.visit
    }

    /// Does the work that was delayed until the page is on the screen. Without a store, does
    /// nothing.
    ///
    /// - Stores a page that was just made, with the pixels of its first screens. Paints these rows
    ///   with `painter`. Costs a commit.
    /// - Notes that reading a stored page took longer than laying it out, because the disk is slow.
    /// - Starts a process that requests the missing resources of a stored page, unless the last
    ///   attempt was recent. The process outlives this one. If a resource has arrived, it lays the
    ///   page out and stores it for the next visit.
    ///
    /// # Errors
    /// Fails if the page can't be painted, or the store can't be written (on a full disk, for
    /// example). Nothing is stored then, and older data is unchanged.
    pub fn finish(self, painter: &mut Painter) -> Result<Finished> {
        let Some(store) = self.visit.request.store.clone() else {
            return Ok(Finished::NotStored("there is no store".to_string()));
        };
        let Visit { page, request, source, cold_ms, .. } = self.visit;
        let retry = match source {
            PageSource::Store { retry } => retry,
            PageSource::Engine(made) => {
                if let Some(why) = made.answer.keepable {
                    return Ok(Finished::NotStored(why));
                }
                let strips = painter.strips(&page, STRIP_ROWS_MAX)?.finish();
                request.save(&store, *made, strips.as_bytes(), cold_ms)?;
                return Ok(Finished::Stored);
            }
        };
        // If a step fails, only the next visits are slower, or lack the missing resources.
        if let Some(Err(error)) = retry.as_deref().map(run_engine::start_retry) {
            tracing::debug!(%error, "can't request missing resources again");
        }
        let noted = self.warm_ms.map(|warm_ms| request.note_slow_disk(&store, warm_ms, cold_ms));
        match noted {
            Some(Ok(true)) => return Ok(Finished::SlowDisk),
            Some(Err(error)) => tracing::debug!(%error, "can't note a slow disk"),
            Some(Ok(false)) | None => (),
        }
        Ok(Finished::Unchanged)
    }
}

impl VisitRequest {
    /// Writes a note if reading the stored page took longer than laying it out. Returns true if the
    /// note was written.
    fn note_slow_disk(&self, store: &Store, warm_ms: f64, cold_ms: f64) -> Result<bool> {
        // If no byte came from a disk, something else caused the delay.
        if warm_ms <= cold_ms * SLOW_DISK_FACTOR || disk_bytes_read() == Some(0) {
            return Ok(false);
        }
        let [warm_us, cold_us] = [warm_ms, cold_ms].map(|ms| (ms * 1e3) as u64);
        let slow = SlowPage { warm_us, cold_us, noted_ns: now_ns() };
        slow.note(store, &self.target.key(), self.layout)?;
        Ok(true)
    }

    /// Stores a page that was just made.
    fn save(&self, store: &Store, made: EngineOutput, strips: &[u8], cold_ms: f64) -> Result<()> {
        let (url, layout, answer) = (&self.target.url, self.layout, made.answer);
        let manifest = Manifest {
            engine: engine_version(),
            url: url.to_string(),
            final_url: answer.final_url,
            layout,
            fonts: answer.fonts,
            resources: answer.resources,
            made_ns: now_ns(),
            cold_ms,
            source_bytes: answer.source_bytes,
        };
        let source = Source {
            path: match url.to_file_path() {
                Ok(path) => path.to_string_lossy().into_owned(),
                Err(()) => url.to_string(),
            },
            size_bytes: answer.source_bytes,
            modified_ns: answer.source_modified_ns,
            hash: answer.source_hash,
        };
        let document = made.document.as_ref();
        let batch = PageBatch {
            url: &self.target.key(),
            layout,
            manifest: &manifest,
            block: made.block.as_bytes(),
            strips,
            parts: &made.parts,
            document: document.map(|block| NewBlock { block: block.as_bytes(), source: &source }),
        };
        let start = Instant::now();
        while let Err(error) = batch.commit(store) {
            // Another process is storing the same page.
            let busy = matches!(&error, ViewError::Store(evermap::Error::Busy { .. }));
            if !busy || start.elapsed() > STORE_TIMEOUT {
                return Err(error);
            }
            std::thread::sleep(STORE_POLL_INTERVAL);
        }
        // The page is stored. If the note can't be removed, visits stay cold until it expires.
        if let Err(error) = SlowPage::correct(store, &self.target.key(), layout, cold_ms * 1e3) {
            tracing::debug!(%error, "can't remove the note of a slow disk");
        }
        // Prunes once per process, so the bound may be exceeded for a while.
        static PRUNED: std::sync::Once = std::sync::Once::new();
        let mut pruned = Ok(0);
        PRUNED.call_once(|| pruned = prune(store, PAGES_BYTES_MAX));
        pruned.map(drop)
    }
}

/// Returns the bytes that this process has read from disks, if the kernel reports it.
fn disk_bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}
