//! Mappings of the file, and of a clone.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Stop;
use crate::job::Job;
use crate::plan::Method;
use crate::region::{Backing, Region};
use crate::sys::advice::SafeAdvice;
use crate::sys::clone::clone_file;

/// Maps the file by the given method.
pub(crate) fn map(job: &Job, method: Method) -> Result<Region, Stop> {
    Stop::if_unsized(job)?;
    let backing = match method {
        Method::MmapShared => Backing::FileReadOnly,
        _ => Backing::FilePrivate,
    };
    let part = &job.part;
    let source = &job.source;
    let region = Region::of_file(source.cached(), part.begin, part.memory_bytes(), backing)
        .map_err(|errno| match errno {
            Errno::NODEV => Stop::Refused("its file system does not support mapping".into()),
            errno => source.failed("map", errno).into(),
        })?;
    let all = 0..region.bytes();
    let advice = match method {
        Method::MmapHuge => Some(SafeAdvice::HugePages),
        Method::MmapWillneed => Some(SafeAdvice::WillNeed),
        Method::MmapPopulateRead => Some(SafeAdvice::PopulateRead),
        Method::MmapPopulateWrite => Some(SafeAdvice::PopulateWrite),
        _ => None,
    };
    if let Some(advice) = advice {
        let is_order = matches!(advice, SafeAdvice::PopulateRead | SafeAdvice::PopulateWrite);
        match region.advise(all.start, all.end, advice) {
            Err(Errno::FAULT) if is_order => {
                return Err(super::ended_early(job, part.from, part.bytes() as usize).into());
            }
            Err(Errno::INVAL) if is_order => {
                return Err(Stop::Refused(
                    "populating a mapping requires Linux 5.14 or later".into(),
                ));
            }
            Err(errno) if is_order => {
                return Err(source.failed("read in the pages of", errno).into());
            }
            // Best effort.
            _ => {}
        }
    }
    source.check()?;
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok(region)
}

/// Reads the pages of these ranges ahead, in the background.
pub(crate) fn read_ahead(region: &Region, ranges: &[std::ops::Range<usize>]) {
    for range in ranges {
        let (from, to) = (range.start.min(region.bytes()), range.end.min(region.bytes()));
        // Best effort.
        let _ = region.advise(from, to, SafeAdvice::WillNeed);
    }
}

/// Maps an unnamed clone of the file. Writes go to the clone, which is deleted with the mapping.
pub(crate) fn map_clone(job: &Job) -> Result<(Region, OwnedFd), Stop> {
    Stop::if_unsized(job)?;
    let source = &job.source;
    let directory = source.path().parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let clone = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| {
        Stop::Refused(format!("cannot create a clone in its directory: {errno}"))
    })?;
    clone_file(source.cached(), clone.as_fd())
        .map_err(|errno| Stop::Refused(format!("its file system cannot share blocks: {errno}")))?;
    // The clone must be of the version that was opened.
    source.check()?;
    let part = &job.part;
    let region =
        Region::of_file(clone.as_fd(), part.begin, part.memory_bytes(), Backing::FileShared)
            .map_err(|errno| source.failed("map a clone of", errno))?;
    let _ = region.advise(0, region.bytes(), SafeAdvice::HugePages);
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok((region, clone))
}
