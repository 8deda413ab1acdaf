//! A failed call has changed nothing, with the exceptions that `docs/cli.md` lists.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Place, Ran};

/// Returns the names and contents of all objects.
fn contents(place: &Place) -> BTreeMap<String, String> {
    let names = place.ok(&["ls"]);
    let hash = |name: &str| place.info(name)["source"]["blake3"].to_string();
    names.lines().map(|name| (name.to_string(), hash(name))).collect()
}

fn place() -> Place {
    let place = Place::new();
    place.file("a.html", "<p>a");
    place.file("b.html", "<p>b");
    place.ok(&["parse", "a.html", "b.html"]);
    place
}

fn with_full_output(place: &Place, arguments: &[&str]) -> Ran {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    Ran::of(place.command(arguments).stdout(full).output().unwrap())
}

#[test]
fn a_failed_call_changes_no_object() {
    let place = place();
    place.file("new.html", "<p>new");
    place.file("bad.xml", "<a>");
    place.file("data.json", "{}");
    place.file("a.html", "<p>changed");
    std::fs::create_dir(place.path("folder")).unwrap();
    place.ok(&["export", "b.html", "b.object"]);
    place.ok(&["backup", "backup"]);
    place.file("damaged.object", &std::fs::read(place.path("b.object")).unwrap()[..5000]);
    let before = contents(&place);
    let calls: [&[&str]; 16] = [
        &["parse", "new.html", "a.html", "bad.xml"],
        &["parse", "new.html", "data.json"],
        &["parse", "new.html", "gone.html"],
        &["parse", "new.html", "folder"],
        &["parse", "new.html", "./new.html"],
        &["parse", "new.html", "--name", "x/y"],
        &["parse", "new.html", "--limit", "0"],
        &["rm", "gone"],
        &["mv", "a.html", "b.html"],
        &["mv", "gone", "there"],
        &["import", "b.object"],
        &["import", "damaged.object", "new"],
        &["import", "b.object", "x//y"],
        &["restore", "backup"],
        &["restore", "gone", "--force"],
        &["rebase", "--to", "12345"],
    ];
    for call in calls {
        let ran = place.run(call);
        assert!(ran.code > 0, "{call:?}: {ran:?}");
        assert_eq!(contents(&place), before, "{call:?} changed something: {ran:?}");
    }
    assert!(place.ok(&["check"]).contains("nothing found"));
}

#[test]
fn failed_calls_make_no_store_except_an_empty_one_by_parse() {
    let place = Place::new();
    place.file("bad.xml", "<a>");
    place.file("damaged.object", "no export");
    let calls: [&[&str]; 12] = [
        &["parse", "gone.html"],
        &["parse", "bad.xml", "--name", "x/y"],
        &["query", "gone.html", "p"],
        &["rm", "gone"],
        &["mv", "gone", "there"],
        &["info", "gone"],
        &["check"],
        &["export", "gone", "gone.object"],
        &["import", "gone.object"],
        &["import", "damaged.object", "new"],
        &["restore", "gone"],
        &["backup", "backup"],
    ];
    for call in calls {
        let ran = place.run(call);
        assert!(ran.code > 0, "{call:?}: {ran:?}");
        assert!(!place.store().exists(), "{call:?} made a store: {ran:?}");
    }
    if cfg!(feature = "view") {
        place.fails(3, "gone.html", &["render", "gone.html", "-o", "gone.png"]);
        assert!(!place.store().exists(), "`render` made a store");
    }
    if cfg!(feature = "sandbox") {
        place.fails(3, "gone.wasm", &["sandbox", "run", "gone.wasm"]);
        place.fails(3, "other", &["sandbox", "grant", "app", "other:x:read"]);
        place.fails(3, "no store", &["sandbox", "revoke", "app", "x"]);
        assert!(!place.store().exists(), "`sandbox` made a store");
    }
    place.fails(8, "bad.xml", &["parse", "bad.xml"]);
    assert_eq!(place.ok(&["ls"]), "");
}

#[test]
fn rm_removes_the_names_that_it_can() {
    let place = place();
    let ran = place.run(&["rm", "gone", "a.html", "neither", "b.html"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("`gone`") && ran.err.contains("`neither`"), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "");
}

#[test]
fn a_failed_write_of_the_output_is_reported_and_undoes_nothing() {
    let place = place();
    place.file("new.html", "<p>new");
    with_full_output(&place, &["parse", "new.html"]).failed(7, "cannot write the output");
    assert!(contents(&place).contains_key("new.html"));
    place.ok(&["export", "b.html", "b.object"]);
    with_full_output(&place, &["import", "b.object", "copy"]).failed(7, "cannot write the output");
    assert!(contents(&place).contains_key("copy"));
    with_full_output(&place, &["export", "b.html", "c.object"]).failed(7, "cannot write");
    with_full_output(&place, &["backup", "backup"]).failed(7, "cannot write the output");
    assert!(place.path("c.object").exists() && place.path("backup/catalog").exists());
    place.ok(&["rm", "a.html"]);
    with_full_output(&place, &["restore", "backup", "--force"])
        .failed(7, "cannot write the output");
    assert!(contents(&place).contains_key("a.html"), "it was restored");
    // These verbs print nothing, so a full output does not matter.
    for quiet in [&["mv", "copy", "again"][..], &["rm", "again"]] {
        assert_eq!(with_full_output(&place, quiet).code, 0);
    }
}

#[test]
fn results_are_not_written_into_the_store() {
    let place = place();
    let object = format!("store/objects/{}", place.uuid("a.html"));
    std::os::unix::fs::symlink("store/objects", place.path("objects")).unwrap();
    std::os::unix::fs::symlink(&object, place.path("picture.svg")).unwrap();
    std::os::unix::fs::symlink("store", place.path("linked")).unwrap();
    let through_link = object.replace("store/", "objects/../");
    let targets = [
        object.as_str(),
        "store/catalog",
        "store/new",
        "objects/new",
        "picture.svg",
        &through_link,
    ];
    let before = common::contents(&place.store());
    for target in targets {
        for store in ["store", "linked"] {
            for verb in [
                &["store", "map", "b.html", "--svg", target][..],
                &["store", "export", "b.html", target, "--force"],
                &["store", "export", "b.html", target],
            ] {
                let ran = Ran::of(place.bare(&["-s", store]).args(verb).output().unwrap());
                ran.failed(2, "is inside store");
            }
        }
    }
    assert_eq!(common::contents(&place.store()), before);
    // Tests that a path which only begins with the store's path is outside of the store.
    place.ok(&["store", "map", "b.html", "--svg", "store.svg"]);
    place.ok(&["store", "export", "b.html", "store.object"]);
}

/// Runs the program with a standard output that is closed.
fn with_closed_output(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec \"$@\" >&-", "sh", env!("CARGO_BIN_EXE_evermap")]);
    command.env_clear().env("HOME", place.path("")).current_dir(place.path(""));
    Ran::of(command.arg("--store").arg(place.store()).args(arguments).output().unwrap())
}

