//! A visit to a page: warm if what is kept of it is good, else cold.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evermap::Store;
use evermap_dom::{NewBlock, Source};
use url::Url;

use crate::fetch::{FetchOptions, Fetcher, Still};
use crate::home::{Given, INTERFACE, Listing, is_home};
use crate::keep::{self, Found, Keep, RetryNote, SlowPage, StoreParts};
use crate::layout::Layout;
use crate::manifest::{Manifest, Missing, Open, Verdict, engine_version};
use crate::notes::in_lines;
use crate::page::{Part, PartKind};
use crate::paint::{Page, Painter, Parts, SharedBytes};
use crate::protocol::{OwnDocument, Request, Retry, Times};
use crate::prune::prune;
use crate::run_engine::{self, Made};
use crate::target::Target;
use crate::{Result, ViewError};

#[cfg(test)]
mod damage;

/// Rows of a page whose pixels are kept: some screens.
const STRIP_ROWS_MAX: u32 = 4096;

/// Pages that are kept take no more than this, with their fonts and images.
const PAGES_BYTES_MAX: u64 = 2 << 30;
/// Another process that keeps the same page is waited for this long, in steps.
const KEEPING_WAITS_MAX: Duration = Duration::from_secs(5);
const KEEPING_WAITS: Duration = Duration::from_millis(20);
/// So many times the time of laying a page out, and a disk counts as too slow for it: times vary.
const SLOWER: f64 = 1.25;

/// What of a kept page is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// The document's tables: the page is styled and laid out.
    Document,
    /// The page block too: the page is painted.
    Block,
    /// The strips too: the page is copied.
    #[default]
    All,
}

/// How pages are visited.
#[derive(Clone, Debug)]
pub struct VisitOptions {
    /// Never use the network.
    pub offline: bool,
    /// Take nothing that is kept; ask the servers about everything.
    pub reload: bool,
    /// Lay the page out even when what is kept is good. What is kept of its resources is used.
    pub cold: bool,
    /// What of a kept page is used.
    pub layers: Layers,
    /// Most bytes of a page.
    pub page_bytes_max: u64,
    /// How long the page itself may take.
    pub timeout: Duration,
    /// How long its resources may hold it up.
    pub resources_timeout: Duration,
    /// How long the engine may take in all.
    pub engine_timeout: Duration,
    /// Most bytes of the engine's memory.
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

/// A page, ready to be painted, and how it came about.
pub struct Visit {
    /// The page.
    pub page: Arc<Page>,
    /// Its address, after redirects.
    pub url: Url,
    /// Whether it was kept.
    pub warm: bool,
    /// What decided that; and what could not be asked, is missing or was refused. For people.
    pub reasons: Vec<String>,
    /// Resources that servers did not give: the page is shown without them.
    pub missing: usize,
    /// Opening what is kept, and looking whether it is good.
    pub open_ms: f64,
    /// What the engine did, on a cold visit.
    pub times: Option<Times>,
    /// What the cold visit took that made the page, with its painting if [`Visit::painted`] was called.
    pub cold_ms: f64,
    warm_ms: f64,
    start: Instant,
    target: Target,
    layout: Layout,
    /// What is to be kept of a cold visit.
    keeping: Option<Box<Made>>,
    /// What this page lacks is to be asked for again, in the background.
    retry: Option<Box<Retry>>,
}

/// Fonts and images of a page that was just made: what the engine did not send is kept already.
struct MadeParts {
    sent: Vec<Part>,
    kept: Option<StoreParts>,
}

impl Parts for MadeParts {
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let sent = self.sent.iter().find(|part| part.kind == kind && part.hash == *hash);
        match (sent, &self.kept) {
            (Some(part), _) => Ok(part.data.clone().into_raw_parts().0),
            (None, Some(kept)) => kept.load(kind, hash),
            (None, None) => Err(ViewError::MissingPart {
                object: keep::part_name(kind, hash),
                why: "the engine did not send it".to_string(),
            }),
        }
    }
}

/// Who watches a visit.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Is told the stage that was reached.
    pub stage: &'a (dyn Fn(&str) + Sync),
    /// Whether nobody waits for the page any longer: the engine is stopped then.
    pub given_up: &'a (dyn Fn() -> bool + Sync),
}

