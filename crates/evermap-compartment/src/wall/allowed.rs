//! What a process that only computes needs of the kernel: the list behind [`super::Wall`].
//!
//! Everything that is not named is refused with `EPERM`. A call is here because something that goes on
//! in such a process makes it; what it is, is said beside it.

use libc::*;

use super::calls;
use super::filter::{Calls, Holds};

/// Using open descriptors.
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

/// Waiting for each other and for time, and ending. Threads that are there already lock and end; with
/// robust lists and restartable sequences they take leave of the kernel.
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

/// Signals of its own: handlers, and coming back from them.
const SIGNALS: &[i64] = &[SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack];

/// Memory that can only be given up, and advice about it. `brk` is the heap of the C library, which
/// falls back on it when `mmap` is refused.
const MEMORY: &[i64] = &[SYS_brk, SYS_munmap, SYS_madvise];

/// Hash tables with a random seed.
const RANDOM: &[i64] = &[SYS_getrandom];

/// The list for a process that computes, writes to what it has open, and ends.
pub(super) fn computing() -> Calls {
    let mut calls = Calls::default();
    for list in [DESCRIPTORS, THREADS, SIGNALS, MEMORY, RANDOM, calls::old::WAITING] {
        calls.always(list);
    }
    // Is this descriptor open, and how? Nothing is duplicated, nobody is sent signals.
    for command in [F_GETFD, F_GETFL] {
        calls.when(SYS_fcntl, &[Holds::Is(1, command as u32)]);
    }
    // `abort` and `raise`.
    calls.when(SYS_tgkill, &[Holds::Is(0, std::process::id())]);
    calls
}

/// Memory without a file, never executable.
pub(super) fn anonymous_memory(calls: &mut Calls) {
    let not_executable = Holds::Bits(2, PROT_EXEC as u32, 0);
    let anonymous = Holds::Bits(3, MAP_ANONYMOUS as u32, MAP_ANONYMOUS as u32);
    calls.when(SYS_mmap, &[not_executable, anonymous]);
    calls.when(SYS_mprotect, &[not_executable]);
    calls.always(&[SYS_mremap]);
}

/// Starting threads, and nothing else that `clone` can do.
pub(super) fn threads(calls: &mut Calls) {
    let of_this_process = (CLONE_THREAD | CLONE_VM | CLONE_SIGHAND) as u32;
    calls.when(SYS_clone, &[Holds::Bits(0, of_this_process, of_this_process)]);
    // Refused as unknown by a filter of its own, so that the C library falls back on the above.
    calls.always(&[SYS_clone3]);
    calls.when(SYS_prctl, &[Holds::Is(0, PR_SET_NAME as u32)]);
}

/// What an open session's commits need: writing with a flag, room at the end of files, finding changed
/// pages, locks between processes, mapping what was gained.
pub(super) fn commits(calls: &mut Calls) {
    /// `_IOWR('f', 16, struct pm_scan_arg)` of `linux/fs.h`.
    const PAGEMAP_SCAN: u32 = 3 << 30 | 96 << 16 | 0x66 << 8 | 16;
    /// `_IOWR(0xaa, 0x00, struct uffdio_register)` of `linux/userfaultfd.h`, for a descriptor that
    /// an earlier commit has made: regions gained since are watched as well.
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
    // Reading its own limits: a write asks how long a file may get.
    calls.when(SYS_prlimit64, &[Holds::Is(0, 0), Holds::Is(2, 0)]);
    for request in [PAGEMAP_SCAN, UFFDIO_REGISTER] {
        calls.when(SYS_ioctl, &[Holds::Is(1, request)]);
    }
    for command in [F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK] {
        calls.when(SYS_fcntl, &[Holds::Is(1, command as u32)]);
    }
    calls.when(SYS_process_madvise, &[Holds::Is(0, SELF)]);
    // Of descriptors that are open: reading and writing them is allowed as it is.
    calls.when(SYS_mmap, &[Holds::Bits(2, PROT_EXEC as u32, 0)]);
}

/// Opening by name, as far as Landlock lets through.
pub(super) fn reading(calls: &mut Calls) {
    calls.always(calls::OPENING);
    calls.always(calls::old::OPENING);
}

/// The same for making, changing and removing files.
pub(super) fn writing(calls: &mut Calls) {
    reading(calls);
    calls.always(calls::CHANGING);
    calls.always(calls::old::CHANGING);
}
