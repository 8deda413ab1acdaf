//! Other browsers: program, package, and command line to show a page.
//!
//! Each peer has its own home folder. It is new at the start of the section and was used by one
//! unmeasured start, so that no first-start work is measured. The browsers store nothing of a page
//! there (none of them caches files). Dillo needs a helper process (`dpid`) for files, which keeps
//! running between starts as it does for users: its start takes up to 2.5 s, which Dillo spends
//! waiting.

use std::path::Path;
use std::process::Command;

use crate::command::{HEIGHT, WIDTH};
use crate::environment;
use crate::pages::Page;

/// Event that ends a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// The last change of pixels in a window.
    Window,
    /// The exit of the program after it has written a picture file.
    Picture,
}

pub struct Peer {
    pub name: &'static str,
    pub program: &'static str,
    /// Package of Debian.
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
        // `-f` hides the toolbars, so that the page has the whole window.
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
        // The pages have no scripts. If scripts are disabled instead
        // (`--blink-settings=scriptEnabled=false`), Chromium exits early and successfully, without
        // a picture.
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

/// Path for the picture of a peer.
pub fn picture(folder: &Path) -> std::path::PathBuf {
    folder.join("page.png")
}

impl Peer {
    pub fn command(&self, page: &Page, home: &Path) -> Command {
        let mut command = environment::command(self.program, home);
        command.args((self.arguments)(page, home)).current_dir(home);
        command
    }

    /// Returns the package to install if this peer is missing.
    pub fn missing(&self) -> Option<&'static str> {
        harness::process::find_program(self.program).is_none().then_some(self.package)
    }
}
