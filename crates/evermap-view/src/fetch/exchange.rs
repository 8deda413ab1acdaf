//! One address, once: from the HTTP cache while that is fresh, else from the server, which is asked
//! whether what is kept still holds. RFC 9111 as `http-cache-semantics` has it, for a cache of one
//! user. Redirects are answers like any other here.

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
use super::call::{Call, to_ns};
use super::error::Cause;
use super::kept::{Entry, KeptBody};
use super::request::Purpose;
use super::transport::{Reply, user_agent};

/// No response is held to be fresh for longer than a year, whatever its server says; RFC 9111 lets
/// servers say so, and a clock that jumps would make it for ever.
const FRESH_MAX_S: u64 = 365 * 24 * 3600;

/// What is known of a response elsewhere than in the cache, to ask whether it still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'a> {
    /// The address that answered.
    pub(super) url: &'a str,
    pub(super) etag: Option<&'a str>,
    pub(super) last_modified: Option<&'a str>,
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The content; none when the server confirmed the validators.
    pub(super) content: Option<Content>,
    pub(super) from_cache: bool,
    pub(super) no_store: bool,
    /// When the response was received or confirmed, and until when it is fresh; 0 if not at all.
    pub(super) fetched_ns: u64,
    pub(super) fresh_until_ns: u64,
    pub(super) cache_problem: Option<String>,
}

/// A response's content, read when it is needed.
pub(super) struct Content {
    pub(super) hash: [u8; 32],
    pub(super) body: KeptBody,
}

impl Content {
    /// The bytes; nothing if they are damaged.
    pub(super) fn bytes(&self) -> Option<Bytes> {
        let bytes = match &self.body {
            KeptBody::Here(bytes) => return Some(bytes.clone()),
            KeptBody::There(kept) => kept.body(),
        };
        (*blake3::hash(&bytes).as_bytes() == self.hash).then_some(bytes)
    }
}

impl Answer {
    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Where to go instead, if that is the answer.
    pub(super) fn redirect(&self) -> Option<&str> {
        match self.status.as_u16() {
            301 | 302 | 303 | 307 | 308 => self.header(LOCATION),
            _ => None,
        }
    }
}

/// One question to the cache and the server.
pub(super) struct Exchange<'a> {
    pub(super) fetcher: &'a Fetcher,
    pub(super) url: &'a Url,
    pub(super) purpose: Purpose,
    pub(super) call: &'a Call<'a>,
    pub(super) validators: Option<Validators<'a>>,
}

impl Exchange<'_> {
    /// The answer, from wherever.
    pub(super) fn answer(&self) -> Result<Answer, Cause> {
        let request = self.request()?;
        let (kept, problem) = match self.fetcher.cache.as_ref().map(|cache| cache.find(self.url)) {
            None | Some(Ok(None)) => (None, None),
            Some(Ok(Some(entry))) => (Some(entry), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let problem = problem.or_else(|| self.fetcher.cache.as_ref().and_then(Cache::problem));
        let answer = match kept {
            Some(entry) => self.with_entry(&request, &entry),
            None => self.without_entry(&request),
        };
        answer.map(|answer| Answer { cache_problem: problem, ..answer })
    }

    /// The answer of the server, without looking at the cache. What is kept is replaced.
    pub(super) fn answer_of_server(&self) -> Result<Answer, Cause> {
        let request = self.request()?;
        self.ask_plainly(&request)
    }

    fn request(&self) -> Result<Request<()>, Cause> {
        let mut request = Request::get(address_of(self.url))
            .header(ACCEPT, self.purpose.accept())
            // What ureq undoes. Said here because `Vary` may be about it.
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
        // A clock that was set back: the entry's age can't be told.
        let told = to_ns(now) >= entry.stored_ns;
        let question = match entry.policy.before_request(request, now) {
            BeforeRequest::Fresh(parts) if told => return Ok(kept_answer(entry, parts, now)),
            BeforeRequest::Fresh(_) => conditional(request, &entry.policy),
            BeforeRequest::Stale { request, .. } => Request::from_parts(request, ()),
        };
        let reply = self.send(&question)?;
        if reply.status != StatusCode::NOT_MODIFIED {
            return Ok(self.new_answer(request, reply));
        }
        let now = SystemTime::now();
        let confirmed = with_validators(&question, reply.headers);
        match entry.policy.after_response(request, &confirmed, now) {
            AfterResponse::NotModified(policy, parts) => {
                let renewed = Arc::new(Entry {
                    url: entry.url.clone(),
                    policy,
                    hash: entry.hash,
                    stored_ns: to_ns(now),
                    body: entry.body.clone(),
                });
                // What has to be confirmed each time is not written each time.
                if fresh_until_ns(&renewed.policy, now) > fresh_until_ns(&entry.policy, now) {
                    self.note(&renewed);
                }
                Ok(kept_answer(&renewed, parts, now))
            }
            // It confirms something else than what is kept.
            AfterResponse::Modified(..) => self.ask_plainly(request),
        }
    }

    fn without_entry(&self, request: &Request<()>) -> Result<Answer, Cause> {
        let address = address_of(self.url);
        let known = self.validators.filter(|known| {
            known.url == address && (known.etag.is_some() || known.last_modified.is_some())
        });
        let Some(known) = known else { return self.ask_plainly(request) };
        let mut question = request.clone();
        for (name, value) in [(IF_NONE_MATCH, known.etag), (IF_MODIFIED_SINCE, known.last_modified)]
        {
            if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
                question.headers_mut().insert(name, value);
            }
        }
        let reply = self.send(&question)?;
        if reply.status != StatusCode::NOT_MODIFIED {
            return Ok(self.new_answer(request, reply));
        }
        // Reckoned as the whole response that it stands for.
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

    fn ask_plainly(&self, request: &Request<()>) -> Result<Answer, Cause> {
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
            self.note(&Arc::new(Entry {
                url: address_of(self.url).to_string(),
                policy,
                hash,
                stored_ns: to_ns(now),
                body: KeptBody::Here(body.clone()),
            }));
        }
        Answer {
            status,
            no_store: forbids_keeping(&headers),
            headers,
            content: Some(Content { hash, body: KeptBody::Here(body) }),
            from_cache: false,
            fetched_ns: to_ns(now),
            fresh_until_ns,
            cache_problem: None,
        }
    }

    fn note(&self, entry: &Arc<Entry>) {
        if let Some(cache) = &self.fetcher.cache {
            cache.note(self.url, Arc::clone(entry));
        }
    }
}

fn kept_answer(entry: &Arc<Entry>, parts: http::response::Parts, now: SystemTime) -> Answer {
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

/// The question whether a response that is fresh still holds all the same.
fn conditional(request: &Request<()>, policy: &CachePolicy) -> Request<()> {
    let mut asked = request.clone();
    asked.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    match policy.before_request(&asked, SystemTime::now()) {
        BeforeRequest::Stale { request, .. } => Request::from_parts(request, ()),
        BeforeRequest::Fresh(_) => asked,
    }
}

/// A confirmation with the validators that were asked about, if it has none itself: it answers a
/// question about those alone, and many servers leave them out.
fn with_validators(question: &Request<()>, headers: HeaderMap) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    let given = response.headers_mut();
    if !given.contains_key(ETAG) && !given.contains_key(LAST_MODIFIED) {
        for (asked, told) in [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)] {
            if let Some(value) = question.headers().get(asked) {
                given.insert(told, value.clone());
            }
        }
    }
    response
}

fn forbids_keeping(headers: &HeaderMap) -> bool {
    headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
    })
}
