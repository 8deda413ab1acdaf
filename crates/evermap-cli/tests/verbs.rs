//! Every verb does what its help says.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, json_lines, page, set_age};

const LETTER: &str = "<!DOCTYPE html><title>A letter</title><h1>Dear <i>you</i></h1>\
    <p class=x>One\nline</p><p class=x><a href='/a?b&amp;c'>Two</a></p>";
const LIST: &str =
    "<?xml version='1.0'?><l xmlns='urn:l' xmlns:e='urn:e'><i n='1'>one</i><e:i n='2'/></l>";

fn with_documents() -> Place {
    let place = Place::new();
    place.file("letter.html", LETTER);
    place.file("list.xml", LIST);
    place.ok(&["parse", "letter.html", "list.xml"]);
    place
}

#[test]
fn query_prints_outer_html_text_attributes_and_counts() {
    let place = with_documents();
    let query = |rest: &[&str]| place.ok(&[&["query", "letter.html"], rest].concat());
    assert_eq!(query(&["h1"]), "<h1>Dear <i>you</i></h1>\n");
    assert_eq!(query(&["h1", "--html"]), "<h1>Dear <i>you</i></h1>\n");
    assert_eq!(query(&["h1, .x", "--text"]), "Dear you\nOne\nline\nTwo\n");
    assert_eq!(query(&["*", "--attr", "href"]), "/a?b&c\n");
    assert_eq!(query(&["p", "--count"]), "2\n");
    assert_eq!(query(&["p", "--text", "--first"]), "One\nline\n");
    assert_eq!(query(&["*", "--limit", "2", "--json"]).lines().count(), 2);
    let list = place.ok(&["query", "list.xml", "i"]);
    assert_eq!(list.lines().count(), 2);
    assert!(list.starts_with("<i n=\"1\" xmlns=\"urn:l\""), "{list}");
}

#[test]
fn query_accepts_namespace_prefixes() {
    let place = with_documents();
    let query = ["query", "list.xml", "e|i", "--attr", "n", "--namespace", "e=urn:e"];
    assert_eq!(place.ok(&query), "2\n");
    assert_eq!(place.ok(&["query", "list.xml", "i", "--count"]), "2\n");
    place.fails(2, "PREFIX=URI", &["query", "list.xml", "i", "--namespace", "e"]);
    place.fails(2, "e|i", &["query", "list.xml", "e|i"]);
}

