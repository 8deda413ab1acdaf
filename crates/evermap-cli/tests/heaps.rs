//! `audit`, `rebase`, `export` and `import`, as a user runs them.

mod common;

use std::sync::{Mutex, PoisonError};

use common::{Place, Ran, json_lines, page};
use evermap::Store;

/// Held while this process has a store open. Each test has its own arena registry, so the addresses
/// of two stores overlap by chance.
static OPEN: Mutex<()> = Mutex::new(());

/// Makes a store with a document and a raw object. The raw object has a root, a block that the root
/// points to, a leaked block, a pointer to memory of this program, and a dangling pointer.
fn place() -> Place {
    let place = Place::new();
    place.file("a.html", page(200, "a"));
    place.ok(&["parse", "a.html"]);
    let _open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let store = Store::open(place.store()).expect("a store");
    store.create_raw("raw").expect("made");
    let mut session = store.write_raw("raw").expect("open");
    let block = |bytes| session.heap().allocate_zeroed(bytes, 8).expect("room").cast::<u64>();
    let (root, next, _lost) = (block(64), block(128), block(4_000));
    let gone = block(70_000);
    let own = Box::new(1u64);
    // SAFETY: no reference to the block exists.
    unsafe { session.heap().try_free(gone.cast()) }.expect("freed");
    let words = [next.as_ptr() as u64, &raw const *own as u64, gone.as_ptr() as u64];
    for (at, word) in words.into_iter().enumerate() {
        // SAFETY: the root has eight words.
        unsafe { root.add(at).write(word) };
    }
    // SAFETY: the tag does not belong to a Rust type.
    unsafe { session.set_root(Some(root.cast()), 64, [0; 16], "") }.expect("a root");
    session.commit().expect("committed");
    session.close().expect("closed");
    place
}

fn at(place: &Place, store: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["--store", store], arguments].concat();
    Ran::of(place.bare(&arguments).output().expect("the program runs"))
}

#[test]
fn audit_reports_pointers_leaks_and_sizes_as_text_and_json() {
    let place = place();
    let ran = place.run(&["audit", "raw"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.starts_with("evermap: object `raw`: 1 pointer damaged"), "{ran:?}");
    for line in [
        "damage    1 foreign (likely): looks like ",
        "          root +8 = 0x",
        "suspect   1 dangling (likely): a place where nothing is allocated",
        "leaked    1 block, 4.10 kB, with 1 head",
    ] {
        assert!(ran.out.contains(line), "{line:?} is not in {}", ran.out);
    }
    let lines = json_lines(&place.run(&["audit", "raw", "--json"]).out);
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("finding").len(), 2);
    assert_eq!(of("finding")[0]["samples"][0]["path"], "root +8");
    assert_eq!((&of("leaks")[0]["blocks"], &of("leaks")[0]["heads"]), (&1.into(), &1.into()));
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["typing"], &summary["reached_blocks"]), (&"untyped".into(), &2.into()));
    // `--pid` adds the names of the pointers' targets.
    let pid = std::process::id().to_string();
    let named = place.run(&["audit", "raw", "--pid", &pid]).out;
    assert!(named.contains("foreign (likely): [heap]") || named.contains("anonymous"), "{named}");
    place.fails(3, "no process 4194304000", &["audit", "raw", "--pid", "4194304000"]);
    place.fails(3, "`evermap ls`", &["audit", "missing"]);
}

#[test]
fn a_document_is_audited_by_type() {
    let place = place();
    let words = place.ok(&["audit", "a.html", "--strict"]);
    assert!(words.contains("EvermapDocument") && words.ends_with("nothing found\n"), "{words}");
}

