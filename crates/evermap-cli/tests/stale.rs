//! Query results are as new as the source, or a warning says that they are not.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Stdio;

use common::{Place, Ran, set_age};

/// Returns a store with a document `page.html`.
fn place() -> Place {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1>");
    place.ok(&["parse", "page.html"]);
    place
}

const QUERY: [&str; 4] = ["query", "page.html", "h1", "--text"];

fn query(place: &Place, how: &str) -> Ran {
    let mut arguments = QUERY.to_vec();
    arguments.extend(["--stale", how]);
    place.run(&arguments)
}

/// Changes the source. Its size, its time stamp or both change.
fn change(place: &Place, text: &str, age_s: u64) {
    let path = place.file("page.html", text);
    set_age(&path, age_s);
}

#[test]
fn a_changed_source_is_parsed_again_before_the_query() {
    let place = place();
    for (round, text) in ["<h1>two</h1>", "<h1>six</h1>", "<h1>longer</h1>"].iter().enumerate() {
        change(&place, text, 50 - round as u64);
        let heading = &text[4..text.len() - 5];
        assert_eq!(place.ok(&QUERY).trim_end(), heading);
        assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
    }
    // If only the time stamp has changed, the new one is stored.
    let uuid = place.uuid("page.html");
    set_age(&place.path("page.html"), 20);
    assert_eq!(place.info("page.html")["source"]["standing"], "changed");
    assert_eq!(place.ok(&QUERY), "longer\n");
    assert_eq!(place.uuid("page.html"), uuid, "unchanged contents were parsed again");
    assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
}

#[test]
fn each_policy_for_stale_documents_is_applied() {
    let place = place();
    change(&place, "<h1>two</h1>", 50);
    let ran = query(&place, "use");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "one\n", ""), "{ran:?}");
    let ran = query(&place, "warn");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("page.html has changed; using the stored document"), "{ran:?}");
    let ran = query(&place, "fail");
    ran.failed(12, "has changed;");
    let ran = query(&place, "refresh");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    for how in ["use", "warn", "fail"] {
        let ran = query(&place, how);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    }
}

#[test]
fn a_missing_source_is_reported_and_the_document_stays() {
    let place = place();
    std::fs::remove_file(place.path("page.html")).unwrap();
    let ran = query(&place, "refresh");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("page.html is gone; using the stored document"), "{ran:?}");
    query(&place, "fail").failed(12, "is gone");
    assert_eq!(query(&place, "use").err, "");
    assert_eq!(place.info("page.html")["source"]["standing"], "unreachable");
}

