//! Compares an object's pages with their checksums, before opening returns or in the background.
//!
//! A background verification reads the file while its writer may apply commits. It must report a
//! page only if the page is still bad between two applies, when the file is exactly one commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::at_fork;
use crate::commit::{BadPage, Overlay, is_still_bad, verify_pages};
use crate::error::{Error, Result};
use crate::format::{LINE_BYTES, PAGE_BYTES, RegionRecord};
use crate::storage::File;

/// A writer's changes to the file that it verifies.
#[derive(Clone, Debug)]
pub(crate) struct FileChanges {
    /// Number of starts and ends of applies: odd while the file's pages change.
    pub(crate) applies: Arc<AtomicU64>,
    /// Minimum length of the file so far. Later pages were cut off and may have been replaced.
    pub(crate) length_min: Arc<AtomicU64>,
}

/// Compares all pages; fails with the first one that differs.
pub(crate) fn verify_now(
    file: &dyn File,
    regions: &[RegionRecord],
    overlay: &Overlay,
) -> Result<()> {
    let mut bad = None;
    verify_pages(
        file,
        regions,
        overlay,
        |page| {
            bad = Some(page);
            false
        },
        |_| true,
    )?;
    bad.map_or(Ok(()), |page| Err(damage(file, page)))
}

pub(super) fn damage(file: &dyn File, page: BadPage) -> Error {
    let (what, found, expected) = match page {
        BadPage::Data { number, found, expected } => (
            "a page",
            format!("checksum {found:#010x} of the page at byte {}", number * PAGE_BYTES),
            format!("{expected:#010x}"),
        ),
        BadPage::Table { number, line } => (
            "a line of the checksum table",
            format!(
                "a line at byte {} with a wrong checksum",
                number * PAGE_BYTES + line as u64 * LINE_BYTES as u64
            ),
            "a line that matches its checksum".to_string(),
        ),
    };
    Error::Damaged { path: file.path().to_path_buf(), what, found, expected }
}

/// A verification that runs while the object is in use; dropping it stops it.
#[derive(Debug)]
pub(crate) struct BackgroundVerification {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: Arc<dyn File>,
    stop: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Clean,
    Bad(BadPage),
    /// The file could not be read.
    Unread(String),
}

impl BackgroundVerification {
    /// Starts the comparison. A writer passes its `changes`: pages that change during the
    /// comparison are compared again, and pages that are cut off do not count.
    pub(crate) fn start(
        file: Arc<dyn File>,
        regions: Vec<RegionRecord>,
        overlay: Overlay,
        changes: Option<FileChanges>,
    ) -> Result<BackgroundVerification> {
        let shared =
            Arc::new(Shared { file, stop: AtomicBool::new(false), outcome: Mutex::new(None) });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("evermap-verify".to_string())
            .spawn(move || own.run(&regions, &overlay, changes.as_ref()))
            .map_err(|e| Error::from_io(e, "start a thread to verify", shared.file.path()))?;
        Ok(BackgroundVerification { shared, thread: Some(thread) })
    }

    /// Returns true once all pages were compared without a difference, false while the comparison
    /// runs.
    pub(crate) fn outcome(&self) -> Result<bool> {
        let outcome = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match outcome {
            None => Ok(false),
            Some(Outcome::Clean) => Ok(true),
            Some(Outcome::Bad(page)) => Err(damage(&*self.shared.file, page)),
            Some(Outcome::Unread(why)) => Err(Error::Damaged {
                path: self.shared.file.path().to_path_buf(),
                what: "the file",
                found: why,
                expected: "pages that can be read".to_string(),
            }),
        }
    }
}

impl Shared {
    fn run(&self, regions: &[RegionRecord], overlay: &Overlay, changes: Option<&FileChanges>) {
        let mut bad = None;
        let read = verify_pages(
            &*self.file,
            regions,
            overlay,
            |page| {
                if self.still_bad(page, regions, changes) {
                    bad = Some(page);
                }
                bad.is_none()
            },
            |_| !self.stop.load(Ordering::Relaxed),
        );
        let outcome = match (read, bad) {
            (Err(error), _) => Outcome::Unread(error.to_string()),
            (Ok(()), Some(page)) => Outcome::Bad(page),
            (Ok(()), None) if self.stop.load(Ordering::Relaxed) => return,
            (Ok(()), None) => Outcome::Clean,
        };
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// Checks a bad page again at a time when its writer applies nothing: between applies the file
    /// is exactly one commit.
    fn still_bad(
        &self,
        page: BadPage,
        regions: &[RegionRecord],
        changes: Option<&FileChanges>,
    ) -> bool {
        let Some(FileChanges { applies, length_min }) = changes else { return true };
        let none = Overlay::default();
        while !self.stop.load(Ordering::Relaxed) {
            let before = applies.load(Ordering::SeqCst);
            if before.is_multiple_of(2) {
                let bad = is_still_bad(&*self.file, regions, &none, page).unwrap_or(true);
                if applies.load(Ordering::SeqCst) == before {
                    // Loaded after the page was read: the writer stores the length before it cuts.
                    let end = length_min.load(Ordering::SeqCst);
                    return bad && page.number() * PAGE_BYTES < end;
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        false
    }
}

impl Drop for BackgroundVerification {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if at_fork::is_child() {
            // A forked child does not have the thread, so it must not wait for it.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