#[test]
fn a_rebase_is_planned_done_and_undone() {
    let place = place();
    let address = |place: &Place| {
        let info = place.info("raw");
        info["object"]["address"].as_str().expect("an address").to_string()
    };
    let before = address(&place);
    let planned = place.ok(&["rebase", "--dry-run"]);
    assert!(
        planned.contains("nothing was changed") && planned.contains("root +0 = 0x"),
        "{planned}"
    );
    assert_eq!(address(&place), before);
    let done = json_lines(&place.ok(&["rebase", "--json"]));
    assert_eq!(done[1]["name"], "raw");
    assert_eq!(
        (&done[1]["moved"][0]["kind"], &done[1]["moved"][0]["count"]),
        (&"beginning".into(), &1.into())
    );
    let kept = done[2]["kept_in"].as_str().expect("a path");
    assert!(std::path::Path::new(kept).join("catalog").exists());
    assert_ne!(address(&place), before);
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
    assert_eq!(place.ok(&["query", "a.html", "h1", "--text"]), "a\n");
    place.ok(&["mv", "a.html", "b.html"]);
    place.fails(10, "--undo --force", &["rebase", "--undo"]);
    let undone = place.ok(&["rebase", "--undo", "--force"]);
    assert!(undone.starts_with("undid rebase-"), "{undone}");
    assert_eq!((address(&place), place.ok(&["ls"])), (before, "a.html\nraw\n".to_string()));
    place.fails(3, "no pre-rebase files to restore", &["rebase", "--undo"]);
    place.fails(2, "hexadecimal", &["rebase", "--to", "here"]);
    place.fails(2, "multiple of 1 GiB", &["rebase", "--to", "0x200000001000"]);
    place.fails(2, "--undo", &["rebase", "--force"]);
}

#[test]
fn an_object_is_exported_and_imported_through_a_file_and_a_pipe() {
    let place = place();
    let words = place.ok(&["export", "a.html", "a.object"]);
    assert!(words.starts_with("a.object: `a.html`, "), "{words}");
    place.fails(9, "--force", &["export", "a.html", "a.object"]);
    place.ok(&["export", "a.html", "a.object", "--force", "--json"]);
    place.fails(9, "already exists", &["import", "a.object"]);
    let line = json_lines(&place.ok(&["import", "a.object", "again", "--json"])).remove(0);
    assert_eq!((&line["name"], &line["old_name"]), (&"again".into(), &"a.html".into()));
    assert_eq!(place.ok(&["query", "again", "h1", "--text"]), "a\n");

    let piped = place.command(&["export", "raw", "-"]).output().expect("it runs");
    assert!(piped.status.success(), "{piped:?}");
    place.ok(&["rm", "raw"]);
    let taken = place.run_with_input(&["import", "-", "raw"], &piped.stdout);
    assert_eq!(taken.code, 0, "{taken:?}");
    assert!(taken.out.contains("its old address"), "{taken:?}");
    place.fails(2, "--json", &["export", "raw", "-", "--json"]);

    let cut = place.run_with_input(&["import", "-", "cut"], &piped.stdout[..9_000]);
    cut.failed(5, "cut short");
    let other = place.run_with_input(&["import", "-", "x"], b"<p>");
    other.failed(5, "standard input is not an Evermap file");
    assert!(other.err.contains("`evermap store export`"), "{other:?}");
    for arguments in [&["backup", "-"][..], &["restore", "-", "--force"]] {
        place.fails(2, "a backup is a directory, not a stream", arguments);
    }
    place.file("page.html", "<p>");
    place.fails(5, "is not an Evermap file", &["import", "page.html", "x"]);
    place.fails(3, "nothing.object", &["import", "nothing.object"]);
    assert_eq!(place.ok(&["ls"]), "a.html\nagain\nraw\n");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
}

