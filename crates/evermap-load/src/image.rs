//! The bytes of a file as memory.

use std::ops::{Deref, DerefMut, Range};
use std::path::Path;

use evermap_observe::Usage;

use crate::advise::{Advice, advise_on_demand, advise_whole, part_of};
use crate::error::Result;
use crate::methods::Job;
use crate::methods::on_demand::OnDemand;
use crate::methods::recorded::Recorded;
use crate::plan::{Choice, Method};
use crate::recording::Recording;
use crate::region::{Backing, Region};
use crate::replay::{self, RecordingUse};
use crate::report::{self, Report, Residency};

/// What an image is made of.
#[derive(Debug)]
pub(crate) enum Memory {
    /// All is there, as far as pages of a file are.
    Whole(Region),
    /// Windows come when they are touched, and before.
    OnDemand(OnDemand),
    /// Parts come when they are touched, and that is noted.
    Recorded(Recorded),
}

/// How far a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Progress {
    /// Bytes that can be used.
    pub loaded_bytes: u64,
    /// Bytes there will be.
    pub total_bytes: u64,
}

/// Memory that was an image's, see [`Image::into_mapping`]: a mapping that nobody unmaps but its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Where it begins: whole pages.
    pub address: *mut u8,
    /// How long it is: whole pages.
    pub bytes: usize,
    /// Where in it the first byte of the image is.
    pub image_at: usize,
    /// How many the image had. Behind them, up to the end of their page, are zeros, or what the file has there.
    pub image_bytes: usize,
}

/// The bytes of a file, or of a range of it, as memory of this process. What is written is never written to the file.
///
/// Looking at a byte of an image that comes on demand waits for it. If it cannot be had (the disk fails, or somebody changed the file), looking
/// at it raises `SIGBUS`: never are wrong bytes there. [`get`](Image::get), [`ensure`](Image::ensure) and [`wait`](Image::wait) give an error
/// instead, and what they let through never raises anything.
#[derive(Debug)]
pub struct Image {
    memory: Memory,
    job: Job,
    made: Made,
}

/// How an image was made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) choice: Choice,
    /// Tried before.
    pub(crate) refused: Vec<(Method, String)>,
    /// What it has cost to have it all there.
    pub(crate) usage: Usage,
    pub(crate) replay: replay::Plan,
    pub(crate) may_map: bool,
}

impl Image {
    pub(crate) fn new(job: Job, memory: Memory, made: Made) -> Image {
        Image { memory, job, made }
    }

    /// The file's name, as it was given.
    pub fn path(&self) -> &Path {
        self.job.source.path()
    }

    /// The method it was made by.
    pub fn method(&self) -> Method {
        self.made.choice.method
    }

    /// Why it was made as it was: the method, its reason, and what was tried before.
    pub fn why(&self) -> String {
        let mut text = format!("{}: {}", self.made.choice.method, self.made.choice.why);
        for (method, why) in &self.made.refused {
            text += &format!("; not {method}: {why}");
        }
        match &self.made.replay.used {
            Some(RecordingUse::Ignored(why)) => text += &format!("; recording ignored: {why}"),
            Some(RecordingUse::NotMade(why)) => text += &format!("; not recorded: {why}"),
            _ => {}
        }
        text
    }

    /// Waits until these bytes are there: system calls can be given them, and looking at them raises nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`](crate::Error::Unreadable), [`Error::Changed`](crate::Error::Changed),
    /// [`Error::ThreadsLost`](crate::Error::ThreadsLost); `NoSuchRange` beyond the image.
    pub fn ensure(&self, range: Range<usize>) -> Result<()> {
        let part = part_of(&self.job, &range)?;
        match &self.memory {
            Memory::Whole(_) => Ok(()),
            Memory::OnDemand(load) => load.ensure(self.job.part.windows_of(&range)),
            Memory::Recorded(load) => load.ensure(part),
        }
    }

    /// These bytes, when they are there.
    ///
    /// # Errors
    ///
    /// As [`ensure`](Image::ensure).
    pub fn get(&self, range: Range<usize>) -> Result<&[u8]> {
        self.ensure(range.clone())?;
        Ok(&self[range])
    }

    /// Has these bytes read before others, and waits for nothing. What is beyond the image is no matter.
    pub fn want(&self, range: Range<usize>) {
        let range = range.start.min(self.len())..range.end.min(self.len());
        if let Memory::OnDemand(load) = &self.memory {
            load.want(self.job.part.windows_of(&range));
        }
    }

    /// Waits until all of it is there. An image that is [recorded](crate::Loader::record) is there for whoever looks; only where
    /// [system calls](Image::serves_system_calls) need that, all of it is brought, and no more is recorded.
    ///
    /// # Errors
    ///
    /// As [`ensure`](Image::ensure).
    pub fn wait(&self) -> Result<()> {
        match &self.memory {
            Memory::Whole(_) => Ok(()),
            Memory::OnDemand(load) => load.wait(),
            Memory::Recorded(load) => load.wait(),
        }
    }

