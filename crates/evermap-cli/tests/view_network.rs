//! Painting pages of servers: requests, missing servers and resources, and no way to local files.
#![cfg(feature = "view")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/pages.rs"]
mod pages;
#[path = "../../evermap-view/tests/support/server.rs"]
mod server;

use std::path::Path;

use common::Place;
use pages::{bytes, is_warm, own_pages, reasons, render};
use server::{Reply, Server};

#[test]
fn a_fresh_page_sends_no_request_and_a_stale_one_revalidates() {
    let server = Server::start(|request| match request.path() {
        "/fresh.html" => Reply::html("<p>fresh").header("Cache-Control", "max-age=3600"),
        "/stale.html" if request.knows("\"v1\"") => Reply::not_modified().header("ETag", "\"v1\""),
        "/stale.html" => {
            Reply::html("<p>stale").header("ETag", "\"v1\"").header("Cache-Control", "no-cache")
        }
        "/secret.html" => Reply::html("<p>secret").header("Cache-Control", "no-store"),
        _ => Reply::status(404),
    });
    let place = Place::new();
    let fresh = server.url("/fresh.html");
    assert!(!is_warm(&render(&place, fresh.as_str(), "a.png", &[])));
    assert!(is_warm(&render(&place, fresh.as_str(), "b.png", &[])));
    assert_eq!(server.count("/fresh.html"), 1, "a fresh response was requested");
    let stale = server.url("/stale.html");
    assert!(!is_warm(&render(&place, stale.as_str(), "a.png", &[])));
    assert!(is_warm(&render(&place, stale.as_str(), "b.png", &[])));
    assert_eq!(server.count("/stale.html"), 2, "a stale response is revalidated once");
    let secret = server.url("/secret.html");
    for _ in 0..2 {
        assert!(!is_warm(&render(&place, secret.as_str(), "a.png", &[])));
    }
    assert!(!is_warm(&render(&place, fresh.as_str(), "a.png", &["--reload"])));
    assert_eq!(server.count("/fresh.html"), 2, "a reload revalidates");
}

