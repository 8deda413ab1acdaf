//! Measures opening a store, an object and its root, for objects of all sizes.
//!
//! A new process opens everything and touches the root. It then repeats that a hundred times with
//! everything closed in between, which leaves out the first-call cost of each function. For cold
//! figures the kernel's caches are dropped before the process starts, program included.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use evermap::{PVec, Store};
use evermap_dom::{Document, NewDocument, html};

use crate::Bench;
use crate::corpus::Corpus;
use crate::parsing::source;
use harness::children::{print, us_since};
use harness::files::text;
use harness::samples::{Samples, figure, head, row};
use harness::{Outcome, caches, children};

const ROUNDS: usize = 41;
const ROUNDS_COLD: usize = 9;
const REPEATS: &str = "100";
const OBJECTS: usize = 10_000;
const SINGLY: [usize; 2] = [100, 1000];
const LIBRARY_DOCUMENTS: usize = 100_000;
const LIBRARY_BYTES: u64 = 1200 << 20;
/// Largest page of the corpus that goes into the library.
const LIBRARY_PAGE_BYTES: usize = 48 << 10;
const DOCUMENTS_PER_COMMIT: usize = 1000;
const COMMITS_PER_SESSION: usize = 10;

type Library = PVec<Document>;
type Small = PVec<u8>;

pub fn report(bench: &mut Bench) -> Outcome {
    let (corpus, folder) = (&bench.own, bench.temporary("opening")?);
    let path = folder.join("store");
    let store = Store::create_new(&path)?;
    store.create::<Small, _>("small", vec![7; 2048])?;
    let page = corpus.some_pages()[0];
    let tables = html::parse(&page.text, &Default::default())?;
    let document = NewDocument { tables: &tables, source: &source(page) };
    store.create::<Document, _>("document", document)?;
    build_library(&store, corpus, bench.options.quick)?;
    let crowded = folder.join("crowded");
    build_crowd(&crowded)?;
    let sizes = ["small", "document", "library"].map(|name| store.info(name));
    drop(store);

    head(&[
        "object",
        "store open, us",
        "object open and root, us",
        "total, us",
        "again, us",
        "whole process, us",
        "cold: total, us",
        "cold: whole process, us",
    ]);
    for info in sizes {
        let info = info?;
        let name = info.name.as_str();
        let title = format!(
            "{name}: {} bytes, {} {}",
            info.file_bytes,
            info.regions.len(),
            if info.regions.len() == 1 { "region" } else { "regions" }
        );
        measure(bench, &title, &path, name, name)?;
    }
    measure(bench, &format!("one of {OBJECTS}"), &crowded, "object-4711", "small")?;
    measure_with_open_writer(bench, &folder.join("busy"))
}

/// Measures opening while another process has the store open and has changed it many times: those
/// changes are in the catalog's log until that process closes the store.
fn measure_with_open_writer(bench: &Bench, path: &Path) -> Outcome {
    let store = Store::create_new(path)?;
    let mut made = 0;
    for objects in SINGLY {
        while made < objects {
            store.create::<Small, _>(&format!("object-{made}"), vec![7; 2048])?;
            made += 1;
        }
        let title =
            format!("small, {objects} objects made singly by a process that keeps the store open");
        measure(bench, &title, path, "object-0", "small")?;
    }
    Ok(())
}

fn measure(bench: &Bench, title: &str, store: &Path, name: &str, root: &str) -> Outcome {
    let arguments = ["open", text(store)?, name, root, "0"];
    let repeated = ["open", text(store)?, name, root, REPEATS];
    let mut of: [Samples; 7] = Default::default();
    let [store_us, object_us, total, again, whole, cold, cold_whole] = &mut of;
    for _ in 0..bench.options.rounds_or(ROUNDS, 2) {
        let child = children::run(&arguments)?;
        store_us.push(child.figure("store_us")?);
        object_us.push(child.figure("object_us")?);
        total.push(child.figure("total_us")?);
        whole.push_us(child.whole);
        again.push(children::run(&repeated)?.figure("again_us")?);
    }
    let cold_rounds = if bench.can_drop { bench.options.rounds_or(ROUNDS_COLD, 1) } else { 0 };
    for _ in 0..cold_rounds {
        caches::drop_all()?;
        let child = children::run(&arguments)?;
        cold.push(child.figure("total_us")?);
        cold_whole.push_us(child.whole);
    }
    let mut cells = vec![title.to_string()];
    cells.extend(of.iter().map(|samples| match samples.count() {
        0 => "not permitted".to_string(),
        _ => samples.to_string(),
    }));
    row(&cells);
    Ok(())
}

