//! Answers one request without following redirects: from the HTTP cache while the response is
//! fresh, else from the server, with a conditional request if a response is cached. Implements RFC
//! 9111 with `http-cache-semantics`, as a private cache.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LOCATION, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_cache_semantics::{AfterResponse, BeforeRequest, CacheOptions, CachePolicy};
use url::Url;

use super::Fetcher;
use super::cache::{Cache, address_of};
use super::cache_entry::{Body, Entry};
use super::call::{Call, to_ns};
use super::cause::Cause;
use super::request::Purpose;
use super::transport::{Reply, user_agent};

/// Maximum freshness of a response. RFC 9111 lets servers exceed it, but after a jump of the clock
/// such a response would stay fresh forever.
const FRESH_MAX_S: u64 = 365 * 24 * 3600;

/// Validators of a response that the cache may no longer hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'a> {
    /// Address of the response.
    pub(super) url: &'a str,
    pub(super) etag: Option<&'a str>,
    pub(super) last_modified: Option<&'a str>,
}

/// A response from the cache or the server.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Content; `None` if the server confirmed the validators.
    pub(super) content: Option<Content>,
    pub(super) from_cache: bool,
    pub(super) no_store: bool,
    /// Time when the response was received or confirmed, and the end of its freshness; 0 if it is
    /// not fresh.
    pub(super) fetched_ns: u64,
    pub(super) fresh_until_ns: u64,
    pub(super) cache_problem: Option<String>,
}

/// Content of a response, read on demand.
pub(super) struct Content {
    pub(super) hash: [u8; 32],
    pub(super) body: Body,
}

impl Content {
    /// Returns the bytes, or `None` if they are damaged.
    pub(super) fn bytes(&self) -> Option<Bytes> {
        let bytes = match &self.body {
            Body::Memory(bytes) => return Some(bytes.clone()),
            Body::Stored(response) => response.body(),
        };
        (*blake3::hash(&bytes).as_bytes() == self.hash).then_some(bytes)
    }
}

impl Answer {
    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the target if this is a redirect.
    pub(super) fn redirect(&self) -> Option<&str> {
        match self.status.as_u16() {
            301 | 302 | 303 | 307 | 308 => self.header(LOCATION),
            _ => None,
        }
    }
}

/// One request to the cache and the server.
pub(super) struct Exchange<'a> {
    pub(super) fetcher: &'a Fetcher,
    pub(super) url: &'a Url,
    pub(super) purpose: Purpose,
    pub(super) call: &'a Call<'a>,
    pub(super) validators: Option<Validators<'a>>,
}