/// Shows `target` in a window of `layout`. `store` is where pages are kept; without one every visit is cold. `stage` is told
/// how far it is.
///
/// A warm visit costs the opening of an object and a look at each thing that the page was made from; a cold one a process
/// that lays it out. What is kept is verified when it is used, so that painting a warm page can find damage
/// ([`ViewError::is_flaw`]); then a visit with [`cold`](VisitOptions::cold) makes anew what is damaged.
/// [`visit_whole`] does that before it returns.
///
/// # Errors
/// When there is no page: see [`ViewError`]. That nothing can be kept is no error here.
pub fn visit(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    stage: &(dyn Fn(&str) + Sync),
) -> Result<Visit> {
    visit_watched(target, layout, store, options, &Watch { stage, given_up: &|| false })
}

/// Like [`visit`], but verifies a warm page with all that it is painted from, and lays it out anew if something of it is
/// damaged or missing. Costs a look at all bytes that are kept of it.
///
/// # Errors
/// As [`visit`].
pub fn visit_whole(
    target: &Target,
    layout: Layout,
    store: Option<&Store>,
    options: &VisitOptions,
    stage: &(dyn Fn(&str) + Sync),
) -> Result<Visit> {
    let visited = visit(target, layout, store, options, stage)?;
    match visited.page.verify() {
        Err(flaw) if visited.warm => {
            let options = VisitOptions { cold: true, ..options.clone() };
            let mut anew = visit(target, layout, store, &options, stage)?;
            anew.made_anew(&flaw);
            Ok(anew)
        }
        Err(flaw) => Err(flaw),
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
    let ask = Ask { target, layout, store, options };
    let key = listing.as_ref().map(Listing::key);
    let given = |listing: &Listing| Given { key: listing.key(), html: listing.html(store) };
    ask.visit(key.as_deref(), &|| listing.as_ref().map(given), watch)
}

/// A page that is written in the font of the window's own text.
pub(crate) fn interface_page(store: &Store, watch: &Watch<'_>) -> Result<Visit> {
    let url = Url::parse(INTERFACE).map_err(|error| ViewError::InvalidPage(error.to_string()))?;
    let ask = Ask {
        target: &Target::of_url(url),
        layout: Layout { width: 64, height: 64, scale: 1.0 },
        store: Some(store),
        options: &VisitOptions { offline: true, ..VisitOptions::default() },
    };
    ask.visit(Some(INTERFACE), &|| Some(Given::interface()), watch)
}

/// What a visit is about.
#[derive(Clone, Copy)]
struct Ask<'a> {
    target: &'a Target,
    layout: Layout,
    store: Option<&'a Store>,
    options: &'a VisitOptions,
}

