//! Tests of fetching from correct and faulty servers: redirects, limits, timeouts, types and
//! errors.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use evermap_view::ViewError;
use evermap_view::fetch::{
    Cause, FetchOptions, FetchSource, Fetcher, Kind, Origin, Purpose, Stamp, StampCheck,
};
use support::server::{Reply, Server};
use support::{cause, fetcher, file_url, image, offline, options, page, soon};
use url::Url;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_page_is_fetched_with_its_type_and_standard_headers() {
    let server = Server::start(|_| Reply::ok("text/html; charset=\"iso-8859-1\"", "<p>Hello"));
    let fetched = page(&fetcher(), &server.url("/a?b=c#d")).unwrap();
    assert_eq!(fetched.bytes, "<p>Hello");
    assert_eq!(fetched.content_type.kind, Kind::Html);
    assert_eq!(fetched.content_type.charset.as_deref(), Some("iso-8859-1"));
    assert_eq!((fetched.from, fetched.status), (FetchSource::Network, Some(200)));
    assert_eq!(fetched.final_url, server.url("/a?b=c#d"));
    let asked = &server.requests()[0];
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/a?b=c"));
    assert_eq!(asked.header("user-agent"), Some(concat!("evermap/", env!("CARGO_PKG_VERSION"))));
    assert!(asked.header("accept").unwrap().starts_with("text/html"));
    assert_eq!(asked.header("accept-encoding"), Some("gzip, br"));
    assert!(asked.header("cookie").is_none() && asked.header("referer").is_none());
    image(&fetcher(), &server.url("/i")).unwrap();
    assert!(server.requests()[1].header("accept").unwrap().starts_with("image/"));
}

#[test]
fn bodies_of_every_framing_and_encoding_are_read() {
    let server = Server::start(|request| {
        let reply = Reply::html("<p>Hello");
        match request.path() {
            "/chunked" => reply.chunked(),
            "/close" => reply.until_close(),
            "/slow" => reply.chunked().trickle(3, Duration::from_millis(1)),
            "/gzip" => reply.body(gzip(b"<p>Hello")).header("Content-Encoding", "gzip"),
            "/gzip-chunked" => {
                reply.body(gzip(b"<p>Hello")).header("Content-Encoding", "gzip").chunked()
            }
            // "<p>Hello" as one uncompressed block.
            "/brotli" => reply.body(*b"\x8b\x03\x80<p>Hello\x03").header("Content-Encoding", "br"),
            _ => reply,
        }
    });
    let fetcher = fetcher();
    for path in ["/", "/chunked", "/close", "/slow", "/gzip", "/gzip-chunked", "/brotli"] {
        let fetched = page(&fetcher, &server.url(path)).unwrap();
        assert_eq!(fetched.bytes, "<p>Hello", "{path}");
    }
}

#[test]
fn redirects_are_followed_to_the_final_address() {
    let server = Server::start(|request| match request.path() {
        "/1" => Reply::redirect(301, "2?x=1"),
        "/2" => Reply::redirect(302, "/deep/3"),
        "/deep/3" => Reply::redirect(307, "../4#named"),
        "/4" => Reply::redirect(308, "/x"),
        "/5" => Reply::html("<p>Here"),
        _ => Reply::redirect(303, "/5"),
    });
    let fetcher = fetcher();
    let fetched = page(&fetcher, &server.url("/2#top")).unwrap();
    // The fragment of a redirect replaces the previous one.
    assert_eq!(fetched.final_url, server.url("/5#named"));
    assert_eq!(page(&fetcher, &server.url("/x#top")).unwrap().final_url, server.url("/5#top"));
    assert_eq!(fetched.bytes, "<p>Here");
}

#[test]
fn ten_redirects_are_followed_and_not_eleven() {
    let server = Server::start(|request| match request.path()[1..].parse::<u32>().unwrap() {
        0 => Reply::html("<p>Here"),
        n => Reply::redirect(302, &format!("/{}", n - 1)),
    });
    assert!(page(&fetcher(), &server.url("/10")).is_ok());
    let asked = server.requests().len();
    let error = page(&fetcher(), &server.url("/11")).unwrap_err();
    assert_eq!(server.requests().len() - asked, 11);
    let Cause::TooManyRedirects { from, to, limit } = &error.cause else { panic!("{error}") };
    assert_eq!(
        (from.as_str(), to.as_str()),
        (server.url("/11").as_str(), server.url("/0").as_str())
    );
    assert_eq!(*limit, 10);
    assert!(matches!(ViewError::from(error), ViewError::Fetch { .. }));
}

