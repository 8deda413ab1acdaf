//! Counts words in a persistent heap. `guest_words WORD..` adds words and prints the counts of all
//! runs; `guest_words --show OWNER:NAME` prints the counts that another application shares. Builds
//! as a guest and as a native program:
//!
//!     cargo build -p evermap-guest --example guest_words --target wasm32-wasip1
//!     EVERMAP_STORE=/tmp/words cargo run -p evermap-guest --example guest_words -- one two one

use evermap_guest::{Heap, PMap, PString, Persist, Result, Snapshot};

#[derive(Persist)]
#[repr(C)]
struct Words {
    counts: PMap<PString, u64>,
    runs: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [show, name] if show == "--show" => print(Snapshot::open(name)?.root()?),
        words => count(words)?,
    }
    Ok(())
}

fn count(new: &[String]) -> Result<()> {
    let mut heap = Heap::open("words")?;
    let mut words = heap.root_or::<Words, _>(Words { counts: PMap::new(), runs: 0 })?;
    let mut words = words.fields();
    *words.runs += 1;
    for word in new {
        *words.counts.get_or_insert_with(&word[..], || 0)? += 1;
    }
    heap.commit()?;
    print(heap.root()?);
    heap.close()
}

fn print(words: &Words) {
    println!("run {}", words.runs);
    for (word, count) in words.counts.iter() {
        println!("{word}: {count}");
    }
}
