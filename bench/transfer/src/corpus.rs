//! Data to copy: ten files of different kinds and sizes, the same in every run, and a tree of small
//! files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::random::Random;
use harness::units::{GIB, KIB, MIB, size};

const SEED: u64 = 7;
const WORDS: &[&str] = &[
    "transfer", "the", "of", "kernel", "page", "a", "pipe", "and", "splice", "to", "file", "in",
    "copy", "buffer", "is", "cache", "byte", "with", "reader", "on", "writer", "for", "disk",
    "socket", "by",
];
/// Offset of the only data in a sparse file. In a quick run, the middle of the file.
const SPARSE_DATA_AT: u64 = MIB;
const SPARSE_DATA_BYTES: usize = 4096;
/// Divisor of the sizes in quick runs. No file is smaller than a page.
const QUICK_PART: u64 = 64;

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Words.
    Text,
    /// Similar lines.
    Log,
    /// Incompressible data, like pictures and archives.
    Random,
    /// Pages of 8 KiB whose second half is zero, as in databases.
    Records,
    /// Four kilobytes of data between holes.
    Sparse,
}

/// A file to be copied.
#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub bytes: u64,
    /// Size in a full run, by which `--sizes` selects the file. Part of its name.
    pub nominal_bytes: u64,
}

/// The ten files, from the smallest to the largest. Three sizes are not multiples of a page.
const ALL: [(Kind, u64); 10] = [
    (Kind::Text, 4 * KIB),
    (Kind::Text, 61 * KIB + 7),
    (Kind::Log, 256 * KIB),
    (Kind::Random, MIB),
    (Kind::Log, 4 * MIB + 4095),
    (Kind::Random, 16 * MIB + 1),
    (Kind::Sparse, 64 * MIB),
    (Kind::Random, 64 * MIB),
    (Kind::Records, 256 * MIB),
    (Kind::Random, GIB),
];

impl Entry {
    pub fn new(kind: Kind, nominal_bytes: u64, quick: bool) -> Entry {
        let bytes = match quick {
            true => (nominal_bytes / QUICK_PART).max(4 * KIB.min(nominal_bytes)),
            false => nominal_bytes,
        };
        Entry { kind, bytes, nominal_bytes }
    }

    /// Name in tables.
    pub fn name(&self) -> String {
        let kind = format!("{:?}", self.kind).to_ascii_lowercase();
        format!("{kind} {}", size(self.bytes))
    }

    pub fn file_name(&self) -> String {
        format!("{:?}-{}", self.kind, self.nominal_bytes).to_ascii_lowercase()
    }

    /// Makes the file in this folder, and syncs it to the disk.
    pub fn make(&self, folder: &Path) -> Outcome<PathBuf> {
        let path = folder.join(self.file_name());
        let file = File::create(&path)?;
        if self.kind == Kind::Sparse {
            file.set_len(self.bytes)?;
            let data_at = SPARSE_DATA_AT.min(self.bytes / 2) / 4096 * 4096;
            file.write_all_at(&[b'x'; SPARSE_DATA_BYTES], data_at)?;
        } else {
            let mut random = Random::new(SEED ^ self.nominal_bytes);
            let mut output = BufWriter::with_capacity(1 << 20, &file);
            let mut left = self.bytes;
            let mut block = Vec::new();
            while left > 0 {
                block.clear();
                fill(self.kind, &mut random, &mut block);
                let part = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                output.write_all(&block[..part])?;
                left -= part as u64;
            }
            output.flush()?;
        }
        file.sync_all()?;
        Ok(path)
    }
}

