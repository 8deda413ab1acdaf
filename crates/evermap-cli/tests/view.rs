//! Painting pages as a user does: warm second visits, the reasons for cold ones, and failing pages,
//! engines and disks. `view_network` has the pages of servers.
#![cfg(feature = "view")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/pages.rs"]
mod pages;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, Ran, set_age};
use pages::{bytes, is_warm, own_pages, reasons, render};
use serde_json::Value;

const PAGE: &str = "<!doctype html><title>A page</title><link rel=stylesheet href=style.css>
    <h1>Hello</h1><p>Some <a href=other.html>text</a>. <img src=picture.png alt=squares width=40>";

/// Makes a page with a style sheet and a picture.
fn place_with_page() -> Place {
    let place = Place::new();
    place.file("page.html", PAGE);
    place.file("style.css", "h1 { color: #a00 } body { background: #eef }");
    place.file("picture.png", std::fs::read(own_pages().join("picture.png")).unwrap());
    place
}

#[test]
fn the_second_visit_is_warm_and_paints_the_same_bytes() {
    for page in ["boxes.html", "text.html", "images.html"] {
        let place = Place::new();
        let page = own_pages().join(page);
        let page = page.to_str().unwrap();
        for (size, options) in [
            ("first-screen", &["--offline"][..]),
            ("full", &["--offline", "--full"]),
            ("zoomed", &["--offline", "--full", "--scale", "1.5", "--width", "600"]),
        ] {
            let (cold, warm) = (format!("{size}-cold.png"), format!("{size}-warm.png"));
            let first = render(&place, page, &cold, options);
            assert_eq!(
                is_warm(&first),
                size == "full",
                "the first screen and all of it are one page"
            );
            let second = render(&place, page, &warm, options);
            assert!(is_warm(&second), "{}", reasons(&second));
            assert_eq!(second["layout_ms"], 0.0);
            assert!(bytes(&place, &cold) == bytes(&place, &warm), "{page} {size}");
            // Also with the layout alone, without painted rows.
            let options = [options, &["--layers", "ab"]].concat();
            let third = render(&place, page, "layers.png", &options);
            assert!(is_warm(&third));
            assert!(bytes(&place, "layers.png") == bytes(&place, &warm), "{page} {size}");
            // Also after laying it out again, from the stored tables or from the page.
            let from_tables = [&options[..options.len() - 1], &["a", "--no-keep"]].concat();
            assert!(!is_warm(&render(&place, page, "tables.png", &from_tables)));
            assert!(bytes(&place, "tables.png") == bytes(&place, &warm), "{page} {size}");
        }
    }
}

#[test]
fn a_page_is_laid_out_again_if_one_of_its_resources_has_changed() {
    let place = place_with_page();
    assert!(!is_warm(&render(&place, "page.html", "a.png", &[])));
    assert!(is_warm(&render(&place, "page.html", "b.png", &[])));
    for (file, contents) in [
        ("page.html", PAGE.replace("Hello", "Good morning").into_bytes()),
        ("style.css", b"h1 { color: #00a } body { background: #efe }".to_vec()),
        ("picture.png", b"no picture any more".to_vec()),
    ] {
        place.file(file, contents);
        let report = render(&place, "page.html", "c.png", &[]);
        assert!(!is_warm(&report), "{file} is another");
        assert!(reasons(&report).contains(file), "{}", reasons(&report));
        assert!(bytes(&place, "a.png") != bytes(&place, "c.png"));
        assert!(is_warm(&render(&place, "page.html", "c.png", &[])));
    }
    // A new time stamp without a change of the contents is no change.
    set_age(&place.path("style.css"), 30);
    assert!(is_warm(&render(&place, "page.html", "d.png", &[])));
    // A resource that is removed and comes back unchanged is no change. In between it is missing.
    std::fs::rename(place.path("style.css"), place.path("away.css")).unwrap();
    let report = render(&place, "page.html", "e.png", &[]);
    assert!(!is_warm(&report) && reasons(&report).contains("style.css"));
    assert!(
        is_warm(&render(&place, "page.html", "e.png", &[])),
        "a resource that is still missing is no change"
    );
    std::fs::rename(place.path("away.css"), place.path("style.css")).unwrap();
    let report = render(&place, "page.html", "f.png", &[]);
    assert!(!is_warm(&report) && reasons(&report).contains("it is available now"));
    assert!(bytes(&place, "d.png") == bytes(&place, "f.png"));
}

