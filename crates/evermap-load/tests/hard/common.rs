//! Files to load, programs that load them, and a word to whoever watches where something cannot be tried.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use evermap_load::{Error, Image, Loader, Method};

pub const WINDOW: usize = 2 << 20;
/// The user that may do nothing.
pub const NOBODY: u32 = 65534;
/// How long an act may take before it counts as hanging.
const HANGING: Duration = Duration::from_secs(240);

/// Says why something is not tried here.
pub fn skip(why: impl std::fmt::Display) {
    eprintln!("skipped: {why}");
}

/// A file, and what is in it.
pub struct File {
    _directory: tempfile::TempDir,
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// What files have in these tests: no page of it is like another near it, or zero.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

/// Whether every user may look for what is in here.
fn is_open_to_all(directory: &Path) -> bool {
    directory.ancestors().all(|directory| {
        std::fs::metadata(directory).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    })
}

/// Where files are made: beside the build, on a disk. What root builds in its home nobody else can reach.
fn ground() -> PathBuf {
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let elsewhere = std::env::temp_dir();
    let is_closed = is_root() && !is_open_to_all(beside) && is_open_to_all(&elsewhere);
    if is_closed { elsewhere } else { beside.into() }
}

/// A directory that every user may look into.
pub fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(ground()).unwrap();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    directory
}

/// A file of so many bytes that is not in the cache.
pub fn cold_file(bytes: usize) -> File {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(bytes);
    std::fs::write(&path, &bytes).unwrap();
    let file = File { _directory: directory, path, bytes };
    chill(&file.path);
    file
}

/// Has nothing of a file in the cache.
pub fn chill(path: &Path) {
    let opened = std::fs::File::open(path).unwrap();
    opened.sync_all().unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A load that may map: nobody changes files of these tests that are mapped.
pub fn loader(path: &Path) -> Loader {
    // SAFETY: as the test that maps it leaves it alone.
    unsafe { Loader::open(path).may_map() }
}

/// By one method; none, with a word to whoever watches, where the kernel or the file system has it not.
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

/// On demand, if that can be.
pub fn on_demand(path: &Path) -> Option<Image> {
    by(&Loader::open(path), Method::TakeoverOnDemand)
}

/// Has every method that can load it, and compares.
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

/// One of this program's ignored tests, as a program of its own.
pub struct Act {
    command: Command,
    name: String,
    /// This program, where the user who runs it can reach it.
    _copy: Option<tempfile::TempDir>,
}

/// `name` is the path of the test, as the harness has it.
pub fn act(name: &str) -> Act {
    let command = playing(&std::env::current_exe().unwrap(), name);
    Act { command, name: name.into(), _copy: None }
}

fn playing(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("EVERMAP_ACT", name).stdout(Stdio::null());
    command
}

/// Whether this is an act that was started, and not just a run of all ignored tests.
pub fn is_started() -> bool {
    std::env::var_os("EVERMAP_ACT").is_some()
}

pub fn argument(name: &str) -> PathBuf {
    std::env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("{name} is given"))
}

impl Act {
    pub fn with(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Act {
        self.command.env(name, value);
        self
    }

    pub fn by_nobody(mut self) -> Act {
        let program = std::env::current_exe().unwrap();
        if !is_open_to_all(program.parent().unwrap()) {
            let copy = directory();
            let copied = copy.path().join("program");
            crate::programs::copy_program(&program, &copied);
            let mut command = playing(&copied, &self.name);
            for (name, value) in self.command.get_envs() {
                command.env(name, value.unwrap_or_default());
            }
            (self.command, self._copy) = (command, Some(copy));
        }
        self.command.uid(NOBODY).gid(NOBODY);
        self
    }

    /// Runs it; one that hangs is killed, and that is an error.
    pub fn run(mut self) -> ExitStatus {
        let mut child = self.command.spawn().unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if begun.elapsed() > HANGING {
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

    /// It ends by a signal.
    pub fn ends_by(self, signal: i32) {
        let name = self.name.clone();
        let status = self.run();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
    }
}

/// What a forked child that looks at memory says of it: it may not allocate, lock or panic. The status of its end.
pub fn forked(look: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child looks at memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = if look() { 0 } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for that child alone.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// Mounts of its own for this thread, and what it starts: they are gone with it, whatever happens.
pub fn has_own_mounts() -> bool {
    // SAFETY: changes what this thread sees of mounts, and nothing else.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    if !unshared {
        skip("mounts take root");
        return false;
    }
    use rustix::mount::{MountPropagationFlags, mount_change};
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    true
}

/// Whether these are all of the pattern's bytes, without memory for another copy of them.
pub fn is_pattern(bytes: &[u8]) -> bool {
    bytes.chunks(8).zip(1u64..).all(|(word, at)| {
        word == &at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..word.len()]
    })
}
