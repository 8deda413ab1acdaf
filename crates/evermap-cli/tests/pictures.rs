//! `map` and `stats`, as a user runs them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, json_lines};
use evermap::{PVec, Store};
use serde_json::Value;

/// Makes a store with an object of known blocks: 100 of 64 bytes, 3 of 1,000, one of 200,000.
fn with_blocks() -> Place {
    let place = Place::new();
    let store = Store::create_new(place.store()).expect("a store");
    store.create_raw("heap <&> \"one\"").expect("an object");
    let mut session = store.write_raw("heap <&> \"one\"").expect("a session");
    for (count, bytes) in [(100, 64), (3, 1000), (1, 200_000)] {
        for _ in 0..count {
            let block = session.heap().allocate(bytes, 16).expect("a block");
            // SAFETY: the block was just allocated with that many bytes.
            unsafe { block.as_ptr().write_bytes(1, bytes) };
        }
    }
    session.commit().expect("a commit");
    session.close().expect("a close");
    place
}

const NAME: &str = "heap <&> \"one\"";

#[test]
fn an_svg_picture_is_well_formed_and_shows_every_cell_and_size() {
    let place = with_blocks();
    let map: Value = json_lines(&place.ok(&["map", NAME, "--json"])).remove(0);
    let pages: u64 = map["regions"]
        .as_array()
        .expect("regions")
        .iter()
        .map(|region| region["length_bytes"].as_u64().expect("a length") / 4096)
        .sum();
    assert_eq!(place.ok(&["map", NAME, "--svg", "heap.svg"]), "");
    let svg = std::fs::read_to_string(place.path("heap.svg")).expect("the picture");
    let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
    let of_class = |class: &str| {
        let has = |n: &roxmltree::Node<'_, '_>| n.attribute("class") == Some(class);
        document.descendants().filter(has).count()
    };
    // The object is small enough that each page is a cell.
    assert_eq!(of_class("cell") as u64, pages);
    // Two block sizes, large blocks, metadata, free.
    assert_eq!(of_class("entry"), 5);
    let texts: Vec<String> = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .filter_map(|node| node.text().map(str::to_string))
        .collect();
    for wanted in [NAME, "One cell: 4 KiB", "64 bytes", "100 of 1,024", "3 of 64", "200.0 kB"] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
    assert_eq!(place.ok(&["map", NAME, "--svg", "-"]), svg, "the same on standard output");
    let wide = place.ok(&["map", NAME, "--svg", "-", "--wide"]);
    assert!(wide.contains("width=\"1900\""), "{}", &wide[..100]);
    place.fails(3, "no object `no such`", &["map", "no such", "--svg", "-"]);
    place.fails(
        3,
        "directory no/such does not exist",
        &["map", NAME, "--svg", "no/such/place.svg"],
    );
}

#[test]
fn map_json_has_runs_of_equal_chunks_and_sums() {
    let place = with_blocks();
    let map = json_lines(&place.ok(&["map", NAME, "--json"])).remove(0);
    assert_eq!(
        (&map["name"], &map["blocks"], &map["commit"]),
        (&NAME.into(), &104.into(), &2.into())
    );
    let runs: Vec<&Value> = map["regions"]
        .as_array()
        .expect("regions")
        .iter()
        .flat_map(|region| region["chunks"].as_array().expect("chunks"))
        .collect();
    let of = |usage: &str, block: Value| {
        let found = runs.iter().find(|run| run["use"] == usage && run["block_bytes"] == block);
        found.unwrap_or_else(|| panic!("no {usage} of {block}: {runs:?}"))
    };
    assert_eq!(of("slab", 64.into())["allocated_bytes"], 6400);
    assert_eq!(of("slab", 1024.into())["allocated_bytes"], 3072);
    let large = of("large", Value::Null);
    assert_eq!((&large["count"], &large["allocated_bytes"]), (&4.into(), &200_000.into()));
}

