//! Counts words, and goes on in the next run: `cargo run --example words -- to be or not to be`
use evermap::{PMap, PString, Store};

fn main() -> evermap::Result<()> {
    let store = Store::open_or_create("words.store")?;
    if !store.contains("counts")? {
        store.create::<PMap<PString, u64>, _>("counts", PMap::new())?;
    }
    let mut counts = store.write::<PMap<PString, u64>>("counts")?;
    for word in std::env::args().skip(1) {
        *counts.root_mut().get_or_insert_with(&*word, || 0)? += 1;
    }
    counts.commit()?; // all of it or nothing, even if the power fails
    counts.iter().for_each(|(word, count)| println!("{count} {word}"));
    counts.close()
}
