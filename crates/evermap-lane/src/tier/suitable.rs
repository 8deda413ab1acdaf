//! Which files can be placed, and why others cannot.

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
use serde::Serialize;

use super::copying::open_to_read;
use super::identity::Identity;
use super::layout::{kept_name, name_bytes_max};
use super::openers::{Opener, Openers, by_whom};
use super::path_text;
use super::slot::parent;
use super::storage::Storage;
use crate::Placement;
use crate::sys::lease::{self, Kept};

/// Why a file cannot be placed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Unsuitable {
    /// It is a directory.
    #[error("it is a directory: name its files, as with a pattern")]
    Directory,
    /// It is a device, a FIFO or a socket.
    #[error("it is no regular file")]
    Special,
    /// It has no contents.
    #[error("it is empty: nothing would be quicker")]
    Empty,
    /// It is on the tier's file system.
    #[error("it is on the tier already")]
    OnTier,
    /// Other names lead to it, which would not lead to the copy.
    #[error("{links} names lead to it, and only one would be switched: use mode `view`")]
    HardLinks {
        /// How many.
        links: u32,
    },
    /// Somebody has it open.
    #[error("it is open {}: end that first", by_whom(by))]
    Open {
        /// Who, as far as this user may know.
        by: Vec<Opener>,
    },
    /// It must not be changed.
    #[error("it is marked as unchangeable: `chattr -i -a` takes that away, or use mode `view`")]
    Immutable,
    /// The kernel swaps to it.
    #[error("the kernel swaps to it")]
    Swap,
    /// Its contents would lie unencrypted on the tier.
    #[error("it is encrypted, and its copy would not be")]
    Encrypted,
    /// The kernel verifies its contents.
    #[error("its contents are sealed by fs-verity, and its copy's would not be: use mode `view`")]
    Sealed,
    /// It runs with its owner's rights.
    #[error("it is a program that runs with its owner's rights, which a copy would not")]
    SetId,
    /// This user may not do it.
    #[error("{what}")]
    NotPermitted {
        /// What is not permitted, and what would be needed.
        what: String,
    },
    /// Others may read it, and could not on the tier.
    #[error("others who may read it could not reach {}: make that directory searchable for them (`chmod o+x`), or use mode `view`", directory.display())]
    Unreachable {
        /// Which directory keeps them out.
        #[serde(with = "path_text")]
        directory: PathBuf,
    },
    /// There is something at a name that is needed.
    #[error("there is something at {} already: move it away", name.display())]
    NameTaken {
        /// Which name.
        #[serde(with = "path_text")]
        name: PathBuf,
    },
    /// Its name leaves no room for the name beside it.
    #[error("its name is too long to have one beside it: {max_bytes} bytes are the longest")]
    NameTooLong {
        /// The longest.
        max_bytes: usize,
    },
}

/// A file that can be placed, if those who have it open allow it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Without links.
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// What it will take on the tier.
    pub(super) data_bytes: u64,
    device_and_inode: (u64, u64),
    opened: Opened,
}

/// What is known of others who have it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// Nobody who would be in the way.
    No,
    /// The kernel does not say: as far as `/proc` tells.
    Perhaps,
    Yes,
}

/// What does not change from file to file.
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

    /// Looks at a file. `path` is without links.
    pub(super) fn look(&self, path: &Path) -> Result<Candidate, Unsuitable> {
        // Not opened before it is known what it is: opening a device may do something.
        let found =
            fs::symlink_metadata(path).map_err(|error| not_permitted("look at it", &error))?;
        if found.is_dir() {
            return Err(Unsuitable::Directory);
        }
        if !found.is_file() {
            return Err(Unsuitable::Special);
        }
        let file = open_to_read(path).map_err(|errno| match errno {
            // Somebody has a lease on it, and is asked to give it back.
            Errno::AGAIN => Unsuitable::Open { by: Vec::new() },
            errno => not_permitted("read it", &errno.into()),
        })?;
        let (stat, identity) = Identity::with_stat(file.as_fd())
            .map_err(|errno| not_permitted("look at it", &errno.into()))?;
        self.check_file(&stat, &file, path)?;
        if self.mode == Placement::Switch {
            self.check_switch(&stat, path)?;
        }
        let opened = match self.mode {
            Placement::View => probe(&file, Kept::Writers),
            Placement::Switch => probe(&file, Kept::All),
        };
        if self.mode == Placement::Switch && opened == Opened::Perhaps {
            return Err(not_ones_own(&stat));
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

    /// What only a file that moves has to satisfy.
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
    /// Which of these nobody has open who would be in the way, and who has the others. Looks through `/proc` once, if at all.
    pub(super) fn settle(all: Vec<Self>) -> (Vec<Self>, Vec<(Self, Unsuitable)>) {
        let asked: Vec<_> = all
            .iter()
            .filter(|candidate| candidate.opened != Opened::No)
            .map(|candidate| candidate.device_and_inode)
            .collect();
        let openers = Openers::look(&asked);
        let (mut free, mut open) = (Vec::new(), Vec::new());
        for candidate in all {
            let by = openers.of(candidate.device_and_inode);
            let writes = |opener: &&Opener| opener.writes;
            let by: Vec<_> = match candidate.opened {
                Opened::No => Vec::new(),
                Opened::Perhaps => by.iter().filter(writes).cloned().collect(),
                Opened::Yes => by.to_vec(),
            };
            match candidate.opened == Opened::Yes || !by.is_empty() {
                true => open.push((candidate, Unsuitable::Open { by })),
                false => free.push(candidate),
            }
        }
        (free, open)
    }
}

/// Asks the kernel by a lease that is given back at once.
fn probe(file: &OwnedFd, kept: Kept) -> Opened {
    match lease::take(file.as_fd(), kept) {
        Ok(()) => {
            lease::release(file.as_fd());
            Opened::No
        }
        Err(Errno::AGAIN) => Opened::Yes,
        // Not one's own, or a file system without leases.
        Err(_) => Opened::Perhaps,
    }
}

fn not_ones_own(stat: &Statx) -> Unsuitable {
    let what = match stat.stx_uid == geteuid().as_raw() {
        true => {
            "its file system has no leases, so nobody can tell who has it open: use mode `view`"
                .into()
        }
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

/// What the data of a file take, rounded up to whole pages; its holes take nothing.
fn data_bytes(file: &OwnedFd, stat: &Statx) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let whole = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES);
    if stat.stx_blocks.saturating_mul(512) >= stat.stx_size {
        return whole(stat.stx_size);
    }
    extents(file.as_fd(), stat.stx_size, stat.stx_blocks * 512)
        .map_or(whole(stat.stx_size), |spans| spans.iter().map(|span| whole(span.bytes())).sum())
}
