//! Objects that processes of one machine share by number or name. The test creates each one
//! outside, accessible to everyone, and a program behind the wall tries to reach it.
//!
//! Add each new kind to [`THINGS`] and to the table in `docs/compartments.md`, section 3.

use std::ffi::CString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use evermap_compartment::wall::Enclosure;

use super::{landlock_has_scopes, text, this_program};

/// Environment variable that passes the numbers and names to the program behind the wall.
const OUTSIDE: &str = "EVERMAP_OUTSIDE";

/// Numbers and names of the shared objects.
struct Outside {
    shared_memory: i32,
    semaphores: i32,
    messages: i32,
    process: i32,
    /// Name of the message queue, the file in `/dev/shm`, and the abstract socket.
    name: String,
}

impl Outside {
    fn create() -> Outside {
        let all = 0o666 | libc::IPC_CREAT;
        let process = std::process::id() as i32;
        let name = format!("evermap-wall-{process}");
        // SAFETY: creates new kernel objects. The only pointer is to the name, which lives through
        // the call.
        unsafe {
            let queue = CString::new(name.clone()).unwrap();
            let (opening, mode) = (libc::O_CREAT | libc::O_RDWR, 0o666);
            let opened = libc::syscall(libc::SYS_mq_open, queue.as_ptr(), opening, mode, 0usize);
            assert!(opened >= 0, "{}", std::io::Error::last_os_error());
            let outside = Outside {
                shared_memory: libc::shmget(libc::IPC_PRIVATE, 4096, all),
                semaphores: libc::semget(libc::IPC_PRIVATE, 1, all),
                messages: libc::msgget(libc::IPC_PRIVATE, all),
                process,
                name,
            };
            assert!(outside.shared_memory >= 0 && outside.semaphores >= 0 && outside.messages >= 0);
            std::fs::write(outside.shared_file(), "outside").unwrap();
            outside
        }
    }

    fn shared_file(&self) -> String {
        format!("/dev/shm/{}", self.name)
    }

    fn to_line(&self) -> String {
        let Outside { shared_memory, semaphores, messages, process, name } = self;
        format!("{shared_memory} {semaphores} {messages} {process} {name}")
    }

    fn from_environment() -> Outside {
        let line = std::env::var(OUTSIDE).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        let (shared_memory, semaphores, messages) = (number(0), number(1), number(2));
        Outside {
            shared_memory,
            semaphores,
            messages,
            process: number(3),
            name: words[4].to_string(),
        }
    }
}

/// Guard that removes the shared objects when dropped.
struct Removed<'a>(&'a Outside);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let outside = self.0;
        let queue = CString::new(outside.name.clone()).unwrap();
        // SAFETY: this process created the objects, and no other uses them.
        unsafe {
            libc::shmctl(outside.shared_memory, libc::IPC_RMID, std::ptr::null_mut());
            libc::semctl(outside.semaphores, 0, libc::IPC_RMID);
            libc::msgctl(outside.messages, libc::IPC_RMID, std::ptr::null_mut());
            libc::syscall(libc::SYS_mq_unlink, queue.as_ptr());
        }
        let _ = std::fs::remove_file(outside.shared_file());
    }
}

/// Name of a shared object, the call that reaches it, and the errors that count as refusal.
type Thing = (&'static str, fn(&Outside) -> i64, &'static [i32]);

macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: pointers are null or to values that live through the call. Each argument is as
        // wide as a register.
        unsafe { libc::syscall(libc::$number $(, $argument as libc::c_long)*) }
    };
}

const BY_THE_FILTER: &[i32] = &[libc::EPERM];
const BY_LANDLOCK: &[i32] = &[libc::EACCES, libc::EPERM];

