//! Tests the window on a virtual display (Xvfb), with simulated keys and mouse (xdotool), by
//! screenshots.
//!
//! The program under test is this one, started again. No test waits for a fixed time. Each waits
//! for the expected state, and fails after a long timeout.
#![allow(clippy::unwrap_used)]

#[path = "../examples/window_fake.rs"]
#[allow(dead_code)]
mod window_fake;

#[path = "support/display.rs"]
mod display;

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};

use display::{Screen, Session, missing_program};

const SHOW: &str = "--show-a-window";
/// The window fills the screen with its toolbar, page and status line.
const TOOLBAR: usize = 40;
const PAGE: &str = "1010x704@1";

const TESTS: [(&str, fn()); 15] = [
    (
        "the_page_appears_and_ctrl_w_exits_successfully",
        the_page_appears_and_ctrl_w_exits_successfully,
    ),
    ("scrolling_moves_the_pixels", scrolling_moves_the_pixels),
    (
        "a_link_is_followed_and_back_restores_the_position",
        a_link_is_followed_and_back_restores_the_position,
    ),
    ("finding_highlights_matches", finding_highlights_matches),
    ("a_typed_address_is_visited", a_typed_address_is_visited),
    ("copied_text_can_be_pasted", copied_text_can_be_pasted),
    ("zoom_requests_another_layout", zoom_requests_another_layout),
    ("a_new_size_is_requested", a_new_size_is_requested),
    (
        "a_failed_page_shows_an_error_and_can_be_retried",
        a_failed_page_shows_an_error_and_can_be_retried,
    ),
    ("escape_cancels_a_slow_page", escape_cancels_a_slow_page),
    (
        "a_monitor_with_double_scale_gets_double_pixels",
        a_monitor_with_double_scale_gets_double_pixels,
    ),
    (
        "without_shared_memory_the_same_pixels_are_shown",
        without_shared_memory_the_same_pixels_are_shown,
    ),
    (
        "a_display_with_fewer_colours_shows_the_nearest_ones",
        a_display_with_fewer_colours_shows_the_nearest_ones,
    ),
    ("a_closed_window_is_an_error", a_closed_window_is_an_error),
    (
        "without_a_display_there_is_an_error_and_no_crash",
        without_a_display_there_is_an_error_and_no_crash,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == SHOW) {
        return window_fake::main();
    }
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(*word));
    let missing = missing_program();
    let mut failed = 0;
    for (name, test) in TESTS.into_iter().filter(|(name, _)| is_wanted(name)) {
        if let Some(program) = missing {
            println!("test {name} ... skipped: {program} is not installed");
            continue;
        }
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u8::from(!passed);
    }
    ExitCode::from(failed)
}

/// Starts at a page on its own display.
fn with(start: &str) -> Session {
    on_monitor(start, "1")
}

fn on_monitor(start: &str, scale: &str) -> Session {
    Session::start(program(start, scale), "Evermap")
}

/// Opens the first page on a display with these options, and waits until it is on the screen.
fn page_one_on(server: &[&str]) -> Session {
    let session = Session::start_on(server, program("fake://one", "1"), "Evermap");
    session.hears("shown fake://one");
    session
}

fn program(start: &str, scale: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([SHOW, start]).env("WINIT_X11_SCALE_FACTOR", scale);
    command
}

/// Opens the first page, and waits until it is on the screen.
fn at_page_one() -> Session {
    let session = with("fake://one");
    session.hears("shown fake://one");
    session
}

/// Returns the vertical position of the page's top row in hundreds of CSS pixels, and the page's
/// number.
fn position(screen: &Screen) -> (u32, u32) {
    let stripe = screen.at(5, TOOLBAR + 10);
    (stripe >> 19, stripe >> 8 & 0xFF)
}

/// Numbers of the pages in [`position`].
const ONE: u32 = 100;
const TWO: u32 = 200;

fn the_page_appears_and_ctrl_w_exits_successfully() {
    let mut session = with("fake://one");
    session.hears(&format!("visit fake://one {PAGE} fresh=false"));
    session.hears("shown fake://one");
    let screen = session.sees("the page", |screen| position(screen) == (0, ONE));
    assert_eq!(screen.at(5, TOOLBAR + 150), 0x0008_643C, "the second band of the stripe");
    assert_eq!(screen.at(600, 400), 0x00FF_FFFF);
    assert_ne!(screen.at(600, 20), screen.at(600, 757), "a field, and the status line");
    session.keys(&["ctrl+w"]);
    session.hears("closed 1024x768@1 zoom=1");
    assert_eq!(session.ends(), Some(0));
}

