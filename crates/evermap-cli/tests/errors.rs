//! Each failure has the exit code of its cause and one message with a remedy, and changes nothing.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::{Place, Ran, contents, names_rust, page, restore_contents};
use evermap::{PVec, Store};

fn with_page() -> Place {
    let place = Place::new();
    place.file("page.html", "<p>text");
    place.ok(&["parse", "page.html"]);
    place
}

#[test]
fn wrong_usage_is_2() {
    let place = with_page();
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["parse"],
        &["query", "page.html"],
        &["query", "page.html", "p", "--text", "--html"],
        &["query", "page.html", "p", "--limit", "0"],
        &["query", "page.html", "p", "--first", "--limit", "3"],
        &["parse", "--html", "--xml", "page.html"],
        &["completions", "tcsh"],
    ] {
        assert_eq!(place.run(arguments).code, 2, "{arguments:?}");
    }
    place.fails(2, "p >", &["query", "page.html", "p >"]);
    place.fails(2, ":hover", &["query", "page.html", "p:hover"]);
    place.fails(2, "one by one", &["parse", "--name", "a", "page.html", "page.html"]);
    std::fs::create_dir(place.path("d")).unwrap();
    place.file("d/page.html", "other");
    place.fails(2, "are the same file", &["parse", "page.html", "d/../page.html"]);
}

#[test]
fn a_verb_of_a_missing_feature_is_2_and_the_message_says_how_to_build_it() {
    let place = Place::new();
    let lacks = |feature: &str, verbs: &[&[&str]]| {
        for verb in verbs {
            let ran = place.run(verb);
            assert_eq!(ran.code, 2, "{ran:?}");
            for expected in [format!("--features {feature}`"), format!("`make {feature}`")] {
                assert!(ran.err.contains(&expected), "{ran:?}");
            }
        }
    };
    // A word that is not a verb of any build is an unknown subcommand.
    place.fails(2, "unrecognized subcommand 'run'", &["run", "APP.wasm"]);
    place.fails(2, "unrecognized subcommand 'view'", &["sandbox", "view"]);
    let completions = place.completions("bash", &["sandbox", ""]);
    assert_eq!(completions.contains("revoke"), cfg!(feature = "sandbox"));
    let completions = place.completions("bash", &["pre"]);
    assert_eq!(completions.contains("prefetch"), cfg!(feature = "view"));
    // The help lists only verbs of this build.
    let help = place.ok(&["--help"]) + &place.ok(&["sandbox", "--help"]);
    let is_listed = |verb: &str| help.lines().any(|line| line.starts_with(&format!("  {verb} ")));
    assert!(is_listed("exec") && is_listed("query"));
    if cfg!(not(feature = "sandbox")) {
        assert!(!is_listed("run") && !is_listed("grant"), "{help}");
        let run = ["sandbox", "run", "--dir", ".", "APP.wasm", "--", "--help"];
        let list: &[&str] = &["sandbox", "list", "--json"];
        let grant: &[&str] = &["sandbox", "grant", "app", "name:read", "--quota", "8"];
        lacks("sandbox", &[&run, list, grant, &["sandbox", "revoke", "--help"]]);
    }
    if cfg!(not(feature = "view")) {
        assert!(!is_listed("view") && !is_listed("render"), "{help}");
        lacks("view", &[&["view", "page.html"], &["render", "-h"], &["prefetch"]]);
    }
}

#[test]
fn invalid_names_are_2_and_make_no_object() {
    let place = with_page();
    let long = "x".repeat(300);
    for name in ["..", "", "tab\there", "line\nfeed", "escape\u{1b}[2J", &long] {
        place.fails(2, "cannot name an object", &["parse", "page.html", "--name", name]);
        place.fails(2, "cannot name an object", &["query", name, "p"]);
        place.fails(2, "cannot name an object", &["mv", "page.html", name]);
        place.fails(2, "cannot name an object", &["rm", name]);
        if name == long {
            place.fails(2, "longer than 255 bytes", &["mv", "page.html", name]);
            place.fails(2, "longer than 255 bytes", &["mv", "page.html", &format!("a/{name}")]);
        }
        // Messages escape control characters of names.
        let message = place.run(&["info", name]).err;
        assert!(message.trim_end().chars().all(|c| !c.is_control()), "{message:?}");
        assert!(message.len() < 400, "{message:?}");
    }
    // Names may have 255 bytes, dots, spaces and characters of every script.
    for name in [&"y".repeat(255), ".hidden", "a b", "Größe-大小.html"] {
        place.ok(&["parse", "page.html", "--name", name]);
    }
    assert_eq!(place.ok(&["ls"]).lines().count(), 5);
    // An object's name must be UTF-8, a file's name need not be.
    let odd = place.path("x").with_file_name(OsStr::from_bytes(b"odd\xFF.html"));
    std::fs::write(&odd, "odd").unwrap();
    let mut command = place.command(&["parse"]);
    Ran::of(command.arg(&odd).output().unwrap()).failed(2, "--name");
    command.args(["--name", "odd"]);
    assert_eq!(Ran::of(command.output().unwrap()).code, 0);
}

