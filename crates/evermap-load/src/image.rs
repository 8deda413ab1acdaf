//! A file's bytes as memory.

use std::ops::{Deref, DerefMut, Range};
use std::path::Path;

use crate::advise::{Advice, advise_on_demand, advise_whole, part_of};
use crate::error::Result;
use crate::history::LoadHistory;
use crate::job::Job;
use crate::methods::on_demand::OnDemand;
use crate::methods::recorded::Recorded;
use crate::plan::Method;
use crate::recording::Recording;
use crate::region::{Backing, Region};
use crate::replay::RecordingUse;
use crate::report::{self, Report, Residency};

/// Memory of an image.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Complete. Pages of mapped files may still fault.
    Whole(Region),
    /// Windows are loaded in the background and on first access.
    OnDemand(OnDemand),
    /// Windows are loaded on first access only, and recorded.
    Recorded(Recorded),
}

/// Progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Progress {
    /// Bytes that are loaded.
    pub loaded_bytes: u64,
    /// Total bytes to load.
    pub total_bytes: u64,
}

/// Memory of an image. After [`Image::into_mapping`] the caller must unmap it, unless `bytes` is 0.
/// After [`Image::mapping`] it still belongs to the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Start address, page-aligned unless `bytes` is 0.
    pub address: *mut u8,
    /// Length in bytes, a multiple of the page size.
    pub bytes: usize,
    /// Offset of the image's first byte.
    pub image_at: usize,
    /// Length of the image. The rest of its last page holds zeros or more bytes of the file.
    pub image_bytes: usize,
}

/// The bytes of a file, or a range of it, as memory of this process. Writes never reach the file.
///
/// Accessing a byte of an on-demand image waits until it is loaded. If it cannot be loaded because
/// the disk fails or the file has changed, the access raises `SIGBUS`; wrong bytes are never
/// visible. [`get`](Image::get), [`ensure`](Image::ensure) and [`wait`](Image::wait) return an
/// error instead, and bytes that they have returned never raise a signal.
#[derive(Debug)]
pub struct Image {
    memory: Memory,
    job: Job,
    history: LoadHistory,
}

impl Image {
    pub(crate) fn new(job: Job, memory: Memory, history: LoadHistory) -> Image {
        Image { memory, job, history }
    }

    /// Returns the file's name as given.
    pub fn path(&self) -> &Path {
        self.job.source.path()
    }

    /// Returns the method that loaded the image.
    pub fn method(&self) -> Method {
        self.history.choice.method
    }

    /// Describes the method, the reason for it, and the methods tried before.
    pub fn why(&self) -> String {
        let mut text = format!("{}: {}", self.history.choice.method, self.history.choice.why);
        for (method, why) in &self.history.refused {
            text += &format!("; not {method}: {why}");
        }
        match &self.history.replay.used {
            Some(RecordingUse::Ignored(why)) => text += &format!("; recording ignored: {why}"),
            Some(RecordingUse::NotMade(why)) => text += &format!("; not recorded: {why}"),
            _ => {}
        }
        text
    }

    /// Waits until these bytes are loaded. Afterwards they can be passed to system calls, and an
    /// access raises no signal.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`](crate::Error::Unreadable), [`Error::Changed`](crate::Error::Changed),
    /// [`Error::ThreadsLost`](crate::Error::ThreadsLost), or `NoSuchRange` beyond the image.
    pub fn ensure(&self, range: Range<usize>) -> Result<()> {
        let part = part_of(&self.job, &range)?;
        match &self.memory {
            Memory::Whole(_) => Ok(()),
            Memory::OnDemand(load) => load.ensure(self.job.part.windows_of(&range)),
            Memory::Recorded(load) => load.ensure(part),
        }
    }

    /// Returns these bytes once they are loaded.
    ///
    /// # Errors
    ///
    /// Same errors as [`ensure`](Image::ensure).
    pub fn get(&self, range: Range<usize>) -> Result<&[u8]> {
        self.ensure(range.clone())?;
        Ok(&self[range])
    }

    /// Loads these bytes of an on-demand image before others, without waiting. Ignores bytes beyond
    /// the image. No effect on other images.
    pub fn want(&self, range: Range<usize>) {
        let range = range.start.min(self.len())..range.end.min(self.len());
        if let Memory::OnDemand(load) = &self.memory {
            load.want(self.job.part.windows_of(&range));
        }
    }

    /// Waits until the whole image is loaded, except windows left out by [`Advice::Never`]. Returns
    /// at once for a [recorded](crate::Loader::record) image, which loads on every access, unless
    /// [system calls](Image::serves_system_calls) cannot fault its pages in. Then the whole image
    /// is loaded and recording ends.
    ///
    /// # Errors
    ///
    /// Same errors as [`ensure`](Image::ensure).
    pub fn wait(&self) -> Result<()> {
        match &self.memory {
            Memory::Whole(_) => Ok(()),
            Memory::OnDemand(load) => load.wait(),
            Memory::Recorded(load) => load.wait(),
        }
    }

    /// Gives advice about the use of these bytes. Changes no contents.
    ///
    /// # Errors
    ///
    /// `NoSuchRange` beyond the image, read errors and lack of memory if [`Advice::WriteSoon`]
    /// reads, and [`Error::Io`](crate::Error::Io) if [`Advice::ReadOnly`] cannot map.
    pub fn advise(&mut self, range: Range<usize>, advice: Advice) -> Result<()> {
        let part = part_of(&self.job, &range)?;
        match &self.memory {
            Memory::Whole(region) => advise_whole(region, &self.job, part, advice),
            Memory::OnDemand(load) => {
                advise_on_demand(load, &self.job, part, advice, self.history.may_map)
            }
            // A recorded image loads nothing before it is accessed.
            Memory::Recorded(_) => Ok(()),
        }
    }

