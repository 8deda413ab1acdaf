//! Runs a command to its end on behalf of this process: forwards signals and ensures that the
//! command does not outlive the process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that a terminal sends to both processes. The command decides how to react.
const OF_THE_TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Signals sent to this process and forwarded to the command.
const FORWARDED: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Process id of the command that receives forwarded signals, or 0.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Runs a command to its end and returns its exit status. Until then, this process forwards
/// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 and ignores SIGINT and SIGQUIT, so the command handles keys
/// such as Ctrl+C. If this process is killed, the command is killed too. Use it in programs that do
/// nothing else in the meantime: from the main thread, one command at a time.
///
/// # Errors
/// Fails if the command cannot be started or waited for. If it cannot be started, all signal
/// handling is restored.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let this = std::process::id() as libc::pid_t;
    let terminal: Vec<SignalOverride> =
        OF_THE_TERMINAL.iter().map(|signal| SignalOverride::new(*signal, libc::SIG_IGN)).collect();
    let before: Vec<_> = terminal.iter().map(|handled| (handled.signal, handled.before)).collect();
    // Blocked until the command runs.
    let blocked = BlockedSignals::new(&FORWARDED);
    let mask = blocked.before;
    let prepare = move || {
        // SAFETY: the signal set came from the kernel; the command gets it back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
        for (signal, action) in &before {
            // SAFETY: the action came from the kernel; the command gets it back.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
        // SAFETY: the calls take no pointers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            if libc::getppid() != this {
                libc::raise(libc::SIGKILL);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(prepare) };
    let mut child = command.spawn()?;
    COMMAND.store(child.id() as i32, Ordering::Relaxed);
    let handler = forward as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t;
    let forwarded: Vec<SignalOverride> =
        FORWARDED.iter().map(|signal| SignalOverride::new(*signal, handler)).collect();
    drop(blocked);
    let ended = wait_without_reaping(child.id());
    // Clear the id before it can be reused.
    COMMAND.store(0, Ordering::Relaxed);
    let ended = ended.and_then(|()| child.wait());
    drop((forwarded, terminal));
    ended
}

/// Waits until a child has ended, without reaping it, so its process id stays reserved.
fn wait_without_reaping(child: u32) -> io::Result<()> {
    // SAFETY: `siginfo_t` is plain data, and zeros are a valid value.
    let mut how: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the structure lives through the call.
        if unsafe { libc::waitid(libc::P_PID, child, &mut how, libc::WEXITED | libc::WNOWAIT) } == 0
        {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

extern "C" fn forward(signal: libc::c_int) {
    let command = COMMAND.load(Ordering::Relaxed);
    if command > 0 {
        // SAFETY: the call takes no pointers. The process is an unreaped child, so its id has not
        // been reused.
        unsafe { libc::kill(command, signal) };
    }
}

/// Temporary handler for a signal. Dropping it restores the previous action.
struct SignalOverride {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl SignalOverride {
    fn new(signal: libc::c_int, handler: libc::sighandler_t) -> SignalOverride {
        // SAFETY: `sigaction` is plain data, and zeros are a valid value.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: both structures live through the call; the handler is async-signal-safe.
        unsafe { libc::sigaction(signal, &action, &mut before) };
        SignalOverride { signal, before }
    }
}

impl Drop for SignalOverride {
    fn drop(&mut self) {
        // SAFETY: the action came from the kernel.
        unsafe { libc::sigaction(self.signal, &self.before, std::ptr::null_mut()) };
    }
}

/// Signals blocked in this thread. Dropping it restores the previous mask.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new(signals: &[libc::c_int]) -> BlockedSignals {
        // SAFETY: signal sets are plain data, and all pointers are to local variables.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            signals.iter().for_each(|signal| {
                libc::sigaddset(&mut set, *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            BlockedSignals { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the signal set came from the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