#[test]
fn missing_stores_objects_and_files_are_3() {
    let place = Place::new();
    for arguments in
        [&["ls"][..], &["query", "a", "p"], &["info", "a"], &["rm", "a"], &["mv", "a", "b"]]
    {
        place.fails(3, "evermap parse FILE", arguments);
    }
    place.fails(3, "nothing.html", &["parse", "nothing.html"]);
    assert!(!place.store().exists(), "a failed call made a store");
    place.file("page.html", "a");
    place.ok(&["parse", "page.html"]);
    for arguments in [&["query", "a", "p"][..], &["info", "a"], &["rm", "a"], &["mv", "a", "b"]] {
        place.fails(3, "evermap ls", arguments);
    }
    // If one file is missing, none is parsed.
    place.file("other.html", "a");
    place.fails(3, "nothing.html", &["parse", "other.html", "nothing.html"]);
    assert_eq!(place.ok(&["ls"]), "page.html\n");
}

#[test]
fn paths_that_are_not_stores_are_reported() {
    let place = Place::new();
    place.file("page.html", "a");
    std::fs::create_dir(place.store()).unwrap();
    place.fails(3, "no catalog", &["ls"]);
    place.file("store/mine.txt", "mine");
    place.fails(9, "mine.txt", &["parse", "page.html"]);
    let as_store = ["--store", "page.html", "ls"];
    Ran::of(place.bare(&as_store).output().unwrap()).failed(3, "page.html");
    place.file("store/catalog", "this is no catalog");
    place.fails(5, "catalog", &["ls"]);
    place.fails(5, "catalog", &["parse", "page.html"]);
}

#[test]
fn an_object_in_use_is_4() {
    let place = Place::new();
    let store = Store::create_new(place.store()).unwrap();
    store.create::<PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    let session = store.write::<PVec<u64>>("numbers").unwrap();
    // Reading its properties is possible.
    place.ok(&["info", "numbers"]);
    place.fails(4, "in use", &["rm", "numbers"]);
    session.close().unwrap();
    place.ok(&["rm", "numbers"]);
}

#[test]
fn objects_of_other_types_are_5_listed_and_not_overwritten() {
    let place = Place::new();
    let store = Store::create_new(place.store()).unwrap();
    store.create::<PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    drop(store);
    place.file("page.html", "a");
    place.fails(5, "is not a document", &["query", "numbers", "p"]);
    place.fails(5, "another type", &["parse", "page.html", "--name", "numbers"]);
    assert!(place.ok(&["ls", "--long"]).contains("other"));
    assert_eq!(place.info("numbers")["type"], serde_json::Value::Null);
    place.ok(&["parse", "page.html", "--name", "numbers", "--force"]);
    assert_eq!(place.info("numbers")["type"], "html");
}

#[test]
fn damage_is_5_and_parse_force_repairs_it() {
    let place = with_page();
    place.file("big.html", page(500, "v1"));
    place.ok(&["parse", "big.html"]);
    let object = place.store().join("objects").join(place.uuid("big.html"));
    let whole = std::fs::read(&object).unwrap();
    for cut in [0, 100, 4096, whole.len() / 2] {
        std::fs::write(&object, &whole[..cut]).unwrap();
        place.fails(5, &place.uuid_of(&object), &["query", "big.html", "b"]);
        let listed = place.run(&["ls", "--long"]);
        assert!(listed.code == 5 && listed.out.contains("page.html"), "{listed:?}");
    }
    place.fails(5, "--force", &["parse", "big.html"]);
    place.ok(&["parse", "--force", "big.html"]);
    assert_eq!(place.ok(&["query", "big.html", "b", "--count"]), "500\n");
}

