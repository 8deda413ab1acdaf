//! Hints, remedies and manual pages: each names something that the user can do.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;

use common::{Place, Ran};

/// Returns the verbs that `--help` lists.
fn shown_verbs(place: &Place) -> Vec<String> {
    let help = place.ok(&["--help"]);
    let verbs = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = verbs.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase())).map(String::from).collect()
}

/// Returns the verbs in the hint of an error, without subcommands.
fn hinted(error: &str) -> Vec<String> {
    let hint = error.lines().find(|line| line.contains("similar subcommand")).unwrap_or_default();
    let quoted = hint.split('\'').skip(1).step_by(2);
    quoted.filter_map(|verb| verb.split(' ').next()).map(String::from).collect()
}

#[test]
fn hints_for_unknown_verbs_name_verbs_that_the_help_shows() {
    let place = Place::new();
    let shown = shown_verbs(&place);
    for (word, verb) in [
        ("delete", "rm"),
        ("remove", "rm"),
        ("list", "ls"),
        ("rename", "mv"),
        ("cp", "copy"),
        ("search", "query"),
        ("quer", "query"),
        ("chek", "store"),
    ] {
        let ran = place.run(&[word]);
        ran.failed(2, &format!("unrecognized subcommand '{word}'"));
        assert_eq!(hinted(&ran.err), [verb], "{ran:?}");
    }
    // Misspellings of all verbs, the hidden ones included.
    let old = ["check", "audit", "backup", "restore", "export", "import", "rebase", "map", "stats"];
    let all = shown.iter().map(String::as_str).chain(old).chain(["generate"]);
    for verb in all {
        for word in [format!("{verb}x"), verb[1..].to_string(), format!("x{verb}")] {
            let ran = place.run(&[&word]);
            for hint in hinted(&ran.err) {
                assert!(shown.contains(&hint), "{word}: {ran:?}");
            }
        }
    }
    // The verbs of another verb keep their hints.
    place.fails(2, "'check'", &["store", "chek"]);
}