fn scrolling_moves_the_pixels() {
    let session = at_page_one();
    let before = session.sees("the page", |screen| position(screen) == (0, ONE));
    session.keys(&["Down", "Down"]);
    let after = session.sees("80 pixels further down", |screen| {
        (TOOLBAR..640).all(|y| screen.row(y) == before.row(y + 80))
    });
    assert!(before.row(TOOLBAR + 200) != after.row(TOOLBAR + 200));
    session.keys(&["End"]);
    session.sees("the end", |screen| position(screen) == (23, ONE));
    session.user(&["mousemove", "400", "400", "click", "--repeat", "3", "4"]);
    // Each simulated wheel click may count once or twice.
    session.sees("the wheel", |screen| (18..=21).contains(&position(screen).0));
    session.keys(&["Home"]);
    session.sees("the start", |screen| screen.row(TOOLBAR) == before.row(TOOLBAR));
}

fn a_link_is_followed_and_back_restores_the_position() {
    let session = at_page_one();
    session.keys(&["Down"]);
    let before =
        session.sees("40 pixels further down", |screen| screen.at(5, TOOLBAR + 65) >> 19 == 1);
    session.clicks(100, TOOLBAR + 140 - 40);
    session.hears(&format!("visit fake://two {PAGE} fresh=false"));
    session.hears("shown fake://two");
    session.sees("page two, at its top", |screen| {
        position(screen) == (0, TWO) && screen.at(5, TOOLBAR + 65) >> 19 == 0
    });
    session.keys(&["alt+Left"]);
    session.hears("shown fake://one");
    session.sees("page one, at its old position", |screen| {
        (TOOLBAR..TOOLBAR + 100).all(|y| screen.row(y) == before.row(y))
    });
    session.clicks(100, TOOLBAR + 170 - 40);
    session.sees("the middle, without a visit", |screen| position(screen) == (15, ONE));
    session.clicks(20, 20);
    session.sees("back by the button", |screen| position(screen) == (0, ONE));
}

fn finding_highlights_matches() {
    let session = at_page_one();
    let plain = session.sees("the page", |screen| position(screen) == (0, ONE));
    if plain.count(TOOLBAR + 100..TOOLBAR + 300, 0x00FF_FFFF) == 200 * 990 {
        println!("finding_highlights_matches: skipped, no font is installed");
        return;
    }
    session.keys(&["ctrl+f"]);
    session.user(&["type", "text"]);
    let (current, others) = (0x00FF_B04A, 0x00FF_E27A);
    session.sees("highlights", |screen| {
        screen.count(TOOLBAR..744, current) > 100 && screen.count(TOOLBAR..744, others) > 1000
    });
    session.user(&["type", "xyz"]);
    session.sees("no highlights", |screen| screen.count(TOOLBAR..744, others) == 0);
    session.keys(&["Escape"]);
    session
        .sees("the page as before", |screen| screen.row(TOOLBAR + 20) == plain.row(TOOLBAR + 20));
}

fn a_typed_address_is_visited() {
    let session = at_page_one();
    session.keys(&["ctrl+l"]);
    session.user(&["type", "fake://two"]);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://two {PAGE} fresh=false"));
    session.sees("page two", |screen| position(screen) == (0, TWO));
    session.keys(&["ctrl+shift+r"]);
    session.hears(&format!("visit fake://two {PAGE} fresh=true"));
}

fn copied_text_can_be_pasted() {
    let session = at_page_one();
    session.keys(&["ctrl+l", "ctrl+c"]);
    session.user(&["type", "fake://two"]);
    session.keys(&["Return"]);
    session.hears("shown fake://two");
    let selected = 0x00BE_D8FA;
    session.keys(&["ctrl+l"]);
    session.sees("a selection", |screen| screen.count(0..TOOLBAR, selected) > 100);
    // Pasted text arrives once the clipboard's owner sends it.
    session.keys(&["ctrl+v"]);
    session.sees("no selection", |screen| screen.count(0..TOOLBAR, selected) == 0);
    session.keys(&["Return"]);
    session.hears("shown fake://one");
}

fn zoom_requests_another_layout() {
    let session = at_page_one();
    session.sees("100 pixels", |screen| screen.at(5, TOOLBAR + 105) >> 19 == 1);
    session.keys(&["ctrl+plus"]);
    session.hears("visit fake://one 1010x704@1.1 fresh=false");
    session.sees("110 pixels", |screen| {
        screen.at(5, TOOLBAR + 105) >> 19 == 0 && screen.at(5, TOOLBAR + 115) >> 19 == 1
    });
    session.keys(&["ctrl+0"]);
    session.hears(&format!("visit fake://one {PAGE} fresh=false"));
}

fn a_new_size_is_requested() {
    let session = at_page_one();
    session.keys(&["End"]);
    session.sees("the end", |screen| position(screen) == (23, ONE));
    let size = ["windowsize", "800", "600"];
    session.user(&[&["search", "--onlyvisible", "--name", "Evermap"], &size[..]].concat());
    session.hears("visit fake://one 786x536@1 fresh=false");
    session.hears("shown fake://one");
    session.sees("the same position", |screen| position(screen) == (23, ONE));
}

