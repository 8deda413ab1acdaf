//! Visits a page: warm if the stored page is valid, else cold.
//!
//! A visit has three steps, which its types enforce. [`visit`] returns a [`Visit`] with the page.
//! When its pixels are on the screen, the visit becomes a [`Shown`]. [`Shown::finish`] does
//! everything that must not delay the pixels, such as storing the page.

use std::sync::Arc;
use std::time::Instant;

use evermap::Store;
use url::Url;

use crate::fetch::{FetchOptions, Fetcher, StampCheck, now_ns};
use crate::home::{Generator, INTERFACE};
use crate::layout::Layout;
use crate::manifest::{Manifest, MissingPolicy, Unresolved, Verdict};
use crate::notes::in_lines;
use crate::page::{Part, PartKind};
use crate::page_store::{self, RetryNote, SlowPage, StoreParts, StoredPage};
use crate::paint::{Page, Parts, SharedBytes};
use crate::protocol::{OwnDocument, Request, Retry, Times};
use crate::run_engine::{self, EngineOutput, Watch};
use crate::target::Target;
use crate::{Result, ViewError};

#[cfg(test)]
mod damage;
mod options;
mod shown;

pub use options::{Layers, VisitOptions};
pub use shown::{Finished, Shown};

/// A page that is ready to be painted, and a report of how it was obtained.
///
/// [`paint`](Visit::paint), [`shown`](Visit::shown) and [`unpainted`](Visit::unpainted) lead to the
/// next step. A visit that is dropped stores nothing.
#[must_use]
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
    /// Duration of the cold visit that made the page. Includes painting once the page is shown.
    pub cold_ms: f64,
    start: Instant,
    request: VisitRequest,
    source: PageSource,
}

/// Parameters of a visit.
struct VisitRequest {
    target: Target,
    layout: Layout,
    store: Option<Store>,
    options: VisitOptions,
}

/// Source of a page, with the work that remains when the page is on the screen.
enum PageSource {
    /// The store. Missing resources may have to be requested again in the background.
    Store { retry: Option<Box<Retry>> },
    /// The engine. Its output has yet to be stored.
    Engine(Box<EngineOutput>),
}

/// A stored page that is valid.
struct OpenedPage {
    page: Page,
    url: Url,
    reasons: Vec<String>,
    missing: usize,
    cold_ms: f64,
    retry: Option<Retry>,
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

/// Visits `target` for a window of `layout`. Pages are stored in `store`; without a store every
/// visit is cold. `stage` receives the name of each stage.
///
/// A warm visit costs opening an object and checking each resource that the page was made from. A
/// cold visit costs a process that lays the page out. Stored data is verified at its first use:
/// [`Visit::paint`] and [`Visit::verify`] replace damaged data.
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
    visit_watched(target, layout, store, options, &Watch { stage, ..Watch::IGNORED })
}

/// Like [`visit`], but can be cancelled.
pub(crate) fn visit_watched(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    watch: &Watch<'_>,
) -> Result<Visit> {
    let (target, store, options) = (target.clone(), store.cloned(), options.clone());
    VisitRequest { target, layout, store, options }.visit(watch)
}

/// Visits a page that is written in the font of the window's own text.
pub(crate) fn interface_page(store: &Store) -> Result<Visit> {
    let url = Url::parse(INTERFACE).map_err(|error| ViewError::InvalidPage(error.to_string()))?;
    let layout = Layout { width: 64, height: 64, scale: 1.0 };
    let options = VisitOptions { offline: true, ..VisitOptions::default() };
    visit_watched(&Target::of_url(url), layout, Some(store), &options, &Watch::IGNORED)
}

