//! View: copies mounted over the paths of their files, for one process and its children.
//!
//! Nothing changes outside that process, and the mounts end with it, so there is nothing to undo.
//! The copies are mounted read-only; a write fails with `EROFS`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::identity::{Identity, check_unchanged};
use super::path_text;
use crate::sys::namespace::{own_mounts, own_users_and_mounts};

/// A copy, and the file that it hides in the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The file, by its path without symbolic links.
    #[serde(with = "path_text")]
    pub original: PathBuf,
    /// The copy on the tier.
    #[serde(with = "path_text")]
    pub copy: PathBuf,
    /// Identity of the file when it was copied.
    pub identity: Identity,
}

/// Copies to show instead of their files. Sent as JSON to the process that enters the view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// In mount order.
    pub shown: Vec<Shown>,
}

impl View {
    /// Returns true if there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Mounts the copies over their files, for this thread and all its later children only. Call it
    /// in the process that will execute the program, before the `exec`.
    ///
    /// Needs no privilege: root creates a mount namespace; other users create a user namespace with
    /// it, in which the user keeps the same id and gains no privileges. Later mounts and
    /// unmounts outside take effect in the view, too. Takes about 15 system calls, and about four
    /// for each file.
    ///
    /// # Errors
    ///
    /// - [`Error::Changed`] if a file is not the version that was copied. Nothing has changed then.
    /// - [`Error::NoNamespace`] if the system does not allow the namespace, or if the process has
    ///   several threads and is not root. Nothing has changed then.
    /// - [`Error::NoNamespace`] if `/proc` is not mounted. The process is in a new namespace then.
    /// - [`Error::Io`] if a mount fails.
    ///
    /// After an error the process may see only some of the copies, and should end.
    pub fn enter(&self) -> Result<()> {
        for shown in &self.shown {
            check_unchanged(&shown.original, &shown.identity)?;
        }
        if self.is_empty() {
            return Ok(());
        }
        make_own_mounts()?;
        // Mounts made here are not visible outside, but mounts and unmounts outside take effect
        // here. Otherwise a disk could not be unmounted while this program runs.
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
            .map_err(Error::io("make slaves of the mounts below", "/"))?;
        self.shown.iter().try_for_each(|shown| show(&shown.copy, &shown.original))
    }
}

/// Mounts a copy over a file, read-only.
fn show(copy: &Path, original: &Path) -> Result<()> {
    mount_bind(copy, original).map_err(Error::io("mount the copy over", original))?;
    // Keep the restrictions of the mount. In a user namespace the kernel requires it.
    let flags = statvfs(original).map_err(Error::io("inspect the copy of", original))?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let kept = kept.into_iter().filter(|(has, _)| flags.contains(*has));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | flag);
    mount_remount(original, flags, c"").map_err(Error::io("write-protect the copy of", original))
}

fn make_own_mounts() -> Result<()> {
    match own_mounts() {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::NoNamespace { why: errno.to_string() }),
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    own_users_and_mounts().map_err(|errno| Error::NoNamespace { why: why_no_users(errno) })?;
    // The kernel lets an ordinary user map a group only after this.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{group} {group} 1"))
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::NoNamespace {
        why: format!("cannot write {path} ({error}); check that /proc is mounted"),
    })
}

fn why_no_users(errno: Errno) -> String {
    match errno {
        Errno::INVAL => "the process has several threads: enter the view before starting threads".into(),
        Errno::NOSPC | Errno::USERS => "the limit of user namespaces is reached: raise `user.max_user_namespaces` with sysctl".into(),
        Errno::PERM | Errno::ACCESS => "user namespaces are not allowed for this user: change `kernel.unprivileged_userns_clone` \
             or `kernel.apparmor_restrict_unprivileged_userns`, or run as root"
            .into(),
        Errno::NOSYS => "the kernel is built without user namespaces: run as root".into(),
        errno => errno.to_string(),
    }
}
