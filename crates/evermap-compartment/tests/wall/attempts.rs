//! System calls that a wall refuses, made directly so that the kernel answers.

use std::path::Path;

/// Name of a call, and a function that makes it and returns the result.
pub type Attempt = (&'static str, fn() -> i64);

/// `open_tree_attr` of `asm-generic/unistd.h`, which libc does not define everywhere.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

macro_rules! call {
    (SYS_open_tree_attr $(, $argument:expr)*) => {
        // SAFETY: wrong arguments are an error of the call, and none names memory in use.
        unsafe { libc::syscall(SYS_OPEN_TREE_ATTR $(, $argument as libc::c_long)*) }
    };
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: wrong arguments are an error of the call, and none names memory in use. Each
        // argument is as wide as a register, because the upper half of a narrower stack argument is
        // undefined.
        unsafe { libc::syscall(libc::$number $(, $argument as libc::c_long)*) }
    };
}

/// Calls that both walls refuse. Their arguments would succeed without a wall, or fail with an
/// error other than `EPERM`.
pub const DANGEROUS: &[Attempt] = &[
    ("pkey_alloc", || call!(SYS_pkey_alloc, 0, 0)),
    ("pkey_mprotect", || call!(SYS_pkey_mprotect, 0, 0, 0, -1)),
    ("pkey_free", || call!(SYS_pkey_free, 77)),
    ("ptrace", || call!(SYS_ptrace, libc::PTRACE_PEEKDATA, 0, 0, 0)),
    ("process_vm_readv of itself", read_own_memory),
    ("process_vm_writev", || call!(SYS_process_vm_writev, libc::getpid(), 0, 0, 0, 0, 0)),
    ("io_uring_setup", || call!(SYS_io_uring_setup, 1, 0)),
    ("userfaultfd", || call!(SYS_userfaultfd, 1)),
    ("bpf", || call!(SYS_bpf, 99, 0, 0)),
    ("perf_event_open", || call!(SYS_perf_event_open, 0, 0, -1, -1, 0)),
    ("keyctl", || call!(SYS_keyctl, 0, -3)),
    ("add_key", || call!(SYS_add_key, 0, 0, 0, 0, 0)),
    ("mount", || call!(SYS_mount, 0, 0, 0, 0, 0)),
    ("unshare", || call!(SYS_unshare, libc::CLONE_NEWUSER)),
    ("clone into a name space", || {
        call!(SYS_clone, libc::CLONE_NEWUSER | libc::CLONE_FS, 0, 0, 0, 0)
    }),
    ("setns", || call!(SYS_setns, -1, 0)),
    ("open_by_handle_at", || call!(SYS_open_by_handle_at, -1, 0, 0)),
    ("reboot", || call!(SYS_reboot, 0, 0, 0, 0)),
    ("kexec_load", || call!(SYS_kexec_load, 0, 0, 0, -1)),
    ("pidfd_getfd", || call!(SYS_pidfd_getfd, -1, 0, 0)),
    ("limits of another process", || {
        call!(SYS_prlimit64, libc::getppid(), libc::RLIMIT_CORE, 0, 0)
    }),
    // Shared memory, semaphores and queues: unused numbers and names, so without the wall each call
    // fails with another error.
    ("shmget", || call!(SYS_shmget, 0x7765_6d70, 0, 0)),
    ("shmat", || call!(SYS_shmat, -1, 0, 0)),
    ("shmctl", || call!(SYS_shmctl, -1, libc::IPC_STAT, 0)),
    ("shmdt", || call!(SYS_shmdt, 1)),
    ("semget", || call!(SYS_semget, 0x7765_6d70, 0, 0)),
    ("semop", || call!(SYS_semop, -1, 0, 0)),
    ("semtimedop", || call!(SYS_semtimedop, -1, 0, 0, 0)),
    ("semctl", || call!(SYS_semctl, -1, 0, libc::IPC_STAT, 0)),
    ("msgget", || call!(SYS_msgget, 0x7765_6d70, 0)),
    ("msgsnd", || call!(SYS_msgsnd, -1, 0, 0, 0)),
    ("msgrcv", || call!(SYS_msgrcv, -1, 0, 0, 0, libc::IPC_NOWAIT)),
    ("msgctl", || call!(SYS_msgctl, -1, libc::IPC_STAT, 0)),
    ("mq_open", || call!(SYS_mq_open, c"evermap-nothing".as_ptr(), libc::O_RDONLY, 0, 0)),
    ("mq_unlink", || call!(SYS_mq_unlink, c"evermap-nothing".as_ptr())),
    ("mq_timedsend", || call!(SYS_mq_timedsend, -1, 0, 0, 0, 0)),
    ("mq_timedreceive", || call!(SYS_mq_timedreceive, -1, 0, 0, 0, 0)),
    ("mq_notify", || call!(SYS_mq_notify, -1, 0)),
    ("mq_getsetattr", || call!(SYS_mq_getsetattr, -1, 0, 0)),
    ("request_key", || call!(SYS_request_key, 0, 0, 0, 0)),
    ("inotify_init1", || call!(SYS_inotify_init1, 0)),
    ("inotify_add_watch", || call!(SYS_inotify_add_watch, -1, c"/".as_ptr(), libc::IN_CREATE)),
    ("fanotify_init", || call!(SYS_fanotify_init, -1, 0)),
    ("name_to_handle_at", || call!(SYS_name_to_handle_at, -1, 0, 0, 0, 0)),
    ("open_tree", || call!(SYS_open_tree, -1, 0, 0)),
    ("open_tree_attr", || call!(SYS_open_tree_attr, -1, 0, 0, 0, 0)),
    ("fsopen", || call!(SYS_fsopen, 0, 0)),
    ("move_mount", || call!(SYS_move_mount, -1, 0, -1, 0, -1)),
    ("kcmp", || call!(SYS_kcmp, libc::getpid(), libc::getpid(), 99, 0, 0)),
    ("migrate_pages", || call!(SYS_migrate_pages, -1, 0, 0, 0)),
    ("move_pages", || call!(SYS_move_pages, -1, 0, 0, 0, 0, 0)),
    ("process_mrelease", || call!(SYS_process_mrelease, -1, 0)),
    ("io_uring_enter", || call!(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0)),
    ("typing into the terminal", || call!(SYS_ioctl, 0, libc::TIOCSTI, c"x".as_ptr())),
];