#[test]
fn layouts_for_different_window_sizes_are_stored_together() {
    let place = place_with_page();
    for options in [&["--width", "500"][..], &["--height", "300"], &["--scale", "2"], &[]] {
        let first = render(&place, "page.html", "a.png", options);
        assert!(!is_warm(&first) && reasons(&first).contains("not stored for"));
    }
    for options in [&["--width", "500"][..], &["--height", "300"], &["--scale", "2"], &[]] {
        assert!(is_warm(&render(&place, "page.html", "a.png", options)));
    }
}

#[test]
fn pages_are_laid_out_again_after_a_font_is_installed() {
    let place = place_with_page();
    std::fs::create_dir_all(place.path("fonts/more")).unwrap();
    let configuration = format!(
        "<?xml version=\"1.0\"?><fontconfig><dir>{}</dir><dir>/usr/share/fonts</dir><cachedir>{}</cachedir></fontconfig>",
        place.path("fonts").display(),
        place.path("cache").display()
    );
    let file = place.file("fonts.conf", configuration);
    let render = || {
        let mut command = place.command(&["render", "page.html", "-o", "a.png", "--json"]);
        let ran = Ran::of(command.env("FONTCONFIG_FILE", &file).output().unwrap());
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str::<Value>(&ran.out).unwrap()
    };
    assert!(!is_warm(&render()));
    assert!(is_warm(&render()));
    std::fs::write(place.path("fonts/more/new.ttf"), "a font, or so").unwrap();
    let report = render();
    assert!(
        !is_warm(&report) && reasons(&report).contains("installed fonts"),
        "{}",
        reasons(&report)
    );
    assert!(is_warm(&render()));
}