#[test]
fn a_stored_page_is_shown_without_its_server() {
    let server = Server::start(|_| Reply::html("<p>here").header("Cache-Control", "no-cache"));
    let url = server.url("/page.html");
    let place = Place::new();
    render(&place, url.as_str(), "a.png", &[]);
    drop(server);
    let report = render(&place, url.as_str(), "b.png", &[]);
    assert!(is_warm(&report), "{}", reasons(&report));
    assert!(
        reasons(&report).contains("page.html"),
        "the reason does not name the page: {}",
        reasons(&report)
    );
    let never_seen = url.join("/other.html").unwrap();
    let ran = place.run(&["render", never_seen.as_str(), "-o", "c.png"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    assert!(ran.err.contains("other.html") && !place.path("c.png").exists());
}

#[test]
fn a_page_from_the_network_reads_no_local_file() {
    let place = Place::new();
    let secret = place.file("secret.css", "body { background: #f00 }");
    place.file("secret.png", std::fs::read(own_pages().join("picture.png")).unwrap());
    let (style, picture) = (url_of(&secret), url_of(&place.path("secret.png")));
    let path = place.path("secret.png").display().to_string();
    // SVG in the page, as a picture, as a picture in a `data:` URL, in a frame, and in SVG in
    // SVG.
    let svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='50' height='50'><image href='{path}' width='50' height='50'/></svg>"
    );
    let nested = svg.replace(
        &path,
        &format!("data:image/svg+xml,{}", svg.replace('#', "%23").replace('\'', "&quot;")),
    );
    let page = format!(
        "<base href='{style}'><link rel=stylesheet href='{style}'><link rel=stylesheet href=secret.css>
         <style>@import url({style}); @font-face {{ font-family: x; src: url({style}) }} p {{ font-family: x, serif }}</style>
         <link rel=stylesheet href=/redirect.css><p>text<img src='{picture}' width=100 height=100><img src=/redirect.png width=9 height=9>
         {svg} <img src=/picture.svg width=50 height=50> <img src=\"data:image/svg+xml,{svg}\" width=50 height=50>
         <img src=/nested.svg width=50 height=50> <img src=/as-style.css width=50 height=50>
         <iframe src=/frame.html width=60 height=60></iframe><iframe src='{style}' width=60 height=60></iframe>"
    );
    let empty = "<svg xmlns='http://www.w3.org/2000/svg' width='50' height='50'></svg>";
    let clean = format!(
        "<style>p {{ font-family: x, serif }}</style><p>text<img width=100 height=100><img width=9 height=9>
         {empty} <img src=/empty.svg width=50 height=50> <img src=/empty.svg width=50 height=50>
         <img src=/empty.svg width=50 height=50> <img width=50 height=50>
         <iframe src=/empty-frame.html width=60 height=60></iframe><iframe width=60 height=60></iframe>"
    );
    let redirects = (style.clone(), picture.clone());
    let server = Server::start(move |request| match request.path() {
        "/page.html" => Reply::html(&page),
        "/clean.html" => Reply::html(&clean),
        "/picture.svg" => Reply::ok("image/svg+xml", svg.clone()),
        "/nested.svg" => Reply::ok("image/svg+xml", nested.clone()),
        "/as-style.css" => Reply::ok("text/css", svg.clone()),
        "/frame.html" => Reply::html(&svg),
        "/empty.svg" => Reply::ok("image/svg+xml", empty),
        "/empty-frame.html" => Reply::html(empty),
        "/redirect.css" => Reply::redirect(302, &redirects.0),
        "/redirect.png" => Reply::redirect(302, &redirects.1),
        _ => Reply::status(404),
    });
    let attacked =
        render(&place, server.url("/page.html").as_str(), "attacked.png", &["--no-keep"]);
    render(&place, server.url("/clean.html").as_str(), "clean.png", &["--no-keep"]);
    assert!(reasons(&attacked).contains("secret.css"), "{}", reasons(&attacked));
    assert_eq!(
        bytes(&place, "attacked.png"),
        bytes(&place, "clean.png"),
        "nothing of the files is seen"
    );
    // A redirect cannot lead to a file either.
    let target = style;
    let server = Server::start(move |_| Reply::redirect(302, &target));
    let ran = place.run(&["render", server.url("/").as_str(), "-o", "redirected.png"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(!place.path("redirected.png").exists());
}

fn url_of(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn a_resource_that_never_arrives_does_not_stop_the_page() {
    let server = Server::start(|request| match request.path() {
        "/page.html" => Reply::html(
            "<link rel=stylesheet href=/never.css><p>Here<img src=/never.png width=20 height=20>",
        )
        .header("Cache-Control", "max-age=3600"),
        _ => Reply::never(),
    });
    let place = Place::new();
    let report = render(&place, server.url("/page.html").as_str(), "a.png", &[]);
    assert!(reasons(&report).contains("did not arrive in time"), "{}", reasons(&report));
    assert_eq!(report["missing"], 2);
    // The next visit does not wait for it.
    let report = render(&place, server.url("/page.html").as_str(), "b.png", &["--offline"]);
    assert!(is_warm(&report) && report["missing"] == 2, "{}", reasons(&report));
    assert!(bytes(&place, "a.png") == bytes(&place, "b.png"));
}

#[test]
fn errors_of_servers_are_reported_with_their_names() {
    let server = Server::start(|request| match request.path() {
        "/a" => Reply::redirect(302, "/b"),
        "/b" => Reply::redirect(302, "/a"),
        "/program" => Reply::ok("application/octet-stream", b"\x7fELF\0\0\0".to_vec()),
        "/large" => Reply::html("<p>large enough").repeated(400_000),
        _ => Reply::status(404),
    });
    let place = Place::new();
    for (path, code, expected) in [
        ("/a", 11, "loop"),
        ("/program", 11, "octet-stream"),
        ("/large", 11, "--limit"),
        ("/nothing", 3, "404"),
    ] {
        let url = server.url(path);
        let ran = place.run(&["render", url.as_str(), "-o", "a.png", "--limit", "4"]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains(expected) && ran.err.contains(path), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    let ran = place.run(&["render", "http://host.invalid/page", "-o", "a.png"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    assert!(ran.err.contains("host.invalid"), "{ran:?}");
    assert!(!place.path("a.png").exists());
}
