//! Attributes that a copy preserves: owner, extended attributes (including ACLs), mode and times.
//!
//! The order is fixed, because later steps undo earlier ones: a change of owner clears setuid bits
//! and capabilities, an ACL changes the mode, and any of them may change the times on some file
//! systems. The file's bytes are written first. Attributes that the file system or missing rights
//! refuse are a [`RefusedAttribute`], not an error.
//!
//! Attributes that are already correct are not set again, which makes small files fast.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::path::Path;

use evermap_observe::proc;
use rustix::fs::{self, Gid, Mode, Stat, Statx, StatxTimestamp, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::acl;
pub(crate) use super::subject::Subject;
use crate::report::NotKept;

/// Attributes to preserve. Default: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preserve {
    /// Permissions, setuid, setgid and sticky bits. If false, permissions are subject to the umask.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Access and modification time, in nanoseconds.
    pub times: bool,
    /// Extended attributes, including ACLs, capabilities and labels.
    pub xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve { mode: true, owner: true, times: true, xattrs: true }
    }
}

/// A [`NotKept`] without its path, which is only built for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedAttribute {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl RefusedAttribute {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> RefusedAttribute {
        RefusedAttribute { what: what.into(), why: why.into() }
    }

    pub(crate) fn at(self, path: &Path) -> NotKept {
        NotKept { path: path.to_path_buf(), what: self.what, why: self.why }
    }
}

/// A failed call: the operation, as in "cannot ...", and the errno.
pub(crate) type Failure = (&'static str, Errno);

/// The source's attributes from `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permissions, setuid, setgid and sticky bits, without the file type.
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

    pub(crate) fn of_statx(stat: &Statx) -> Attributes {
        let time =
            |time: StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
        Attributes {
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            accessed: time(stat.stx_atime),
            modified: time(stat.stx_mtime),
        }
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: self.accessed, last_modification: self.modified }
    }
}

/// Attributes that a new target already has, so that none is set twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitialAttributes {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Mode bits, or [`InitialAttributes::UNKNOWN`] if the mode must be set in any case.
    pub(crate) mode: u32,
    /// True if the target may have an ACL, inherited from its directory or set by an earlier copy.
    pub(crate) may_have_acl: bool,
}

impl InitialAttributes {
    pub(crate) const UNKNOWN: u32 = u32::MAX;

    pub(crate) fn of_statx(stat: &Statx) -> InitialAttributes {
        InitialAttributes {
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mode: u32::from(stat.stx_mode) & 0o7777,
            may_have_acl: false,
        }
    }

    pub(crate) fn of(stat: &Stat) -> InitialAttributes {
        InitialAttributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            may_have_acl: false,
        }
    }
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xattr {
    name: CString,
    value: Vec<u8>,
}

/// Copies attributes for one thread, with its buffers.
#[derive(Debug, Clone)]
pub(crate) struct AttributeCopier {
    preserve: Preserve,
    /// The process's umask, or `None` if unknown.
    umask: Option<u32>,
    list: Vec<u8>,
}

impl AttributeCopier {
    /// Reads the umask from a file of `/proc`. Create one per copy and clone it for each thread.
    pub(crate) fn new(preserve: Preserve) -> AttributeCopier {
        AttributeCopier { preserve, umask: umask(), list: vec![0; 1 << 10] }
    }

    /// Creates a copier for a file that is created accessible only to its owner. The umask is read
    /// only if the mode is not preserved.
    pub(crate) fn for_single_file(preserve: Preserve) -> AttributeCopier {
        let umask = if preserve.mode { None } else { umask() };
        AttributeCopier { preserve, umask, list: vec![0; 1 << 10] }
    }

    pub(crate) fn preserve(&self) -> Preserve {
        self.preserve
    }

