//! Shared parts of the integration tests: a store in a temporary directory, and a child process
//! that runs one function of the same test program.

#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test program uses its part")]

pub mod mount;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use evermap::Store;

/// A store that is deleted at the end of the test.
pub struct TestStore {
    pub store: Store,
    pub directory: tempfile::TempDir,
}

impl TestStore {
    pub fn new() -> TestStore {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        TestStore { store, directory }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Like `new`, but in memory where possible: for tests of many files, which take milliseconds
    /// each on some disks.
    pub fn in_memory() -> TestStore {
        let shared = Path::new("/dev/shm");
        let directory = tempfile::tempdir_in(shared).or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        TestStore { store, directory }
    }

    /// Closes the store in this process and returns its directory.
    pub fn close(self) -> (PathBuf, tempfile::TempDir) {
        (self.path(), self.directory)
    }
}

impl std::ops::Deref for TestStore {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Returns the only file of the only object in the store.
pub fn object_file(store: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(store.join("objects"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_none())
        .collect();
    assert_eq!(files.len(), 1, "one object expected in {}", store.display());
    files.remove(0)
}

/// Returns the names in a directory, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Calculates CRC32C bit by bit: a second implementation of the format's definition.
pub fn crc32c_of(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// The stored `log_required` of an object that needs its log.
pub const LOG_REQUIRED: [u8; 4] = 0x96a5_c35a_u32.to_le_bytes();

/// Turns a log into one that a power failure left: its progress since the last reset did not reach
/// the disk, and the machine has rebooted.
pub fn lose_progress(log: &mut [u8]) {
    for at in [512, 4096 + 512] {
        if log[at..at + 4] == *b"evPR" {
            log[at + 16..at + 32].fill(0xb0);
            log[at + 32..at + 48].fill(0);
            log[at + 4..at + 8].fill(0);
            let checksum = crc32c_of(&log[at..at + 64]);
            log[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Copies a store's directory, which may be in use.
pub fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_store(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Starts this test program to run only the ignored test `name`, which reads `arguments` with
/// [`argument`].
pub fn child(name: &str, arguments: &[&str]) -> Child {
    child_command(name, arguments).spawn().unwrap()
}

/// Like `child`, but does not start the process.
pub fn child_command(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    for (i, argument) in arguments.iter().enumerate() {
        command.env(format!("EVERMAP_TEST_ARGUMENT_{i}"), argument);
    }
    // Print panics briefly and at once, instead of resolving symbols for a second.
    command.env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// Returns an argument of [`child`], or `None` if the test was started by hand.
pub fn argument(index: usize) -> Option<String> {
    std::env::var(format!("EVERMAP_TEST_ARGUMENT_{index}")).ok()
}

/// xorshift64*: reproducible random numbers.
pub struct Random(pub u64);

impl Random {
    /// Seeds the generator from EVERMAP_SEED or the clock, and prints the seed.
    pub fn from_environment(what: &str) -> Random {
        let given = std::env::var("EVERMAP_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = given.unwrap_or(now.as_nanos() as u64);
        println!("{what}: EVERMAP_SEED={seed}");
        Random::new(seed)
    }

    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// Returns true once in `n` calls.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.number() as u8);
    }
}
