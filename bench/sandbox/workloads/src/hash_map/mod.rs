//! hash-map: builds a map of many small entries and stores it; another run loads it and looks keys
//! up.
//!
//! Keys are 20 bytes, values eight-byte numbers. The file has a header of eight bytes, the number
//! of entries, and then each entry's key and value, in the table's order. That is the least to
//! write and read: no lengths, no names, and only a check for the file's size.

mod heap;

use std::io::{BufRead, Read, Write};

use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::hash::{Key, Map, Xxh3};
use crate::options::Options;
use crate::random::{Random, mix};
use crate::report::{Report, Watch, make_durable};

/// Name of the file.
pub const NAME: &str = "hash-map";

const ENTRY_BYTES: usize = 28;

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "prepare") => store_file(options, report),
        ("file", "run") => look_up_after_loading(options, report),
        ("heap", "prepare") => heap::prepare(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`prepare` and `run` of `file` and `heap`")),
    }
}

fn store_file(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let mut map: Map<Key<20>, u64> = Map::default();
    for number in 0..options.entries {
        map.insert(Key(key(number)), value(number));
    }
    report.time("build", watch.lap())?;

    let path = options.file(NAME);
    let mut writer = blocks::writer(&path, options.block_bytes)?;
    writer.write_all(&(map.len() as u64).to_le_bytes()).of(&path)?;
    for (key, value) in &map {
        let mut entry = [0; ENTRY_BYTES];
        entry[..20].copy_from_slice(&key.0);
        entry[20..].copy_from_slice(&value.to_le_bytes());
        writer.write_all(&entry).of(&path)?;
    }
    let file = blocks::finish(writer, &path)?;
    report.time("store", watch.lap())?;
    report.time("time", watch.total())?;
    make_durable(options, &file, &path, &mut watch, report)?;
    report.count("entries", map.len() as u64, "entries")
}

fn look_up_after_loading(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let map = load(options)?;
    report.time("load", watch.lap())?;
    let sum = look_up(options, map.len() as u64, |key| map.get(&Key(*key)).copied());
    report.time("lookups", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("entries", map.len() as u64, "entries")?;
    report.checksum(sum)
}

fn load(options: &Options) -> Outcome<Map<Key<20>, u64>> {
    let path = options.file(NAME);
    let mut reader = blocks::reader(&path, options.block_bytes)?;
    let mut word = [0; 8];
    reader.read_exact(&mut word).of(&path)?;
    let entries = u64::from_le_bytes(word);
    let bytes = reader.get_ref().metadata().of(&path)?.len();
    if entries.checked_mul(ENTRY_BYTES as u64).and_then(|all| all.checked_add(8)) != Some(bytes) {
        let problem =
            format!("has {bytes} bytes, which is not {entries} entries; run `prepare` again");
        return Err(damaged(&path, problem));
    }
    let mut map = Map::with_capacity_and_hasher(entries as usize, Xxh3);
    let (mut key, mut entry) = ([0; 20], [0; ENTRY_BYTES]);
    for _ in 0..entries {
        reader.read_exact(&mut entry).of(&path)?;
        key.copy_from_slice(&entry[..20]);
        word.copy_from_slice(&entry[20..]);
        map.insert(Key(key), u64::from_le_bytes(word));
    }
    debug_assert!(reader.fill_buf().is_ok_and(|rest| rest.is_empty()));
    Ok(map)
}

/// Looks keys up in random order. Returns the sum of the values, or 0 if a key is missing.
pub fn look_up(options: &Options, entries: u64, get: impl Fn(&[u8; 20]) -> Option<u64>) -> u64 {
    let mut random = Random::new(options.seed);
    let mut sum = 0_u64;
    for _ in 0..options.lookups {
        let number = random.number_below(entries.max(1));
        match get(&key(number)) {
            Some(value) => sum = sum.wrapping_add(value),
            None => return 0,
        }
    }
    sum
}

/// Returns the key of an entry, similar to names in programs.
pub fn key(number: u64) -> [u8; 20] {
    let mut key = *b"key:0123456789abcdef";
    let mixed = mix(number);
    for (place, digit) in key[4..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(mixed >> (4 * place)) as usize & 15];
    }
    key
}

/// Returns the value of an entry.
pub fn value(number: u64) -> u64 {
    mix(!number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(data: &std::path::Path) -> Options {
        Options { data: data.into(), entries: 1000, lookups: 3000, ..Options::default() }
    }

    fn report() -> Report {
        Report::new(String::new(), std::io::sink())
    }

    #[test]
    fn a_stored_map_is_loaded_with_any_block_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path());
        for block_bytes in [1, 512, 65536] {
            options.block_bytes = block_bytes;
            store_file(&options, &mut report()).unwrap();
            options.block_bytes = 100;
            let map = load(&options).unwrap();
            assert!((0..1000).all(|number| map[&Key(key(number))] == value(number)));
            assert_eq!(map.len(), 1000);
        }
    }

    #[test]
    fn a_truncated_file_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        store_file(&options, &mut report()).unwrap();
        let path = options.file(NAME);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(500).unwrap();
        let error = load(&options).unwrap_err().to_string();
        assert!(error.contains("hash-map") && error.contains("1000 entries"), "{error}");
    }

    #[test]
    fn a_missing_key_shows_in_the_sum() {
        let options = Options { lookups: 100, ..Options::default() };
        assert_ne!(look_up(&options, 10, |_| Some(1)), 0);
        assert_eq!(look_up(&options, 10, |_| None), 0);
    }
}
