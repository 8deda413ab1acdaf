//! Counts words in a heap that lasts: `guest_words WORD..` adds, and says how often each was there in
//! this run and all before; `guest_words --show OWNER:NAME` says what another application shares. A
//! guest, and a native program:
//!
//!     cargo build -p evermap-guest --example guest_words --target wasm32-wasip1
//!     EVERMAP_STORE=/tmp/words cargo run -p evermap-guest --example guest_words -- one two one

use evermap::{PMap, PString, Persist};
use evermap_guest::{Heap, Result, Snapshot};

#[derive(Persist)]
#[repr(C)]
struct Words {
    counts: PMap<PString, u64>,
    runs: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [show, name] if show == "--show" => tell(Snapshot::open(name)?.root()?),
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
    tell(heap.root()?);
    heap.close()
}

fn tell(words: &Words) {
    println!("run {}", words.runs);
    for (word, count) in words.counts.iter() {
        println!("{word}: {count}");
    }
}