#[test]
fn missing_permissions_are_6() {
    let place = with_page();
    if is_root() {
        eprintln!("SKIPPED: root may write and read everything, so nothing can be refused here");
        return;
    }
    let allow = |path: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(place.path(path), permissions).unwrap();
    };
    place.file("secret.html", "a");
    allow("secret.html", 0o000);
    place.fails(6, "secret.html", &["parse", "secret.html"]);
    place.file("other.html", "a");
    for folder in ["store", "store/building", "store/objects"] {
        allow(folder, 0o500);
    }
    place.fails(6, "permissions", &["parse", "other.html"]);
    assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "text\n");
    for folder in ["store", "store/building", "store/objects"] {
        allow(folder, 0o700);
    }
}

/// Permissions do not stop root, but a read-only file system does. The test mounts one in its own
/// mount namespace, if the system allows that.
#[test]
fn a_read_only_file_system_is_6_and_can_be_read() {
    let place = with_page();
    place.file("other.html", "a");
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 77
        shift; \"$@\"";
    let inside = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]);
        command.arg(place.store()).arg(env!("CARGO_BIN_EXE_evermap"));
        command.current_dir(place.path("")).arg("--store").arg(place.store()).args(arguments);
        command.output()
    };
    let read = match inside(&["query", "page.html", "p", "--text"]).map(Ran::of) {
        Ok(ran) if ran.code != 77 && !ran.err.starts_with("unshare") => ran,
        other => {
            eprintln!("SKIPPED: this system allows no read-only mount for a test: {other:?}");
            return;
        }
    };
    assert_eq!((read.code, read.out.as_str()), (0, "text\n"), "{read:?}");
    for arguments in [&["parse", "other.html"][..], &["rm", "page.html"], &["mv", "page.html", "q"]]
    {
        let refused = Ran::of(inside(arguments).unwrap());
        refused.failed(6, "read-only");
    }
    assert_eq!(place.ok(&["ls"]), "page.html\n");
}

#[test]
fn sources_that_cannot_be_parsed_are_8() {
    let place = with_page();
    place.file("bad.xml", "<a>\n  <b></a>");
    place.file("latin.xml", b"<a>caf\xE9</a>");
    place.file("empty.xml", "");
    std::fs::create_dir(place.path("folder")).unwrap();
    place.fails(8, "line 2", &["parse", "bad.xml"]);
    place.fails(8, "UTF-8", &["parse", "latin.xml"]);
    place.fails(8, "no root element", &["parse", "empty.xml"]);
    place.fails(8, "directory", &["parse", "folder"]);
    // The valid files of the same call are not stored either.
    place.file("good.html", "good");
    place.fails(8, "bad.xml", &["parse", "good.html", "bad.xml"]);
    assert_eq!(place.ok(&["ls"]), "page.html\n");
    let building = place.store_files().iter().filter(|f| f.starts_with("building/")).count();
    assert_eq!(building, 0, "{:?}", place.store_files());
    // Any bytes are HTML.
    place.file("empty.html", "");
    place.file("bytes.html", b"\xFF\xFE\xFD\x00<p>\x80");
    place.ok(&["parse", "empty.html", "bytes.html"]);
    assert_eq!(place.ok(&["query", "empty.html", "body", "--count"]), "1\n");
}

#[test]
fn a_failed_write_of_the_output_is_reported() {
    let place = with_page();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = place.command(&["query", "page.html", "p"]).stdout(full).output().unwrap();
    Ran::of(ran).failed(7, "cannot write the output");
}

#[test]
fn control_characters_in_messages_are_escaped() {
    let place = with_page();
    place.fails(3, "\\u{1b}[2J", &["parse", "bell\u{1b}[2J.html"]);
    place.file("title.html", "<title>a\u{1b}[31mb</title><p>\u{1b}[0m");
    place.ok(&["parse", "title.html"]);
    let info = place.ok(&["info", "title.html"]);
    assert!(info.contains("a\\u{1b}[31mb") && !info.contains('\u{1b}'), "{info:?}");
    // The text of a match is printed unchanged.
    assert_eq!(place.ok(&["query", "title.html", "p", "--text"]), "\u{1b}[0m\n");
}

