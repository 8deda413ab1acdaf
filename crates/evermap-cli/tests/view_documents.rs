//! Documents of the store as pages: they are found by the same names as in other verbs, follow
//! their sources, and are distinct from the pages of their files.
#![cfg(feature = "view")]
#![allow(clippy::unwrap_used)]

mod common;

use common::Place;
use serde_json::Value;

/// Renders a page. Returns its picture and the command's report.
fn render(place: &Place, page: &str, more: &[&str]) -> (Vec<u8>, Value) {
    let mut arguments = vec!["render", page, "-o", "picture.png", "--json"];
    arguments.extend(more);
    let ran = place.run(&arguments);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}: {ran:?}");
    (std::fs::read(place.path("picture.png")).unwrap(), serde_json::from_str(&ran.out).unwrap())
}

fn is_warm(report: &Value) -> bool {
    report["warm"].as_bool().unwrap()
}

/// Makes two documents with the same base name, and another one.
fn place_with_documents() -> Place {
    let place = Place::new();
    for (file, text) in [
        ("a/index.html", "<h1>first</h1>"),
        ("b/index.html", "<h1>second</h1>"),
        ("b/deep/other.html", "<h1>other</h1>"),
    ] {
        std::fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
        place.file(file, text);
        place.ok(&["parse", file]);
    }
    place
}

#[test]
fn documents_have_the_same_names_as_in_the_other_verbs() {
    let place = place_with_documents();
    let right = render(&place, "b/deep/other.html", &[]).0;
    let first = render(&place, "./a/index.html", &[]).0;
    assert!(first != right);
    std::fs::create_dir(place.path("away")).unwrap();
    for folder in ["a", "b"] {
        std::fs::rename(place.path(folder), place.path("away").join(folder)).unwrap();
    }
    let more = ["--stale", "use", "--no-keep"];
    for name in ["other.html", "deep/other.html", "./b/deep/other.html", "a/../b/deep/other.html"] {
        assert!(render(&place, name, &more).0 == right, "{name}");
        let ran = place.run(&["prefetch", name, "--for", "render", "--stale", "use"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}: {ran:?}");
    }
    let absolute = place.path("a/index.html");
    assert!(render(&place, absolute.to_str().unwrap(), &more).0 == first);
    place.fails(
        2,
        "matches 2 documents: `a/index.html`, `b/index.html`",
        &["render", "index.html", "--timing"],
    );
    let ran = place.run(&["prefetch", "index.html", "--for", "render"]);
    assert!(ran.code == 11 && ran.out.contains("matches 2 documents"), "{ran:?}");
    place.fails(3, "no page `ther.html`", &["render", "ther.html", "--timing"]);
}

#[test]
fn documents_with_any_name_have_an_address() {
    let place = Place::new();
    std::fs::create_dir(place.path("a b")).unwrap();
    place.file("a b/\u{e4}.html", "<h1>first</h1>");
    place.ok(&["parse", "a b/\u{e4}.html"]);
    let right = render(&place, "a b/\u{e4}.html", &["--no-keep"]).0;
    for address in ["evermap:a b/\u{e4}.html", "evermap:a%20b/%C3%A4.html"] {
        assert!(render(&place, address, &["--no-keep"]).0 == right, "{address}");
    }
    place.fails(3, "no such object in the store", &["render", "evermap:a", "--timing"]);
}

#[test]
fn the_policy_for_stale_documents_is_applied() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html", "--name", "letter"]);
    let old = render(&place, "letter", &[]).0;
    assert!(is_warm(&render(&place, "letter", &[]).1));
    place.file("page.html", "<h1>changed</h1>");
    let new = render(&place, "page.html", &["--no-keep"]).0;
    assert!(old != new);

    let (picture, report) = render(&place, "letter", &["--stale", "use"]);
    assert!(picture == old && is_warm(&report), "{report}");
    place.fails(12, "has changed", &["render", "letter", "--timing", "--stale", "fail"]);
    let ran = place.run(&["render", "letter", "--timing", "--stale", "warn"]);
    assert!(ran.code == 0 && ran.err.contains("has changed"), "{ran:?}");
    let ran = place.run(&["prefetch", "letter", "--for", "render", "--stale", "fail"]);
    assert!(ran.code == 11 && ran.out.contains("has changed"), "{ran:?}");

    let (picture, report) = render(&place, "letter", &[]);
    assert!(picture == new && !is_warm(&report), "{report}");
    assert!(is_warm(&render(&place, "letter", &[]).1));
    assert_eq!(place.ok(&["query", "letter", "h1", "--text"]), "changed\n");

    place.file("page.html", "<h1>and again</h1>");
    place.ok(&["prefetch", "letter", "--for", "render"]);
    let (picture, report) = render(&place, "letter", &[]);
    assert!(picture != new && is_warm(&report), "{report}");

    std::fs::remove_file(place.path("page.html")).unwrap();
    let ran = place.run(&["render", "letter", "--timing"]);
    assert!(ran.code == 0 && ran.err.contains("is gone"), "{ran:?}");
}

#[test]
fn a_document_and_its_file_are_two_pages() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html", "--name", "letter"]);
    let old = render(&place, "letter", &[]).0;
    let (picture, report) = render(&place, "page.html", &[]);
    assert!(picture == old && !is_warm(&report), "{report}");
    place.file("page.html", "<h1>changed</h1>");
    let (new, report) = render(&place, "page.html", &[]);
    assert!(new != old && !is_warm(&report), "{report}");
    let (picture, report) = render(&place, "letter", &["--stale", "use"]);
    assert!(picture == old && is_warm(&report), "{report}");
    // The document's own name selects the stored page of the document.
    let names = place.ok(&["ls"]);
    let pictures: Vec<bool> = names
        .lines()
        .filter(|name| name.starts_with("page-") && name.contains("1024x768"))
        .map(|name| {
            let (picture, report) = render(&place, name, &["--stale", "use"]);
            assert!(is_warm(&report), "{name}: {report}");
            assert!(picture == old || picture == new, "{name}");
            picture == old
        })
        .collect();
    assert!(pictures.len() == 2 && pictures[0] != pictures[1], "{names}");
    // A new document with the same name.
    place.ok(&["rm", "letter"]);
    place.ok(&["parse", "page.html", "--name", "letter"]);
    let (picture, report) = render(&place, "letter", &[]);
    assert!(picture == new && !is_warm(&report), "{report}");
}

#[test]
fn a_page_laid_out_from_stored_tables_is_laid_out_again_if_its_file_changes() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    let old = render(&place, "page.html", &[]).0;
    assert!(render(&place, "page.html", &["--layers", "a"]).0 == old);
    assert!(is_warm(&render(&place, "page.html", &[]).1));
    place.file("page.html", "<h1>changed</h1>");
    let (new, report) = render(&place, "page.html", &[]);
    assert!(new != old && !is_warm(&report), "{report}");
    place.file("page.html", "<h1>and again</h1>");
    let third = render(&place, "page.html", &["--layers", "a"]).0;
    assert!(third != new, "the page was laid out from tables of another file");
    let (picture, report) = render(&place, "page.html", &[]);
    assert!(picture == third && is_warm(&report), "{report}");
}
