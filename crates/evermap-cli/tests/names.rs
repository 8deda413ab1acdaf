//! Documents are named after their files' paths. Every verb accepts the path, the name, or its end.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, Ran, json_lines};
use evermap::Store;
use evermap_dom::{Document, NewDocument, Source, html};

/// Makes two files with the same base name, in directories next to the store.
fn two_pages() -> Place {
    let place = Place::new();
    for folder in ["a", "b", "b/deep"] {
        std::fs::create_dir_all(place.path(folder)).unwrap();
    }
    place.file("a/index.html", "<h1>first</h1>");
    place.file("b/index.html", "<h1>second</h1>");
    place
}

impl Place {
    fn run_in(&self, folder: &str, arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        Ran::of(command.current_dir(self.path(folder)).output().unwrap())
    }

    fn heading_in(&self, folder: &str, name: &str) -> String {
        let ran = self.run_in(folder, &["query", name, "h1", "--text"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{folder} {name}: {ran:?}");
        ran.out.trim_end().to_string()
    }
}

#[test]
fn files_with_the_same_base_name_are_separate_documents() {
    let place = two_pages();
    place.ok(&["parse", "a/index.html"]);
    place.ok(&["parse", "b/index.html"]);
    assert_eq!(place.ok(&["ls"]), "a/index.html\nb/index.html\n");
    for (name, heading) in [("a/index.html", "first"), ("b/index.html", "second")] {
        assert_eq!(place.heading_in("", name), heading);
        assert_eq!(place.heading_in("", &format!("./{name}")), heading);
        assert_eq!(place.heading_in("", &format!("b/../{name}")), heading);
        assert_eq!(place.heading_in("", place.path(name).to_str().unwrap()), heading);
    }
    // From other directories: the path from there, and the name that `ls` shows.
    assert_eq!(place.heading_in("a", "index.html"), "first");
    assert_eq!(place.heading_in("b", "index.html"), "second");
    assert_eq!(place.heading_in("b/deep", "../index.html"), "second");
    assert_eq!(place.heading_in("b/deep", "a/index.html"), "first");
    // Also in one call, and with other spellings of the paths.
    place.ok(&["parse", "--force", "a/index.html", "b/index.html"]);
    place.fails(2, "same file", &["parse", "a/index.html", "./b/../a/index.html"]);
    assert_eq!(place.ok(&["ls"]).lines().count(), 2);
}

#[test]
fn a_file_outside_the_stores_parent_is_named_by_its_absolute_path() {
    let place = two_pages();
    let other = Place::new();
    let page = other.file("index.html", "<h1>third</h1>");
    place.ok(&["parse", page.to_str().unwrap(), "a/index.html"]);
    let names = place.ok(&["ls"]);
    assert_eq!(names, format!("{}\na/index.html\n", page.display()));
    assert_eq!(place.heading_in("", page.to_str().unwrap()), "third");
    let relative = std::path::Path::new("..").join(page.strip_prefix("/").unwrap());
    let up = "../".repeat(place.path("").components().count());
    assert_eq!(place.heading_in("", &format!("{up}{}", relative.display())), "third");
}

#[test]
fn a_unique_end_of_a_name_is_enough() {
    let place = two_pages();
    place.file("b/deep/other.html", "<h1>other</h1>");
    place.ok(&["parse", "a/index.html", "b/index.html", "b/deep/other.html"]);
    assert_eq!(place.heading_in("", "other.html"), "other");
    assert_eq!(place.heading_in("", "deep/other.html"), "other");
    assert_eq!(place.heading_in("a", "other.html"), "other");
    let ran = place.run(&["query", "index.html", "h1"]);
    ran.failed(2, "`index.html` matches 2 documents: `a/index.html`, `b/index.html`");
    // An end has to begin after a slash.
    place.fails(3, "no object `ther.html`", &["query", "ther.html", "h1"]);
    place.fails(3, "no object", &["query", "c/index.html", "h1"]);
}

#[test]
fn an_ambiguous_name_lists_five_documents_at_most() {
    let place = Place::new();
    let files: Vec<String> = (0..9).map(|n| format!("d{n}/index.html")).collect();
    for file in &files {
        std::fs::create_dir(place.path(&file[..2])).unwrap();
        place.file(file, "<p>a");
    }
    let mut arguments = vec!["parse"];
    arguments.extend(files.iter().map(String::as_str));
    place.ok(&arguments);
    let ran = place.run(&["rm", "index.html"]);
    ran.failed(2, "and 4 more");
    assert_eq!(place.ok(&["ls"]).lines().count(), 9, "nothing was removed");
}

#[test]
fn a_name_and_a_path_of_different_documents_are_ambiguous() {
    let place = two_pages();
    place.file("index.html", "<h1>outside</h1>");
    place.ok(&["parse", "a/index.html", "index.html"]);
    assert_eq!(place.heading_in("", "index.html"), "outside");
    let ran = place.run_in("a", &["query", "index.html", "h1"]);
    ran.failed(2, "matches 2 documents: `index.html`, `a/index.html`");
    assert_eq!(place.heading_in("a", "./index.html"), "first");
    assert_eq!(place.heading_in("a", "../index.html"), "outside");
}

#[test]
fn every_verb_for_documents_accepts_a_path() {
    let place = two_pages();
    place.ok(&["parse", "a/index.html", "b/index.html"]);
    for spelling in ["a/index.html", "./a/index.html", place.path("a/index.html").to_str().unwrap()]
    {
        assert_eq!(place.info(spelling)["name"], "a/index.html");
        assert_eq!(place.info(spelling)["source"]["standing"], "unchanged");
        for verb in ["map", "stats", "audit"] {
            let listing = place.ok(&[verb, "--json", spelling]);
            let names = json_lines(&listing);
            assert!(names.iter().any(|line| line["name"] == "a/index.html"), "{verb}: {listing}");
        }
        let file = place.path("exported");
        place.ok(&["export", "--force", spelling, file.to_str().unwrap()]);
        place.ok(&["import", file.to_str().unwrap(), "copy"]);
        place.ok(&["rm", "copy"]);
        place.ok(&["mv", spelling, "front"]);
        assert_eq!(place.heading_in("", "front"), "first");
        place.ok(&["rm", "front"]);
        place.ok(&["parse", "a/index.html"]);
        place.ok(&["rm", spelling]);
        assert_eq!(place.ok(&["ls"]), "b/index.html\n");
        place.ok(&["parse", "a/index.html"]);
    }
    // `parse` names a document after its file, or by a name without a slash.
    place.fails(2, "contains a slash", &["parse", "a/index.html", "--name", "x/y"]);
    assert!(place.ok(&["check"]).contains("nothing found"));
}

#[test]
fn paths_of_up_to_four_thousand_bytes_are_names() {
    let place = Place::new();
    let folder = ["directory-with-a-long-name"; 30].join("/");
    for first in ["a", "b"] {
        std::fs::create_dir_all(place.path(first).join(&folder)).unwrap();
        place.file(&format!("{first}/{folder}/index.html"), format!("<h1>{first}</h1>"));
    }
    let [a, b] = ["a", "b"].map(|first| format!("{first}/{folder}/index.html"));
    place.ok(&["parse", &a, &b]);
    assert_eq!(place.ok(&["ls"]), format!("{a}\n{b}\n"));
    assert_eq!(place.heading_in("", &a), "a");
    assert_eq!(place.heading_in(&format!("b/{folder}"), "./index.html"), "b");
    assert_eq!(place.info(&a)["name"], *a);
    assert_eq!(place.info(&a)["source"]["path"], place.path(&a).to_str().unwrap());
    place.fails(2, "matches 2 documents", &["query", "index.html", "h1"]);
    assert!(place.ok(&["parse", &a]).contains("unchanged"));
    place.file(&a, "<h1>changed</h1>");
    assert_eq!(place.heading_in("", &a), "changed");
    assert_eq!(place.ok(&["ls"]).lines().count(), 2);
    place.ok(&["rm", &b]);
    assert_eq!(place.ok(&["ls"]), format!("{a}\n"));
}

#[test]
fn symbolic_links_are_not_resolved() {
    let place = two_pages();
    std::os::unix::fs::symlink("a", place.path("link")).unwrap();
    place.ok(&["parse", "link/index.html", "a/index.html"]);
    assert_eq!(place.ok(&["ls"]), "a/index.html\nlink/index.html\n");
    // `..` after a link refers to the parent of the link's target.
    std::os::unix::fs::symlink("b/deep", place.path("short")).unwrap();
    place.ok(&["parse", "short/../index.html"]);
    assert_eq!(place.heading_in("", "short/../index.html"), "second");
}

#[test]
fn names_do_not_depend_on_how_the_path_of_the_store_is_spelled() {
    let place = two_pages();
    std::fs::create_dir(place.path("links")).unwrap();
    std::os::unix::fs::symlink("../a", place.path("links/folder")).unwrap();
    std::os::unix::fs::symlink("../a/store", place.path("b/store")).unwrap();
    let stores = [
        "a/store".to_string(),
        "a/../a/./store".to_string(),
        "links/folder/store".to_string(),
        "b/store".to_string(),
        place.path("b/store").display().to_string(),
        place.path("links/folder/store").display().to_string(),
    ];
    let in_store = |store: &str, arguments: &[&str]| {
        let mut command = place.bare(&["--store", store]);
        let ran = Ran::of(command.args(arguments).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{store} {arguments:?}: {ran:?}");
        ran.out
    };
    in_store("a/store", &["parse", "a/index.html"]);
    // The file beside the link is another document, and does not replace that of the store.
    let beside = place.path("b/index.html").display().to_string();
    for store in &stores {
        in_store(store, &["parse", "b/index.html"]);
        assert_eq!(in_store(store, &["ls"]), format!("{beside}\nindex.html\n"), "{store}");
        let linked = place.path("links/folder/index.html").display().to_string();
        for path in ["a/index.html", "links/folder/index.html", &linked] {
            assert!(in_store(store, &["parse", path]).contains("unchanged"), "{store} {path}");
            assert_eq!(in_store(store, &["query", path, "h1", "--text"]), "first\n", "{store}");
        }
        assert_eq!(in_store(store, &["query", "b/index.html", "h1", "--text"]), "second\n");
    }
    // A changed file is found by every spelling, and is the same file.
    for (round, store) in stores.iter().enumerate() {
        let heading = format!("round {round}");
        place.file("a/index.html", format!("<h1>{heading}</h1>"));
        common::set_age(&place.path("a/index.html"), 40 - round as u64);
        let found = in_store(store, &["query", "a/index.html", "h1", "--text"]);
        assert_eq!(found.trim_end(), heading, "{store}");
    }
    // A new store has the same names as it will have when it exists.
    in_store("links/folder/new", &["parse", "a/index.html"]);
    assert_eq!(in_store("a/new", &["ls"]), "index.html\n");
}

#[test]
fn a_store_that_is_moved_with_its_files_finds_them() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("site/a")).unwrap();
    place.file("site/a/index.html", "<h1>first</h1>");
    let in_store = |folder: &str, arguments: &[&str]| {
        let mut command = place.bare(&["--store", &format!("{folder}/store")]);
        Ran::of(command.args(arguments).output().unwrap())
    };
    assert_eq!(in_store("site", &["parse", "site/a/index.html"]).code, 0);
    std::fs::rename(place.path("site"), place.path("moved")).unwrap();
    let query = ["query", "moved/a/index.html", "h1", "--text"];
    let ran = in_store("moved", &query);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "first\n", ""), "{ran:?}");
    // The file at the new place may be another one, so its contents are not taken unless asked.
    place.file("moved/a/index.html", "<h1>changed</h1>");
    let before = common::contents(&place.path("moved/store"));
    let ran = in_store("moved", &query);
    assert_eq!((ran.code, ran.out.as_str()), (0, "first\n"), "{ran:?}");
    assert!(ran.err.contains("the store was moved: the source was"), "{ran:?}");
    assert!(
        ran.err.contains("site/a/index.html") && ran.err.contains("--stale refresh"),
        "{ran:?}"
    );
    assert_eq!(common::contents(&place.path("moved/store")), before, "the store has changed");
    // `info` shows where the source is looked for, and where it was.
    let info = |how: &[&str]| {
        let ran = in_store("moved", &[&["info", "moved/a/index.html"], how].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out
    };
    let [now, before] = ["moved", "site"].map(|folder| place.path(folder).join("a/index.html"));
    let source = &json_lines(&info(&["--json"]))[0]["source"];
    assert_eq!(source["path"], now.to_str().unwrap());
    assert_eq!(source["earlier_path"], before.to_str().unwrap());
    let text = info(&[]);
    assert!(text.contains(&format!("\nsource      {}, ", now.display())), "{text}");
    let was = format!("\nwas at      {}, before the store was moved", before.display());
    assert!(text.contains(&was), "{text}");
    let asked = [&query[..], &["--stale", "refresh"]].concat();
    let ran = in_store("moved", &asked);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "changed\n", ""), "{ran:?}");
    // From then on the new place is the document's.
    assert!(!info(&[]).contains("was at"));
    assert!(info(&["--json"]).contains("\"earlier_path\":null"));
    place.file("moved/a/index.html", "<h1>again</h1>");
    let ran = in_store("moved", &query);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "again\n", ""), "{ran:?}");
}

