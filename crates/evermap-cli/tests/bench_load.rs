//! `bench load`: comparison, output, and the unchanged file.

#![allow(clippy::unwrap_used)]

mod common;

use common::Place;

const BYTES: usize = (3 << 20) + 1234;

fn place() -> (Place, Vec<u8>) {
    let place = Place::new();
    let contents: Vec<u8> = (0..BYTES).map(|at| (at * 31 % 251) as u8).collect();
    place.file("data", &contents);
    (place, contents)
}

#[test]
fn bench_load_compares_the_methods_and_does_not_change_the_file() {
    let (place, contents) = place();
    let stdout = place.ok(&["bench", "load", "data", "--rounds", "2"]);
    for part in [
        "cached, 100 % touched, 100 % written, sequential, 2 rounds",
        "mmap-populate-write",
        "takeover-on-demand",
        "automatic chose ",
        " x the time of ",
        ", the fastest method",
        " times faster than ",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let cold = place.ok(&["bench", "load", "data", "--rounds", "1", "--cold", "--written", "0"]);
    assert!(cold.contains("cold, 100 % touched, 0 % written"), "{cold}");
    assert_eq!(std::fs::read(place.path("data")).unwrap(), contents);
}

#[test]
fn bench_load_prints_all_rounds_as_json() {
    let (place, _) = place();
    let json = place.ok(&[
        "bench",
        "load",
        "data",
        "--rounds",
        "3",
        "--methods",
        "read,read-huge",
        "--touched",
        "50",
        "--written",
        "10",
        "--order",
        "random",
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["bytes"], &report["written_percent"]), (&BYTES.into(), &10.into()));
    let methods = report["methods"].as_array().unwrap();
    let names: Vec<&str> = methods.iter().map(|cell| cell["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["automatic", "read", "read-huge"]);
    for cell in methods {
        let runs = cell["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3, "{cell}");
        for run in runs {
            assert!(run["finish_s"].as_f64() >= run["first_use_s"].as_f64(), "{run}");
            assert_eq!(run["checksum"], methods[0]["runs"][0]["checksum"]);
        }
    }
}

#[test]
fn bench_load_names_the_methods_that_cannot_load_and_the_reasons() {
    let (place, _) = place();
    let stdout = place.ok(&[
        "bench",
        "load",
        "data",
        "--rounds",
        "1",
        "--changing",
        "--methods",
        "mmap,read",
    ]);
    assert!(stdout.contains("mmap: cannot load") && stdout.contains("may_map"), "{stdout}");
    place.fails(2, "unknown method", &["bench", "load", "data", "--methods", "mnap"]);
    let ran = place.run(&["bench", "load", "nothing"]);
    assert!(ran.code != 0 && ran.err.contains("check the name"), "{ran:?}");
    place.file("empty", "");
    assert!(place.ok(&["bench", "load", "empty", "--rounds", "1"]).contains("read"));
}

#[test]
fn benchmarks_export_their_times_and_end_with_a_sentence() {
    let (place, _) = place();
    let exports = ["--export-json", "t.json", "--export-markdown", "t.md", "--export-csv", "t.csv"];
    let call = ["bench", "load", "data", "--rounds", "2", "--methods", "read,read-huge"];
    let stdout = place.ok(&[&call[..], &exports].concat());
    let last = stdout.lines().last().unwrap();
    assert!(last.contains(" ran ") && last.contains(" times faster than "), "{stdout}");
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let times: serde_json::Value = serde_json::from_str(&read("t.json")).unwrap();
    let names: Vec<_> =
        times.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["automatic", "read", "read-huge"]);
    assert!(times[0]["median_s"].as_f64() > Some(0.0) && times[0]["rounds"] == 2, "{times}");
    assert_eq!((read("t.md").lines().count(), read("t.csv").lines().count()), (5, 4));
    // An unwritable file is an error before the measurement.
    place.fails(3, "no/t.csv", &[&call[..], &["--export-csv", "no/t.csv"]].concat());
    let sizes = ["bench", "transfer", "--sizes", "4K,8K", "--engines", "read-write,sendfile"];
    let stdout = place.ok(&sizes);
    let compared = stdout.lines().filter(|line| line.contains(" times faster than ")).count();
    assert_eq!(compared, 2, "{stdout}");
}