#[test]
fn a_redirect_loop_is_detected_when_it_closes() {
    let server = Server::start(|request| match request.path() {
        "/a" => Reply::redirect(302, "/b"),
        "/b" => Reply::redirect(302, "/c#other"),
        "/c" => Reply::redirect(302, "/b#again"),
        _ => Reply::redirect(302, "/self"),
    });
    let error = page(&fetcher(), &server.url("/a")).unwrap_err();
    let Cause::RedirectLoop { from, to } = &error.cause else { panic!("{error}") };
    assert_eq!(from, server.url("/a").as_str());
    assert_eq!(to, server.url("/b#again").as_str());
    assert_eq!(server.requests().len(), 3);
    assert!(matches!(cause(page(&fetcher(), &server.url("/self"))), Cause::RedirectLoop { .. }));
}

#[test]
fn no_redirect_leads_to_a_file_for_any_origin() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret.html");
    fs::write(&path, "secret").unwrap();
    let file = file_url(&path).to_string();
    for to in [file.as_str(), "ftp://127.0.0.1/x", "data:text/html,x", "http://u:p@127.0.0.1:1/"] {
        let target = to.to_string();
        let server = Server::start(move |request| match request.path() {
            "/first" => Reply::redirect(302, "/second"),
            _ => Reply::redirect(302, &target),
        });
        for origin in [Origin::File, Origin::Network, Origin::Data] {
            for path in ["/first", "/second"] {
                let fetched = fetcher().fetch(&server.url(path), origin, Purpose::Image, None);
                let error = fetched.unwrap_err();
                assert!(matches!(error.cause, Cause::Refused(_)), "{to}: {error}");
                assert!(matches!(ViewError::from(error), ViewError::Refused { .. }));
            }
        }
    }
    let server = Server::start(|_| Reply::redirect(302, "http://[bad"));
    assert!(matches!(cause(page(&fetcher(), &server.url("/"))), Cause::Broken(_)));
}

