//! Tests of stamps of responses: when a stored page's resources count as unchanged, and the cost of
//! the check.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evermap_view::fetch::{FetchOptions, Fetcher, HttpStamp, Stamp, StampCheck};
use support::server::{Reply, Server};
use support::{caching, fetcher, image, offline, options, page, soon, store_in};

/// Starts a server whose resources have a version that can be set. They are fresh for ten minutes,
/// or stale at once if the path begins with `/stale`.
fn versioned() -> (Server, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(1));
    let current = Arc::clone(&version);
    let server = Server::start(move |request| {
        let tag = format!("\"v{}\"", current.load(Ordering::Relaxed));
        let control = match request.path() {
            path if path.starts_with("/stale") => "no-cache",
            _ => "max-age=600",
        };
        let reply = match request.knows(&tag) {
            true => Reply::not_modified(),
            false => Reply::html(&format!("<p>This is {tag}")),
        };
        reply.header("ETag", &tag).header("Cache-Control", control)
    });
    (server, version)
}

fn http(stamp: Stamp) -> HttpStamp {
    let Stamp::Http(http) = stamp else { panic!("{stamp:?}") };
    http
}

/// Returns the stamp with its freshness expired.
fn expired(stamp: &Stamp) -> Stamp {
    Stamp::Http(HttpStamp { fresh_until_ns: 0, ..http(stamp.clone()) })
}

#[test]
fn a_fresh_response_is_unchanged_without_a_request() {
    let (server, version) = versioned();
    let stamp = page(&fetcher(), &server.url("/")).unwrap().stamp;
    version.store(2, Ordering::Relaxed);
    for fetcher in [fetcher(), Fetcher::new(offline(), None)] {
        assert_eq!(stamp.check(&fetcher, None), StampCheck::Same);
        assert_eq!(fetcher.requests(), 0);
    }
    assert_eq!(server.requests().len(), 1);
    // Unless a reload is requested.
    let reloading = Fetcher::new(FetchOptions { reload: true, ..options() }, None);
    assert!(matches!(stamp.check(&reloading, None), StampCheck::Changed(_)));
    // If the clock was set back to before the fetch, the freshness is unknown.
    let mut later = http(stamp);
    later.fetched_ns += 3600 * 1_000_000_000;
    let unknown = Stamp::Http(later).check(&Fetcher::new(offline(), None), None);
    assert!(matches!(unknown, StampCheck::Unknown(_)), "{unknown:?}");
}

