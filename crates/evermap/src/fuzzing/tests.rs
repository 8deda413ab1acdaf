//! Runs the targets over the corpus in `fuzz/corpus`, the files in `tests/format`, and mutations of
//! both.

use std::path::{Path, PathBuf};

use super::{FORGE_HEADERS, FORGE_RECORDS, FORGE_SUPERBLOCK, allocator, log, superblock};
use crate::format::PAGE_BYTES;

/// Number of mutations per target.
const MUTATIONS: usize = 20_000;
/// All forge flags.
const FORGE_ALL: u8 = FORGE_SUPERBLOCK | FORGE_HEADERS | FORGE_RECORDS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % limit.max(1)
    }
}

/// Files of a released version, complete up to their last non-zero byte.
fn real_files() -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let store = root().join("tests/format/v1");
    let trimmed = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        bytes.truncate(end.next_multiple_of(512).max(PAGE_BYTES as usize));
        bytes
    };
    let mut objects: Vec<PathBuf> = std::fs::read_dir(store.join("objects"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none())
        .collect();
    objects.push(store.join("catalog"));
    objects.sort();
    let log_of = |path: &PathBuf| {
        let log = path.with_extension("log");
        log.exists().then(|| trimmed(&log))
    };
    objects.iter().map(|path| (trimmed(path), log_of(path))).collect()
}

/// Inputs made from real files, as starting points for a fuzzer.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (object, log) in real_files() {
        let page = &object[..PAGE_BYTES as usize];
        for flags in [0, FORGE_SUPERBLOCK, FORGE_ALL] {
            let mut input = match target {
                "superblock" => [&[flags, 24], page].concat(),
                "log" => [&[flags], &page[56..72]].concat(),
                _ => [&[4, 0, 1, 2, 0, 200, 0, 1, 16, 0, 2, 16, 0, 0xff], &object[4096..]].concat(),
            };
            match (target, &log) {
                ("superblock", Some(log)) => {
                    input[2 + 248] = 1;
                    input.extend_from_slice(log);
                }
                ("log", Some(log)) => input.extend_from_slice(log),
                ("log", None) => continue,
                _ => input.truncate(10_000),
            }
            seeds.push(input);
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut inputs = seeds(target);
    let Ok(entries) = std::fs::read_dir(root().join("../../fuzz/corpus").join(target)) else {
        return inputs;
    };
    let mut kept: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    kept.sort();
    inputs.extend(kept.iter().map(|path| std::fs::read(path).unwrap()));
    inputs
}

/// Makes a few changes: bits, bytes, numbers at the ends of their range, a part removed or
/// duplicated.
fn mutate(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.below(4) + 1 {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => {
                let values = [0u64, 1, u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 45, 4096];
                let value = values[random.below(values.len())].to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.below(600)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            _ => {
                let end = (at + random.below(600)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                drop(bytes.splice(to..to, part));
            }
        }
    }
    bytes
}

fn replay(target: &str, run: fn(&[u8])) {
    let inputs = corpus(target);
    assert!(!inputs.is_empty());
    for (number, input) in inputs.iter().enumerate() {
        let result = std::panic::catch_unwind(|| run(input));
        assert!(result.is_ok(), "{target}: input {number} of the corpus");
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..MUTATIONS {
        let input = mutate(&inputs[number % inputs.len()], &mut random);
        if std::panic::catch_unwind(|| run(&input)).is_err() {
            let place = std::env::temp_dir().join(format!("evermap-{target}-{number}"));
            let _ = std::fs::write(&place, &input);
            panic!("{target}: mutation {number}, kept as {}", place.display());
        }
    }
}

#[test]
fn any_superblock_is_parsed_or_refused() {
    replay("superblock", superblock);
}

#[test]
fn any_log_is_parsed_or_refused() {
    replay("log", log);
}

#[test]
fn an_allocator_over_any_metadata_returns_backed_blocks_or_errors() {
    replay("allocator", allocator);
}

/// Real files must be accepted: a target that refuses everything would prove nothing.
#[test]
fn files_of_a_released_version_are_parsed_completely() {
    use super::{Identity, KIND_CATALOG, KIND_OBJECT, Log, LogSource, MemoryFile, read_superblock};
    let mut logs = 0;
    for (object, log) in real_files() {
        let file = MemoryFile::new("object", &object, 1 << 30);
        let bytes = log.clone().unwrap_or_default();
        let log_file: std::sync::Arc<dyn crate::storage::File> = MemoryFile::new("log", &bytes, 0);
        let kinds = [KIND_OBJECT, KIND_CATALOG].map(|kind| {
            let identity = Identity { store_uuid: None, object_uuid: None, kind };
            read_superblock(&*file, LogSource::File(&log_file), &identity).is_ok()
        });
        assert!(kinds[0] != kinds[1]);
        if log.is_some() {
            let uuid = object[56..72].try_into().unwrap();
            assert!(Log::open(log_file, uuid, 0).is_ok());
            logs += 1;
        }
    }
    assert!(logs > 0);
}

/// With `EVERMAP_WRITE_SEEDS=1`, writes the seeds to the directory in which `cargo fuzz` finds
/// them.
#[test]
fn seeds_are_written_on_request() {
    if std::env::var_os("EVERMAP_WRITE_SEEDS").is_none() {
        return;
    }
    for target in ["superblock", "log", "allocator"] {
        let directory = root().join("../../fuzz/corpus").join(target);
        std::fs::create_dir_all(&directory).unwrap();
        for (number, seed) in seeds(target).iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}