#[test]
fn a_silent_server_is_abandoned_at_the_deadline() {
    let server = Server::start(|_| Reply::never());
    let fetcher = fetcher();
    let url = server.url("/");
    let error = fetcher.fetch(&url, Origin::Network, Purpose::Page, soon(200)).unwrap_err();
    assert!(matches!(error.cause, Cause::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("raise the time limit"), "{error}");
    assert!(matches!(ViewError::from(error), ViewError::Timeout { .. }));
    // The fetcher's own timeout has the same effect. After a passed deadline, no request is sent.
    let short = FetchOptions { timeout: Duration::from_millis(200), ..options() };
    assert!(matches!(cause(page(&Fetcher::new(short, None), &url)), Cause::Timeout { .. }));
    let asked = fetcher.requests();
    let past = fetcher.fetch(&url, Origin::Network, Purpose::Page, Some(Instant::now()));
    assert!(matches!(cause(past), Cause::Timeout { .. }));
    assert_eq!(fetcher.requests(), asked);
}

#[test]
fn a_trickling_server_is_abandoned_at_the_deadline() {
    // The pauses add up to a thousand seconds, but each is shorter than any limit.
    let trickle = |reply: Reply| reply.trickle(1, Duration::from_millis(100));
    let server = Server::start(move |request| match request.path() {
        "/chunked" => trickle(Reply::ok("image/png", vec![1; 10_000]).chunked()),
        "/gzip" => {
            let noise: Vec<u8> = (0..40_000u32).map(|n| ((n * n) >> 7) as u8).collect();
            let reply = Reply::ok("image/png", gzip(&noise));
            trickle(reply.header("Content-Encoding", "gzip"))
        }
        _ => trickle(Reply::ok("image/png", vec![1; 10_000])),
    });
    for path in ["/", "/chunked", "/gzip"] {
        let url = server.url(path);
        let error = fetcher().fetch(&url, Origin::Network, Purpose::Image, soon(400)).unwrap_err();
        assert!(matches!(error.cause, Cause::Timeout { .. }), "{path}: {error}");
    }
    // Endless headers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let talking = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let error = fetcher().fetch(&url, Origin::Network, Purpose::Image, soon(300)).unwrap_err();
    assert!(matches!(error.cause, Cause::Timeout { .. } | Cause::Broken(_)), "{error}");
    talking.join().unwrap();
}

#[test]
fn a_body_beyond_the_limit_is_rejected_for_every_framing() {
    const LIMIT: u64 = 1 << 20;
    let server = Server::start(|request| {
        let zeros = Reply::ok("image/png", vec![0; 1 << 16]);
        match request.path() {
            "/announced" => zeros.repeated(1 << 16),
            "/chunked" => zeros.chunked().repeated(1 << 16),
            "/close" => zeros.until_close().repeated(1 << 16),
            "/exact" => Reply::ok("image/png", vec![0; LIMIT as usize]),
            // One or two megabytes that decompress to one or two gigabytes.
            "/bomb" => zeros.body(gzip(&vec![0; 64 << 20])).header("Content-Encoding", "gzip"),
            _ => zeros
                .body(gzip(&vec![0; 64 << 20]))
                .header("Content-Encoding", "gzip")
                .chunked()
                .repeated(1 << 10),
        }
    });
    let limited = FetchOptions { resource_bytes_max: LIMIT, ..options() };
    for path in ["/announced", "/chunked", "/close", "/bomb", "/bombs"] {
        let fetcher = Fetcher::new(limited.clone(), None);
        let error = image(&fetcher, &server.url(path)).unwrap_err();
        assert_eq!(error.cause, Cause::TooLarge { limit_bytes: LIMIT, total: false }, "{path}");
        assert!(matches!(ViewError::from(error), ViewError::TooLarge { limit_bytes: LIMIT, .. }));
    }
    let fetcher = Fetcher::new(limited, None);
    assert_eq!(image(&fetcher, &server.url("/exact")).unwrap().bytes.len() as u64, LIMIT);
}

#[test]
fn the_total_size_of_a_fetchers_reads_is_limited() {
    let server = Server::start(|_| Reply::ok("image/png", vec![0; 1000]));
    let fetcher = Fetcher::new(FetchOptions { total_bytes_max: 2500, ..options() }, None);
    assert!(image(&fetcher, &server.url("/1")).is_ok());
    assert!(image(&fetcher, &server.url("/2")).is_ok());
    let third = cause(image(&fetcher, &server.url("/3")));
    assert_eq!(third, Cause::TooLarge { limit_bytes: 2500, total: true });
}

#[test]
fn error_responses_are_pages_only_if_they_are_html() {
    let server = Server::start(|request| {
        let status = request.path()[1..4].parse().unwrap();
        match &request.path()[4..] {
            "/html" => Reply::html("<p>Oh no").status_is(status),
            "/text" => Reply::ok("text/plain", "oh no").status_is(status),
            _ => Reply::status(status),
        }
    });
    let fetcher = fetcher();
    for status in [404, 410, 500, 503, 403] {
        let shown = page(&fetcher, &server.url(&format!("/{status}/html"))).unwrap();
        assert_eq!((shown.status, shown.bytes.as_ref()), (Some(status), &b"<p>Oh no"[..]));
        for path in [format!("/{status}"), format!("/{status}/text")] {
            let error = cause(page(&fetcher, &server.url(&path)));
            assert!(matches!(error, Cause::Status { code, .. } if code == status), "{error}");
        }
        let error = image(&fetcher, &server.url(&format!("/{status}/html"))).unwrap_err();
        assert!(matches!(error.cause, Cause::Status { code, .. } if code == status), "{error}");
    }
    let not_found = ViewError::from(image(&fetcher, &server.url("/404")).unwrap_err());
    assert!(not_found.to_string().contains("404 Not Found; check the address"), "{not_found}");
    assert!(matches!(not_found, ViewError::NotFound { .. }));
    let broken = ViewError::from(image(&fetcher, &server.url("/500")).unwrap_err());
    assert!(matches!(broken, ViewError::Fetch { .. }), "{broken}");
    assert!(matches!(cause(page(&fetcher, &server.url("/204"))), Cause::Status { code: 204, .. }));
    assert!(matches!(cause(page(&fetcher, &server.url("/304"))), Cause::Status { code: 304, .. }));
    let part = page(&fetcher, &server.url("/206/text"));
    assert!(matches!(cause(part), Cause::Status { code: 206, .. }));
}

#[test]
fn only_types_that_can_be_shown_are_pages() {
    let server = Server::start(|request| {
        let kind = request.target.split_once('?').unwrap().1;
        Reply::ok(kind, "content")
    });
    let fetcher = fetcher();
    for (kind, expected) in [
        ("text/html", Kind::Html),
        ("application/xhtml+xml", Kind::Xhtml),
        ("text/xml", Kind::Xml),
        ("application/atom+xml", Kind::Xml),
        ("text/plain;charset=utf-8", Kind::Text),
        ("image/svg+xml", Kind::Svg),
        ("image/png", Kind::Image),
        ("application/json", Kind::Text),
    ] {
        let fetched = page(&fetcher, &server.url(&format!("/?{kind}"))).unwrap();
        assert_eq!(fetched.content_type.kind, expected, "{kind}");
    }
    for kind in ["application/pdf", "application/octet-stream", "font/woff2", "video/mp4"] {
        let url = server.url(&format!("/?{kind}"));
        let error = page(&fetcher, &url).unwrap_err();
        assert_eq!(error.cause, Cause::UnsupportedType { content_type: kind.to_string() });
        assert!(matches!(ViewError::from(error), ViewError::UnsupportedType { .. }));
        assert!(image(&fetcher, &url).is_ok());
    }
}

#[test]
fn an_incomplete_or_invalid_response_is_an_error() {
    let server = Server::start(|request| match request.path() {
        "/nonsense" => Reply::raw("hello, this is no HTTP\r\n\r\n"),
        "/nothing" => Reply::raw(""),
        "/short" => Reply::html("<p>This is cut").cut_at(5),
        "/short-chunks" => Reply::html("<p>This is cut").chunked().cut_at(5),
        "/bad-chunks" => Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "/headers" => Reply::html("x").header("X", &"x".repeat(100_000)),
        "/bad-gzip" => Reply::html("<p>not packed").header("Content-Encoding", "gzip"),
        "/bad-br" => Reply::html("\u{1}\u{2}\u{3}").header("Content-Encoding", "br"),
        "/cut-gzip" => {
            let packed = gzip(b"<p>Hello, this is packed");
            Reply::html("").body(&packed[..packed.len() - 12]).header("Content-Encoding", "gzip")
        }
        _ => Reply::html("x").header("Content-Encoding", "zstd"),
    });
    for path in [
        "/nonsense",
        "/nothing",
        "/short",
        "/short-chunks",
        "/bad-chunks",
        "/headers",
        "/bad-gzip",
        "/bad-br",
        "/cut-gzip",
        "/zstd",
    ] {
        let error = page(&fetcher(), &server.url(path)).unwrap_err();
        assert!(matches!(error.cause, Cause::Broken(_)), "{path}: {error:?}");
        assert!(error.to_string().contains(path) && error.to_string().contains(';'), "{error}");
        assert!(matches!(ViewError::from(error), ViewError::Fetch { .. }), "{path}");
    }
}

#[test]
fn an_unreachable_server_is_named_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let error = page(&fetcher(), &url).unwrap_err();
    assert!(matches!(error.cause, Cause::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("refused the connection; check the address"), "{error}");
    // Names of this domain never exist.
    let url = Url::parse("http://nobody.invalid/").unwrap();
    let error = page(&fetcher(), &url).unwrap_err();
    assert!(matches!(error.cause, Cause::HostNotFound { .. }), "{error:?}");
    assert!(error.to_string().contains("`nobody.invalid` not found"), "{error}");
    // The failure is not permanent, and its state is unknown without the network.
    let stamp = *error.stamp;
    assert_eq!(stamp.check(&fetcher(), None), StampCheck::Same);
    let StampCheck::Unknown(why) = stamp.check(&Fetcher::new(offline(), None), None) else {
        panic!()
    };
    assert_eq!(why, "stale, offline");
}

#[test]
fn a_connection_closed_by_the_server_is_reopened() {
    let used = std::sync::Mutex::new(std::collections::HashSet::new());
    let server = Server::start(move |request| match request.path() {
        // A second request on a used connection gets no answer.
        "/once" if !used.lock().unwrap().insert(request.connection) => Reply::raw(""),
        "/last" => Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        _ => Reply::html("ok"),
    });
    let fetcher = fetcher();
    for _ in 0..3 {
        assert_eq!(page(&fetcher, &server.url("/last")).unwrap().bytes, "ok");
    }
    assert_eq!(server.count("/last"), 3);
    let before = server.connections();
    for _ in 0..3 {
        assert_eq!(page(&fetcher, &server.url("/once")).unwrap().bytes, "ok");
    }
    assert_eq!(server.count("/once"), 5);
    assert_eq!(server.connections() - before, 3);
    // A connection that stays open is reused.
    let before = server.connections();
    for _ in 0..3 {
        page(&fetcher, &server.url("/kept")).unwrap();
    }
    assert!(server.connections() <= before + 1);
}

#[test]
fn many_threads_share_one_fetcher() {
    let server = Server::start(|request| {
        Reply::ok("text/plain", request.path().repeat(1000)).after(Duration::from_millis(5))
    });
    let fetcher = fetcher();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (fetcher, server) = (&fetcher, &server);
            scope.spawn(move || {
                for n in 0..8 {
                    let path = format!("/{thread}/{n}");
                    let fetched = page(fetcher, &server.url(&path)).unwrap();
                    assert_eq!(fetched.bytes, path.repeat(1000));
                }
            });
        }
    });
    assert_eq!(server.requests().len(), 16 * 8);
    assert_eq!(fetcher.requests(), 16 * 8);
}

