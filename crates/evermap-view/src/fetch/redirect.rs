//! Follows redirects to the final response. Each step is a separate request to the cache and the
//! server. The access rules are checked here before each step.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG, LAST_MODIFIED};
use url::Url;

use super::Fetcher;
use super::cache::{address_of, key_of};
use super::cache_entry::Body;
use super::call::Call;
use super::cause::{Cause, shown};
use super::exchange::{Answer, Content, Exchange, Validators};
use super::request::{Origin, Purpose};
use super::stamp::HttpStamp;

/// The response at the end of the redirects.
pub(super) struct Followed {
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) content_type: Option<String>,
    pub(super) from_cache: bool,
    pub(super) no_store: bool,
    pub(super) cache_problem: Option<String>,
    /// Stamp of the response. If the server confirmed the validators, the hash is that of their
    /// response.
    pub(super) stamp: HttpStamp,
    /// `None` if the server confirmed the validators.
    content: Option<Content>,
}

/// Requests addresses until the answer is not a redirect.
pub(super) fn follow(
    fetcher: &Fetcher,
    url: &Url,
    purpose: Purpose,
    call: &Call<'_>,
    known: Option<&HttpStamp>,
) -> Result<Followed, Cause> {
    let mut at = url.clone();
    let mut seen: Vec<String> = Vec::new();
    let (mut no_store, mut fresh_until_ns, mut problem) = (false, u64::MAX, None);
    loop {
        let validators = known.map(|known| Validators {
            url: &known.final_url,
            etag: known.etag.as_deref(),
            last_modified: known.last_modified.as_deref(),
        });
        let exchange = Exchange { fetcher, url: &at, purpose, call, validators };
        let mut answer = exchange.answer()?;
        no_store |= answer.no_store;
        fresh_until_ns = fresh_until_ns.min(answer.fresh_until_ns);
        problem = problem.or(answer.cache_problem.take());
        let Some(location) = answer.redirect() else {
            let stamp = stamp_of(url, &at, purpose, &answer, known, fresh_until_ns);
            return Ok(Followed {
                url: at,
                status: answer.status,
                content_type: answer.header(CONTENT_TYPE).map(str::to_string),
                from_cache: answer.from_cache,
                no_store,
                cache_problem: problem,
                stamp,
                content: answer.content,
            });
        };
        let next = next_of(&at, location)?;
        seen.push(address_of(&at).to_string());
        if seen.iter().any(|before| before == address_of(&next)) {
            return Err(Cause::RedirectLoop { from: shown(url), to: shown(&next) });
        }
        if seen.len() > fetcher.options.redirects_max {
            let limit = fetcher.options.redirects_max;
            return Err(Cause::TooManyRedirects { from: shown(url), to: shown(&next), limit });
        }
        at = next;
    }
}

/// Returns the target of a redirect. Only http and https are allowed, for any origin, because a
/// server must not choose which file is read.
fn next_of(at: &Url, location: &str) -> Result<Url, Cause> {
    let mut next = at.join(location).map_err(|e| {
        Cause::Broken(format!("it redirects to `{location}`, which is not a valid address ({e})"))
    })?;
    if !matches!(next.scheme(), "http" | "https") {
        return Err(Cause::Refused(format!(
            "{} redirects to {}; redirects may lead only to http and https",
            shown(at),
            shown(&next)
        )));
    }
    Origin::Network.may_read(&next)?;
    if next.fragment().is_none() {
        next.set_fragment(at.fragment());
    }
    Ok(next)
}

fn stamp_of(
    url: &Url,
    at: &Url,
    purpose: Purpose,
    answer: &Answer,
    known: Option<&HttpStamp>,
    fresh_until_ns: u64,
) -> HttpStamp {
    let header = |name| answer.header(name).map(str::to_string);
    let (etag, last_modified) = (header(ETAG), header(LAST_MODIFIED));
    let stamp = HttpStamp {
        url: url.as_str().to_string(),
        final_url: address_of(at).to_string(),
        purpose,
        key: key_of(at),
        status: answer.status.as_u16(),
        fetched_ns: answer.fetched_ns,
        fresh_until_ns,
        etag,
        last_modified,
        hash: answer.content.as_ref().map_or([0; 32], |content| content.hash),
    };
    match (known, &answer.content) {
        // The confirmed response is the known one.
        (Some(known), None) => HttpStamp {
            status: known.status,
            hash: known.hash,
            etag: stamp.etag.or(known.etag.clone()),
            last_modified: stamp.last_modified.or(known.last_modified.clone()),
            ..stamp
        },
        _ => stamp,
    }
}

impl Followed {
    /// Returns the content. If the cached content is damaged, fetches the response again.
    pub(super) fn into_whole(
        self,
        fetcher: &Fetcher,
        purpose: Purpose,
        call: &Call<'_>,
    ) -> Result<(Followed, Bytes), Cause> {
        let damaged = match &self.content {
            Some(Content { body: Body::Memory(bytes), .. }) => {
                let bytes = bytes.clone();
                return Ok((self, bytes));
            }
            Some(content) => content,
            None => return Ok((self, Bytes::new())),
        };
        if let Some(bytes) = damaged.bytes() {
            call.check_size(bytes.len() as u64)?;
            call.spend(bytes.len() as u64)?;
            return Ok((self, bytes));
        }
        let exchange = Exchange { fetcher, url: &self.url, purpose, call, validators: None };
        let answer = exchange.fetch_from_server()?;
        if answer.redirect().is_some() {
            return Err(Cause::Broken("it redirects now, but did not before".to_string()));
        }
        let until_ns = self.stamp.fresh_until_ns.min(answer.fresh_until_ns);
        let stamp_url = Url::parse(&self.stamp.url).unwrap_or_else(|_| self.url.clone());
        let stamp = stamp_of(&stamp_url, &self.url, purpose, &answer, None, until_ns);
        let problem = "the cached content was damaged; it was fetched again and is replaced";
        let followed = Followed {
            status: answer.status,
            content_type: answer.header(CONTENT_TYPE).map(str::to_string),
            from_cache: false,
            no_store: self.no_store || answer.no_store,
            cache_problem: Some(problem.to_string()),
            stamp,
            content: answer.content,
            url: self.url,
        };
        followed.into_whole(fetcher, purpose, call)
    }
}
