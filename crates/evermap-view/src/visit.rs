//! Visits a page: warm if the stored page is valid, else cold.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evermap::Store;
use evermap_dom::{NewBlock, Source};
use url::Url;

use crate::fetch::{FetchOptions, Fetcher, StampCheck};
use crate::home::{GeneratedPage, INTERFACE, Listing, is_home};
use crate::layout::Layout;
use crate::manifest::{Manifest, MissingPolicy, Unresolved, Verdict, engine_version};
use crate::notes::in_lines;
use crate::page::{Part, PartKind};
use crate::page_store::{self, PageBatch, RetryNote, SlowPage, StoreParts, StoredPage};
use crate::paint::{Page, Painter, Parts, SharedBytes};
use crate::protocol::{OwnDocument, Request, Retry, Times};
use crate::prune::prune;
use crate::run_engine::{self, EngineOutput};
use crate::target::Target;
use crate::{Result, ViewError};

#[cfg(test)]
mod damage;

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

/// Layers of a stored page to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// Only the document's tables. The page is styled and laid out.
    Document,
    /// Also the page block. The page is painted.
    Block,
    /// Also the strips. The first screens are copied.
    #[default]
    All,
}

/// Options of a visit.
#[derive(Clone, Debug)]
pub struct VisitOptions {
    /// Never use the network.
    pub offline: bool,
    /// Ignore stored pages and revalidate every cached response.
    pub reload: bool,
    /// Lay the page out even if the stored page is valid. Cached resources are used.
    pub cold: bool,
    /// Layers of a stored page to use.
    pub layers: Layers,
    /// Maximum size of a page, in bytes.
    pub page_bytes_max: u64,
    /// Time limit for the page itself.
    pub timeout: Duration,
    /// Time that resources may delay the page.
    pub resources_timeout: Duration,
    /// Time limit for the engine.
    pub engine_timeout: Duration,
    /// Memory limit of the engine.
    pub memory_bytes_max: u64,
}

impl Default for VisitOptions {
    fn default() -> VisitOptions {
        VisitOptions {
            offline: false,
            reload: false,
            cold: false,
            layers: Layers::All,
            page_bytes_max: 32 << 20,
            timeout: Duration::from_secs(30),
            resources_timeout: Duration::from_secs(5),
            engine_timeout: Duration::from_secs(60),
            memory_bytes_max: 4 << 30,
        }
    }
}

/// A page that is ready to be painted, and a report of how it was obtained.
pub struct Visit {
    /// The page.
    pub page: Arc<Page>,
    /// Address after redirects.
    pub url: Url,
    /// True if the page came from the store.
    pub warm: bool,
    /// Messages for people: the reason for a warm or cold visit first, then resources that could
    /// not be checked, are missing or were denied.
    pub reasons: Vec<String>,
    /// Number of resources that servers did not deliver. The page is shown without them.
    pub missing: usize,
    /// Time to open and check the stored page.
    pub open_ms: f64,
    /// Durations of the engine's steps on a cold visit.
    pub times: Option<Times>,
    /// Duration of the cold visit that made the page. Includes painting if [`Visit::painted`] was
    /// called.
    pub cold_ms: f64,
    warm_ms: f64,
    start: Instant,
    target: Target,
    layout: Layout,
    /// Output of a cold visit that has yet to be stored.
    unsaved: Option<Box<EngineOutput>>,
    /// Missing resources to request again in the background.
    retry: Option<Box<Retry>>,
}

/// Fonts and images of a page that was just made. The engine does not send those that are stored
/// already.
struct NewPageParts {
    sent: Vec<Part>,
    stored: Option<StoreParts>,
}

impl Parts for NewPageParts {
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let sent = self.sent.iter().find(|part| part.kind == kind && part.hash == *hash);
        match (sent, &self.stored) {
            (Some(part), _) => Ok(part.data.clone().into_raw_parts().0),
            (None, Some(stored)) => stored.load(kind, hash),
            (None, None) => Err(ViewError::MissingPart {
                object: page_store::part_name(kind, hash),
                why: "the engine did not send it".to_string(),
            }),
        }
    }
}

