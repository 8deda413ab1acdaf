//! Opens the root directories of a copy, and refuses invalid combinations.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{DIRECTORY, DeviceInode, Directory, Pair, Placement, identity};
use super::enter::inherited_acls;
use super::temporary_names::TemporaryNames;
use crate::error::{Error, Result};
use crate::file::attributes::{
    AttributeCopier, Attributes, InitialAttributes, RefusedAttribute, Subject, Xattr,
};
use crate::file::{create_and_lock, lock_unfinished, parent_of};

/// Symbolic links given by the user are followed. Links within the trees are not.
const NAMED_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// For directories that are only traversed.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Attempts to find a free name, or to open a directory that was removed meanwhile.
const ATTEMPTS: usize = 16;

/// The open root directories.
pub(super) struct Root {
    pub(super) directory: Arc<Directory>,
    pub(super) pair: Arc<Pair>,
    /// Parent directory of a new target.
    pub(super) target_parent: Option<OwnedFd>,
    pub(super) refusals: Vec<RefusedAttribute>,
}

impl Root {
    /// Opens the source, and opens or creates the target. If the copy is refused, nothing is
    /// created.
    pub(super) fn open(
        source_path: &Path,
        target_path: &Path,
        copier: &mut AttributeCopier,
    ) -> Result<Root> {
        let failed = |operation| Error::io(operation, source_path);
        let source = fs::openat(CWD, source_path, NAMED_DIRECTORY, Mode::empty())
            .map_err(failed("open the directory"))?;
        let stat = fs::fstat(&source).map_err(failed("read the attributes of"))?;
        let source_identity = identity(&stat);
        let mut refusals = Vec::new();
        let xattrs = copier
            .xattrs(Subject::Open(source.as_fd()), &mut refusals)
            .map_err(|(operation, errno)| failed(operation)(errno))?;
        let target = Target::find(source_path, source_identity, target_path)?;
        let target = target.open(target_path)?;
        let made =
            OpenSource { source, source_identity, attributes: Attributes::of(&stat), xattrs };
        let (parent, temporary) = (target.parent, target.temporary);
        let begun =
            made.directory(target.descriptor, target.name, temporary.clone(), target_path, copier);
        match (begun, temporary, &parent) {
            (Err(error), Some(temporary), Some(parent)) => {
                let _ = fs::unlinkat(parent, temporary, AtFlags::REMOVEDIR);
                Err(error)
            }
            (begun, ..) => {
                let (directory, pair) = begun?;
                Ok(Root { directory, pair, target_parent: parent, refusals })
            }
        }
    }
}

/// The open source with its attributes.
struct OpenSource {
    source: OwnedFd,
    source_identity: DeviceInode,
    attributes: Attributes,
    xattrs: Vec<Xattr>,
}

impl OpenSource {
    fn directory(
        self,
        target: OwnedFd,
        name: CString,
        temporary: Option<CString>,
        path: &Path,
        copier: &AttributeCopier,
    ) -> Result<(Arc<Directory>, Arc<Pair>)> {
        // A new one is locked already.
        if temporary.is_none() {
            lock_unfinished(target.as_fd());
        }
        let stat = fs::fstat(&target).map_err(Error::io("read the attributes of", path))?;
        let placement = temporary.map_or(Placement::Existing, Placement::New);
        let pair = Arc::new(Pair { source: self.source, target });
        let mut made = InitialAttributes::of(&stat);
        let (may_have_acl, has_default_acl) = inherited_acls(copier, &placement, &pair)
            .map_err(Error::io("remove the inherited ACL of", path))?;
        made.may_have_acl = may_have_acl;
        let identities = (self.source_identity, identity(&stat));
        let opened = Arc::clone(&pair);
        let directory = Directory::new(
            None,
            name,
            placement,
            self.attributes,
            self.xattrs,
            made,
            has_default_acl,
            identities,
            opened,
        );
        Ok((Arc::new(directory), pair))
    }
}

/// State of the target's name.
enum Target {
    Existing(OwnedFd),
    New { parent: OwnedFd, name: CString },
}

