//! System calls by purpose, shared by both lists.

use libc::*;

/// Calls that newer architectures omit.
#[cfg(target_arch = "x86_64")]
pub(super) mod old {
    pub(in super::super) const OPENING: &[i64] =
        &[libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink];
    pub(in super::super) const CHANGING: &[i64] =
        &[libc::SYS_creat, libc::SYS_unlink, libc::SYS_rename, libc::SYS_mkdir, libc::SYS_rmdir];
    pub(in super::super) const WAITING: &[i64] = &[libc::SYS_poll, libc::SYS_time];
    pub(in super::super) const ATTRIBUTES: &[i64] = &[
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ];
    pub(in super::super) const DANGEROUS: &[i64] = &[
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS__sysctl,
        libc::SYS_uselib,
        libc::SYS_inotify_init,
    ];
}

/// Calls that newer architectures omit.
#[cfg(not(target_arch = "x86_64"))]
pub(super) mod old {
    pub(in super::super) const OPENING: &[i64] = &[];
    pub(in super::super) const CHANGING: &[i64] = &[];
    pub(in super::super) const WAITING: &[i64] = &[];
    pub(in super::super) const ATTRIBUTES: &[i64] = &[];
    pub(in super::super) const DANGEROUS: &[i64] = &[];
}

/// Calls that find and open files by name. Landlock decides which files.
pub(super) const OPENING: &[i64] = &[
    SYS_openat,
    SYS_openat2,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_fstatfs,
    SYS_fadvise64,
    SYS_getcwd,
    SYS_geteuid,
    SYS_getuid,
];

/// Calls that create, remove and rename files. Landlock decides which files.
pub(super) const CHANGING: &[i64] = &[
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
];

/// Calls that change file attributes. Landlock does not restrict them, so a filter that allows them
/// allows them for any file that the user can change.
pub(super) const ATTRIBUTES: &[i64] = &[
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_utimensat,
    // fchmodat2, setxattrat, removexattrat, file_setattr. The numbers are the same on all
    // architectures, but libc does not define them everywhere.
    452,
    463,
    466,
    469,
];