    /// Returns how much of the image is in memory. Walks its page tables.
    pub fn residency(&self) -> Residency {
        report::residency(&self.job, self.region())
    }

    /// Reports the method, the reason and the cost. Costs as much as
    /// [`residency`](Image::residency).
    pub fn report(&self) -> Report {
        let usage = match &self.memory {
            Memory::Whole(_) => self.history.usage,
            Memory::OnDemand(load) => load.usage(),
            Memory::Recorded(load) => load.usage(),
        };
        let serves = match &self.memory {
            Memory::Whole(_) => true,
            Memory::OnDemand(load) => load.serves_system_calls(),
            Memory::Recorded(load) => load.serves_system_calls(),
        };
        report::report(&self.job, self.region(), &self.history, usage, serves)
    }

    /// Returns the progress of the load.
    pub fn progress(&self) -> Progress {
        Progress {
            loaded_bytes: self.job.counters.loaded_bytes().min(self.job.part.bytes()),
            total_bytes: self.job.part.bytes(),
        }
    }

    /// Returns true if system calls can use bytes that are not loaded yet. Otherwise they fail with
    /// `EFAULT`, so call [`ensure`](Image::ensure) first.
    pub fn serves_system_calls(&self) -> bool {
        match &self.memory {
            Memory::Whole(_) => true,
            Memory::OnDemand(load) => load.serves_system_calls() || load.shared().is_over(),
            Memory::Recorded(load) => load.serves_system_calls(),
        }
    }

    /// Returns how the image has been used so far, if it is [recorded](crate::Loader::record). Call
    /// this at the end of its use. Walks its page tables.
    pub fn recording(&self) -> Option<Recording> {
        match &self.memory {
            Memory::Recorded(load) => Some(load.recording()),
            _ => None,
        }
    }

    /// Checks that the file is still the loaded version. Costs one system call.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`](crate::Error::Changed) with the kind of change.
    pub fn check(&self) -> Result<()> {
        self.job.source.check()
    }

    /// Returns the bytes for writing.
    ///
    /// # Errors
    ///
    /// An image loaded by `mmap-shared` becomes private on the first call, which can fail for lack
    /// of memory.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if let Memory::Whole(region) = &mut self.memory
            && region.backing() == Backing::FileReadOnly
        {
            let source = &self.job.source;
            region
                .make_writable(source.cached(), self.job.part.begin)
                .map_err(|errno| source.failed("make private the mapping of", errno))?;
        }
        let slice = self.job.part.slice();
        let region = self.region();
        // SAFETY: the slice is within the region, which belongs to this image alone and is borrowed
        // mutably. Loading threads write only to pages that are not mapped yet.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(region.address().add(slice.start), slice.len())
        })
    }

    /// Saves the recording so far to the file given to
    /// [`Loader::recording`](crate::Loader::recording), as dropping the image does. For programs
    /// that end without dropping it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if it cannot be written.
    #[cfg(feature = "files")]
    pub fn save_recording(&self) -> Result<()> {
        match (&self.history.replay.save, self.recording()) {
            (Some(path), Some(recording)) => recording.save(path),
            _ => Ok(()),
        }
    }

    /// Returns the image's memory, which stays the image's. Other users must wait until the image
    /// is complete, and must not use it after the image is dropped.
    pub fn mapping(&self) -> Mapping {
        let (region, slice) = (self.region(), self.job.part.slice());
        Mapping {
            address: region.address(),
            bytes: region.bytes(),
            image_at: slice.start,
            image_bytes: slice.len(),
        }
    }

    /// Waits until the image is complete, and releases its memory. Threads and descriptors of the
    /// image are closed.
    ///
    /// # Errors
    ///
    /// Same errors as [`ensure`](Image::ensure), together with the unchanged image.
    #[allow(clippy::result_large_err, reason = "the image stays usable after an error")]
    pub fn into_mapping(self) -> Result<Mapping, (Image, crate::Error)> {
        // Also load the windows left out so far, because no thread would load them later.
        self.want(0..self.len());
        let outcome = match &self.memory {
            Memory::Recorded(load) => load.finish(),
            _ => self.wait(),
        };
        if let Err(error) = outcome {
            return Err((self, error));
        }
        let mapping = self.mapping();
        self.region().release_ownership();
        Ok(mapping)
    }

    fn region(&self) -> &Region {
        match &self.memory {
            Memory::Whole(region) => region,
            Memory::OnDemand(load) => &load.shared().region,
            Memory::Recorded(load) => &load.shared().region,
        }
    }
}

#[cfg(feature = "files")]
impl Drop for Image {
    fn drop(&mut self) {
        // Errors are ignored: the next load records again, as documented at the loader.
        let _ = self.save_recording();
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slice = self.job.part.slice();
        // SAFETY: the slice is within the region, which lives as long as the image. Visible bytes
        // do not change, or, in a mapped file, the caller guarantees it (`may_map`).
        unsafe { std::slice::from_raw_parts(self.region().address().add(slice.start), slice.len()) }
    }
}

impl DerefMut for Image {
    /// # Panics
    ///
    /// Panics if [`bytes_mut`](Image::bytes_mut) fails: only for images loaded by `mmap-shared`,
    /// without memory.
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.bytes_mut() {
            Ok(bytes) => bytes,
            Err(error) => panic!("{error}"),
        }
    }
}
