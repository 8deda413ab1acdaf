//! Files that are switched to a tier and back during power cuts: the promise for each file at every
//! moment, and a check of the files after a cut.
//!
//! The host records the machine's disk with both file systems, and writes the promises into the
//! recording (`crates/evermap/tests/vm`). A second machine mounts the disk as it was after a cut.
//! Both talk with this program in lines. `records` prints a promise, and continues when it is told
//! that the promise is recorded. `judges` reads a promise, and prints its findings.

mod judge;
mod make;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use crate::lanes::is_machine;

/// Directories of the files, the tier and the journal.
const FILES: &str = "/mnt/files";
const TIER: &str = "/mnt/tier";
const JOURNAL: &str = "/mnt/files/journal";

/// Size of each file: less than a page, and more than one read or write.
const BYTES: [usize; 4] = [3_000, 70_000, 300_000, (1 << 20) + 13];

/// Location of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// The file is being created: nothing is promised.
    Absent,
    /// The file is being written: its contents may be any.
    Written,
    /// At its path, with nothing on the tier.
    Home,
    /// Moving in either direction.
    Moving,
    /// On the tier, with the original next to the link.
    Placed,
    /// On the tier only.
    Alone,
}

impl Location {
    const ALL: [(Location, &'static str); 6] = [
        (Location::Absent, "absent"),
        (Location::Written, "written"),
        (Location::Home, "home"),
        (Location::Moving, "moving"),
        (Location::Placed, "placed"),
        (Location::Alone, "alone"),
    ];

    fn name(self) -> &'static str {
        Location::ALL.iter().find(|(at, _)| *at == self).unwrap().1
    }

    fn of_name(name: &str) -> Option<Location> {
        Location::ALL.iter().find(|(_, one)| *one == name).map(|(at, _)| *at)
    }
}

/// Promise for the files: version of the contents and location of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise([(u64, Location); BYTES.len()]);

impl Promise {
    fn nothing() -> Self {
        Self([(0, Location::Absent); BYTES.len()])
    }

    fn to_line(self) -> String {
        let files = self.0.map(|(number, at)| format!("{number}:{}", at.name()));
        format!("promise {} .", files.join(" "))
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut promise = Self::nothing();
        let mut words = line.trim().strip_prefix("promise ")?.strip_suffix(" .")?.split(' ');
        for file in &mut promise.0 {
            let (number, at) = words.next()?.split_once(':')?;
            *file = (number.parse().ok()?, Location::of_name(at)?);
        }
        Some(promise)
    }
}

fn path(file: usize) -> PathBuf {
    PathBuf::from(FILES).join(format!("file-{file}"))
}

/// Returns the contents of a file for a version number. They are distinct for each file and number.
fn contents(file: usize, number: u64) -> Vec<u8> {
    let begin = number << 32 | (file as u64) << 24;
    (begin..).flat_map(u64::to_le_bytes).take(BYTES[file]).collect()
}

fn send_line(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Reads the next line of input. Returns `None` at its end.
fn receive_line() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line).unwrap();
    (length > 0).then(|| line.trim().to_owned())
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn records() {
    if !is_machine() {
        return;
    }
    println!();
    make::move_files(&mut |promise| {
        send_line(&promise.to_line());
        receive_line().unwrap();
    });
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn judges() {
    if !is_machine() {
        return;
    }
    println!();
    while let Some(line) = receive_line() {
        let promise = Promise::of_line(&line).unwrap_or(Promise::nothing());
        match judge::judge(promise) {
            Ok(found) => send_line(&format!("found {found}")),
            Err(why) => send_line(&format!("violation: {why}; {promise:?}")),
        }
    }
}

#[test]
fn a_promise_is_read_as_it_was_written() {
    let mut promise = Promise::nothing();
    for (file, (at, _)) in promise.0.iter_mut().zip(Location::ALL.into_iter().skip(2)) {
        *file = (7, at);
    }
    assert_eq!(Promise::of_line(&promise.to_line()), Some(promise));
    assert_eq!(Promise::of_line("promise 1:home ."), None);
    assert_ne!(contents(1, 2), contents(1, 3));
}
