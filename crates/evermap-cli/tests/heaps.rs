//! `audit`, `rebase`, `export` and `import`, run as a user does.

mod common;

use common::{Place, Ran, json_lines, page};
use evermap::Store;

/// A store with a document and a raw object: a root, a block that it leads to, one that is lost, a
/// pointer to what this program has and one to nothing.
fn place() -> Place {
    let place = Place::new();
    place.file("a.html", page(200, "a"));
    place.ok(&["parse", "a.html"]);
    let store = Store::open(place.store()).expect("a store");
    store.create_raw("raw").expect("made");
    let mut session = store.write_raw("raw").expect("open");
    let block = |bytes| session.heap().allocate_zeroed(bytes, 8).expect("room").cast::<u64>();
    let (root, next, _lost) = (block(64), block(128), block(4_000));
    let gone = block(70_000);
    let own = Box::new(1u64);
    session.heap().try_free(gone.cast()).expect("freed");
    let words = [next.as_ptr() as u64, &raw const *own as u64, gone.as_ptr() as u64];
    for (at, word) in words.into_iter().enumerate() {
        // SAFETY: the root has eight words.
        unsafe { root.add(at).write(word) };
    }
    session.set_root(Some(root.cast()), 64, [0; 16], "").expect("a root");
    session.commit().expect("committed");
    session.close().expect("closed");
    place
}

fn at(place: &Place, store: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["--store", store], arguments].concat();
    Ran::of(place.bare(&arguments).output().expect("the program runs"))
}

#[test]
fn an_audit_tells_pointers_leaks_and_sizes_in_words_and_in_json() {
    let place = place();
    let ran = place.run(&["audit", "raw"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.starts_with("evermap: object `raw`: 1 pointers damaged"), "{ran:?}");
    for line in [
        "damage    1 foreign (likely): looks like ",
        "          root +8 = 0x",
        "suspect   1 dangling (likely): a place where nothing is allocated",
        "leaked    1 blocks, 4.10 kB, that begin at 1 places",
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
    // Who has a process can ask for names.
    let pid = std::process::id().to_string();
    let named = place.run(&["audit", "raw", "--pid", &pid]).out;
    assert!(named.contains("foreign (likely): [heap]") || named.contains("anonymous"), "{named}");
    place.fails(3, "No such file", &["audit", "raw", "--pid", "4194304000"]);
    place.fails(3, "`evermap ls`", &["audit", "missing"]);
}

#[test]
fn a_document_is_audited_by_its_types() {
    let place = place();
    let words = place.ok(&["audit", "a.html", "--strict"]);
    assert!(words.contains("EvermapDocument") && words.ends_with("nothing found\n"), "{words}");
}

#[test]
fn a_rebase_is_planned_done_and_taken_back() {
    let place = place();
    let address = |place: &Place| {
        let info = place.info("raw");
        info["object"]["address"].as_str().expect("an address").to_string()
    };
    let before = address(&place);
    let planned = place.ok(&["rebase", "--dry-run"]);
    assert!(planned.contains("nothing changed") && planned.contains("root +0 = 0x"), "{planned}");
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
    place.fails(3, "no files of before a rebase", &["rebase", "--undo"]);
    place.fails(2, "hexadecimal", &["rebase", "--to", "here"]);
    place.fails(2, "multiple of 1 GiB", &["rebase", "--to", "0x200000001000"]);
    place.fails(2, "--undo", &["rebase", "--force"]);
}

#[test]
fn an_object_goes_through_a_file_and_through_a_pipe() {
    let place = place();
    let words = place.ok(&["export", "a.html", "a.object"]);
    assert!(words.starts_with("a.object: `a.html`, "), "{words}");
    place.fails(9, "--force", &["export", "a.html", "a.object"]);
    place.ok(&["export", "a.html", "a.object", "--force", "--json"]);
    place.fails(9, "exists already", &["import", "a.object"]);
    let line = json_lines(&place.ok(&["import", "a.object", "again", "--json"])).remove(0);
    assert_eq!((&line["name"], &line["old_name"]), (&"again".into(), &"a.html".into()));
    assert_eq!(place.ok(&["query", "again", "h1", "--text"]), "a\n");

    let piped = place.command(&["export", "raw", "-"]).output().expect("it runs");
    assert!(piped.status.success(), "{piped:?}");
    place.ok(&["rm", "raw"]);
    let taken = place.run_with_input(&["import", "-", "raw"], &piped.stdout);
    assert_eq!(taken.code, 0, "{taken:?}");
    assert!(taken.out.contains("where it was"), "{taken:?}");
    place.fails(2, "--json", &["export", "raw", "-", "--json"]);

    let cut = place.run_with_input(&["import", "-", "cut"], &piped.stdout[..9_000]);
    cut.failed(5, "cut short");
    place.file("page.html", "<p>");
    place.fails(5, "is not an Evermap file", &["import", "page.html", "x"]);
    place.fails(3, "nothing.object", &["import", "nothing.object"]);
    at(&place, "nowhere", &["import", "a.object"]).failed(3, "no store at");
    assert_eq!(place.ok(&["ls"]), "a.html\nagain\nraw\n");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
}
