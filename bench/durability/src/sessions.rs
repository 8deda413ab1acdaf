//! Measures the cost of a commit, and the least time that the disk takes for the same bytes.
//!
//! The object has 1 GiB. On pages chosen at random, either 8 bytes or the whole page are stored.
//! The commit's clock starts after the stores. The floors take turns with the commit: the bytes of
//! the commit's log record, and the whole pages, written sequentially with `pwritev2(RWF_DSYNC)`
//! into a file whose blocks were written before.

use std::time::Instant;

use evermap::{PVec, Session, Store};

use crate::Bench;
use crate::work::{Change, PAGE_BYTES, WORDS_PER_PAGE};
use harness::files::PreWritten;
use harness::quiet::Awake;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};
use harness::{Outcome, caches};

const OBJECT_BYTES: u64 = 1 << 30;
const NAME: &str = "words";
/// Number of changed pages, and number of rounds.
const SIZES: [(usize, usize); 3] = [(1, 101), (100, 61), (10_000, 31)];

type Words = PVec<u64>;

pub fn report(bench: &mut Bench) -> Outcome {
    let folder = bench.temporary("sessions")?;
    let store = Store::create_new(folder.join("store"))?;
    let start = Instant::now();
    store.create::<Words, _>(NAME, PVec::new())?;
    let mut session = store.write::<Words>(NAME)?;
    session.root_mut().resize(OBJECT_BYTES as usize / 8, 1)?;
    session.commit()?;
    session.close()?;
    println!(
        "The object has 1 GiB; filling and committing it took {} s.\n",
        figure(start.elapsed().as_secs_f64())
    );
    let mut floor = PreWritten::new(&folder.join("floor"), 128 << 20)?;
    let _awake = Awake::new()?;
    head(&[
        "changed",
        "stores, ns a page",
        "commit, us",
        "floor: the record's bytes, us",
        "commit / floor",
        "floor: the whole pages, us",
        "commit / floor",
        "rollback, us",
        "close after one commit, us",
        "open for writing, us",
    ]);
    let mut random = Random::new(1);
    for cache in ["as made", "read anew"] {
        for change in [Change::EightBytes, Change::WholePage] {
            for (pages, rounds) in SIZES {
                if cache == "read anew" {
                    forget_pages(&store)?;
                }
                let what = format!("{cache}: {} {pages} pages", change.name());
                let rounds = bench.options.rounds_or(rounds, 2);
                measure(&store, &mut floor, &mut random, (change, pages, rounds), what)?;
            }
        }
    }
    Ok(())
}

/// Drops the object's pages from the page cache, so that sessions read them again.
fn forget_pages(store: &Store) -> Outcome {
    caches::drop_file(&store.path().join("objects").join(store.info(NAME)?.uuid))
}

fn measure(
    store: &Store,
    floor: &mut PreWritten,
    random: &mut Random,
    (change, pages, rounds): (Change, usize, usize),
    what: String,
) -> Outcome {
    let mut of: [Samples; 7] = Default::default();
    let [stores, commit, record, whole, rollback, close, open] = &mut of;
    let record_bytes = vec![1; change.record_bytes(pages)];
    let page_bytes = vec![1; pages * PAGE_BYTES];
    let mut session = store.write::<Words>(NAME)?;
    // The first commit of a session creates the log.
    dirty(&mut session, random, change, pages);
    session.commit()?;
    for _ in 0..rounds {
        let time = dirty(&mut session, random, change, pages);
        stores.push(time / pages as f64);
        let start = Instant::now();
        session.commit()?;
        commit.push_us(start.elapsed());
        let start = Instant::now();
        floor.append_durable(&record_bytes)?;
        record.push_us(start.elapsed());
        let start = Instant::now();
        floor.append_durable(&page_bytes)?;
        whole.push_us(start.elapsed());
        dirty(&mut session, random, change, pages);
        let start = Instant::now();
        session.rollback()?;
        rollback.push_us(start.elapsed());
    }
    session.close()?;
    for _ in 0..rounds.min(31) {
        let start = Instant::now();
        let mut session = store.write::<Words>(NAME)?;
        open.push_us(start.elapsed());
        dirty(&mut session, random, change, pages);
        session.commit()?;
        let start = Instant::now();
        session.close()?;
        close.push_us(start.elapsed());
    }
    row(&[
        what,
        stores.to_string(),
        commit.to_string(),
        record.to_string(),
        figure(commit.median() / record.median()),
        whole.to_string(),
        figure(commit.median() / whole.median()),
        rollback.to_string(),
        close.to_string(),
        open.to_string(),
    ]);
    Ok(())
}

/// Stores on pages chosen at random and returns the nanoseconds.
fn dirty(session: &mut Session<Words>, random: &mut Random, change: Change, pages: usize) -> f64 {
    let chosen = random.different(pages, OBJECT_BYTES / PAGE_BYTES as u64 - 1);
    let value = random.number();
    let start = Instant::now();
    let mut words = session.root_mut();
    let words = words.as_mut_slice();
    // The vector may begin inside a page, so the last page is left out above.
    let first = words.as_ptr().addr().next_multiple_of(PAGE_BYTES) - words.as_ptr().addr();
    for page in chosen {
        let at = first / 8 + page as usize * WORDS_PER_PAGE;
        match change {
            Change::EightBytes => words[at + (value % 500) as usize] = value,
            Change::WholePage => words[at..at + WORDS_PER_PAGE].fill(value ^ page),
        }
    }
    start.elapsed().as_nanos() as f64
}
