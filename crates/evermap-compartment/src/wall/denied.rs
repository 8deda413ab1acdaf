//! What a program that is not trusted has no business with: the list behind [`super::Enclosure`].
//!
//! Everything that is not named is allowed: an ordinary program needs too much for a list of that.

use libc::*;
use seccompiler::BpfProgram;

use super::calls;
use super::filter::{Calls, Holds, refusal};
use crate::error::Result;

/// Other processes' memory and descriptors.
const OTHERS: &[i64] = &[
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_migrate_pages,
    SYS_move_pages,
];

/// Memory, semaphores and queues with a number or a name on the whole machine. They have no path, so
/// Landlock does not restrict them.
const SHARED: &[i64] = &[
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_shmdt,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_mq_timedsend,
    SYS_mq_timedreceive,
    SYS_mq_notify,
    SYS_mq_getsetattr,
];

/// Watching files. The kernel asks for the right to read them, but does not ask Landlock.
const WATCHES: &[i64] = &[SYS_inotify_init1, SYS_inotify_add_watch];

/// Rights to memory behind the program's own back, and faults that wait for somebody.
const MEMORY: &[i64] = &[SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, SYS_userfaultfd];

/// Mounts, name spaces, files by handle: ways to paths that no rule speaks of.
const PLACES: &[i64] = &[
    SYS_mount,
    SYS_umount2,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_acct,
    SYS_swapon,
    SYS_swapoff,
    // open_tree_attr, which libc does not know everywhere.
    467,
];

/// The machine.
const MACHINE: &[i64] = &[
    SYS_reboot,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
    SYS_nfsservctl,
];

/// Large parts of the kernel that have had many holes; `io_uring` makes calls that no filter sees.
const SURFACE: &[i64] = &[
    SYS_bpf,
    SYS_perf_event_open,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_lookup_dcookie,
];

/// What of it is let through all the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exceptions {
    pub(super) network: bool,
    pub(super) attributes: bool,
}

/// The list as a program.
pub(super) fn program(exceptions: Exceptions) -> Result<BpfProgram> {
    let mut calls = Calls::default();
    let lists = [OTHERS, SHARED, WATCHES, MEMORY, PLACES, MACHINE, SURFACE, calls::old::DANGEROUS];
    lists.iter().for_each(|list| always(&mut calls, list));
    if !exceptions.network {
        // A pair of sockets (`socketpair`) is between the program and itself. Sockets of the file
        // system are somebody else's service, which would do as it is asked outside of the wall.
        always(&mut calls, &[SYS_socket]);
    }
    if !exceptions.attributes {
        always(&mut calls, calls::ATTRIBUTES);
        always(&mut calls, calls::old::ATTRIBUTES);
    }
    for space in [
        CLONE_NEWUSER,
        CLONE_NEWNS,
        CLONE_NEWPID,
        CLONE_NEWNET,
        CLONE_NEWIPC,
        CLONE_NEWUTS,
        CLONE_NEWCGROUP,
    ] {
        when(&mut calls, SYS_clone, &[Holds::Bits(0, space as u32, space as u32)]);
    }
    // Typing into the terminal that the command shares with whoever started it.
    for request in [TIOCSTI as u32, TIOCLINUX as u32] {
        when(&mut calls, SYS_ioctl, &[Holds::Is(1, request)]);
    }
    // Limits of its own are the program's affair. Those of the user's other processes would end them: no
    // processor time, no open files.
    when(&mut calls, SYS_prlimit64, &[Holds::IsNot(0, 0)]);
    x32(&mut calls);
    calls.compile(refusal(), seccompiler::SeccompAction::Allow)
}

/// x86-64 kernels may know every call by a second number (x32), for which the architecture is the same.
const X32: i64 = 0x4000_0000;

fn always(calls: &mut Calls, list: &[i64]) {
    calls.always(list);
    if cfg!(target_arch = "x86_64") {
        calls.always(&list.iter().map(|call| call | X32).collect::<Vec<_>>());
    }
}

fn when(calls: &mut Calls, call: i64, conditions: &[Holds]) {
    calls.when(call, conditions);
    if cfg!(target_arch = "x86_64") {
        calls.when(call | X32, conditions);
    }
}

/// Calls with numbers of their own there: `ioctl`, `ptrace`, `kexec_load`, `process_vm_readv`,
/// `process_vm_writev`, `move_pages`, `mq_notify`, and `execveat` and `execve`, so that nothing goes on
/// from there.
fn x32(calls: &mut Calls) {
    if cfg!(target_arch = "x86_64") {
        let own = [514, 521, 527, 528, 533, 539, 540, 520, 545];
        calls.always(&own.map(|call| call | X32));
    }
}
