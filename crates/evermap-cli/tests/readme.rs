//! The README's example is the program in `examples/`, and that program does what it says.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Place, Ran};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_readme_shows_the_example_that_is_compiled() {
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    let example = std::fs::read_to_string(project().join("examples/words.rs")).unwrap();
    assert!(readme.contains(&format!("```rust\n{example}```\n")), "they differ");
}

#[test]
fn the_example_goes_on_where_the_last_run_ended() {
    // Examples are built beside the program, with the other targets of `cargo test`.
    let example = Path::new(env!("CARGO_BIN_EXE_evermap")).with_file_name("examples").join("words");
    assert!(example.exists(), "run `cargo test`, or `cargo build --examples` before a single test");
    let place = Place::new();
    let run = |words: &[&str]| {
        let output = Command::new(&example).args(words).current_dir(place.path("")).output();
        Ran::of(output.unwrap())
    };
    let first = run(&["to", "be"]);
    assert_eq!(first.out, "1 to\n1 be\n", "{first:?}");
    let second = run(&["or", "not", "to", "be"]);
    assert_eq!(second.out, "2 to\n2 be\n1 or\n1 not\n", "{second:?}");
}

/// Every verb and option is in the command's reference, every exit code is there as in `--help`.
#[test]
fn the_reference_of_the_command_is_complete() {
    let reference = std::fs::read_to_string(project().join("docs/cli.md")).unwrap();
    let place = Place::new();
    let has_options = |verb: &str| {
        let words: Vec<&str> = verb.split(' ').chain(["-h"]).collect();
        let help = place.ok(&words);
        for option in help.split_whitespace().filter(|word| word.starts_with("--")) {
            let option = option.trim_end_matches(['.', ',', ':', '\'', ')']);
            let option = option.split_once("[=").map_or(option, |(name, _)| name);
            assert!(reference.contains(option), "{option} of {verb}");
        }
    };
    for verb in [
        "parse",
        "query",
        "ls",
        "info",
        "map",
        "stats",
        "audit",
        "rebase",
        "export",
        "import",
        "rm",
        "mv",
        "check",
        "backup",
        "restore",
        "audit",
        "map",
        "stats",
        "export",
        "import",
        "rebase",
        "send",
        "receive",
        "sandbox exec",
        "lane check",
        "lane observe",
        "lane run",
        "lane status",
        "lane undo",
        "lane place",
        "lane play",
        "lane bench",
        "lane trace",
        "lane simulate",
        "demo",
        "completions",
    ] {
        assert!(reference.contains(&format!("## `evermap {verb}")), "{verb}");
        has_options(verb);
    }
    // These have a section with others.
    for (verb, parts) in [
        ("lane place", &["plan", "apply", "back", "verify"][..]),
        ("lane trace", &["record", "import", "stat"]),
        ("lane simulate", &["run", "sweep", "reproduce", "fit", "profile"]),
    ] {
        parts.iter().for_each(|part| has_options(&format!("{verb} {part}")));
    }
    let help = place.ok(&["--help"]);
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, cause) = line.trim().split_once("  ").unwrap();
        let row = format!("| {code} | {} |", cause.replace('|', "\\|"));
        assert!(reference.contains(&row), "{row}");
    }
}

/// The example pages are what their generator writes; needs Python, and says so when it isn't there.
#[test]
fn the_example_pages_are_what_their_generator_writes() {
    let generator = project().join("examples/pages/generate.py");
    match Command::new("python3").arg(generator).arg("--check").output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("SKIPPED: python3: {error}"),
    }
}

/// `make view` shows this site first: whatever its pages name, by link, picture or style sheet, is in it.
#[test]
fn every_link_of_the_example_site_leads_somewhere() {
    let site = project().join("examples/site");
    let read = |name: &str| std::fs::read_to_string(site.join(name)).unwrap();
    let pages = std::fs::read_dir(&site).unwrap().map(|entry| entry.unwrap().file_name());
    let pages = pages.filter_map(|name| name.into_string().ok());
    let pages: Vec<String> = pages.filter(|name| name.ends_with(".html")).collect();
    assert!(pages.len() > 1);
    for page in &pages {
        let text = read(page);
        let named = [" href=\"", " src=\""].into_iter().flat_map(|what| text.split(what).skip(1));
        for target in named.map(|rest| rest.split('"').next().unwrap()) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page } else { file };
            assert!(site.join(file).is_file(), "{target} of {page}");
            let id = format!(" id=\"{anchor}\"");
            assert!(anchor.is_empty() || read(file).contains(&id), "{target} of {page}");
        }
    }
}