/// Callbacks of a visit's caller.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Receives the name of each stage that is reached.
    pub stage: &'a (dyn Fn(&str) + Sync),
    /// Returns true once the page is no longer wanted. The engine is stopped then.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// Visits `target` for a window of `layout`. Pages are stored in `store`; without a store every
/// visit is cold. `stage` receives the name of each stage.
///
/// A warm visit costs opening an object and checking each resource that the page was made from. A
/// cold visit costs a process that lays the page out. Stored data is verified at its first use, so
/// painting a warm page can fail with [`ViewError::is_damage`]. Another visit with
/// [`cold`](VisitOptions::cold) then replaces the damaged data. [`visit_verified`] does this before
/// it returns.
///
/// # Errors
/// Fails if there is no page, see [`ViewError`]. A store that can't be written is not an error
/// here.
pub fn visit(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    stage: &(dyn Fn(&str) + Sync),
) -> Result<Visit> {
    visit_watched(target, layout, store, options, &Watch { stage, cancelled: &|| false })
}

/// Like [`visit`], but verifies all stored data that a warm page is painted from. Lays the page out
/// again if any of it is damaged or missing. Costs reading all stored bytes of the page.
///
/// # Errors
/// Same errors as [`visit`].
pub fn visit_verified(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    stage: &(dyn Fn(&str) + Sync),
) -> Result<Visit> {
    let visited = visit(target, layout, store, options, stage)?;
    match visited.page.verify() {
        Err(damage) if visited.warm => {
            let options = VisitOptions { cold: true, ..options.clone() };
            let mut again = visit(target, layout, store, &options, stage)?;
            again.set_repair_reason(&damage);
            Ok(again)
        }
        Err(damage) => Err(damage),
        Ok(()) => Ok(visited),
    }
}

pub(crate) fn visit_watched(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    watch: &Watch<'_>,
) -> Result<Visit> {
    let listing = match (is_home(&target.url), store) {
        (true, Some(store)) => Some(Listing::now(store)?),
        (true, None) => Some(Listing::default()),
        _ => None,
    };
    let request = VisitRequest { target, layout, store, options };
    let key = listing.as_ref().map(Listing::key);
    let generate =
        |listing: &Listing| GeneratedPage { key: listing.key(), html: listing.html(store) };
    request.visit(key.as_deref(), &|| listing.as_ref().map(generate), watch)
}

/// Visits a page that is written in the font of the window's own text.
pub(crate) fn interface_page(store: &Store, watch: &Watch<'_>) -> Result<Visit> {
    let url = Url::parse(INTERFACE).map_err(|error| ViewError::InvalidPage(error.to_string()))?;
    let request = VisitRequest {
        target: &Target::of_url(url),
        layout: Layout { width: 64, height: 64, scale: 1.0 },
        store: Some(store),
        options: &VisitOptions { offline: true, ..VisitOptions::default() },
    };
    request.visit(Some(INTERFACE), &|| Some(GeneratedPage::interface()), watch)
}

/// Parameters of a visit.
#[derive(Clone, Copy)]
struct VisitRequest<'a> {
    target: &'a Target,
    layout: Layout,
    store: Option<&'a Store>,
    options: &'a VisitOptions,
}

