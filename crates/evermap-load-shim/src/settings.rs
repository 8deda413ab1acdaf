//! Rules, and matching of open files to rules.

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

/// Environment variable with the text of the rules.
const VARIABLE: &str = "EVERMAP_LOAD_RULES";
/// Minimum file size. Setting up a load takes longer than reading smaller files.
pub(crate) const BYTES_MIN: usize = 1 << 20;

/// Text of the rules, copied before `main` because the program may change its environment.
static TEXT: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());
static RULES: AtomicPtr<Rules> = AtomicPtr::new(ptr::null_mut());

/// Copies the text of the rules and returns true if there is any. Parsing waits for the first large
/// file, because most programs read none.
pub(crate) fn read() -> bool {
    let Ok(text) = std::env::var(VARIABLE) else { return false };
    if text.trim().is_empty() {
        return false;
    }
    TEXT.store(Box::into_raw(Box::new(text)), Ordering::Release);
    true
}

/// Returns true if there are rules.
pub(crate) fn are_active() -> bool {
    !TEXT.load(Ordering::Relaxed).is_null()
}

/// Returns the parsed rules. Concurrent first callers all parse, and one result is kept. A lock
/// could be held by a thread that a forked child lacks.
fn rules() -> Option<&'static Rules> {
    let known = RULES.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: created by a box below and never freed.
        return Some(unsafe { &*known });
    }
    // SAFETY: null, or created by a box in `read` and never freed.
    let text = unsafe { TEXT.load(Ordering::Acquire).as_ref() }?;
    let (rules, error) = match Rules::parse(text) {
        Ok(rules) => (rules, None),
        Err(error) => (Rules::default(), Some(error)),
    };
    let ours = Box::into_raw(Box::new(rules));
    match RULES.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(error) = error {
                eprintln!("evermap: cannot parse {VARIABLE}, so no file is loaded: {error}");
            }
            // SAFETY: created by a box above and never freed.
            Some(unsafe { &*ours })
        }
        Err(theirs) => {
            // SAFETY: no other thread has seen `ours`; `theirs` was created by a box and is never
            // freed.
            unsafe {
                drop(Box::from_raw(ours));
                Some(&*theirs)
            }
        }
    }
}

/// Open file that matches a rule.
pub(crate) struct Match {
    pub(crate) path: PathBuf,
    pub(crate) rule: &'static Rule,
    pub(crate) version: Version,
    /// True if the file is open for reading only.
    pub(crate) is_read_only: bool,
}

impl Match {
    /// Returns true if the name still refers to this file.
    pub(crate) fn is_present(&self) -> bool {
        let is_it = |version: Version| {
            (version.device, version.inode) == (self.version.device, self.version.inode)
        };
        rustix::fs::stat(&self.path).is_ok_and(|stat| is_it(version(&stat)))
    }
}

/// Returns the rule for an open file: a regular file of some length, open for reading, with a name.
/// Costs three system calls, and for candidates a fourth and the matching of patterns.
pub(crate) fn file_of(fd: c_int) -> Option<Match> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the program uses the descriptor for its call. If it closes the descriptor
    // concurrently, the calls fail.
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

/// Returns the version of a file.
pub(crate) fn version(stat: &Stat) -> Version {
    Version {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: stat.st_size as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}
