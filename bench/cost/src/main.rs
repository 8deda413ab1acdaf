//! Performs one operation a given number of times; `compare.sh` counts its instructions and system
//! calls.
//!
//! It calls only functions that earlier versions of the library have, because `compare.sh` builds
//! it with those, too.

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::ptr::NonNull;

use evermap::{Options, PVec, Store, Window};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Small = PVec<u8>;
type Words = PVec<u64>;

const PAGE_BYTES: usize = 4096;
const WORDS_PER_PAGE: usize = PAGE_BYTES / 8;
/// Pages of the objects to commit to: 64 MiB.
const PAGES: usize = 16_384;
/// Blocks that are allocated before the first is freed.
const BLOCKS: usize = 1000;
const BLOCK_BYTES: usize = 64;
const TAG: [u8; 16] = *b"pages of a test.";

const USAGE: &str = "usage: bench-cost make|read|read-raw|write|write-raw|allocate STORE TIMES
       bench-cost commit|commit-raw|commit-whole STORE TIMES PAGES";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-cost: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, store, times, rest @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let (store, times) = (Path::new(store), times.parse()?);
    let pages = rest.first().map_or(Ok(1), |pages| pages.parse())?;
    let repeat =
        |once: fn(&Store) -> Outcome| (0..times).try_for_each(|_| once(&Store::open(store)?));
    match operation.as_str() {
        "make" => make(store),
        "read" => repeat(|store| {
            black_box(store.read::<Small>("small")?.len());
            Ok(())
        }),
        "read-raw" => repeat(|store| {
            black_box(store.read_raw("raw")?.root());
            Ok(())
        }),
        "write" => repeat(|store| Ok(store.write::<Small>("small")?.close()?)),
        "write-raw" => repeat(|store| Ok(store.write_raw("raw")?.close()?)),
        "allocate" => allocate(store, times),
        "commit" => commit(store, times, pages),
        "commit-raw" => commit_raw(store, times, pages, false),
        "commit-whole" => commit_raw(store, times, pages, true),
        _ => Err(USAGE.into()),
    }
}

/// Creates the store, at addresses that are free under emulators, too.
fn make(store: &Path) -> Outcome {
    let window = Window::new(0x08 << 40, 0x10 << 40)?;
    let store = Options::new().window(window).create_new(store)?;
    store.create::<Small, _>("small", vec![7; 2048])?;
    store.create::<Words, _>("words", PVec::new())?;
    let mut session = store.write::<Words>("words")?;
    session.root_mut().resize(PAGES * WORDS_PER_PAGE, 1)?;
    session.commit()?;
    session.close()?;
    store.create_raw("raw")?;
    let mut session = store.write_raw("raw")?;
    let block = session.heap().allocate(PAGES * PAGE_BYTES, PAGE_BYTES)?;
    // SAFETY: the block has this size, and no other reference to it exists.
    unsafe { block.write_bytes(1, PAGES * PAGE_BYTES) };
    // SAFETY: the tag is not that of a Rust type.
    unsafe { session.set_root(Some(block), (PAGES * PAGE_BYTES) as u64, TAG, "pages")? };
    session.commit()?;
    Ok(session.close()?)
}

/// Allocates blocks and frees them, in the order of their allocation.
fn allocate(store: &Path, times: usize) -> Outcome {
    let store = Store::open(store)?;
    let session = store.write_raw("raw")?;
    let mut blocks = Vec::with_capacity(BLOCKS);
    for _ in 0..times {
        for _ in 0..BLOCKS {
            blocks.push(session.heap().allocate(BLOCK_BYTES, 8)?);
        }
        for block in blocks.drain(..) {
            // SAFETY: this heap allocated the block above, and it is freed once.
            unsafe { session.heap().free(block) };
        }
    }
    // Freed blocks need no commit.
    drop(session);
    Ok(())
}

/// Commits one changed word on each of this many pages, in an object of a Rust type.
fn commit(store: &Path, times: usize, pages: usize) -> Outcome {
    let store = Store::open(store)?;
    let mut session = store.write::<Words>("words")?;
    for round in 0..times {
        let mut words = session.root_mut();
        let words = words.as_mut_slice();
        // The vector may begin inside a page, so the last page is left out.
        let first =
            (words.as_ptr().addr().next_multiple_of(PAGE_BYTES) - words.as_ptr().addr()) / 8;
        for page in 0..pages {
            let at = first + (round + page) % (PAGES - 1) * WORDS_PER_PAGE;
            words[at + round % WORDS_PER_PAGE] += 1;
        }
        session.commit()?;
    }
    Ok(session.close()?)
}

/// Commits this many pages of a raw object, with one changed word each or completely changed.
fn commit_raw(store: &Path, times: usize, pages: usize, whole: bool) -> Outcome {
    let store = Store::open(store)?;
    let mut session = store.write_raw("raw")?;
    let root = NonNull::new(session.root().address.cast::<u64>()).ok_or("no root")?;
    for round in 0..times {
        // SAFETY: the root is a block of this many words, and no other reference to it exists.
        let words =
            unsafe { std::slice::from_raw_parts_mut(root.as_ptr(), PAGES * WORDS_PER_PAGE) };
        for page in 0..pages {
            let at = (round + page) % PAGES * WORDS_PER_PAGE;
            // Small numbers, like most words of a heap, that differ from commit to commit.
            match whole {
                true => words[at..at + WORDS_PER_PAGE].iter_mut().for_each(|word| *word += 1),
                false => words[at + round % WORDS_PER_PAGE] += 1,
            }
        }
        session.commit()?;
    }
    Ok(session.close()?)
}
