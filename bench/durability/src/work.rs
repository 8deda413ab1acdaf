//! Work that every engine does: a GiB of pages, and durable changes of some of them, chosen at
//! random.

use std::time::{Duration, Instant};

use harness::Outcome;
use harness::random::Random;

pub const PAGE_BYTES: usize = 4096;
pub const WORDS_PER_PAGE: usize = PAGE_BYTES / 8;

/// Amount of work.
#[derive(Clone, Copy)]
pub struct Scale {
    pub pages: u64,
    /// Divides the number of rounds.
    pub divisor: usize,
}

impl Scale {
    pub fn new(quick: bool) -> Scale {
        match quick {
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

/// Bytes stored on each chosen page.
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

    /// Size of a log record for this many pages: a head, and for each page 16 bytes and its lines.
    /// Additional bytes of an engine, such as checksums, are not part of the floor.
    pub fn record_bytes(self, pages: usize) -> usize {
        let lines = match self {
            Change::EightBytes => 64,
            Change::WholePage => PAGE_BYTES,
        };
        (64 + (pages + 1) * (16 + lines)).next_multiple_of(512)
    }
}

/// Pages in a commit, rounds of the commit time, and rounds of the bytes written.
pub const SIZES: [(usize, usize, usize); 3] = [(1, 101, 200), (100, 41, 50), (10_000, 15, 8)];

/// Changes of one commit.
pub struct Work {
    pub pages: Vec<u64>,
    pub change: Change,
    value: u64,
}

impl Work {
    /// Chooses pages at random. The last page is left out, because an engine's data may begin
    /// inside its first page.
    pub fn new(random: &mut Random, scale: Scale, change: Change, pages: usize) -> Work {
        let pages = random.different(pages, scale.pages - 1);
        Work { pages, change, value: random.number() }
    }

    /// Returns new values for the same pages.
    pub fn again(&self, random: &mut Random) -> Work {
        Work { pages: self.pages.clone(), change: self.change, value: random.number() }
    }

    /// Position of the eight bytes in a page. It leaves room for engines that store a few bytes
    /// less per value.
    pub fn word(&self) -> usize {
        (self.value % 500) as usize
    }

    pub fn new_word(&self) -> u64 {
        self.value
    }

    /// Returns the new value of all words of the page.
    pub fn filling(&self, page: u64) -> u64 {
        self.value ^ page
    }

    /// Changes a copy of a value, as a program does that gets and puts values.
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

/// Times of the two halves of a commit.
#[derive(Clone, Copy)]
pub struct Times {
    pub change: Duration,
    pub commit: Duration,
}

impl Times {
    /// Runs both halves and times them.
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

/// Engine with its pages created and closed.
pub trait Engine {
    fn name(&self) -> String;

    fn open(&mut self) -> Outcome;

    /// Changes the pages and makes the changes durable.
    fn commit(&mut self, work: &Work) -> Outcome<Times>;

    /// Closes the engine; deferred work is done and durable afterwards.
    fn close(&mut self) -> Outcome;
}