#[test]
fn query_without_a_match_exits_with_1_and_prints_nothing() {
    let place = with_documents();
    for shown in [&["--text"][..], &[], &["--json"]] {
        let ran = place.run(&[&["query", "letter.html", "video"], shown].concat());
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", ""));
    }
    let ran = place.run(&["query", "letter.html", "h1", "--attr", "href"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let ran = place.run(&["query", "letter.html", "video", "--count"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "0\n"));
}

#[test]
fn every_verb_prints_one_json_object_per_line() {
    let place = with_documents();
    let parsed = json_lines(&place.ok(&["parse", "--json", "--force", "letter.html", "list.xml"]));
    assert_eq!(parsed.len(), 2);
    assert_eq!((&parsed[0]["name"], &parsed[1]["type"]), (&"letter.html".into(), &"xml".into()));
    assert_eq!(parsed[0]["source_bytes"], LETTER.len());
    assert!(parsed[0]["nodes"].as_u64() > Some(10) && parsed[0]["unchanged"] == false);

    let listed = json_lines(&place.ok(&["ls", "--json"]));
    let names: Vec<_> = listed.iter().map(|line| line["name"].as_str()).collect();
    assert_eq!(names, [Some("letter.html"), Some("list.xml")]);

    let info = place.info("letter.html");
    assert_eq!((&info["title"], &info["type"]), (&"A letter".into(), &"html".into()));
    let path = place.path("letter.html");
    assert_eq!(info["source"]["path"].as_str(), path.to_str());
    assert_eq!(info["object"]["uuid"].as_str().map(str::len), Some(32));

    let matches = json_lines(&place.ok(&["query", "letter.html", "p", "--json"]));
    assert_eq!(matches[0]["html"], "<p class=\"x\">One\nline</p>");
    let matches = json_lines(&place.ok(&["query", "letter.html", "a", "--attr", "href", "--json"]));
    assert_eq!((&matches[0]["attr"], &matches[0]["value"]), (&"href".into(), &"/a?b&c".into()));
    let count = json_lines(&place.ok(&["query", "letter.html", "p", "--count", "--json"]));
    assert_eq!(count[0]["count"], 2);
}

#[test]
fn ls_info_mv_and_rm_work() {
    let place = with_documents();
    assert_eq!(place.ok(&["ls"]), "letter.html\nlist.xml\n");
    let long = place.ok(&["ls", "--long"]);
    let header: Vec<&str> = long.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["TYPE", "NODES", "SOURCE", "STORED", "CREATED", "NAME"]);
    assert!(long.lines().nth(2).is_some_and(|l| l.starts_with("xml") && l.ends_with("list.xml")));
    assert!(place.ok(&["info", "letter.html"]).contains("A letter"));

    assert_eq!(place.ok(&["mv", "letter.html", "a b"]), "");
    assert_eq!(place.ok(&["ls"]), "a b\nlist.xml\n");
    place.fails(9, "evermap rm", &["mv", "a b", "list.xml"]);
    place.fails(3, "evermap ls", &["mv", "letter.html", "c"]);

    // Missing names do not stop the removal of the others.
    let ran = place.run(&["rm", "nothing", "list.xml", "a b", "nowhere"]);
    assert_eq!((ran.code, ran.err.lines().count()), (3, 2), "{ran:?}");
    assert!(ran.err.contains("`nothing`") && ran.err.contains("`nowhere`"), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "");
    assert_eq!(place.ok(&["ls", "--long"]).lines().count(), 1);
}

#[test]
fn parse_skips_unchanged_files() {
    let place = with_documents();
    let (uuid, files) = (place.uuid("letter.html"), place.store_files());
    let unchanged = |arguments: &[&str]| {
        let reports = json_lines(&place.ok(&[&["parse", "--json"], arguments].concat()));
        reports.iter().all(|document| document["unchanged"] == true)
    };
    assert!(place.ok(&["parse", "letter.html"]).ends_with("unchanged\n"));
    assert!(unchanged(&["letter.html", "list.xml"]));
    // With another time stamp or path, the hash shows that the contents are unchanged.
    set_age(&place.path("letter.html"), 30);
    assert!(unchanged(&["letter.html"]));
    place.file("copy.html", LETTER);
    assert!(unchanged(&["copy.html", "--name", "letter.html"]));
    assert_eq!((place.uuid("letter.html"), place.store_files()), (uuid.clone(), files));
    // `--force` parses an unchanged file too.
    assert!(!unchanged(&["--force", "letter.html"]));
    assert_ne!(place.uuid("letter.html"), uuid);
    assert_eq!(place.store_files().len(), 7, "{:?}", place.store_files());
}

#[test]
fn a_file_changed_within_one_clock_tick_is_parsed_again() {
    let place = Place::new();
    let path = place.path("p.html");
    // Size and time stamp stay equal while the contents change: a new time stamp proves nothing.
    let now = std::time::SystemTime::now();
    for text in ["one", "two", "six"] {
        std::fs::write(&path, text).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(now).unwrap();
        place.ok(&["parse", "p.html"]);
        assert_eq!(place.ok(&["query", "p.html", "body", "--text"]), format!("{text}\n"));
    }
    // Parsing the file as the other type replaces the document.
    place.file("q.html", "<q>a</q>");
    place.ok(&["parse", "q.html"]);
    place.ok(&["parse", "q.html", "--xml"]);
    assert_eq!(place.info("q.html")["type"], "xml");
    place.ok(&["parse", "q.html"]);
    assert_eq!(place.info("q.html")["type"], "html");
}

#[test]
fn the_type_is_detected_by_extension_and_content_unless_an_option_sets_it() {
    let place = Place::new();
    place.file("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    place.file("b", "\u{feff} \n<?xml version='1.0'?><b/>");
    place.file("c", "<b>");
    place.file("d.XML", "<d/>");
    place.file("e.html", "<?xml version='1.0'?><p>");
    place.file("f.txt", "<f/>");
    place.ok(&["parse", "a.svg", "c", "d.XML", "e.html"]);
    place.ok(&["parse", "--xml", "f.txt"]);
    for (name, kind) in
        [("a.svg", "xml"), ("c", "html"), ("d.XML", "xml"), ("e.html", "html"), ("f.txt", "xml")]
    {
        assert_eq!(place.info(name)["type"], kind, "{name}");
    }
    // With white space before its XML declaration a text is XML that is not well-formed.
    place.fails(8, "XML declaration", &["parse", "b"]);
    place.ok(&["parse", "--html", "b"]);
}

#[test]
fn standard_input_is_parsed_under_the_given_name() {
    let place = Place::new();
    let ran = place.run_with_input(&["parse", "-", "--name", "piped"], LETTER.as_bytes());
    assert!(ran.out.starts_with("piped: ") && ran.code == 0, "{ran:?}");
    assert_eq!(place.ok(&["query", "piped", "i", "--text"]), "you\n");
    let ran = place.run_with_input(&["parse", "-", "--name", "piped"], LETTER.as_bytes());
    assert!(ran.out.ends_with("unchanged\n"), "{ran:?}");
    assert_eq!(place.info("piped")["source"]["path"], "-");
    place.run_with_input(&["parse", "-"], b"").failed(2, "--name");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = Place::new();
    place.file("long.html", page(20_000, "v1"));
    place.ok(&["parse", "long.html"]);
    for arguments in [&["query", "long.html", "p"][..], &["query", "long.html", "p", "--json"]] {
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // The pipe is closed here, long before the end of the output.
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
        assert!(line.contains("v1"));
    }
}

#[test]
fn the_store_is_chosen_by_option_then_environment_then_home() {
    let place = Place::new();
    place.file("a.html", "a");
    let store_in = |name: &str| place.path(name).join("catalog").exists();
    let run = |command: &mut std::process::Command| {
        let ran = common::Ran::of(command.output().unwrap());
        assert_eq!(ran.code, 0, "{ran:?}");
    };

    run(&mut place.bare(&["parse", "a.html"]));
    assert!(store_in(".local/share/evermap/store"));
    run(place.bare(&["parse", "a.html"]).env("EVERMAP_STORE", ""));
    run(place.bare(&["parse", "a.html"]).env("XDG_DATA_HOME", place.path("xdg")));
    assert!(store_in("xdg/evermap/store"));
    run(place.bare(&["parse", "a.html"]).env("EVERMAP_STORE", place.path("by variable")));
    assert!(store_in("by variable"));
    run(place.bare(&["parse", "a.html", "--store", "by option"]).env("EVERMAP_STORE", "unused"));
    assert!(store_in("by option") && !store_in("unused"));
}

#[test]
fn scripts_of_every_shell_complete_verbs_options_and_object_names() {
    let place = with_documents();
    let store = place.store();
    let store = store.to_str().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("EVERMAP_COMPLETE") && script.contains("evermap"), "{shell}");
        assert!(place.completions(shell, &["qu"]).contains("query"), "{shell}");
        assert!(place.completions(shell, &["query", "--tim"]).contains("--timings"), "{shell}");
        let names = place.completions(shell, &["query", "--store", store, "l"]);
        assert!(names.contains("letter.html") && names.contains("list.xml"), "{shell}: {names}");
        let names = place.completions(shell, &["-s", store, "store", "map", "let"]);
        assert!(names.contains("letter.html") && !names.contains("list.xml"), "{shell}: {names}");
    }
    // A missing store completes nothing and is not created.
    assert_eq!(place.completions("bash", &["query", "-s", "nowhere", "l"]), "");
    assert!(!place.path("nowhere").exists());
}