    /// Reads the extended attributes of `source`. Cost without any: one call, no allocation.
    pub(crate) fn xattrs(
        &mut self,
        source: Subject<'_>,
        refusals: &mut Vec<RefusedAttribute>,
    ) -> Result<Vec<Xattr>, Failure> {
        if !self.preserve.xattrs {
            return Ok(Vec::new());
        }
        let length = loop {
            match source.list_xattrs(&mut self.list) {
                Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
                Ok(length) => break length,
                // The kernel limits lists to 64 KiB.
                Err(Errno::RANGE) if self.list.len() < 64 << 10 => self.list.resize(64 << 10, 0),
                Err(errno) if is_refusal(errno) => {
                    refusals.push(RefusedAttribute::new("xattrs", errno.to_string()));
                    return Ok(Vec::new());
                }
                Err(errno) => return Err(("list the extended attributes of", errno)),
            }
        };
        let mut xattrs = Vec::new();
        for name in self.list[..length].split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            // A signature of this inode, invalid on any other.
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

    /// Returns the mode to create a target with, and the mode it then has.
    ///
    /// If `is_hidden`, other processes cannot open the file before it is complete, so it gets its
    /// final permissions at creation. With extended attributes to set, the owner needs write
    /// permission first.
    pub(crate) fn creation_mode(
        &self,
        source: &Attributes,
        xattrs: &[Xattr],
        is_hidden: bool,
    ) -> (Mode, u32) {
        let wanted = if is_hidden && xattrs.is_empty() { source.mode & 0o777 } else { 0o600 };
        let got = self.umask.map_or(InitialAttributes::UNKNOWN, |umask| wanted & !umask);
        (Mode::from_raw_mode(wanted), got)
    }

    /// Sets owner, extended attributes, mode and times of the target, in this order.
    pub(crate) fn apply(
        &self,
        source: &Attributes,
        xattrs: &[Xattr],
        target: Subject<'_>,
        made: &InitialAttributes,
        has_mode: bool,
        refusals: &mut Vec<RefusedAttribute>,
    ) -> Result<(), Failure> {
        let owner_applied = self.apply_owner(source, target, made, refusals)?;
        let mut mode = Some(made.mode);
        let mut acl_lost = None;
        if self.preserve.xattrs {
            let is_acl = |xattr: &Xattr| xattr.name.as_c_str() == acl::ACCESS;
            if made.may_have_acl {
                remove_acls(target, xattrs)?;
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
            self.apply_mode(source, target, mode, owner_applied, acl_lost, refusals)?;
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

    /// Sets owner and group. Returns true if the target has the source's owner and group.
    fn apply_owner(
        &self,
        source: &Attributes,
        target: Subject<'_>,
        made: &InitialAttributes,
        refusals: &mut Vec<RefusedAttribute>,
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
        // Keep at least a group that this user belongs to. The refusal is already recorded.
        if source.gid != made.gid {
            let _ = target.set_owner(None, Some(group));
        }
        Ok(false)
    }

    fn apply_mode(
        &self,
        source: &Attributes,
        target: Subject<'_>,
        has: Option<u32>,
        owner_applied: bool,
        acl_lost: Option<&Vec<u8>>,
        refusals: &mut Vec<RefusedAttribute>,
    ) -> Result<(), Failure> {
        const SET_IDS: u32 = 0o6000;
        let mut wanted = match (self.preserve.mode, self.umask) {
            (true, _) => source.mode,
            (false, Some(umask)) => source.mode & 0o777 & !umask,
            (false, None) => return Ok(()),
        };
        // Setuid and setgid must not apply to another owner.
        if !owner_applied {
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
        // The kernel silently clears setgid if the user is not in the group.
        if is_set && wanted & SET_IDS != 0 {
            let got = target.mode().map_err(|errno| ("read the mode of", errno))?;
            if got != wanted {
                refusals.push(RefusedAttribute::new(
                    what(),
                    format!("the kernel changed it to {got:o}"),
                ));
            }
        }
        Ok(())
    }
}

/// Removes inherited ACLs that the source does not have.
fn remove_acls(target: Subject<'_>, xattrs: &[Xattr]) -> Result<(), Failure> {
    for name in [acl::ACCESS, acl::DEFAULT] {
        if xattrs.iter().any(|xattr| xattr.name.as_c_str() == name) {
            continue;
        }
        match target.remove_xattr(name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::INVAL) => {}
            Err(errno) => return Err(("remove the inherited ACL of", errno)),
        }
    }
    Ok(())
}

/// Returns true if files created in `directory` inherit an ACL.
pub(crate) fn has_default_acl(directory: BorrowedFd<'_>) -> bool {
    fs::fgetxattr_query(directory, acl::DEFAULT).is_ok_and(|length| length > 0)
}

/// Removes the default ACL of a new directory, so that files created in it inherit none.
pub(crate) fn remove_default_acl(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fremovexattr(directory, acl::DEFAULT)
}

/// Reads an extended attribute. Returns `None` if it vanished since it was listed.
fn read_xattr(source: Subject<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    // Most are short. The kernel's limit is 64 KiB.
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

/// Sets an extended attribute. Returns true if it was refused.
fn set_xattr(
    target: Subject<'_>,
    xattr: &Xattr,
    refusals: &mut Vec<RefusedAttribute>,
) -> Result<bool, Failure> {
    match target.set_xattr(&xattr.name, &xattr.value) {
        Ok(()) => Ok(false),
        // The last three mean that this file system has less space for attributes than the
        // source's.
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

fn refused_xattr(name: &CStr, errno: Errno) -> RefusedAttribute {
    RefusedAttribute::new(format!("xattr {}", name.to_string_lossy()), errno.to_string())
}

/// Returns true on success. A refusal is recorded and returns false.
fn refuse_or_fail(
    result: Result<(), Errno>,
    operation: &'static str,
    what: impl Fn() -> String,
    refusals: &mut Vec<RefusedAttribute>,
) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(errno) if is_refusal(errno) => {
            refusals.push(RefusedAttribute::new(what(), errno.to_string()));
            Ok(false)
        }
        Err(errno) => Err((operation, errno)),
    }
}

/// Returns true for errnos that mean missing rights or support. `INVAL`: the owner is unknown in
/// this user namespace. `NOENT`: `/proc` is not mounted, through which names are accessed.
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

/// Reads the process's umask from `/proc`. The `umask` call would change it for all threads.
pub(crate) fn umask() -> Option<u32> {
    u32::from_str_radix(proc::field(&proc::own_status()?, "Umask")?, 8).ok()
}
