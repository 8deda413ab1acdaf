//! spell-check in a heap: the dictionary is a stored table, and the text is read in place.

use evermap_guest::{Heap, PMap, PVec, Persist, Snapshot};

use super::{DICTIONARY, Misspelled, TEXT, WORD_BYTES_MIN, lines};
use crate::blocks;
use crate::error::Outcome;
use crate::options::Options;
use crate::report::{Report, Watch};
use crate::words::{Found, Short, Words, short};

const NAME: &str = "spell-check";

#[derive(Persist)]
#[repr(C)]
struct Root {
    /// Sets, as maps with empty values. Short words are in the table itself.
    short: PMap<Short, [u8; 0]>,
    long: PMap<PVec<u8>, [u8; 0]>,
    text: PVec<u8>,
}

/// Stores dictionary and text in the heap.
pub fn prepare(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let dictionary = blocks::read_whole(&options.file(DICTIONARY), options.block_bytes)?;
    let text = blocks::read_whole(&options.file(TEXT), options.block_bytes)?;
    let mut heap = Heap::open(NAME)?;
    let mut root =
        heap.root_or::<Root, _>(Root { short: PMap::new(), long: PMap::new(), text: PVec::new() })?;
    let mut root = root.fields();
    root.short.clear();
    root.long.clear();
    for word in lines(&dictionary) {
        match short(word) {
            Some(word) => root.short.insert(word, []).map(drop)?,
            None => root.long.insert(word, []).map(drop)?,
        }
    }
    root.text.assign(&text[..])?;
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    Ok(heap.close()?)
}

/// Checks the text.
pub fn run(report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let snapshot = Snapshot::open(NAME)?;
    let Root { short, long, text } = snapshot.root::<Root>()?;
    report.time("load", watch.lap())?;
    let (mut finder, mut results) = (Words::new(WORD_BYTES_MIN), Misspelled::default());
    let mut check = |word: &Found| {
        let known = match word.short() {
            Some(word) => short.contains_key(word),
            None => long.contains_key(word.letters()),
        };
        results.check(word.letters(), known);
    };
    finder.feed(text, &mut check);
    finder.finish(check);
    report.time("check", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("dictionary", (short.len() + long.len()) as u64, "words")?;
    results.write_to(report)
}