impl Visit {
    /// Paints the page with `paint`. If stored data of the page is damaged or was removed, lays the
    /// page out again and paints that page. Also returns the result of `paint`.
    ///
    /// # Errors
    /// Returns other errors of `paint`, and errors of laying the page out.
    pub fn paint<T>(
        mut self,
        mut paint: impl FnMut(&Arc<Page>) -> Result<T>,
    ) -> Result<(Shown, T)> {
        loop {
            match paint(&self.page) {
                Ok(painted) => return Ok((self.shown(), painted)),
                Err(error) if error.is_damage() && self.warm => self = self.repair(&error)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Verifies all stored data that a warm page is painted from. Lays the page out again if any of
    /// it is damaged or missing. Costs reading all stored bytes of the page.
    ///
    /// # Errors
    /// Fails if the page can't be laid out.
    pub fn verify(self) -> Result<Visit> {
        match self.page.verify() {
            Ok(()) => Ok(self),
            Err(damage) if self.warm => self.repair(&damage),
            Err(damage) => Err(damage),
        }
    }

    /// Lays the page out again if the store lacks one of its fonts or images, before painting needs
    /// it. Costs a catalog lookup for each.
    pub(crate) fn with_all_parts(self, watch: &Watch<'_>) -> Result<Visit> {
        let store = self.request.store.as_ref().filter(|_| self.warm);
        match store.is_none_or(|store| page_store::has_parts(store, self.page.block())) {
            true => Ok(self),
            false => self.lay_out_again("the store lacks a font or an image of it", watch),
        }
    }

    /// Ends the time of the visit, because the first screen was painted just now.
    pub fn shown(self) -> Shown {
        Shown::now(self)
    }

    /// Returns the visit of a page that is not painted, for programs that only store pages.
    pub fn unpainted(self) -> Shown {
        Shown::untimed(self)
    }

    fn repair(self, damage: &ViewError) -> Result<Visit> {
        let message = damage.to_string();
        let cause = message.split("; ").next().unwrap_or_default();
        self.lay_out_again(cause, &Watch::IGNORED)
    }

    /// Replaces a warm visit by a cold one, and gives `reason` for it.
    fn lay_out_again(self, reason: &str, watch: &Watch<'_>) -> Result<Visit> {
        let mut request = self.request;
        request.options.cold = true;
        let mut visit = request.visit(watch)?;
        if let Some(first) = visit.reasons.first_mut() {
            *first = reason.to_string();
        }
        Ok(visit)
    }
}

impl VisitRequest {
    /// Visits the page, warm if possible.
    fn visit(self, watch: &Watch<'_>) -> Result<Visit> {
        let store = self.store.as_ref();
        let generator = Generator::of(&self.target.url, store)?;
        let key = generator.as_ref().map(Generator::key);
        let start = Instant::now();
        match self.warm(key.as_deref()) {
            Ok(opened) => Ok(Visit {
                page: Arc::new(opened.page),
                url: opened.url,
                warm: true,
                reasons: opened.reasons,
                missing: opened.missing,
                open_ms: milliseconds(start),
                times: None,
                cold_ms: opened.cold_ms,
                start,
                request: self,
                source: PageSource::Store { retry: opened.retry.map(Box::new) },
            }),
            Err(why) => {
                let html = generator.map(|generator| generator.html(store));
                let mut made = self.cold(html, watch)?;
                if let (Some(key), Some(page)) = (key, made.answer.resources.first_mut()) {
                    page.url = key;
                }
                self.made(made, why, start)
            }
        }
    }

    /// Returns the visit of a page that the engine has made. `why` is the reason for a cold visit.
    fn made(self, made: EngineOutput, why: String, start: Instant) -> Result<Visit> {
        let stored = self.store.clone().map(|store| StoreParts { store });
        let parts = NewPageParts { sent: made.parts.clone(), stored };
        let page = Page::new(Arc::new(made.block.clone()), None, Box::new(parts))?;
        let answer = &made.answer;
        let mut reasons = vec![why];
        reasons.extend(answer.notes.iter().cloned());
        Ok(Visit {
            page: Arc::new(page),
            url: Url::parse(&answer.final_url).unwrap_or_else(|_| self.target.url.clone()),
            warm: false,
            reasons,
            missing: answer.resources.iter().filter(|r| r.absent().is_some()).count(),
            open_ms: 0.0,
            times: Some(answer.times),
            cold_ms: milliseconds(start),
            start,
            request: self,
            source: PageSource::Engine(Box::new(made)),
        })
    }

    /// Opens the stored page if it is valid, else returns the reason why it is not. The content of
    /// a generated page has a `key`.
    fn warm(&self, key: Option<&str>) -> std::result::Result<OpenedPage, String> {
        let store = match &self.store {
            _ if self.options.reload => return Err("a reload was requested".to_string()),
            _ if self.options.cold => return Err("a cold visit was requested".to_string()),
            _ if self.options.layers == Layers::Document => {
                return Err("only the document is used".to_string());
            }
            None => return Err("there is no store".to_string()),
            Some(store) => store,
        };
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
        let (missing, cold_ms) = (unresolved.missing.len(), manifest.cold_ms);
        Ok(OpenedPage { page, url, reasons, missing, cold_ms, retry })
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
            let options = FetchOptions { offline, ..self.options.fetch_options() };
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
        let fetcher = Fetcher::new(self.options.fetch_options(), Some(store.clone()));
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
        let VisitRequest { target, layout, store, options } = self;
        let own_document = store
            .as_ref()
            .filter(|_| options.layers == Layers::Document && !options.reload)
            .and_then(|store| self.own_document(store));
        let request = Request {
            url: target.url.to_string(),
            layout: *layout,
            html,
            document: target.document.clone(),
            own_document,
            store: store.as_ref().map(|store| store.path().to_path_buf()),
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

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
