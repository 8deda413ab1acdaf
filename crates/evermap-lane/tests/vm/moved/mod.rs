//! Files that are switched to a tier and back while the power goes: what is promised of each at every moment, and what a cut left of it.
//!
//! Whoever boots the machine records its disk, with both file systems on it, and writes into the recording what is promised (`crates/evermap/tests/vm`); a
//! second machine mounts what a cut left of them. Both talk with this program by lines: it says a promise, and goes on when it is told that
//! this is written; or is told one, and says what it found.

mod judge;
mod make;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use crate::lanes::is_machine;

/// Where the files are, and the journal.
const FILES: &str = "/mnt/files";
const TIER: &str = "/mnt/tier";
const JOURNAL: &str = "/mnt/files/journal";

/// Of each file: below a page, and beyond what is read and written at once.
const BYTES: [usize; 4] = [3_000, 70_000, 300_000, (1 << 20) + 13];

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It is being made: nothing is promised.
    Absent,
    /// It is being written to: its contents may be any.
    Written,
    /// At its path, and nothing is known of it elsewhere.
    Home,
    /// On its way there, or back.
    Moving,
    /// On the tier, with the original beside the link.
    Placed,
    /// On the tier only.
    Alone,
}

impl At {
    const ALL: [(At, &'static str); 6] = [
        (At::Absent, "absent"),
        (At::Written, "written"),
        (At::Home, "home"),
        (At::Moving, "moving"),
        (At::Placed, "placed"),
        (At::Alone, "alone"),
    ];

    fn name(self) -> &'static str {
        At::ALL.iter().find(|(at, _)| *at == self).unwrap().1
    }

    fn of_name(name: &str) -> Option<At> {
        At::ALL.iter().find(|(_, one)| *one == name).map(|(at, _)| *at)
    }
}

/// What is promised of the files: which contents, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise([(u64, At); BYTES.len()]);

impl Promise {
    fn nothing() -> Self {
        Self([(0, At::Absent); BYTES.len()])
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
            *file = (number.parse().ok()?, At::of_name(at)?);
        }
        Some(promise)
    }
}

fn path(file: usize) -> PathBuf {
    PathBuf::from(FILES).join(format!("file-{file}"))
}

/// What a file has with a number, and with no other.
fn contents(file: usize, number: u64) -> Vec<u8> {
    let begin = number << 32 | (file as u64) << 24;
    (begin..).flat_map(u64::to_le_bytes).take(BYTES[file]).collect()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// The next line that this program is told; none when nobody is there any more.
fn hear() -> Option<String> {
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
        say(&promise.to_line());
        hear().unwrap();
    });
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn judges() {
    if !is_machine() {
        return;
    }
    println!();
    while let Some(line) = hear() {
        let promise = Promise::of_line(&line).unwrap_or(Promise::nothing());
        match judge::judge(promise) {
            Ok(found) => say(&format!("found {found}")),
            Err(why) => say(&format!("violation: {why}; {promise:?}")),
        }
    }
}

#[test]
fn a_promise_is_read_as_it_was_written() {
    let mut promise = Promise::nothing();
    for (file, (at, _)) in promise.0.iter_mut().zip(At::ALL.into_iter().skip(2)) {
        *file = (7, at);
    }
    assert_eq!(Promise::of_line(&promise.to_line()), Some(promise));
    assert_eq!(Promise::of_line("promise 1:home ."), None);
    assert_ne!(contents(1, 2), contents(1, 3));
}