/// A store that is moved alone meets other files of the same names.
#[test]
fn a_store_that_is_moved_without_its_files_takes_no_others() {
    let place = two_pages();
    let in_store = |store: &str, arguments: &[&str]| {
        let mut command = place.bare(&["--store", store]);
        Ran::of(command.args(arguments).output().unwrap())
    };
    place.file("a/page.html", "<h1>mine</h1>");
    place.file("b/page.html", "<h1>another</h1>");
    assert_eq!(in_store("a/store", &["parse", "a/page.html"]).code, 0);
    std::fs::rename(place.path("a/store"), place.path("b/store")).unwrap();
    let before = common::contents(&place.path("b/store"));
    for _ in 0..2 {
        let ran = in_store("b/store", &["query", "page.html", "h1", "--text"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "mine\n"), "{ran:?}");
        assert!(ran.err.contains("b/page.html has changed") && ran.err.contains("a/page.html"));
    }
    assert_eq!(common::contents(&place.path("b/store")), before, "the store has changed");
    // The same file by another path is not another file.
    std::fs::rename(place.path("b/store"), place.path("a/store")).unwrap();
    std::os::unix::fs::symlink("a", place.path("link")).unwrap();
    place.file("a/page.html", "<h1>newer</h1>");
    let ran = in_store("link/store", &["query", "page.html", "h1", "--text"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "newer\n", ""), "{ran:?}");
}

