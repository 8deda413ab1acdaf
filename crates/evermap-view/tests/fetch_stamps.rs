//! What is promised of stamps of responses: when a kept page's resources count as the same, and what
//! finding that out costs.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evermap_view::fetch::{FetchOptions, Fetcher, HttpStamp, Stamp, StampCheck};
use support::server::{Reply, Server};
use support::{fetcher, image, keeping, offline, options, page, soon, store_in};

/// A server whose resources have a version that can be set: fresh for ten minutes, or with
/// `/stale...` stale at once.
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

/// The stamp as it is when its freshness is over.
fn over(stamp: &Stamp) -> Stamp {
    Stamp::Http(HttpStamp { fresh_until_ns: 0, ..http(stamp.clone()) })
}

#[test]
fn a_fresh_response_is_the_same_and_nobody_is_asked() {
    let (server, version) = versioned();
    let stamp = page(&fetcher(), &server.url("/")).unwrap().stamp;
    version.store(2, Ordering::Relaxed);
    for fetcher in [fetcher(), Fetcher::new(offline(), None)] {
        assert_eq!(stamp.check(&fetcher, None), StampCheck::Same);
        assert_eq!(fetcher.requests(), 0);
    }
    assert_eq!(server.requests().len(), 1);
    // Unless that is asked for.
    let reloading = Fetcher::new(FetchOptions { reload: true, ..options() }, None);
    assert!(matches!(stamp.check(&reloading, None), StampCheck::Changed(_)));
    // A clock that was set back to before it was fetched proves nothing.
    let mut later = http(stamp);
    later.fetched_ns += 3600 * 1_000_000_000;
    let unknown = Stamp::Http(later).check(&Fetcher::new(offline(), None), None);
    assert!(matches!(unknown, StampCheck::Unknown(_)), "{unknown:?}");
}

#[test]
fn a_stale_response_is_asked_about_once_with_what_the_stamp_knows() {
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
    assert_eq!(why, "the server sends another content");
}

#[test]
fn the_same_bytes_are_the_same_whatever_the_server_says_about_them() {
    let server = Server::start(|_| Reply::html("<p>As ever"));
    let fetched = page(&fetcher(), &server.url("/")).unwrap();
    assert_eq!(http(fetched.stamp.clone()).fresh_until_ns, 0);
    assert_eq!(fetched.stamp.check(&fetcher(), None), StampCheck::Same);
    assert!(server.requests()[1].header("if-none-match").is_none());
}