/// Appends 5 to about 8 KiB of this kind.
fn fill(kind: Kind, random: &mut Random, block: &mut Vec<u8>) {
    match kind {
        Kind::Random => {
            for _ in 0..1024 {
                block.extend_from_slice(&random.number().to_le_bytes());
            }
        }
        Kind::Text => {
            while block.len() < 8192 {
                let word = WORDS[random.below(WORDS.len() as u64) as usize];
                block.extend_from_slice(word.as_bytes());
                block.push(if random.below(12) == 0 { b'\n' } else { b' ' });
            }
        }
        Kind::Log => {
            for _ in 0..100 {
                let (user, ms) = (random.below(500), random.below(10_000));
                let line = format!(
                    "2026-11-23T00:00:{:02} user={user} path=/index.html ms={ms}\n",
                    ms % 60
                );
                block.extend_from_slice(line.as_bytes());
            }
        }
        Kind::Records | Kind::Sparse => {
            for _ in 0..512 {
                block.extend_from_slice(&random.number().to_le_bytes());
            }
            block.resize(8192, 0);
        }
    }
}

/// Returns the files of a run: all, or only these sizes.
pub fn entries(quick: bool, sizes_bytes: &[u64]) -> Vec<Entry> {
    let wanted = |bytes: u64| {
        // A file may be up to 6 % smaller or 1.5 % larger than a wanted size: 4 MiB also selects
        // the file of 4 MiB and some bytes.
        sizes_bytes.is_empty()
            || sizes_bytes.iter().any(|size| bytes / 64 * 63 <= *size && *size <= bytes / 16 * 17)
    };
    let all = ALL.into_iter().filter(|(_, bytes)| wanted(*bytes));
    all.map(|(kind, bytes)| Entry::new(kind, bytes, quick)).collect()
}

/// Makes a tree of this many files of 4 KiB, a hundred in each folder.
pub fn tree(folder: &Path, files: u64) -> Outcome {
    let mut random = Random::new(SEED);
    let mut block = Vec::new();
    for number in 0..files {
        let below = folder.join(format!("{:03}", number / 100));
        if number % 100 == 0 {
            std::fs::create_dir_all(&below)?;
        }
        block.clear();
        fill(Kind::Text, &mut random, &mut block);
        block.truncate(4096);
        std::fs::write(below.join(format!("{:02}", number % 100)), &block)?;
    }
    rustix::fs::sync();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_ten_files_cover_all_kinds_and_quick_ones_are_small() {
        let (all, quick) = (entries(false, &[]), entries(true, &[]));
        assert_eq!((all.len(), quick.len()), (10, 10));
        assert_eq!(all.iter().map(|entry| entry.bytes).max(), Some(GIB));
        assert!(quick.iter().all(|entry| entry.bytes >= 4096 && entry.bytes <= 16 * MIB));
        for kind in [Kind::Text, Kind::Log, Kind::Random, Kind::Records, Kind::Sparse] {
            assert!(all.iter().any(|entry| entry.kind == kind));
        }
    }

    #[test]
    fn files_are_selected_by_rough_size() {
        let names: Vec<String> =
            entries(false, &[4 * KIB, 4 * MIB, 64 * MIB]).iter().map(Entry::name).collect();
        assert_eq!(names, ["text 4 KiB", "log 4.00 MiB", "sparse 64 MiB", "random 64 MiB"]);
    }

    #[test]
    fn a_file_is_the_same_in_every_run_and_has_its_size() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Kind::Text, Kind::Log, Kind::Random, Kind::Records] {
            let entry = Entry::new(kind, 61 * KIB + 7, false);
            let bytes = std::fs::read(entry.make(folder.path()).unwrap()).unwrap();
            assert_eq!(bytes.len() as u64, entry.bytes);
            assert_eq!(bytes, std::fs::read(entry.make(folder.path()).unwrap()).unwrap());
        }
    }

    #[test]
    fn a_sparse_file_has_four_kilobytes_of_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = Entry::new(Kind::Sparse, 64 * MIB, false).make(folder.path()).unwrap();
        let about = std::fs::metadata(path).unwrap();
        assert_eq!((about.len(), about.blocks() * 512), (64 * MIB, 4096));
    }

    #[test]
    fn a_tree_has_the_requested_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        tree(folder.path(), 250).unwrap();
        let seen = crate::check::copy(folder.path(), folder.path()).unwrap();
        assert_eq!(seen.files, 250);
    }
}