#[test]
fn a_renamed_document_gets_its_old_name_back() {
    let place = two_pages();
    let other = Place::new();
    let outside = other.file("index.html", "<h1>outside</h1>").to_str().unwrap().to_string();
    let folder = ["directory-with-a-long-name"; 20].join("/");
    std::fs::create_dir_all(place.path(&folder)).unwrap();
    let long = format!("{folder}/index.html");
    place.file(&long, "<h1>long</h1>");
    let names = ["a/index.html", &outside, &long];
    place.ok(&[&["parse"][..], &names].concat());
    let listing = place.ok(&["ls"]);
    for name in names {
        place.ok(&["mv", name, "short"]);
        place.fails(3, "no object", &["query", name, "h1"]);
        place.ok(&["mv", "short", name]);
        assert_eq!(place.ok(&["ls"]), listing);
        assert!(place.ok(&["parse", name]).contains("unchanged"));
    }
    // An import under such a name also makes the object that the name finds.
    let file = place.path("exported");
    place.ok(&["export", "a/index.html", file.to_str().unwrap()]);
    place.ok(&["import", file.to_str().unwrap(), "c/index.html"]);
    assert_eq!(place.heading_in("", "c/index.html"), "first");
    // Names that no path has are refused.
    for name in ["a//b", "a/", "./a", "a/../b", "//x"] {
        place.fails(2, "a part between its slashes", &["mv", "c/index.html", name]);
        place.fails(2, "a part between", &["import", file.to_str().unwrap(), name]);
    }
    // A file does not replace a document of another file that was given its name.
    place.ok(&["mv", "c/index.html", "b/index.html"]);
    place.fails(9, "was made from", &["parse", "b/index.html"]);
    assert_eq!(place.heading_in("", "b/index.html"), "first");
}

