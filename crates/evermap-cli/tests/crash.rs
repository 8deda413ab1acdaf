//! A killed `parse` leaves the old documents, and concurrent calls do not disturb each other.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, page};

const PARAGRAPHS: usize = 20_000;

/// Kills `parse` at times spread over its run time and a little beyond.
#[test]
fn kill_during_parse_leaves_the_old_document_or_the_new_one() {
    let place = Place::new();
    place.file("page.html", page(PARAGRAPHS, "version 0"));
    // The faster of two runs: on a busy machine the kills must not all come after the end.
    let parse = || {
        let start = Instant::now();
        place.ok(&["parse", "--force", "page.html"]);
        start.elapsed()
    };
    let whole = parse().min(parse());
    let (mut old, mut kept) = ("version 0".to_string(), 0);
    const KILLS: u32 = 24;
    for kill in 1..=KILLS {
        let new = format!("version {kill}");
        place.file("page.html", page(PARAGRAPHS, &new));
        let mut command = place.command(&["parse", "page.html"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * kill / (KILLS - 2));
        child.kill().unwrap();
        child.wait().unwrap();

        let title = place.ok(&["query", "page.html", "title", "--text", "--stale", "use"]);
        let title = title.trim_end().to_string();
        assert!(title == old || title == new, "{title} after killing the parse of {new}");
        let count = place.ok(&["query", "page.html", "p.row > b", "--count", "--stale", "use"]);
        assert_eq!(count, format!("{PARAGRAPHS}\n"), "after killing the parse of {new}");
        kept += u32::from(title == old);
        old = title;
    }
    assert!(kept > 0, "all of {KILLS} kills came too late");
    // The next writer removes everything that the killed processes left.
    place.file("page.html", page(10, "last"));
    place.ok(&["parse", "page.html"]);
    assert_eq!(place.ok(&["query", "page.html", "h1", "--text"]), "last\n");
    assert_eq!(place.ok(&["ls"]), "page.html\n");
    let left: Vec<String> = place.store_files();
    let objects = left.iter().filter(|f| f.starts_with("objects/") || f.starts_with("building/"));
    assert_eq!(objects.count(), 1, "{left:?}");
}

#[test]
fn many_processes_parse_and_query_at_once() {
    let place = Place::new();
    place.file("seed.html", page(10, "seed"));
    place.ok(&["parse", "seed.html"]);
    let names: Vec<String> = (0..8).map(|n| format!("page-{n}.html")).collect();
    for name in &names {
        place.file(name, page(2000, name));
    }
    let children: Vec<_> = names
        .iter()
        .map(|name| place.command(&["parse", name]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    for mut child in children {
        assert_eq!(place.ok(&["query", "seed.html", "p", "--count"]), "10\n");
        assert!(child.wait().unwrap().success() && Instant::now() < deadline);
    }
    for name in &names {
        assert_eq!(place.ok(&["query", name, "h1", "--text"]), format!("{name}\n"));
        assert_eq!(place.ok(&["query", name, "b", "--count"]), "2000\n");
    }
    assert_eq!(place.ok(&["ls"]).lines().count(), 9);
}

/// One of two processes that make the same store at the same time succeeds. The other one uses that
/// store, or reports that it is busy.
#[test]
fn two_processes_that_make_a_store_at_once_make_one_store() {
    for round in 0..10 {
        let place = Place::new();
        let start = |name: &str| {
            place.file(name, page(5, name));
            let mut command = place.command(&["parse", name]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut children = [start("a.html"), start("b.html")];
        let codes = children.each_mut().map(|child| child.wait().unwrap().code());
        assert!(codes.contains(&Some(0)), "round {round}: {codes:?}");
        assert!(codes.iter().all(|code| matches!(code, Some(0 | 4))), "round {round}: {codes:?}");
        for (name, code) in ["a.html", "b.html"].iter().zip(codes) {
            assert_eq!(place.run(&["info", name]).code == 0, code == Some(0), "round {round}");
        }
    }
}

/// An open document does not change when it is replaced or renamed.
#[test]
fn a_reader_keeps_its_document_while_it_is_replaced() {
    use evermap_dom::Document;
    let place = Place::new();
    place.file("page.html", page(100, "old"));
    place.ok(&["parse", "page.html"]);
    let store = evermap::Store::open(place.store()).unwrap();
    let reader = store.read::<Document>("page.html").unwrap();
    place.file("page.html", page(300, "new"));
    place.ok(&["parse", "page.html"]);
    place.ok(&["mv", "page.html", "moved"]);
    let title = reader.dom().unwrap().title();
    assert_eq!(title.as_deref(), Some("old"));
    drop(reader);
    let reader = store.read::<Document>("moved").unwrap();
    assert_eq!(reader.dom().unwrap().title().as_deref(), Some("new"));
}