#[test]
fn messages_name_options_and_verbs_and_no_rust_items() {
    let place = with_page();
    let store = Store::open(place.store()).unwrap();
    store.create::<PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    drop(store);
    place.file("feed.xml", "<a xmlns='urn:a'/>");
    place.ok(&["parse", "feed.xml"]);
    std::fs::create_dir(place.path("folder")).unwrap();
    std::os::unix::fs::symlink("loop", place.path("folder/loop")).unwrap();
    for (says, arguments) in [
        ("`--namespace PREFIX=URI`", &["query", "feed.xml", "p|actor"][..]),
        ("`evermap parse --force`", &["parse", "page.html", "--name", "numbers"]),
        ("`--resume`", &["copy", "--resume", "folder", "copy"]),
        ("`--keep-going`", &["copy", "-L", "folder", "copy"]),
        ("`--engine`", &["copy", "--engine", "reflink", "/proc/self/status", "copy"]),
        ("check the name", &["send", "nosuch", "host:/x"]),
        ("check the name", &["parse", "nosuch.html"]),
    ] {
        let ran = place.run(arguments);
        assert!(ran.code != 0 && ran.err.contains(says), "{arguments:?}: {ran:?}");
        assert!(!names_rust(&ran.err), "{ran:?}");
        for option in ["`resume`", "`engine` out", "(keep going)", "`keep_going`"] {
            assert!(!ran.err.contains(option), "{ran:?}");
        }
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{ran:?}");
    }
}

/// Damages the catalog in several ways. Every verb that fails names the repair in its message, and
/// the repair works.
#[test]
fn messages_about_a_damaged_catalog_name_the_repair_and_it_works() {
    let place = with_page();
    place.file("other.html", "<p>other");
    place.ok(&["parse", "other.html"]);
    let whole = contents(&place.store());
    let catalog = place.store().join("catalog");
    let sound = std::fs::read(&catalog).unwrap();
    let overwrite = |from: usize, bytes: &[u8]| {
        let mut damaged = sound.clone();
        damaged[from..from + bytes.len()].copy_from_slice(bytes);
        damaged
    };
    let flipped = |at: usize| overwrite(at, &[sound[at] ^ 0x40]);
    let mut damages = vec![
        overwrite(0, &[b'x'; 100]),
        overwrite(0, &[0; 4096]),
        sound[..2000].to_vec(),
        Vec::new(),
    ];
    damages.extend([8, 16, 100, 512, 600, 1500, 3000, 3080, 5000].map(flipped));
    let mut stopped = 0;
    for damaged in damages {
        std::fs::write(&catalog, &damaged).unwrap();
        for arguments in [
            &["ls"][..],
            &["query", "page.html", "p", "--text"],
            &["parse", "--force", "page.html"],
            &["rm", "other.html"],
        ] {
            if std::fs::read(&catalog).unwrap() != damaged {
                // A verb that succeeded in spite of the damage has changed the catalog.
                break;
            }
            let ran = place.run(arguments);
            if ran.code != 0 {
                ran.failed(5, "`evermap store check --repair`");
                assert!(!ran.err.contains("parse --force"), "{ran:?}");
                stopped += 1;
            }
        }
        let repaired = place.run(&["check", "--repair"]);
        assert_eq!(repaired.code, 0, "{repaired:?}");
        assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "text\n");
        restore_contents(&place.store(), &whole);
    }
    assert!(stopped >= 16, "only {stopped} calls were stopped");
}

#[test]
fn remedies_help() {
    let place = with_page();
    // Without its source a document cannot be parsed again.
    std::fs::remove_file(place.path("page.html")).unwrap();
    let ran = place.run(&["query", "page.html", "p", "--stale", "fail"]);
    ran.failed(12, "is gone; use the stored document with `--stale use`");
    assert!(!ran.err.contains("refresh"), "{ran:?}");
    place.file("page.html", "<p>changed");
    place.fails(
        12,
        "parse the source again with `--stale refresh`",
        &["query", "page.html", "p", "--stale", "fail"],
    );
    // A directory without a store cannot be opened.
    std::fs::create_dir(place.path("mine")).unwrap();
    place.file("mine/notes.txt", "mine");
    for arguments in [
        &["backup", "store/copy"][..],
        &["backup", "mine"],
        &["--store", "mine", "parse", "page.html"],
    ] {
        let ran = match arguments[0] {
            "--store" => Ran::of(place.bare(arguments).output().unwrap()),
            _ => place.run(arguments),
        };
        ran.failed(9, "choose an empty directory");
        assert!(!ran.err.contains("open it"), "{ran:?}");
    }
    // Copying directories, and sending to addresses.
    std::fs::create_dir(place.path("folder")).unwrap();
    place.fails(9, "is not a directory; name another target", &["copy", "folder", "page.html"]);
    place.fails(
        9,
        "is not a directory; name another target",
        &["copy", "-T", "folder", "page.html"],
    );
    place.fails(2, "by ssh, to HOST:PATH", &["send", "folder", "127.0.0.1:1"]);
    place.fails(
        2,
        "`127.0.0.1:7000` is the address",
        &["send", "page.html", "root@127.0.0.1:7000"],
    );
    assert_eq!(std::fs::read(place.path("page.html")).unwrap(), b"<p>changed");
}

