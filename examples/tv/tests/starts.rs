//! Tests both ways of starting with changed files, invalid files, kills and unusable stores.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use evermap_tv::TvError;
use evermap_tv::contents::FILES;
use evermap_tv::fonts::usual_directories;
use evermap_tv::generate::{Amounts, generate};
use evermap_tv::keep::{self, Checked};
use evermap_tv::start::{FIRST_SCREENS, StartOptions, Started, start};
use evermap_tv::state::Key;

const SMALL: Amounts = Amounts { seed: 7, programmes: 300, channels: 9, films: 40 };

/// Creates a directory with the files of a small user interface, and options to start it.
fn television() -> (tempfile::TempDir, StartOptions) {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path(), SMALL).unwrap();
    make_old(directory.path());
    let options = StartOptions {
        directory: directory.path().to_path_buf(),
        store: directory.path().join("store"),
        kept: true,
        repaint: false,
        screen: "home".to_string(),
        size: (640, 360),
        font_directories: usual_directories(),
    };
    (directory, options)
}

/// Sets a time stamp on the files that is old enough to be trusted.
fn make_old(directory: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for name in FILES {
        let file = fs::File::options().write(true).open(directory.join(name)).unwrap();
        file.set_modified(hour_ago).unwrap();
    }
}

fn first_start(options: &StartOptions) -> Started {
    let mut started = start(options).unwrap();
    assert!(!started.timing.kept);
    started.keep(&options.store).unwrap();
    started
}

fn with(options: &StartOptions, change: impl FnOnce(&mut StartOptions)) -> StartOptions {
    let mut options = options.clone();
    change(&mut options);
    options
}

#[test]
fn a_seed_writes_the_same_files() {
    let made: Vec<_> = [7, 7, 8]
        .map(|seed| {
            let directory = tempfile::tempdir().unwrap();
            generate(directory.path(), Amounts { seed, ..SMALL }).unwrap();
            FILES.map(|name| fs::read(directory.path().join(name)).unwrap())
        })
        .into();
    assert_eq!(made[0], made[1]);
    assert_ne!(made[1], made[2]);
}

#[test]
fn the_default_guide_has_ten_thousand_programmes_on_more_than_fifty_channels() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path(), Amounts::default()).unwrap();
    let guide = fs::read_to_string(directory.path().join("guide.xml")).unwrap();
    assert_eq!(guide.matches("<programme ").count(), 10_000);
    assert_eq!(guide.matches("<channel ").count(), 56);
}

#[test]
fn both_ways_give_the_same_pixels_on_all_screens() {
    for fonts in [usual_directories(), Vec::new()] {
        let (_directory, options) = television();
        let options = with(&options, |o| o.font_directories = fonts);
        let first = first_start(&options);
        let interface = first.interface();
        let screens: Vec<String> = (0..interface.screens())
            .map(|at| interface.screen(at).unwrap().name.to_string())
            .collect();
        assert!(screens.len() > FIRST_SCREENS.len());
        for screen in screens {
            let here = with(&options, |o| o.screen = screen.clone());
            let parsed = start(&with(&here, |o| o.kept = false)).unwrap();
            let kept = start(&here).unwrap();
            let painted = start(&with(&here, |o| o.repaint = true)).unwrap();
            assert!(!parsed.timing.kept && kept.timing.kept && painted.timing.kept);
            assert!(painted.timing.painted);
            assert_eq!(kept.timing.painted, !FIRST_SCREENS.contains(&screen.as_str()));
            assert!(parsed.pixels == kept.pixels, "{screen}: kept");
            assert!(parsed.pixels == painted.pixels, "{screen}: kept and painted");
        }
    }
}

#[test]
fn both_ways_give_the_same_pixels_after_each_key() {
    let (_directory, options) = television();
    first_start(&options);
    let mut parsed = start(&with(&options, |o| o.kept = false)).unwrap();
    let mut kept = start(&options).unwrap();
    assert!(kept.timing.kept);
    let keys = [
        Key::Down,
        Key::Right,
        Key::Right,
        Key::Enter,
        Key::Back,
        Key::Up,
        Key::Up,
        Key::Left,
        Key::Enter,
        Key::Down,
        Key::HoursOn,
        Key::PageDown,
        Key::Enter,
    ];
    for key in keys {
        for started in [&mut parsed, &mut kept] {
            let mut state = started.state.clone();
            state.press(started.interface(), key);
            state.arrive();
            started.state = state;
            started.repaint().unwrap();
        }
        assert_eq!(parsed.state, kept.state, "{key:?}");
        assert!(parsed.pixels == kept.pixels, "{key:?}");
    }
}

