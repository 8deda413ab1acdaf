//! Measures the cost of storing eight bytes in an object: to a dirty page, and to a page that no
//! store has touched since the last commit.
//!
//! The first table has stores at random places of a range whose pages are all dirty. They take
//! turns with the same stores to anonymous memory of the same size, with and without huge pages.
//! Dirty pages of a mapped file are 4 KiB pages, so memory without huge pages is the fair
//! comparison.
//!
//! The second table has the first store to a page since the last commit. `new` are random pages,
//! and the kernel copies those that are clean. Up to a quarter of them (in a quick run, all) can
//! still be private from earlier commits. A page that changed in the last commit is still private,
//! and is not copied (`in the last commit`).

use std::hint::black_box;
use std::time::Instant;

use super::engines::evermap::{Evermap, store, with_words};
use super::work::{Change, Engine, Scale, WORDS_PER_PAGE, Work};
use harness::Outcome;
use harness::files::Anonymous;
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

const RANGES_MIB: [usize; 2] = [16, 128];
const STORES: usize = 4_000_000;
const ROUNDS: usize = 15;
const PAGES: [usize; 2] = [100, 10_000];

pub fn report(evermap: &mut Evermap, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Stores\n");
    evermap.open()?;
    head(&[
        "random stores of 8 bytes over dirty pages",
        "in the object, ns",
        "anonymous, 4 KiB pages, ns",
        "ratio",
        "anonymous, huge pages, ns",
        "ratio",
    ]);
    for mib in RANGES_MIB {
        dirty_pages(evermap, mib, scale, goals)?;
    }
    evermap.session()?.commit()?;
    println!();
    head(&["first store to a page since the last commit", "new, ns", "in the last commit, ns"]);
    for pages in PAGES {
        first_stores(evermap, pages, scale)?;
    }
    evermap.close()
}

fn dirty_pages(evermap: &mut Evermap, mib: usize, scale: Scale, goals: &mut Goals) -> Outcome {
    let words = (mib << 20) / 8;
    let mut plain = Anonymous::new(mib << 20, false)?;
    let mut huge = Anonymous::new(mib << 20, true)?;
    let mut columns: [Samples; 3] = Default::default();
    with_words(evermap.session()?, |object| {
        let object = &mut object[..words];
        for page in object.chunks_mut(WORDS_PER_PAGE) {
            page[0] ^= 1;
        }
        for round in 0..scale.rounds(ROUNDS) {
            columns[0].push(time(object, round));
            columns[1].push(time(plain.words(), round));
            columns[2].push(time(huge.words(), round));
        }
    });
    let [ours, plain, huge] = &columns;
    row(&[
        format!("{mib} MiB"),
        ours.to_string(),
        plain.to_string(),
        figure(ours.median() / plain.median()),
        huge.to_string(),
        figure(ours.median() / huge.median()),
    ]);
    let got = (ours.median(), format!("{ours} ns"));
    // The goal is 1.0. The limit of 1.05 allows for measurement noise.
    let what = format!("store over {mib} MiB of dirty pages (1.0, within noise)");
    goals.ratio(&what, 1.05, got, (plain.median(), "plain memory, ns"));
    Ok(())
}

/// Returns the mean time of a store, in nanoseconds.
fn time(words: &mut [u64], round: usize) -> f64 {
    let mut random = Random::new(round as u64);
    let start = Instant::now();
    for _ in 0..STORES {
        let number = random.number();
        let at = ((u128::from(number) * words.len() as u128) >> 64) as usize;
        words[at] = number;
    }
    let time = start.elapsed();
    black_box(&words[0]);
    time.as_nanos() as f64 / STORES as f64
}

fn first_stores(evermap: &mut Evermap, pages: usize, scale: Scale) -> Outcome {
    let mut random = Random::new(3);
    let (mut new, mut recent) = (Samples::new(), Samples::new());
    for _ in 0..scale.rounds(ROUNDS) {
        let work = Work::new(&mut random, scale, Change::EightBytes, pages);
        let again = work.again(&mut random);
        for (work, samples) in [(&work, &mut new), (&again, &mut recent)] {
            let session = evermap.session()?;
            let start = Instant::now();
            store(session, work);
            samples.push(start.elapsed().as_nanos() as f64 / pages as f64);
            session.commit()?;
        }
    }
    row(&[format!("{pages} random pages"), new.to_string(), recent.to_string()]);
    Ok(())
}