#[test]
fn the_end_of_a_name_removes_and_renames_nothing() {
    let place = two_pages();
    place.ok(&["parse", "a/index.html"]);
    let says = "`index.html` is only the end of `a/index.html`; type the whole name";
    for folder in ["", "b"] {
        place.run_in(folder, &["rm", "index.html"]).failed(2, says);
        place.run_in(folder, &["mv", "index.html", "front"]).failed(2, says);
        assert_eq!(place.ok(&["ls"]), "a/index.html\n");
    }
    // In the file's directory it is the path of the file.
    let ran = place.run_in("a", &["rm", "index.html"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "");
}

/// In stores of older versions documents are named after their files' base names.
#[test]
fn documents_named_by_base_names_stay_readable_and_are_not_replaced_by_other_files() {
    let place = two_pages();
    let store = Store::create_new(place.store()).unwrap();
    let text = "<h1>first</h1>";
    let tables = html::parse(text, &Default::default()).unwrap();
    let source = Source {
        path: place.path("a/index.html").to_str().unwrap().to_string(),
        size_bytes: text.len() as u64,
        modified_ns: 0,
        hash: blake3::hash(text.as_bytes()).into(),
    };
    let document = NewDocument { tables: &tables, source: &source };
    store.create::<Document, _>("index.html", document).unwrap();
    drop(store);
    assert_eq!(place.heading_in("", "index.html"), "first");
    assert_eq!(place.heading_in("", "a/index.html"), "first");
    assert_eq!(place.heading_in("a", "./index.html"), "first");
    // The same file keeps its old name. Another file gets a new name.
    assert!(place.ok(&["parse", "a/index.html"]).contains("unchanged"));
    place.ok(&["parse", "b/index.html"]);
    assert_eq!(place.ok(&["ls"]), "b/index.html\nindex.html\n");
    // A third file's own name is taken by the old document.
    place.file("index.html", "<h1>outside</h1>");
    place.fails(9, "was made from", &["parse", "index.html"]);
    assert_eq!(place.heading_in("", "a/index.html"), "first");
    place.ok(&["mv", "a/index.html", "old"]);
    place.ok(&["parse", "index.html"]);
    assert_eq!(place.heading_in("", "index.html"), "outside");
    assert_eq!(place.heading_in("", "old"), "first");
}

#[test]
fn the_name_that_ls_shows_finds_a_document_from_every_directory() {
    let place = Place::new();
    let folder = ["directory-with-a-long-name"; 12].join("/");
    std::fs::create_dir_all(place.path(&folder)).unwrap();
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    place.file(&format!("{folder}/index.html"), "<h1>long</h1>");
    place.ok(&["parse", &format!("{folder}/index.html")]);
    let listing = place.ok(&["ls"]);
    let name = listing.trim_end();
    assert!(name.len() > 255, "{name}");
    assert_eq!(place.heading_in("elsewhere", name), "long");
}
