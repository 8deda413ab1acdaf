//! Where a copy begins: both trees' uppermost directories, and whether they may be copied at all.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{DIRECTORY, DeviceInode, Directory, Pair, Place, identity};
use super::enter::inherited_acls;
use super::temporary::Temporary;
use crate::error::{Error, Result};
use crate::file::attributes::{Attributes, Keeper, Made, Refusal, Subject, Xattr};
use crate::file::{hold, make_and_hold};

/// Names that users give are followed if they are symbolic links; nothing within the trees is.
const NAMED_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// For directories that are only passed through.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How often a name is tried that is taken, or a directory that is removed before it is opened.
const ATTEMPTS: usize = 16;

/// The uppermost directories.
pub(super) struct Root {
    pub(super) directory: Arc<Directory>,
    pub(super) pair: Arc<Pair>,
    /// Where a new target gets its name.
    pub(super) target_parent: Option<OwnedFd>,
    pub(super) refusals: Vec<Refusal>,
}

impl Root {
    /// Opens the source, and opens or makes the target. Nothing is made when it is refused.
    pub(super) fn open(
        source_path: &Path,
        target_path: &Path,
        keeper: &mut Keeper,
    ) -> Result<Root> {
        let failed = |operation| Error::io(operation, source_path);
        let source = fs::openat(CWD, source_path, NAMED_DIRECTORY, Mode::empty())
            .map_err(failed("open the directory"))?;
        let stat = fs::fstat(&source).map_err(failed("look at"))?;
        let source_identity = identity(&stat);
        let mut refusals = Vec::new();
        let xattrs = keeper
            .xattrs(Subject::Open(source.as_fd()), &mut refusals)
            .map_err(|(operation, errno)| failed(operation)(errno))?;
        let target = Target::find(source_path, source_identity, target_path)?;
        let target = target.open(target_path)?;
        let made = Begun { source, source_identity, attributes: Attributes::of(&stat), xattrs };
        let (parent, temporary) = (target.parent, target.temporary);
        let begun =
            made.directory(target.descriptor, target.name, temporary.clone(), target_path, keeper);
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

/// The source, open.
struct Begun {
    source: OwnedFd,
    source_identity: DeviceInode,
    attributes: Attributes,
    xattrs: Vec<Xattr>,
}

impl Begun {
    fn directory(
        self,
        target: OwnedFd,
        name: CString,
        temporary: Option<CString>,
        path: &Path,
        keeper: &Keeper,
    ) -> Result<(Arc<Directory>, Arc<Pair>)> {
        // A new one is held already.
        if temporary.is_none() {
            hold(target.as_fd());
        }
        let stat = fs::fstat(&target).map_err(Error::io("look at", path))?;
        let place = temporary.map_or(Place::Existing, Place::Fresh);
        let pair = Arc::new(Pair { source: self.source, target });
        let mut made = Made::of(&stat);
        let (may_have_acl, gives_acls) = inherited_acls(keeper, &place, &pair)
            .map_err(Error::io("take the inherited ACL from", path))?;
        made.may_have_acl = may_have_acl;
        let identities = (self.source_identity, identity(&stat));
        let opened = Arc::clone(&pair);
        let directory = Directory::new(
            None,
            name,
            place,
            self.attributes,
            self.xattrs,
            made,
            gives_acls,
            identities,
            opened,
        );
        Ok((Arc::new(directory), pair))
    }
}

/// What a target's name stands for.
enum Target {
    Existing(OwnedFd),
    New { parent: OwnedFd, name: CString },
}

/// A target, open.
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
                if identity(&fs::fstat(&target).map_err(Error::io("look at", path))?) == source {
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
                "{} names no directory that could be made",
                path.display()
            )));
        };
        let parent_path = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let parent = fs::openat(CWD, &parent_path, PASSED, Mode::empty())
            .map_err(Error::io("open the directory", &parent_path))?;
        // Something is there that could not be opened by following it: a link that leads nowhere.
        if fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Error::io(
                "make a directory in the place of a symbolic link that leads nowhere,",
                path,
            )(Errno::EXIST));
        }
        refuse_within(source_path, source, parent.as_fd(), path)?;
        Ok(Target::New { parent, name })
    }

    fn open(self, path: &Path) -> Result<OpenTarget> {
        let failed =
            |errno| super::shared::target_error("make the directory", path.to_path_buf(), errno);
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
        let mut temporaries = Temporary::new();
        let (descriptor, temporary) = make_and_hold(parent.as_fd(), || {
            make_and_open(parent.as_fd(), &name, &mut temporaries)
        })
        .map_err(failed)?;
        Ok(OpenTarget { descriptor, name, parent: Some(parent), temporary: Some(temporary) })
    }
}

/// Makes a directory under a temporary name. It may be removed by `clean` before it is opened, and is made anew then.
fn make_and_open(
    parent: BorrowedFd<'_>,
    name: &CStr,
    temporaries: &mut Temporary,
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

/// Refuses a target in or under the source, which would be copied into itself for ever. Its parents are followed up to the
/// uppermost one by descriptors: what a path looks like says nothing.
fn refuse_within(
    source_path: &Path,
    source: DeviceInode,
    target: BorrowedFd<'_>,
    path: &Path,
) -> Result<()> {
    let failed = |errno: Errno| Error::io("look at the parents of", path)(errno);
    let mut directory = fs::openat(target, c".", PASSED, Mode::empty()).map_err(failed)?;
    let mut at = identity(&fs::fstat(&directory).map_err(failed)?);
    loop {
        if at == source {
            return Err(Error::Usage(format!(
                "{} lies in {}: a tree is not copied into itself; name a target elsewhere",
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
