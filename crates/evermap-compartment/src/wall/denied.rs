//! System calls refused to an untrusted program: the deny list of [`super::Enclosure`].
//!
//! All other calls are allowed, because an ordinary program needs too many for an allow list.

use libc::*;
use seccompiler::BpfProgram;

use super::calls;
use super::filter::{Calls, Condition, refusal};
use crate::error::Result;

/// Access to other processes' memory and descriptors.
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

/// Shared memory, semaphores and queues identified by a number or name. They have no path, so
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

/// File watches. The kernel checks read permission for them, but not Landlock rules.
const WATCHES: &[i64] = &[SYS_inotify_init1, SYS_inotify_add_watch];

/// Memory protection keys and user-space fault handling.
const MEMORY: &[i64] = &[SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, SYS_userfaultfd];

/// Mounts, name spaces and file handles: routes to paths that no rule covers.
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

/// Control of the machine.
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

/// Large kernel interfaces with many past vulnerabilities. `io_uring` also makes calls that no
/// filter sees.
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

/// Call groups that are allowed despite the list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exceptions {
    pub(super) network: bool,
    pub(super) attributes: bool,
}

/// Compiles the list.
pub(super) fn program(exceptions: Exceptions) -> Result<BpfProgram> {
    let mut calls = Calls::default();
    let lists = [OTHERS, SHARED, WATCHES, MEMORY, PLACES, MACHINE, SURFACE, calls::old::DANGEROUS];
    lists.iter().for_each(|list| always(&mut calls, list));
    if !exceptions.network {
        // `socketpair` connects the program only to itself. Sockets in the file system belong to
        // other services, which act outside the wall on request.
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
        when(&mut calls, SYS_clone, &[Condition::MaskedEqual(0, space as u32, space as u32)]);
    }
    // Input injection into the terminal that the command shares with its caller.
    for request in [TIOCSTI as u32, TIOCLINUX as u32] {
        when(&mut calls, SYS_ioctl, &[Condition::Equal(1, request)]);
    }
    // A program can change its own limits. Limits on the user's other processes could end them, for
    // example by no processor time or no open files.
    when(&mut calls, SYS_prlimit64, &[Condition::NotEqual(0, 0)]);
    x32(&mut calls);
    calls.compile(refusal(), seccompiler::SeccompAction::Allow)
}

/// Bit of the second set of call numbers (x32) on x86-64 kernels. The architecture value is the
/// same.
const X32: i64 = 0x4000_0000;

fn always(calls: &mut Calls, list: &[i64]) {
    calls.always(list);
    if cfg!(target_arch = "x86_64") {
        calls.always(&list.iter().map(|call| call | X32).collect::<Vec<_>>());
    }
}

fn when(calls: &mut Calls, call: i64, conditions: &[Condition]) {
    calls.when(call, conditions);
    if cfg!(target_arch = "x86_64") {
        calls.when(call | X32, conditions);
    }
}

/// Adds calls that have different numbers in x32: `ioctl`, `ptrace`, `kexec_load`,
/// `process_vm_readv`, `process_vm_writev`, `move_pages`, `mq_notify`, and `execveat` and `execve`,
/// so that no program starts from there.
fn x32(calls: &mut Calls) {
    if cfg!(target_arch = "x86_64") {
        let own = [514, 521, 527, 528, 533, 539, 540, 520, 545];
        calls.always(&own.map(|call| call | X32));
    }
}