#[test]
fn a_changed_file_is_noticed_for_any_length_and_age() {
    let (directory, options) = television();
    first_start(&options);
    assert!(start(&options).unwrap().timing.kept);
    let file = directory.path().join("posters.xml");
    let text = fs::read_to_string(&file).unwrap();
    let at = text.find("year=\"").unwrap() + 6;
    let changed = format!("{}1900{}", &text[..at], &text[at + 4..]);
    assert_eq!(changed.len(), text.len());
    fs::write(&file, changed).unwrap();
    let started = first_start(&options);
    assert!(started.timing.why.as_ref().unwrap().contains("posters.xml"));
    let parsed = start(&with(&options, |o| o.kept = false)).unwrap();
    let kept = start(&options).unwrap();
    assert!(kept.timing.kept && kept.pixels == parsed.pixels);
}

#[test]
fn a_touched_file_is_compared_by_content_once() {
    let (directory, options) = television();
    first_start(&options);
    let file = fs::File::options().write(true).open(directory.path().join("menu.xml")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let good = |options: &StartOptions| {
        let (store, kept) = keep::open(&options.store, options.size).unwrap().unwrap();
        let made_by = keep::made_by(&options.font_directories);
        match keep::check(&store, &kept, directory.path(), &made_by).unwrap() {
            Checked::Good => true,
            Checked::Restamped(_) => false,
            Checked::Changed(what) => panic!("{what}"),
        }
    };
    assert!(!good(&options));
    let mut again = start(&options).unwrap();
    assert!(again.timing.kept);
    again.keep(&options.store).unwrap();
    drop(again);
    assert!(good(&options));
}

#[test]
fn each_size_is_stored_and_other_fonts_invalidate_it() {
    let (_directory, options) = television();
    first_start(&options);
    let small = with(&options, |o| o.size = (320, 180));
    first_start(&small);
    assert!(start(&small).unwrap().timing.kept);
    assert!(start(&options).unwrap().timing.kept);
    let bare = with(&options, |o| o.font_directories = Vec::new());
    assert!(!start(&bare).unwrap().timing.kept);
}

#[track_caller]
fn refused(options: &StartOptions, name: &str, line: u32, says: &str) {
    match start(options).map(|_| ()).unwrap_err() {
        TvError::Xml { file, line: found, why } => {
            assert_eq!((file, found), (options.directory.join(name), line), "{why}");
            assert!(why.contains(says), "{why}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn invalid_xml_is_refused_with_file_and_line() {
    let (directory, options) = television();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let guide = fs::read_to_string(directory.path().join("guide.xml")).unwrap();
    let middle = guide.len() / 2 + guide[guide.len() / 2..].find("</title>").unwrap();
    let line = 1 + guide[..middle].matches('\n').count() as u32;
    write("guide.xml", &format!("{}</tilte>{}", &guide[..middle], &guide[middle + 8..]));
    refused(&options, "guide.xml", line, "tilte");
    write("guide.xml", &guide[..middle]);
    assert!(start(&options).map(|_| ()).unwrap_err().to_string().contains("guide.xml:"));
    write("guide.xml", "<html>\n<body/></html>");
    refused(&options, "guide.xml", 1, "the root is <html>");
    let tv = "<tv now=\"20260302201700 +0000\">\n";
    write("guide.xml", &format!("{tv}<programme channel=\"9\"/></tv>"));
    refused(&options, "guide.xml", 2, "no channel `9`");
    let channel = "<channel id=\"1\"><display-name>x</display-name></channel>\n";
    write("guide.xml", &format!("{tv}{channel}\n<programme channel=\"1\" start=\"soon\"/></tv>"));
    refused(&options, "guide.xml", 4, "is not a time");
    write("guide.xml", &guide);
    write("posters.xml", "<posters>\n\n<film/></posters>");
    refused(&options, "posters.xml", 3, "no <poster>");
    fs::write(directory.path().join("posters.xml"), b"<posters>\n\xff</posters>").unwrap();
    refused(&options, "posters.xml", 2, "UTF-8");
    write("posters.xml", "<posters/>");
    let deep = "<entry title=\"x\">".repeat(40) + &"</entry>".repeat(40);
    write("menu.xml", &format!("<menu>\n{deep}</menu>"));
    refused(&options, "menu.xml", 2, "nested");
    fs::remove_file(directory.path().join("menu.xml")).unwrap();
    let error = start(&options).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("menu.xml") && error.contains("tv generate"), "{error}");
}

#[test]
fn an_empty_interface_has_screens() {
    let (directory, options) = television();
    fs::write(directory.path().join("menu.xml"), "<menu/>").unwrap();
    fs::write(directory.path().join("posters.xml"), "<posters/>").unwrap();
    fs::write(directory.path().join("guide.xml"), "<tv now=\"20260302201700\"/>").unwrap();
    for screen in FIRST_SCREENS {
        let mut started = start(&with(&options, |o| o.screen = screen.to_string())).unwrap();
        for key in [Key::Down, Key::Right, Key::Enter, Key::PageUp, Key::HoursOn, Key::Up] {
            let mut state = started.state.clone();
            state.press(started.interface(), key);
            started.state = state;
            started.repaint().unwrap();
        }
    }
}

#[test]
fn an_unknown_screen_is_refused_with_a_list_of_screens() {
    let (_directory, options) = television();
    let error = start(&with(&options, |o| o.screen = "radio".into())).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("`radio`") && error.to_string().contains("`guide`"));
}

#[test]
fn an_unusable_store_falls_back_to_parsing() {
    let (directory, options) = television();
    let file = directory.path().join("a-file");
    fs::write(&file, "not a store").unwrap();
    let expected = start(&with(&options, |o| o.kept = false)).unwrap().pixels;
    for store in [file.clone(), file.join("below"), PathBuf::from("/proc/no/store")] {
        let options = with(&options, |o| o.store = store);
        let mut started = start(&options).unwrap();
        assert!(!started.timing.kept && started.pixels == expected);
        assert!(started.timing.why.is_some());
        // Storing fails, but the television works.
        _ = started.keep(&options.store);
        assert!(!start(&options).unwrap().timing.kept);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a store");
}

#[test]
fn an_object_of_another_type_is_replaced() {
    let (_directory, options) = television();
    let store = evermap::Store::open_or_create(&options.store).unwrap();
    store.create::<u64, _>(&keep::object_name(options.size), 5u64).unwrap();
    drop(store);
    first_start(&options);
    assert!(start(&options).unwrap().timing.kept);
}

#[test]
fn a_kill_while_storing_leaves_all_or_nothing() {
    let (directory, options) = television();
    let tv = |way: &str, png: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tv"));
        command.arg("start").arg(directory.path()).arg("--store").arg(&options.store);
        command.args(["--size", "320x180", "--timing", "--json", way, "--png"]).arg(png);
        command.stdout(Stdio::piped());
        command
    };
    let picture = directory.path().join("expected.png");
    assert!(tv("--parse", &picture).output().unwrap().status.success());
    let expected = fs::read(&picture).unwrap();
    let mut whole = 0;
    for round in 0..12u64 {
        if round % 4 == 0 {
            _ = fs::remove_dir_all(&options.store);
        }
        // The process prints its line before it writes to the store, which then takes some time.
        let mut child = tv("--kept", &directory.path().join("killed.png")).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        std::thread::sleep(Duration::from_millis(round * 40 % 330));
        _ = child.kill();
        child.wait().unwrap();
        let picture = directory.path().join("after.png");
        let after = tv("--kept", &picture).output().unwrap();
        assert!(after.status.success(), "round {round}");
        assert_eq!(fs::read(&picture).unwrap(), expected, "round {round}");
        whole += usize::from(String::from_utf8(after.stdout).unwrap().contains("\"kept\":true"));
        let last = tv("--kept", &picture).output().unwrap();
        let said = String::from_utf8_lossy(&last.stdout);
        let error = String::from_utf8_lossy(&after.stderr);
        assert!(said.contains("\"kept\":true"), "round {round}: {said}{error}");
        assert_eq!(fs::read(&picture).unwrap(), expected);
    }
    println!("{whole} of 12 were kept in time");
}
