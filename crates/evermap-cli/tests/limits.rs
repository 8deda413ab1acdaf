//! Endless sources, and documents that need more memory than available, are refused with an error.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Ran};

/// Maximum time of a run. A hang is a failure.
const TIMEOUT: Duration = Duration::from_secs(120);

fn run(mut command: Command) -> Ran {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("still running after {TIMEOUT:?}: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::of(child.wait_with_output().unwrap())
}

/// Runs the program under a limit on its memory (`-d`) or its addresses (`-v`), in KiB.
fn limited(place: &Place, what: &str, kib: u64, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.env_clear().env("HOME", place.path("")).current_dir(place.path(""));
    command.args(["-c", &format!("ulimit {what} {kib}; exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_evermap")).arg("--store").arg(place.store()).args(arguments);
    run(command)
}

#[test]
fn an_endless_source_is_refused_by_its_format_or_by_the_limit() {
    let place = Place::new();
    run(place.command(&["parse", "/dev/zero", "--name", "zero"])).failed(8, "it is binary");
    let zero = || std::fs::File::open("/dev/zero").unwrap();
    let mut command = place.command(&["parse", "-", "--name", "zero"]);
    command.stdin(zero());
    run(command).failed(8, "it is binary");
    let mut command = place.command(&["parse", "-", "--name", "zero", "--html", "--limit", "3"]);
    command.stdin(zero());
    run(command).failed(8, "longer than 3 MiB; raise the limit with `--limit MIB`");
    let arguments = ["parse", "/dev/zero", "--name", "zero", "--html", "--limit", "3"];
    run(place.command(&arguments)).failed(8, "longer than 3 MiB");
    assert!(!place.store().exists() || place.ok(&["ls"]).is_empty());
}

#[test]
fn a_file_that_is_too_long_is_refused_before_it_is_read() {
    let place = Place::new();
    let file = std::fs::File::create(place.path("long.html")).unwrap();
    file.set_len(5 << 30).unwrap();
    run(place.command(&["parse", "long.html"])).failed(8, "longer than 1024 MiB");
    place.file("short.html", "<p>".repeat(400_000));
    run(place.command(&["parse", "short.html", "--limit", "1"])).failed(8, "longer than 1 MiB");
    place.ok(&["parse", "short.html", "--limit", "2"]);
}

#[test]
fn a_pipe_is_read_to_its_end_or_to_the_limit() {
    let place = Place::new();
    let status = Command::new("mkfifo").arg(place.path("pipe.html")).status().unwrap();
    assert!(status.success());
    let path = place.path("pipe.html");
    let writer = std::thread::spawn(move || {
        let mut pipe = std::fs::File::options().write(true).open(path).unwrap();
        // The command stops reading before the end.
        let _ = pipe.write_all(&b"<p>x".repeat(1 << 20));
    });
    run(place.command(&["parse", "pipe.html", "--limit", "1"])).failed(8, "longer than 1 MiB");
    writer.join().unwrap();
}

/// Only tags, and only text: the sources that need the most memory per byte.
#[test]
fn a_document_beyond_the_memory_limit_is_an_error_and_not_a_signal() {
    let place = Place::new();
    place.file("small.html", "<p>x");
    place.ok(&["parse", "small.html"]);
    // Memory that the program needs for a small document. Below that it cannot report an error.
    let enough = [2_000, 4_000, 8_000, 16_000, 32_000, 64_000]
        .into_iter()
        .find(|&kib| limited(&place, "-d", kib, &["parse", "--force", "small.html"]).code == 0)
        .expect("enough for a small document");
    let tags = "<a>".repeat(4 << 20);
    place.file("tags.xml", format!("<d>{}</d>", tags.replace("<a>", "<a/>")));
    place.file("tags.html", "<br>".repeat(6 << 20));
    place.file("spans.html", "<span>".repeat(3 << 20));
    place.file("text.html", format!("<p>{}", "word ".repeat(8 << 20)));
    place.file("value.html", format!("<p title='{}'>", "word ".repeat(8 << 20)));
    place.file("comment.html", format!("<!--{}-->", "word ".repeat(8 << 20)));
    place.file("attributes.xml", format!("<d>{}</d>", "<a b='c' d='e'/>".repeat(1 << 20)));
    for file in [
        "tags.xml",
        "tags.html",
        "spans.html",
        "text.html",
        "value.html",
        "comment.html",
        "attributes.xml",
    ] {
        let mut refused = 0;
        for mib in [4, 48, 128] {
            let ran = limited(&place, "-d", enough + (mib << 10), &["parse", "--force", file]);
            match ran.code {
                0 => {}
                7 => {
                    refused += 1;
                    assert!(ran.err.starts_with("evermap: "), "{file}: {ran:?}");
                    assert!(ran.err.contains("memory") || ran.err.contains("ulimit"), "{ran:?}");
                }
                _ => panic!("{file} with {mib} MiB: {ran:?}"),
            }
        }
        assert!(refused > 0, "{file}: no limit was too small");
    }
}

#[test]
fn an_address_limit_is_not_reported_as_another_object() {
    let place = Place::new();
    place.file("page.html", "<p>x");
    place.ok(&["parse", "page.html"]);
    let ran = limited(&place, "-v", 200_000, &["query", "page.html", "p", "--text"]);
    if ran.code != 0 {
        assert_eq!(ran.code, 7, "{ran:?}");
        assert!(ran.err.contains("ulimit -v") && !ran.err.contains("taken"), "{ran:?}");
    }
}
