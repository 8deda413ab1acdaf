//! The other browsers: what they are called, where they come from, how they are told to show a page.
//!
//! All of them get a home folder of their own. It is new at the start of the section and has been used by one start
//! that is not measured: nothing of a page is kept in it (files are not cached by any of them), and no first-start
//! work is held against them. Dillo's helper process (`dpid`), which it needs for files, stays from start to start, as
//! it does for its users: starting it takes up to 2.5 s, which Dillo spends waiting.

use std::path::Path;
use std::process::Command;

use crate::command::{HEIGHT, WIDTH};
use crate::environment;
use crate::pages::Page;

/// How the end of a peer's work is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// A window, and the last change of pixels in it.
    Window,
    /// A picture file; then it exits.
    Picture,
}

pub struct Peer {
    pub name: &'static str,
    pub program: &'static str,
    /// Of Debian.
    pub package: &'static str,
    pub shows: Shows,
    arguments: fn(&Page, &Path) -> Vec<String>,
}

pub const PEERS: [Peer; 3] = [
    Peer {
        name: "Dillo",
        program: "dillo",
        package: "dillo",
        shows: Shows::Window,
        // `-f`: no toolbars, so that the page has all of the window.
        arguments: |page, _| {
            let place = format!("{WIDTH}x{HEIGHT}+0+0");
            vec!["-g".into(), place, "-f".into(), page.path.display().to_string()]
        },
    },
    Peer {
        name: "NetSurf",
        program: "netsurf-fb",
        package: "netsurf-fb",
        shows: Shows::Window,
        arguments: |page, _| {
            let (width, height) = (WIDTH.to_string(), HEIGHT.to_string());
            vec!["-f".into(), "x".into(), "-w".into(), width, "-h".into(), height, page.url()]
        },
    },
    Peer {
        name: "Chromium",
        program: "chromium",
        package: "chromium",
        shows: Shows::Picture,
        // Scripts are taken out of the pages: with scripts switched off instead
        // (`--blink-settings=scriptEnabled=false`), it exits early, well, and without a picture.
        arguments: |page, folder| {
            let mut arguments = vec![
                "--headless".into(),
                "--disable-gpu".into(),
                "--hide-scrollbars".into(),
                "--no-first-run".into(),
                "--host-resolver-rules=MAP * ~NOTFOUND".into(),
                format!("--window-size={WIDTH},{HEIGHT}"),
                format!("--user-data-dir={}", folder.join("profile").display()),
                format!("--screenshot={}", picture(folder).display()),
            ];
            if rustix::process::getuid().is_root() {
                arguments.push("--no-sandbox".into());
            }
            arguments.push(page.url());
            arguments
        },
    },
];

/// Where a peer that writes a picture is told to write it.
pub fn picture(folder: &Path) -> std::path::PathBuf {
    folder.join("page.png")
}

impl Peer {
    pub fn command(&self, page: &Page, home: &Path) -> Command {
        let mut command = environment::command(self.program, home);
        command.args((self.arguments)(page, home)).current_dir(home);
        command
    }

    /// The package to install, if this peer is not there.
    pub fn missing(&self) -> Option<&'static str> {
        environment::find_program(self.program).is_none().then_some(self.package)
    }
}
