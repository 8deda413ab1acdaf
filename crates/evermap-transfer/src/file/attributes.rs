//! What a copy keeps beside the bytes: owner, extended attributes (ACLs are such), mode and times.
//!
//! The order is fixed, as each step may undo what an earlier one would have set: a change of owner clears setuid bits and
//! capabilities, an ACL changes the mode, and any of them could change times on some file system. A file's bytes are
//! written before all of it. What the target's file system or this user's rights refuse is a [`Refusal`], and no error.
//!
//! No call is made for what is right already: that is what makes small files quick.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{self, Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::acl;
pub(crate) use super::subject::Subject;
use crate::report::NotKept;

/// What is kept of a file beside its bytes. All of it by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preserve {
    /// The permissions, and the bits setuid, setgid and sticky. Without it, the umask has its way.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Of the last access and the last change, to the nanosecond.
    pub times: bool,
    /// Extended attributes, and with them ACLs, capabilities and labels.
    pub xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve { mode: true, owner: true, times: true, xattrs: true }
    }
}

/// A [`NotKept`] without its path, which is only made up when there is something to say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Refusal {
        Refusal { what: what.into(), why: why.into() }
    }

    pub(crate) fn at(self, path: &Path) -> NotKept {
        NotKept { path: path.to_path_buf(), what: self.what, why: self.why }
    }
}

/// A call that failed for another reason than being refused: what was tried, as in "cannot ...", and why.
pub(crate) type Failure = (&'static str, Errno);

/// What a source has, as far as `stat` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permissions with setuid, setgid and sticky; not the type.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    accessed: Timespec,
    modified: Timespec,
}

impl Attributes {
    pub(crate) fn of(stat: &Stat) -> Attributes {
        Attributes {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            accessed: Timespec { tv_sec: stat.st_atime as _, tv_nsec: stat.st_atime_nsec as _ },
            modified: Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ },
        }
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: self.accessed, last_modification: self.modified }
    }
}

/// What a new target has already, so that nothing is set twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// [`Made::UNKNOWN`] when it has to be set in any case.
    pub(crate) mode: u32,
    /// It may have an ACL that it was given by its directory, or by an earlier copy.
    pub(crate) may_have_acl: bool,
}

impl Made {
    pub(crate) const UNKNOWN: u32 = u32::MAX;

    pub(crate) fn of(stat: &Stat) -> Made {
        Made {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            may_have_acl: false,
        }
    }
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xattr {
    name: CString,
    value: Vec<u8>,
}

/// Keeps attributes, for one thread: it has the buffers.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    preserve: Preserve,
    /// What a mode loses at creation; `None` when that could not be learned.
    umask: Option<u32>,
    list: Vec<u8>,
}

impl Keeper {
    /// Reads the umask, which costs reading a file of `/proc`: one keeper is made for a copy, and cloned for its threads.
    pub(crate) fn new(preserve: Preserve) -> Keeper {
        Keeper { preserve, umask: umask(), list: vec![0; 1 << 10] }
    }

    /// One for a single file that is made with no more rights than its owner's: the umask matters only where the mode is
    /// not kept.
    pub(crate) fn for_one(preserve: Preserve) -> Keeper {
        let umask = if preserve.mode { None } else { umask() };
        Keeper { preserve, umask, list: vec![0; 1 << 10] }
    }

    pub(crate) fn preserve(&self) -> Preserve {
        self.preserve
    }

