//! Counts words, and goes on counting in the next run:
//! `cargo run --example words -- to be or not to be`

use evermap::{PMap, PString, Store};

fn main() -> evermap::Result<()> {
    let store = Store::open_or_create("words.store")?;
    if !store.contains("counts")? {
        store.create::<PMap<PString, u64>, _>("counts", PMap::new())?;
    }
    let mut counts = store.write::<PMap<PString, u64>>("counts")?;
    for word in std::env::args().skip(1) {
        let before = counts.get(&*word).copied().unwrap_or(0);
        counts.root_mut().insert(&*word, before + 1)?;
    }
    counts.commit()?; // all of it or nothing, whatever happens to the process or the power
    for (word, count) in counts.iter() {
        println!("{count} {word}");
    }
    counts.close()
}