    /// Says what will be done with these bytes. Changes none of them.
    ///
    /// # Errors
    ///
    /// `NoSuchRange` beyond the image; errors of reading, where [`Advice::WriteSoon`] reads.
    pub fn advise(&mut self, range: Range<usize>, advice: Advice) -> Result<()> {
        let part = part_of(&self.job, &range)?;
        match &self.memory {
            Memory::Whole(region) => advise_whole(region, &self.job, part, advice),
            Memory::OnDemand(load) => {
                advise_on_demand(load, &self.job, part, advice, self.made.may_map)
            }
            // Nothing is done before it is noted that it is.
            Memory::Recorded(_) => Ok(()),
        }
    }

    /// What of it is in memory. Walks its page tables.
    pub fn residency(&self) -> Residency {
        report::residency(&self.job, self.region())
    }

    /// What was done, why, and what it cost. Costs what [`residency`](Image::residency) does.
    pub fn report(&self) -> Report {
        let usage = match &self.memory {
            Memory::Whole(_) => self.made.usage,
            Memory::OnDemand(load) => load.usage(),
            Memory::Recorded(load) => load.usage(),
        };
        let serves = match &self.memory {
            Memory::Whole(_) => true,
            Memory::OnDemand(load) => load.serves_system_calls(),
            Memory::Recorded(load) => load.serves_system_calls(),
        };
        report::report(&self.job, self.region(), &self.made, usage, serves)
    }

    /// How far the load is.
    pub fn progress(&self) -> Progress {
        Progress {
            loaded_bytes: self.job.counters.loaded_bytes().min(self.job.part.bytes()),
            total_bytes: self.job.part.bytes(),
        }
    }

    /// Whether system calls can be given bytes that are not there yet. If not, those give `EFAULT`: [`ensure`](Image::ensure) first.
    pub fn serves_system_calls(&self) -> bool {
        match &self.memory {
            Memory::Whole(_) => true,
            Memory::OnDemand(load) => load.serves_system_calls() || load.shared().is_over(),
            Memory::Recorded(load) => load.serves_system_calls(),
        }
    }

    /// How it was used until now, if that is [recorded](crate::Loader::record): at the end of its use, how it was used. Costs a walk over its page
    /// tables.
    pub fn recording(&self) -> Option<Recording> {
        match &self.memory {
            Memory::Recorded(load) => Some(load.recording()),
            _ => None,
        }
    }

    /// Whether the file is still what was loaded. Costs a system call.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`](crate::Error::Changed) says what happened to it.
    pub fn check(&self) -> Result<()> {
        self.job.source.check()
    }

    /// The bytes, to be changed.
    ///
    /// # Errors
    ///
    /// An image by `mmap-shared` becomes private now, which may fail for want of memory.
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
        // SAFETY: the slice is within the region, which this image alone has, and which nobody else looks at: threads that load
        // write where no page is yet.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(region.address().add(slice.start), slice.len())
        })
    }

    /// Saves what was noted until now where [`Loader::recording`](crate::Loader::recording) said, as dropping the image does: for whoever ends without
    /// that.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io): it cannot be written.
    #[cfg(feature = "files")]
    pub fn save_recording(&self) -> Result<()> {
        match (&self.made.replay.save, self.recording()) {
            (Some(path), Some(recording)) => recording.save(path),
            _ => Ok(()),
        }
    }

    /// Where its memory is. Others may not use it before the image is complete, nor longer than it lives.
    pub fn mapping(&self) -> Mapping {
        let (region, slice) = (self.region(), self.job.part.slice());
        Mapping {
            address: region.address(),
            bytes: region.bytes(),
            image_at: slice.start,
            image_bytes: slice.len(),
        }
    }

    /// Waits until it is complete, and gives away its memory: all else of the image, threads and descriptors, is gone.
    ///
    /// # Errors
    ///
    /// As [`ensure`](Image::ensure), with the image as it was.
    #[allow(
        clippy::result_large_err,
        reason = "an image that could not be given away is still one"
    )]
    pub fn into_mapping(self) -> Result<Mapping, (Image, crate::Error)> {
        // What was left out, too: nobody brings it later.
        self.want(0..self.len());
        let outcome = match &self.memory {
            Memory::Recorded(load) => load.finish(),
            _ => self.wait(),
        };
        if let Err(error) = outcome {
            return Err((self, error));
        }
        let mapping = self.mapping();
        self.region().give_away();
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
        // The next load records again, as the loader's description says.
        let _ = self.save_recording();
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slice = self.job.part.slice();
        // SAFETY: the slice is within the region, which lives as long as the image; its bytes don't change once they can be seen, or, where
        // the file is mapped, by the caller's promise (`may_map`).
        unsafe { std::slice::from_raw_parts(self.region().address().add(slice.start), slice.len()) }
    }
}

impl DerefMut for Image {
    /// # Panics
    ///
    /// Where [`bytes_mut`](Image::bytes_mut) gives an error: only for images by `mmap-shared`, without memory.
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.bytes_mut() {
            Ok(bytes) => bytes,
            Err(error) => panic!("{error}"),
        }
    }
}
