//! Contents for the files of a cache: existing files, sorted by kind.

use std::path::{Path, PathBuf};

use crate::error::{OfFile, Outcome};
use crate::random::{Random, mix};

/// Largest size of a pool, so that large folders are not read completely.
const POOL_BYTES_MAX: usize = 96 << 20;
/// Smallest useful size of a pool.
const POOL_BYTES_MIN: usize = 64 << 10;
/// Larger files are truncated to this size.
const FILE_BYTES_MAX: usize = 4 << 20;
const SYNTHETIC_BYTES: usize = 1 << 20;

/// Kind of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages, scripts and styles.
    Text,
    /// Compressed data: images, fonts and films.
    Compressed,
    /// Modules and tables.
    Binary,
}

/// Contents of each kind.
pub struct Pools {
    pools: [Pool; 3],
}

#[derive(Default)]
struct Pool {
    files: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pools {
    /// Collects the files in these folders, and generates contents for kinds that have too few.
    pub fn collect(sources: &[PathBuf], seed: u64) -> Outcome<Pools> {
        let mut pools = Pools { pools: Default::default() };
        let mut paths = Vec::new();
        for source in sources.iter().filter(|source| source.is_dir()) {
            find(source, source, &mut paths)?;
        }
        // Uses a fixed pseudo-random order: neighbouring files are similar, and not all are taken.
        paths.sort_by_cached_key(|(name, path)| (name_hash(name, seed), path.clone()));
        for (_, path) in paths {
            // Skips unreadable files.
            let Ok(mut contents) = std::fs::read(path) else { continue };
            contents.truncate(FILE_BYTES_MAX);
            pools.pools[kind(&contents) as usize].add(contents);
        }
        for kind in [Kind::Text, Kind::Compressed, Kind::Binary] {
            if pools.bytes(kind) < POOL_BYTES_MIN {
                pools.pools[kind as usize].add(synthetic(kind, seed));
            }
        }
        Ok(pools)
    }

    /// Returns the bytes of a kind.
    pub fn bytes(&self, kind: Kind) -> usize {
        self.pools[kind as usize].bytes
    }

    /// Returns contents of this kind and size: consecutive files, the last one truncated.
    pub fn take(&self, kind: Kind, bytes: usize, random: &mut Random) -> Vec<u8> {
        let files = &self.pools[kind as usize].files;
        let mut contents = Vec::with_capacity(bytes);
        while contents.len() < bytes {
            let file = &files[random.below(files.len())];
            contents.extend(&file[..file.len().min(bytes - contents.len())]);
        }
        contents
    }
}

impl Pool {
    fn add(&mut self, contents: Vec<u8>) {
        if !contents.is_empty() && self.bytes + contents.len() <= POOL_BYTES_MAX {
            self.bytes += contents.len();
            self.files.push(contents);
        }
    }
}

/// Finds the files below a folder, with their relative names. Does not follow links.
fn find(source: &Path, folder: &Path, paths: &mut Vec<(PathBuf, PathBuf)>) -> Outcome<()> {
    for entry in std::fs::read_dir(folder).of(folder)? {
        let entry = entry.of(folder)?;
        let path = entry.path();
        let kind = entry.file_type().of(&path)?;
        if kind.is_dir() {
            find(source, &path, paths)?;
        } else if kind.is_file() {
            paths.push((path.strip_prefix(source).unwrap_or(&path).to_path_buf(), path));
        }
    }
    Ok(())
}

fn name_hash(name: &Path, seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name.as_os_str().as_encoded_bytes(), seed)
}

/// Detects the kind by the contents, because names are unreliable.
fn kind(contents: &[u8]) -> Kind {
    const PACKED: [&[u8]; 12] = [
        b"\x1F\x8B",
        b"\x89PNG",
        b"\xFF\xD8\xFF",
        b"GIF8",
        b"RIFF",
        b"PK\x03\x04",
        b"\xFD7zXZ",
        b"BZh",
        b"\x28\xB5\x2F\xFD",
        b"%PDF",
        b"wOF2",
        b"OggS",
    ];
    if PACKED.iter().any(|magic| contents.starts_with(magic)) {
        Kind::Compressed
    } else if contents.iter().take(1024).any(|byte| *byte == 0) {
        Kind::Binary
    } else {
        Kind::Text
    }
}

fn synthetic(kind: Kind, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut contents = Vec::with_capacity(SYNTHETIC_BYTES);
    while contents.len() < SYNTHETIC_BYTES {
        match kind {
            Kind::Text => {
                contents.extend(format!("word{} ", mix(random.below(500) as u64) % 9999).bytes())
            }
            Kind::Compressed => contents.extend(random.number().to_le_bytes()),
            Kind::Binary => contents.extend((random.below(4000) as u64 * 16).to_le_bytes()),
        }
    }
    contents
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_kind_is_detected_from_the_contents() {
        assert_eq!(kind(b"\x1F\x8B\x08\0\0"), Kind::Compressed);
        assert_eq!(kind(b"\x7FELF\x02\x01\x01\0"), Kind::Binary);
        assert_eq!(kind(b"<!doctype html>"), Kind::Text);
    }

    #[test]
    fn taken_contents_have_the_size_and_come_from_files_of_the_kind() {
        let folder = tempfile::tempdir().unwrap();
        let text = "a page\n".repeat(20_000);
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/page"), &text).unwrap();
        let pools = Pools::collect(&[folder.path().into()], 1).unwrap();
        assert_eq!(pools.bytes(Kind::Text), text.len());
        let taken = pools.take(Kind::Text, 200_000, &mut Random::new(1));
        assert_eq!(taken.len(), 200_000);
        assert!(taken.starts_with(text.as_bytes()));
    }

    #[test]
    fn missing_kinds_are_generated() {
        let pools = Pools::collect(&[PathBuf::from("/nowhere")], 1).unwrap();
        let share = |kind| {
            let contents = pools.take(kind, 1 << 20, &mut Random::new(1));
            let compressed = snap::raw::Encoder::new().compress_vec(&contents).unwrap();
            compressed.len() as f64 / contents.len() as f64
        };
        assert!(share(Kind::Text) < 0.7 && share(Kind::Binary) < 0.7);
        assert!(share(Kind::Compressed) > 0.99);
    }
}
