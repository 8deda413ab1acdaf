//! Fixture: a file, a tier and a journal, and helper processes that move the file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::{Pid, Signal, kill_process};

use crate::tier::switch::{Journal, Keep, back, commit, place};
use crate::tier::watch::{Step, Watch};
use crate::tier::{Recovered, Result, recover};

/// Contents longer than a copy buffer, with a hole.
pub(super) fn contents() -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes: Vec<u8> = (0..40_000).flat_map(word).collect();
    bytes.extend(vec![0; 1 << 20]);
    bytes.extend((40_000..80_000).flat_map(word));
    bytes
}

pub(super) struct Fixture {
    root: tempfile::TempDir,
}

/// Attributes that a move preserves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    xattr: Option<Vec<u8>>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_string() + "/../../target")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let fixture = Self { root };
        fs::create_dir(fixture.path("files")).unwrap();
        fs::create_dir(fixture.path("tier")).unwrap();
        fixture.write(&contents());
        fs::set_permissions(fixture.file(), fs::Permissions::from_mode(0o640)).unwrap();
        let file = fs::File::open(fixture.file()).unwrap();
        let then = std::time::SystemTime::UNIX_EPOCH
            + std::time::Duration::from_nanos(1_234_567_890_123_456_789);
        file.set_modified(then).unwrap();
        // Not every file system has extended attributes.
        let _ = setxattr(fixture.file(), "user.kept", b"value", XattrFlags::empty());
        fixture
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap().join(name)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.path("files/clip.mkv")
    }

    pub(super) fn kept(&self) -> PathBuf {
        self.path("files/.clip.mkv.lane-orig")
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        fs::write(self.file(), bytes).unwrap();
    }

    pub(super) fn read(&self) -> Vec<u8> {
        fs::read(self.file()).unwrap()
    }

    pub(super) fn attributes(&self) -> Attributes {
        let found = fs::metadata(self.file()).unwrap();
        let mut xattr = [0; 64];
        let length = getxattr(self.file(), "user.kept", &mut xattr).ok();
        Attributes {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            modified: (found.mtime(), found.mtime_nsec()),
            xattr: length.map(|length| xattr[..length].to_vec()),
        }
    }

    pub(super) fn journal(&self) -> Journal {
        Journal::at(&self.path("journal")).unwrap()
    }

    pub(super) fn place(&self) -> Result<PathBuf> {
        self.place_watched(&Watch::default())
    }

    pub(super) fn place_watched(&self, watch: &Watch) -> Result<PathBuf> {
        place(&self.journal(), &self.path("tier"), &self.file(), watch)
    }

    pub(super) fn back(&self, keep: Keep) -> Result<()> {
        back(&self.journal(), &self.file(), keep, &Watch::default())
    }

    pub(super) fn commit(&self) -> Result<()> {
        commit(&self.journal(), &self.file(), &Watch::default())
    }

    pub(super) fn recover(&self) -> Recovered {
        recover(&self.journal()).unwrap()
    }

    /// Returns all paths with their contents or link targets.
    pub(super) fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        let mut due = vec![self.path("")];
        while let Some(directory) = due.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let found = path.symlink_metadata().unwrap();
                let bytes = if found.is_dir() {
                    due.push(path.clone());
                    b"directory".to_vec()
                } else if found.is_symlink() {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                } else {
                    fs::read(&path).unwrap()
                };
                all.insert(path, bytes);
            }
        }
        all
    }

    /// Checks that the file is in place and nothing else remains.
    pub(super) fn assert_unchanged(&self) {
        let names = self.everything();
        let names: Vec<_> = names
            .keys()
            .map(|path| path.strip_prefix(self.path("")).unwrap().to_str().unwrap())
            .filter(|name| !name.starts_with("tier/evermap-lane-") || name.matches('/').count() > 1)
            .collect();
        assert_eq!(names, ["files", "files/clip.mkv", "journal", "tier"]);
        assert!(!self.file().is_symlink());
    }

    /// Starts a helper process that runs `verb` and sends itself `signal` at `step`.
    pub(super) fn spawn_helper(&self, verb: &str, step: Step, signal: Signal) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "tier::switch::tests::fixture::helper_that_moves_a_file",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("EVERMAP_ACT", verb)
            .env("EVERMAP_STEP", format!("{step:?}"))
            .env("EVERMAP_SIGNAL", signal.as_raw().to_string())
            .env("EVERMAP_PLACE", self.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

#[test]
#[ignore = "a helper process that other tests start"]
fn helper_that_moves_a_file() {
    let Some(verb) = std::env::var_os("EVERMAP_ACT") else { return };
    let variable = |name| std::env::var(name).unwrap();
    let root = PathBuf::from(variable("EVERMAP_PLACE"));
    let (step, signal) = (variable("EVERMAP_STEP"), variable("EVERMAP_SIGNAL"));
    let signal: i32 = signal.parse().unwrap();
    let (newer, file) = (root.join("newer"), root.join("files/clip.mkv"));
    let replaced = file.clone();
    let watch = Watch::default().on_step(move |_, now| {
        if now == Step::Closed {
            // If a test has prepared another file, it takes the path at the last moment.
            let _ = fs::rename(&newer, &replaced);
        }
        if format!("{now:?}") == step {
            // The signal goes to this thread: a signal to the process could stop the other threads
            // first.
            // SAFETY: `raise` accesses no memory of this program, and no handler is installed.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
    });
    let journal = Journal::at(&root.join("journal")).unwrap();
    let done = match verb.to_str().unwrap() {
        "place" => place(&journal, &root.join("tier"), &file, &watch).map(drop),
        "back" => back(&journal, &file, Keep::Neither, &watch),
        _ => commit(&journal, &file, &watch),
    };
    // 17 means that the operation failed with an error and was undone.
    std::process::exit(if done.is_ok() { 0 } else { 17 });
}

/// Sends a signal to this child only.
pub(super) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns the sorted names in a directory.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
