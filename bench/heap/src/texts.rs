//! Measures large dictionaries from texts to texts: bytes on disk, building, and random look-ups in
//! a new process, in the page cache. The keys are inserted in order, which gives LMDB full pages.

use std::path::Path;
use std::time::Instant;

use evermap::{PMap, PString, PTextMap, Store, from_iter};
use heed::types::Str;
use heed::{Database, Env, EnvOpenOptions, WithTls};

use crate::Scale;
use harness::Outcome;
use harness::area::unknown_child;
use harness::children::{print, run, us_since};
use harness::files::{Folder, disk_bytes, text};
use harness::goals::Goals;
use harness::quiet::Awake;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

const ENTRIES: usize = 1_000_000;
const ROUNDS: usize = 5;
/// Lengths of the values. Keys have 12 bytes.
const VALUE_BYTES: [u64; 2] = [16, 39];
const SUBJECTS: [(&str, &str); 4] = [
    ("lmdb", "LMDB, one transaction"),
    ("map", "`PMap<PString, PString>`"),
    ("text-map", "`PTextMap`, entry by entry"),
    ("text-map-built", "`PTextMap`, built from an iterator"),
];
/// Largest size of LMDB's file; reserves addresses only.
const LMDB_BYTES: usize = 16 << 30;
const OBJECT: &str = "texts";
/// Limits of a `PTextMap`, compared with LMDB.
const SIZE_GOAL: f64 = 1.1;
const FIND_GOAL: f64 = 0.5;

type Map = PMap<PString, PString>;

#[derive(Default)]
struct Columns {
    disk: Samples,
    build_ms: Samples,
    open_us: Samples,
    find_ns: Samples,
}

pub fn report(folder: &Folder, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Dictionaries of texts\n");
    let _awake = Awake::new()?;
    let entries = ENTRIES / scale.divisor;
    head(&[
        &format!("{entries} entries, keys of 12 bytes"),
        "bytes of value",
        "bytes on disk per entry",
        "built and committed, ms",
        "opened, us",
        "a random look-up, ns",
        "size / LMDB",
        "look-up / LMDB",
    ]);
    for bytes in VALUE_BYTES {
        let mut columns: [Columns; SUBJECTS.len()] = Default::default();
        for _ in 0..scale.rounds(ROUNDS) {
            for ((subject, _), columns) in SUBJECTS.iter().zip(&mut columns) {
                once(subject, folder, entries, bytes, columns)?;
            }
        }
        for ((_, name), of) in SUBJECTS.iter().zip(&columns) {
            let size = of.disk.ratios(&columns[0].disk).median();
            let find = of.find_ns.ratios(&columns[0].find_ns).median();
            row(&[
                name.to_string(),
                bytes.to_string(),
                of.disk.to_string(),
                of.build_ms.to_string(),
                of.open_us.to_string(),
                of.find_ns.to_string(),
                figure(size),
                figure(find),
            ]);
        }
        let [lmdb, _, packed, _] = &columns;
        let of = |what: &str| format!("dictionary of {bytes}-byte values: {what}");
        let measured = |samples: &Samples| (samples.median(), samples.to_string());
        let floor = (lmdb.disk.median(), "LMDB");
        goals.ratio(&of("size"), SIZE_GOAL, measured(&packed.disk), floor);
        let floor = (lmdb.find_ns.median(), "LMDB");
        goals.ratio(&of("look-up"), FIND_GOAL, measured(&packed.find_ns), floor);
    }
    Ok(())
}

fn once(subject: &str, folder: &Folder, entries: usize, bytes: u64, to: &mut Columns) -> Outcome {
    let place = folder.join("texts");
    std::fs::create_dir(&place)?;
    let arguments = [subject, text(&place)?, &entries.to_string(), &bytes.to_string()];
    let run = |verb: &str| run(&[&[verb][..], &arguments].concat());
    to.build_ms.push(run("texts-build")?.figure("build_us")? / 1e3);
    to.disk.push(disk_bytes(&place)? as f64 / entries as f64);
    let child = run("texts-find")?;
    to.open_us.push(child.figure("open_us")?);
    to.find_ns.push(child.figure("find_ns")?);
    Ok(std::fs::remove_dir_all(&place)?)
}

