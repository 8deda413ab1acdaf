//! Processes of these tests: three kinds of forks, their exit status, and shared counters.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::child_command;

/// Longest wait in these tests.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Number of children of each kind.
pub fn count() -> u64 {
    std::env::var("EVERMAP_FORKS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// Kind of fork.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// `fork`, which runs the handlers.
    Fork,
    /// The bare system call, which runs no handlers.
    Clone,
}

/// Runs `act` in a child, which exits with 0 if `act` returns true. Returns the child's id.
pub fn fork(way: Way, act: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `act` and ends without destructors. The other thread of this process
    // belongs to the test runner, which waits and holds no lock.
    let child = unsafe {
        match way {
            Way::Fork => libc::fork(),
            Way::Clone => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
        }
    };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let code = i32::from(!act());
        // SAFETY: ends only the child.
        unsafe { libc::_exit(code) };
    }
    child
}

/// Kills a child by a signal if it waits for a thread that does not exist in it.
pub fn end_if_it_hangs() {
    const SECONDS: libc::c_uint = 20;
    // SAFETY: sets a timer whose signal ends this process.
    unsafe { libc::alarm(SECONDS) };
}

/// Waits for a child, which must exit with 0.
pub fn succeeds(child: i32) {
    assert_eq!(end_of(child), 0, "the child was killed, or its memory changed");
}

/// Returns the status from `waitpid`.
pub fn end_of(child: i32) -> i32 {
    let (mut status, since) = (0, Instant::now());
    loop {
        // SAFETY: waits for a child of this process.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == child {
            return status;
        }
        if since.elapsed() > LIMIT {
            // SAFETY: the child belongs to this process and was not waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("a child did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until `done` returns true. Returns false after the limit.
pub fn wait_for(mut done: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while !done() {
        if since.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Numbers in a file that several processes have mapped.
#[derive(Clone, Copy)]
pub struct Numbers(&'static [AtomicU64; 512]);

impl Numbers {
    pub fn new(path: &Path) -> Numbers {
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(4096).unwrap();
        let (rights, descriptor) =
            (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&file));
        // SAFETY: a new mapping of a page, which stays until the process ends.
        unsafe {
            let page =
                libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, descriptor, 0);
            assert_ne!(page, libc::MAP_FAILED);
            Numbers(&*page.cast())
        }
    }

    pub fn get(self, at: usize) -> u64 {
        self.0[at].load(Ordering::SeqCst)
    }

    pub fn set(self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::SeqCst);
    }

    /// Waits until a number reaches `value`.
    pub fn reaches(self, at: usize, value: u64) -> bool {
        wait_for(|| self.get(at) >= value)
    }
}

/// Another process of these tests, killed when this is dropped.
pub struct Started(pub Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts another process of these tests with default signal handling.
pub fn start(name: &str, arguments: &[&str]) -> Started {
    Started(with_default_signals(&mut child_command(name, arguments)).spawn().unwrap())
}

fn with_default_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE] {
            // SAFETY: the default disposition calls no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: `signal` may be called between fork and exec.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, reset) }
}

/// Runs another process of these tests until it succeeds. Returns its output.
pub fn run(name: &str, arguments: &[&str]) -> String {
    let mut process = start(name, arguments);
    let mut output = process.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output, &mut text).unwrap();
        text
    });
    let ended = wait_for(|| process.0.try_wait().unwrap().is_some());
    if !ended {
        process.0.kill().unwrap();
    }
    let text = reader.join().unwrap();
    let status = process.0.wait().unwrap();
    assert!(ended && status.success(), "{name}: {status}\n{text}");
    text
}
