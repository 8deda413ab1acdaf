//! Runs a program on a virtual display (`Xvfb`), with simulated input (`xdotool`). Screenshots are
//! read from the display's framebuffer file.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Timeout for each step, for a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns the first required program that is not installed.
pub fn missing_program() -> Option<&'static str> {
    ["Xvfb", "xdotool"].into_iter().find(|program| !is_installed(program))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A display and a program on it.
pub struct Session {
    server: Child,
    display: String,
    directory: PathBuf,
    program: Child,
    said: Receiver<String>,
}

impl Session {
    /// Starts `command` on a display of 1024 x 768 pixels. The name of its window must contain
    /// `title`.
    pub fn start(command: Command, title: &str) -> Session {
        Session::start_on(&["-screen", "0", "1024x768x24"], command, title)
    }

    /// Like `start`, but passes the options `server` to `Xvfb`.
    pub fn start_on(server: &[&str], mut command: Command, title: &str) -> Session {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("evermap-window-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        // With `-terminate`, the server exits after its last client, even if this process is
        // killed.
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-terminate", "-nocursor"])
            .args(server)
            .arg("-fbdir")
            .arg(&directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let mut program = command
            .env("DISPLAY", &display)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, said) = channel();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let session = Session { server, display, directory, program, said };
        // No window manager sets the focus.
        session.user(&[
            "search",
            "--sync",
            "--onlyvisible",
            "--name",
            title,
            "windowfocus",
            "--sync",
        ]);
        session
    }

    pub fn user(&self, does: &[&str]) {
        let status = Command::new("timeout")
            .args(["30", "xdotool"])
            .args(does)
            .env("DISPLAY", &self.display)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "xdotool {does:?}");
    }

    pub fn keys(&self, keys: &[&str]) {
        self.user(&[&["key"], keys].concat());
    }

    pub fn clicks(&self, x: usize, y: usize) {
        self.user(&["mousemove", &x.to_string(), &y.to_string(), "click", "1"]);
    }

    /// Waits until the program prints this line.
    pub fn hears(&self, expected: &str) {
        loop {
            match self.said.recv_timeout(LONG) {
                Ok(line) if line == expected => return,
                Ok(_) => (),
                Err(error) => panic!("{expected}: {error}"),
            }
        }
    }

    /// Returns true if the program has a mapping with this name.
    pub fn has_mapped(&self, name: &str) -> bool {
        let maps = format!("/proc/{}/maps", self.program.id());
        std::fs::read_to_string(maps).unwrap().contains(name)
    }

    /// Waits until two consecutive screenshots are equal and satisfy `expected`. A single
    /// screenshot may be taken during an update.
    pub fn sees(&self, what: &str, expected: impl Fn(&Screen) -> bool) -> Screen {
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

    /// Returns a screenshot from the server's framebuffer file.
    pub fn screen(&self) -> Option<Screen> {
        let bytes = std::fs::read(self.directory.join("Xvfb_screen0")).ok()?;
        let word =
            |at: usize| Some(u32::from_be_bytes(bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?));
        let start = word(0)? as usize + word(19)? as usize * 12;
        let (width, line) = (word(4)? as usize, word(12)? as usize);
        let pixel_bytes = word(11)? as usize / 8;
        let rows = bytes.get(start..)?.chunks_exact(line);
        let pixels = rows.flat_map(|row| row[..width * pixel_bytes].chunks_exact(pixel_bytes));
        let word = |pixel: &[u8]| pixel.iter().rfold(0, |word, byte| word << 8 | u32::from(*byte));
        Some(Screen { width, pixels: pixels.map(|pixel| word(pixel) & 0x00FF_FFFF).collect() })
    }

    /// Waits until the program exits. Returns its exit code.
    pub fn ends(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < LONG, "the program has not exited");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
        // Sends SIGTERM instead of SIGKILL, so that the server removes its socket.
        if let Some(server) = rustix::process::Pid::from_raw(self.server.id() as i32) {
            _ = rustix::process::kill_process(server, rustix::process::Signal::TERM);
        }
        _ = self.server.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[derive(PartialEq)]
pub struct Screen {
    pub width: usize,
    /// Pixels in the display's format: 0x00RRGGBB, or 16 bits of it.
    pub pixels: Vec<u32>,
}

impl Screen {
    pub fn at(&self, x: usize, y: usize) -> u32 {
        self.pixels[y * self.width + x]
    }

    /// Counts the pixels of a colour in some rows.
    pub fn count(&self, rows: std::ops::Range<usize>, color: u32) -> usize {
        rows.map(|y| (0..self.width).filter(|x| self.at(*x, y) == color).count()).sum()
    }

    pub fn row(&self, y: usize) -> &[u32] {
        &self.pixels[y * self.width..][..1000]
    }
}