#[test]
fn a_closed_output_is_an_error_of_verbs_that_write_to_it() {
    let place = place();
    let says = "Bad file descriptor";
    place.file("new.html", "<p>new");
    with_closed_output(&place, &["parse", "new.html"]).failed(10, says);
    assert!(contents(&place).contains_key("new.html"), "as with any output that fails");
    for verb in [
        &["query", "a.html", "p"][..],
        &["query", "a.html", "p", "--json"],
        &["ls"],
        &["info", "a.html"],
        &["store", "map", "a.html", "--svg", "-"],
        &["store", "export", "a.html", "-"],
        &["store", "check"],
        &["completions", "bash"],
        &["--help"],
        &["query", "--help"],
        &["--version"],
    ] {
        let ran = with_closed_output(&place, verb);
        assert!(ran.code > 1, "{verb:?}: {ran:?}");
        ran.failed(ran.code, says);
    }
    // A command that is started finds its output closed, too.
    let exec = ["sandbox", "exec", "--", "/bin/echo", "text"];
    match place.run(&exec) {
        Ran { code: 0, .. } => assert_ne!(with_closed_output(&place, &exec).code, 0),
        other => eprintln!("SKIPPED: no command can be confined here: {other:?}"),
    }
    // Verbs that print nothing need no output.
    for quiet in [&["mv", "b.html", "c.html"][..], &["rm", "c.html"]] {
        let ran = with_closed_output(&place, quiet);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{quiet:?}");
    }
}

#[test]
fn an_output_that_is_dev_null_is_no_error() {
    let place = place();
    // Service managers and Python's `subprocess.DEVNULL` open it for reading and writing.
    for read in [false, true] {
        let null = std::fs::File::options().read(read).write(true).open("/dev/null").unwrap();
        let ran = Ran::of(place.command(&["query", "a.html", "p"]).stdout(null).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    }
    let closed_input = "exec \"$@\" <&-";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", closed_input, "sh", env!("CARGO_BIN_EXE_evermap")]);
    command.current_dir(place.path("")).arg("--store").arg(place.store()).arg("ls");
    assert_eq!(Ran::of(command.output().unwrap()).out, "a.html\nb.html\n");
}

/// The report of `parse` is complete before the commit, except for the file's size. A failure to
/// read that size afterwards does not fail the call.
#[test]
fn parse_succeeds_if_it_cannot_open_the_object_after_the_commit() {
    let place = place();
    place.file("new.html", "<p>new");
    let ran = traced(&place, &["parse", "new.html", "--json"]);
    let Some(ran) = ran else { return };
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(ran.out.trim_end()).unwrap();
    assert_eq!((&report["stored_bytes"], &report["nodes"]), (&serde_json::Value::Null, &6.into()));
    assert!(contents(&place).contains_key("new.html"));
}

/// Runs the program under strace, which makes every opening of an object's file for reading fail.
/// Prints a message and returns `None` if that is not possible.
fn traced(place: &Place, arguments: &[&str]) -> Option<Ran> {
    // A commit of a batch also opens existing objects for reading. Those calls must not fail, so
    // only the calls after the catalog's commit do.
    let probe = std::process::Command::new("strace").arg("--version").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: strace is not installed");
        return None;
    }
    let log = place.path("calls");
    let run = |inject: Option<usize>| {
        let mut command = std::process::Command::new("strace");
        command.arg("-f").arg("-o").arg(&log).args(["-e", "trace=openat"]);
        if let Some(first) = inject {
            command.args(["-e", &format!("inject=openat:error=EMFILE:when={first}+")]);
        }
        command.env_clear().env("HOME", place.path("")).current_dir(place.path(""));
        command.arg(env!("CARGO_BIN_EXE_evermap")).arg("--store").arg(place.store());
        Ran::of(command.args(arguments).output().unwrap())
    };
    let rehearsal = run(None);
    if rehearsal.code != 0 {
        eprintln!("SKIPPED: strace cannot trace here: {rehearsal:?}");
        return None;
    }
    let calls = std::fs::read_to_string(&log).unwrap();
    let opened: Vec<&str> = calls.lines().filter(|line| line.contains("openat(")).collect();
    // The last opening of an object's file is that for the report.
    let last = opened.iter().rposition(|line| line.contains("/objects/"))?;
    place.ok(&["rm", "new.html"]);
    assert!(Path::new(&log).exists());
    Some(run(Some(last + 1)))
}