#[test]
fn a_source_that_can_no_longer_be_parsed_is_reported_and_the_document_stays() {
    let place = Place::new();
    place.file("feed.xml", "<a><b>one</b></a>");
    place.ok(&["parse", "feed.xml"]);
    place.file("feed.xml", "<a><b>two</b>");
    let ran = place.run(&["query", "feed.xml", "b", "--text"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("cannot be parsed again") && ran.err.contains("line 1"), "{ran:?}");
}

#[test]
fn documents_without_a_source_are_never_stale() {
    let place = Place::new();
    let ran = place.run_with_input(&["parse", "-", "--name", "page.html"], b"<h1>one</h1>");
    assert_eq!(ran.code, 0, "{ran:?}");
    place.file("page.html", "<h1>another</h1>");
    assert_eq!(place.ok(&["query", "page.html", "h1", "--text", "--stale", "fail"]), "one\n");
    assert_eq!(place.info("page.html")["source"]["standing"], "none");
}

/// The file is written just before it is parsed, so its time stamp is too new to be relied on.
#[test]
fn a_source_with_a_new_time_stamp_is_compared_by_its_contents() {
    let place = Place::new();
    let path = place.path("page.html");
    std::fs::write(&path, "<h1>one</h1>").unwrap();
    place.ok(&["parse", "page.html"]);
    assert_eq!(place.ok(&QUERY), "one\n");
    // Same length, and possibly the same tick of the clock.
    std::fs::write(&path, "<h1>two</h1>").unwrap();
    assert_eq!(place.ok(&QUERY), "two\n");
    // Once the file is older, its time stamp is stored, and it is not read again.
    set_age(&path, 60);
    assert_eq!(place.ok(&QUERY), "two\n");
    assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
}

#[test]
fn queries_at_the_same_time_parse_a_changed_source_once() {
    let place = place();
    for round in 0..3 {
        let before = place.uuid("page.html");
        change(&place, &common::page(2000, &format!("v{round}")), 40 - round);
        let children: Vec<_> = (0..8)
            .map(|_| {
                let mut command = place.command(&QUERY);
                command.arg("-v").stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        let mut parsed = 0;
        for child in children {
            let ran = Ran::of(child.wait_with_output().unwrap());
            assert_eq!(
                (ran.code, ran.out.trim_end()),
                (0, format!("v{round}").as_str()),
                "{ran:?}"
            );
            parsed += ran.err.matches("parsed the source again").count();
        }
        assert_eq!(parsed, 1, "round {round}");
        assert_ne!(place.uuid("page.html"), before);
    }
}

/// The policies for a document whose source is there, but is not a file.
#[test]
fn a_source_that_is_not_a_file_any_more_is_reported_and_never_waited_for() {
    for what in ["a directory", "a FIFO", "a socket", "a device"] {
        let place = place();
        let path = place.path("page.html");
        std::fs::remove_file(&path).unwrap();
        let listener;
        match what {
            "a directory" => std::fs::create_dir(&path).unwrap(),
            "a FIFO" => {
                let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
                assert!(made.success());
            }
            "a socket" => {
                listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
                let _ = &listener;
            }
            _ => std::os::unix::fs::symlink("/dev/null", &path).unwrap(),
        }
        let says = format!("page.html is {what}, not a file; using the stored document");
        for how in ["auto", "refresh", "warn"] {
            let ran = query(&place, how);
            assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{how} {ran:?}");
            assert!(ran.err.contains(&says), "{how} {ran:?}");
        }
        query(&place, "fail").failed(12, &format!("is {what}, not a file"));
        assert_eq!(query(&place, "use").err, "");
        assert_eq!(place.info("page.html")["source"]["standing"], "unusable");
    }
}

#[test]
fn a_document_from_a_pipe_has_no_source_to_compare() {
    let place = Place::new();
    let path = place.path("page.html");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer = {
        let path = path.clone();
        std::thread::spawn(move || std::fs::write(path, "<h1>one</h1>").unwrap())
    };
    place.ok(&["parse", "page.html"]);
    writer.join().unwrap();
    for how in ["auto", "refresh", "warn", "fail"] {
        let ran = query(&place, how);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "one\n", ""), "{ran:?}");
    }
    assert_eq!(place.info("page.html")["source"]["standing"], "none");
}

/// Documents of a file next to the store, and of one elsewhere, in a backup next to the store.
#[test]
fn a_backup_keeps_its_versions_unless_it_is_asked_for_newer_ones() {
    let (place, elsewhere) = (place(), Place::new());
    let other = elsewhere.file("other.html", "<h1>one</h1>");
    place.ok(&["parse", other.to_str().unwrap()]);
    // A source with a time stamp that was too new to be stored.
    std::fs::write(place.path("new.html"), "<h1>one</h1>").unwrap();
    place.ok(&["parse", "new.html"]);
    set_age(&place.path("new.html"), 60);
    let backup = place.path("backup");
    place.ok(&["store", "backup", backup.to_str().unwrap()]);
    let again = place.path("again");
    let in_backup = |backup: &std::path::Path, arguments: &[&str]| {
        let mut command = place.bare(&["--store", backup.to_str().unwrap()]);
        Ran::of(command.args(arguments).output().unwrap())
    };
    assert_eq!(in_backup(&backup, &["store", "backup", again.to_str().unwrap()]).code, 0);
    change(&place, "<h1>two</h1>", 50);
    elsewhere.file("other.html", "<h1>two</h1>");
    let documents = ["page.html", other.to_str().unwrap(), "new.html"];
    for backup in [&backup, &again] {
        let before = common::contents(backup);
        for name in documents {
            for how in [&[][..], &["--stale", "warn"], &["--stale", "use"]] {
                let query = [&["query", name, "h1", "--text"], how].concat();
                let ran = in_backup(backup, &query);
                assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
                let mark = format!("is a backup of {}", place.store().display());
                let is_told = how.is_empty() && name != "new.html";
                assert_eq!(ran.err.contains(&mark), is_told, "{ran:?}");
            }
        }
        assert_eq!(common::contents(backup), before, "a query changed {}", backup.display());
    }
    // A restored store has no mark, nor has a backup of an older version.
    let restored = place.path("restored");
    let restore = ["store", "restore", backup.to_str().unwrap()];
    assert_eq!(in_backup(&restored, &restore).code, 0);
    std::fs::remove_file(again.join("backup-of")).unwrap();
    for store in [restored, again] {
        let ran = in_backup(&store, &QUERY);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    }
    let ran = in_backup(&backup, &[&QUERY[..], &["--stale", "refresh"]].concat());
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
}

/// A marked store can be replaced, as a store can.
#[test]
fn a_backup_can_be_replaced_by_a_restore() {
    let place = place();
    let [backup, other] = ["backup", "other"].map(|name| place.path(name).display().to_string());
    place.ok(&["store", "backup", &backup]);
    place.ok(&["store", "backup", &other]);
    let mut restore = place.bare(&["--store", &backup, "store", "restore", &other, "--force"]);
    let ran = Ran::of(restore.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!place.path("backup/backup-of").exists());
}

/// Only the time stamp of the source is new, so a query has nothing to lose by an undo.
#[test]
fn a_query_leaves_a_rebase_undoable() {
    let place = place();
    place.ok(&["store", "rebase"]);
    set_age(&place.path("page.html"), 20);
    assert_eq!(place.ok(&QUERY), "one\n");
    place.ok(&["store", "rebase", "--undo"]);
    assert_eq!(place.ok(&QUERY), "one\n");
    assert_eq!(place.info("page.html")["source"]["standing"], "unchanged");
}

/// Changes a byte of the text in the object's file, as a failing disk does.
fn damage(place: &Place, name: &str, text: &[u8]) {
    let path = place.store().join("objects").join(place.uuid(name));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text).expect("the text");
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_damaged_page_of_a_document_is_an_error_and_nothing_is_printed() {
    let place = Place::new();
    let large = format!("<h1>large</h1><p>{}</p><b>end</b>", "text ".repeat(1_000_000));
    place.file("small.html", "<h1>small</h1><p>paragraph</p>");
    place.file("large.html", large);
    place.ok(&["parse", "small.html", "large.html"]);
    place.ok(&["query", "large.html", "h1", "--verify"]);
    damage(&place, "small.html", b"paragraph");
    damage(&place, "large.html", b"text text");
    // The query does not use the damaged byte.
    for how in [&[][..], &["--verify"], &["--count"], &["--json"]] {
        let query = [&["query", "small.html", "h1"], how].concat();
        place.run(&query).failed(5, "evermap parse --force");
    }
    place.ok(&["query", "large.html", "h1"]);
    place.fails(5, "evermap parse --force", &["query", "large.html", "h1", "--verify"]);
}

/// The warning says that the source cannot be parsed again.
#[test]
fn a_query_in_a_read_only_store_uses_the_stored_document_and_warns() {
    let place = place();
    change(&place, "<h1>two</h1>", 50);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 77
        shift; \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]);
    command.arg(place.store()).arg(env!("CARGO_BIN_EXE_evermap"));
    command.current_dir(place.path("")).arg("--store").arg(place.store()).args(QUERY);
    let ran = match command.output().map(Ran::of) {
        Ok(ran) if ran.code != 77 && !ran.err.starts_with("unshare") => ran,
        other => {
            eprintln!("SKIPPED: this system allows no read-only mount for a test: {other:?}");
            return;
        }
    };
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("has changed and cannot be parsed again"), "{ran:?}");
}

