//! The command's window with real pages, on a display (Xvfb), controlled by keys and mouse
//! (xdotool). The pixels of the display are compared with those of `evermap render`.
#![cfg(feature = "view")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../evermap-view/tests/support/display.rs"]
mod display;

use std::process::Command;

use common::Place;
use display::{Screen, Session, missing_program};

/// Area of the page in a window of 1024 x 768, without toolbar, status line and scroll bar.
const LEFT: usize = 0;
const TOP: usize = 40;
const WIDTH: u32 = 1010;
const HEIGHT: u32 = 704;

const ONE: &str = "<!doctype html><title>One</title><style>body { margin: 0; background: #fff8e8; font: 18px sans-serif }
    a { display: block; width: 300px; height: 80px; background: #246; color: #fff } </style>
    <a href=two.html>two</a><p>Some words to find.<div style='height:2000px'></div><p id=end>The end.";
const TWO: &str = "<!doctype html><title>Two</title><body style='margin:0; background: #e8f8ff; font: 18px sans-serif'>
    <h1>Two</h1><p>Another page.";

fn place() -> Place {
    let place = Place::new();
    place.file("one.html", ONE);
    place.file("two.html", TWO);
    place
}

fn session(place: &Place, arguments: &[&str]) -> Option<Session> {
    if let Some(program) = missing_program() {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    }
    let mut command: Command = place.command(&["view"]);
    command.args(arguments).args(["--offline"]).env("WINIT_X11_SCALE_FACTOR", "1");
    Some(Session::start(command, "Evermap"))
}

/// Returns the pixels that `render` paints for the page's area of the window.
fn rendered(place: &Place, page: &str) -> Vec<u32> {
    let (width, height) = (WIDTH.to_string(), HEIGHT.to_string());
    let size = ["--width", &width, "--height", &height];
    place.ok(&[&["render", page, "-o", "page.png", "--offline", "--no-keep"], &size[..]].concat());
    let file = std::io::BufReader::new(std::fs::File::open(place.path("page.png")).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut bytes).unwrap();
    bytes.chunks_exact(3).map(|rgb| u32::from_be_bytes([0, rgb[0], rgb[1], rgb[2]])).collect()
}

fn shows(screen: &Screen, page: &[u32]) -> bool {
    let rows = page.chunks_exact(WIDTH as usize).enumerate();
    let mut rows = rows.map(|(y, row)| (&screen.pixels[(TOP + y) * screen.width + LEFT..], row));
    rows.all(|(screen, row)| screen.get(..row.len()) == Some(row))
}

#[test]
fn the_window_shows_the_pixels_of_render_cold_and_warm() {
    let place = place();
    let expected = rendered(&place, "one.html");
    for visit in ["cold", "warm"] {
        let Some(mut session) = session(&place, &["one.html"]) else { return };
        session.sees(visit, |screen| shows(screen, &expected));
        session.keys(&["ctrl+q"]);
        assert_eq!(session.ends(), Some(0), "{visit}");
    }
    let pages = place.ok(&["ls"]);
    assert!(pages.contains(&format!("page-one.html-{WIDTH}x{HEIGHT}x1-")), "{pages}");
}

#[test]
fn a_link_opens_the_next_page_and_back_returns() {
    let place = place();
    let (one, two) = (rendered(&place, "one.html"), rendered(&place, "two.html"));
    let Some(mut session) = session(&place, &["one.html"]) else { return };
    session.sees("page one", |screen| shows(screen, &one));
    session.clicks(150, TOP + 40);
    session.sees("page two", |screen| shows(screen, &two));
    session.keys(&["alt+Left"]);
    session.clicks(600, TOP + 300);
    session.sees("page one again", |screen| shows(screen, &one));
    session.keys(&["ctrl+w"]);
    assert_eq!(session.ends(), Some(0));
}

#[test]
fn a_reload_shows_a_changed_page() {
    let place = place();
    let Some(mut session) = session(&place, &["one.html"]) else { return };
    let one = rendered(&place, "one.html");
    session.sees("page one", |screen| shows(screen, &one));
    place.file("one.html", TWO);
    session.keys(&["F5"]);
    let two = rendered(&place, "two.html");
    session.sees("what is in it now", |screen| shows(screen, &two));
    session.keys(&["ctrl+w"]);
    assert_eq!(session.ends(), Some(0));
}

#[test]
fn the_start_page_links_to_the_stored_pages() {
    let place = place();
    place.ok(&["prefetch", "one.html", "--width", "1010", "--height", "704"]);
    place.ok(&["parse", "two.html", "--name", "letter"]);
    let home = rendered(&place, "evermap:home");
    let one = rendered(&place, "one.html");
    let Some(mut session) = session(&place, &["--home"]) else { return };
    session.sees("the start page", |screen| shows(screen, &home));
    // Clicks the first entry.
    session.clicks(160, TOP + 150);
    session.sees("page one", |screen| shows(screen, &one));
    session.keys(&["ctrl+w"]);
    assert_eq!(session.ends(), Some(0));
}

#[test]
fn a_missing_display_is_reported_with_a_remedy() {
    let place = place();
    let mut command = place.command(&["view", "one.html"]);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let ran = common::Ran::of(command.output().unwrap());
    ran.failed(10, "evermap render");
}

#[test]
fn a_start_without_a_window_loads_no_window_system() {
    let place = place();
    let mut command = place.command(&["ls"]);
    let ran = command.env("LD_DEBUG", "files").output().unwrap();
    let loaded = String::from_utf8_lossy(&ran.stderr);
    if !loaded.contains("libc.so") {
        eprintln!("SKIPPED: the dynamic linker does not list the libraries that it loads");
        return;
    }
    for library in ["libX11", "libxcb", "libwayland"] {
        assert!(!loaded.contains(library), "{library}");
    }
}
