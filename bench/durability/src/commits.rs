//! Compares Evermap's commit with the least time that the disk takes, in turns.
//!
//! The floors are the bytes of the changed lines in a log, and the whole pages. Each is written and
//! flushed to a file whose blocks were written before, through the page cache with
//! `pwritev2(RWF_DSYNC)` and with direct I/O (`O_DIRECT | O_DSYNC`). The commit's clock starts
//! after the stores. The mean includes costs that only some commits have, such as checkpoints.
//!
//! The object's pages are in the page cache as they were made, then read anew from the disk. In the
//! third part the session has read all of them before. A commit should not cost more then.

use std::time::Instant;

use super::engines::evermap::{Evermap, read_all};
use super::work::{Change, Engine, PAGE_BYTES, SIZES, Scale, Work};
use harness::Outcome;
use harness::files::{Folder, PreWritten};
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

const READ_ANEW: &str = "read anew";
const READ_BY_SESSION: &str = "read by the session";
const FLOOR_BYTES: u64 = 128 << 20;

/// Goals for a commit of this many pages, as multiples of the floor.
const GOALS: [(usize, f64); 3] = [(1, 1.3), (100, 2.5), (10_000, 1.5)];

struct Floors {
    cached: PreWritten,
    direct: PreWritten,
}

/// Samples of one row, in microseconds if not noted.
#[derive(Default)]
struct Columns {
    stores_ns: Samples,
    commit: Samples,
    record: Samples,
    record_direct: Samples,
    pages: Samples,
    pages_direct: Samples,
}

pub fn report(evermap: &mut Evermap, folder: &Folder, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("### Commits and the floor\n");
    let mut floors = Floors {
        cached: PreWritten::new(&folder.join("floor"), FLOOR_BYTES)?,
        direct: PreWritten::new_direct(&folder.join("floor-direct"), FLOOR_BYTES)?,
    };
    head(&[
        "changed",
        "stores, ns a page",
        "commit, us",
        "10th to 90th of 100",
        "mean",
        "floor: the lines, us",
        "commit / floor",
        "with direct I/O, us",
        "floor: the whole pages, us",
        "commit / floor",
        "with direct I/O, us",
    ]);
    let mut random = Random::new(1);
    for state in ["as made", READ_ANEW, READ_BY_SESSION] {
        for change in [Change::EightBytes, Change::WholePage] {
            for (pages, rounds, _) in SIZES {
                if state == READ_ANEW {
                    evermap.forget_pages()?;
                }
                let columns = measure(
                    evermap,
                    &mut floors,
                    &mut random,
                    scale,
                    (state, change, pages, scale.rounds(rounds)),
                )?;
                let what = format!("{state}: {} {pages} pages", change.name());
                columns.print(&what);
                columns.judge(&what, change, pages, goals);
            }
        }
    }
    Ok(())
}

fn measure(
    evermap: &mut Evermap,
    floors: &mut Floors,
    random: &mut Random,
    scale: Scale,
    (state, change, pages, rounds): (&str, Change, usize, usize),
) -> Outcome<Columns> {
    let mut columns = Columns::default();
    let record = vec![1; change.record_bytes(pages)];
    let whole = vec![1; pages * PAGE_BYTES];
    evermap.open()?;
    if state == READ_BY_SESSION {
        read_all(evermap.session()?);
    }
    // The first commit of a session creates the log.
    evermap.commit(&Work::new(random, scale, change, pages))?;
    for _ in 0..rounds {
        let work = Work::new(random, scale, change, pages);
        let times = evermap.commit(&work)?;
        columns.stores_ns.push(times.change.as_nanos() as f64 / pages as f64);
        columns.commit.push_us(times.commit);
        let floor = |file: &mut PreWritten, bytes: &[u8], samples: &mut Samples| -> Outcome {
            let start = Instant::now();
            file.append_durable(bytes)?;
            samples.push_us(start.elapsed());
            Ok(())
        };
        floor(&mut floors.cached, &record, &mut columns.record)?;
        floor(&mut floors.direct, &record, &mut columns.record_direct)?;
        floor(&mut floors.cached, &whole, &mut columns.pages)?;
        floor(&mut floors.direct, &whole, &mut columns.pages_direct)?;
    }
    evermap.close()?;
    Ok(columns)
}

impl Columns {
    fn print(&self, what: &str) {
        let commit = self.commit.median();
        row(&[
            what.to_string(),
            self.stores_ns.to_string(),
            self.commit.to_string(),
            self.commit.middle(),
            figure(self.commit.mean()),
            self.record.to_string(),
            figure(commit / self.record.median()),
            figure(self.record_direct.median()),
            self.pages.to_string(),
            figure(commit / self.pages.median()),
            figure(self.pages_direct.median()),
        ]);
    }

    /// Judges against the bytes that must be written: the lines for few bytes, the pages for whole
    /// pages.
    fn judge(&self, what: &str, change: Change, pages: usize, goals: &mut Goals) {
        let (floor, name) = match change {
            Change::EightBytes => (&self.record, "the lines, us"),
            Change::WholePage => (&self.pages, "the pages, us"),
        };
        if let Some((_, most)) = GOALS.iter().find(|(size, _)| *size == pages) {
            let got = (self.commit.median(), format!("{} us", self.commit));
            goals.ratio(&format!("commit, {what}"), *most, got, (floor.median(), name));
        }
    }
}