#[test]
fn warnings_about_a_renamed_document_have_its_new_name() {
    let place = place();
    place.ok(&["mv", "page.html", "letter.html"]);
    change(&place, "<h1>two</h1>", 50);
    let query = |how| place.run(&["query", "letter.html", "h1", "--text", "--stale", how]);
    let ran = query("warn");
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{ran:?}");
    assert!(ran.err.contains("document `letter.html`: its source"), "{ran:?}");
    query("fail").failed(12, "document `letter.html`: its source");
    // A refresh keeps the new name.
    let ran = query("refresh");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two\n", ""), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "letter.html\n");
}

/// This process holds the lock, as a stopped refresher does.
#[test]
fn a_query_that_waits_for_a_refresh_says_for_which_process() {
    let place = place();
    change(&place, "<h1>two</h1>", 50);
    let lock = std::fs::File::open(place.store()).unwrap();
    lock.lock().unwrap();
    // The other policies do not wait.
    assert_eq!(query(&place, "use").err, "");
    query(&place, "fail").failed(12, "has changed");
    let mut command = place.command(&QUERY);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut told).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "the query did not wait");
    drop(lock);
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (0, "two\n"), "{ran:?}");
    let holders = [format!("process {}", std::process::id()), "another process".to_string()];
    let is_told =
        |holder: &String| told.contains(&format!("evermap: waiting up to 30 s for {holder}, "));
    assert!(holders.iter().any(is_told) && told.contains("`--stale use`"), "{told}");
}

