//! What is to be loaded: the rules, and which open file is meant by one.

use std::ffi::{OsStr, c_int};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use evermap_load::{Rule, Rules};
use rustix::fs::{FileType, OFlags, Stat};

use crate::table::Version;

/// The text of the rules.
const VARIABLE: &str = "EVERMAP_LOAD_RULES";
/// Shorter files are passed on: setting up a load takes longer than reading them.
pub(crate) const BYTES_MIN: usize = 1 << 20;

/// The text, from before `main`: the program may change its environment.
static TEXT: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());
static RULES: AtomicPtr<Rules> = AtomicPtr::new(ptr::null_mut());

/// Keeps the text of the rules; says whether there is any. Parsing waits for the first long file: most programs read none.
pub(crate) fn read() -> bool {
    let Ok(text) = std::env::var(VARIABLE) else { return false };
    if text.trim().is_empty() {
        return false;
    }
    TEXT.store(Box::into_raw(Box::new(text)), Ordering::Release);
    true
}

/// Whether anything is to be loaded at all.
pub(crate) fn are_active() -> bool {
    !TEXT.load(Ordering::Relaxed).is_null()
}

/// The rules. Threads that come first at once all parse them, and one keeps what it has: a lock could be held by a thread that a
/// forked child does not have.
fn rules() -> Option<&'static Rules> {
    let known = RULES.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: made by a box below, and never freed.
        return Some(unsafe { &*known });
    }
    // SAFETY: null, or made by a box in `read`, and never freed.
    let text = unsafe { TEXT.load(Ordering::Acquire).as_ref() }?;
    let (rules, error) = match Rules::parse(text) {
        Ok(rules) => (rules, None),
        Err(error) => (Rules::default(), Some(error)),
    };
    let ours = Box::into_raw(Box::new(rules));
    match RULES.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(error) = error {
                eprintln!("evermap: {VARIABLE} is not understood, and no file is loaded: {error}");
            }
            // SAFETY: as above.
            Some(unsafe { &*ours })
        }
        Err(theirs) => {
            // SAFETY: nobody else has seen ours; theirs is as above.
            unsafe {
                drop(Box::from_raw(ours));
                Some(&*theirs)
            }
        }
    }
}

/// A file that a rule is for.
pub(crate) struct Match {
    pub(crate) path: PathBuf,
    pub(crate) rule: &'static Rule,
    pub(crate) version: Version,
    /// It is open for reading only.
    pub(crate) is_read_only: bool,
}

impl Match {
    /// Whether its name still stands for it.
    pub(crate) fn is_there(&self) -> bool {
        let is_it = |version: Version| {
            (version.device, version.inode) == (self.version.device, self.version.inode)
        };
        rustix::fs::stat(&self.path).is_ok_and(|stat| is_it(version(&stat)))
    }
}

/// The rule for an open file: a regular one, open for reading, of some length, that has a name. Costs three system calls, a fourth and a match
/// of patterns for files that could be meant.
pub(crate) fn file_of(fd: c_int) -> Option<Match> {
    if fd < 0 {
        return None;
    }
    // SAFETY: not closed while the program calls with it; if it does that all the same, the calls fail.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    let access = flags & OFlags::RWMODE;
    if access == OFlags::WRONLY || flags.intersects(OFlags::PATH | OFlags::DIRECT) {
        return None;
    }
    let stat = rustix::fs::fstat(file).ok()?;
    let is_long = stat.st_size >= BYTES_MIN as i64;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular || !is_long || stat.st_nlink == 0 {
        return None;
    }
    let mut name = [MaybeUninit::uninit(); libc::PATH_MAX as usize];
    let link = format!("/proc/self/fd/{fd}");
    let (name, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut name).ok()?;
    let path = Path::new(OsStr::from_bytes(name));
    let rule = rules()?.find(path)?;
    (rule.unchanging() != Some(false)).then(|| Match {
        path: path.into(),
        rule,
        version: version(&stat),
        is_read_only: access == OFlags::RDONLY,
    })
}

/// Which version of which file.
pub(crate) fn version(stat: &Stat) -> Version {
    Version {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: stat.st_size as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}
