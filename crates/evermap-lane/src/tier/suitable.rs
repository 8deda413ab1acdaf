//! Decides which files can be placed, with the reason for each refusal.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use evermap_observe::extents;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, IFlags, Statx, StatxAttributes, accessat, ioctl_getflags,
    makedev,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::copying::open_to_read;
use super::identity::Identity;
use super::layout::{kept_name, name_bytes_max};
use super::openers::{Opener, Openers};
use super::refusal::Unsuitable;
use super::slot::parent;
use super::storage::Storage;
use crate::Placement;
use crate::sys::lease::{self, LeaseKind};

/// File that can be placed unless another process uses it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Path without symbolic links.
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// Space that it will need on the tier.
    pub(super) data_bytes: u64,
    device_and_inode: (u64, u64),
    opened: OpenState,
}

/// Use of the file by other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenState {
    /// No process uses the file in a way that prevents placing.
    No,
    /// The kernel did not say. `/proc` decides.
    Perhaps,
    Yes,
}

/// State shared by the checks of all files.
pub(super) struct Rules<'a> {
    pub(super) mode: Placement,
    pub(super) storage: &'a Storage,
    swaps: Vec<PathBuf>,
}

impl<'a> Rules<'a> {
    pub(super) fn new(mode: Placement, storage: &'a Storage) -> Self {
        let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let swaps = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
        Self { mode, storage, swaps: swaps.map(PathBuf::from).collect() }
    }

    /// Checks one file. `path` has no symbolic links.
    pub(super) fn check(&self, path: &Path) -> Result<Candidate, Unsuitable> {
        // Inspect before opening: opening a device can have side effects.
        let found =
            fs::symlink_metadata(path).map_err(|error| not_permitted("inspect it", &error))?;
        if found.is_dir() {
            return Err(Unsuitable::Directory);
        }
        if !found.is_file() {
            return Err(Unsuitable::Special);
        }
        let file = open_to_read(path).map_err(|errno| match errno {
            // Another process has a lease on it, and is asked to release it.
            Errno::AGAIN => Unsuitable::Open { by: Vec::new() },
            errno => not_permitted("read it", &errno.into()),
        })?;
        let (stat, identity) = Identity::with_stat(file.as_fd())
            .map_err(|errno| not_permitted("inspect it", &errno.into()))?;
        self.check_file(&stat, &file, path)?;
        if self.mode == Placement::Switch {
            self.check_switch(&stat, path)?;
        }
        let opened = match self.mode {
            Placement::View => probe(&file, LeaseKind::Read),
            Placement::Switch => probe(&file, LeaseKind::Write),
        };
        if self.mode == Placement::Switch && opened == OpenState::Perhaps {
            return Err(lease_refused(&stat));
        }
        Ok(Candidate {
            path: path.into(),
            identity,
            data_bytes: data_bytes(&file, &stat),
            device_and_inode: (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            opened,
        })
    }

    fn check_file(&self, stat: &Statx, file: &OwnedFd, path: &Path) -> Result<(), Unsuitable> {
        let has = |attribute| stat.stx_attributes.contains(attribute);
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return Err(Unsuitable::Special);
        }
        if stat.stx_size == 0 {
            return Err(Unsuitable::Empty);
        }
        if makedev(stat.stx_dev_major, stat.stx_dev_minor) == self.storage.device {
            return Err(Unsuitable::OnTier);
        }
        if self.swaps.iter().any(|swap| swap == path) {
            return Err(Unsuitable::Swap);
        }
        if has(StatxAttributes::ENCRYPTED) {
            return Err(Unsuitable::Encrypted);
        }
        if stat.stx_mode & 0o6000 != 0 {
            return Err(Unsuitable::SetId);
        }
        let is_fixed = has(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND)
            || ioctl_getflags(file)
                .is_ok_and(|flags| flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND));
        match self.mode {
            Placement::Switch if is_fixed => Err(Unsuitable::Immutable),
            Placement::Switch if has(StatxAttributes::VERITY) => Err(Unsuitable::Sealed),
            _ => Ok(()),
        }
    }

    /// Checks conditions that apply to mode `switch` only.
    fn check_switch(&self, stat: &Statx, path: &Path) -> Result<(), Unsuitable> {
        if stat.stx_nlink > 1 {
            return Err(Unsuitable::HardLinks { links: stat.stx_nlink });
        }
        let name = path.file_name().unwrap_or_default();
        if name.len() > name_bytes_max() {
            return Err(Unsuitable::NameTooLong { max_bytes: name_bytes_max() });
        }
        let directory = parent(path);
        let kept = directory.join(kept_name(name));
        if kept.symlink_metadata().is_ok() {
            return Err(Unsuitable::NameTaken { name: kept });
        }
        accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(
            |errno| not_permitted(&format!("write to {}", directory.display()), &errno.into()),
        )?;
        let reach = |path: &Path| {
            path.ancestors().find(|directory| !is_open_to_others(directory)).map(Path::to_path_buf)
        };
        match reach(&self.storage.path) {
            Some(closed) if stat.stx_mode & 0o077 != 0 && reach(directory).is_none() => {
                Err(Unsuitable::Unreachable { directory: closed })
            }
            _ => Ok(()),
        }
    }
}