impl Ask<'_> {
    /// Warm if it can be. A page that is made here, and not fetched, has a `key`, and is `given` if it is not kept.
    fn visit(
        &self,
        key: Option<&str>,
        given: &dyn Fn() -> Option<Given>,
        watch: &Watch<'_>,
    ) -> Result<Visit> {
        let start = Instant::now();
        let mut reasons = Vec::new();
        let kept = match self.store {
            _ if self.options.reload => Err("a reload was asked for".to_string()),
            _ if self.options.cold => Err("a cold visit was asked for".to_string()),
            _ if self.options.layers == Layers::Document => {
                Err("only the document is used".to_string())
            }
            None => Err("there is no store".to_string()),
            Some(store) => self.warm(store, key),
        };
        match kept {
            Ok(mut visit) => {
                visit.open_ms = milliseconds(start);
                visit.start = start;
                return Ok(visit);
            }
            Err(why) => reasons.push(why),
        }
        let given = given();
        let key = given.as_ref().map(|given| given.key.clone());
        let mut made = self.cold(given.map(|given| given.html), watch)?;
        if let (Some(key), Some(page)) = (key, made.answer.resources.first_mut()) {
            page.url = key;
        }
        let kept = self.store.map(|store| StoreParts { store: store.clone() });
        let parts = MadeParts { sent: made.parts.clone(), kept };
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
            keeping: Some(Box::new(made)),
            retry: None,
        })
    }

    /// The kept page, if it is good; else why not.
    fn warm(&self, store: &Store, key: Option<&str>) -> std::result::Result<Visit, String> {
        if let Some(slow) = SlowPage::of(store, &self.target.key(), self.layout, now_ns()) {
            let [warm, cold] = [slow.warm_us, slow.cold_us].map(|us| us as f64 / 1e3);
            return Err(format!(
                "from this disk it took {warm:.0} ms to show what is kept, and {cold:.0} ms to lay it out"
            ));
        }
        let found = Found::open(store, &self.target.key(), self.layout)?;
        let manifest = found.manifest()?;
        if !self.options.offline && manifest.was_offline() {
            return Err("it was laid out without the network".to_string());
        }
        let (open, note) = self.judge(store, &manifest)?;
        let first = manifest.resources.first().map(|page| page.url.as_str());
        if key.is_some() && key != first {
            return Err("what it lists has changed".to_string());
        }
        let with_strips = self.options.layers == Layers::All;
        let page = found.page(with_strips).map_err(|error| error.to_string())?;
        let url = Url::parse(&manifest.final_url).map_err(|error| error.to_string())?;
        let mut reasons = vec!["nothing that it was made from has changed".to_string()];
        reasons.extend(in_lines(&open.missing));
        reasons.extend(in_lines(&open.unknown));
        let retry = self.retry(store, &manifest, &open, note);
        if retry.is_some() {
            reasons.push("what is missing is asked for again in the background".to_string());
        }
        Ok(Visit {
            page: Arc::new(page),
            url,
            warm: true,
            reasons,
            missing: open.missing.len(),
            open_ms: 0.0,
            times: None,
            cold_ms: manifest.cold_ms,
            warm_ms: 0.0,
            start: Instant::now(),
            target: self.target.clone(),
            layout: self.layout,
            keeping: None,
            retry: retry.map(Box::new),
        })
    }

    /// Is a kept page good? Asks no server that did not answer a moment ago, and none at all if everything is fresh.
    /// Gives the note of the last attempt to get what is missing as well, if that was looked at.
    fn judge(
        &self,
        store: &Store,
        manifest: &Manifest,
    ) -> std::result::Result<(Open, Option<RetryNote>), String> {
        let check = |offline: bool| {
            let options = FetchOptions { offline, ..fetch_options(self.options) };
            let fetcher = Fetcher::new(options, Some(store.clone()));
            match manifest.check(self.layout, &fetcher, Missing::Trust, None) {
                Verdict::Good(open) => Ok(open),
                Verdict::Stale(why) => Err(why),
            }
        };
        let open = check(true)?;
        if open.missing.is_empty() && open.unknown.is_empty() {
            return Ok((open, None));
        }
        let note = RetryNote::of(store, &self.target.key(), self.layout);
        let silent = note.is_some_and(|note| note.is_recent(now_ns()));
        match self.options.offline || silent || open.unknown.is_empty() {
            true => Ok((open, note)),
            false => Ok((check(false)?, note)),
        }
    }

    /// What is to be asked for again in the background, unless it is too early for that.
    fn retry(
        &self,
        store: &Store,
        manifest: &Manifest,
        open: &Open,
        note: Option<RetryNote>,
    ) -> Option<Retry> {
        let now_ns = now_ns();
        if self.options.offline || note.is_some_and(|note| note.is_recent(now_ns)) {
            return None;
        }
        let is_due = manifest.absent().any(|missing| missing.is_due(now_ns));
        if !is_due && open.unknown.is_empty() {
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

    /// Returns the kept document of the address, unless its source is known to have changed.
    fn own_document(&self, store: &Store) -> Option<OwnDocument> {
        let found = Found::open(store, &self.target.key(), self.layout).ok()?;
        let manifest = found.manifest().ok()?;
        let page = manifest.resources.into_iter().next()?;
        let document = keep::document(store, &self.target.url)?;
        if page.stamp.hash().is_some_and(|hash| *hash != document.source().hash) {
            return None;
        }
        let fetcher = Fetcher::new(fetch_options(self.options), Some(store.clone()));
        match page.stamp.check(&fetcher, None) {
            Still::Changed(_) => None,
            // A server that does not answer leaves what is kept of it good, as on a warm visit.
            Still::Same | Still::Unknown(_) => Some(OwnDocument {
                name: keep::document_name(&self.target.url),
                final_url: manifest.final_url,
                stamp: page.stamp,
            }),
        }
    }

    fn cold(&self, html: Option<String>, watch: &Watch<'_>) -> Result<Made> {
        let Ask { target, layout, store, options } = *self;
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
    /// To be called as soon as the pixels of the first screen are there: with them the visit ends.
    pub fn painted(&mut self) {
        let took_ms = milliseconds(self.start);
        match self.warm {
            true => self.warm_ms = took_ms,
            false => self.cold_ms = took_ms,
        }
    }

    /// Says why this cold visit was made: what was kept of the page has this flaw.
    pub fn made_anew(&mut self, flaw: &ViewError) {
        let said = flaw.to_string();
        let cause = said.split("; ").next().unwrap_or_default().to_string();
        match self.reasons.first_mut() {
            Some(first) => *first = cause,
            None => self.reasons.push(cause),
        }
    }

    /// Notes it if a kept page has taken longer than laying it out, for it came from a slow disk: until tomorrow it is laid
    /// out then, and the reason says so. To be called when the page is on the screen. Gives whether that is so.
    ///
    /// # Errors
    /// When it can't be noted.
    pub fn note_slowness(&self, store: &Store) -> Result<bool> {
        let slower = self.warm && self.warm_ms > self.cold_ms * SLOWER;
        // Without having waited for a disk, it was busy with something else.
        if !slower || disk_bytes_read() == Some(0) {
            return Ok(false);
        }
        let [warm_us, cold_us] = [self.warm_ms, self.cold_ms].map(|ms| (ms * 1e3) as u64);
        let slow = SlowPage { warm_us, cold_us, noted_ns: now_ns() };
        slow.note(store, &self.target.key(), self.layout)?;
        Ok(true)
    }

    /// Begins to ask for what a kept page lacks, in a process of its own that outlives this one; if something has come,
    /// the page is laid out and kept anew, for the next visit. To be called when the page is on the screen. Gives whether
    /// that was begun: it is not if nothing is missing, or it was tried a moment ago.
    ///
    /// Costs the start of a process.
    ///
    /// # Errors
    /// When the engine's program can't be started.
    pub fn retry_missing(&self) -> Result<bool> {
        match &self.retry {
            Some(retry) => run_engine::start_retry(retry).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether there is something to keep.
    pub fn is_to_be_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// Keeps a page that was just made, with the pixels of its first screens, which are painted for that. To be called
    /// when the page is on the screen. Gives why nothing was kept, if nothing was.
    ///
    /// Costs the painting of the rows whose pixels are kept, and a commit.
    ///
    /// # Errors
    /// When the store can't be written (a full disk, say) or the page not painted. Nothing of it is kept then, and nothing
    /// else is lost.
    pub fn keep(&mut self, store: &Store, painter: &mut Painter) -> Result<Option<String>> {
        let Some(keeping) = self.keeping.take() else { return Ok(None) };
        let made = *keeping;
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
        let keep = Keep {
            url: &target.key(),
            layout,
            manifest: &manifest,
            block: made.block.as_bytes(),
            strips: strips.as_bytes(),
            parts: &made.parts,
            document: document.as_ref().map(|(block, source)| NewBlock { block, source }),
        };
        let start = Instant::now();
        while let Err(error) = keep.commit(store) {
            // Another process keeps the same page now.
            let busy = matches!(&error, ViewError::Store(evermap::Error::Busy { .. }));
            if !busy || start.elapsed() > KEEPING_WAITS_MAX {
                return Err(error);
            }
            std::thread::sleep(KEEPING_WAITS);
        }
        // The page is kept. A note that stays costs it its warmth until tomorrow, nothing else.
        if let Err(error) = SlowPage::correct(store, &target.key(), layout, self.cold_ms * 1e3) {
            tracing::debug!(%error, "a note of a slow disk stays");
        }
        // A process that keeps many pages tidies up once: the bound is not a sharp one.
        static TIDIED: std::sync::Once = std::sync::Once::new();
        let mut tidied = Ok(0);
        TIDIED.call_once(|| tidied = prune(store, PAGES_BYTES_MAX));
        tidied.map(|_| None)
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

/// Bytes that this process had fetched from disks, if the kernel says it.
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
