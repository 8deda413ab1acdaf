//! Query results are as new as the source, or a warning says that they are not.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Stdio;

use common::{Place, Ran, set_age};

/// Returns a store with a document `page.html`.
fn place() -> Place {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html"]);
    place
}

const QUERY: [&str; 4] = ["query", "page.html", "h1", "--text"];

fn query(place: &Place, how: &str) -> Ran {
    let mut arguments = QUERY.to_vec();
    arguments.extend(["--stale", how]);
    place.run(&arguments)
}

/// Changes the source. Its size, its time stamp or both change.
fn change(place: &Place, text: &str, age_s: u64) {
    let path = place.file("page.html", text);
    set_age(&path, age_s);
}

#[test]
fn a_changed_source_is_parsed_again_before_the_query() {
    let place = place();
    for (round, text) in ["<h1>two</h1>", "<h1>six</h1>", "<h1>longer</h1>"].iter().enumerate() {
        change(&place, text, 50 - round as u64);
        let heading = &text[4..text.len() - 5];
        assert_eq!(place.ok(&QUERY).trim_end(), heading);
        assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
    }
    // If only the time stamp has changed, the new one is stored.
    let uuid = place.uuid("page.html");
    set_age(&place.path("page.html"), 20);
    assert_eq!(place.info("page.html")["source"]["standing"], "changed");
    assert_eq!(place.ok(&QUERY), "longer\n");
    assert_eq!(place.uuid("page.html"), uuid, "unchanged contents were parsed again");
    assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
}

#[test]
fn each_policy_for_stale_documents_is_applied() {
    let place = place();
    change(&place, "<h1>two</h1>", 50);
    let ran = query(&place, "use");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "one\n", ""), "{ran:?}");
    let ran = query(&place, "warn");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("page.html has changed; using the stored document"), "{ran:?}");
    let ran = query(&place, "fail");
    ran.failed(12, "has changed;");
    let ran = query(&place, "refresh");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    for how in ["use", "warn", "fail"] {
        let ran = query(&place, how);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    }
}

#[test]
fn a_missing_source_is_reported_and_the_document_stays() {
    let place = place();
    std::fs::remove_file(place.path("page.html")).unwrap();
    let ran = query(&place, "refresh");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("page.html is gone; using the stored document"), "{ran:?}");
    query(&place, "fail").failed(12, "is gone");
    assert_eq!(query(&place, "use").err, "");
    assert_eq!(place.info("page.html")["source"]["standing"], "unreachable");
}

#[test]
fn a_source_that_can_no_longer_be_parsed_is_reported_and_the_document_stays() {
    let place = Place::new();
    place.file("feed.xml", "<a><b>one</b></a>");
    place.ok(&["parse", "feed.xml"]);
    place.file("feed.xml", "<a><b>two</b>");
    let ran = place.run(&["query", "feed.xml", "b", "--text"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("cannot be parsed again") && ran.err.contains("line 1"), "{ran:?}");
}

#[test]
fn documents_without_a_source_are_never_stale() {
    let place = Place::new();
    let ran = place.run_with_input(&["parse", "-", "--name", "page.html"], b"<h1>one</h1>");
    assert_eq!(ran.code, 0, "{ran:?}");
    place.file("page.html", "<h1>another</h1>");
    assert_eq!(place.ok(&["query", "page.html", "h1", "--text", "--stale", "fail"]), "one\n");
    assert_eq!(place.info("page.html")["source"]["standing"], "none");
}

/// The file is written just before it is parsed, so its time stamp is too new to be relied on.
#[test]
fn a_source_with_a_new_time_stamp_is_compared_by_its_contents() {
    let place = Place::new();
    let path = place.path("page.html");
    std::fs::write(&path, "<h1>one</h1>").unwrap();
    place.ok(&["parse", "page.html"]);
    assert_eq!(place.ok(&QUERY), "one\n");
    // Same length, and possibly the same tick of the clock.
    std::fs::write(&path, "<h1>two</h1>").unwrap();
    assert_eq!(place.ok(&QUERY), "two\n");
    // Once the file is older, its time stamp is stored, and it is not read again.
    set_age(&path, 60);
    assert_eq!(place.ok(&QUERY), "two\n");
    assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
}

#[test]
fn queries_at_the_same_time_parse_a_changed_source_once() {
    let place = place();
    for round in 0..3 {
        let before = place.uuid("page.html");
        change(&place, &common::page(2000, &format!("v{round}")), 40 - round);
        let children: Vec<_> = (0..8)
            .map(|_| {
                let mut command = place.command(&QUERY);
                command.arg("-v").stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        let mut parsed = 0;
        for child in children {
            let ran = Ran::of(child.wait_with_output().unwrap());
            assert_eq!(
                (ran.code, ran.out.trim_end()),
                (0, format!("v{round}").as_str()),
                "{ran:?}"
            );
            parsed += ran.err.matches("parsed the source again").count();
        }
        assert_eq!(parsed, 1, "round {round}");
        assert_ne!(place.uuid("page.html"), before);
    }
}

/// The warning says that the source cannot be parsed again.
#[test]
fn a_query_in_a_read_only_store_uses_the_stored_document_and_warns() {
    let place = place();
    change(&place, "<h1>two</h1>", 50);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 77
        shift; \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]);
    command.arg(place.store()).arg(env!("CARGO_BIN_EXE_evermap"));
    command.current_dir(place.path("")).arg("--store").arg(place.store()).args(QUERY);
    let ran = match command.output().map(Ran::of) {
        Ok(ran) if ran.code != 77 && !ran.err.starts_with("unshare") => ran,
        other => {
            eprintln!("SKIPPED: this system allows no read-only mount for a test: {other:?}");
            return;
        }
    };
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("has changed and cannot be parsed again"), "{ran:?}");
}