#[test]
fn a_page_without_any_font_is_shown_without_text() {
    let place = place_with_page();
    let configuration = "<?xml version=\"1.0\"?><fontconfig><dir>/nowhere</dir></fontconfig>";
    let file = place.file("fonts.conf", configuration);
    let mut command = place.command(&["render", "page.html", "-o", "a.png", "--explain"]);
    let ran = Ran::of(command.env("FONTCONFIG_FILE", &file).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(bytes(&place, "a.png").starts_with(b"\x89PNG"));
    assert!(ran.err.contains("no font"), "the message does not mention fonts: {ran:?}");
}

#[test]
fn documents_of_the_store_are_shown_by_their_names() {
    let place = place_with_page();
    assert_eq!(place.run(&["parse", "page.html", "--name", "letter"]).code, 0);
    render(&place, "page.html", "from-file.png", &[]);
    render(&place, "letter", "from-name.png", &["--no-keep"]);
    assert!(bytes(&place, "from-file.png") == bytes(&place, "from-name.png"));
    let names = place.run(&["ls"]).out;
    let page = names.lines().find(|line| line.starts_with("page-") && line.contains("1024x768"));
    let report = render(&place, page.unwrap(), "from-page.png", &[]);
    assert!(is_warm(&report), "{}", reasons(&report));
    assert!(bytes(&place, "from-file.png") == bytes(&place, "from-page.png"));
    // The tables that the page was laid out from can be queried like any document.
    let document = names.lines().find(|line| line.ends_with(".document")).unwrap();
    assert_eq!(place.run(&["query", document, "h1", "--text"]).out.trim(), "Hello");
}

#[test]
fn text_pictures_and_xhtml_are_shown_as_pages() {
    let place = place_with_page();
    place.file("notes.txt", "a < b\n  & \u{e4} few lines\n");
    place.file(
        "page.xhtml",
        "<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"><body><h1>X</h1></body></html>",
    );
    place.file("broken.xhtml", "<html xmlns=\"http://www.w3.org/1999/xhtml\"><body><h1>X</body>");
    for page in ["notes.txt", "page.xhtml", "broken.xhtml", "picture.png"] {
        assert!(!is_warm(&render(&place, page, "a.png", &[])));
        assert!(is_warm(&render(&place, page, "b.png", &[])), "{page}");
        assert!(bytes(&place, "a.png") == bytes(&place, "b.png"), "{page}");
    }
    place.file("paper.pdf", "%PDF-1.7\n");
    let ran = place.run(&["render", "paper.pdf", "-o", "c.png"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    assert!(ran.err.contains("application/pdf"), "{ran:?}");
}

#[test]
fn an_endless_list_of_pages_is_refused() {
    let place = place_with_page();
    let long = std::fs::File::create(place.path("long.txt")).unwrap();
    long.set_len(20 << 20).unwrap();
    for list in ["/dev/zero", "long.txt"] {
        let ran = place.run(&["prefetch", "--from", list]);
        assert_eq!(ran.code, 8, "{ran:?}");
        assert!(
            ran.err.contains(list) && ran.err.contains("longer than 16777216 bytes"),
            "{ran:?}"
        );
        assert!(!ran.err.contains('\0'), "{ran:?}");
    }
}

#[test]
fn prefetched_pages_are_warm_and_a_failure_does_not_stop_the_others() {
    let place = place_with_page();
    place.file("other.html", "<p>Another page");
    place.file("list.txt", "# pages\npage.html\n\nnot-there.html\nother.html\n");
    let ran = place.run(&["prefetch", "--from", "list.txt"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    assert!(ran.err.contains("1 of 3 pages"), "{ran:?}");
    assert!(ran.out.contains("not-there.html") && ran.out.contains("other.html: laid out"));
    let in_a_window = evermap_view::window::WindowOptions::default().page_layout();
    let [width, height] = [in_a_window.width, in_a_window.height].map(|side| side.to_string());
    for page in ["page.html", "other.html"] {
        assert!(is_warm(&render(&place, page, "a.png", &[])));
        let window = ["--width", width.as_str(), "--height", height.as_str(), "--no-keep"];
        assert!(is_warm(&render(&place, page, "b.png", &window)), "as `view` shows it");
    }
    let ran = place.run(&["prefetch", "page.html", "other.html"]);
    assert_eq!((ran.code, ran.out.matches("already stored").count()), (0, 2), "{ran:?}");
    // With `--for`, nothing is stored for the other verb.
    place.file("third.html", "<p>A third page");
    let ran = place.run(&["prefetch", "third.html", "--for", "view", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["built"], 1);
    assert!(!is_warm(&render(&place, "third.html", "a.png", &["--no-keep"])));
}

#[test]
fn a_page_on_a_slow_disk_is_laid_out_again_for_a_day() {
    let place = place_with_page();
    let page = place.path("page.html");
    let (url, layout) = (url::Url::from_file_path(&page).unwrap(), evermap_view::Layout::default());
    render(&place, "page.html", "a.png", &[]);
    let now_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_ns = now_ns.as_nanos() as u64;
    let note = |warm_us: u64, noted_ns: u64| {
        let store = evermap::Store::open(place.store()).unwrap();
        let slow = evermap_view::page_store::SlowPage { warm_us, cold_us: 200_000, noted_ns };
        slow.note(&store, &url, layout).unwrap();
    };
    note(900_000_000, now_ns);
    let report = render(&place, "page.html", "b.png", &[]);
    assert!(!is_warm(&report), "{}", reasons(&report));
    assert!(reasons(&report).contains("900000 ms") && reasons(&report).contains("200 ms"));
    assert!(!is_warm(&render(&place, "page.html", "b.png", &[])), "the slow disk was forgotten");
    note(900_000_000, now_ns - 25 * 3_600 * 1_000_000_000);
    assert!(
        is_warm(&render(&place, "page.html", "c.png", &[])),
        "the stored page is not used again"
    );
    note(201, now_ns);
    assert!(!is_warm(&render(&place, "page.html", "d.png", &[])));
    assert!(
        is_warm(&render(&place, "page.html", "d.png", &[])),
        "the stored page is not used again"
    );
    assert!(bytes(&place, "a.png") == bytes(&place, "b.png"));
}

#[test]
fn a_page_of_a_hundred_megabytes_is_refused_with_the_remedy() {
    let place = Place::new();
    place.file("large.html", "<p>All work and no play. ".repeat(4_200_000));
    let ran = place.run(&["render", "large.html", "-o", "a.png"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    assert!(ran.err.contains("--limit"), "{ran:?}");
}

#[test]
fn deeply_nested_elements_end_only_the_engine() {
    let place = place_with_page();
    place.file("deep.html", "<div>".repeat(1_000_000));
    let ran = place.run(&["render", "deep.html", "-o", "a.png"]);
    // The page is laid out or refused with a reason. The command neither crashes nor hangs.
    let is_refused =
        ran.err.contains("layout engine") || ran.err.contains("the limit for its length");
    assert!(ran.code == 0 || (ran.code == 11 && is_refused), "{ran:?}");
    assert!(!is_warm(&render(&place, "page.html", "b.png", &[])));
}

/// Renders a page with a script instead of the engine.
fn render_with_engine(place: &Place, script: &str) -> Ran {
    let engine = place.path("engine.sh");
    common::programs::write_script(&engine, &format!("#!/bin/sh\n{script}\n"));
    let mut command = place.command(&["render", "page.html", "-o", "a.png", "--patience", "2"]);
    Ran::of(command.env("EVERMAP_ENGINE", engine).env("PATH", "/usr/bin:/bin").output().unwrap())
}

#[test]
fn an_engine_that_dies_hangs_or_sends_garbage_is_an_error() {
    let place = place_with_page();
    for (script, expected) in [
        ("kill -SEGV $$", "signal 11"),
        ("exit 3", "failed"),
        ("exec sleep 60", "took longer than 2 s"),
        ("yes | head -c 1000000", ""),
        ("cat > /dev/null; exit 0", "broke off"),
    ] {
        let ran = render_with_engine(&place, script);
        assert_eq!(ran.code, 11, "{script}: {ran:?}");
        assert!(
            ran.err.contains(expected) && ran.err.contains("layout engine"),
            "{script}: {ran:?}"
        );
    }
    let mut command = place.command(&["render", "page.html", "-o", "a.png"]);
    let ran = Ran::of(command.env("EVERMAP_ENGINE", "/nowhere/engine").output().unwrap());
    assert_eq!(ran.code, 10, "{ran:?}");
    assert!(ran.err.contains("EVERMAP_ENGINE"), "{ran:?}");
    assert!(!is_warm(&render(&place, "page.html", "b.png", &[])), "a failed layout was stored");
}

#[test]
fn a_page_is_shown_if_the_store_cannot_be_made() {
    let place = place_with_page();
    std::fs::write(place.store(), "a file in the way").unwrap();
    let ran = place.run(&["render", "page.html", "-o", "a.png"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("not stored"), "{ran:?}");
    assert!(bytes(&place, "a.png").starts_with(b"\x89PNG"));
}

/// A file system of one megabyte, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "evermap-test"])
            .arg(&at)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn pages_are_shown_and_none_is_lost_on_a_full_disk() {
    let place = place_with_page();
    let Some(disk) = SmallDisk::mount(place.path("disk")) else {
        eprintln!("SKIPPED: this user may not mount a file system");
        return;
    };
    let store = disk.0.join("store");
    let render = |page: &str| {
        let mut command = place.bare(&["--store"]);
        command.arg(&store).args(["render", page, "-o", "a.png", "--explain"]);
        Ran::of(command.output().unwrap())
    };
    // A picture of noise needs more space than is left.
    let noise: Vec<u8> =
        (0..500_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    place.file(
        "noise.txt",
        noise.iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>(),
    );
    let ran = render("noise.txt");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("not stored") && ran.err.contains("space"), "{ran:?}");
    assert!(bytes(&place, "a.png").starts_with(b"\x89PNG"));
    let mut check = place.bare(&["--store"]);
    let ran = Ran::of(check.arg(&store).arg("check").output().unwrap());
    assert_eq!(ran.code, 0, "the store is whole: {ran:?}");
}

#[test]
fn a_command_killed_while_storing_a_page_leaves_it_cold_or_warm() {
    let place = place_with_page();
    place.file("other.html", "<p>Another page");
    render(&place, "other.html", "other.png", &[]);
    for step in 0..12_u64 {
        place.file("page.html", PAGE.replace("Hello", &format!("Hello {step}")));
        let mut child = place.command(&["render", "page.html", "-o", "a.png"]).spawn().unwrap();
        // Kills from before the engine's start until after the commit.
        std::thread::sleep(Duration::from_millis(20 + 40 * step));
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = place.run(&["check"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(is_warm(&render(&place, "other.html", "b.png", &[])), "another page was lost");
        let report = render(&place, "page.html", "b.png", &[]);
        let again = render(&place, "page.html", "c.png", &[]);
        assert!(is_warm(&again), "{} {}", reasons(&report), reasons(&again));
        assert!(bytes(&place, "b.png") == bytes(&place, "c.png"));
    }
}

#[test]
fn damaged_pages_are_made_again() {
    let place = place_with_page();
    render(&place, "page.html", "a.png", &[]);
    for prefix in ["page-page.html-1024x768", "font-"] {
        let names = place.run(&["ls"]).out;
        for name in names.lines().filter(|name| name.starts_with(prefix)) {
            assert_eq!(place.run(&["rm", name]).code, 0);
        }
        let ran = place.run(&["render", "page.html", "-o", "b.png", "--json"]);
        assert_eq!(ran.code, 0, "{prefix}: {ran:?}");
        assert!(bytes(&place, "a.png") == bytes(&place, "b.png"), "{prefix}");
    }
}

#[test]
fn wrong_usage_is_reported() {
    let place = place_with_page();
    for (arguments, expected) in [
        (&["render", "not-there.html", "-o", "a.png"][..], "`not-there.html`: not a file"),
        (&["render", "page.html", "-o", "no/folder/a.png"], "no/folder"),
        (&["render", "page.html", "-o", "a.png", "--width", "0"], "--width"),
        (&["render", "page.html", "-o", "a.png", "--scale", "100"], "--scale"),
        (&["render", "page.html"], "--output"),
    ] {
        let ran = place.run(arguments);
        assert!(ran.code != 0 && ran.err.contains(expected), "{ran:?}");
    }
    let output = place.command(&["render", "page.html", "-o", "-"]).output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"\x89PNG"));
    let ran = place.run(&["render", "page.html", "--timing"]);
    assert!(ran.out.starts_with("warm: ") && ran.out.contains("paint"), "{ran:?}");
    let ran = place.run(&["render", "page.html", "--timing", "--sizes"]);
    assert!(ran.out.contains("\nstored: page ") && ran.out.contains("fonts"), "{ran:?}");
    let ran = place.run(&["render", "page.html", "--timing", "--sizes", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    for kept in ["tree_bytes", "strip_bytes", "document_bytes"] {
        assert!(report["sizes"][kept].as_u64() > Some(100), "{kept}: {report}");
    }
    let ran = place.run(&["render", "page.html", "-o", "a.png", "--explain"]);
    assert_eq!(ran.err.trim(), "warm: none of its resources has changed");
}

#[test]
fn the_start_page_is_stored_until_the_list_of_pages_changes() {
    let place = place_with_page();
    place.file("other.html", "<title>The other</title><p>Another page");
    assert!(
        !is_warm(&render(&place, "evermap:home", "a.png", &[])),
        "the empty start page was warm"
    );
    assert!(is_warm(&render(&place, "evermap:home", "b.png", &[])));
    render(&place, "page.html", "page.png", &[]);
    let report = render(&place, "evermap:home", "c.png", &[]);
    assert!(!is_warm(&report) && reasons(&report).contains("its list"), "{}", reasons(&report));
    assert!(is_warm(&render(&place, "evermap:home", "d.png", &[])));
    assert!(bytes(&place, "c.png") == bytes(&place, "d.png"));
    assert!(bytes(&place, "a.png") != bytes(&place, "c.png"));
    // The start page also lists documents that are not pages. Each can be shown by its address.
    place.ok(&["parse", "other.html", "--name", "letter"]);
    assert!(!is_warm(&render(&place, "evermap:home", "e.png", &[])));
    render(&place, "evermap:letter", "letter.png", &["--no-keep"]);
    render(&place, "other.html", "other.png", &["--no-keep"]);
    assert!(bytes(&place, "letter.png") == bytes(&place, "other.png"));
}
