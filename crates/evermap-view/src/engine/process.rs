//! The engine's process: reads one request, writes one page and exits.
//!
//! The page is untrusted input. So memory is bounded, and the process is killed when its parent
//! exits. The stack is large enough for tens of thousands of nested elements. A deeper page
//! overflows it, which the viewer reports.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blitz_traits::net::Bytes;
use evermap::{Store, Verify};
use evermap_dom::html::HtmlOptions;
use evermap_dom::{Document, Dom, html, xml};
use rustix::process::{Resource as Limit, Rlimit, Signal};
use url::Url;

use super::css::CssBudget;
use super::lay_out::LaidOut;
use super::resources::{Fetch, Resources, Skipped};
use super::svg;
use crate::fetch::{
    FetchOptions, FetchSource, Fetched, Fetcher, Kind, MissingStamp, ObjectStamp, Origin, Purpose,
    Stamp,
};
use crate::fonts::FontSet;
use crate::manifest::Resource;
use crate::notes::{Note, in_lines};
use crate::page::PartKind;
use crate::page_store;
use crate::protocol::{
    self, Answer, Failure, Request, Retry, Times, read_content, read_header, write_frame,
};
use crate::{Result, ViewError, retry};

/// Size of the engine's stack. The engine recurses over the page. Only touched stack pages take
/// memory.
const STACK_BYTES: usize = 1 << 30;
/// Maximum number of characters of an address in a report.
const SHOWN_MAX: usize = 200;

/// Runs the engine: reads a request from standard input and writes a page to standard output.
pub fn main() -> ExitCode {
    // An error here means that the parent or its pipe is gone, so it can only be printed.
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "evermap-engine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut output = take_output()?;
    let (kind, length) = read_header(&mut io::stdin().lock())?;
    if !matches!(kind, protocol::REQUEST | protocol::RETRY) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this program is started by `evermap view`; run `evermap view PAGE`",
        ));
    }
    let content = read_content(&mut io::stdin().lock(), length)?;
    if kind == protocol::RETRY {
        return run_retry(&serde_json::from_slice(&content)?);
    }
    let request: Request = serde_json::from_slice(&content)?;
    bound_memory(request.memory_bytes_max)?;
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).name("engine".to_string());
    let worker = worker.spawn(move || {
        let url = request.url.clone();
        match serve(&request, &mut output) {
            Ok(()) => Ok(()),
            Err(Stopped::Output(error)) => Err(error),
            Err(Stopped::Page(error)) => {
                let failure = serde_json::to_vec(&Failure::of(&url, *error))?;
                write_frame(&mut output, protocol::FAILURE, &[&failure])
            }
        }
    })?;
    worker.join().map_err(|panic| io::Error::other(panic_message(&*panic)))?
}

/// Returns the message of a panic in the engine, in one line.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    let text: Vec<&str> = text.split_whitespace().collect();
    format!("panicked on this page ({})", text.join(" "))
}

fn bound_memory(bytes_max: u64) -> io::Result<()> {
    let most = Some(bytes_max);
    Ok(rustix::process::setrlimit(Limit::Data, Rlimit { current: most, maximum: most })?)
}

/// Requests a page's missing resources in the background. Outlives the process that started it, but
/// exits after `RETRY_TIME_MAX`.
fn run_retry(retry: &Retry) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(None)?;
    // Detaches from the terminal, which may be closed. An error means that this process already
    // leads a session.
    let _ = rustix::process::setsid();
    bound_memory(retry.memory_bytes_max)?;
    std::thread::Builder::new().spawn(|| {
        std::thread::sleep(retry::RETRY_TIME_MAX);
        std::process::exit(1);
    })?;
    retry::run(retry).map(drop).map_err(io::Error::other)
}

/// Duplicates standard output for the answer and redirects the original to standard error, where
/// output of libraries belongs.
fn take_output() -> io::Result<File> {
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(File::from(output))
}

enum Stopped {
    Page(Box<ViewError>),
    Output(io::Error),
}

impl From<ViewError> for Stopped {
    fn from(error: ViewError) -> Stopped {
        Stopped::Page(Box::new(error))
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Output(error)
    }
}

impl From<serde_json::Error> for Stopped {
    fn from(error: serde_json::Error) -> Stopped {
        Stopped::Output(error.into())
    }
}

/// A parsed page.
struct Source {
    url: Url,
    tables: Parsed,
    stamp: Stamp,
    no_store: bool,
    notes: Vec<String>,
    bytes: u64,
    hash: [u8; 32],
    fetch: Duration,
    parse: Duration,
}

enum Parsed {
    Now(evermap_dom::Block),
    Stored(evermap::Snapshot<Document>),
}

impl Parsed {
    fn dom(&self) -> Result<Dom<'_>> {
        match self {
            Parsed::Now(block) => Ok(block.dom()),
            Parsed::Stored(document) => {
                document.dom().map_err(|error| ViewError::InvalidPage(error.to_string()))
            }
        }
    }
}

