//! Tests of https: the system's certificates decide, and an error names the reason.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;
#[path = "support/tls.rs"]
mod tls;

// Imported for the module `tls`.
use support::server;

use std::fs;

use evermap_view::ViewError;
use evermap_view::fetch::{Cause, Stamp, StampCheck};
use support::server::Reply;
use support::{assert_passed, cause, fetcher, page, variable};
use tls::Authority;
use url::Url;

#[test]
fn a_server_is_trusted_if_the_systems_certificates_include_its_issuer() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    let (trusted, other) = (Authority::new("One"), Authority::new("Other"));
    fs::write(&file, &trusted.pem).unwrap();
    let server = trusted.serve("127.0.0.1", false, |request| match request.path() {
        "/" => Reply::html("<p>Secret").header("Cache-Control", "no-cache").header("ETag", "\"1\""),
        _ => Reply::redirect(302, "/"),
    });
    let upgrade = server.url("/").to_string();
    let plain = server::Server::start(move |_| Reply::redirect(301, &upgrade));
    let untrusted = other.serve("127.0.0.1", false, |_| Reply::html("x"));
    let misnamed = trusted.serve("example.org", false, |_| Reply::html("x"));
    let expired = trusted.serve("127.0.0.1", true, |_| Reply::html("x"));
    let urls = [&server, &plain, &untrusted, &misnamed, &expired].map(|s| s.url("/").to_string());
    let environment = [
        ("SSL_CERT_FILE", file.to_str().unwrap()),
        ("SSL_CERT_DIR", directory.path().to_str().unwrap()),
        ("EVERMAP_URLS", &urls.join(" ")),
    ];
    assert_passed(&support::child("child_trusts_one_authority", &environment));
    assert!(untrusted.requests().is_empty() && misnamed.requests().is_empty());
    // Connections are reused, including encrypted ones.
    assert!(server.requests().len() > server.connections());

    // A file without certificates: no server is trusted, and the error says so.
    fs::write(&file, "nonsense").unwrap();
    let empty = tempfile::tempdir().unwrap();
    let environment = [
        ("SSL_CERT_FILE", file.to_str().unwrap()),
        ("SSL_CERT_DIR", empty.path().to_str().unwrap()),
        ("EVERMAP_URLS", urls[0].as_str()),
    ];
    assert_passed(&support::child("child_trusts_no_authority", &environment));
}

fn certificate_of(
    result: Result<evermap_view::fetch::Fetched, evermap_view::fetch::FetchError>,
) -> String {
    let error = result.unwrap_err();
    let whole = error.to_string();
    assert!(whole.contains("SSL_CERT_FILE"), "{whole}");
    let Cause::Certificate(why) = error.cause.clone() else { panic!("{error:?}") };
    assert!(matches!(ViewError::from(error), ViewError::Fetch { .. }));
    why
}

#[test]
#[ignore = "runs in a child process"]
fn child_trusts_one_authority() {
    let Some(urls) = variable("EVERMAP_URLS") else { return };
    let urls: Vec<Url> = urls.split(' ').map(|url| url.parse().unwrap()).collect();
    let fetcher = fetcher();
    let fetched = page(&fetcher, &urls[0]).unwrap();
    assert_eq!(fetched.bytes, "<p>Secret");
    // Certificates are read once. Otherwise the following steps would fail for another reason.
    fs::remove_file(variable("SSL_CERT_FILE").unwrap()).unwrap();
    assert_eq!(fetched.stamp.check(&fetcher, None), StampCheck::Same);
    // From http to https, and then to the page.
    let fetched = page(&fetcher, &urls[1]).unwrap();
    assert_eq!((fetched.bytes.as_ref(), &fetched.final_url), (&b"<p>Secret"[..], &urls[0]));
    let unknown = certificate_of(page(&fetcher, &urls[2]));
    assert!(unknown.contains("its issuer is not trusted by the system"), "{unknown}");
    assert!(certificate_of(page(&fetcher, &urls[3])).contains("for another host"));
    assert!(certificate_of(page(&fetcher, &urls[4])).contains("has expired"));
    // An http server that receives a https request.
    let mut confused = urls[1].clone();
    confused.set_scheme("https").unwrap();
    let confused = cause(page(&fetcher, &confused));
    assert!(matches!(confused, Cause::Broken(_)), "{confused:?}");
    // The certificate may be trusted later.
    let stamp = *page(&fetcher, &urls[2]).unwrap_err().stamp;
    assert!(matches!(&stamp, Stamp::Missing(missing) if missing.kind == "certificate"));
    assert_eq!(stamp.check(&fetcher, None), StampCheck::Same);
}

#[test]
#[ignore = "runs in a child process"]
fn child_trusts_no_authority() {
    let Some(url) = variable("EVERMAP_URLS") else { return };
    let why = certificate_of(page(&fetcher(), &url.parse().unwrap()));
    assert!(why.contains("No CA certificates"), "{why}");
}