fn a_failed_page_shows_an_error_and_can_be_retried() {
    let session = with("fake://none");
    session.hears(&format!("visit fake://none {PAGE} fresh=false"));
    session.sees("a warning sign", |screen| screen.count(TOOLBAR..744, 0x00C7_7B1E) > 20);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://none {PAGE} fresh=false"));
}

fn escape_cancels_a_slow_page() {
    let mut session = at_page_one();
    session.keys(&["ctrl+l"]);
    session.user(&["type", "fake://slow"]);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://slow {PAGE} fresh=false"));
    let screen = session.sees("the progress line", |screen| screen.at(5, TOOLBAR) == 0x0030_70D8);
    assert_eq!(position(&screen), (0, ONE), "the old page stays");
    session.keys(&["Escape"]);
    session.hears("cancelled");
    session.sees("the page without the progress line", |screen| {
        screen.at(5, TOOLBAR) >> 8 & 0xFF == ONE
    });
    session.keys(&["ctrl+q"]);
    assert_eq!(session.ends(), Some(0));
}

fn a_monitor_with_double_scale_gets_double_pixels() {
    let session = on_monitor("fake://one", "2");
    session.hears("visit fake://one 2020x1408@2 fresh=false");
    session.hears("shown fake://one");
    session.sees("bands of 200 pixels", |screen| {
        screen.at(35, 80 + 190) >> 19 == 0 && screen.at(35, 80 + 210) >> 19 == 1
    });
}

/// Name of the shared memory of frames.
const SHARED: &str = "memfd:evermap-frame";
const SCREEN: [&str; 3] = ["-screen", "0", "1024x768x24"];

/// Returns all pixels except the status line's, which shows a duration.
fn above_status(screen: &Screen) -> &[u32] {
    &screen.pixels[..744 * screen.width]
}

fn without_shared_memory_the_same_pixels_are_shown() {
    let shared = page_one_on(&SCREEN);
    shared.sees("the page", |screen| position(screen) == (0, ONE));
    assert!(shared.has_mapped(SHARED));
    // A frame takes 3 MB, and a request at most 1 MB.
    let in_pieces = ["-extension", "MIT-SHM", "-maxbigreqsize", "1"];
    let sent = page_one_on(&[&SCREEN[..], &in_pieces].concat());
    assert!(!sent.has_mapped(SHARED));
    sent.sees("the same pixels", |screen| {
        shared.screen().is_some_and(|shared| above_status(&shared) == above_status(screen))
    });
    sent.keys(&["End"]);
    sent.sees("the next frame", |screen| position(screen) == (23, ONE));
}

fn a_display_with_fewer_colours_shows_the_nearest_ones() {
    let all = page_one_on(&SCREEN);
    all.sees("the page", |screen| position(screen) == (0, ONE));
    let fewer = page_one_on(&["-screen", "0", "1024x768x16"]);
    assert!(!fewer.has_mapped(SHARED), "pixels of another format are not shared");
    // 5 bits of red, 6 of green and 5 of blue.
    let nearest = |pixel: &u32| pixel >> 8 & 0xF800 | pixel >> 5 & 0x07E0 | pixel >> 3 & 0x001F;
    fewer.sees("the same page in fewer colours", |screen| {
        let all = all.screen();
        let same = |all: Screen| {
            above_status(&all).iter().map(nearest).eq(above_status(screen).iter().copied())
        };
        all.is_some_and(same)
    });
}

fn a_closed_window_is_an_error() {
    let sent = [&SCREEN[..], &["-extension", "MIT-SHM"]].concat();
    for server in [&SCREEN[..], &sent] {
        let mut session = page_one_on(server);
        session.keys(&["ctrl+l"]);
        session.user(&["type", "fake://slow"]);
        session.keys(&["Return"]);
        // Frames are drawn continuously while the page is loading.
        session.hears(&format!("visit fake://slow {PAGE} fresh=false"));
        session.user(&["search", "--onlyvisible", "--name", "Evermap", "windowclose"]);
        assert_eq!(session.ends(), Some(1));
    }
    // No frame is drawn, so none can report the error.
    let mut session = page_one_on(&SCREEN);
    session.user(&["search", "--onlyvisible", "--name", "Evermap", "windowclose"]);
    assert_eq!(session.ends(), Some(1));
}

fn without_a_display_there_is_an_error_and_no_crash() {
    for display in ["", ":4095"] {
        let mut program = Command::new(std::env::current_exe().unwrap())
            .arg(SHOW)
            .env("DISPLAY", display)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut message = String::new();
        program.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert_eq!(program.wait().unwrap().code(), Some(1), "{message}");
        assert!(message.contains("cannot open a window: "), "{message}");
        assert!(!message.contains(".rs"), "the message contains a source position: {message}");
    }
}
