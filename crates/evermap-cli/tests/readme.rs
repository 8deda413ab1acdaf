//! The documentation agrees with the programs: README and its example, the reference of the
//! command, the example pages.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Place, Ran};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_readme_contains_the_compiled_example() {
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    let example = std::fs::read_to_string(project().join("examples/words.rs")).unwrap();
    assert!(
        readme.contains(&format!("```rust\n{example}```\n")),
        "README.md and examples/words.rs differ"
    );
}

#[test]
fn the_example_continues_from_the_last_run() {
    // `cargo test` builds examples into a directory next to the program.
    let example = Path::new(env!("CARGO_BIN_EXE_evermap")).with_file_name("examples").join("words");
    assert!(example.exists(), "example not built: run `cargo build --examples`");
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

/// The command's reference has every verb and option, and the exit codes of `--help`.
#[test]
fn the_reference_of_the_command_is_complete() {
    let reference = std::fs::read_to_string(project().join("docs/cli.md")).unwrap();
    let place = Place::new();
    let has_options = |verb: &str| {
        let words: Vec<&str> = verb.split(' ').chain(["-h"]).collect();
        let help = place.ok(&words);
        for option in help.split_whitespace().filter(|word| word.starts_with("--")) {
            let option = option.trim_end_matches(['.', ',', ':', '\'', ')', ']', '`']);
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
    // Subcommands that share a section.
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

/// Skipped without Python.
#[test]
fn the_example_pages_are_the_output_of_their_generator() {
    let generator = project().join("examples/pages/generate.py");
    match Command::new("python3").arg(generator).arg("--check").output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("SKIPPED: python3: {error}"),
    }
}

/// Checks every link, picture and style sheet of the site that `make view` opens first.
#[test]
fn every_link_of_the_example_site_has_a_target() {
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
