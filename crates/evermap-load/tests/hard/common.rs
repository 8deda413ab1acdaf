//! Test files, child tests, and notices of skipped tests.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use evermap_load::{Error, Image, Loader, Method};

pub const WINDOW: usize = 2 << 20;
/// User without any rights.
pub const NOBODY: u32 = 65534;
/// Time after which a child test counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(240);

/// Prints why a test is skipped.
pub fn skip(why: impl std::fmt::Display) {
    eprintln!("skipped: {why}");
}

/// A file and its contents.
pub struct File {
    _directory: tempfile::TempDir,
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// Returns the contents of test files: no page is zero or equal to another page near it.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

/// Returns true if every user can open files in a directory.
fn is_open_to_all(directory: &Path) -> bool {
    directory.ancestors().all(|directory| {
        std::fs::metadata(directory).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    })
}

/// Returns the base directory for test files: next to the build, on a disk. If root built it in its
/// home, other users cannot reach it, so use another.
fn base_directory() -> PathBuf {
    let near_build = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let elsewhere = std::env::temp_dir();
    let is_closed = is_root() && !is_open_to_all(near_build) && is_open_to_all(&elsewhere);
    if is_closed { elsewhere } else { near_build.into() }
}

/// Creates a directory that every user can read.
pub fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(base_directory()).unwrap();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    directory
}

/// Creates a file of `bytes` bytes that is not cached.
pub fn cold_file(bytes: usize) -> File {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(bytes);
    std::fs::write(&path, &bytes).unwrap();
    let file = File { _directory: directory, path, bytes };
    evict(&file.path);
    file
}

/// Evicts a file from the cache.
pub fn evict(path: &Path) {
    let opened = std::fs::File::open(path).unwrap();
    opened.sync_all().unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Returns a loader that may map: mapped test files do not change.
pub fn loader(path: &Path) -> Loader {
    // SAFETY: the tests do not change files that they map.
    unsafe { Loader::open(path).may_map() }
}

/// Loads by one method. Prints a notice and returns `None` if the kernel or file system does not
/// support it.
pub fn by(loader: &Loader, method: Method) -> Option<Image> {
    match loader.clone().method(method).load() {
        Ok(image) => Some(image),
        Err(Error::Refused { why, .. }) => {
            skip(format_args!("{method}: {why}"));
            None
        }
        Err(error) => panic!("{method}: {error}"),
    }
}

/// Loads on demand, if possible.
pub fn on_demand(path: &Path) -> Option<Image> {
    by(&Loader::open(path), Method::TakeoverOnDemand)
}

/// Loads by every possible method and compares the bytes.
pub fn every_method_gives(path: &Path, expected: &[u8]) {
    for method in Method::ALL {
        let Some(image) = by(&loader(path), method) else { continue };
        assert!(*image == *expected, "{method}, {} bytes", expected.len());
        image.wait().unwrap();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// One of this program's ignored tests, to run as a separate process.
pub struct ChildTest {
    command: Command,
    name: String,
    /// Path of this program that its user can reach.
    _copy: Option<tempfile::TempDir>,
}

/// Prepares a child test. `name` is its path in the test harness.
pub fn child_test(name: &str) -> ChildTest {
    let command = test_command(&std::env::current_exe().unwrap(), name);
    ChildTest { command, name: name.into(), _copy: None }
}

fn test_command(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("EVERMAP_ACT", name).stdout(Stdio::null());
    command
}

/// Returns true in a child test, false in an ordinary run of ignored tests.
pub fn is_started() -> bool {
    std::env::var_os("EVERMAP_ACT").is_some()
}

pub fn argument(name: &str) -> PathBuf {
    std::env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("{name} is given"))
}

impl ChildTest {
    pub fn with(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> ChildTest {
        self.command.env(name, value);
        self
    }

    pub fn run_as_nobody(mut self) -> ChildTest {
        let program = std::env::current_exe().unwrap();
        if !is_open_to_all(program.parent().unwrap()) {
            let copy = directory();
            let copied = copy.path().join("program");
            crate::programs::copy_program(&program, &copied);
            let mut command = test_command(&copied, &self.name);
            for (name, value) in self.command.get_envs() {
                command.env(name, value.unwrap_or_default());
            }
            (self.command, self._copy) = (command, Some(copy));
        }
        self.command.uid(NOBODY).gid(NOBODY);
        self
    }

    /// Runs the child test. Kills it if it hangs, which is an error.
    pub fn run(mut self) -> ExitStatus {
        let mut child = self.command.spawn().unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if begun.elapsed() > HANG_TIMEOUT {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} hangs", self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn succeeds(self) {
        let name = self.name.clone();
        let status = self.run();
        assert!(status.success(), "{name}: {status}");
    }

    /// Runs the child test and checks that it dies of a signal.
    pub fn ends_by(self, signal: i32) {
        let name = self.name.clone();
        let status = self.run();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
    }
}

/// Forks a child that evaluates `look`, and returns its wait status. The child must not allocate,
/// lock or panic.
pub fn forked(check: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child reads memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = if check() { 0 } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits only for that child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// Gives this thread, and processes it starts, their own mounts, which end with it.
pub fn has_own_mounts() -> bool {
    // SAFETY: changes only this thread's view of mounts.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    if !unshared {
        skip("mounting requires root");
        return false;
    }
    use rustix::mount::{MountPropagationFlags, mount_change};
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    true
}

/// Returns true if the bytes are the test pattern, without another copy in memory.
pub fn is_pattern(bytes: &[u8]) -> bool {
    bytes.chunks(8).zip(1u64..).all(|(word, at)| {
        word == &at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..word.len()]
    })
}