fn serve(request: &Request, output: &mut File) -> std::result::Result<(), Stopped> {
    let url = Url::parse(&request.url).map_err(|error| ViewError::NotFound {
        name: request.url.clone(),
        why: error.to_string(),
    })?;
    let store = request.store.as_ref().and_then(|path| Store::open(path).ok());
    let fetcher = Arc::new(Fetcher::new(options(request), store.clone()));
    stage(output, "fetching")?;
    let source = match (&request.html, &request.document, &request.own_document) {
        (Some(html), ..) => generated_source(&url, html)?,
        (None, Some(name), _) => stored_source(&url, name, store.as_ref(), None)?,
        // If the stored document is missing or damaged, the page is parsed again.
        (None, None, Some(own)) => Url::parse(&own.final_url)
            .map_err(|error| ViewError::InvalidPage(error.to_string()))
            .and_then(|url| stored_source(&url, &own.name, store.as_ref(), Some(&own.stamp)))
            .or_else(|_| fetched_source(&url, &fetcher, request))?,
        (None, None, None) => fetched_source(&url, &fetcher, request)?,
    };
    stage(output, "laying out")?;
    let css = Arc::new(CssBudget::default());
    let requests = Requests::new(fetcher.clone(), Origin::of(&source.url), css.clone());
    let timeout = Duration::from_millis(request.resources_timeout_ms);
    let resources = Resources::new(requests.clone(), Instant::now() + timeout);
    let dom = source.tables.dom()?;
    let mut laid_out = LaidOut::new(&dom, &source.url, request.layout, &resources, &css);
    let start = Instant::now();
    let recorded = laid_out.record(&dom, &source.url).finish();
    let record = start.elapsed();
    let layout = laid_out.took;

    if recorded.parts.iter().all(|part| part.kind != PartKind::Font) && has_text(&dom) {
        requests.note("no font is installed; install one (Debian, Ubuntu: fonts-dejavu-core)");
    }
    laid_out.left_out().iter().for_each(|note| requests.note(note));
    css.left_out().into_iter().for_each(|note| requests.note(note));
    let answer = requests.answer(&source, record, layout);
    write_frame(output, protocol::ANSWER, &[&serde_json::to_vec(&answer)?])?;
    for part in &recorded.parts {
        // Fonts are large, and most pages use the same ones.
        if store.as_ref().is_some_and(|store| page_store::has_part(store, part.kind, &part.hash)) {
            continue;
        }
        let kind = match part.kind {
            PartKind::Font => protocol::FONT,
            PartKind::Image => protocol::IMAGE,
        };
        write_frame(output, kind, &[&part.hash, part.data.data()])?;
    }
    if let Parsed::Now(block) = &source.tables {
        write_frame(output, protocol::DOCUMENT, &[block.as_bytes()])?;
    }
    write_frame(output, protocol::BLOCK, &[recorded.block.as_bytes()])?;
    write_frame(output, protocol::END, &[])?;
    // The page is sent. Cached responses can be written now.
    let flushed = fetcher.flush_cache();
    drop(flushed);
    // Freeing the engine's trees would cost as much as building them. Exiting frees them at once.
    std::mem::forget(laid_out);
    Ok(())
}

fn options(request: &Request) -> FetchOptions {
    FetchOptions {
        page_bytes_max: request.page_bytes_max,
        timeout: Duration::from_millis(request.timeout_ms),
        offline: request.offline,
        reload: request.reload,
        ..FetchOptions::default()
    }
}

fn stage(output: &mut File, stage: &str) -> io::Result<()> {
    write_frame(output, protocol::STAGE, &[stage.as_bytes()])
}

fn generated_source(url: &Url, html: &str) -> Result<Source> {
    let start = Instant::now();
    let options = HtmlOptions { scripting: false, ..Default::default() };
    let parsed = html::parse(html, &options)
        .map_err(|error| ViewError::Fetch { url: url.to_string(), why: error.to_string() })?;
    Ok(Source {
        url: url.clone(),
        tables: Parsed::Now(parsed.to_block()),
        stamp: Stamp::Data,
        no_store: false,
        notes: Vec::new(),
        bytes: html.len() as u64,
        hash: blake3::hash(html.as_bytes()).into(),
        fetch: Duration::ZERO,
        parse: start.elapsed(),
    })
}

