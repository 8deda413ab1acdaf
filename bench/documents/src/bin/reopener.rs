//! Second program that opens the driver's stores, with another memory layout, more memory and
//! threads.
//!
//! `reopener STORE NAME SELECTOR` prints two figures of the driver's `reopen` child: the number of
//! elements found, and the address of the stack.

use std::hint::black_box;
use std::process::ExitCode;

use evermap::Store;
use evermap_dom::{Document, Selector};

const THREADS: usize = 4;
const BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reopener: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, name, selector] = &arguments[..] else {
        return Err("usage: reopener STORE NAME SELECTOR".into());
    };
    // Maps 4 GiB of addresses without touching them.
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| Vec::with_capacity(BLOCK_BYTES)).collect();
    black_box(&blocks);
    let threads: Vec<_> = (0..THREADS).map(|n| std::thread::spawn(move || black_box(n))).collect();
    let store = Store::open(store)?;
    let document = store.read::<Document>(name)?;
    let selector: Selector = selector.parse()?;
    let found = document.dom()?.count(&selector);
    println!("found {found}\nplace {}", (&raw const found).addr());
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(())
}