/// Calls that only [`Wall`](evermap_compartment::wall::Wall) refuses.
pub const ORDINARY: &[Attempt] = &[
    ("openat", || call!(SYS_openat, libc::AT_FDCWD, c"/proc/version".as_ptr(), 0)),
    ("openat2", || call!(SYS_openat2, libc::AT_FDCWD, c"/proc/version".as_ptr(), 0, 0)),
    ("stat", || call!(SYS_statx, libc::AT_FDCWD, c"/proc/version".as_ptr(), 0, 0, 0)),
    ("execve", || call!(SYS_execve, c"/bin/true".as_ptr(), 0, 0)),
    ("fork", || call!(SYS_clone, libc::SIGCHLD, 0, 0, 0, 0)),
    ("kill", || call!(SYS_kill, libc::getpid(), 0)),
    ("prctl", || call!(SYS_prctl, libc::PR_GET_DUMPABLE)),
    ("dup", || call!(SYS_dup, 1)),
    ("unlink", || call!(SYS_unlinkat, libc::AT_FDCWD, c"/nothing".as_ptr(), 0)),
    ("mmap", || call!(SYS_mmap, 0, 4096, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)),
    ("mprotect", || call!(SYS_mprotect, 0, 0, libc::PROT_EXEC)),
    ("chmod", || call!(SYS_fchmodat, libc::AT_FDCWD, c"/nothing".as_ptr(), 0)),
];

/// Sockets of all kinds.
pub const SOCKETS: &[Attempt] = &[
    ("a socket of the network", || call!(SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)),
    ("a socket of this machine", || call!(SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)),
    ("a socket of the kernel", || call!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0)),
];

/// Changes of file attributes.
pub const ATTRIBUTES: &[Attempt] = &[
    ("fchmodat", || call!(SYS_fchmodat, libc::AT_FDCWD, c"/nothing-there".as_ptr(), 0)),
    ("fchownat", || call!(SYS_fchownat, libc::AT_FDCWD, c"/nothing-there".as_ptr(), 0, 0, 0)),
    ("fchmod", || call!(SYS_fchmod, 77, 0)),
    ("setxattr", || call!(SYS_setxattr, c"/nothing-there".as_ptr(), c"user.a".as_ptr(), 0, 0, 0)),
    ("utimensat", || call!(SYS_utimensat, libc::AT_FDCWD, c"/nothing-there".as_ptr(), 0, 0)),
];

/// Reads a byte of this process with a call meant for other processes.
pub fn read_own_memory() -> i64 {
    let (secret, mut found) = (7u8, 0u8);
    let local = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: (&raw const secret).cast_mut().cast(), iov_len: 1 };
    call!(SYS_process_vm_readv, libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
}

/// Returns the error number of a call, 0 on success.
pub fn error_of(attempt: Attempt) -> i32 {
    match attempt.1() {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Checks that every call fails with `EPERM`, the error of the filter.
pub fn all_are_refused(attempts: &[Attempt]) {
    for attempt in attempts {
        assert_eq!(error_of(*attempt), libc::EPERM, "{}", attempt.0);
    }
}

/// Prints the error of each call for the parent process.
pub fn report(_: &Path) {
    for list in [DANGEROUS, SOCKETS, ATTRIBUTES] {
        for attempt in list {
            println!("{}: {}", attempt.0, error_of(*attempt));
        }
    }
}
