//! Fetches URLs: access rules, limits, timeouts and the HTTP cache. `docs/fetching.md` specifies
//! the stored format.
//!
//! ```
//! use evermap_view::fetch::{FetchOptions, Fetcher, Origin, Purpose, StampCheck};
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
//! assert_eq!(page.stamp.check(&fetcher, None), StampCheck::Same);
//! std::fs::write(&path, "<p>Bye")?;
//! assert!(matches!(page.stamp.check(&fetcher, None), StampCheck::Changed(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Modules from top to bottom: [`Fetcher`] and `check`; `redirect`; `exchange` (cache or server,
//! RFC 9111); `cache` and `cache_entry` (the store), `transport` and `connect` (the network),
//! `file`; `call` (limits).

mod cache;
mod cache_entry;
mod call;
mod cause;
mod check;
mod connect;
mod content;
mod error;
mod exchange;
mod fetched;
mod file;
mod options;
mod redirect;
mod request;
mod stamp;
mod transport;

use std::time::Instant;

use bytes::Bytes;
use data_url::DataUrl;
use url::Url;

pub use cache::CacheFlush;
pub(crate) use call::now_ns;
pub use cause::Cause;
pub use content::{ContentType, Kind, TypeSource};
pub use error::FetchError;
pub use fetched::{FetchSource, Fetched};
pub use options::FetchOptions;
pub use request::{Origin, Purpose};
pub use stamp::{FileStamp, HttpStamp, MissingStamp, ObjectStamp, Stamp, StampCheck};

use cache::Cache;
use call::{Budget, Call};
use cause::shown;
use transport::Transport;

/// Fetches resources: for one page in the engine's process, and for checks in the viewer. Threads
/// share one fetcher. Creating it does no work. Connections, certificates and the cache are set up
/// when a fetch needs them.
///
/// [`flush_cache`](Fetcher::flush_cache) writes new responses to the HTTP cache, as does dropping
/// the fetcher. A process that is killed before loses only these responses.
pub struct Fetcher {
    options: FetchOptions,
    transport: Transport,
    cache: Option<Cache>,
    budget: Budget,
}

impl Fetcher {
    /// Creates a fetcher with a store for the HTTP cache. Without one, every fetch asks the server.
    pub fn new(options: FetchOptions, cache: Option<evermap::Store>) -> Fetcher {
        let cache = cache.map(|store| Cache::new(store, options.cache_bytes_max));
        Fetcher { options, transport: Transport::default(), cache, budget: Budget::default() }
    }

    /// Returns the options.
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Returns the store of the HTTP cache.
    pub(super) fn store(&self) -> Option<&evermap::Store> {
        self.cache.as_ref().map(Cache::store)
    }

    /// Returns the number of requests sent.
    pub fn requests(&self) -> u64 {
        self.transport.requests()
    }

    /// Fetches a resource for a page of this origin. Returns by the deadline, no matter what the
    /// server does.
    ///
    /// A page may be anything that can be shown ([`Kind::is_page`]), or the HTML of an error
    /// response. Any other resource must have a success status, but may be of any type.
    ///
    /// # Errors
    /// Returns the cause, and a [`Stamp`] of the failure. A page that was made without the resource
    /// stays valid while the resource is missing.
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
            "data" => read_data(url, &call),
            "file" => read_file(url, &call),
            _ => self.fetch_http(url, purpose, &call, &mut fresh_until_ns),
        });
        let fetched = fetched.and_then(|fetched| match purpose {
            Purpose::Page if !fetched.content_type.kind.is_page() => {
                Err(Cause::UnsupportedType { content_type: fetched.content_type.essence })
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

    /// Writes new responses to the HTTP cache in one durable batch. Once per fetcher, also removes
    /// the oldest responses if the cache is too large. Costs three flushes and two per object, or
    /// nothing if there are no new responses.
    pub fn flush_cache(&self) -> CacheFlush {
        self.cache.as_ref().map(Cache::flush).unwrap_or_default()
    }

    fn fetch_http(
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
        // A partial response was not requested, and an empty page can't be shown.
        let good = status.is_success() && !matches!(status.as_u16(), 204..=206);
        if !good && !to_show {
            *fresh_until_ns = followed.stamp.fresh_until_ns;
            let reason = status.canonical_reason().unwrap_or("(non-standard status)");
            return Err(Cause::Status { code: status.as_u16(), reason });
        }
        Ok(Fetched {
            final_url: followed.url,
            bytes,
            content_type,
            stamp: Stamp::Http(followed.stamp),
            from: if followed.from_cache { FetchSource::Cache } else { FetchSource::Network },
            status: Some(status.as_u16()),
            no_store: followed.no_store,
            cache_problem: followed.cache_problem,
        })
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let flushed = self.flush_cache();
        if let Some(problem) = flushed.problem {
            tracing::debug!(problem, "cannot write the HTTP cache");
        }
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

fn read_file(url: &Url, call: &Call<'_>) -> Result<Fetched, Cause> {
    let (bytes, stamp) = file::read(url, call)?;
    let content_type = ContentType::of_file(&file::path_of(url)?, &bytes);
    Ok(local(url, bytes.into(), content_type, Stamp::File(stamp), FetchSource::File))
}

fn read_data(url: &Url, call: &Call<'_>) -> Result<Fetched, Cause> {
    call.check_size(url.as_str().len() as u64)?;
    let wrong = |why: String| Cause::BadAddress(format!("the `data:` address is malformed: {why}"));
    let data = DataUrl::process(url.as_str()).map_err(|e| wrong(e.to_string()))?;
    let (bytes, _) = data.decode_to_vec().map_err(|e| wrong(e.to_string()))?;
    call.spend(bytes.len() as u64)?;
    let content_type = ContentType::of_mime(data.mime_type());
    Ok(local(url, bytes.into(), content_type, Stamp::Data, FetchSource::Data))
}

fn local(
    url: &Url,
    bytes: Bytes,
    content_type: ContentType,
    stamp: Stamp,
    from: FetchSource,
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
