//! The window as a user has it: on a display (Xvfb), with keys and mouse (xdotool), looked at through screenshots.
//!
//! The program whose window is tested is this one, started once more. Nothing here waits for a time: a test waits for what it
//! expects to see, and fails when that has not come for long.
#![allow(clippy::unwrap_used)]

#[path = "../examples/window_fake.rs"]
#[allow(dead_code)]
mod window_fake;

use std::io::{BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const SHOW: &str = "--show-a-window";
const LONG: Duration = Duration::from_secs(40);
/// The window fills the screen: toolbar, page, status line.
const TOOLBAR: usize = 40;
const PAGE: &str = "1010x704@1";

const TESTS: [(&str, fn()); 12] = [
    (
        "the_page_appears_and_ctrl_w_ends_with_success",
        the_page_appears_and_ctrl_w_ends_with_success,
    ),
    ("scrolling_moves_the_pixels", scrolling_moves_the_pixels),
    (
        "a_link_leads_on_and_back_returns_to_the_old_place",
        a_link_leads_on_and_back_returns_to_the_old_place,
    ),
    ("finding_marks_what_is_found", finding_marks_what_is_found),
    ("a_typed_address_is_visited", a_typed_address_is_visited),
    ("what_is_copied_can_be_pasted", what_is_copied_can_be_pasted),
    ("zoom_asks_for_another_layout", zoom_asks_for_another_layout),
    ("a_new_size_is_asked_for", a_new_size_is_asked_for),
    ("a_failed_page_says_so_and_is_tried_again", a_failed_page_says_so_and_is_tried_again),
    ("escape_stops_a_slow_page", escape_stops_a_slow_page),
    (
        "a_monitor_of_twice_the_pixels_gets_twice_the_pixels",
        a_monitor_of_twice_the_pixels_gets_twice_the_pixels,
    ),
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
    let missing = ["Xvfb", "xdotool"].into_iter().find(|program| !is_there(program));
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

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A display, the program on it, and a user.
struct Session {
    server: Child,
    display: String,
    directory: PathBuf,
    program: Child,
    said: Receiver<String>,
}

impl Session {
    fn with(start: &str) -> Session {
        Session::on_monitor(start, "1")
    }

    fn on_monitor(start: &str, scale: &str) -> Session {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("evermap-window-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        // It ends with its last client, should this process be killed.
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1024x768x24", "-nolisten", "tcp"])
            .args(["-terminate", "-nocursor", "-fbdir"])
            .arg(&directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let mut program = Command::new(std::env::current_exe().unwrap())
            .args([SHOW, start])
            .env("DISPLAY", &display)
            .env("WINIT_X11_SCALE_FACTOR", scale)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, said) = channel();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let session = Session { server, display, directory, program, said };
        // No window manager gives it the focus.
        session.user(&[
            "search",
            "--sync",
            "--onlyvisible",
            "--name",
            "Evermap",
            "windowfocus",
            "--sync",
        ]);
        session
    }

    /// At the first page, once it is on the screen.
    fn at_page_one() -> Session {
        let session = Session::with("fake://one");
        session.hears("shown fake://one");
        session
    }

    fn user(&self, does: &[&str]) {
        let status = Command::new("timeout")
            .args(["30", "xdotool"])
            .args(does)
            .env("DISPLAY", &self.display)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "xdotool {does:?}");
    }

    fn keys(&self, keys: &[&str]) {
        self.user(&[&["key"], keys].concat());
    }

    fn clicks(&self, x: usize, y: usize) {
        self.user(&["mousemove", &x.to_string(), &y.to_string(), "click", "1"]);
    }

    /// Waits until the program has said this.
    fn hears(&self, expected: &str) {
        loop {
            match self.said.recv_timeout(LONG) {
                Ok(line) if line == expected => return,
                Ok(_) => (),
                Err(error) => panic!("{expected}: {error}"),
            }
        }
    }

    /// Waits until the screen shows what is expected, and stays so: a picture may be taken while the server is copying.
    fn sees(&self, what: &str, expected: impl Fn(&Screen) -> bool) -> Screen {
        let began = Instant::now();
        let mut before = None;
        loop {
            let screen = self.screen().filter(&expected);
            match screen {
                Some(screen) if before.as_ref() == Some(&screen) => return screen,
                _ => before = screen,
            }
            assert!(began.elapsed() < LONG, "never seen: {what}");
            sleep(Duration::from_millis(20));
        }
    }

    /// What is on the screen: the server keeps it in a file.
    fn screen(&self) -> Option<Screen> {
        let bytes = std::fs::read(self.directory.join("Xvfb_screen0")).ok()?;
        let word =
            |at: usize| Some(u32::from_be_bytes(bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?));
        let start = word(0)? as usize + word(19)? as usize * 12;
        let (width, line) = (word(4)? as usize, word(12)? as usize);
        let rows = bytes.get(start..)?.chunks_exact(line);
        let pixels = rows.flat_map(|row| row[..width * 4].chunks_exact(4));
        let pixels = pixels.map(|p| u32::from_le_bytes([p[0], p[1], p[2], 0])).collect();
        Some(Screen { width, pixels })
    }

    /// Waits for the program's end; gives its exit code.
    fn ends(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < LONG, "the program goes on");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
        // Asked, not killed: it removes its socket.
        if let Some(server) = rustix::process::Pid::from_raw(self.server.id() as i32) {
            _ = rustix::process::kill_process(server, rustix::process::Signal::TERM);
        }
        _ = self.server.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[derive(PartialEq)]
struct Screen {
    width: usize,
    pixels: Vec<u32>,
}

impl Screen {
    fn at(&self, x: usize, y: usize) -> u32 {
        self.pixels[y * self.width + x]
    }

    /// How far down the page the row at the top of its area is, in hundreds of CSS pixels, and which page it is.
    fn place(&self) -> (u32, u32) {
        let stripe = self.at(5, TOOLBAR + 10);
        (stripe >> 19, stripe >> 8 & 0xFF)
    }

    /// How many pixels have a colour, in a part of the screen.
    fn count(&self, rows: std::ops::Range<usize>, color: u32) -> usize {
        rows.map(|y| (0..self.width).filter(|x| self.at(*x, y) == color).count()).sum()
    }

    fn row(&self, y: usize) -> &[u32] {
        &self.pixels[y * self.width..][..1000]
    }
}

/// The second part of [`Screen::place`].
const ONE: u32 = 100;
const TWO: u32 = 200;

fn the_page_appears_and_ctrl_w_ends_with_success() {
    let mut session = Session::with("fake://one");
    session.hears(&format!("visit fake://one {PAGE} fresh=false"));
    session.hears("shown fake://one");
    let screen = session.sees("the page", |screen| screen.place() == (0, ONE));
    assert_eq!(screen.at(5, TOOLBAR + 150), 0x0008_643C, "the second band of the stripe");
    assert_eq!(screen.at(600, 400), 0x00FF_FFFF);
    assert_ne!(screen.at(600, 20), screen.at(600, 757), "a field, and the status line");
    session.keys(&["ctrl+w"]);
    session.hears("closed 1024x768@1 zoom=1");
    assert_eq!(session.ends(), Some(0));
}

fn scrolling_moves_the_pixels() {
    let session = Session::at_page_one();
    let before = session.sees("the page", |screen| screen.place() == (0, ONE));
    session.keys(&["Down", "Down"]);
    let after = session.sees("80 pixels further", |screen| {
        (TOOLBAR..640).all(|y| screen.row(y) == before.row(y + 80))
    });
    assert!(before.row(TOOLBAR + 200) != after.row(TOOLBAR + 200));
    session.keys(&["End"]);
    session.sees("the end", |screen| screen.place() == (23, ONE));
    session.user(&["mousemove", "400", "400", "click", "--repeat", "3", "4"]);
    // Of the wheels that the test makes, both the turning and the letting go may count.
    session.sees("the wheel", |screen| (18..=21).contains(&screen.place().0));
    session.keys(&["Home"]);
    session.sees("the start", |screen| screen.row(TOOLBAR) == before.row(TOOLBAR));
}

fn a_link_leads_on_and_back_returns_to_the_old_place() {
    let session = Session::at_page_one();
    session.keys(&["Down"]);
    let before = session.sees("40 pixels further", |screen| screen.at(5, TOOLBAR + 65) >> 19 == 1);
    session.clicks(100, TOOLBAR + 140 - 40);
    session.hears(&format!("visit fake://two {PAGE} fresh=false"));
    session.hears("shown fake://two");
    session.sees("page two, at its top", |screen| {
        screen.place() == (0, TWO) && screen.at(5, TOOLBAR + 65) >> 19 == 0
    });
    session.keys(&["alt+Left"]);
    session.hears("shown fake://one");
    session.sees("page one, as it was left", |screen| {
        (TOOLBAR..TOOLBAR + 100).all(|y| screen.row(y) == before.row(y))
    });
    session.clicks(100, TOOLBAR + 170 - 40);
    session.sees("the middle, without a visit", |screen| screen.place() == (15, ONE));
    session.clicks(20, 20);
    session.sees("back by the button", |screen| screen.place() == (0, ONE));
}

fn finding_marks_what_is_found() {
    let session = Session::at_page_one();
    let plain = session.sees("the page", |screen| screen.place() == (0, ONE));
    if plain.count(TOOLBAR + 100..TOOLBAR + 300, 0x00FF_FFFF) == 200 * 990 {
        println!("finding_marks_what_is_found: skipped, there is no font to write with");
        return;
    }
    session.keys(&["ctrl+f"]);
    session.user(&["type", "text"]);
    let (current, others) = (0x00FF_B04A, 0x00FF_E27A);
    session.sees("marks", |screen| {
        screen.count(TOOLBAR..744, current) > 100 && screen.count(TOOLBAR..744, others) > 1000
    });
    session.user(&["type", "xyz"]);
    session.sees("no marks", |screen| screen.count(TOOLBAR..744, others) == 0);
    session.keys(&["Escape"]);
    session
        .sees("the page as before", |screen| screen.row(TOOLBAR + 20) == plain.row(TOOLBAR + 20));
}

fn a_typed_address_is_visited() {
    let session = Session::at_page_one();
    session.keys(&["ctrl+l"]);
    session.user(&["type", "fake://two"]);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://two {PAGE} fresh=false"));
    session.sees("page two", |screen| screen.place() == (0, TWO));
    session.keys(&["ctrl+shift+r"]);
    session.hears(&format!("visit fake://two {PAGE} fresh=true"));
}

fn what_is_copied_can_be_pasted() {
    let session = Session::at_page_one();
    session.keys(&["ctrl+l", "ctrl+c"]);
    session.user(&["type", "fake://two"]);
    session.keys(&["Return"]);
    session.hears("shown fake://two");
    let selected = 0x00BE_D8FA;
    session.keys(&["ctrl+l"]);
    session.sees("a selection", |screen| screen.count(0..TOOLBAR, selected) > 100);
    // It comes when the clipboard's owner gives it.
    session.keys(&["ctrl+v"]);
    session.sees("no selection", |screen| screen.count(0..TOOLBAR, selected) == 0);
    session.keys(&["Return"]);
    session.hears("shown fake://one");
}

fn zoom_asks_for_another_layout() {
    let session = Session::at_page_one();
    session.sees("100 pixels", |screen| screen.at(5, TOOLBAR + 105) >> 19 == 1);
    session.keys(&["ctrl+plus"]);
    session.hears("visit fake://one 1010x704@1.1 fresh=false");
    session.sees("110 pixels", |screen| {
        screen.at(5, TOOLBAR + 105) >> 19 == 0 && screen.at(5, TOOLBAR + 115) >> 19 == 1
    });
    session.keys(&["ctrl+0"]);
    session.hears(&format!("visit fake://one {PAGE} fresh=false"));
}

fn a_new_size_is_asked_for() {
    let session = Session::at_page_one();
    session.keys(&["End"]);
    session.sees("the end", |screen| screen.place() == (23, ONE));
    let size = ["windowsize", "800", "600"];
    session.user(&[&["search", "--onlyvisible", "--name", "Evermap"], &size[..]].concat());
    session.hears("visit fake://one 786x536@1 fresh=false");
    session.hears("shown fake://one");
    session.sees("the same place", |screen| screen.place() == (23, ONE));
}

fn a_failed_page_says_so_and_is_tried_again() {
    let session = Session::with("fake://none");
    session.hears(&format!("visit fake://none {PAGE} fresh=false"));
    session.sees("a sign", |screen| screen.count(TOOLBAR..744, 0x00C7_7B1E) > 20);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://none {PAGE} fresh=false"));
}

fn escape_stops_a_slow_page() {
    let mut session = Session::at_page_one();
    session.keys(&["ctrl+l"]);
    session.user(&["type", "fake://slow"]);
    session.keys(&["Return"]);
    session.hears(&format!("visit fake://slow {PAGE} fresh=false"));
    let screen =
        session.sees("the line of progress", |screen| screen.at(5, TOOLBAR) == 0x0030_70D8);
    assert_eq!(screen.place(), (0, ONE), "the old page stays");
    session.keys(&["Escape"]);
    session.hears("given up");
    session.sees("the page without the line", |screen| screen.at(5, TOOLBAR) >> 8 & 0xFF == ONE);
    session.keys(&["ctrl+q"]);
    assert_eq!(session.ends(), Some(0));
}

fn a_monitor_of_twice_the_pixels_gets_twice_the_pixels() {
    let session = Session::on_monitor("fake://one", "2");
    session.hears("visit fake://one 2020x1408@2 fresh=false");
    session.hears("shown fake://one");
    session.sees("bands of 200 pixels", |screen| {
        screen.at(35, 80 + 190) >> 19 == 0 && screen.at(35, 80 + 210) >> 19 == 1
    });
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
        let mut said = String::new();
        program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(program.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains("no window can be opened: "), "{said}");
        assert!(!said.contains(".rs"), "where in a library it was noticed helps nobody: {said}");
    }
}
