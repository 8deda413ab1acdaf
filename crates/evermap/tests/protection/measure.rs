//! Measures the cost of protection: `cargo test --release -p evermap --test protection --
//! --measure`.
//!
//! Prints the table of `docs/protection.md`. Asserts nothing.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use evermap::{ActiveProtection, Durability, ProtectedRawSession, Protection, Store, WriteOptions};
use evermap_observe::Quantiles;

const PAGE_BYTES: usize = 4096;
/// Numbers of pages that are written before each commit.
const PAGES: usize = 1000;

pub fn run() -> ExitCode {
    Protection::prepare_keys();
    println!("object      in force  scope ns  store, own scope ns  {PAGES} stores us  commit us");
    for bytes in [1 << 20, 64 << 20, 1 << 30] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("heap").unwrap();
        let mut session = store.write_raw("heap").unwrap();
        let block = session.heap().allocate_zeroed(bytes, 4096).unwrap();
        // SAFETY: the tag belongs to no Rust type.
        unsafe { session.set_root(Some(block), bytes as u64, [0; 16], "") }.unwrap();
        session.commit().unwrap();
        session.close().unwrap();
        for protection in [Protection::Off, Protection::Pages, Protection::Keys] {
            measure(&store, protection, bytes);
        }
    }
    ExitCode::SUCCESS
}

fn measure(store: &Store, protection: Protection, bytes: usize) {
    // Without flushes, because only the work is measured.
    let options = WriteOptions::new().durability(Durability::Close);
    let session = store.write_raw_with("heap", &options).unwrap();
    let mut session = session.protect(protection).unwrap();
    let active = session.protection();
    if protection == Protection::Keys && active != ActiveProtection::Keys {
        println!("{:>7} MiB  (no keys here)", bytes >> 20);
        return;
    }
    let first = session.root().address;
    let page = |number: usize| first.wrapping_add(number % (bytes / PAGE_BYTES) * PAGE_BYTES);
    // Every page is present, as in a session that has read all of it.
    for number in 0..bytes / PAGE_BYTES {
        // SAFETY: inside the root's block.
        black_box(unsafe { page(number).read_volatile() });
    }
    let batch = if active == ActiveProtection::Pages { 1 } else { 1000 };
    let scope_ns = nanoseconds_each(batch, |_| drop(session.scope().unwrap()));
    let store_ns = nanoseconds_each(batch, |n| {
        let _scope = session.scope().unwrap();
        // SAFETY: inside the root's block, and the scope is open.
        unsafe { page(n % 16).write_volatile(n as u8) };
    });
    let (mut stores, mut commits) = (Vec::new(), Vec::new());
    for round in 0..15 {
        let started = Instant::now();
        fill(&session, page, round);
        stores.push(started.elapsed().as_nanos() as f64 / 1e3);
        let started = Instant::now();
        session.commit().unwrap();
        commits.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    println!(
        "{:>7} MiB  {:<8}  {scope_ns:>8.1}  {store_ns:>19.1}  {:>14.0}  {:>9.0}",
        bytes >> 20,
        format!("{active:?}"),
        Quantiles::of(&stores).p50,
        Quantiles::of(&commits).p50
    );
    session.rollback().unwrap();
    session.close().unwrap();
}

fn fill(session: &ProtectedRawSession, page: impl Fn(usize) -> *mut u8, round: usize) {
    let _scope = session.scope().unwrap();
    for number in 0..PAGES {
        // Scattered: each on its own page, if there are enough pages.
        let at = page(number * 7919);
        // SAFETY: inside the root's block, and the scope is open.
        unsafe { at.write_volatile(round as u8 + 1) };
    }
}

/// Returns the median of many batches, because the machine has other load.
fn nanoseconds_each(batch: usize, mut work: impl FnMut(usize)) -> f64 {
    let started = Instant::now();
    let mut batches = Vec::new();
    while batches.len() < 10 || started.elapsed() < Duration::from_millis(500) {
        let begun = Instant::now();
        (0..batch).for_each(&mut work);
        batches.push(begun.elapsed().as_nanos() as f64 / batch as f64);
    }
    Quantiles::of(&batches).p50
}