fn key(n: u64) -> String {
    format!("key {n:08}")
}

fn value(n: u64, bytes: u64) -> String {
    format!("value {n:0>width$}", width = bytes as usize - 6)
}

fn lmdb(path: &Path) -> Outcome<Env<WithTls>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(LMDB_BYTES);
    // SAFETY: the folder belongs to this benchmark, and no other process opens or changes its
    // files.
    Ok(unsafe { options.open(path)? })
}

/// Runs as a child: builds a dictionary, or opens one and looks keys up.
pub fn child(start: Instant, verb: &str, subject: &str, folder: &Path, numbers: &[u64]) -> Outcome {
    let &[entries, bytes] = numbers else { return unknown_child(&[verb, subject]) };
    match verb {
        "texts-build" => {
            build(subject, folder, entries, bytes)?;
            print(&[("build_us", us_since(start))]);
            Ok(())
        }
        "texts-find" => find(start, subject, folder, entries, bytes),
        _ => unknown_child(&[verb, subject]),
    }
}

fn build(subject: &str, folder: &Path, entries: u64, bytes: u64) -> Outcome {
    let pairs = (0..entries).map(|n| (key(n), value(n, bytes)));
    match subject {
        "lmdb" => {
            let env = lmdb(folder)?;
            let mut transaction = env.write_txn()?;
            let table: Database<Str, Str> = env.create_database(&mut transaction, None)?;
            for (key, value) in pairs {
                table.put(&mut transaction, &key, &value)?;
            }
            transaction.commit()?;
        }
        "map" => {
            let store = Store::create_new(folder.join("store"))?;
            store.create::<Map, _>(OBJECT, PMap::new())?;
            let mut session = store.write::<Map>(OBJECT)?;
            session.root_mut().extend(pairs)?;
            session.commit()?;
            session.close()?;
        }
        "text-map" => {
            let store = Store::create_new(folder.join("store"))?;
            store.create::<PTextMap, _>(OBJECT, PTextMap::new())?;
            let mut session = store.write::<PTextMap>(OBJECT)?;
            session.root_mut().extend(pairs)?;
            session.commit()?;
            session.close()?;
        }
        "text-map-built" => {
            let store = Store::create_new(folder.join("store"))?;
            store.create::<PTextMap, _>(OBJECT, from_iter(pairs))?;
        }
        _ => return unknown_child(&[subject]),
    }
    Ok(())
}

fn find(start: Instant, subject: &str, folder: &Path, entries: u64, bytes: u64) -> Outcome {
    // Keys are made before the clock starts.
    let mut random = Random::new(7);
    let keys: Vec<String> = (0..entries).map(|_| key(random.below(entries))).collect();
    let made = us_since(start);
    match subject {
        "lmdb" => {
            let env = lmdb(folder)?;
            let transaction = env.read_txn()?;
            let table: Database<Str, Str> =
                env.open_database(&transaction, None)?.ok_or("no table")?;
            looked_up(start, made, &keys, bytes, |key| table.get(&transaction, key).ok().flatten())
        }
        "map" => {
            let store = Store::open(folder.join("store"))?;
            let map = store.read::<Map>(OBJECT)?;
            looked_up(start, made, &keys, bytes, |key| map.get(key).map(PString::as_str))
        }
        _ => {
            let store = Store::open(folder.join("store"))?;
            let map = store.read::<PTextMap>(OBJECT)?;
            looked_up(start, made, &keys, bytes, |key| map.get(key))
        }
    }
}

fn looked_up<'a>(
    start: Instant,
    made: f64,
    keys: &[String],
    bytes: u64,
    get: impl Fn(&str) -> Option<&'a str>,
) -> Outcome {
    let first = keys.first().and_then(|key| get(key)).ok_or("a key is missing")?;
    let open_us = us_since(start) - made;
    let clock = Instant::now();
    let mut sum = 0;
    for key in keys {
        sum += get(key).map_or(0, |value| value.len() as u64);
    }
    let find_ns = us_since(clock) * 1e3 / keys.len() as f64;
    if first.len() as u64 != bytes || sum != bytes * keys.len() as u64 {
        return Err("a value is wrong".into());
    }
    print(&[("open_us", open_us), ("find_ns", find_ns)]);
    Ok(())
}
