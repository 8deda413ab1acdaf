//! Helpers: files with known contents, test directories, and runs of one engine with checks.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter, Span, Work};
use tempfile::TempDir;

/// Returns sizes so small that a few hundred kilobytes need many steps.
pub fn small() -> Tuning {
    Tuning {
        chunk_bytes: 16 << 10,
        window_bytes: 64 << 10,
        mapped_write_bytes: 100_000,
        direct_window_bytes: 64 << 10,
        pipe_bytes: 64 << 10,
        lanes: 1,
        ring_depth: 4,
        ring_chunk_bytes: 32 << 10,
        ..Tuning::default()
    }
}

/// A directory on some file system.
pub struct TestDir {
    pub name: &'static str,
    // Drop order: files before their file system.
    directory: TempDir,
    _mount: Option<Mount>,
}

impl TestDir {
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Creates a file with these contents, open for reading and writing.
    pub fn file(&self, name: &str, contents: &[u8]) -> (File, PathBuf) {
        let path = self.path().join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.write_all_at(contents, 0).unwrap();
        (file, path)
    }
}

/// Returns a directory on the disk of the build.
pub fn disk() -> TestDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    TestDir { name: "disk", directory, _mount: None }
}

/// Returns a directory on tmpfs.
pub fn memory() -> Option<TestDir> {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => Some(TestDir { name: "tmpfs", directory, _mount: None }),
        Err(error) => skip(&format!("/dev/shm: {error}")),
    }
}

/// Returns directories on the file systems that always exist.
pub fn test_dirs() -> Vec<TestDir> {
    [Some(disk()), memory()].into_iter().flatten().collect()
}

/// Creates a file system with space for `mebibytes`: a `tmpfs`, or one in an image file. Returns
/// `None` with a message if rights or programs are missing.
pub fn mounted(file_system: &'static str, mebibytes: u64) -> Option<TestDir> {
    let mount = Mount::new(file_system, mebibytes)?;
    let directory = tempfile::tempdir_in(mount.point.path()).unwrap();
    Some(TestDir { name: file_system, directory, _mount: Some(mount) })
}

/// Reports a skipped test on stderr.
pub fn skip<T>(why: &str) -> Option<T> {
    eprintln!("SKIPPED: {why}");
    None
}

/// A mounted file system. Unmounted and its loop device freed on drop, even after a panic.
pub struct Mount {
    point: TempDir,
    _image: Option<tempfile::NamedTempFile>,
}

impl Mount {
    fn new(file_system: &str, mebibytes: u64) -> Option<Mount> {
        let point = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = point.path().to_str().unwrap();
        if file_system == "tmpfs" {
            let size = format!("size={mebibytes}m");
            return match run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at]) {
                true => Some(Mount { point, _image: None }),
                false => skip("mounting a tmpfs needs root"),
            };
        }
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(mebibytes << 20).unwrap();
        let path = image.path().to_str().unwrap();
        if !run(&format!("mkfs.{file_system}"), &["-q", path]) {
            return skip(&format!("no mkfs.{file_system}"));
        }
        match run("mount", &["-o", "loop", path, at]) {
            true => Some(Mount { point, _image: Some(image) }),
            false => skip(&format!(
                "mounting {file_system} needs root, a loop device and the kernel module"
            )),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A panicking thread may still have a file open. A detached mount ends when that is closed.
        if !run("umount", &[self.point.path().to_str().unwrap()]) {
            run("umount", &["-l", self.point.path().to_str().unwrap()]);
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns bytes in which neighbouring pages differ.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut made = Vec::with_capacity(bytes + 8);
    while made.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.extend_from_slice(&state.to_le_bytes());
    }
    made.truncate(bytes);
    made
}

/// Moves `work` with one engine, `step_bytes` at a time, and drains it. Returns `None` if the
/// engine refuses these ends.
pub fn attempt(
    kind: EngineKind,
    tuning: &Tuning,
    ends: &Ends<'_>,
    work: &mut Work,
    meter: &Meter,
    step_bytes: u64,
) -> Option<Result<(), Stop>> {
    let mut engine = engines::make(kind, tuning);
    assert_eq!(engine.kind(), kind);
    engine.probe(ends).ok()?;
    let mut outcome = Ok(());
    while outcome.is_ok() && !work.is_done() {
        let before = work.clone();
        outcome = engine.step(ends, work, meter, step_bytes);
        assert!(outcome.is_err() || *work != before, "{kind}: a successful step moved nothing");
    }
    let drained = engine.drain(ends, work, meter);
    Some(outcome.and(drained))
}

/// Like [`attempt`], but completes the work with `read-write` if the engine refuses.
pub fn finish(
    kind: EngineKind,
    tuning: &Tuning,
    ends: &Ends<'_>,
    work: &mut Work,
    step_bytes: u64,
) {
    use EngineKind::*;
    // Other engines may refuse when they meet extents, blocks or holes. These know all requirements
    // beforehand.
    let knows = [Splice, DualPipe, DualPipeInterleaved, Sendfile, Uring, UringSplice, UringDirect];
    let may_refuse = !knows.contains(&kind) || work.bytes().is_none();
    let meter = Meter::default();
    match attempt(kind, tuning, ends, work, &meter, step_bytes) {
        Some(Err(Stop::Refused(why))) if !may_refuse => panic!("{kind}: {why}"),
        Some(Err(Stop::Refused(_))) | None => {
            attempt(ReadWrite, tuning, ends, work, &meter, u64::MAX).unwrap().unwrap();
        }
        Some(outcome) => outcome.unwrap_or_else(|stop| panic!("{kind}: {stop:?}")),
    }
    assert!(work.is_done());
}

/// Returns work for a whole file.
pub fn whole(bytes: usize) -> Work {
    Work::new([Span::new(0, bytes as u64)])
}

/// Reads a file.
pub fn contents(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Reports the first difference instead of printing both contents.
#[track_caller]
pub fn assert_same(what: &str, found: &[u8], expected: &[u8]) {
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        panic!("{what}: differs at byte {at} of {} and {}", found.len(), expected.len());
    }
    assert_eq!(found.len(), expected.len(), "{what}: length");
}

/// Checks that all bytes not in `work` are in the target.
#[track_caller]
pub fn assert_exact(what: &str, work: &Work, target: &Path, source: &[u8]) {
    let found = contents(target);
    let mut at = 0;
    for remaining in work.spans().iter().chain([&Span::new(source.len() as u64, u64::MAX)]) {
        let (begin, end) = (at as usize, remaining.begin as usize);
        assert!(
            found.len() >= end || begin == end,
            "{what}: {end} bytes counted as arrived, {} found",
            found.len()
        );
        if begin < end {
            assert_same(what, &found[begin..end], &source[begin..end]);
        }
        at = remaining.end.min(source.len() as u64);
    }
}

/// Returns true if this process may use io_uring.
pub fn has_rings() -> bool {
    let dir = disk();
    let ((source, from), (target, to)) = (dir.file("source", b"x"), dir.file("target", b""));
    let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
    let probed = engines::make(EngineKind::Uring, &small()).probe(&ends);
    probed.map_err(|why| skip::<()>(&why.0)).is_ok()
}