/// Reads a document from the store. `stamp` identifies its source if the page is stored under the
/// source's address. Without it the page is stored under the document's name.
fn stored_source(
    url: &Url,
    name: &str,
    store: Option<&Store>,
    stamp: Option<&Stamp>,
) -> Result<Source> {
    let start = Instant::now();
    let store = store.ok_or_else(|| ViewError::NotFound {
        name: name.to_string(),
        why: "cannot open the store".to_string(),
    })?;
    // All of the document is used, so all of it is verified.
    let store = evermap::Options::new().verify(Verify::Full).open(store.path())?;
    let document = store.read::<Document>(name)?;
    let source = document.source();
    let stamp = match stamp {
        Some(stamp) => stamp.clone(),
        None => Stamp::Object(ObjectStamp {
            name: name.to_string(),
            uuid: store.info(name)?.uuid,
            sequence: document.sequence(),
        }),
    };
    Ok(Source {
        url: url.clone(),
        tables: Parsed::Stored(document),
        stamp,
        no_store: false,
        notes: Vec::new(),
        bytes: source.size_bytes,
        hash: source.hash,
        fetch: start.elapsed(),
        parse: Duration::ZERO,
    })
}

fn fetched_source(url: &Url, fetcher: &Fetcher, request: &Request) -> Result<Source> {
    let start = Instant::now();
    let deadline = start + Duration::from_millis(request.timeout_ms);
    let fetched = fetcher.fetch(url, Origin::of(url), Purpose::Page, Some(deadline))?;
    let fetch = start.elapsed();
    let start = Instant::now();
    let block = parse(&fetched)?;
    let mut notes: Vec<String> = fetched.cache_problem.iter().cloned().collect();
    if let Some(status) = fetched.status.filter(|status| *status >= 400) {
        notes.push(format!("the server returned {status}; this is the page it sent"));
    }
    Ok(Source {
        url: fetched.final_url.clone(),
        tables: Parsed::Now(block),
        no_store: fetched.no_store,
        notes,
        bytes: fetched.bytes.len() as u64,
        hash: fetched.stamp.hash().copied().unwrap_or_default(),
        stamp: fetched.stamp,
        fetch,
        parse: start.elapsed(),
    })
}

fn parse(fetched: &Fetched) -> Result<evermap_dom::Block> {
    let no_page = |error: evermap_dom::ParseError| ViewError::Fetch {
        url: fetched.final_url.to_string(),
        why: error.to_string(),
    };
    // No script runs, so `noscript` content is part of the page.
    let encoding = fetched.content_type.charset.clone();
    let options = HtmlOptions { scripting: false, encoding, ..Default::default() };
    let as_html = |bytes: &[u8]| html::parse_bytes(bytes, &options).map_err(no_page);
    let tables = match fetched.content_type.kind {
        // XHTML that is not well-formed is parsed as HTML.
        Kind::Xhtml | Kind::Xml => match xml::parse_bytes(&fetched.bytes, &Default::default()) {
            Ok(tables) => tables,
            Err(_) => as_html(&fetched.bytes)?,
        },
        Kind::Html => as_html(&fetched.bytes)?,
        Kind::Image | Kind::Svg => as_html(picture_page(&fetched.final_url).as_bytes())?,
        _ => as_html(&text_page(&fetched.bytes))?,
    };
    Ok(tables.to_block())
}

/// Returns a page that shows a picture.
fn picture_page(url: &Url) -> String {
    let address = url.as_str().replace('&', "&amp;").replace('"', "&quot;");
    format!("<title>{address}</title><body style=\"margin:0\"><img src=\"{address}\" alt=\"\">")
}

/// Returns a page that shows text as it is, in any encoding.
fn text_page(bytes: &[u8]) -> Vec<u8> {
    let mut page = b"<plaintext style=\"white-space:pre-wrap\">".to_vec();
    page.extend_from_slice(bytes);
    page
}

fn has_text(dom: &Dom<'_>) -> bool {
    let mut nodes = dom.document_node().descendants();
    nodes.any(|node| node.is_text() && node.value().is_some_and(|text| !text.trim().is_empty()))
}

/// Resources that the page has requested, with the results.
#[derive(Clone)]
struct Requests {
    fetcher: Arc<Fetcher>,
    origin: Origin,
    css: Arc<CssBudget>,
    list: Arc<Mutex<List>>,
}

#[derive(Default)]
struct List {
    resources: Vec<Resource>,
    /// Resources that arrived too late. The page lacks them even if they have arrived since.
    late: Vec<Resource>,
    notes: Vec<Note>,
    no_store: bool,
}

impl Requests {
    fn new(fetcher: Arc<Fetcher>, origin: Origin, css: Arc<CssBudget>) -> Requests {
        Requests { fetcher, origin, css, list: Arc::default() }
    }

