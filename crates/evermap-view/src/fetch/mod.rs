//! URLs to bytes: what may be read by whom, limits, time, the HTTP cache. `docs/fetching.md` says what
//! is kept, to the byte.
//!
//! ```
//! use evermap_view::fetch::{FetchOptions, Fetcher, Origin, Purpose, Still};
//! use url::Url;
//!
//! # let directory = tempfile::tempdir()?;
//! let path = directory.path().join("page.html");
//! std::fs::write(&path, "<p>Hello")?;
//! let url = Url::from_file_path(&path).map_err(|()| "a relative path")?;
//!
//! let fetcher = Fetcher::new(FetchOptions::default(), None);
//! let page = fetcher.fetch(&url, Origin::of(&url), Purpose::Page, None)?;
//! assert_eq!(page.bytes, "<p>Hello");
//! assert_eq!(page.content_type.essence, "text/html");
//!
//! // In any later process:
//! assert_eq!(page.stamp.check(&fetcher, None), Still::Same);
//! std::fs::write(&path, "<p>Bye")?;
//! assert!(matches!(page.stamp.check(&fetcher, None), Still::Changed(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From above to below: [`Fetcher`] and `check`; `redirect`; `exchange` (cache or server, RFC 9111);
//! `cache`, `kept` (the store) beside `transport`, `connect` (the network); `file`; `call` (limits).

mod cache;
mod call;
mod check;
mod connect;
mod content;
mod error;
mod exchange;
mod file;
mod kept;
mod options;
mod redirect;
mod request;
mod stamp;
mod transport;

use std::time::Instant;

use bytes::Bytes;
use data_url::DataUrl;
use url::Url;

pub use cache::Kept;
pub use content::{ContentType, Kind, ToldBy};
pub use error::{Cause, FetchError};
pub use options::FetchOptions;
pub use request::{CameFrom, Fetched, Origin, Purpose};
pub use stamp::{FileStamp, HttpStamp, MissingStamp, ObjectStamp, Stamp, Still};

use cache::Cache;
use call::{Budget, Call, now_ns};
use error::shown;
use transport::Transport;

/// Fetches resources: for one page in the engine's process, for checks in the viewer's. Threads share
/// it. It does nothing before the first fetch, and then only what that needs.
///
/// What is to be kept in the HTTP cache is written by [`keep`](Fetcher::keep), or when the fetcher is
/// dropped; a process that is killed before has fetched in vain, and lost nothing else.
pub struct Fetcher {
    options: FetchOptions,
    transport: Transport,
    cache: Option<Cache>,
    budget: Budget,
}

impl Fetcher {
    /// A fetcher with a store for the HTTP cache, or without one: then every fetch asks the server.
    pub fn new(options: FetchOptions, cache: Option<evermap::Store>) -> Fetcher {
        let cache = cache.map(|store| Cache::new(store, options.cache_bytes_max));
        Fetcher { options, transport: Transport::default(), cache, budget: Budget::default() }
    }

    /// What it may use.
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// The store of its HTTP cache.
    pub(super) fn store(&self) -> Option<&evermap::Store> {
        self.cache.as_ref().map(Cache::store)
    }

    /// How many requests it has sent.
    pub fn requests(&self) -> u64 {
        self.transport.requests()
    }

