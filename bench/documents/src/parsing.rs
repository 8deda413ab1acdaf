//! Measures the way of pages from text to a stored object, compared with html5ever and its own
//! tree.
//!
//! Each round processes the pages one by one; the side that goes first alternates. Evermap has two
//! clocks: the tables alone with their block copied into memory; and the object, whose file is
//! created, mapped, written, truncated and given its superblock. Both free the tables. The peer's
//! tree is freed after its clock has stopped, because a program that needs the tree once need not
//! free it. Hashing the source, which the `evermap` command does in addition, is not included.
//!
//! The objects of a round are one batch, whose commit makes all of them durable. In separate
//! rounds, each page is committed alone.

use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use evermap::{Batch, Store};
use evermap_dom::{Document, NewDocument, Source, html};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::RcDom;

use crate::Bench;
use crate::corpus::{Corpus, Page};
use harness::Outcome;
use harness::quiet::Awake;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 21;
const ROUNDS_SINGLY: usize = 5;
const WORST_PAGES: usize = 4;
/// Smaller files, of a page or two of memory, would distort the bytes per byte.
const WORST_FROM_BYTES: usize = 20_000;

/// Times of one page, in microseconds.
#[derive(Default)]
struct Clocks {
    block: Samples,
    object: Samples,
    plain_file: Samples,
    durable: Samples,
    peer: Samples,
    peer_freed: Samples,
}

