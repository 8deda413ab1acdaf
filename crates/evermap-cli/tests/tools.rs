//! `check`, `backup` and `restore`, as a user runs them.

mod common;

use std::path::PathBuf;

use common::{Place, Ran, json_lines, page};

fn with_documents() -> Place {
    let place = Place::new();
    place.file("a.html", page(2_000, "a"));
    place.file("b.html", page(10, "b"));
    place.ok(&["parse", "a.html", "b.html"]);
    place
}

/// Runs the program with another store.
fn at(place: &Place, store: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["--store", store], arguments].concat();
    Ran::of(place.bare(&arguments).output().expect("the program runs"))
}

fn object_file(place: &Place, name: &str) -> PathBuf {
    place.store().join("objects").join(place.uuid(name))
}

fn flip(file: &PathBuf, at: usize) {
    let mut bytes = std::fs::read(file).expect("the file");
    bytes[at] ^= 0x10;
    std::fs::write(file, bytes).expect("the file is written");
}

#[test]
fn check_reports_an_intact_store_as_text_and_json() {
    let place = with_documents();
    let words = place.ok(&["check"]);
    assert!(words.starts_with("2 objects checked: "), "{words}");
    assert!(words.ends_with("nothing found\n"), "{words}");
    let lines = json_lines(&place.ok(&["check", "--json"]));
    let types: Vec<&str> =
        lines.iter().map(|line| line["type"].as_str().expect("a type")).collect();
    assert_eq!(types, ["object", "object", "object", "summary"]);
    assert_eq!(lines[0]["file"], "catalog");
    assert_eq!(lines[0]["blocks"], lines[0]["blocks_reached"]);
    assert_eq!(lines[1]["name"], "a.html");
    assert!(lines[1]["pages_verified"].as_u64().expect("checksums are kept") > 10);
    assert_eq!((&lines[3]["objects"], &lines[3]["damage"]), (&2.into(), &0.into()));
    at(&place, "nowhere", &["check"]).failed(3, "no store at");
}