/// Runs the script in bash as Tab does.
#[test]
fn bash_completes_object_names_with_the_script() {
    let place = with_documents();
    place.file("script", place.ok(&["completions", "bash"]));
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_evermap")).parent().unwrap();
    let run = |words: &str, last: &str| {
        let tab = format!(
            "source ./script; COMP_WORDS=(evermap {words} '{last}'); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_evermap evermap '{last}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", &tab]).env_clear().env("HOME", place.path(""));
        bash.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        bash.current_dir(place.path(""));
        common::Ran::of(bash.output().unwrap())
    };
    let ran = run("query --store store", "let");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "letter.html\n", ""));
    let ran = run("info --store store", "");
    assert!(ran.out.starts_with("letter.html\nlist.xml\n"), "{ran:?}");
}

#[test]
fn help_lists_every_verb_and_every_exit_code() {
    let place = Place::new();
    let help = place.ok(&["--help"]);
    let store = place.ok(&["store", "--help"]);
    let own_help = |words: &[&str]| {
        let own = place.ok(&[words, &["--help"]].concat());
        assert!(own.contains(&format!("Usage: evermap {}", words.join(" "))), "{own}");
    };
    for verb in [
        "parse",
        "query",
        "ls",
        "info",
        "rm",
        "mv",
        "freeze",
        "store",
        "copy",
        "lane",
        "demo",
        "completions",
    ] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is not in {help}");
        own_help(&[verb]);
    }
    for verb in
        ["check", "audit", "backup", "restore", "export", "import", "rebase", "map", "stats"]
    {
        assert!(store.contains(&format!("\n  {verb} ")), "{verb} is not in {store}");
        own_help(&["store", verb]);
        // The spelling of earlier versions is not listed.
        assert!(!help.contains(&format!("\n  {verb} ")), "{verb} is in {help}");
        own_help(&[verb]);
    }
    for heading in ["Documents:", "Stores:", "Files:", "Programs:", "Sandboxes:", "Options:"] {
        assert!(help.contains(&format!("\n{heading}\n")), "{heading} is not in {help}");
    }
    for code in 0..=10 {
        assert!(help.contains(&format!("\n  {code:2}  ")), "{code} is not in {help}");
    }
    let plain = common::Ran::of(place.bare(&[]).output().unwrap());
    assert_eq!((plain.code, plain.err.as_str()), (2, help.as_str()));
    assert_eq!(place.ok(&["-h"]), help);
    assert!(place.ok(&["--version"]).starts_with("evermap "));
}