#[test]
fn parse_replaces_a_damaged_document_whose_source_has_not_changed() {
    let place = Place::new();
    place.file("page.html", "<h1>one</h1><p>paragraph</p>");
    place.ok(&["parse", "page.html"]);
    // With an equal time stamp, and with an equal hash only.
    for age_s in [60, 50] {
        damage(&place, "page.html", b"paragraph");
        place.fails(5, "evermap parse --force", &QUERY);
        set_age(&place.path("page.html"), age_s);
        let ran = place.run(&["parse", "page.html"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(!ran.out.contains("unchanged"), "{ran:?}");
        assert!(ran.err.contains("`page.html`") && ran.err.contains("is damaged"), "{ran:?}");
        assert_eq!(place.ok(&QUERY), "one\n");
        assert!(place.ok(&["parse", "page.html"]).contains("unchanged"));
    }
    assert!(place.ok(&["store", "check"]).contains("nothing found"));
}

#[test]
fn a_damaged_document_stays_if_its_source_cannot_be_parsed_again() {
    let place = Place::new();
    place.file("feed.xml", "<a><b>paragraph</b></a>");
    place.ok(&["parse", "feed.xml"]);
    damage(&place, "feed.xml", b"paragraph");
    place.file("feed.xml", "<a><b>");
    let ran = place.run(&["parse", "feed.xml"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.err.contains("is damaged") && ran.err.contains("cannot parse"), "{ran:?}");
    place.fails(5, "is damaged", &["query", "feed.xml", "b", "--stale", "use"]);
}

/// Only `evermap freeze` and a document without a source file end that.
#[test]
fn a_renamed_imported_restored_or_copied_document_follows_its_source_until_it_is_frozen() {
    let place = place();
    place.ok(&["store", "export", "page.html", "page.object"]);
    place.ok(&["store", "import", "page.object", "imported"]);
    place.ok(&["store", "import", "page.object", "kept"]);
    place.ok(&["store", "backup", "backup"]);
    place.ok(&["mv", "page.html", "renamed"]);
    place.ok(&["freeze", "kept"]);
    let in_store = |store: &str, arguments: &[&str]| {
        let mut command = place.bare(&["--store", store]);
        Ran::of(command.args(arguments).output().unwrap())
    };
    for store in ["followed", "frozen"] {
        assert_eq!(in_store(store, &["store", "restore", "backup"]).code, 0);
    }
    let frozen = in_store("frozen", &["freeze", "--all"]);
    assert_eq!((frozen.code, frozen.out.as_str(), frozen.err.as_str()), (0, "", ""), "{frozen:?}");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([place.store(), place.path("copied")])
        .status();
    assert!(copied.unwrap().success());
    change(&place, "<h1>two</h1>", 50);
    let heading = |store: &str, name: &str| {
        let ran = in_store(store, &["query", name, "h1", "--text", "--stale", "auto"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{store} {name}: {ran:?}");
        ran.out.trim_end().to_string()
    };
    for (store, name, expected) in [
        ("copied", "renamed", "two"),
        ("copied", "kept", "one"),
        ("store", "renamed", "two"),
        ("store", "imported", "two"),
        ("store", "kept", "one"),
        ("followed", "page.html", "two"),
        ("followed", "kept", "two"),
        ("frozen", "page.html", "one"),
        ("frozen", "imported", "one"),
    ] {
        assert_eq!(heading(store, name), expected, "{store} {name}");
    }
    // A frozen document has its old name, also as the path of its file, and no source to compare.
    assert_eq!(in_store("frozen", &["query", "./page.html", "h1", "--stale", "fail"]).code, 0);
    assert_eq!(place.info("kept")["source"]["standing"], "none");
    // `parse` of the file replaces it, and the new document follows the file.
    assert_eq!(in_store("frozen", &["parse", "page.html"]).code, 0);
    change(&place, "<h1>three</h1>", 40);
    assert_eq!(heading("frozen", "page.html"), "three");
}

#[test]
fn freeze_reports_names_that_are_no_documents_and_freezes_the_others() {
    let place = place();
    let ran = place.run(&["freeze", "gone", "page.html"]);
    ran.failed(3, "`gone`");
    assert_eq!(place.info("page.html")["source"]["standing"], "none");
    // A second time changes nothing.
    let before = common::contents(&place.store());
    place.ok(&["freeze", "--all"]);
    place.ok(&["freeze", "page.html"]);
    assert_eq!(common::contents(&place.store()), before);
    assert_eq!(place.run(&["freeze"]).code, 2);
    assert!(place.ok(&["store", "check"]).contains("nothing found"));
}

/// The path of the source is too long for the root of the document.
#[test]
fn a_document_with_a_long_path_can_be_frozen() {
    let place = Place::new();
    let folder = ["directory-with-a-long-name"; 30].join("/");
    std::fs::create_dir_all(place.path(&folder)).unwrap();
    let name = format!("{folder}/index.html");
    place.file(&name, "<h1>one</h1>");
    place.ok(&["parse", &name, "--name", "short"]);
    place.ok(&["parse", &name]);
    place.ok(&["freeze", &name, "short"]);
    place.file(&name, "<h1>changed</h1>");
    for name in [&name, "short"] {
        assert_eq!(place.ok(&["query", name, "h1", "--text"]), "one\n");
    }
    assert_eq!(place.ok(&["ls"]), format!("{name}\nshort\n"));
}
