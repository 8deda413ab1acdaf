//! Requests missing resources of stored pages again, in the background.
//!
//! A page that lacks a resource is stored and shown without it, because waiting for a server that
//! did not answer last time would slow down every visit. After such a visit, the engine's program
//! is started in another process, which calls [`run`]. It requests the resources that are missing
//! or could not be checked. If any of them has arrived or changed, it lays the page out again and
//! stores it for the next visit. Attempts become less frequent with each failure. An object next to
//! the page counts them.

use std::time::{Duration, Instant};

use evermap::Store;

use crate::Result;
use crate::fetch::{Fetcher, now_ns};
use crate::manifest::{MissingPolicy, Verdict};
use crate::page_store::{RetryNote, StoredPage};
use crate::paint::Painter;
use crate::protocol::Retry;
use crate::target::Target;
use crate::visit::{VisitOptions, visit};

/// Time limit of checking the page's resources, for all requests together.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of one attempt, including layout.
pub(crate) const RETRY_TIME_MAX: Duration = Duration::from_secs(120);

/// Makes one attempt. Returns true if the page was laid out again, and false if it is still valid,
/// or was not found or is damaged.
///
/// # Errors
/// Fails if the store can't be opened or written, or the page can't be laid out. The stored page is
/// unchanged then.
pub(crate) fn run(retry: &Retry) -> Result<bool> {
    let store = Store::open(&retry.store)?;
    let url = url::Url::parse(&retry.url)
        .map_err(|error| crate::ViewError::InvalidPage(error.to_string()))?;
    let target = Target { document: retry.document.clone(), ..Target::of_url(url) };
    let options = VisitOptions {
        memory_bytes_max: retry.memory_bytes_max,
        engine_timeout: Duration::from_millis(retry.engine_timeout_ms),
        ..VisitOptions::default()
    };
    // Written first: the attempt takes a while, and another visit must not start a second one.
    let attempts =
        RetryNote::of(&store, &target.key(), retry.layout).map_or(0, |note| note.attempts);
    let attempt = RetryNote { tried_ns: now_ns(), attempts: attempts.saturating_add(1) };
    attempt.note(&store, &target.key(), retry.layout)?;
    let Ok(found) = StoredPage::open(&store, &target.key(), retry.layout) else { return Ok(false) };
    let Ok(manifest) = found.manifest() else { return Ok(false) };
    drop(found);
    let fetcher = Fetcher::new(options.fetch_options(), Some(store.clone()));
    let deadline = Instant::now() + REVALIDATION_TIMEOUT;
    let verdict =
        manifest.check(retry.layout, &fetcher, MissingPolicy::RequestAgain, Some(deadline));
    // New responses are cached first, so the layout does not fetch them again.
    fetcher.flush_cache();
    let is_complete = match verdict {
        Verdict::Good(unresolved) => unresolved.unknown.is_empty() && unresolved.missing.is_empty(),
        Verdict::Stale(_) => {
            let options = VisitOptions { cold: true, ..options };
            let visit = visit(&target, retry.layout, Some(&store), &options, &|_| ())?;
            let missing = visit.missing;
            // Stores the page. Needs a painter for the pixels of its first screens.
            visit.unpainted().finish(&mut Painter::new())?;
            if missing == 0 {
                RetryNote::forget(&store, &target.key(), retry.layout)?;
            }
            return Ok(true);
        }
    };
    if is_complete {
        RetryNote::forget(&store, &target.key(), retry.layout)?;
    }
    Ok(false)
}