    fn with_list<T>(&self, change: impl FnOnce(&mut List) -> T) -> T {
        change(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, note: &str) {
        self.with_list(|list| list.notes.push(Note { url: None, cause: note.to_string() }));
    }

    fn answer(&self, source: &Source, record: Duration, layout: Duration) -> Answer {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        self.with_list(|list| {
            let mut resources =
                vec![Resource { url: shown(&source.url), stamp: source.stamp.clone() }];
            let late: Vec<Resource> = list.late.drain(..).collect();
            let is_late = |resource: &Resource| {
                late.iter().any(|late| late.stamp.url() == resource.stamp.url())
            };
            list.resources.retain(|resource| !is_late(resource));
            // Record a resource once even if it was requested twice.
            for resource in list.resources.drain(..).chain(late) {
                if !resources.iter().any(|known| known.stamp == resource.stamp) {
                    resources.push(resource);
                }
            }
            let mut notes = source.notes.clone();
            notes.extend(in_lines(&list.notes));
            let forbidden = list.no_store || source.no_store;
            let not_storable = forbidden.then(|| "the server forbids storing it".to_string());
            Answer {
                final_url: source.url.to_string(),
                fonts: FontSet::now(),
                resources,
                keepable: not_storable,
                notes,
                times: Times {
                    fetch_ms: milliseconds(source.fetch),
                    parse_ms: milliseconds(source.parse),
                    layout_ms: milliseconds(layout),
                    record_ms: milliseconds(record),
                },
                source_bytes: source.bytes,
                source_modified_ns: match &source.stamp {
                    Stamp::File(file) if file.settled => file.modified_ns.max(0) as u64,
                    _ => 0,
                },
                source_hash: source.hash,
            }
        })
    }
}

impl Fetch for Requests {
    fn is_local(&self, url: &Url) -> bool {
        self.fetcher.options().offline || !matches!(url.scheme(), "http" | "https")
    }

    fn get(&self, url: &Url, deadline: Instant) -> Bytes {
        let fetched = self.fetcher.fetch(url, self.origin, Purpose::Other, Some(deadline));
        let (stamp, bytes) = match fetched {
            Ok(fetched) => {
                self.with_list(|list| {
                    list.no_store |= fetched.no_store;
                    let problem = fetched.cache_problem.map(|cause| Note { url: None, cause });
                    list.notes.extend(problem);
                });
                let bytes = match fetched.content_type.kind {
                    Kind::StyleSheet => {
                        let sheet = as_utf8(fetched.bytes, fetched.content_type.charset);
                        bounded(sheet, &self.css)
                    }
                    _ => fetched.bytes,
                };
                let bytes = match svg::is_html(&bytes) {
                    true => bytes,
                    false => svg::sanitized(bytes, fetched.content_type.kind == Kind::StyleSheet),
                };
                // A `data:` address contains its own content.
                if fetched.from == FetchSource::Data {
                    return bytes;
                }
                (fetched.stamp, bytes)
            }
            Err(error) => {
                let note = Note::of(&error.url, error.cause.to_string());
                self.with_list(|list| list.notes.push(note));
                (*error.stamp, Bytes::new())
            }
        };
        let resource = Resource { url: shown(url), stamp };
        self.with_list(|list| list.resources.push(resource));
        bytes
    }

    fn skip(&self, url: &Url, why: Skipped) {
        let cause = match why {
            Skipped::Late => "did not arrive in time",
            Skipped::TooMany => "exceeds the maximum number of resources per page",
        };
        let kind = match why {
            Skipped::Late => "timeout",
            Skipped::TooMany => "refused",
        };
        let stamp = Stamp::Missing(MissingStamp {
            url: url.as_str().to_string(),
            origin: self.origin,
            purpose: Purpose::Other,
            kind: kind.to_string(),
            why: cause.to_string(),
            fetched_ns: crate::fetch::now_ns(),
            fresh_until_ns: 0,
        });
        let resource = Resource { url: shown(url), stamp };
        self.with_list(|list| {
            list.notes.push(Note::of(url.as_str(), cause));
            list.late.push(resource);
        });
    }
}

/// Converts a style sheet to UTF-8 by its encoding label.
fn as_utf8(bytes: Bytes, charset: Option<String>) -> Bytes {
    if std::str::from_utf8(&bytes).is_ok() {
        return bytes;
    }
    let rule =
        bytes.strip_prefix(b"@charset \"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
    let labels = [charset.as_deref().map(str::as_bytes), rule];
    let known = labels.into_iter().flatten().find_map(encoding_rs::Encoding::for_label);
    let (text, _, _) = known.unwrap_or(encoding_rs::WINDOWS_1252).decode(&bytes);
    Bytes::from(text.into_owned())
}

/// Cuts a style sheet to the page's CSS budget.
fn bounded(sheet: Bytes, css: &CssBudget) -> Bytes {
    let Ok(text) = std::str::from_utf8(&sheet) else { return sheet };
    match css.sheet(text) {
        Cow::Borrowed(same) if same.len() == sheet.len() => sheet,
        changed => Bytes::from(changed.into_owned()),
    }
}

fn shown(url: &Url) -> String {
    url.as_str().chars().take(SHOWN_MAX).collect()
}