impl Place {
    /// Returns the name of an object's file, as it appears in messages.
    fn uuid_of(&self, object: &std::path::Path) -> String {
        object.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Flips one bit in the vector's pointer in a document's root.
#[test]
fn a_damaged_root_is_5_in_every_verb_and_the_other_documents_are_listed() {
    let place = with_page();
    place.file("other.html", "<p>other");
    place.ok(&["parse", "other.html"]);
    let path = place.store().join("objects").join(place.uuid("page.html"));
    let mut bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (base, capacity) = (word(512), word(520));
    let inside = |value: u64| value >= base && value - base < capacity;
    let pointer = (3072..4096).step_by(8).find(|&at| inside(word(at))).expect("the pointer");
    bytes[pointer + 5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    for arguments in
        [&["query", "page.html", "p"][..], &["info", "page.html"], &["parse", "page.html"]]
    {
        place.fails(5, "damaged", arguments);
    }
    let listed = place.run(&["ls", "--long"]);
    assert!(listed.code == 5 && listed.out.contains("other.html"), "{listed:?}");
    assert_eq!(place.ok(&["query", "other.html", "p", "--text"]), "other\n");
    place.ok(&["parse", "--force", "page.html"]);
    assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "text\n");
}

#[test]
fn a_file_in_place_of_the_directory_of_objects_is_damage_with_a_remedy() {
    let place = with_page();
    place.ok(&["backup", "copy"]);
    let objects = place.store().join("objects");
    std::fs::rename(&objects, place.path("aside")).unwrap();
    std::fs::write(&objects, "text").unwrap();
    let before = contents(&place.store());
    place.file("other.html", "<p>other");
    for arguments in [
        &["query", "page.html", "p"][..],
        &["info", "page.html"],
        &["parse", "other.html"],
        &["parse", "--force", "page.html"],
        &["rm", "page.html"],
        &["check"],
        &["check", "--repair"],
        &["backup", "made"],
        &["map", "page.html"],
        &["export", "page.html", "made"],
    ] {
        let ran = place.run(arguments);
        ran.failed(5, "store/objects is damaged: a directory of the store (found something else");
        assert!(ran.err.contains("put the directory back, or restore the store"), "{ran:?}");
    }
    assert_eq!(contents(&place.store()), before);
    assert_eq!(place.ok(&["ls"]), "page.html\n");
    // Both remedies help.
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(place.path("aside"), &objects).unwrap();
    assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "text\n");
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::write(&objects, "text").unwrap();
    place.ok(&["restore", "copy", "--force"]);
    assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "text\n");
}

/// The command replaces remedies of the library by its own, and repeats none.
#[test]
fn a_message_has_one_remedy() {
    let place = with_page();
    let object = place.store().join("objects").join(place.uuid("page.html"));
    let sound = std::fs::read(&object).unwrap();
    let mut damaged = sound.clone();
    damaged[600] ^= 1;
    for bytes in [&damaged[..], &sound[..100], &[b'x'; 4096]] {
        std::fs::write(&object, bytes).unwrap();
        let ran = place.run(&["query", "page.html", "p"]);
        ran.failed(
            5,
            "if it is a document, parse it again with `evermap parse --force`; otherwise",
        );
        assert_eq!(ran.err.matches("restore it").count(), 1, "{ran:?}");
        assert!(!ran.err.contains("name the right file"), "{ran:?}");
    }
    std::fs::write(&object, sound).unwrap();
    for (says, arguments) in [
        ("only documents that are named after files", &["parse", "page.html", "--name", "a/b"][..]),
        ("write it as `ls` shows names", &["mv", "page.html", "a//b"]),
    ] {
        let ran = place.run(arguments);
        ran.failed(2, says);
        assert!(!ran.err.contains("use 1 to 255 bytes"), "{ran:?}");
    }
}
