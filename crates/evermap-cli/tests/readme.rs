//! The documentation agrees with the programs: README and its example, the tutorials, the reference
//! of the command, the example pages.

mod common;
#[path = "common/walkthrough.rs"]
mod walkthrough;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::programs::write_script;
use common::{Place, Ran};
use walkthrough::{follow, lines_match, tutorial};

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

/// Returns an example of the project. `cargo test` builds examples into a directory next to the
/// program.
fn built_example(name: &str) -> PathBuf {
    let example = Path::new(env!("CARGO_BIN_EXE_evermap")).with_file_name("examples").join(name);
    assert!(example.exists(), "example not built: run `cargo build --examples`");
    example
}

#[test]
fn the_example_continues_from_the_last_run() {
    let example = built_example("words");
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

/// Verbs without subcommands that every build has.
const VERBS: [&str; 45] = [
    "parse",
    "query",
    "ls",
    "info",
    "mv",
    "freeze",
    "rm",
    "store check",
    "store audit",
    "store backup",
    "store restore",
    "store export",
    "store import",
    "store rebase",
    "store map",
    "store stats",
    "copy",
    "send",
    "receive",
    "bench transfer",
    "bench load",
    "load probe",
    "load run",
    "lane bench",
    "lane check",
    "lane observe",
    "lane place plan",
    "lane place apply",
    "lane place back",
    "lane place verify",
    "lane play",
    "lane run",
    "lane simulate fit",
    "lane simulate profile",
    "lane simulate reproduce",
    "lane simulate run",
    "lane simulate sweep",
    "lane status",
    "lane trace record",
    "lane trace import",
    "lane trace stat",
    "lane undo",
    "sandbox exec",
    "demo",
    "completions",
];

/// Returns the options in a text, without values and punctuation.
fn options(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "`|[]()=,.:'*".contains(c));
    let is_option = |word: &&str| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    words.filter(is_option).collect()
}

/// The generated reference has each verb with its options, and there is a manual page of each.
#[test]
fn the_generated_reference_and_manual_have_all_verbs_and_options() {
    let place = Place::new();
    place.ok(&["generate", "reference", "reference.md"]);
    place.ok(&["generate", "man", "man"]);
    let reference = std::fs::read_to_string(place.path("reference.md")).unwrap();
    for verb in VERBS {
        let heading = format!("\n## evermap {verb}\n");
        let section = reference.split_once(&heading).map(|(_, section)| section);
        let section = section.unwrap_or_else(|| panic!("{verb} is not in the reference"));
        let section = section.split("\n## ").next().unwrap();
        let page = place.path("man").join(format!("evermap-{}.1", verb.replace(' ', "-")));
        let page = std::fs::read_to_string(&page).unwrap().replace("\\-", "-");
        let help = place.ok(&[&verb.split(' ').collect::<Vec<_>>()[..], &["-h"]].concat());
        let (_, below) = help.split_once("Options:").unwrap();
        let shown = options(below.split("Example").next().unwrap());
        assert!(!shown.is_empty(), "{verb}: {help}");
        for option in shown.iter().filter(|option| !["--help", "--version"].contains(option)) {
            assert!(section.contains(option), "{option} of {verb} is not in the reference");
            assert!(page.contains(option), "{option} of {verb} is not in the manual");
        }
    }
    assert!(place.path("man/evermap.1").is_file() && !place.path("man/evermap-check.1").exists());
}