const THINGS: &[Thing] = &[
    ("shared memory of System V", |o| call!(SYS_shmat, o.shared_memory, 0, 0), BY_THE_FILTER),
    (
        "semaphores of System V",
        |o| call!(SYS_semctl, o.semaphores, 0, libc::GETVAL, 0),
        BY_THE_FILTER,
    ),
    ("messages of System V", |o| call!(SYS_msgctl, o.messages, libc::IPC_RMID, 0), BY_THE_FILTER),
    (
        "message queues of POSIX",
        |o| {
            let name = CString::new(o.name.clone()).unwrap();
            call!(SYS_mq_open, name.as_ptr(), libc::O_RDWR, 0, 0)
        },
        BY_THE_FILTER,
    ),
    (
        "shared memory of POSIX",
        |o| {
            let name = CString::new(o.shared_file()).unwrap();
            call!(SYS_openat, libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY, 0)
        },
        BY_LANDLOCK,
    ),
    (
        "memory of a process, as a file",
        |o| {
            let name = CString::new(format!("/proc/{}/mem", o.process)).unwrap();
            call!(SYS_openat, libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY, 0)
        },
        BY_LANDLOCK,
    ),
    (
        "memory of a process, by a call",
        |o| call!(SYS_process_vm_readv, o.process, 0, 0, 0, 0, 0),
        BY_THE_FILTER,
    ),
    (
        "a process, as its debugger",
        |o| call!(SYS_ptrace, libc::PTRACE_SEIZE, o.process, 0, 0),
        BY_THE_FILTER,
    ),
    (
        "locks of a process",
        |o| {
            let (mut head, mut length) = (0usize, 0usize);
            call!(SYS_get_robust_list, o.process, &raw mut head, &raw mut length)
        },
        BY_LANDLOCK,
    ),
    (
        "descriptors of a process",
        |o| {
            let process = call!(SYS_pidfd_open, o.process, 0);
            call!(SYS_pidfd_getfd, process, 0, 0)
        },
        BY_THE_FILTER,
    ),
    ("the user's keys", |_| call!(SYS_keyctl, 0, -4, 0), BY_THE_FILTER),
    ("files of others, as they change", |_| call!(SYS_inotify_init1, 0), BY_THE_FILTER),
    ("faults, by a device", |_| device(c"/dev/userfaultfd"), &[libc::EACCES, libc::ENOENT]),
    ("the kernel's log", |_| device(c"/dev/kmsg"), &[libc::EACCES, libc::EPERM, libc::ENOENT]),
    (
        "abstract and other sockets",
        |_| call!(SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
        BY_THE_FILTER,
    ),
];

/// Refused only if Landlock has scopes.
const SIGNALS: &[Thing] = &[
    ("a process, by a signal", |o| call!(SYS_kill, o.process, 0), BY_THE_FILTER),
    (
        "a process, by a signal to its descriptor",
        |o| {
            let process = call!(SYS_pidfd_open, o.process, 0);
            call!(SYS_pidfd_send_signal, process, 0, 0, 0)
        },
        BY_THE_FILTER,
    ),
];

fn device(path: &std::ffi::CStr) -> i64 {
    call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY, 0)
}

/// Returns a command that runs a part behind the wall.
fn enclosed(part: &str, enclosure: Enclosure, outside: &Outside) -> Command {
    let mut command = this_program(&["--part", part, "/"]);
    command.env(OUTSIDE, outside.to_line()).current_dir("/");
    enclosure.read(std::env::current_exe().unwrap()).enclose(&mut command).unwrap();
    command
}

pub fn shared() {
    let outside = Outside::create();
    let removed = Removed(&outside);
    // These calls work without the wall.
    assert_ne!(THINGS[0].1(&outside), -1);
    assert_eq!(THINGS[1].1(&outside), 0);
    assert_ne!(THINGS[3].1(&outside), -1);
    assert_ne!(THINGS[4].1(&outside), -1);
    let output = enclosed("shared", Enclosure::new(), &outside).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // SAFETY: queries the queue created above.
    let there = unsafe {
        let mut state: libc::msqid_ds = std::mem::zeroed();
        libc::msgctl(outside.messages, libc::IPC_STAT, &raw mut state)
    };
    assert_eq!(there, 0, "the queue still exists");
    drop(removed);
}

pub fn shared_inside(_: &Path) {
    let outside = Outside::from_environment();
    let signals = if landlock_has_scopes() { SIGNALS } else { &[] };
    for (thing, reach, refused) in THINGS.iter().chain(signals) {
        let result = reach(&outside);
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        assert!(result == -1 && refused.contains(&error), "{thing}: {result}, error {error}");
    }
}

pub fn abstract_socket() {
    if !landlock_has_scopes() {
        println!("SKIPPED: abstract sockets: Landlock of this kernel has no scopes");
        return;
    }
    let outside = Outside::create();
    let _removed = Removed(&outside);
    let address = SocketAddr::from_abstract_name(&outside.name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
    let mut command = enclosed("abstract-socket", Enclosure::new().network(), &outside);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

pub fn abstract_socket_inside(_: &Path) {
    let address = SocketAddr::from_abstract_name(Outside::from_environment().name).unwrap();
    let refused = std::os::unix::net::UnixStream::connect_addr(&address).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
}
