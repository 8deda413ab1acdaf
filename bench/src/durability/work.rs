//! The work that every engine does: a GiB of pages, and durable changes of some, chosen at random.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::parts;
use crate::random::Random;

pub const PAGE_BYTES: usize = 4096;
pub const WORDS_PER_PAGE: usize = PAGE_BYTES / 8;

/// How much is measured. `EVERMAP_BENCH_QUICK=1` shows that everything runs; its figures mean nothing.
#[derive(Clone, Copy)]
pub struct Scale {
    pub pages: u64,
    /// Divides the number of rounds.
    pub divisor: usize,
}

impl Scale {
    pub fn from_environment() -> Scale {
        match parts::quick() {
            true => Scale { pages: 1 << 15, divisor: 8 },
            false => Scale { pages: 1 << 18, divisor: 1 },
        }
    }

    pub fn bytes(self) -> usize {
        self.pages as usize * PAGE_BYTES
    }

    pub fn rounds(self, full: usize) -> usize {
        (full / self.divisor).max(3)
    }
}

/// What is stored on each chosen page.
#[derive(Clone, Copy, PartialEq)]
pub enum Change {
    EightBytes,
    WholePage,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Change::EightBytes => "8 bytes on each of",
            Change::WholePage => "all of",
        }
    }

    /// Bytes of a log record of so many pages: a head, and for each page 16 bytes and its lines.
    /// What an engine writes beyond that (checksums, for one) is its own and not in the floor.
    pub fn record_bytes(self, pages: usize) -> usize {
        let lines = match self {
            Change::EightBytes => 64,
            Change::WholePage => PAGE_BYTES,
        };
        (64 + (pages + 1) * (16 + lines)).next_multiple_of(512)
    }
}

/// Pages in a commit, how often that is measured, and how often for the bytes written.
pub const SIZES: [(usize, usize, usize); 3] = [(1, 101, 200), (100, 41, 50), (10_000, 15, 8)];

/// The changes of one commit.
pub struct Work {
    pub pages: Vec<u64>,
    pub change: Change,
    value: u64,
}

impl Work {
    /// The last page is left alone: an engine's first page need not be at the start of its first.
    pub fn new(random: &mut Random, scale: Scale, change: Change, pages: usize) -> Work {
        let pages = random.different(pages, scale.pages - 1);
        Work { pages, change, value: random.number() }
    }

    /// The same pages, changed to something else.
    pub fn again(&self, random: &mut Random) -> Work {
        Work { pages: self.pages.clone(), change: self.change, value: random.number() }
    }

    /// Where in a page the eight bytes go; engines that keep a few bytes less a value have room too.
    pub fn word(&self) -> usize {
        (self.value % 500) as usize
    }

    pub fn new_word(&self) -> u64 {
        self.value
    }

    /// What all words of the page become.
    pub fn filling(&self, page: u64) -> u64 {
        self.value ^ page
    }

    /// Changes a copy of a value: what a program does that gets and puts values.
    pub fn apply(&self, page: u64, value: &mut [u8]) {
        match self.change {
            Change::EightBytes => {
                let at = self.word() * 8;
                value[at..at + 8].copy_from_slice(&self.value.to_ne_bytes());
            }
            Change::WholePage => {
                for word in value.chunks_exact_mut(8) {
                    word.copy_from_slice(&self.filling(page).to_ne_bytes());
                }
            }
        }
    }
}

/// How long the two halves of a commit took.
#[derive(Clone, Copy)]
pub struct Times {
    pub change: Duration,
    pub commit: Duration,
}

impl Times {
    /// Runs and times both.
    pub fn of<T>(
        change: impl FnOnce() -> Outcome<T>,
        commit: impl FnOnce(T) -> Outcome,
    ) -> Outcome<Times> {
        let start = Instant::now();
        let changed = change()?;
        let middle = Instant::now();
        commit(changed)?;
        Ok(Times { change: middle - start, commit: middle.elapsed() })
    }

    pub fn whole(self) -> Duration {
        self.change + self.commit
    }
}

/// An engine, with its pages made and closed.
pub trait Engine {
    fn name(&self) -> String;

    fn open(&mut self) -> Outcome;

    /// Changes the pages and makes that durable.
    fn commit(&mut self, work: &Work) -> Outcome<Times>;

    /// Ends; whatever was put off is done and durable afterwards.
    fn close(&mut self) -> Outcome;
}
