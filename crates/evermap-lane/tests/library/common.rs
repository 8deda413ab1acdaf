//! Helpers: private state directories, child processes, and messages about skipped tests.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evermap_lane::guard::StateDirectory;
use evermap_lane::{Lane, Policy};

pub const NOBODY: u32 = 65_534;
/// Time after which a child counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

pub fn skip(why: impl std::fmt::Display) {
    eprintln!("skipped: {why}");
}

/// State directory that no other test uses.
pub struct State {
    _place: tempfile::TempDir,
    pub directory: StateDirectory,
}

pub fn state() -> State {
    let place = tempfile::tempdir().unwrap();
    let directory = StateDirectory::at(place.path().join("state")).unwrap();
    State { _place: place, directory }
}

pub fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

pub fn enter(text: &str, state: &State) -> Lane {
    Lane::enter_in(&policy(text), &state.directory).unwrap()
}

/// Parts of the policy that the lane could not apply, as text.
pub fn missing(lane: &Lane) -> String {
    lane.not_applied().map(|note| format!("{}: {}\n", note.what, note.why)).collect()
}

/// An ignored test of this program, run as a child.
pub struct TestChild {
    command: Command,
    name: String,
    _copy: Option<tempfile::TempDir>,
}

pub fn child(name: &str) -> TestChild {
    let command = of_program(&std::env::current_exe().unwrap(), name);
    TestChild { command, name: name.into(), _copy: None }
}

fn of_program(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("EVERMAP_ACT", name).stdout(Stdio::null());
    command
}

/// Returns true in a child started by a test, and false in a run of all ignored tests.
pub fn is_started() -> bool {
    std::env::var_os("EVERMAP_ACT").is_some()
}

pub fn argument(name: &str) -> PathBuf {
    std::env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("{name} is not set"))
}

impl TestChild {
    pub fn with(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it as a user without rights, with a copy of this program that the user can execute.
    pub fn by_nobody(mut self) -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        let copy = folder.path().join("child");
        crate::programs::copy_program(&std::env::current_exe().unwrap(), &copy);
        let mut command = of_program(&copy, &self.name);
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env_remove("XDG_RUNTIME_DIR").uid(NOBODY).gid(NOBODY).current_dir("/");
        (self.command, self._copy) = (command, Some(folder));
        self
    }

    pub fn succeeds(mut self) {
        let mut child = ChildGuard(self.command.spawn().unwrap());
        let until = Instant::now() + HANG_TIMEOUT;
        let status = loop {
            if let Some(status) = child.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "{} hangs", self.name);
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{}: {status}", self.name);
    }
}

/// Child that is killed if the test fails.
pub struct ChildGuard(pub Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Field of this thread's status.
pub fn of_thread(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_else(|| panic!("no {field}")).trim().to_string()
}

/// Policy and real-time priority: fields 41 and 40 of `stat`.
pub fn scheduling(stat: &str) -> (u32, u32) {
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    (fields[38].parse().unwrap(), fields[37].parse().unwrap())
}

pub fn own_scheduling() -> (u32, u32) {
    scheduling(&std::fs::read_to_string("/proc/thread-self/stat").unwrap())
}

/// Everything that a lane changes about a thread.
pub fn own_state() -> (String, (u32, u32), u64) {
    let slack_ns = rustix::thread::current_timer_slack().unwrap();
    (of_thread("Cpus_allowed_list:"), own_scheduling(), slack_ns)
}

/// Runs the test in a new thread, since a lane changes its thread.
pub fn in_new_thread<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(test).join().unwrap())
}

pub fn work(time: Duration) {
    let clock = rustix::time::ClockId::ThreadCPUTime;
    let now = || {
        let now = rustix::time::clock_gettime(clock);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let until = now() + time;
    while now() < until {
        std::hint::spin_loop();
    }
}

pub fn make_file(folder: &Path, bytes: usize) -> (PathBuf, Vec<u8>) {
    let path = folder.join("clip");
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let contents: Vec<u8> = (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect();
    std::fs::write(&path, &contents).unwrap();
    (path, contents)
}