    /// The resource at an address, for a page of this origin. Returns by the deadline, whatever a
    /// server does.
    ///
    /// A page may be anything that can be shown ([`Kind::is_page`]), and the HTML that a server sends
    /// with an error. Of anything else only success counts, and nothing is demanded of its type.
    ///
    /// # Errors
    /// With the cause, and a [`Stamp`] of that: a page made without the resource is the same for as
    /// long as the resource is missing.
    pub fn fetch(
        &self,
        url: &Url,
        origin: Origin,
        purpose: Purpose,
        deadline: Option<Instant>,
    ) -> Result<Fetched, FetchError> {
        let mut fresh_until_ns = 0;
        let call = Call::new(&self.options, purpose, deadline, &self.budget);
        let fetched = origin.may_read(url).and_then(|()| match url.scheme() {
            "data" => of_data(url, &call),
            "file" => of_file(url, &call),
            _ => self.over_network(url, purpose, &call, &mut fresh_until_ns),
        });
        let fetched = fetched.and_then(|fetched| match purpose {
            Purpose::Page if !fetched.content_type.kind.is_page() => {
                Err(Cause::NoPage { content_type: fetched.content_type.essence })
            }
            _ => Ok(fetched),
        });
        fetched.map_err(|cause| {
            let stamp = Stamp::Missing(MissingStamp {
                url: url.as_str().to_string(),
                origin,
                purpose,
                kind: cause.kind().to_string(),
                why: cause.to_string(),
                fetched_ns: now_ns(),
                fresh_until_ns,
            });
            FetchError { url: shown(url), cause, stamp: Box::new(stamp) }
        })
    }

    /// Writes what is to be kept in the HTTP cache, at one durable point; removes the oldest responses
    /// if there are too many bytes of them, once in a fetcher's life. Costs three flushes and two for
    /// each object. Does nothing when nothing is to be kept.
    pub fn keep(&self) -> Kept {
        self.cache.as_ref().map(Cache::keep).unwrap_or_default()
    }

    fn over_network(
        &self,
        url: &Url,
        purpose: Purpose,
        call: &Call<'_>,
        fresh_until_ns: &mut u64,
    ) -> Result<Fetched, Cause> {
        let followed = redirect::follow(self, url, purpose, call, None)?;
        let (followed, bytes) = followed.into_whole(self, purpose, call)?;
        let content_type = ContentType::of_response(followed.content_type.as_deref(), &bytes);
        let status = followed.status;
        let to_show = purpose == Purpose::Page
            && matches!(content_type.kind, Kind::Html | Kind::Xhtml)
            && !bytes.is_empty();
        // A part of something was not asked for, and nothing at all is nothing to show.
        let good = status.is_success() && !matches!(status.as_u16(), 204..=206);
        if !good && !to_show {
            *fresh_until_ns = followed.stamp.fresh_until_ns;
            let reason = status.canonical_reason().unwrap_or("(no usual status)");
            return Err(Cause::Status { code: status.as_u16(), reason });
        }
        Ok(Fetched {
            final_url: followed.url,
            bytes,
            content_type,
            stamp: Stamp::Http(followed.stamp),
            from: if followed.from_cache { CameFrom::Cache } else { CameFrom::Network },
            status: Some(status.as_u16()),
            no_store: followed.no_store,
            cache_problem: followed.cache_problem,
        })
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let kept = self.keep();
        if let Some(problem) = kept.problem {
            tracing::debug!(problem, "the HTTP cache was not written");
        }
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

fn of_file(url: &Url, call: &Call<'_>) -> Result<Fetched, Cause> {
    let (bytes, stamp) = file::read(url, call)?;
    let content_type = ContentType::of_file(&file::path_of(url)?, &bytes);
    Ok(local(url, bytes.into(), content_type, Stamp::File(stamp), CameFrom::File))
}

fn of_data(url: &Url, call: &Call<'_>) -> Result<Fetched, Cause> {
    call.check_size(url.as_str().len() as u64)?;
    let wrong = |why: String| Cause::BadAddress(format!("its `data:` is wrong: {why}"));
    let data = DataUrl::process(url.as_str()).map_err(|e| wrong(e.to_string()))?;
    let (bytes, _) = data.decode_to_vec().map_err(|e| wrong(e.to_string()))?;
    call.spend(bytes.len() as u64)?;
    let content_type = ContentType::of_mime(data.mime_type());
    Ok(local(url, bytes.into(), content_type, Stamp::Data, CameFrom::Data))
}

fn local(
    url: &Url,
    bytes: Bytes,
    content_type: ContentType,
    stamp: Stamp,
    from: CameFrom,
) -> Fetched {
    Fetched {
        final_url: url.clone(),
        bytes,
        content_type,
        stamp,
        from,
        status: None,
        no_store: false,
        cache_problem: None,
    }
}