#[test]
fn a_terminal_picture_uses_letters_or_colours_and_all_columns() {
    let place = with_blocks();
    let letters = place.ok(&["map", NAME]);
    let lines: Vec<&str> = letters.lines().collect();
    assert!(lines[0].starts_with(&format!("{NAME}: commit 2, file ")), "{letters}");
    assert!(lines[2..].iter().all(|line| line.chars().count() <= 80), "{letters}");
    // Metadata, two pages of small blocks, one of medium blocks, 49 of the large block.
    let cells: String = lines[3..].iter().take_while(|line| !line.is_empty()).copied().collect();
    let order = ["#", "A", "B", "++++"].map(|sign| cells.find(sign));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{letters}");
    assert_eq!(cells.matches(['+', '=']).count(), 49, "{letters}");
    assert!(letters.contains("a   64 bytes       100 of 1,024 blocks, 6.40 kB"), "{letters}");
    assert!(!letters.contains('\x1b'));

    let mut command = place.command(&["map", NAME]);
    command.env("CLICOLOR_FORCE", "1").env("COLORTERM", "truecolor");
    let colours = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    assert!(colours.contains("\x1b[38;2;") && colours.contains('▀'), "{colours}");
    command.env_remove("COLORTERM");
    let few = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    assert!(few.contains("\x1b[38;5;") && !few.contains("\x1b[38;2;"), "{few}");
    command.arg("--no-color");
    let none = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    assert_eq!(none, letters);
}

#[test]
fn stats_are_shown_once_or_as_json() {
    let place = with_blocks();
    let store = Store::open(place.store()).expect("the store");
    store.create::<u64, _>("counter", 7).expect("an object");
    let words = place.ok(&["stats", NAME, "counter"]);
    let lines: Vec<&str> = words.lines().collect();
    assert!(lines[0].trim_start().starts_with("COMMIT"), "{words}");
    assert!(lines[1].ends_with(NAME) && lines[2].ends_with("counter"), "{words}");
    assert!(words.contains("\n   64      1     100  1,024  6.40 kB\n"), "{words}");
    let session = store.write::<u64>("counter").expect("a session");
    let samples = json_lines(&place.ok(&["stats", "--json", NAME, "counter"]));
    assert_eq!((&samples[0]["blocks"], &samples[0]["writer"]), (&104.into(), &false.into()));
    assert_eq!((&samples[1]["blocks"], &samples[1]["writer"]), (&0.into(), &true.into()));
    assert_eq!(samples[1]["commits_since"], Value::Null);
    drop(session);
    place.fails(3, "no object `no such`", &["stats", NAME, "no such"]);
    place.fails(2, "between 0.01 and 86400", &["stats", "--watch=0", NAME]);
}

#[test]
fn watch_shows_commits_removal_and_replacement_by_other_sessions() {
    let place = Place::new();
    let store = Store::create_new(place.store()).expect("a store");
    store.create::<PVec<u64>, _>("v", [0; 1000]).expect("an object");
    let mut command = place.command(&["stats", "--watch=0.02", "--json", "v"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut samples =
        lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    let started = Instant::now();
    let mut until = |what: &str, wanted: &dyn Fn(&Value) -> bool| loop {
        let sample = samples.next().unwrap_or_else(|| panic!("the watch ended before {what}"));
        if wanted(&sample) {
            return sample;
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "timeout waiting for {what}: {sample}"
        );
    };
    until("the first sample", &|sample| sample["commit"] == 1);
    let mut session = store.write::<PVec<u64>>("v").expect("a session");
    for commit in 2..6u64 {
        session.root_mut().push(commit).expect("room");
        session.commit().expect("a commit");
        let sample = until("a commit", &|sample| sample["commit"] == commit);
        assert_eq!(sample["commits_since"], 1, "{sample}");
        assert!(sample["allocated_bytes_since"].is_i64(), "{sample}");
        assert_eq!(sample["writer"], true);
    }
    session.close().expect("a close");
    until("the end of the session", &|sample| sample["writer"] == false);
    store.remove("v").expect("it is removed");
    let gone = until("the removal", &|sample| sample.get("gone").is_some());
    assert!(gone["gone"].as_str().expect("why").contains("no object `v`"), "{gone}");
    store.create::<PVec<u64>, _>("v", [1; 10]).expect("another object");
    let sample = until("the replacement", &|sample| sample["replaced"] == true);
    assert_eq!((&sample["commit"], &sample["commits_since"]), (&1.into(), &Value::Null));
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
}