#[test]
fn damage_has_exit_code_5_a_place_and_remedies() {
    let place = with_documents();
    let file = object_file(&place, "a.html");
    let middle = std::fs::metadata(&file).expect("the file").len() as usize - 9_000;
    flip(&file, middle);
    let ran = place.run(&["check", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.starts_with("evermap: store ") && ran.err.contains("is damaged"), "{ran:?}");
    let lines = json_lines(&ran.out);
    let found = lines.iter().find(|line| line["type"] == "finding").expect("a finding");
    assert_eq!((&found["severity"], &found["name"]), (&"damage".into(), &"a.html".into()));
    assert_eq!(found["file"], format!("objects/{}", place.uuid("a.html")));
    let page = middle / 4096 * 4096;
    assert_eq!(found["what"], format!("the page at byte {page} of the file"));
    // `--repair` alone does not change data.
    assert_eq!(place.run(&["check", "--repair"]).code, 5);
    let words = place.run(&["check"]).out;
    assert!(words.contains("damage    objects/") && words.contains("--accept-data"), "{words}");
    let repaired = place.ok(&["check", "--repair", "--accept-data"]);
    assert!(repaired.contains("1 repaired") && repaired.contains("kept "), "{repaired}");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
    // The other remedy.
    flip(&file, middle);
    place.ok(&["check", "--repair", "--quarantine"]);
    assert_eq!(place.ok(&["ls"]), "b.html\n");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
    place.fails(2, "--repair", &["check", "--quarantine"]);
}

#[test]
fn a_lost_catalog_is_rebuilt_with_its_names() {
    let place = with_documents();
    std::fs::remove_file(place.store().join("catalog")).expect("removed");
    assert_eq!(place.run(&["check"]).code, 5);
    let lines = json_lines(&place.ok(&["check", "--repair", "--json"]));
    assert!(lines.iter().any(|line| line["type"] == "action"), "{lines:?}");
    assert_eq!(place.ok(&["ls"]), "a.html\nb.html\n");
    assert_eq!(place.ok(&["query", "b.html", "h1", "--text"]), "b\n");
}

#[test]
fn a_backup_is_a_store_and_restore_brings_the_old_state_back() {
    let place = with_documents();
    let words = place.ok(&["backup", "copy"]);
    assert!(words.starts_with("copy: 2 objects, "), "{words}");
    place.fails(9, "choose an empty directory", &["backup", "copy"]);
    assert_eq!(at(&place, "copy", &["query", "a.html", "h1", "--text"]).out, "a\n");
    place.ok(&["rm", "a.html"]);
    place.fails(9, "--force", &["restore", "copy"]);
    let line = json_lines(&place.ok(&["restore", "copy", "--force", "--json"])).remove(0);
    assert_eq!(line["objects"], 2);
    assert_eq!(place.ok(&["ls"]), "a.html\nb.html\n");
    assert_eq!(at(&place, "new", &["restore", "copy"]).code, 0);
    assert_eq!(at(&place, "new", &["ls"]).out, "a.html\nb.html\n");
    at(&place, "other", &["restore", "nothing"]).failed(3, "no backup at nothing");
    assert!(!place.path("other").exists());
    // A damaged store is copied with a report, and is not restored.
    flip(&object_file(&place, "a.html"), 70_000);
    let ran = place.run(&["backup", "damaged", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(json_lines(&ran.out)[0]["findings"].as_array().expect("findings").len(), 1);
    place.ok(&["backup", "unverified", "--no-verify"]);
    let refused = place.run(&["restore", "damaged", "--force"]);
    assert_eq!(refused.code, 5, "{refused:?}");
}

/// Each message names the path, the cause, and a remedy.
#[test]
fn wrong_paths_change_nothing_and_are_reported_with_a_remedy() {
    let place = with_documents();
    place.file("file", "text");
    std::fs::create_dir_all(place.path("letters")).expect("made");
    place.file("letters/dear", "text");
    for (store, why) in [
        ("file", "Not a directory"),
        ("missing", "No such file"),
        ("letters", "neither a catalog nor objects"),
    ] {
        for arguments in [&["check"][..], &["check", "--repair"], &["backup", "copy"]] {
            let ran = at(&place, store, arguments);
            assert!(ran.err.contains(why) && ran.err.contains("--store"), "{ran:?}");
            ran.failed(3, store);
        }
        let ran = place.run(&["restore", store, "--force"]);
        assert!(ran.err.contains(why), "{ran:?}");
        ran.failed(3, store);
    }
    let inside = place.store().join("in");
    let inside = inside.to_str().expect("a path of the test");
    place.fails(9, "is inside", &["backup", inside]);
    place.ok(&["backup", "copy"]);
    at(&place, "copy/in", &["restore", "copy"]).failed(9, "is inside copy");
    at(&place, "copy", &["restore", "copy", "--force"]).failed(9, "is the same as copy");
    at(&place, "file", &["restore", "copy"]).failed(9, "--force");
    at(&place, "file", &["restore", "copy", "--force"]).failed(9, "Not a directory");
    at(&place, "letters", &["restore", "copy", "--force"]).failed(9, "not part of a store");
    assert_eq!(std::fs::read(place.path("letters/dear")).expect("still there"), b"text");
    assert!(place.ok(&["check"]).ends_with("nothing found\n"));
}

#[test]
fn a_backup_follows_a_symbolic_link_to_an_empty_directory_and_no_other() {
    let place = with_documents();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, place.path(name)).expect("a link");
        assert!(place.path(name).is_symlink());
    };
    for name in ["disk", "disk/empty", "disk/for-restore"] {
        std::fs::create_dir(place.path(name)).expect("made");
    }
    link("disk/empty", "link");
    assert!(place.ok(&["backup", "link"]).starts_with("link: 2 objects"));
    assert!(place.path("link").is_symlink());
    assert_eq!(at(&place, "disk/empty", &["ls"]).out, "a.html\nb.html\n");
    // The link now leads to a store.
    place.fails(9, "leads to no empty directory; choose an empty directory", &["backup", "link/"]);
    link("nowhere", "dangling");
    place.fails(9, "leads to no empty directory", &["backup", "dangling"]);
    link("disk/for-restore", "restored");
    assert_eq!(at(&place, "restored", &["restore", "link"]).code, 0);
    assert!(place.path("restored").is_symlink());
    assert_eq!(at(&place, "disk/for-restore", &["ls"]).out, "a.html\nb.html\n");
    // Replacing what a link leads to is refused, with one remedy.
    let refused = at(&place, "restored", &["restore", "link", "--force"]);
    refused.failed(9, "name the directory that it leads to");
    assert!(!refused.err.contains("choose an empty directory"), "{refused:?}");
    let left = std::fs::read_dir(place.path("disk")).expect("a directory").count();
    assert_eq!(left, 2, "a temporary directory is left");
}

/// Mounts a directory on itself in a mount namespace of its own, if the system allows that.
#[test]
fn a_mount_point_is_refused_before_the_copy_with_a_remedy() {
    let place = with_documents();
    place.ok(&["backup", "copy"]);
    std::fs::create_dir(place.path("disk")).expect("made");
    let script = "mount --bind disk disk || exit 77; \"$@\"";
    let inside = |store: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_evermap")).args(["--store", store]).args(arguments);
        command.current_dir(place.path("")).output().map(Ran::of)
    };
    match inside("store", &["ls"]) {
        Ok(ran) if ran.code == 0 => {}
        other => {
            eprintln!("SKIPPED: this system allows no mount for a test: {other:?}");
            return;
        }
    }
    for (store, arguments) in [
        ("store", &["backup", "disk"][..]),
        ("disk", &["restore", "copy"]),
        ("disk", &["restore", "copy", "--force"]),
    ] {
        let ran = inside(store, arguments).expect("it runs");
        ran.failed(10, "cannot replace disk: a file system is mounted there; name a new directory");
    }
    for (store, arguments) in
        [("store", &["backup", "disk/copy"][..]), ("disk/store", &["restore", "copy"])]
    {
        let ran = inside(store, arguments).expect("it runs");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}
