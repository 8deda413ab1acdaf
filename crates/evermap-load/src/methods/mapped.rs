//! Mappings of the file, and of a clone of it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Job, Stop};
use crate::plan::Method;
use crate::region::{Backing, Region};
use crate::sys::advice::Harmless;
use crate::sys::clone::clone_file;

/// Maps the file as `method` says.
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
            Errno::NODEV => Stop::Refused("files of its file system cannot be mapped".into()),
            errno => source.failed("map", errno).into(),
        })?;
    let all = 0..region.bytes();
    let advice = match method {
        Method::MmapHuge => Some(Harmless::HugePages),
        Method::MmapWillneed => Some(Harmless::WillNeed),
        Method::MmapPopulateRead => Some(Harmless::PopulateRead),
        Method::MmapPopulateWrite => Some(Harmless::PopulateWrite),
        _ => None,
    };
    if let Some(advice) = advice {
        let is_order = matches!(advice, Harmless::PopulateRead | Harmless::PopulateWrite);
        match region.advise(all.start, all.end, advice) {
            Err(Errno::FAULT) if is_order => {
                return Err(super::ended_early(job, part.from, part.bytes() as usize).into());
            }
            Err(Errno::INVAL) if is_order => {
                return Err(Stop::Refused("Linux 5.14 is the first to populate mappings".into()));
            }
            Err(errno) if is_order => {
                return Err(source.failed("read in the pages of", errno).into());
            }
            // Only advice.
            _ => {}
        }
    }
    source.check()?;
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok(region)
}

/// Has the pages of these ranges read in, in the background.
pub(crate) fn read_ahead(region: &Region, ranges: &[std::ops::Range<usize>]) {
    for range in ranges {
        let (from, to) = (range.start.min(region.bytes()), range.end.min(region.bytes()));
        // Only advice.
        let _ = region.advise(from, to, Harmless::WillNeed);
    }
}

/// Maps a clone of the file that has no name. What is written goes to the clone's pages, and away with them.
pub(crate) fn map_clone(job: &Job) -> Result<(Region, OwnedFd), Stop> {
    Stop::if_unsized(job)?;
    let source = &job.source;
    let directory = source.path().parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let clone = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| Stop::Refused(format!("no clone can be made beside it: {errno}")))?;
    clone_file(source.cached(), clone.as_fd())
        .map_err(|errno| Stop::Refused(format!("its file system shares no blocks: {errno}")))?;
    // What was cloned is the version that was opened, or it is no good.
    source.check()?;
    let part = &job.part;
    let region =
        Region::of_file(clone.as_fd(), part.begin, part.memory_bytes(), Backing::FileShared)
            .map_err(|errno| source.failed("map a clone of", errno))?;
    let _ = region.advise(0, region.bytes(), Harmless::HugePages);
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok((region, clone))
}