#[test]
fn import_makes_a_missing_store_but_not_for_a_file_that_is_no_export() {
    let place = place();
    place.ok(&["export", "a.html", "a.object"]);
    for (arguments, code) in [
        (&["import", "a.html"][..], 5),
        (&["import", "a.object", ".."], 2),
        (&["import", "missing.object"], 3),
        (&["import", "."], 2),
    ] {
        assert_eq!(at(&place, "new", arguments).code, code, "{arguments:?}");
        assert!(!place.path("new").exists(), "{arguments:?} made a store");
    }
    assert_eq!(at(&place, "new", &["import", "a.object"]).code, 0);
    assert_eq!(at(&place, "new", &["query", "a.html", "h1", "--text"]).out, "a\n");
    // A directory in the store's place stays unchanged.
    std::fs::create_dir(place.path("mine")).expect("made");
    place.file("mine/notes", "mine");
    at(&place, "mine", &["import", "a.object"]).failed(9, "notes");
    at(&place, "a.html", &["import", "a.object"]).failed(9, "a.html");
}

#[test]
fn files_that_cannot_be_written_or_read_are_reported_with_a_remedy() {
    let place = place();
    let export =
        |file: &str, more: &[&str]| place.run(&[&["export", "a.html", file], more].concat());
    export("nodir/x", &[])
        .failed(3, "cannot write nodir/x: directory nodir does not exist; create it");
    export("a.html/x", &[]).failed(3, "cannot write a.html/x: a.html is not a directory");
    for more in [&[][..], &["--force"]] {
        export("store", more).failed(2, "cannot write store: it is a directory; name a file in it");
        // A device is written to, never replaced.
        export("/dev/full", more).failed(7, "accepts no more bytes; name a file");
        assert_eq!(export("/dev/null", more).code, 0);
    }
    assert!(!std::fs::metadata("/dev/null").expect("it is there").is_file());
    place.fails(3, "cannot write nodir/x: directory", &["map", "raw", "--svg", "nodir/x"]);
    place.fails(2, "cannot read store: it is a directory", &["import", "store", "x"]);
    place.fails(3, "cannot read a.html/x", &["import", "a.html/x", "x"]);
    place.fails(9, "a.html is not a directory", &["backup", "a.html/copy"]);
    at(&place, "new", &["restore", "nothing"]).failed(3, "no backup at nothing");
    // Failed calls leave nothing.
    let mut left: Vec<_> = std::fs::read_dir(place.path(""))
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    left.sort();
    assert_eq!(left, [".local", "a.html", "store"]);
}

#[test]
fn audit_warns_if_unreached_blocks_may_not_be_leaks() {
    let place = place();
    let _open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let store = Store::open(place.store()).expect("a store");
    for (name, has_root) in [("rootless", false), ("hidden", true)] {
        store.create_raw(name).expect("made");
        let mut session = store.write_raw(name).expect("open");
        let blocks = [64, 64].map(|bytes| session.heap().allocate_zeroed(bytes, 8).expect("room"));
        // SAFETY: the block has eight words. A tagged pointer is not a valid address.
        unsafe { blocks[0].cast::<u64>().write(blocks[1].as_ptr() as u64 | 1 << 63) };
        if has_root {
            // SAFETY: the tag does not belong to a Rust type.
            unsafe { session.set_root(Some(blocks[0]), 64, [0; 16], "") }.expect("a root");
        }
        session.commit().expect("committed");
        session.close().expect("closed");
    }
    for (name, kind, says, blocks) in [
        ("rootless", "no_root", "the object has no root", "2 blocks,"),
        ("hidden", "no_pointers", "its pointers are hidden", "1 block,"),
    ] {
        let words = place.ok(&["audit", name]);
        assert!(words.contains("warning   ") && words.contains(says), "{words}");
        assert!(words.contains(&format!("unreached {blocks}")), "{words}");
        assert!(
            !words.contains("leaked   ")
                && !words.contains("blocks leaked")
                && !words.contains("block leaked"),
            "{words}"
        );
        let lines = json_lines(&place.ok(&["audit", name, "--json"]));
        let warning = lines.iter().find(|line| line["type"] == "warning").expect("a warning");
        assert_eq!(warning["kind"], kind);
        assert!(warning["text"].as_str().expect("a text").contains(says), "{warning}");
        assert_eq!(place.run(&["audit", name, "--strict"]).code, 5);
    }
    // If the root points to a block, unreached blocks are leaks.
    let leaky = place.run(&["audit", "raw"]).out;
    assert!(!leaky.contains("warning") && leaky.contains("1 block leaked"), "{leaky}");
}