/// An open target.
struct OpenTarget {
    descriptor: OwnedFd,
    name: CString,
    parent: Option<OwnedFd>,
    temporary: Option<CString>,
}

impl Target {
    fn find(source_path: &Path, source: DeviceInode, path: &Path) -> Result<Target> {
        match fs::openat(CWD, path, NAMED_DIRECTORY, Mode::empty()) {
            Ok(target) => {
                if identity(&fs::fstat(&target).map_err(Error::io("read the attributes of", path))?)
                    == source
                {
                    return Err(Error::SameFile {
                        source_path: source_path.into(),
                        target_path: path.into(),
                    });
                }
                refuse_within(source_path, source, target.as_fd(), path)?;
                return Ok(Target::Existing(target));
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::io("open the directory", path)(errno)),
        }
        let Some(name) = path.file_name().and_then(|name| CString::new(name.as_bytes()).ok())
        else {
            return Err(Error::Usage(format!(
                "{} has no directory name: use a path that ends with one",
                path.display()
            )));
        };
        let parent_path = parent_of(path);
        let parent = fs::openat(CWD, parent_path, PASSED, Mode::empty())
            .map_err(Error::io("open the directory", parent_path))?;
        // The name exists but cannot be followed: a dangling symbolic link.
        if fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Error::io("replace the dangling symbolic link", path)(Errno::EXIST));
        }
        refuse_within(source_path, source, parent.as_fd(), path)?;
        Ok(Target::New { parent, name })
    }

    fn open(self, path: &Path) -> Result<OpenTarget> {
        let failed =
            |errno| super::shared::target_error("create the directory", path.to_path_buf(), errno);
        let (parent, name) = match self {
            Target::Existing(descriptor) => {
                return Ok(OpenTarget {
                    descriptor,
                    name: CString::default(),
                    parent: None,
                    temporary: None,
                });
            }
            Target::New { parent, name } => (parent, name),
        };
        let mut temporaries = TemporaryNames::new();
        let (descriptor, temporary) = create_and_lock(parent.as_fd(), || {
            create_and_open(parent.as_fd(), &name, &mut temporaries)
        })
        .map_err(failed)?;
        Ok(OpenTarget { descriptor, name, parent: Some(parent), temporary: Some(temporary) })
    }
}

/// Creates a directory with a temporary name. Tries again if `clean` removes it before it is
/// opened.
fn create_and_open(
    parent: BorrowedFd<'_>,
    name: &CStr,
    temporaries: &mut TemporaryNames,
) -> Result<(OwnedFd, CString), Errno> {
    let mut last = Errno::EXIST;
    for _ in 0..ATTEMPTS {
        let temporary = temporaries.name(name);
        match fs::mkdirat(parent, &temporary, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno),
        }
        match fs::openat(parent, &temporary, DIRECTORY, Mode::empty()) {
            Ok(descriptor) => return Ok((descriptor, temporary)),
            Err(Errno::NOENT) => last = Errno::NOENT,
            Err(errno) => {
                let _ = fs::unlinkat(parent, &temporary, AtFlags::REMOVEDIR);
                return Err(errno);
            }
        }
    }
    Err(last)
}

/// Refuses a target in or below the source, which would be copied into itself endlessly. Walks up
/// the target's parents by descriptor, because paths are not reliable.
fn refuse_within(
    source_path: &Path,
    source: DeviceInode,
    target: BorrowedFd<'_>,
    path: &Path,
) -> Result<()> {
    let failed = |errno: Errno| Error::io("check the parents of", path)(errno);
    let mut directory = fs::openat(target, c".", PASSED, Mode::empty()).map_err(failed)?;
    let mut at = identity(&fs::fstat(&directory).map_err(failed)?);
    loop {
        if at == source {
            return Err(Error::Usage(format!(
                "{} is inside {}: choose a target outside the source",
                path.display(),
                source_path.display()
            )));
        }
        directory = fs::openat(&directory, c"..", PASSED, Mode::empty()).map_err(failed)?;
        let above = identity(&fs::fstat(&directory).map_err(failed)?);
        if above == at {
            return Ok(());
        }
        at = above;
    }
}