#[test]
fn extreme_headers_do_not_fail_a_fetch() {
    // Extreme and invalid values of numbers in headers.
    let numbers = ["18446744073709551615", "99999999999999999999999", "-1", "", "1, 2", "x"];
    let dates = ["Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "0", "never"];
    let server = Server::start(move |request| {
        let mut numbers = request.target.split('/').skip(1).map(|n| n.parse::<usize>().unwrap());
        let mut next = || numbers.next().unwrap();
        let all = ["18446744073709551615", "99999999999999999999999", "-1", "", "1, 2", "x"];
        let dates =
            ["Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "0", "never"];
        let reply = Reply::html("ok")
            .header("Age", all[next()])
            .header("Cache-Control", &format!("max-age={}", all[next()]))
            .header("Expires", dates[next()]);
        reply.header("Date", dates[next()]).header("Last-Modified", dates[next()])
    });
    let directory = tempfile::tempdir().unwrap();
    let store = support::store_in(&directory);
    let fetcher = Fetcher::new(options(), Some(store));
    for n in 0..numbers.len() * numbers.len() * 4 {
        let (a, m) = (n % numbers.len(), n / numbers.len() % numbers.len());
        let (e, d, l) = (n % dates.len(), (n / 5) % dates.len(), (n / 7) % dates.len());
        let url = server.url(&format!("/{a}/{m}/{e}/{d}/{l}"));
        for _ in 0..2 {
            let fetched = page(&fetcher, &url).unwrap();
            assert_eq!(fetched.bytes, "ok");
            let Stamp::Http(stamp) = &fetched.stamp else { panic!() };
            let year_ns = 366 * 24 * 3600 * 1_000_000_000;
            assert!(stamp.fresh_until_ns <= stamp.fetched_ns + year_ns, "{stamp:?}");
        }
    }
}

/// Returns valid responses of all kinds.
fn samples() -> Vec<Vec<u8>> {
    let packed = gzip(b"<p>Hello, this is packed");
    let mut with_gzip = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    )
    .into_bytes();
    with_gzip.extend(packed);
    let mut samples = vec![with_gzip];
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 8\r\n\r\n<p>Hello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<p>\r\n5;x=y\r\nHello\r\n0\r\nA: b\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /sample/0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nVary: Accept\r\n\r\n",
        "HTTP/1.0 200 OK\r\nCache-Control: public, max-age=10\r\nAge: 5\r\nETag: \"1\"\r\n\r\nHello",
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2015 00:00:00 GMT\r\nLast-Modified: Thu, 01 Jan \
         2015 00:00:00 GMT\r\nExpires: Fri, 01 Jan 2016 00:00:00 GMT\r\n\r\nHello",
    ] {
        samples.push(text.as_bytes().to_vec());
    }
    samples
}