impl Candidate {
    /// Splits candidates into those that can be placed and those that other processes have open.
    /// Scans `/proc` at most once.
    pub(super) fn split_by_openers(all: Vec<Self>) -> (Vec<Self>, Vec<(Self, Unsuitable)>) {
        let asked: Vec<_> = all
            .iter()
            .filter(|candidate| candidate.opened != OpenState::No)
            .map(|candidate| candidate.device_and_inode)
            .collect();
        let openers = Openers::scan(&asked);
        let (mut free, mut open) = (Vec::new(), Vec::new());
        for candidate in all {
            let by = openers.of(candidate.device_and_inode);
            let writes = |opener: &&Opener| opener.writes;
            let by: Vec<_> = match candidate.opened {
                OpenState::No => Vec::new(),
                OpenState::Perhaps => by.iter().filter(writes).cloned().collect(),
                OpenState::Yes => by.to_vec(),
            };
            match candidate.opened == OpenState::Yes || !by.is_empty() {
                true => open.push((candidate, Unsuitable::Open { by })),
                false => free.push(candidate),
            }
        }
        (free, open)
    }
}

/// Asks the kernel by taking a lease and releasing it at once.
fn probe(file: &OwnedFd, kind: LeaseKind) -> OpenState {
    match lease::take(file.as_fd(), kind) {
        Ok(()) => {
            lease::release(file.as_fd());
            OpenState::No
        }
        Err(Errno::AGAIN) => OpenState::Yes,
        // The file belongs to another user, or the file system has no leases.
        Err(_) => OpenState::Perhaps,
    }
}

fn lease_refused(stat: &Statx) -> Unsuitable {
    let what = match stat.stx_uid == geteuid().as_raw() {
        true => "its file system has no leases, so open files cannot be detected: use mode `view`"
            .into(),
        false => format!(
            "it belongs to user {}: only its owner and root can move it; use mode `view`",
            stat.stx_uid
        ),
    };
    Unsuitable::NotPermitted { what }
}

fn not_permitted(what: &str, error: &std::io::Error) -> Unsuitable {
    Unsuitable::NotPermitted { what: format!("this user cannot {what}: {error}") }
}

fn is_open_to_others(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| {
        std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o001 != 0
    })
}

/// Returns the space for the data of a file, rounded up to whole pages. Holes need no space.
fn data_bytes(file: &OwnedFd, stat: &Statx) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let whole = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES);
    if stat.stx_blocks.saturating_mul(512) >= stat.stx_size {
        return whole(stat.stx_size);
    }
    extents(file.as_fd(), stat.stx_size, stat.stx_blocks * 512)
        .map_or(whole(stat.stx_size), |spans| spans.iter().map(|span| whole(span.bytes())).sum())
}
