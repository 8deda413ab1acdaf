//! Copies a symbolic link itself, without following it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attributes::{AttributeCopier, Attributes, InitialAttributes, Preserve, Subject};
use super::names::{c_name, file_name, parent_of, with_temporary_name};
use super::unfinished::lock_unfinished;
use crate::error::{Error, Result};
use crate::policy::Durability;
use crate::report::Report;

/// Makes `target` a symbolic link like `source`, replacing a non-directory.
pub(crate) fn copy_symlink(
    source: &Path,
    stat: &Stat,
    target: &Path,
    preserve: Preserve,
    durability: Durability,
) -> Result<Report> {
    let (source_directory, source_name) = open_parent(source)?;
    let (target_directory, target_name) = open_parent(target)?;
    let (from, to) = (source_directory.as_fd(), target_directory.as_fd());
    let failed = |operation| Error::io(operation, target);
    if let Ok(found) = fs::statat(to, &target_name, AtFlags::SYMLINK_NOFOLLOW) {
        if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) {
            return Err(Error::SameFile { source_path: source.into(), target_path: target.into() });
        }
        if fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::Directory {
            return Err(failed("replace the directory")(Errno::ISDIR));
        }
    }
    let leads_to = fs::readlinkat(from, &source_name, Vec::new())
        .map_err(Error::io("read the link", source))?;
    // A link has no lock of its own.
    lock_unfinished(to);
    let ((), temporary) =
        with_temporary_name(&target_name, |name| fs::symlinkat(&leads_to, to, name))
            .map_err(failed("create the link"))?;
    let mut refusals = Vec::new();
    let mut copier = AttributeCopier::for_single_file(preserve);
    let named = copier
        .xattrs(Subject::Named(from, &source_name), &mut refusals)
        .map_err(|(operation, errno)| Error::io(operation, source)(errno))
        .and_then(|xattrs| {
            let made = fs::statat(to, &temporary, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("read the attributes of"))?;
            let subject = Subject::Named(to, &temporary);
            copier
                .apply(
                    &Attributes::of(stat),
                    &xattrs,
                    subject,
                    &InitialAttributes::of(&made),
                    false,
                    &mut refusals,
                )
                .map_err(|(operation, errno)| failed(operation)(errno))?;
            fs::renameat(to, &temporary, to, &target_name).map_err(failed("publish"))
        });
    if let Err(error) = named {
        let _ = fs::unlinkat(to, &temporary, AtFlags::empty());
        return Err(error);
    }
    if durability != Durability::None {
        // A link cannot be opened, so the directory is flushed.
        fs::fsync(to).map_err(failed("flush the directory of"))?;
    }
    Ok(Report {
        not_kept: refusals.into_iter().map(|refusal| refusal.at(target)).collect(),
        ..Report::default()
    })
}

/// Opens the parent directory of a path. Returns it with the last component.
fn open_parent(path: &Path) -> Result<(rustix::fd::OwnedFd, std::ffi::CString)> {
    let (name, parent) = (file_name(path)?, parent_of(path));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::openat(CWD, parent, flags, Mode::empty())
        .map_err(Error::io("open the directory", parent))?;
    Ok((opened, c_name(name)?))
}
