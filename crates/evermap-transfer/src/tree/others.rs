//! Entries that are neither files nor directories: symbolic links, FIFOs, sockets, devices; and
//! further hard links.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use super::directory::{At, DeviceInode};
use super::links::Name;
use super::meter::TreeMeter;
use super::worker::Worker;
use crate::error::Result;
use crate::file::attributes::{Attributes, InitialAttributes, RefusedAttribute, Subject};

impl Worker<'_> {
    /// Copies a symbolic link itself.
    pub(super) fn symlink(&mut self, at: &At<'_>, stat: &Stat, has_links: bool) -> Result<()> {
        let leads_to = fs::readlinkat(&at.pair.source, at.name, Vec::new())
            .map_err(|errno| self.shared.source_error("read the link", at, errno))?;
        let ((), temporary) = self.make_at(at, "create the link", |target, name| {
            fs::symlinkat(&leads_to, target, name)
        })?;
        self.complete_named(at, stat, temporary, false, has_links)?;
        TreeMeter::count(&self.shared.meter.symlinks, 1);
        Ok(())
    }

    /// Recreates a FIFO, socket or device. If this user may not, that is recorded.
    pub(super) fn special(&mut self, at: &At<'_>, stat: &Stat, has_links: bool) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        let made = self.make_at(at, "create", |target, name| {
            match fs::mknodat(target, name, kind, mode, stat.st_rdev as _) {
                Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL)) => Ok(Err(errno)),
                other => other.map(Ok),
            }
        })?;
        match made {
            (Ok(()), temporary) => self.complete_named(at, stat, temporary, true, has_links)?,
            (Err(errno), _) => {
                let what = match kind {
                    FileType::Fifo => "FIFO",
                    FileType::Socket => "socket",
                    _ => "device",
                };
                self.refusals.push(RefusedAttribute::new(what, errno.to_string()));
                return Ok(());
            }
        }
        TreeMeter::count(&self.shared.meter.special, 1);
        Ok(())
    }

    /// Sets the attributes of an object that cannot be opened, then its name.
    fn complete_named(
        &mut self,
        at: &At<'_>,
        stat: &Stat,
        temporary: Option<CString>,
        has_mode: bool,
        has_links: bool,
    ) -> Result<()> {
        let name = temporary.as_deref().unwrap_or(at.name);
        let completed =
            self.apply_attributes_named(at, stat, name, has_mode).and_then(|()| match &temporary {
                Some(temporary) => self.shared.publish_file(at, temporary, has_links),
                None => Ok(()),
            });
        if completed.is_err() {
            let _ = fs::unlinkat(&at.pair.target, name, AtFlags::empty());
        }
        completed
    }

    fn apply_attributes_named(
        &mut self,
        at: &At<'_>,
        stat: &Stat,
        name: &CStr,
        has_mode: bool,
    ) -> Result<()> {
        let shared = self.shared;
        let source = Subject::Named(std::os::fd::AsFd::as_fd(&at.pair.source), at.name);
        let xattrs = self
            .copier
            .xattrs(source, &mut self.refusals)
            .map_err(|(operation, errno)| shared.source_error(operation, at, errno))?;
        let target = Subject::Named(std::os::fd::AsFd::as_fd(&at.pair.target), name);
        let made = fs::statat(&at.pair.target, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| shared.target_error("read the attributes of", at, errno))?;
        // Symbolic links have no ACLs.
        let made = InitialAttributes {
            may_have_acl: has_mode && at.directory.has_default_acl,
            ..InitialAttributes::of(&made)
        };
        self.copier
            .apply(&Attributes::of(stat), &xattrs, target, &made, has_mode, &mut self.refusals)
            .map_err(|(operation, errno)| shared.target_error(operation, at, errno))
    }

    /// Links to a copy of the same file made by an earlier `Copy`, if there is one.
    pub(super) fn link_shared(&mut self, at: &At<'_>, inode: DeviceInode) -> Result<bool> {
        let Some(links) = self.shared.options.links.clone() else { return Ok(false) };
        let link = |target: BorrowedFd<'_>, name: &CStr| Ok(links.link(inode, target, name));
        let (is_linked, temporary) = self.make_at(at, "create the link", link)?;
        if is_linked {
            self.publish_link(at, temporary)?;
        }
        Ok(is_linked)
    }

    fn publish_link(&self, at: &At<'_>, temporary: Option<CString>) -> Result<()> {
        if let Some(temporary) = temporary {
            let published = self.shared.publish_file(at, &temporary, true);
            if published.is_err() {
                let _ = fs::unlinkat(&at.pair.target, &temporary, AtFlags::empty());
            }
            published?;
        }
        TreeMeter::count(&self.shared.meter.links, 1);
        Ok(())
    }

    /// Links to the copy of the first name. Returns false if that is impossible. The caller then
    /// copies the file again.
    pub(super) fn link(&mut self, at: &At<'_>, first: &Name) -> Result<bool> {
        let shared = self.shared;
        // The first name's directory may be complete, inaccessible, or removed after a failure.
        let Ok(pair) = shared.descriptors.pair(&first.directory, &shared.roots) else {
            self.refusals.push(RefusedAttribute::new(
                "hard link",
                "the directory of the first name cannot be opened",
            ));
            return Ok(false);
        };
        let made = self.make_at(at, "create the link", |target, name| {
            match fs::linkat(&pair.target, &first.name, target, name, AtFlags::empty()) {
                Err(
                    errno @ (Errno::XDEV
                    | Errno::MLINK
                    | Errno::PERM
                    | Errno::ACCESS
                    | Errno::NOENT
                    | Errno::OPNOTSUPP),
                ) => Ok(Err(errno)),
                other => other.map(Ok),
            }
        })?;
        match made {
            (Ok(()), temporary) => {
                self.publish_link(at, temporary)?;
                Ok(true)
            }
            (Err(errno), _) => {
                self.refusals.push(RefusedAttribute::new("hard link", errno.to_string()));
                Ok(false)
            }
        }
    }
}
