//! A view: copies over the paths of their files, for one process and what it starts.
//!
//! Nothing outside that process changes, and all of it ends with the process: there is nothing to undo. The copies are mounted read-only; whoever
//! writes gets `EROFS`.

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

/// A copy, and the file that it is shown instead of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The file, by its path without links.
    #[serde(with = "path_text")]
    pub original: PathBuf,
    /// The copy on the tier.
    #[serde(with = "path_text")]
    pub copy: PathBuf,
    /// The state of the file that the copy was made of.
    pub identity: Identity,
}

/// Copies to be shown instead of their files. It can be sent to the process that enters it, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// In the order in which they are shown.
    pub shown: Vec<Shown>,
}

impl View {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// This thread sees the copies instead of their files from now on, and so does all that it starts; nobody else. Called in
    /// the process that is to become the program, before it is.
    ///
    /// Needs no right: root makes mounts of its own, anybody else users of its own with them, in which this user is the same one and has no
    /// more rights. Mounts that others make or take away outside are seen as before. Cost: about six system calls and three
    /// a file.
    ///
    /// # Errors
    ///
    /// [`Error::NoNamespace`] where the system does not allow it, and to a process with several threads that is not root: nothing has
    /// changed then. [`Error::Changed`] when a file is not what its copy was made of, found before anything is done; [`Error::Io`]. After any
    /// error the process may see some copies and not others, and should end.
    pub fn enter(&self) -> Result<()> {
        for shown in &self.shown {
            check_unchanged(&shown.original, &shown.identity)?;
        }
        if self.is_empty() {
            return Ok(());
        }
        make_own_mounts()?;
        // What happens here is not seen outside; what happens outside is seen here, or a disk that is unmounted there would be kept busy by
        // the program.
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
            .map_err(Error::io("keep to this process the mounts below", "/"))?;
        self.shown.iter().try_for_each(|shown| show(&shown.copy, &shown.original))
    }
}

/// Lays a copy over a file, read-only.
fn show(copy: &Path, original: &Path) -> Result<()> {
    mount_bind(copy, original).map_err(Error::io("show the copy of", original))?;
    // What a mount refuses stays refused: within users of one's own the kernel insists on that.
    let flags = statvfs(original).map_err(Error::io("look at the copy of", original))?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let kept = kept.into_iter().filter(|(has, _)| flags.contains(*has));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | flag);
    mount_remount(original, flags, c"").map_err(Error::io("protect the copy of", original))
}

fn make_own_mounts() -> Result<()> {
    match own_mounts() {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::NoNamespace { why: errno.to_string() }),
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    own_users_and_mounts().map_err(|errno| Error::NoNamespace { why: why_no_users(errno) })?;
    // Without this nobody but root may map a group.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{group} {group} 1"))
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::NoNamespace {
        why: format!("{path} cannot be written ({error}); see whether /proc is mounted there"),
    })
}

fn why_no_users(errno: Errno) -> String {
    match errno {
        Errno::INVAL => "it has several threads: enter the view before any is started".into(),
        Errno::NOSPC | Errno::USERS => "there are as many user namespaces as may be: raise `user.max_user_namespaces` with sysctl".into(),
        Errno::PERM | Errno::ACCESS => "user namespaces are not for this user: have `kernel.unprivileged_userns_clone` \
             or `kernel.apparmor_restrict_unprivileged_userns` changed, or do it as root"
            .into(),
        Errno::NOSYS => "the kernel is built without user namespaces: do it as root".into(),
        errno => errno.to_string(),
    }
}
