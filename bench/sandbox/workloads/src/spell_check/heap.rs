//! spell-check in a heap: the dictionary is the table that it was left as, and the text is read
//! where it is.

use evermap::{PMap, PVec, Persist};
use evermap_guest::{Heap, Snapshot};

use super::{DICTIONARY, Misspelled, TEXT, WORD_BYTES_MIN, lines};
use crate::blocks;
use crate::error::Outcome;
use crate::options::Options;
use crate::report::{Report, Watch};
use crate::words::Words;

const NAME: &str = "spell-check";

#[derive(Persist)]
#[repr(C)]
struct Root {
    /// A set: values take no room.
    dictionary: PMap<PVec<u8>, [u8; 0]>,
    text: PVec<u8>,
}

/// Brings dictionary and text into the heap.
pub fn prepare(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let dictionary = blocks::read_whole(&options.file(DICTIONARY), options.block_bytes)?;
    let text = blocks::read_whole(&options.file(TEXT), options.block_bytes)?;
    let mut heap = Heap::open(NAME)?;
    let mut root = heap.root_or::<Root, _>(Root { dictionary: PMap::new(), text: PVec::new() })?;
    let mut root = root.fields();
    root.dictionary.clear();
    for word in lines(&dictionary) {
        root.dictionary.insert(word, [])?;
    }
    root.text.assign(&text[..])?;
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    Ok(heap.close()?)
}

/// Checks.
pub fn run(report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let snapshot = Snapshot::open(NAME)?;
    let Root { dictionary, text } = snapshot.root::<Root>()?;
    report.time("load", watch.lap())?;
    let (mut finder, mut found) = (Words::new(WORD_BYTES_MIN), Misspelled::default());
    let mut check = |word: &[u8]| found.check(word, dictionary.contains_key(word));
    finder.feed(text, &mut check);
    finder.finish(check);
    report.time("check", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("dictionary", dictionary.len() as u64, "words")?;
    found.tell(report)
}
