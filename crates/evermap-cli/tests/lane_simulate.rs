//! `lane simulate`: output of runs, sweeps, fits and the published study, and errors.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::Place;
use serde_json::Value;

const SMALL: [&str; 4] = ["--frames", "30", "--set", "references=800"];

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_is_printed_as_text_and_json_and_drawn() {
    let place = Place::new();
    let run = [&["lane", "simulate", "run"][..], &SMALL].concat();
    let stdout = place.ok(&run);
    for part in
        ["bahn2019: 30 frames, blocking I/O on nand, seed 1", "missed", "utilisation  100.0 %"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let json = place.ok(&[&run[..], &["--json", "--svg", "run.svg"]].concat());
    let report = lines(&json);
    assert_eq!(report.len(), 31);
    assert_eq!(report[0]["frame"], 0);
    let missed = report[..30].iter().filter(|line| line["is_missed"] == true).count();
    assert_eq!(report[30]["summary"]["missed"], missed);
    let drawn = fs::read_to_string(place.path("run.svg")).unwrap();
    let drawn = roxmltree::Document::parse(&drawn).unwrap();
    assert!(
        drawn.descendants().any(|node| node.text().is_some_and(|text| text.contains("deadline")))
    );
    assert_eq!(json, place.ok(&[&run[..], &["--json", "--seed", "1"]].concat()), "the same seed");
    assert_ne!(json, place.ok(&[&run[..], &["--json", "--seed", "2"]].concat()));
}

#[test]
fn options_change_the_simulation() {
    let place = Place::new();
    let summary = |more: &[&str]| {
        let run = [&["lane", "simulate", "run", "--json"][..], &SMALL, more].concat();
        lines(&place.ok(&run)).pop().unwrap()
    };
    let kept = summary(&["--mode", "nonblocking", "--device", "hdd", "--wait", "50"]);
    assert_eq!((&kept["mode"], &kept["device"]), (&"nonblocking".into(), &"hdd".into()));
    assert_eq!(kept["summary"]["wait_ms_mean"], 0.0);
    assert!(kept["summary"]["utilisation_percent"].as_f64().unwrap() < 60.0);
    let full = summary(&["--capacity", "100"]);
    assert_eq!(full["summary"]["requests_mean"], 0.0);
    let measured = summary(&["--profile", "measured", "--set", "references=8"]);
    assert_eq!(measured["device"], "virtio");
}

#[test]
fn a_printed_profile_can_be_used_as_input() {
    let place = Place::new();
    let listed = place.ok(&["lane", "simulate", "profile"]);
    assert!(listed.contains("bahn2019: ") && listed.contains("measured: "), "{listed}");
    let text = place.ok(&["lane", "simulate", "profile", "measured"]);
    place.file("mine.toml", text.replace("name = \"measured\"", "name = \"mine\""));
    let stdout = place.ok(&["lane", "simulate", "run", "--profile", "mine.toml"]);
    assert!(stdout.starts_with("mine: 150 frames, blocking I/O on virtio"), "{stdout}");
    let again = place.ok(&["lane", "simulate", "profile", "mine.toml"]);
    assert!(again.contains("name = \"mine\"") && again.contains("[devices.virtio]"), "{again}");
}

#[test]
fn a_sweep_prints_a_row_for_each_point_as_text_values_and_json() {
    let place = Place::new();
    let sweep =
        ["lane", "simulate", "sweep", "--over", "capacity=0..100:50", "--over", "wait=0,20"];
    let sweep = [&sweep[..], &SMALL, &["--mode", "blocking", "--mode", "nonblocking"]].concat();
    let stdout = place.ok(&[&sweep[..], &["--svg", "sweep.svg", "--seeds", "2"]].concat());
    assert_eq!(stdout.lines().count(), 13, "{stdout}");
    assert!(stdout.contains("capacity_percent, wait_percent"), "{stdout}");
    assert!(fs::read_to_string(place.path("sweep.svg")).unwrap().contains("io.wait_percent 20"));
    assert_eq!(place.ok(&[&sweep[..], &["--csv"]].concat()).lines().count(), 13);
    let rows = lines(&place.ok(&[&sweep[..], &["--json"]].concat()));
    assert_eq!(rows.len(), 12);
    assert_eq!(rows[5]["at"], serde_json::json!([100.0, 20.0]));
    assert_eq!(rows[5]["missed_percent"], 0.0);
}

#[test]
fn the_study_is_reproduced_in_a_directory() {
    let place = Place::new();
    let reproduce =
        ["lane", "simulate", "reproduce", "bahn2019", "--seeds", "2", "--to", "a/figures"];
    let stdout = place.ok(&reproduce);
    for part in ["published", "cannot be matched", "fitted (7)", "2 seeds"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    for figure in 4..=7 {
        for kind in ["svg", "csv"] {
            let path = place.path(&format!("a/figures/figure{figure}.{kind}"));
            assert!(fs::metadata(&path).unwrap().len() > 100, "{}", path.display());
        }
    }
    let rows = lines(&place.ok(&[&reproduce[..], &["--json"]].concat()));
    assert!(rows.iter().any(|row| row["paper"] == 78.0 && row["role"] == "fitted"));
    place.file("taken", "");
    let refused = ["lane", "simulate", "reproduce", "bahn2019", "--to", "taken/figures"];
    assert_ne!(place.run(&refused).code, 0);
}

#[test]
fn a_fit_prints_its_parameters_and_writes_a_profile() {
    let place = Place::new();
    place.file(
        "targets.toml",
        "profile = 'bahn2019'\n[[free]]\nparameter = 'frames.decode_ms_mean'\nfrom = 1\nto = 40\n\
         [[target]]\nname = 'misses'\nmeasure = 'missed_percent'\nvalue = 20\n\
         at = { 'frames.count' = 20, 'frames.references_mean' = 500 }\n",
    );
    let fit = ["lane", "simulate", "fit", "--targets", "targets.toml", "--steps", "40"];
    let stdout = place.ok(&[&fit[..], &["--to", "fitted.toml"]].concat());
    assert!(stdout.contains("frames.decode_ms_mean") && stdout.contains("misses"), "{stdout}");
    let report = &lines(&place.ok(&[&fit[..], &["--json"]].concat()))[0];
    assert!(report["score"].as_f64().unwrap() < report["score_before"].as_f64().unwrap());
    let run = place.ok(&["lane", "simulate", "run", "--profile", "fitted.toml"]);
    assert!(run.starts_with("bahn2019-fitted"), "{run}");
}

#[test]
fn a_trace_determines_the_simulated_reads() {
    let place = Place::new();
    let line = |at_ms: u64, offset: u64| {
        format!(
            "{{\"t\":{},\"op\":\"read\",\"file\":\"clip\",\"off\":{offset},\"len\":8192}}\n",
            at_ms * 1_000_000
        )
    };
    let text: String = (0..10).map(|n| line(n * 42, n * 8_192)).collect();
    place.file("player.jsonl", format!("{{\"evermap-trace\":1}}\n{text}"));
    let run = ["lane", "simulate", "run", "--trace", "player.jsonl", "--capacity", "0"];
    let stdout = place.ok(&run);
    assert!(stdout.contains("a trace of 20 pages"), "{stdout}");
    let summary = lines(&place.ok(&[&run[..], &["--json"]].concat())).pop().unwrap();
    assert_eq!(summary["summary"]["frames"], 10);
    assert!(place.ok(&[&run[..], &["--files", "cl*"]].concat()).contains("20 pages"));
    let none = place.run(&[&run[..], &["--files", "*.mkv"]].concat());
    assert!(none.err.contains("no such reads"), "{}", none.err);
}

#[test]
fn wrong_usage_is_reported_with_a_remedy() {
    let place = Place::new();
    place.file(
        "bad.toml",
        "name = 'x'\nabout = 'y'\nmode = 'blocking'\ndevice = 'nand'\n[cache]\nsize = 3\n",
    );
    place.file("no.toml", "name = [");
    for (arguments, code, expected) in [
        (&["run", "--profile", "bahn2091"][..], 3, "there are `bahn2019` and `measured`"),
        (&["run", "--profile", "none.toml"], 3, "none.toml"),
        (&["run", "--profile", "/dev/zero"], 8, "longer than 1048576 bytes, the most allowed"),
        (&["run", "--set", "devices.pcram.block_pages=64", "--device", "pcram"], 2, "program_us"),
        (&["run", "--profile", "bad.toml"], 2, "bad.toml: there is no parameter `cache.size`"),
        (&["run", "--profile", "no.toml"], 8, "no.toml"),
        (&["run", "--set", "capacty=3"], 2, "capacty"),
        (&["run", "--set", "capacity"], 2, "KEY=VALUE"),
        (&["run", "--capacity", "101"], 2, "cache.capacity_percent"),
        (&["run", "--frames", "0"], 2, "frames.count"),
        (&["run", "--device", "tape"], 2, "tape"),
        (&["run", "--mode", "fast"], 2, "nonblocking"),
        (&["run", "--svg", "none/run.svg"], 3, "none"),
        (&["run", "--trace", "none.strace"], 3, "none.strace"),
        (&["run", "--frames", "1000000", "--set", "references=1e7"], 2, "frames.count"),
        (&["sweep", "--over", "capacity=10..100"], 2, "step"),
        (&["sweep"], 2, "--over"),
        (&["sweep", "--over", "wait=0", "--seeds", "0"], 2, "seeds"),
        (&["fit", "--targets", "none.toml"], 3, "none.toml"),
        (&["reproduce", "bahn2019", "--to", "x", "--seeds", "0"], 2, "seeds"),
    ] {
        let ran = place.run(&[&["lane", "simulate"][..], arguments].concat());
        assert!(ran.err.contains(expected), "{arguments:?}: {expected}: {}", ran.err);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
    }
}
