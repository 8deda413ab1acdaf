//! Tests of the HTTP cache: which responses are stored, how long they are used, and that no state
//! of the cache fails a fetch.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use evermap::Store;
use evermap_view::fetch::{Cause, FetchOptions, FetchSource, Fetched, Fetcher, Origin, Purpose};
use support::server::{Reply, Server};
use support::{assert_passed, caching, cause, image, offline, options, page, store_in, variable};
use url::Url;

/// Visits a page with a new fetcher: fetches it and writes the cache.
fn visit(store: &Store, url: &Url) -> Fetched {
    let fetcher = caching(store);
    let fetched = page(&fetcher, url).unwrap();
    assert_eq!(fetcher.flush_cache().problem, None);
    fetched
}

fn cached_names(store: &Store) -> Vec<String> {
    store.list().unwrap().into_iter().filter(|name| name.starts_with("http-")).collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_fresh_response_is_reused_even_by_another_process() {
    let server = Server::start(|_| Reply::html("<p>Hello").header("Cache-Control", "max-age=600"));
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let url = server.url("/page?q#first");
    assert_eq!(visit(&store, &url).from, FetchSource::Network);
    let again = visit(&store, &server.url("/page?q#second"));
    assert_eq!((again.from, again.bytes.as_ref()), (FetchSource::Cache, &b"<p>Hello"[..]));
    assert_eq!(again.content_type.charset.as_deref(), Some("utf-8"));
    assert_eq!(again.status, Some(200));
    assert_eq!(cached_names(&store).len(), 1);
    assert_eq!(cached_names(&store)[0].len(), "http-".len() + 32);
    // Without the network, too.
    let offline_fetcher = Fetcher::new(offline(), Some(store.clone()));
    assert_eq!(page(&offline_fetcher, &url).unwrap().bytes, "<p>Hello");
    let path = store.path().to_str().unwrap().to_string();
    drop((offline_fetcher, store));
    let environment = [("EVERMAP_STORE", path.as_str()), ("EVERMAP_URL", url.as_str())];
    assert_passed(&support::child("child_is_served_by_the_cache", &environment));
    assert_eq!(server.requests().len(), 1);
    // A different query is a different resource.
    visit(&Store::open(path).unwrap(), &server.url("/page?r"));
    assert_eq!(server.requests().len(), 2);
}

#[test]
#[ignore = "runs in a child process"]
fn child_is_served_by_the_cache() {
    let (Some(store), Some(url)) = (variable("EVERMAP_STORE"), variable("EVERMAP_URL")) else {
        return;
    };
    let fetched = visit(&Store::open(store).unwrap(), &Url::parse(&url).unwrap());
    assert_eq!((fetched.from, fetched.bytes.as_ref()), (FetchSource::Cache, &b"<p>Hello"[..]));
}

#[test]
fn a_fetcher_reuses_responses_before_writing_the_cache() {
    let server = Server::start(|_| Reply::html("x").header("Cache-Control", "max-age=600"));
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let fetcher = caching(&store);
    for _ in 0..3 {
        page(&fetcher, &server.url("/")).unwrap();
    }
    assert_eq!(server.requests().len(), 1);
    assert!(cached_names(&store).is_empty());
    let done = fetcher.flush_cache();
    assert_eq!((done.written, done.removed, done.problem), (1, 0, None));
    assert_eq!(fetcher.flush_cache().written, 0);
    // Dropping a fetcher writes the cache too.
    let other = caching(&store);
    page(&other, &server.url("/other")).unwrap();
    drop(other);
    assert_eq!(cached_names(&store).len(), 2);
    // Without a store, every fetch asks the server.
    let without = support::fetcher();
    page(&without, &server.url("/")).unwrap();
    page(&without, &server.url("/")).unwrap();
    assert_eq!(server.count("/"), 3);
}

#[test]
fn the_servers_headers_determine_the_freshness() {
    let server = Server::start(|request| {
        let reply = Reply::html("x").header("ETag", "\"1\"");
        if request.knows("\"1\"") {
            return Reply::not_modified().header("ETag", "\"1\"");
        }
        match request.path() {
            "/expires" => reply.header("Expires", "Fri, 31 Dec 9999 23:59:59 GMT"),
            "/expired" => reply.header("Expires", "0"),
            "/long-ago" => reply.header("Last-Modified", "Thu, 01 Jan 2015 00:00:00 GMT"),
            "/old" => reply.header("Cache-Control", "max-age=60").header("Age", "60"),
            "/private" => reply.header("Cache-Control", "private, max-age=60"),
            "/shared" => reply.header("Cache-Control", "s-maxage=600, max-age=0"),
            "/no-cache" => reply.header("Cache-Control", "no-cache, max-age=600"),
            _ => reply,
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    for (path, asked) in [
        ("/expires", 1),
        ("/expired", 2),
        ("/long-ago", 1),
        ("/old", 2),
        ("/private", 1),
        ("/shared", 2),
        ("/no-cache", 2),
        ("/silent", 2),
    ] {
        visit(&store, &server.url(path));
        assert_eq!(visit(&store, &server.url(path)).from, FetchSource::Cache, "{path}");
        assert_eq!(server.count(path), asked, "{path}");
    }
}

#[test]
fn no_store_responses_and_cookies_are_not_in_the_store() {
    let server = Server::start(|request| match request.path() {
        "/no-store" => Reply::html("SECRETBODY").header("Cache-Control", "max-age=600, no-store"),
        "/error" => Reply::html("SECRETERROR").status_is(500),
        _ => Reply::html("public")
            .header("Cache-Control", "max-age=600")
            .header("Set-Cookie", "session=SECRETCOOKIE"),
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let fetched = visit(&store, &server.url("/no-store"));
    assert!(fetched.no_store);
    visit(&store, &server.url("/no-store"));
    assert_eq!(server.count("/no-store"), 2);
    visit(&store, &server.url("/error"));
    assert_eq!(cached_names(&store), [""; 0]);
    assert!(!visit(&store, &server.url("/cookie")).no_store);
    assert_eq!(cached_names(&store).len(), 1);
    for file in files(store.path()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"SECRET"), "{}", file.display());
    }
}

#[test]
fn a_stale_response_is_confirmed_by_its_entity_tag() {
    let server = Server::start(|request| {
        if request.knows("\"v1\"") {
            return Reply::not_modified().header("ETag", "\"v1\"");
        }
        Reply::html("<p>Version 1").header("ETag", "\"v1\"").header("Cache-Control", "no-cache")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let url = server.url("/");
    let first = visit(&store, &url);
    let object = store.info(&cached_names(&store)[0]).unwrap().uuid;
    for n in 2..5 {
        let again = visit(&store, &url);
        assert_eq!((again.from, &again.bytes), (FetchSource::Cache, &first.bytes));
        assert_eq!(again.status, Some(200));
        assert_eq!(server.requests().len(), n);
        assert_eq!(server.requests()[n - 1].header("if-none-match"), Some("\"v1\""));
    }
    // A confirmation that does not extend the freshness is not written.
    assert_eq!(store.info(&cached_names(&store)[0]).unwrap().uuid, object);
    let offline_fetcher = Fetcher::new(offline(), Some(store.clone()));
    assert_eq!(cause(page(&offline_fetcher, &url)), Cause::Offline);
}

#[test]
fn a_confirmation_renews_the_freshness() {
    let server = Server::start(|request| {
        let stale =
            Reply::html("<p>Old").header("Cache-Control", "max-age=600").header("Age", "900");
        match request.header("if-modified-since") {
            Some("Thu, 01 Jan 2015 00:00:00 GMT") => {
                // Many servers confirm without repeating the validator.
                Reply::not_modified().header("Cache-Control", "max-age=600").header("Age", "0")
            }
            Some(other) => panic!("{other}"),
            None => stale.header("Last-Modified", "Thu, 01 Jan 2015 00:00:00 GMT"),
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    for n in [1, 2, 2, 2] {
        assert_eq!(visit(&store, &server.url("/")).bytes, "<p>Old");
        assert_eq!(server.requests().len(), n);
    }
}

#[test]
fn changed_responses_are_replaced_and_wrong_confirmations_rejected() {
    let version = std::sync::Arc::new(AtomicUsize::new(1));
    let current = std::sync::Arc::clone(&version);
    let server = Server::start(move |request| {
        let tag = format!("\"v{}\"", current.load(Ordering::Relaxed));
        if request.path() == "/liar" && request.header("if-none-match").is_some() {
            return Reply::not_modified().header("ETag", "\"another\"");
        }
        if request.knows(&tag) {
            return Reply::not_modified().header("ETag", &tag);
        }
        Reply::html(&tag).header("ETag", &tag).header("Cache-Control", "no-cache")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    for (now, from) in [
        (1, FetchSource::Network),
        (1, FetchSource::Cache),
        (2, FetchSource::Network),
        (2, FetchSource::Cache),
    ] {
        version.store(now, Ordering::Relaxed);
        let fetched = visit(&store, &server.url("/"));
        assert_eq!((fetched.from, fetched.bytes), (from, format!("\"v{now}\"").into()));
    }
    visit(&store, &server.url("/liar"));
    version.store(3, Ordering::Relaxed);
    assert_eq!(visit(&store, &server.url("/liar")).bytes, "\"v3\"");
    assert_eq!(server.count("/liar"), 3);
    assert_eq!(cached_names(&store).len(), 2);
}

#[test]
fn a_varying_response_is_reused_only_for_the_same_headers() {
    let server = Server::start(|request| {
        let reply = Reply::ok("image/png", request.header("accept").unwrap());
        let vary = if request.path() == "/all" { "*" } else { "Accept, X-Other" };
        reply.header("Vary", vary).header("Cache-Control", "max-age=600")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let fetch = |path: &str, purpose| {
        let fetcher = caching(&store);
        let fetched = fetcher.fetch(&server.url(path), Origin::Network, purpose, None).unwrap();
        (fetched.from, fetched.bytes)
    };
    let (_, as_page) = fetch("/", Purpose::Page);
    assert_eq!(fetch("/", Purpose::Page), (FetchSource::Cache, as_page.clone()));
    let (from, as_image) = fetch("/", Purpose::Image);
    assert_eq!(from, FetchSource::Network);
    assert_ne!(as_image, as_page);
    // Only the last variant is stored.
    assert_eq!(fetch("/", Purpose::Image).0, FetchSource::Cache);
    assert_eq!(fetch("/", Purpose::Page), (FetchSource::Network, as_page));
    assert_eq!(cached_names(&store).len(), 1);
    fetch("/all", Purpose::Page);
    assert_eq!(fetch("/all", Purpose::Page).0, FetchSource::Network);
}

#[test]
fn redirects_and_errors_are_cached_as_their_server_allows() {
    let server = Server::start(|request| match request.path() {
        "/moved" => Reply::redirect(301, "/here").header("Cache-Control", "max-age=600"),
        "/now" => Reply::redirect(302, "/here"),
        "/gone" => Reply::status(404).header("Cache-Control", "max-age=600"),
        _ => Reply::html("here").header("Cache-Control", "max-age=600"),
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    for _ in 0..3 {
        let moved = visit(&store, &server.url("/moved"));
        assert_eq!((moved.bytes.as_ref(), &moved.final_url), (&b"here"[..], &server.url("/here")));
        visit(&store, &server.url("/now"));
        let gone = cause(image(&caching(&store), &server.url("/gone")));
        assert!(matches!(gone, Cause::Status { code: 404, .. }));
    }
    let asked = ["/moved", "/now", "/here", "/gone"].map(|path| server.count(path));
    assert_eq!(asked, [1, 3, 1, 1]);
}

#[test]
fn reloading_revalidates_fresh_responses() {
    let server = Server::start(|request| {
        if request.knows("\"1\"") {
            return Reply::not_modified().header("ETag", "\"1\"");
        }
        Reply::html("x").header("ETag", "\"1\"").header("Cache-Control", "max-age=600")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    visit(&store, &server.url("/"));
    let reloading = FetchOptions { reload: true, ..options() };
    let fetcher = Fetcher::new(reloading, Some(store.clone()));
    assert_eq!(page(&fetcher, &server.url("/")).unwrap().from, FetchSource::Cache);
    let asked = &server.requests()[1];
    assert_eq!(asked.header("cache-control"), Some("no-cache"));
    assert_eq!(asked.header("if-none-match"), Some("\"1\""));
    drop(fetcher);
    assert_eq!(visit(&store, &server.url("/")).from, FetchSource::Cache);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn size_limits_apply_to_cached_responses() {
    let server = Server::start(|_| {
        Reply::ok("text/plain", vec![b'x'; 5000]).header("Cache-Control", "max-age=600")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    visit(&store, &server.url("/"));
    for (page_bytes_max, total_bytes_max) in [(4999, u64::MAX), (u64::MAX, 4999)] {
        let small = FetchOptions { page_bytes_max, total_bytes_max, ..options() };
        let fetcher = Fetcher::new(small, Some(store.clone()));
        let too_large = cause(page(&fetcher, &server.url("/")));
        assert!(matches!(too_large, Cause::TooLarge { limit_bytes: 4999, .. }));
    }
}

/// Starts a server whose pages are always fresh.
fn fresh_server() -> Server {
    Server::start(|request| {
        let body = format!("<p>This is {}", request.path().repeat(40));
        Reply::html(&body).header("Cache-Control", "max-age=600").header("ETag", "\"1\"")
    })
}

#[test]
fn a_damaged_entry_is_ignored_and_replaced() {
    let server = fresh_server();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    let url = server.url("/page");
    let sound = visit(&store, &url).bytes;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut damaged = 0;
    for round in 0..300 {
        let name = cached_names(&store).remove(0);
        let path = store.path().join("objects").join(store.info(&name).unwrap().uuid);
        let mut bytes = fs::read(&path).unwrap();
        let whole = bytes.clone();
        // Only used bytes are damaged, because most of a file is zeros.
        let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        match round % 4 {
            0 => bytes[used[next(used.len())]] ^= 1 << next(8),
            1 => bytes[used[next(used.len())]] = 0xff,
            2 => {
                let from = used[next(used.len())] & !7;
                let end = (from + 8).min(bytes.len());
                bytes[from..end].fill(0xff);
            }
            _ => {
                let page = used[next(used.len())] & !4095;
                let end = (page + 4096).min(bytes.len());
                bytes[page..end].iter_mut().for_each(|byte| *byte = next(256) as u8);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let fetcher = caching(&store);
        let fetched = page(&fetcher, &url).unwrap();
        assert_eq!(fetched.bytes, sound);
        if fetched.from == FetchSource::Network {
            damaged += 1;
            assert!(fetched.cache_problem.is_some());
            let done = fetcher.flush_cache();
            assert_eq!((done.written, done.problem), (1, None));
            assert_eq!(visit(&store, &url).from, FetchSource::Cache);
        } else {
            fs::write(&path, &whole).unwrap();
        }
    }
    assert!(damaged > 100, "{damaged}");
    // A file with invalid content, and a missing file.
    for content in [Some("nonsense"), None] {
        let path =
            store.path().join("objects").join(store.info(&cached_names(&store)[0]).unwrap().uuid);
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let fetched = visit(&store, &url);
        assert_eq!((fetched.from, fetched.cache_problem.is_some()), (FetchSource::Network, true));
        assert_eq!(visit(&store, &url).from, FetchSource::Cache);
    }
    // An object of another type under the same name.
    let name = cached_names(&store).remove(0);
    store.replace::<u64, _>(&name, 7).unwrap();
    assert_eq!(visit(&store, &url).from, FetchSource::Network);
    assert_eq!(visit(&store, &url).from, FetchSource::Cache);
}

#[test]
fn an_unwritable_store_is_reported_and_fails_no_fetch() {
    let server = fresh_server();
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    visit(&store, &server.url("/cached"));
    // An object that is being written is busy.
    let name = cached_names(&store).remove(0);
    let session = store.write_raw(&name).unwrap();
    let fetcher = caching(&store);
    let fetched = page(&fetcher, &server.url("/cached")).unwrap();
    assert!(fetched.cache_problem.unwrap().contains("in use"));
    assert!(fetcher.flush_cache().problem.unwrap().contains("in use"));
    session.close().unwrap();
    let path = store.path().to_str().unwrap().to_string();
    drop((store, fetcher));

    // Simulates a full disk by a limit on file sizes, with the signal ignored.
    let exe = std::env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", exe.to_str().unwrap()]);
    child.args(["child_cannot_write", "--exact", "--ignored", "--nocapture"]);
    child.env("EVERMAP_STORE", &path).env("EVERMAP_URL", server.url("/").as_str());
    assert_passed(&child.output().unwrap());

    // A file system that is mounted read-only.
    let at = directory.path().join("read-only");
    fs::create_dir(&at).unwrap();
    let mount = |arguments: &[&str]| {
        let done = Command::new("mount").args(arguments).arg(&at).output();
        done.is_ok_and(|output| output.status.success())
    };
    if !mount(&["--bind", &path]) {
        eprintln!("SKIPPED: mount is not permitted");
        return;
    }
    if mount(&["-o", "remount,ro,bind"]) {
        let environment =
            [("EVERMAP_STORE", at.to_str().unwrap()), ("EVERMAP_URL", server.url("/").as_str())]
                .map(|(name, value)| (name, value.to_string()));
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let output = support::child("child_cannot_write", &environment);
        let _ = Command::new("umount").arg(&at).status();
        assert_passed(&output);
    } else {
        let _ = Command::new("umount").arg(&at).status();
        eprintln!("SKIPPED: cannot make a bind mount read-only");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_cannot_write() {
    let (Some(store), Some(url)) = (variable("EVERMAP_STORE"), variable("EVERMAP_URL")) else {
        return;
    };
    let (store, url) = (Store::open(store).unwrap(), Url::parse(&url).unwrap());
    let fetcher = caching(&store);
    // Stored responses are read.
    assert_eq!(page(&fetcher, &url.join("/cached").unwrap()).unwrap().from, FetchSource::Cache);
    // New responses are fetched.
    let fetched = page(&fetcher, &url.join("/new").unwrap()).unwrap();
    assert_eq!(fetched.from, FetchSource::Network);
    let done = fetcher.flush_cache();
    assert_eq!(done.written, 0);
    assert!(done.problem.is_some());
    // The next fetch of the same fetcher reports the problem.
    let next = page(&fetcher, &url.join("/new").unwrap()).unwrap();
    assert_eq!(next.cache_problem, done.problem);
    assert_eq!(cached_names(&store).len(), 1);
}

#[test]
fn processes_fetch_and_cache_the_same_responses_concurrently() {
    let server = fresh_server();
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(&directory).path().to_str().unwrap().to_string();
    let url = server.url("/");
    let environment = [("EVERMAP_STORE", path.as_str()), ("EVERMAP_URL", url.as_str())];
    std::thread::scope(|scope| {
        let children: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| support::child("child_caches_the_same_responses", &environment))
            })
            .collect();
        for child in children {
            assert_passed(&child.join().unwrap());
        }
    });
    let store = Store::open(&path).unwrap();
    assert_eq!(cached_names(&store).len(), 4);
    for n in 0..4 {
        assert_eq!(visit(&store, &server.url(&format!("/{n}"))).from, FetchSource::Cache);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_caches_the_same_responses() {
    let (Some(store), Some(url)) = (variable("EVERMAP_STORE"), variable("EVERMAP_URL")) else {
        return;
    };
    let (store, url) = (Store::open(store).unwrap(), Url::parse(&url).unwrap());
    for _ in 0..10 {
        // Each round replaces responses that the others read.
        let reloading = FetchOptions { reload: true, ..options() };
        for options in [reloading, options()] {
            let fetcher = Fetcher::new(options, Some(store.clone()));
            std::thread::scope(|scope| {
                for n in 0..4 {
                    let (fetcher, url) = (&fetcher, url.join(&format!("/{n}")).unwrap());
                    scope.spawn(move || {
                        let expected = format!("<p>This is {}", url.path().repeat(40));
                        assert_eq!(page(fetcher, &url).unwrap().bytes, expected);
                    });
                }
            });
            // On a stalled machine, the other processes may hold the lock for too long.
            let problem = fetcher.flush_cache().problem;
            assert!(problem.as_ref().is_none_or(|why| why.contains("in use")), "{problem:?}");
        }
    }
}

#[test]
fn a_cached_response_takes_little_more_than_its_bytes() {
    let server = Server::start(|request| {
        let bytes = request.path()[1..].parse().unwrap();
        Reply::ok("text/plain", vec![b'x'; bytes]).header("Cache-Control", "max-age=600")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    for bytes in [0, 100, 30_000, 100_000, 3_000_000] {
        visit(&store, &server.url(&format!("/{bytes}")));
        let file_bytes = store.info(cached_names(&store).last().unwrap()).unwrap().file_bytes;
        assert!(file_bytes < bytes + bytes / 50 + 20_000, "{bytes}: {file_bytes}");
    }
}

#[test]
fn a_cache_beyond_its_bound_drops_its_oldest_responses() {
    let server = Server::start(|request| {
        let bytes = if request.path() == "/large" { 300_000 } else { 50_000 };
        Reply::ok("text/plain", vec![b'x'; bytes]).header("Cache-Control", "max-age=600")
    });
    let directory = tempfile::tempdir().unwrap();
    let store = store_in(&directory);
    store.create::<u64, _>("http-unrelated", 1).unwrap();
    let bounded = FetchOptions { cache_bytes_max: 2_000_000, ..options() };
    let bytes = || -> u64 {
        let ours = cached_names(&store).into_iter().filter(|name| name != "http-unrelated");
        ours.map(|name| store.info(&name).unwrap().file_bytes).sum()
    };
    let mut removed = 0;
    for n in 0..60 {
        let fetcher = Fetcher::new(bounded.clone(), Some(store.clone()));
        page(&fetcher, &server.url(&format!("/{n}"))).unwrap();
        let done = fetcher.flush_cache();
        assert_eq!((done.written, done.problem), (1, None));
        removed += done.removed;
        assert!(bytes() <= 2_000_000, "{n}: {}", bytes());
    }
    assert!(removed > 10 && bytes() > 1_000_000, "{removed} removed, {} left", bytes());
    let is_kept = |n: usize| {
        let fetcher = Fetcher::new(offline(), Some(store.clone()));
        page(&fetcher, &server.url(&format!("/{n}"))).is_ok()
    };
    let first_kept = (0..60).find(|n| is_kept(*n)).unwrap();
    assert!((first_kept..60).all(is_kept));
    assert!(store.contains("http-unrelated").unwrap());
    // A response of more than an eighth of the cache is not stored.
    let fetcher = Fetcher::new(bounded.clone(), Some(store.clone()));
    page(&fetcher, &server.url("/large")).unwrap();
    assert_eq!(fetcher.flush_cache().written, 0);
    // A fetcher prunes once.
    let fetcher = Fetcher::new(bounded, Some(store.clone()));
    let mut rounds = Vec::new();
    for n in 100..140 {
        page(&fetcher, &server.url(&format!("/{n}"))).unwrap();
        rounds.push(fetcher.flush_cache().removed > 0);
    }
    assert!(rounds.iter().skip(1).all(|removed| !removed), "{rounds:?}");
}
