//! Runs a program and holds it before one of its system calls.

use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use crate::common::Ran;

/// SIGALRM kills the program after this many seconds.
const SECONDS_MAX: u32 = 60;
/// Status from `waitpid` for a stop at a system call.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// A program that has ended.
pub struct Held {
    pub ran: Ran,
    /// False if the program ended before the call.
    pub was_held: bool,
    /// The call before which it was held.
    pub call: String,
}

/// Returns true if this process may trace its children.
pub fn can_hold() -> bool {
    let mut child = match traced(Command::new("true")).spawn() {
        Ok(child) => child,
        Err(_) => return false,
    };
    let stopped = wait(child.id() as i32).is_some_and(|status| status.stopped_signal().is_some());
    let _ = child.kill();
    let _ = child.wait();
    stopped
}

/// Runs a program, and calls `replace` while it is held before its system call of this number.
/// Calls are counted from the first one that has a path with `path` in it, which skips those of the
/// loader.
pub fn hold_at(command: Command, path: &str, number: usize, replace: impl FnOnce()) -> Held {
    let mut command = traced(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = child.id() as i32;
    let memory = std::fs::File::open(format!("/proc/{process}/mem")).unwrap();
    wait(process).unwrap();
    request(libc::PTRACE_SETOPTIONS, process, libc::PTRACE_O_TRACESYSGOOD as usize).unwrap();
    let (mut replace, mut counted, mut call) = (Some(replace), None, String::new());
    let mut signal = 0;
    let status = loop {
        let until = if replace.is_some() { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        request(until, process, signal as usize).unwrap();
        let status = wait(process).unwrap();
        match status.stopped_signal() {
            None => break status,
            Some(AT_CALL) => signal = 0,
            Some(other) => {
                signal = other;
                continue;
            }
        }
        let Some(entered) = Entered::of(process) else { continue };
        let begins = counted.is_some() || entered.path(&memory).is_some_and(|p| p.contains(path));
        if begins {
            let at = counted.map_or(0, |counted| counted + 1);
            counted = Some(at);
            if at == number {
                call = format!("{} {:?}", entered.number, entered.path(&memory));
                if let Some(replace) = replace.take() {
                    replace();
                }
            }
        }
    };
    Held { ran: ended(child, status), was_held: replace.is_none(), call }
}

fn traced(mut command: Command) -> Command {
    let trace = || {
        // SAFETY: both calls are allowed between fork and exec, and change only this process.
        unsafe {
            libc::alarm(SECONDS_MAX);
            match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    };
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(trace) };
    command
}

/// Waits for the next stop or the end. SIGALRM kills a program that hangs.
fn wait(process: i32) -> Option<ExitStatus> {
    let mut status = 0;
    // SAFETY: the status is a local variable.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    (waited == process).then(|| ExitStatus::from_raw(status))
}

fn request(what: libc::c_uint, process: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of these requests accesses memory of this process.
    match unsafe { libc::ptrace(what, process, 0usize, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A system call that is about to be made.
struct Entered {
    number: u64,
    arguments: [u64; 6],
}

impl Entered {
    /// Returns the call before which the process is stopped, or `None` if it is stopped after one.
    fn of(process: i32) -> Option<Entered> {
        const ENTRY: u8 = 1;
        // A head of 24 bytes, then the number and the arguments.
        let mut info = [0u64; 11];
        let (size, to) = (size_of_val(&info), info.as_mut_ptr());
        // SAFETY: the kernel writes no more than `size` bytes.
        let got = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, process, size, to) };
        if got < 80 || info[0].to_ne_bytes()[0] != ENTRY {
            return None;
        }
        let arguments = info[4..10].try_into().ok()?;
        Some(Entered { number: info[3], arguments })
    }

    /// Returns the path argument of the call.
    fn path(&self, memory: &std::fs::File) -> Option<String> {
        let calls = [libc::SYS_openat, libc::SYS_newfstatat, libc::SYS_statx];
        if !calls.contains(&(self.number as i64)) {
            return None;
        }
        let mut bytes = [0; 256];
        let got = memory.read_at(&mut bytes, self.arguments[1]).ok()?;
        let end = bytes[..got].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Reads the output of a program that has ended.
fn ended(mut child: std::process::Child, status: ExitStatus) -> Ran {
    let text = |pipe: Option<&mut dyn io::Read>| {
        let mut text = Vec::new();
        pipe.unwrap().read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    };
    let out = text(child.stdout.as_mut().map(|pipe| pipe as &mut dyn io::Read));
    let err = text(child.stderr.as_mut().map(|pipe| pipe as &mut dyn io::Read));
    let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or_default());
    Ran { code, out, err }
}