    /// The extended attributes of `source`. Costs one call when there are none, and no allocation.
    pub(crate) fn xattrs(
        &mut self,
        source: Subject<'_>,
        refusals: &mut Vec<Refusal>,
    ) -> Result<Vec<Xattr>, Failure> {
        if !self.preserve.xattrs {
            return Ok(Vec::new());
        }
        let length = loop {
            match source.list_xattrs(&mut self.list) {
                Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
                Ok(length) => break length,
                // Lists end at 64 KiB by the kernel's own bound.
                Err(Errno::RANGE) if self.list.len() < 64 << 10 => self.list.resize(64 << 10, 0),
                Err(errno) if is_refusal(errno) => {
                    refusals.push(Refusal::new("xattrs", errno.to_string()));
                    return Ok(Vec::new());
                }
                Err(errno) => return Err(("list the extended attributes of", errno)),
            }
        };
        let mut xattrs = Vec::new();
        for name in self.list[..length].split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            // A signature over this very inode: wrong on every other one.
            if name == c"security.evm" {
                continue;
            }
            match read_xattr(source, name) {
                Ok(Some(value)) => xattrs.push(Xattr { name: name.to_owned(), value }),
                Ok(None) => {}
                Err(errno) if is_refusal(errno) => refusals.push(refused_xattr(name, errno)),
                Err(errno) => return Err(("read an extended attribute of", errno)),
            }
        }
        Ok(xattrs)
    }

    /// The mode to create a target with, and what it will have been given then.
    ///
    /// `is_hidden`: nobody else can open it before it is complete, so that it may have its mode from the beginning.
    /// Without write permission for its owner, no extended attribute could be set.
    pub(crate) fn creation_mode(
        &self,
        source: &Attributes,
        xattrs: &[Xattr],
        is_hidden: bool,
    ) -> (Mode, u32) {
        let wanted = if is_hidden && xattrs.is_empty() { source.mode & 0o777 } else { 0o600 };
        let got = self.umask.map_or(Made::UNKNOWN, |umask| wanted & !umask);
        (Mode::from_raw_mode(wanted), got)
    }

    /// Brings owner, extended attributes, mode and times of the source to the target, in this order.
    pub(crate) fn keep(
        &self,
        source: &Attributes,
        xattrs: &[Xattr],
        target: Subject<'_>,
        made: &Made,
        has_mode: bool,
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Failure> {
        let is_owner_kept = self.keep_owner(source, target, made, refusals)?;
        let mut mode = Some(made.mode);
        let mut acl_lost = None;
        if self.preserve.xattrs {
            let is_acl = |xattr: &Xattr| xattr.name.as_c_str() == acl::ACCESS;
            if made.may_have_acl {
                drop_acls(target, xattrs)?;
                mode = None;
            }
            for xattr in xattrs {
                let lost = set_xattr(target, xattr, refusals)?;
                if is_acl(xattr) {
                    mode = None;
                    acl_lost = lost.then_some(&xattr.value);
                }
            }
        }
        if has_mode {
            self.keep_mode(source, target, mode, is_owner_kept, acl_lost, refusals)?;
        }
        if self.preserve.times {
            refuse_or_fail(
                target.set_times(&source.times()),
                "set the times of",
                || "times".into(),
                refusals,
            )?;
        }
        Ok(())
    }

    /// Whether the target has the source's owner and group now.
    fn keep_owner(
        &self,
        source: &Attributes,
        target: Subject<'_>,
        made: &Made,
        refusals: &mut Vec<Refusal>,
    ) -> Result<bool, Failure> {
        if (source.uid, source.gid) == (made.uid, made.gid) {
            return Ok(true);
        }
        if !self.preserve.owner {
            return Ok(false);
        }
        let (user, group) = (Uid::from_raw(source.uid), Gid::from_raw(source.gid));
        let what = || format!("owner {}:{}", source.uid, source.gid);
        if refuse_or_fail(
            target.set_owner(Some(user), Some(group)),
            "set the owner of",
            what,
            refusals,
        )? {
            return Ok(true);
        }
        // A group that this user is in is better than none; it was said already that not all is kept.
        if source.gid != made.gid {
            let _ = target.set_owner(None, Some(group));
        }
        Ok(false)
    }

    fn keep_mode(
        &self,
        source: &Attributes,
        target: Subject<'_>,
        has: Option<u32>,
        is_owner_kept: bool,
        acl_lost: Option<&Vec<u8>>,
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Failure> {
        const SET_IDS: u32 = 0o6000;
        let mut wanted = match (self.preserve.mode, self.umask) {
            (true, _) => source.mode,
            (false, Some(umask)) => source.mode & 0o777 & !umask,
            (false, None) => return Ok(()),
        };
        // These bits speak for the owner; for another one they would say something that nobody has said.
        if !is_owner_kept {
            wanted &= !SET_IDS;
        }
        if let Some(acl) = acl_lost {
            wanted = acl::mode_without(acl, wanted);
        }
        if has == Some(wanted) {
            return Ok(());
        }
        let what = || format!("mode {wanted:o}");
        let is_set = refuse_or_fail(
            target.set_mode(Mode::from_raw_mode(wanted)),
            "set the mode of",
            what,
            refusals,
        )?;
        // The kernel drops setgid without a word where the user is not in the group.
        if is_set && wanted & SET_IDS != 0 {
            let got = target.mode().map_err(|errno| ("look at", errno))?;
            if got != wanted {
                refusals.push(Refusal::new(what(), format!("the kernel made it {got:o}")));
            }
        }
        Ok(())
    }
}

/// Takes away the ACLs that the target was given by its directory, and that the source has not.
fn drop_acls(target: Subject<'_>, xattrs: &[Xattr]) -> Result<(), Failure> {
    for name in [acl::ACCESS, acl::DEFAULT] {
        if xattrs.iter().any(|xattr| xattr.name.as_c_str() == name) {
            continue;
        }
        match target.remove_xattr(name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::INVAL) => {}
            Err(errno) => return Err(("take the inherited ACL from", errno)),
        }
    }
    Ok(())
}