impl VisitRequest<'_> {
    /// Visits the page, warm if possible. A generated page has a `key`; `generate` returns its
    /// content if it is not stored.
    fn visit(
        &self,
        key: Option<&str>,
        generate: &dyn Fn() -> Option<GeneratedPage>,
        watch: &Watch<'_>,
    ) -> Result<Visit> {
        let start = Instant::now();
        let mut reasons = Vec::new();
        let stored = match self.store {
            _ if self.options.reload => Err("a reload was requested".to_string()),
            _ if self.options.cold => Err("a cold visit was requested".to_string()),
            _ if self.options.layers == Layers::Document => {
                Err("only the document is used".to_string())
            }
            None => Err("there is no store".to_string()),
            Some(store) => self.warm(store, key),
        };
        match stored {
            Ok(mut visit) => {
                visit.open_ms = milliseconds(start);
                visit.start = start;
                return Ok(visit);
            }
            Err(why) => reasons.push(why),
        }
        let generated = generate();
        let key = generated.as_ref().map(|page| page.key.clone());
        let mut made = self.cold(generated.map(|page| page.html), watch)?;
        if let (Some(key), Some(page)) = (key, made.answer.resources.first_mut()) {
            page.url = key;
        }
        let stored = self.store.map(|store| StoreParts { store: store.clone() });
        let parts = NewPageParts { sent: made.parts.clone(), stored };
        let page = Page::new(Arc::new(made.block.clone()), None, Box::new(parts))?;
        reasons.extend(made.answer.notes.iter().cloned());
        let url = Url::parse(&made.answer.final_url).unwrap_or_else(|_| self.target.url.clone());
        let times = Some(made.answer.times);
        let missing = made.answer.resources.iter().filter(|r| r.absent().is_some()).count();
        Ok(Visit {
            page: Arc::new(page),
            url,
            warm: false,
            reasons,
            missing,
            open_ms: 0.0,
            times,
            cold_ms: milliseconds(start),
            warm_ms: 0.0,
            start,
            target: self.target.clone(),
            layout: self.layout,
            unsaved: Some(Box::new(made)),
            retry: None,
        })
    }

    /// Returns the stored page if it is valid, else the reason why it is not.
    fn warm(&self, store: &Store, key: Option<&str>) -> std::result::Result<Visit, String> {
        if let Some(slow) = SlowPage::of(store, &self.target.key(), self.layout, now_ns()) {
            let [warm, cold] = [slow.warm_us, slow.cold_us].map(|us| us as f64 / 1e3);
            return Err(format!(
                "reading the stored page from this disk took {warm:.0} ms, laying it out {cold:.0} ms"
            ));
        }
        let found = StoredPage::open(store, &self.target.key(), self.layout)?;
        let manifest = found.manifest()?;
        if !self.options.offline && manifest.was_offline() {
            return Err("it was laid out offline".to_string());
        }
        let (unresolved, note) = self.validate(store, &manifest)?;
        let first = manifest.resources.first().map(|page| page.url.as_str());
        if key.is_some() && key != first {
            return Err("its list has changed".to_string());
        }
        let with_strips = self.options.layers == Layers::All;
        let page = found.page(with_strips).map_err(|error| error.to_string())?;
        let url = Url::parse(&manifest.final_url).map_err(|error| error.to_string())?;
        let mut reasons = vec!["none of its resources has changed".to_string()];
        reasons.extend(in_lines(&unresolved.missing));
        reasons.extend(in_lines(&unresolved.unknown));
        let retry = self.retry(store, &manifest, &unresolved, note);
        if retry.is_some() {
            reasons.push("missing resources are requested again in the background".to_string());
        }
        Ok(Visit {
            page: Arc::new(page),
            url,
            warm: true,
            reasons,
            missing: unresolved.missing.len(),
            open_ms: 0.0,
            times: None,
            cold_ms: manifest.cold_ms,
            warm_ms: 0.0,
            start: Instant::now(),
            target: self.target.clone(),
            layout: self.layout,
            unsaved: None,
            retry: retry.map(Box::new),
        })
    }

    /// Checks whether a stored page is valid. Asks no server if everything is fresh, and no server
    /// that recently failed to answer. Also returns the note of the last attempt to get missing
    /// resources, if it was read.
    fn validate(
        &self,
        store: &Store,
        manifest: &Manifest,
    ) -> std::result::Result<(Unresolved, Option<RetryNote>), String> {
        let check = |offline: bool| {
            let options = FetchOptions { offline, ..fetch_options(self.options) };
            let fetcher = Fetcher::new(options, Some(store.clone()));
            match manifest.check(self.layout, &fetcher, MissingPolicy::AssumeMissing, None) {
                Verdict::Good(unresolved) => Ok(unresolved),
                Verdict::Stale(why) => Err(why),
            }
        };
        let unresolved = check(true)?;
        if unresolved.missing.is_empty() && unresolved.unknown.is_empty() {
            return Ok((unresolved, None));
        }
        let note = RetryNote::of(store, &self.target.key(), self.layout);
        let silent = note.is_some_and(|note| note.is_recent(now_ns()));
        match self.options.offline || silent || unresolved.unknown.is_empty() {
            true => Ok((unresolved, note)),
            false => Ok((check(false)?, note)),
        }
    }

    /// Returns the request to get missing resources in the background, unless it is too early for
    /// another attempt.
    fn retry(
        &self,
        store: &Store,
        manifest: &Manifest,
        unresolved: &Unresolved,
        note: Option<RetryNote>,
    ) -> Option<Retry> {
        let now_ns = now_ns();
        if self.options.offline || note.is_some_and(|note| note.is_recent(now_ns)) {
            return None;
        }
        let is_due = manifest.absent().any(|missing| missing.is_due(now_ns));
        if !is_due && unresolved.unknown.is_empty() {
            return None;
        }
        Some(Retry {
            url: self.target.url.to_string(),
            document: self.target.document.clone(),
            layout: self.layout,
            store: store.path().to_path_buf(),
            engine_timeout_ms: self.options.engine_timeout.as_millis() as u64,
            memory_bytes_max: self.options.memory_bytes_max,
        })
    }

    /// Returns the stored document of the address, unless its source is known to have changed.
    fn own_document(&self, store: &Store) -> Option<OwnDocument> {
        let found = StoredPage::open(store, &self.target.key(), self.layout).ok()?;
        let manifest = found.manifest().ok()?;
        let page = manifest.resources.into_iter().next()?;
        let document = page_store::document(store, &self.target.url)?;
        if page.stamp.hash().is_some_and(|hash| *hash != document.source().hash) {
            return None;
        }
        let fetcher = Fetcher::new(fetch_options(self.options), Some(store.clone()));
        match page.stamp.check(&fetcher, None) {
            StampCheck::Changed(_) => None,
            // A server that does not answer leaves the stored document valid, as on a warm visit.
            StampCheck::Same | StampCheck::Unknown(_) => Some(OwnDocument {
                name: page_store::document_name(&self.target.url),
                final_url: manifest.final_url,
                stamp: page.stamp,
            }),
        }
    }

    fn cold(&self, html: Option<String>, watch: &Watch<'_>) -> Result<EngineOutput> {
        let VisitRequest { target, layout, store, options } = *self;
        let own_document = store
            .filter(|_| options.layers == Layers::Document && !options.reload)
            .and_then(|store| self.own_document(store));
        let request = Request {
            url: target.url.to_string(),
            layout,
            html,
            document: target.document.clone(),
            own_document,
            store: store.map(|store| store.path().to_path_buf()),
            offline: options.offline,
            reload: options.reload,
            page_bytes_max: options.page_bytes_max,
            timeout_ms: options.timeout.as_millis() as u64,
            resources_timeout_ms: options.resources_timeout.as_millis() as u64,
            memory_bytes_max: options.memory_bytes_max,
        };
        run_engine::run(&request, options.engine_timeout, watch)
    }
}