/// Builds many documents in one object, in several sessions and commits, so that it grows region by
/// region.
fn build_library(store: &Store, corpus: &Corpus, quick: bool) -> Outcome {
    store.create::<Library, _>("library", PVec::new())?;
    let small = corpus.html.iter().filter(|page| page.text.len() <= LIBRARY_PAGE_BYTES);
    let mut parsed = Vec::new();
    for page in small {
        parsed.push((html::parse(&page.text, &Default::default())?, source(page)));
    }
    let mut pages = parsed.iter().cycle();
    let (mut documents, mut bytes, mut nodes) = (0, 0, 0);
    let (mut commits, mut closes) = (Samples::new(), Samples::new());
    let start = Instant::now();
    let mut storing = Duration::ZERO;
    // A quick run is over after the first session.
    while documents == 0 || !quick && (documents < LIBRARY_DOCUMENTS || bytes < LIBRARY_BYTES) {
        let mut session = store.write::<Library>("library")?;
        for _ in 0..COMMITS_PER_SESSION {
            let before = Instant::now();
            for (tables, source) in pages.by_ref().take(DOCUMENTS_PER_COMMIT) {
                session.root_mut().push(NewDocument { tables, source })?;
                bytes += tables.block_len() as u64;
                nodes += tables.node_count();
                documents += 1;
            }
            storing += before.elapsed();
            let before = Instant::now();
            session.commit()?;
            commits.push_ms(before.elapsed());
        }
        let before = Instant::now();
        session.close()?;
        closes.push_ms(before.elapsed());
    }
    let time = start.elapsed();
    let info = store.info("library")?;
    println!(
        "The library: {documents} documents of {nodes} nodes and {bytes} bytes, in an object of {} \
         bytes and {} regions, made in {} sessions and {} commits: {} s in total, {} ns a byte, {} ns \
         a node. Storing {} s, a commit of {DOCUMENTS_PER_COMMIT} documents {commits} ms, closing \
         a session {closes} ms.\n",
        info.file_bytes,
        info.regions.len(),
        closes.count(),
        commits.count(),
        figure(time.as_secs_f64()),
        figure(time.as_nanos() as f64 / bytes as f64),
        figure(time.as_nanos() as f64 / nodes as f64),
        figure(storing.as_secs_f64()),
    );
    Ok(())
}

fn build_crowd(path: &Path) -> Outcome {
    let store = Store::create_new(path)?;
    let start = Instant::now();
    let mut batch = store.batch()?;
    for number in 0..OBJECTS {
        batch.create::<Small, _>(&format!("object-{number}"), vec![7; 2048])?;
    }
    batch.commit()?;
    let each = start.elapsed().as_secs_f64() * 1e6 / OBJECTS as f64;
    println!("{OBJECTS} objects in one batch: {} us an object.\n", figure(each));
    Ok(())
}

/// Runs as the child: opens everything, then repeats that with everything closed in between.
pub fn child(start: Instant, path: &str, name: &str, root: &str, repeats: usize) -> Outcome {
    let (store_us, total_us) = open(start, path, name, root)?;
    let mut again = Samples::new();
    for _ in 0..repeats {
        again.push(open(Instant::now(), path, name, root)?.1);
    }
    print(&[
        ("store_us", store_us),
        ("object_us", total_us - store_us),
        ("total_us", total_us),
        ("again_us", again.median()),
    ]);
    Ok(())
}

fn open(start: Instant, path: &str, name: &str, root: &str) -> Outcome<(f64, f64)> {
    let store = Store::open(path)?;
    let store_us = us_since(start);
    // The clock stops before the object is closed.
    let total_us = match root {
        "small" => {
            let object = store.read::<Small>(name)?;
            black_box(object.len());
            us_since(start)
        }
        "document" => {
            let object = store.read::<Document>(name)?;
            black_box(object.dom()?.node_count());
            us_since(start)
        }
        "library" => {
            let object = store.read::<Library>(name)?;
            black_box(object.len());
            us_since(start)
        }
        _ => return Err(format!("unknown root: {root}").into()),
    };
    Ok((store_us, total_us))
}