/// The page of the command names only existing verbs and options, and has the exit codes of
/// `--help`.
#[test]
fn the_page_of_the_command_agrees_with_its_help() {
    let page = std::fs::read_to_string(project().join("docs/cli.md")).unwrap();
    let place = Place::new();
    let helps: Vec<String> = VERBS
        .iter()
        .chain(&["store"])
        .map(|verb| place.ok(&[&verb.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat()))
        .collect();
    // Verbs and options of builds with other features.
    let elsewhere = ["--features", "--dir", "--memory"];
    for option in options(&page) {
        let is_known = helps.iter().any(|help| options(help).contains(&option));
        assert!(is_known || elsewhere.contains(&option), "docs/cli.md: {option} is no option");
    }
    let (_, json) = page.split_once("## JSON output").unwrap();
    let rows = json.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let verbs: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in verbs {
        let verb = verb.trim_end_matches(" --report");
        let is_elsewhere = ["render", "prefetch"].contains(&verb);
        assert!(is_elsewhere || VERBS.iter().any(|known| known.starts_with(verb)), "{verb}");
    }
    let help = place.ok(&["--help"]);
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, cause) = line.trim().split_once("  ").unwrap();
        let row = format!("| {code} | {} |", cause.replace('|', "\\|"));
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn expected_output_matches_numbers_and_gaps_but_no_other_words() {
    fn matches(expected: &str, actual: &str) -> bool {
        let (expected, actual) = (expected.lines(), actual.lines());
        lines_match(&expected.collect::<Vec<_>>(), &actual.collect::<Vec<_>>())
    }
    assert!(matches("a: 1.29 MB in 28.1 ms", "a:   900 kB in 3 s"));
    assert!(!matches("a: 1.29 MB in 28.1 ms", "a: 900 files in 3 s"));
    assert!(matches("2 files, ...", "2 files, 3 directories"));
    assert!(!matches("2 files", "3 files"));
    assert!(!matches("one\ntwo", "one"));
    assert!(!matches("one", "one\ntwo"));
    assert!(matches("one\n...\nfour", "one\ntwo\nthree\nfour"));
    assert!(!matches("one\n...\nfour", "one\ntwo"));
    assert!(matches("a:...,b:...;", "a:1,b:2;"));
    assert!(!matches("a:...,b:...;", "a:1,c:2;"));
    assert!(matches(".../page.html: 3 nodes", "/tmp/x/page.html: 3 nodes"));
}

/// Follows a tutorial that needs the command and no other program of the project.
fn follow_with_command(name: &str) {
    let evermap = Path::new(env!("CARGO_BIN_EXE_evermap"));
    follow(&tutorial(name), &Place::new().path(""), &[("evermap", evermap)]);
}

#[test]
fn the_tutorial_on_a_first_object_in_rust_works() {
    let page = tutorial("first-object-rust.md");
    let example = std::fs::read_to_string(project().join("examples/first_object.rs")).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains(&format!("```rust\n{example}```\n")), "the page's program differs");
    let place = Place::new();
    // In place of `cargo run -q --example NAME --`.
    let cargo = place.path("cargo");
    let built = built_example("first_object");
    write_script(&cargo, &format!("#!/bin/sh\nshift 5\nexec {} \"$@\"\n", built.display()));
    let evermap = Path::new(env!("CARGO_BIN_EXE_evermap"));
    follow(&page, &place.path(""), &[("cargo", &cargo), ("evermap", evermap)]);
}

#[test]
fn the_tutorial_on_a_page_that_reopens_works() {
    follow_with_command("reopening-page.md");
}

#[test]
fn the_tutorial_on_a_fast_copy_works() {
    follow_with_command("fast-copy.md");
}

/// Lanes keep their state in the test's directory, apart from the machine's lanes.
#[test]
fn the_tutorial_on_a_first_lane_works_without_rights() {
    let place = Place::new();
    let command = place.path("command");
    let script = format!(
        "#!/bin/sh\nevermap={}\ncase \"$2\" in\n\
         run|status) verb=$2; shift 2; exec $evermap lane $verb --state {} \"$@\";;\n\
         esac\nexec $evermap \"$@\"\n",
        env!("CARGO_BIN_EXE_evermap"),
        place.path("state").display()
    );
    write_script(&command, &script);
    follow(&tutorial("first-lane.md"), &place.path(""), &[("evermap", &command)]);
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