impl Visit {
    /// Records the duration of the visit. Call this as soon as the pixels of the first screen are
    /// painted.
    pub fn painted(&mut self) {
        let took_ms = milliseconds(self.start);
        match self.warm {
            true => self.warm_ms = took_ms,
            false => self.cold_ms = took_ms,
        }
    }

    /// Replaces the first reason by `damage`: the damage of the stored page that caused this cold
    /// visit.
    pub fn set_repair_reason(&mut self, damage: &ViewError) {
        let message = damage.to_string();
        let cause = message.split("; ").next().unwrap_or_default().to_string();
        match self.reasons.first_mut() {
            Some(first) => *first = cause,
            None => self.reasons.push(cause),
        }
    }

    /// Writes a note if reading the stored page took longer than laying it out, because the disk is
    /// slow. Visits lay the page out for the next 24 hours then, and give this reason. Call this
    /// when the page is on the screen. Returns true if the note was written.
    ///
    /// # Errors
    /// Fails if the store can't be written.
    pub fn note_slow_disk(&self, store: &Store) -> Result<bool> {
        let slower = self.warm && self.warm_ms > self.cold_ms * SLOW_DISK_FACTOR;
        // If no byte came from a disk, something else caused the delay.
        if !slower || disk_bytes_read() == Some(0) {
            return Ok(false);
        }
        let [warm_us, cold_us] = [self.warm_ms, self.cold_ms].map(|ms| (ms * 1e3) as u64);
        let slow = SlowPage { warm_us, cold_us, noted_ns: now_ns() };
        slow.note(store, &self.target.key(), self.layout)?;
        Ok(true)
    }