#[test]
fn verbose_logs_to_stderr() {
    let place = with_documents();
    let quiet = place.run(&["query", "letter.html", "h1"]);
    let verbose = place.run(&["-vv", "query", "letter.html", "h1"]);
    assert_eq!((verbose.code, &verbose.out), (0, &quiet.out));
    assert!(verbose.err.lines().count() > 5, "{verbose:?}");
}

#[test]
fn demo_measures_documents_in_new_processes_and_leaves_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("pages")).unwrap();
    std::fs::create_dir(place.path("tmp")).unwrap();
    place.file("pages/article.html", LETTER);
    place.file("own.xml", LIST);
    let demo = |rest: &[&str]| {
        let arguments = [&["demo", "--pages", "pages", "own.xml"], rest].concat();
        let output = place.command(&arguments).env("TMPDIR", place.path("tmp")).output().unwrap();
        common::Ran::of(output)
    };
    let measured = json_lines(&demo(&["--json"]).out);
    let names: Vec<_> = measured.iter().map(|line| line["document"].as_str()).collect();
    assert_eq!(names, [Some("article.html"), Some("own.xml")]);
    for line in &measured {
        for time in ["parse_ms", "store_ms", "open_us", "query_us", "process_ms"] {
            assert!(line[time].as_f64() > Some(0.0), "{time} in {line}");
        }
    }
    let shown = demo(&[]);
    assert!(
        shown.code == 0 && shown.out.contains("PROCESS") && shown.out.contains("own.xml"),
        "{shown:?}"
    );
    // Small documents can be parsed faster than a store is opened.
    let last = shown.out.lines().last().unwrap();
    assert!(last.contains("parsing") && last.contains(" times faster than "), "{shown:?}");
    assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0);
    assert!(!place.store().exists());
    // Without a directory of pages, it measures those that are part of the program.
    let built_in = json_lines(&place.ok(&["demo", "--json", "--export-csv", "times.csv"]));
    assert_eq!(built_in.len(), 2);
    let times = std::fs::read_to_string(place.path("times.csv")).unwrap();
    assert!(times.contains("outline.html,parsing,") && times.lines().count() == 5, "{times}");
    place.fails(2, "no example pages", &["demo", "--pages", "nowhere"]);
    place.fails(3, "nothing.html", &["demo", "--pages", "pages", "nothing.html"]);
}