/// Whether a directory gives what is made in it an ACL.
pub(crate) fn gives_acls(directory: BorrowedFd<'_>) -> bool {
    fs::fgetxattr_query(directory, acl::DEFAULT).is_ok_and(|length| length > 0)
}

/// Takes the default ACL from a directory that was just made, so that nothing made in it gets one.
pub(crate) fn take_default_acl(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fremovexattr(directory, acl::DEFAULT)
}

/// Its value; `None` when it went away since it was listed.
fn read_xattr(source: Subject<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    // Most are short; the kernel's own bound is 64 KiB.
    for bytes in [256, 64 << 10] {
        let mut value = vec![0; bytes];
        match source.xattr(name, &mut value) {
            Ok(length) => {
                value.truncate(length);
                return Ok(Some(value));
            }
            Err(Errno::NODATA) => return Ok(None),
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::RANGE)
}

/// Whether it was refused.
fn set_xattr(
    target: Subject<'_>,
    xattr: &Xattr,
    refusals: &mut Vec<Refusal>,
) -> Result<bool, Failure> {
    match target.set_xattr(&xattr.name, &xattr.value) {
        Ok(()) => Ok(false),
        // The last three are what file systems say that have less room for them than the source's.
        Err(errno)
            if is_refusal(errno)
                || matches!(errno, Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) =>
        {
            refusals.push(refused_xattr(&xattr.name, errno));
            Ok(true)
        }
        Err(errno) => Err(("set an extended attribute of", errno)),
    }
}

fn refused_xattr(name: &CStr, errno: Errno) -> Refusal {
    Refusal::new(format!("xattr {}", name.to_string_lossy()), errno.to_string())
}

/// Whether it was done; a refusal is noted.
fn refuse_or_fail(
    result: Result<(), Errno>,
    operation: &'static str,
    what: impl Fn() -> String,
    refusals: &mut Vec<Refusal>,
) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(errno) if is_refusal(errno) => {
            refusals.push(Refusal::new(what(), errno.to_string()));
            Ok(false)
        }
        Err(errno) => Err((operation, errno)),
    }
}

/// What rights and file systems say that will not have it. `INVAL`: an owner that a user namespace does not know.
/// `NOENT`: `/proc` is not there, by which names are reached.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::NOENT
            | Errno::OVERFLOW
    )
}

/// The process's umask. The call that tells it changes it for all threads, so it is read where the kernel prints it.
pub(crate) fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