#[test]
fn a_stale_response_is_revalidated_with_the_stamps_validators() {
    let (server, version) = versioned();
    let stamp = page(&fetcher(), &server.url("/stale")).unwrap().stamp;
    let unknown = stamp.check(&Fetcher::new(offline(), None), None);
    assert_eq!(unknown, StampCheck::Unknown("stale, offline".to_string()));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(stamp.check(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.requests()[1].header("if-none-match"), Some("\"v1\""));
    assert_eq!(server.requests().len(), 2);
    version.store(2, Ordering::Relaxed);
    let StampCheck::Changed(why) = stamp.check(&fetcher(), None) else { panic!() };
    assert_eq!(why, "the server sends different content");
}

#[test]
fn equal_bytes_are_unchanged_without_validators() {
    let server = Server::start(|_| Reply::html("<p>As ever"));
    let fetched = page(&fetcher(), &server.url("/")).unwrap();
    assert_eq!(http(fetched.stamp.clone()).fresh_until_ns, 0);
    assert_eq!(fetched.stamp.check(&fetcher(), None), StampCheck::Same);
    assert!(server.requests()[1].header("if-none-match").is_none());
}

#[test]
fn a_check_renews_the_freshness_for_the_next() {
    let (server, _) = versioned();
    let mut stamp = expired(&page(&fetcher(), &server.url("/")).unwrap().stamp);
    let without_network = Fetcher::new(offline(), None);
    assert!(matches!(stamp.check(&without_network, None), StampCheck::Unknown(_)));
    assert_eq!(stamp.check_and_renew(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(stamp.check(&without_network, None), StampCheck::Same);
    let renewed = http(stamp);
    assert_eq!((renewed.etag.as_deref(), renewed.status), (Some("\"v1\""), 200));
}

#[test]
fn a_check_uses_confirmations_of_other_processes_in_the_cache() {
    let (server, version) = versioned();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let fetched = page(&caching(&store), &server.url("/")).unwrap();
    let stale = expired(&fetched.stamp);
    // The cache has a fresh response, so no network is needed.
    assert_eq!(stale.check(&caching(&store), None), StampCheck::Same);
    assert_eq!(stale.check(&Fetcher::new(offline(), Some(store.clone())), None), StampCheck::Same);
    assert_eq!(server.requests().len(), 1);
    // Another visit has found a newer version.
    version.store(2, Ordering::Relaxed);
    let reloading = FetchOptions { reload: true, ..options() };
    page(&Fetcher::new(reloading, Some(store.clone())), &server.url("/")).unwrap();
    let changed = stale.check(&Fetcher::new(offline(), Some(store)), None);
    assert_eq!(changed, StampCheck::Changed("the server sends different content".to_string()));
}

#[test]
fn a_check_fills_the_cache_for_the_fetch_that_follows() {
    let (server, version) = versioned();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let stamp = expired(&page(&caching(&store), &server.url("/")).unwrap().stamp);
    version.store(2, Ordering::Relaxed);
    let checking = Fetcher::new(FetchOptions { reload: true, ..options() }, Some(store.clone()));
    assert!(matches!(stamp.check(&checking, None), StampCheck::Changed(_)));
    checking.flush_cache();
    let asked = server.requests().len();
    assert_eq!(page(&caching(&store), &server.url("/")).unwrap().bytes, "<p>This is \"v2\"");
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn a_redirect_that_leads_elsewhere_is_a_change() {
    let target = Arc::new(AtomicUsize::new(1));
    let current = Arc::clone(&target);
    let server = Server::start(move |request| match request.path() {
        "/" => Reply::redirect(302, &format!("/{}", current.load(Ordering::Relaxed))),
        _ => Reply::html("the same").header("Cache-Control", "max-age=600"),
    });
    let stamp = page(&fetcher(), &server.url("/")).unwrap().stamp;
    // The page is fresh, but the redirect is not.
    assert_eq!(http(stamp.clone()).fresh_until_ns, 0);
    assert_eq!(stamp.check(&fetcher(), None), StampCheck::Same);
    target.store(2, Ordering::Relaxed);
    let StampCheck::Changed(why) = stamp.check(&fetcher(), None) else { panic!() };
    assert_eq!(why, format!("it now redirects to {}", server.url("/2")));
}

#[test]
fn server_errors_are_unknown_and_client_errors_are_changes() {
    let answer = Arc::new(AtomicUsize::new(200));
    let current = Arc::clone(&answer);
    let server = Server::start(move |_| match current.load(Ordering::Relaxed) {
        200 => Reply::html("x"),
        0 => Reply::never(),
        status => Reply::html("error").status_is(status as u16),
    });
    let stamp = page(&fetcher(), &server.url("/")).unwrap().stamp;
    for status in [500, 503, 429, 0] {
        answer.store(status, Ordering::Relaxed);
        let checked = stamp.check(&fetcher(), soon(300));
        assert!(matches!(checked, StampCheck::Unknown(_)), "{status}: {checked:?}");
    }
    for status in [404, 410, 403] {
        answer.store(status, Ordering::Relaxed);
        let checked = stamp.check(&fetcher(), None);
        assert_eq!(checked, StampCheck::Changed(format!("the server returned {status}")));
    }
    drop(server);
    let StampCheck::Unknown(why) = stamp.check(&fetcher(), None) else { panic!() };
    assert!(why.contains("refused the connection"), "{why}");
}

#[test]
fn a_missing_picture_is_unchanged_until_it_exists() {
    let there = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&there);
    let server = Server::start(move |request| match current.load(Ordering::Relaxed) {
        0 if request.path() == "/cacheable" => {
            Reply::status(404).header("Cache-Control", "max-age=600")
        }
        0 => Reply::status(404),
        2 => Reply::status(503),
        _ => Reply::ok("image/png", "x"),
    });
    let missing = |path: &str| *image(&fetcher(), &server.url(path)).unwrap_err().stamp;
    let (cacheable, uncacheable) = (missing("/cacheable"), missing("/uncacheable"));
    let without_network = Fetcher::new(offline(), None);
    // An error that may be cached is not requested again.
    assert_eq!(cacheable.check(&without_network, None), StampCheck::Same);
    assert_eq!(cacheable.check(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.count("/cacheable"), 1);
    let unknown = uncacheable.check(&without_network, None);
    assert_eq!(unknown, StampCheck::Unknown("stale, offline".to_string()));
    assert_eq!(uncacheable.check(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.count("/uncacheable"), 2);
    there.store(2, Ordering::Relaxed);
    there.store(1, Ordering::Relaxed);
    let changed = uncacheable.check(&fetcher(), None);
    assert_eq!(changed, StampCheck::Changed("it is available now".to_string()));
    let Stamp::Missing(stamp) = uncacheable else { panic!() };
    assert_eq!(
        (stamp.kind.as_str(), stamp.url.as_str()),
        ("status", server.url("/uncacheable").as_str())
    );
    assert!(stamp.why.contains("404 Not Found"), "{}", stamp.why);
}

#[test]
fn stamps_of_responses_survive_json_and_are_small() {
    let (server, _) = versioned();
    let stamp = page(&fetcher(), &server.url("/stale")).unwrap().stamp;
    let text = serde_json::to_string(&stamp).unwrap();
    assert_eq!(serde_json::from_str::<Stamp>(&text).unwrap(), stamp, "{text}");
    assert!(text.len() < 500, "{} bytes: {text}", text.len());
    let known = http(stamp);
    assert_eq!(known.key.len(), "http-".len() + 32);
    assert_eq!(known.hash, *blake3::hash(b"<p>This is \"v1\"").as_bytes());
}