impl Exchange<'_> {
    /// Returns the response, from the cache if possible.
    pub(super) fn answer(&self) -> Result<Answer, Cause> {
        let request = self.request()?;
        let (cached, problem) = match self.fetcher.cache.as_ref().map(|cache| cache.find(self.url))
        {
            None | Some(Ok(None)) => (None, None),
            Some(Ok(Some(entry))) => (Some(entry), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let problem = problem.or_else(|| self.fetcher.cache.as_ref().and_then(Cache::problem));
        let answer = match cached {
            Some(entry) => self.with_entry(&request, &entry),
            None => self.without_entry(&request),
        };
        answer.map(|answer| Answer { cache_problem: problem, ..answer })
    }

    /// Fetches the response from the server without using the cache, and replaces the cached one.
    pub(super) fn fetch_from_server(&self) -> Result<Answer, Cause> {
        let request = self.request()?;
        self.fetch_unconditionally(&request)
    }

    fn request(&self) -> Result<Request<()>, Cause> {
        let mut request = Request::get(address_of(self.url))
            .header(ACCEPT, self.purpose.accept())
            // ureq decodes these. They are set here because `Vary` may refer to this header.
            .header(ACCEPT_ENCODING, "gzip, br")
            .header(USER_AGENT, user_agent());
        if self.fetcher.options.reload {
            request = request.header(CACHE_CONTROL, "no-cache");
        }
        request.body(()).map_err(|e| Cause::BadAddress(e.to_string()))
    }

    fn send(&self, request: &Request<()>) -> Result<Reply, Cause> {
        let Fetcher { options, transport, .. } = self.fetcher;
        if options.offline {
            return Err(Cause::Offline);
        }
        transport.send(request, options, self.call)
    }

    fn with_entry(&self, request: &Request<()>, entry: &Arc<Entry>) -> Result<Answer, Cause> {
        let now = SystemTime::now();
        // If the clock was set back, the entry's age is unknown.
        let age_is_known = to_ns(now) >= entry.stored_ns;
        let conditional_request = match entry.policy.before_request(request, now) {
            BeforeRequest::Fresh(parts) if age_is_known => {
                return Ok(cached_answer(entry, parts, now));
            }
            BeforeRequest::Fresh(_) => conditional(request, &entry.policy),
            BeforeRequest::Stale { request, .. } => Request::from_parts(request, ()),
        };
        let reply = self.send(&conditional_request)?;
        if reply.status != StatusCode::NOT_MODIFIED {
            return Ok(self.new_answer(request, reply));
        }
        let now = SystemTime::now();
        let confirmed = with_validators(&conditional_request, reply.headers);
        match entry.policy.after_response(request, &confirmed, now) {
            AfterResponse::NotModified(policy, parts) => {
                let renewed = Arc::new(Entry {
                    url: entry.url.clone(),
                    policy,
                    hash: entry.hash,
                    stored_ns: to_ns(now),
                    body: entry.body.clone(),
                });
                // A response that must be revalidated each time is not written each time.
                if fresh_until_ns(&renewed.policy, now) > fresh_until_ns(&entry.policy, now) {
                    self.add_to_cache(&renewed);
                }
                Ok(cached_answer(&renewed, parts, now))
            }
            // The server confirmed a different response than the cached one.
            AfterResponse::Modified(..) => self.fetch_unconditionally(request),
        }
    }

    fn without_entry(&self, request: &Request<()>) -> Result<Answer, Cause> {
        let address = address_of(self.url);
        let known = self.validators.filter(|known| {
            known.url == address && (known.etag.is_some() || known.last_modified.is_some())
        });
        let Some(known) = known else { return self.fetch_unconditionally(request) };
        let mut conditional_request = request.clone();
        for (name, value) in [(IF_NONE_MATCH, known.etag), (IF_MODIFIED_SINCE, known.last_modified)]
        {
            if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
                conditional_request.headers_mut().insert(name, value);
            }
        }
        let reply = self.send(&conditional_request)?;
        if reply.status != StatusCode::NOT_MODIFIED {
            return Ok(self.new_answer(request, reply));
        }
        // Compute the freshness as for the complete response.
        let now = SystemTime::now();
        let mut whole = http::Response::new(());
        *whole.headers_mut() = reply.headers;
        let policy = policy_of(request, &whole, now);
        Ok(Answer {
            status: StatusCode::NOT_MODIFIED,
            headers: whole.into_parts().0.headers,
            content: None,
            from_cache: true,
            no_store: false,
            fetched_ns: to_ns(now),
            fresh_until_ns: fresh_until_ns(&policy, now),
            cache_problem: None,
        })
    }

    fn fetch_unconditionally(&self, request: &Request<()>) -> Result<Answer, Cause> {
        let reply = self.send(request)?;
        Ok(self.new_answer(request, reply))
    }

    fn new_answer(&self, request: &Request<()>, reply: Reply) -> Answer {
        let now = SystemTime::now();
        let Reply { status, headers, body } = reply;
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let policy = policy_of(request, &response, now);
        let fresh_until_ns = fresh_until_ns(&policy, now);
        let headers = response.into_parts().0.headers;
        let hash = *blake3::hash(&body).as_bytes();
        if policy.is_storable() {
            self.add_to_cache(&Arc::new(Entry {
                url: address_of(self.url).to_string(),
                policy,
                hash,
                stored_ns: to_ns(now),
                body: Body::Memory(body.clone()),
            }));
        }
        Answer {
            status,
            no_store: forbids_storing(&headers),
            headers,
            content: Some(Content { hash, body: Body::Memory(body) }),
            from_cache: false,
            fetched_ns: to_ns(now),
            fresh_until_ns,
            cache_problem: None,
        }
    }

    fn add_to_cache(&self, entry: &Arc<Entry>) {
        if let Some(cache) = &self.fetcher.cache {
            cache.add(self.url, Arc::clone(entry));
        }
    }
}

fn cached_answer(entry: &Arc<Entry>, parts: http::response::Parts, now: SystemTime) -> Answer {
    Answer {
        status: parts.status,
        headers: parts.headers,
        content: Some(Content { hash: entry.hash, body: entry.body.clone() }),
        from_cache: true,
        no_store: false,
        fetched_ns: entry.stored_ns,
        fresh_until_ns: fresh_until_ns(&entry.policy, now),
        cache_problem: None,
    }
}

fn policy_of(request: &Request<()>, response: &http::Response<()>, now: SystemTime) -> CachePolicy {
    let options = CacheOptions { shared: false, ..CacheOptions::default() };
    CachePolicy::new_options(request, response, now, options)
}

fn fresh_until_ns(policy: &CachePolicy, now: SystemTime) -> u64 {
    let seconds = policy.time_to_live(now).as_secs().min(FRESH_MAX_S);
    if seconds == 0 { 0 } else { to_ns(now).saturating_add(seconds * 1_000_000_000) }
}

/// Returns a conditional request for a response that is fresh by its policy.
fn conditional(request: &Request<()>, policy: &CachePolicy) -> Request<()> {
    let mut with_no_cache = request.clone();
    with_no_cache.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    match policy.before_request(&with_no_cache, SystemTime::now()) {
        BeforeRequest::Stale { request, .. } => Request::from_parts(request, ()),
        BeforeRequest::Fresh(_) => with_no_cache,
    }
}

/// Adds the request's validators to a "not modified" response without any. Many servers omit them,
/// and the response can only refer to those of the request.
fn with_validators(conditional_request: &Request<()>, headers: HeaderMap) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    let present = response.headers_mut();
    if !present.contains_key(ETAG) && !present.contains_key(LAST_MODIFIED) {
        for (request_header, response_header) in
            [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)]
        {
            if let Some(value) = conditional_request.headers().get(request_header) {
                present.insert(response_header, value.clone());
            }
        }
    }
    response
}

fn forbids_storing(headers: &HeaderMap) -> bool {
    headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
    })
}
