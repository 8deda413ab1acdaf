//! Running a command to its end in this process's place: it gets the signals that this one gets, and
//! does not outlive it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// What a terminal sends to both: the command decides what becomes of it.
const OF_THE_TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// What is sent to this process and meant for the command.
const HANDED_ON: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The process that signals are handed on to; 0 for none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Runs a command to its end, and gives how it ended. Meanwhile this process hands SIGTERM, SIGHUP,
/// SIGUSR1 and SIGUSR2 on to it, and leaves it to the command what keys like Ctrl+C do; when this process
/// is killed, so is the command. For a program that does nothing else meanwhile: from its main
/// thread, one command at a time.
///
/// # Errors
/// What starting or waiting for it gives; a command that cannot be started leaves nothing behind.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let this = std::process::id() as libc::pid_t;
    let terminal: Vec<Handled> =
        OF_THE_TERMINAL.iter().map(|signal| Handled::new(*signal, libc::SIG_IGN)).collect();
    let before: Vec<_> = terminal.iter().map(|handled| (handled.signal, handled.before)).collect();
    // Held back until there is somebody to hand them on to.
    let held_back = HeldBack::new(&HANDED_ON);
    let mask = held_back.before;
    let prepare = move || {
        // SAFETY: a set that the kernel gave us, put back for the command.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
        for (signal, action) in &before {
            // SAFETY: an action that the kernel gave us, put back.
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
    let handler = hand_on as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t;
    let handed_on: Vec<Handled> =
        HANDED_ON.iter().map(|signal| Handled::new(*signal, handler)).collect();
    drop(held_back);
    let ended = wait_without_reaping(child.id());
    // Before its number can be another's.
    COMMAND.store(0, Ordering::Relaxed);
    let ended = ended.and_then(|()| child.wait());
    drop((handed_on, terminal));
    ended
}

/// Waits until a child has ended, and leaves its number taken.
fn wait_without_reaping(child: u32) -> io::Result<()> {
    // SAFETY: `siginfo_t` is plain data, for which zeros are a value.
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

extern "C" fn hand_on(signal: libc::c_int) {
    let command = COMMAND.load(Ordering::Relaxed);
    if command > 0 {
        // SAFETY: the call takes no pointers. The process is a child that nobody has waited for, so its
        // number is nobody else's.
        unsafe { libc::kill(command, signal) };
    }
}

/// A signal that is handled otherwise for a while.
struct Handled {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl Handled {
    fn new(signal: libc::c_int, handler: libc::sighandler_t) -> Handled {
        // SAFETY: `sigaction` is plain data, for which zeros are a value.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: both structures live through the call; the handler does what a handler may.
        unsafe { libc::sigaction(signal, &action, &mut before) };
        Handled { signal, before }
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: an action that the kernel gave us, put back.
        unsafe { libc::sigaction(self.signal, &self.before, std::ptr::null_mut()) };
    }
}

/// Signals of this thread that wait until this is dropped.
struct HeldBack {
    before: libc::sigset_t,
}

impl HeldBack {
    fn new(signals: &[libc::c_int]) -> HeldBack {
        // SAFETY: signal sets are plain data, and all pointers are to local ones.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            signals.iter().for_each(|signal| {
                libc::sigaddset(&mut set, *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            HeldBack { before }
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: a set that the kernel gave us, put back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