/// Line of the table: its name and its times.
type Line = (&'static str, fn(&Clocks) -> &Samples);

pub fn report(bench: &mut Bench) -> Outcome {
    let (corpus, folder) = (&bench.own, bench.temporary("parsing")?);
    let path = folder.join("store");
    let store = Store::create_new(&path)?;
    let plain = folder.join("plain");
    std::fs::create_dir(&plain)?;
    let awake = Awake::new()?;
    let mut clocks: Vec<Clocks> = corpus.html.iter().map(|_| Clocks::default()).collect();
    let (mut target, mut commits) = (Vec::new(), Samples::new());
    let rounds = bench.options.rounds_or(ROUNDS, 2);
    for round in 0..rounds {
        let mut batch = store.batch()?;
        for (page, clocks) in corpus.html.iter().zip(&mut clocks) {
            if round % 2 == 0 {
                peer(page, clocks);
            }
            ours_in_memory(page, &mut target, clocks)?;
            plain_file(&plain, round, page, &target, clocks)?;
            ours_in_batch(&mut batch, &in_round(page, round), page, clocks)?;
            if round % 2 == 1 {
                peer(page, clocks);
            }
        }
        let start = Instant::now();
        batch.commit()?;
        commits.push_ms(start.elapsed());
    }
    drop(store);
    for _ in 0..bench.options.rounds_or(ROUNDS_SINGLY, 1) {
        let store = Store::open(&path)?;
        for (page, clocks) in corpus.html.iter().zip(&mut clocks) {
            ours_alone(&store, page, clocks)?;
        }
    }
    drop(awake);
    print_times(corpus, &clocks, &commits, rounds);
    print_sizes(&Store::open(&path)?, corpus)
}

/// Returns the source information of a document.
pub fn source(page: &Page) -> Source {
    let size_bytes = page.text.len() as u64;
    Source { path: page.name.clone(), size_bytes, modified_ns: 0, hash: [0; 32] }
}

fn ours_in_memory(page: &Page, target: &mut Vec<u8>, clocks: &mut Clocks) -> Outcome {
    let start = Instant::now();
    let tables = html::parse(&page.text, &Default::default())?;
    target.clear();
    tables.write_block(&mut |bytes| target.extend_from_slice(bytes));
    black_box(&target);
    drop(tables);
    clocks.block.push_us(start.elapsed());
    Ok(())
}

/// Name of a page's object. Every round uses new names: ext4 without a journal searches for a free
/// inode among those deleted in the last seconds, and that search would be measured.
fn in_round(page: &Page, round: usize) -> String {
    format!("{} {round}", page.name)
}

/// Measures the file system's time for the same bytes: a new file, one write, no flush.
fn plain_file(
    folder: &std::path::Path,
    round: usize,
    page: &Page,
    block: &[u8],
    clocks: &mut Clocks,
) -> Outcome {
    let path = folder.join(in_round(page, round));
    let start = Instant::now();
    std::fs::write(path, block)?;
    clocks.plain_file.push_us(start.elapsed());
    Ok(())
}

fn ours_in_batch(batch: &mut Batch, name: &str, page: &Page, clocks: &mut Clocks) -> Outcome {
    let source = source(page);
    let start = Instant::now();
    let tables = html::parse(&page.text, &Default::default())?;
    let document = NewDocument { tables: &tables, source: &source };
    batch.replace::<Document, _>(name, document)?;
    drop(tables);
    clocks.object.push_us(start.elapsed());
    Ok(())
}

fn ours_alone(store: &Store, page: &Page, clocks: &mut Clocks) -> Outcome {
    let start = Instant::now();
    let mut batch = store.batch()?;
    ours_in_batch(&mut batch, &page.name, page, &mut Clocks::default())?;
    batch.commit()?;
    clocks.durable.push_us(start.elapsed());
    Ok(())
}

fn peer(page: &Page, clocks: &mut Clocks) {
    let start = Instant::now();
    let tree = parse_document(RcDom::default(), ParseOpts::default())
        .one(StrTendril::from_slice(&page.text));
    clocks.peer.push_us(start.elapsed());
    drop(black_box(tree));
    clocks.peer_freed.push_us(start.elapsed());
}

fn print_times(corpus: &Corpus, clocks: &[Clocks], commits: &Samples, rounds: usize) {
    let bytes = corpus.html_bytes() as f64;
    let best = |of: fn(&Clocks) -> &Samples| clocks.iter().map(|c| of(c).min()).sum::<f64>();
    let median = |of: fn(&Clocks) -> &Samples| clocks.iter().map(|c| of(c).median()).sum::<f64>();
    println!(
        "{} pages, {rounds} rounds; sums over the pages of each page's minimum and median.\n",
        clocks.len()
    );
    head(&["", "min, ms", "median, ms", "MB/s", "/ peer, min", "/ peer, median"]);
    let lines: [Line; 6] = [
        ("html5ever + rcdom", |c| &c.peer),
        ("html5ever + rcdom, tree freed", |c| &c.peer_freed),
        ("evermap: parse, block in memory", |c| &c.block),
        ("evermap: parse, object written", |c| &c.object),
        ("for comparison: writing the blocks to plain files only", |c| &c.plain_file),
        ("evermap: parse, object written, each page committed alone", |c| &c.durable),
    ];
    let peer = (best(|c| &c.peer), median(|c| &c.peer));
    for (name, of) in lines {
        let (best, median) = (best(of), median(of));
        row(&[
            name.to_string(),
            figure(best / 1e3),
            figure(median / 1e3),
            figure(bytes / median),
            figure(best / peer.0),
            figure(median / peer.1),
        ]);
    }
    let whole = median(|c| &c.object) / 1e3 + commits.median();
    println!(
        "\nCommitting all pages as one batch takes {commits} ms; with their objects {} ms, {} of the \
         peer's medians.",
        figure(whole),
        figure(whole * 1e3 / peer.1)
    );
}

fn print_sizes(store: &Store, corpus: &Corpus) -> Outcome {
    let (mut source, mut length, mut allocated, mut block, mut nodes) = (0, 0, 0, 0, 0);
    let mut worst = Vec::new();
    for page in &corpus.html {
        let info = store.info(&page.name)?;
        let about = std::fs::metadata(store.path().join("objects").join(&info.uuid))?;
        let document = store.read::<Document>(&page.name)?;
        source += page.text.len() as u64;
        length += about.len();
        allocated += about.blocks() * 512;
        block += document.block_bytes();
        nodes += document.dom()?.node_count() as u64;
        if page.text.len() >= WORST_FROM_BYTES {
            worst.push((about.len() as f64 / page.text.len() as f64, page));
        }
    }
    let part = |bytes: u64, of: u64| figure(bytes as f64 / of as f64);
    println!();
    head(&["", "bytes per source byte", "bytes per DOM node"]);
    for (name, bytes) in [
        ("object files, length", length),
        ("object files, blocks allocated", allocated),
        ("documents' blocks alone", block),
    ] {
        row(&[name.to_string(), part(bytes, source), part(bytes, nodes)]);
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    let worst = worst.iter().take(WORST_PAGES);
    let worst: Vec<String> = worst
        .map(|(ratio, page)| {
            format!("{} ({} bytes) {}", page.name, page.text.len(), figure(*ratio))
        })
        .collect();
    println!("\nWorst pages over {WORST_FROM_BYTES} bytes, file length: {}.", worst.join(", "));
    Ok(())
}
