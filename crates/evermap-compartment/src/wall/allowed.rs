//! System calls for a process that only computes: the allow list of [`super::Wall`].
//!
//! All other calls fail with `EPERM`. Each list names the reason for its calls.

use libc::*;

use super::calls;
use super::filter::{Calls, Condition};

/// Use of open descriptors.
const DESCRIPTORS: &[i64] = &[
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_ppoll,
];

/// Waiting for threads and time, and ending. Existing threads take locks and end. Robust lists and
/// restartable sequences are used when a thread ends.
const THREADS: &[i64] = &[
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_gettid,
    SYS_getpid,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
];

/// Signals to the own process: handlers, and returning from them.
const SIGNALS: &[i64] = &[SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack];

/// Releasing memory, and advice about it. `brk` extends the C library's heap, which is the fallback
/// when `mmap` is refused.
const MEMORY: &[i64] = &[SYS_brk, SYS_munmap, SYS_madvise];

/// Random seeds for hash tables.
const RANDOM: &[i64] = &[SYS_getrandom];

/// Returns the calls for a process that computes, writes to open files, and ends.
pub(super) fn computing() -> Calls {
    let mut calls = Calls::default();
    for list in [DESCRIPTORS, THREADS, SIGNALS, MEMORY, RANDOM, calls::old::WAITING] {
        calls.always(list);
    }
    // Queries of a descriptor's flags only: no duplication, no signal ownership.
    for command in [F_GETFD, F_GETFL] {
        calls.when(SYS_fcntl, &[Condition::Equal(1, command as u32)]);
    }
    // `abort` and `raise`.
    calls.when(SYS_tgkill, &[Condition::Equal(0, std::process::id())]);
    calls
}

/// Adds anonymous memory, never executable.
pub(super) fn anonymous_memory(calls: &mut Calls) {
    let not_executable = Condition::MaskedEqual(2, PROT_EXEC as u32, 0);
    let anonymous = Condition::MaskedEqual(3, MAP_ANONYMOUS as u32, MAP_ANONYMOUS as u32);
    calls.when(SYS_mmap, &[not_executable, anonymous]);
    calls.when(SYS_mprotect, &[not_executable]);
    calls.always(&[SYS_mremap]);
}

/// Adds starting threads, and no other use of `clone`.
pub(super) fn threads(calls: &mut Calls) {
    let of_this_process = (CLONE_THREAD | CLONE_VM | CLONE_SIGHAND) as u32;
    calls.when(SYS_clone, &[Condition::MaskedEqual(0, of_this_process, of_this_process)]);
    // A separate filter reports it as missing, so the C library falls back to `clone`.
    calls.always(&[SYS_clone3]);
    calls.when(SYS_prctl, &[Condition::Equal(0, PR_SET_NAME as u32)]);
}

/// Adds the calls of an open session's commits: writes with flags, file allocation, scans for
/// changed pages, locks between processes, and mappings of new memory.
pub(super) fn commits(calls: &mut Calls) {
    /// `_IOWR('f', 16, struct pm_scan_arg)` of `linux/fs.h`.
    const PAGEMAP_SCAN: u32 = 3 << 30 | 96 << 16 | 0x66 << 8 | 16;
    /// `_IOWR(0xaa, 0x00, struct uffdio_register)` of `linux/userfaultfd.h`, on a descriptor that
    /// an earlier commit created: it also watches new regions.
    const UFFDIO_REGISTER: u32 = 3 << 30 | 32 << 16 | 0xaa << 8;
    /// `PIDFD_SELF_THREAD_GROUP` of `linux/pidfd.h`: this process.
    const SELF: u32 = -10_001_i32 as u32;
    anonymous_memory(calls);
    calls.always(&[
        SYS_pwritev2,
        SYS_fallocate,
        SYS_ftruncate,
        SYS_fdatasync,
        SYS_fsync,
        SYS_sync_file_range,
        SYS_fadvise64,
        SYS_fstatfs,
    ]);
    // Reads own limits: a write checks the maximum file size.
    calls.when(SYS_prlimit64, &[Condition::Equal(0, 0), Condition::Equal(2, 0)]);
    for request in [PAGEMAP_SCAN, UFFDIO_REGISTER] {
        calls.when(SYS_ioctl, &[Condition::Equal(1, request)]);
    }
    for command in [F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK] {
        calls.when(SYS_fcntl, &[Condition::Equal(1, command as u32)]);
    }
    calls.when(SYS_process_madvise, &[Condition::Equal(0, SELF)]);
    // Mappings of open descriptors, which can be read and written anyway.
    calls.when(SYS_mmap, &[Condition::MaskedEqual(2, PROT_EXEC as u32, 0)]);
}

/// Adds opening by name. Landlock restricts the paths.
pub(super) fn reading(calls: &mut Calls) {
    calls.always(calls::OPENING);
    calls.always(calls::old::OPENING);
}

/// Adds creating, changing and removing files. Landlock restricts the paths.
pub(super) fn writing(calls: &mut Calls) {
    reading(calls);
    calls.always(calls::CHANGING);
    calls.always(calls::old::CHANGING);
}
