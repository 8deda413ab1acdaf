//! Asking again for what was missing when a page was laid out, in the background.
//!
//! A page that lacks a resource is kept and shown as it is: waiting for a server that did not answer the last time
//! would make every visit slow. After such a visit a process of the engine's program asks for what is missing or could not be asked about. If
//! something has come or has changed, it lays the page out anew and keeps it; the next visit shows that. Attempts that
//! bring nothing are made ever more rarely, which an object beside the page notes.

use std::time::{Duration, Instant};

use evermap::Store;

use crate::Result;
use crate::fetch::Fetcher;
use crate::keep::{Found, RetryNote};
use crate::manifest::{Missing, Verdict};
use crate::paint::Painter;
use crate::protocol::Retry;
use crate::target::Target;
use crate::visit::{VisitOptions, fetch_options, now_ns, visit};

/// How long all that is asked may take.
const ASKING: Duration = Duration::from_secs(30);

/// The longest that one attempt may take, laying the page out included.
pub(crate) const RETRY_TIME_MAX: Duration = Duration::from_secs(120);

/// Makes one attempt. Gives whether the page was made anew.
///
/// # Errors
/// When the store can't be read or written, or the page not laid out. The page that is kept stays then.
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
    // Noted first: what follows takes a while, and the next visit is not to begin it a second time.
    let attempts =
        RetryNote::of(&store, &target.key(), retry.layout).map_or(0, |note| note.attempts);
    let note = RetryNote { tried_ns: now_ns(), attempts: attempts.saturating_add(1) };
    note.note(&store, &target.key(), retry.layout)?;
    let Ok(found) = Found::open(&store, &target.key(), retry.layout) else { return Ok(false) };
    let Ok(manifest) = found.manifest() else { return Ok(false) };
    drop(found);
    let fetcher = Fetcher::new(fetch_options(&options), Some(store.clone()));
    let deadline = Instant::now() + ASKING;
    let verdict = manifest.check(retry.layout, &fetcher, Missing::Ask, Some(deadline));
    // What came is kept first: laying the page out then does not wait for it.
    fetcher.keep();
    let whole = match verdict {
        Verdict::Good(open) => open.unknown.is_empty() && open.missing.is_empty(),
        Verdict::Stale(_) => {
            let options = VisitOptions { cold: true, ..options };
            let mut visit = visit(&target, retry.layout, Some(&store), &options, &|_| ())?;
            visit.keep(&store, &mut Painter::new())?;
            if visit.missing == 0 {
                RetryNote::forget(&store, &target.key(), retry.layout)?;
            }
            return Ok(true);
        }
    };
    if whole {
        RetryNote::forget(&store, &target.key(), retry.layout)?;
    }
    Ok(false)
}