#[test]
fn arbitrary_responses_never_panic_or_block() {
    let samples = samples();
    let rounds = 60;
    let seed = support::variable("EVERMAP_SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
    println!("EVERMAP_SEED={seed}");
    let count = samples.len();
    let server = Server::start(move |request| {
        let mut numbers = request.path().split('/').skip(2).map(|n| n.parse::<u64>().unwrap_or(0));
        let mut bytes = samples[numbers.next().unwrap_or(0) as usize % samples.len()].clone();
        let mut random = numbers.next().unwrap_or(0).wrapping_add(seed).wrapping_mul(0x9e37_79b9);
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (random >> 33) as usize % below.max(1)
        };
        for _ in 0..next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] ^= 1 << next(8),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, [b'0', b'\r', b'\n', 0, 0xff, b',', b'='][next(7)]),
                _ => {
                    let piece = bytes[at..(at + next(40)).min(bytes.len())].to_vec();
                    let to = next(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        Reply::raw(bytes)
    });
    let directory = tempfile::tempdir().unwrap();
    let fetcher = Fetcher::new(options(), Some(support::store_in(&directory)));
    let (mut good, mut bad) = (0, 0);
    for round in 0..rounds {
        for sample in 0..count {
            let url = server.url(&format!("/sample/{sample}/{round}"));
            let first = page(&fetcher, &url);
            let stamp = match &first {
                Ok(fetched) => fetched.stamp.clone(),
                Err(error) => (*error.stamp).clone(),
            };
            match first {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
            let _ = stamp.check(&fetcher, None);
        }
    }
    assert!(good > rounds && bad > rounds, "{good} good, {bad} bad");
    let waited = server.requests().len();
    assert!(waited >= good + bad, "{waited}");
    assert_eq!(fetcher.flush_cache().problem, None);
}

#[test]
fn the_environments_proxy_is_used() {
    let proxy = Server::start(|_| Reply::html("<p>By proxy"));
    let address = format!("http://{}", proxy.address());
    for (name, none) in [("http_proxy", ""), ("HTTPS_PROXY", ""), ("ALL_PROXY", "")] {
        let environment = [(name, address.as_str()), ("NO_PROXY", none), ("EVERMAP_TEST", "proxy")];
        support::assert_passed(&support::child("child_fetches_by_proxy", &environment));
    }
    let through = proxy.requests();
    assert!(!through.is_empty());
    assert!(through.iter().any(|request| request.header("host") == Some("nobody.invalid")));
    let count = through.len();
    let environment = [
        ("http_proxy", address.as_str()),
        ("NO_PROXY", "nobody.invalid"),
        ("EVERMAP_TEST", "direct"),
    ];
    support::assert_passed(&support::child("child_fetches_by_proxy", &environment));
    assert_eq!(proxy.requests().len(), count);
    // A SOCKS proxy is not bypassed either.
    let socks = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("socks5://{}", socks.local_addr().unwrap());
    let greeting = std::thread::spawn(move || {
        let mut version = [0];
        socks.accept().unwrap().0.read_exact(&mut version).unwrap();
        version[0]
    });
    let environment =
        [("ALL_PROXY", address.as_str()), ("NO_PROXY", ""), ("EVERMAP_TEST", "broken")];
    support::assert_passed(&support::child("child_fetches_by_proxy", &environment));
    assert_eq!(greeting.join().unwrap(), 5);
}

#[test]
#[ignore = "runs in a child process"]
fn child_fetches_by_proxy() {
    let Some(how) = support::variable("EVERMAP_TEST") else { return };
    let fetcher = Fetcher::new(FetchOptions::default(), None);
    // An unassigned address and a nonexistent name. The error shows which host was contacted.
    let host = if how == "broken" { "192.0.2.1" } else { "nobody.invalid" };
    let url = Url::parse(&format!("http://{host}/page")).unwrap();
    let fetched = fetcher.fetch(&url, Origin::Network, Purpose::Page, soon(10_000));
    match how.as_str() {
        "direct" => assert!(matches!(cause(fetched), Cause::HostNotFound { .. })),
        "broken" => assert!(fetched.is_err()),
        _ => assert_eq!(fetched.unwrap().bytes, "<p>By proxy"),
    }
}