#[test]
fn a_check_makes_what_it_confirms_fresh_for_the_next() {
    let (server, _) = versioned();
    let mut stamp = over(&page(&fetcher(), &server.url("/")).unwrap().stamp);
    let without_network = Fetcher::new(offline(), None);
    assert!(matches!(stamp.check(&without_network, None), StampCheck::Unknown(_)));
    assert_eq!(stamp.check_and_renew(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(stamp.check(&without_network, None), StampCheck::Same);
    let renewed = http(stamp);
    assert_eq!((renewed.etag.as_deref(), renewed.status), (Some("\"v1\""), 200));
}

#[test]
fn what_another_process_has_confirmed_meanwhile_is_known_from_the_cache() {
    let (server, version) = versioned();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let fetched = page(&keeping(&store), &server.url("/")).unwrap();
    let stale = over(&fetched.stamp);
    // The cache has it, fresh: no network is needed, and with none it is known all the same.
    assert_eq!(stale.check(&keeping(&store), None), StampCheck::Same);
    assert_eq!(stale.check(&Fetcher::new(offline(), Some(store.clone())), None), StampCheck::Same);
    assert_eq!(server.requests().len(), 1);
    // A visit in between that found a newer version.
    version.store(2, Ordering::Relaxed);
    let reloading = FetchOptions { reload: true, ..options() };
    page(&Fetcher::new(reloading, Some(store.clone())), &server.url("/")).unwrap();
    let changed = stale.check(&Fetcher::new(offline(), Some(store)), None);
    assert_eq!(changed, StampCheck::Changed("the server sends another content".to_string()));
}

#[test]
fn a_check_fills_the_cache_for_the_fetch_that_follows() {
    let (server, version) = versioned();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let stamp = over(&page(&keeping(&store), &server.url("/")).unwrap().stamp);
    version.store(2, Ordering::Relaxed);
    let checking = Fetcher::new(FetchOptions { reload: true, ..options() }, Some(store.clone()));
    assert!(matches!(stamp.check(&checking, None), StampCheck::Changed(_)));
    checking.flush_cache();
    let asked = server.requests().len();
    assert_eq!(page(&keeping(&store), &server.url("/")).unwrap().bytes, "<p>This is \"v2\"");
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
    // The page is fresh, but not what leads there.
    assert_eq!(http(stamp.clone()).fresh_until_ns, 0);
    assert_eq!(stamp.check(&fetcher(), None), StampCheck::Same);
    target.store(2, Ordering::Relaxed);
    let StampCheck::Changed(why) = stamp.check(&fetcher(), None) else { panic!() };
    assert_eq!(why, format!("it is redirected to {}", server.url("/2")));
}

#[test]
fn trouble_is_no_change_and_a_refusal_is() {
    let answer = Arc::new(AtomicUsize::new(200));
    let current = Arc::clone(&answer);
    let server = Server::start(move |_| match current.load(Ordering::Relaxed) {
        200 => Reply::html("x"),
        0 => Reply::never(),
        status => Reply::html("trouble").status_is(status as u16),
    });
    let stamp = page(&fetcher(), &server.url("/")).unwrap().stamp;
    for status in [500, 503, 429, 0] {
        answer.store(status, Ordering::Relaxed);
        let still = stamp.check(&fetcher(), soon(300));
        assert!(matches!(still, StampCheck::Unknown(_)), "{status}: {still:?}");
    }
    for status in [404, 410, 403] {
        answer.store(status, Ordering::Relaxed);
        let still = stamp.check(&fetcher(), None);
        assert_eq!(still, StampCheck::Changed(format!("the server answers {status}")));
    }
    drop(server);
    let StampCheck::Unknown(why) = stamp.check(&fetcher(), None) else { panic!() };
    assert!(why.contains("refuses the connection"), "{why}");
}

#[test]
fn a_missing_picture_is_the_same_until_it_is_there() {
    let there = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&there);
    let server = Server::start(move |request| match current.load(Ordering::Relaxed) {
        0 if request.path() == "/told" => Reply::status(404).header("Cache-Control", "max-age=600"),
        0 => Reply::status(404),
        2 => Reply::status(503),
        _ => Reply::ok("image/png", "x"),
    });
    let missing = |path: &str| *image(&fetcher(), &server.url(path)).unwrap_err().stamp;
    let (told, untold) = (missing("/told"), missing("/untold"));
    let without_network = Fetcher::new(offline(), None);
    // What the server lets be kept is not asked for again.
    assert_eq!(told.check(&without_network, None), StampCheck::Same);
    assert_eq!(told.check(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.count("/told"), 1);
    let unknown = untold.check(&without_network, None);
    assert_eq!(unknown, StampCheck::Unknown("stale, offline".to_string()));
    assert_eq!(untold.check(&fetcher(), None), StampCheck::Same);
    assert_eq!(server.count("/untold"), 2);
    there.store(2, Ordering::Relaxed);
    there.store(1, Ordering::Relaxed);
    let changed = untold.check(&fetcher(), None);
    assert_eq!(changed, StampCheck::Changed("it is there now".to_string()));
    let Stamp::Missing(stamp) = untold else { panic!() };
    assert_eq!(
        (stamp.kind.as_str(), stamp.url.as_str()),
        ("status", server.url("/untold").as_str())
    );
    assert!(stamp.why.contains("404 Not Found"), "{}", stamp.why);
}

#[test]
fn stamps_of_responses_are_the_same_after_json_and_small() {
    let (server, _) = versioned();
    let stamp = page(&fetcher(), &server.url("/stale")).unwrap().stamp;
    let text = serde_json::to_string(&stamp).unwrap();
    assert_eq!(serde_json::from_str::<Stamp>(&text).unwrap(), stamp, "{text}");
    assert!(text.len() < 500, "{} bytes: {text}", text.len());
    let known = http(stamp);
    assert_eq!(known.key.len(), "http-".len() + 32);
    assert_eq!(known.hash, *blake3::hash(b"<p>This is \"v1\"").as_bytes());
}