#[test]
fn a_rebase_to_the_addresses_of_another_store_needs_force() {
    let place = place();
    assert_eq!(at(&place, "other", &["parse", "a.html"]).code, 0);
    let noted = std::fs::read_to_string(place.path(".local/state/evermap/arenas")).expect("notes");
    let line = noted.lines().find(|line| line.ends_with("/other")).expect("its note");
    let base = line.split(' ').next().expect("an address");
    let below = u64::from_str_radix(&base[2..], 16).expect("an address") - (1 << 30);
    let before = place.info("raw")["object"]["address"].clone();
    // The same first address, and a partial overlap.
    for to in [base, &format!("{below:#x}")] {
        let ran = place.run(&["rebase", "--to", to]);
        assert!(ran.err.contains("/other, according to your arena registry"), "{ran:?}");
        ran.failed(4, "use force");
        let planned = place.ok(&["rebase", "--to", to, "--dry-run"]);
        assert!(planned.contains("warning: store ") && planned.contains("/other has"), "{planned}");
        let lines = json_lines(&place.ok(&["rebase", "--to", to, "--dry-run", "--json"]));
        let met = &lines.last().expect("a summary")["met"];
        assert_eq!((met.as_array().map(Vec::len), &met[0]["base"]), (Some(1), &base.into()));
    }
    assert_eq!(place.info("raw")["object"]["address"], before);
    let forced = place.ok(&["rebase", "--to", base, "--force"]);
    assert!(forced.contains("no process can have both open"), "{forced}");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
    place.fails(2, "this store is already there", &["rebase", "--to", base]);
    place.ok(&["rebase", "--undo"]);
    // The addresses of a removed store are free.
    std::fs::remove_dir_all(place.path("other")).expect("removed");
    let moved = place.ok(&["rebase", "--to", base]);
    assert!(!moved.contains("warning"), "{moved}");
}

/// `/dev/stdout` is such a link. The test makes its own, because a defect could replace it.
#[test]
fn a_report_is_not_mixed_into_data_that_goes_to_standard_output() {
    let place = place();
    let link = place.path("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).expect("a link");
    let data = place.command(&["export", "raw", "-"]).output().expect("it runs").stdout;
    let reference = place.ok(&["generate", "reference", "-"]);
    let bytes = place.file("bytes", [7; 10_000]);
    let cases: [(&[&str], &[u8], &str); 5] = [
        (&["export", "raw", "stdout"], &data, "stdout: `raw`, "),
        (&["export", "raw", "stdout", "--force"], &data, "stdout: `raw`, "),
        (&["export", "raw", "stdout", "--json"], &data, "{\"name\":\"raw\","),
        (&["generate", "reference", "stdout"], reference.as_bytes(), ""),
        (&["copy", "bytes", "stdout", "--explain"], &[7; 10_000], "bytes: 10"),
    ];
    for (arguments, data, report) in cases {
        let ran = place.command(arguments).output().expect("it runs");
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && err.starts_with(report), "{arguments:?}: {err}");
        assert!(ran.stdout == data, "{arguments:?}: the data differs");
        // Runs the same command with a file as standard output.
        let path = place.path("redirected");
        let file = std::fs::File::create(&path).expect("a file");
        let ran = place.command(arguments).stdout(file).output().expect("it runs");
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && err.starts_with(report), "{arguments:?}: {err}");
        assert!(std::fs::read(&path).expect("the file") == data, "{arguments:?}: the data differs");
        assert!(link.is_symlink(), "{arguments:?} replaced the link");
    }
    assert!(bytes.exists());
    // Data elsewhere leaves the report on standard output.
    assert!(place.ok(&["export", "raw", "file"]).starts_with("file: `raw`, "));
}