    /// Starts a separate process that requests missing resources and outlives this one. If one has
    /// arrived, the process lays the page out and stores it for the next visit. Call this when the
    /// page is on the screen. Returns false if nothing is missing or the last attempt was recent.
    ///
    /// Costs starting a process.
    ///
    /// # Errors
    /// Fails if the engine's program can't be started.
    pub fn retry_missing(&self) -> Result<bool> {
        match &self.retry {
            Some(retry) => run_engine::start_retry(retry).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns true if this visit has a new page to store.
    pub fn has_unsaved_page(&self) -> bool {
        self.unsaved.is_some()
    }

    /// Stores a page that was just made, with the pixels of its first screens, which are painted
    /// for this purpose. Call this when the page is on the screen. Returns the reason if the page
    /// must not be stored.
    ///
    /// Costs painting the rows whose pixels are stored, and a commit.
    ///
    /// # Errors
    /// Fails if the store can't be written (on a full disk, for example) or the page can't be
    /// painted. Nothing is stored then, and older data is unchanged.
    pub fn save(&mut self, store: &Store, painter: &mut Painter) -> Result<Option<String>> {
        let Some(unsaved) = self.unsaved.take() else { return Ok(None) };
        let made = *unsaved;
        let (target, layout) = (&self.target, self.layout);
        if let Some(why) = made.answer.keepable {
            return Ok(Some(why));
        }
        let manifest = Manifest {
            engine: engine_version(),
            url: target.url.to_string(),
            final_url: made.answer.final_url,
            layout,
            fonts: made.answer.fonts,
            resources: made.answer.resources,
            made_ns: now_ns(),
            cold_ms: self.cold_ms,
            source_bytes: made.answer.source_bytes,
        };
        let strips = painter.strips(&self.page, STRIP_ROWS_MAX)?.finish();
        let document = made.document.as_ref().map(|bytes| {
            let source = Source {
                path: match target.url.to_file_path() {
                    Ok(path) => path.to_string_lossy().into_owned(),
                    Err(()) => target.url.to_string(),
                },
                size_bytes: made.answer.source_bytes,
                modified_ns: made.answer.source_modified_ns,
                hash: made.answer.source_hash,
            };
            (bytes.as_bytes(), source)
        });
        let batch = PageBatch {
            url: &target.key(),
            layout,
            manifest: &manifest,
            block: made.block.as_bytes(),
            strips: strips.as_bytes(),
            parts: &made.parts,
            document: document.as_ref().map(|(block, source)| NewBlock { block, source }),
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
        if let Err(error) = SlowPage::correct(store, &target.key(), layout, self.cold_ms * 1e3) {
            tracing::debug!(%error, "can't remove the note of a slow disk");
        }
        // Prunes once per process, so the bound may be exceeded for a while.
        static PRUNED: std::sync::Once = std::sync::Once::new();
        let mut pruned = Ok(0);
        PRUNED.call_once(|| pruned = prune(store, PAGES_BYTES_MAX));
        pruned.map(|_| None)
    }
}

pub(crate) fn fetch_options(options: &VisitOptions) -> FetchOptions {
    FetchOptions {
        page_bytes_max: options.page_bytes_max,
        timeout: options.timeout,
        offline: options.offline,
        ..FetchOptions::default()
    }
}

/// Returns the bytes that this process has read from disks, if the kernel reports it.
fn disk_bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