#[test]
fn options_for_directories_are_explained() {
    let place = Place::new();
    for verb in ["copy", "send"] {
        for option in ["-r", "-R", "-a", "--recursive"] {
            let says =
                format!("`{verb}` copies directories with their contents: leave '{option}' out");
            place.fails(2, &says, &[verb, option, "a", "b"]);
        }
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    for arguments in [&["--help"][..], &["--version"], &["query", "--help"], &["help", "store"]] {
        let mut command = place.bare(arguments);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        Ran::of(command.output().unwrap()).failed(7, "cannot write the output");
    }
    // An error of the command line goes to stderr.
    let mut command = place.bare(&["nonsense"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    Ran::of(command.output().unwrap()).failed(2, "nonsense");
}

#[test]
fn a_dash_is_never_the_name_of_a_result_file() {
    let place = Place::new();
    place.file("data", vec![7; 100_000]);
    let load = ["bench", "load", "data", "--rounds", "1", "--methods", "read"];
    for option in ["--export-json", "--export-markdown", "--export-csv"] {
        place.fails(2, "standard output has the report", &[&load[..], &[option, "-"]].concat());
    }
    place.fails(2, "name a directory", &["generate", "man", "-"]);
    let reference = place.ok(&["generate", "reference", "-"]);
    assert!(reference.starts_with("# Verbs of the `evermap` command\n"), "{reference}");
    assert!(!place.path("-").exists());
}

#[test]
fn manual_pages_have_the_sections_of_manual_pages() {
    let place = Place::new();
    place.ok(&["generate", "man", "man"]);
    let mut pages = 0;
    for entry in std::fs::read_dir(place.path("man")).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        let headings: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert!(!headings.contains(&"EXTRA"), "{path:?}");
        let (_, name) = page.split_once(".SH NAME\n").unwrap();
        let name = name.lines().next().unwrap();
        assert!(name.contains("evermap") && name.len() <= 120, "{path:?}: {name}");
        let has_brackets = page.contains("\\fI<") || page.contains("<\\fI");
        assert!(!has_brackets, "{path:?}: {page}");
        let is_leaf = !headings.contains(&"SUBCOMMANDS");
        assert!(!is_leaf || headings.contains(&"\"EXAMPLES\""), "{path:?}: {headings:?}");
        pages += 1;
    }
    assert!(pages > 20, "{pages}");
    let page = std::fs::read_to_string(place.path("man/evermap.1")).unwrap();
    assert!(page.contains(".SH \"EXIT STATUS\"\n.nf\n"), "{page}");
    for (name, lines) in [
        ("evermap", r"\fBevermap\fR [\fIOPTION\fR]... \fICOMMAND\fR"),
        ("evermap-query", r"\fBevermap query\fR [\fIOPTION\fR]... \fINAME\fR \fISELECTOR\fR"),
        (
            "evermap-copy",
            "\\fBevermap copy\\fR [\\fIOPTION\\fR]... \\fISOURCE\\fR... \\fIDEST\\fR\n.br\n\
             \\fBevermap copy\\fR \\fB\\-\\-clean\\fR \\fIDIR\\fR",
        ),
        (
            "evermap-load-run",
            r"\fBevermap load run\fR [\fIOPTION\fR]... \fB\-\-\fR \fICOMMAND\fR...",
        ),
        (
            "evermap-store-import",
            r"\fBevermap store import\fR [\fIOPTION\fR]... \fIFILE\fR [\fINAME\fR]",
        ),
    ] {
        let page = std::fs::read_to_string(place.path(&format!("man/{name}.1"))).unwrap();
        let synopsis = format!(".SH SYNOPSIS\n{lines}\n.SH DESCRIPTION\n");
        assert!(page.contains(&synopsis), "{synopsis} is not in {page}");
    }
    place.file("page", "text");
    place.fails(10, "page: it is not a directory; name one", &["generate", "man", "page"]);
    place.fails(
        3,
        "files cannot be created in /proc; name a file elsewhere",
        &["generate", "man", "/proc/x"],
    );
}

/// A query has no `--html` and no `--limit`.
#[test]
fn a_failed_refresh_names_no_option_that_a_query_lacks() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html"]);
    place.file("page.html", r#"{"some": ["json", "text"]}"#);
    let ran = place.run(&["query", "page.html", "h1", "--text"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("cannot be parsed again: it is"), "{ran:?}");
    assert!(!ran.err.contains("--html") && !ran.err.contains("--xml"), "{ran:?}");
}

#[test]
fn a_full_device_is_not_told_to_free_space() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html"]);
    let ran = place.run(&["store", "export", "page.html", "/dev/full"]);
    ran.failed(7, "name a file");
    assert!(!ran.err.contains("free some"), "{ran:?}");
}

#[test]
fn a_process_of_another_user_is_not_told_to_mount_a_file_system() {
    if std::fs::read("/proc/1/maps").is_ok() {
        eprintln!("SKIPPED: this user may read the memory map of process 1");
        return;
    }
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html"]);
    let says = "memory map of process 1";
    place.fails(6, says, &["store", "audit", "page.html", "--pid", "1"]);
    place.fails(6, "leave `--pid` out", &["store", "audit", "page.html", "--pid", "1"]);
}

#[test]
fn a_wide_map_is_wider() {
    let place = Place::new();
    place.file("page.html", common::page(20_000, "one"));
    place.ok(&["parse", "page.html"]);
    let columns = |arguments: &[&str]| {
        let map = place.ok(&[&["store", "map", "page.html", "--no-color"], arguments].concat());
        map.lines().skip(3).map(|line| line.chars().count()).max().unwrap()
    };
    assert!(columns(&["--wide"]) > columns(&[]));
}

#[test]
fn names_are_completed_in_every_spelling_that_verbs_accept() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("a/deep")).unwrap();
    std::fs::create_dir(place.path("b")).unwrap();
    for file in ["a/index.html", "b/index.html", "a/deep/other.html"] {
        place.file(file, "<h1>one</h1>");
        place.ok(&["parse", file]);
    }
    let store = place.store().display().to_string();
    let full = place.path("a/deep/o").display().to_string();
    for (typed, candidate) in [
        ("a/d", "a/deep/other.html"),
        ("./a/d", "./a/deep/other.html"),
        ("b/../a/d", "b/../a/deep/other.html"),
        (&full, &format!("{full}ther.html")),
        ("oth", "other.html"),
        ("deep/o", "deep/other.html"),
    ] {
        for verb in ["query", "info", "rm"] {
            let words = ["--store", &store, verb, typed];
            let found = place.completions("fish", &words);
            let is_end = ["oth", "deep/o"].contains(&typed);
            let is_expected = found.lines().any(|line| line == candidate);
            assert_eq!(is_expected, verb != "rm" || !is_end, "{verb} {typed}: {found}");
        }
    }
    // The end that two names have finds neither.
    let found = place.completions("fish", &["--store", &store, "query", "index"]);
    assert!(!found.contains("index.html"), "{found}");
}

#[test]
fn files_are_completed_after_the_command_of_a_verb() {
    let place = Place::new();
    place.file("some-file", "x");
    for verb in [
        &["sandbox", "exec"][..],
        &["load", "run"],
        &["lane", "run"],
        &["lane", "trace", "record"],
        &["copy"],
    ] {
        let words = [verb, &["--", "cat", "some"]].concat();
        let found = place.completions("bash", &words);
        assert!(found.contains("some-file"), "{verb:?}: {found}");
    }
}
