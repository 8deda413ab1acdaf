//! Ways to perform the steps: an object of a store, and a mapped file with weaker or equal
//! promises.
//!
//! An object's length covers its blocks and its reserved space. So between the clocks a new object
//! is filled with one block, in which nothing is stored, and extending it must find new space.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use evermap::{RawSession, Store};

use harness::Outcome;
use harness::files::checked;

const NAME: &str = "object";
/// Upper bound for the size of an object.
const RANGE_BYTES: usize = 1 << 30;

/// One object or file; the steps run in the order of [`super::STEPS`].
pub trait Object {
    /// Performs one step: creates the object with `bytes` bytes and leaves it mapped, unmaps it,
    /// maps it, extends it by the same size, undoes that, or deletes it.
    fn step(&mut self, step: &str, bytes: u64) -> Outcome;

    /// Uses all space of a created object; not in the clock.
    fn fill(&mut self, bytes: u64) -> Outcome;

    /// Returns the size of its file, while it is open.
    fn length(&self) -> Outcome<u64>;

    /// Removes the files of this way after the object was deleted.
    fn end(&mut self) -> Outcome;
}

/// Store with one object.
pub struct Objects {
    store: Store,
    folder: PathBuf,
    session: Option<RawSession>,
}

impl Objects {
    pub fn new(folder: &Path) -> Outcome<Objects> {
        let folder = folder.join("store");
        Ok(Objects { store: Store::create_new(&folder)?, folder, session: None })
    }

    fn session(&mut self) -> Outcome<&mut RawSession> {
        self.session.as_mut().ok_or_else(|| "the object is not open".into())
    }
}

impl Object for Objects {
    fn step(&mut self, step: &str, bytes: u64) -> Outcome {
        match step {
            "create" => {
                self.store.create_raw_sized(NAME, bytes)?;
                self.session = Some(self.store.write_raw(NAME)?);
                Ok(())
            }
            "map" | "map again" => {
                self.session = Some(self.store.write_raw(NAME)?);
                Ok(())
            }
            "extend" => Ok(self.session()?.reserve(bytes)?),
            "reduce" => Ok(self.session()?.release(bytes).map(drop)?),
            "delete" => Ok(self.store.remove(NAME)?),
            _ => {
                let session = self.session.take().ok_or("the object is not open")?;
                Ok(session.close()?)
            }
        }
    }

    fn fill(&mut self, bytes: u64) -> Outcome {
        let session = self.session()?;
        session.heap().allocate(bytes as usize, 16)?;
        session.commit()?;
        Ok(())
    }

    fn length(&self) -> Outcome<u64> {
        Ok(self.session.as_ref().ok_or("the object is not open")?.info()?.file_bytes)
    }

    fn end(&mut self) -> Outcome {
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }
}

/// File, mapped shared at addresses that are reserved for it.
pub struct Files {
    folder: PathBuf,
    /// Reserves blocks, and flushes the folder when a name is added or removed.
    durable: bool,
    place: *mut libc::c_void,
    open: Option<(File, usize)>,
}

impl Files {
    pub fn new(folder: &Path, durable: bool) -> Outcome<Files> {
        let folder = folder.join(if durable { "files-durable" } else { "files" });
        std::fs::create_dir(&folder)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let place = std::ptr::null_mut();
        // SAFETY: creates a new mapping at an address that the kernel chooses.
        let place = unsafe { libc::mmap(place, RANGE_BYTES, libc::PROT_NONE, flags, -1, 0) };
        match place == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error().into()),
            false => Ok(Files { folder, durable, place, open: None }),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    fn open(&self) -> Outcome<&(File, usize)> {
        self.open.as_ref().ok_or_else(|| "the file is not open".into())
    }

    fn flush_folder(&self) -> io::Result<()> {
        if self.durable { File::open(&self.folder)?.sync_all() } else { Ok(()) }
    }

    fn set_length(&self, file: &File, from: usize, to: usize) -> io::Result<()> {
        if !self.durable || to < from {
            return file.set_len(to as u64);
        }
        // SAFETY: `fallocate` takes no pointers.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, from as i64, (to - from) as i64) };
        checked(result as isize).map(drop)
    }

    /// Maps the bytes between two offsets of the file.
    fn map(&self, file: &File, from: usize, to: usize) -> io::Result<()> {
        let place = self.place.wrapping_byte_add(from);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = file.as_raw_fd();
        // SAFETY: the range is inside this value's reserved addresses.
        let mapped = unsafe { libc::mmap(place, to - from, protection, flags, fd, from as i64) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Unmaps the bytes but keeps the addresses reserved: the kernel would give a gap to the next
    /// thread's stack.
    fn unmap(&self, from: usize, to: usize) -> io::Result<()> {
        let place = self.place.wrapping_byte_add(from);
        let kept = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is inside this value's reserved addresses, and no reference to it
        // remains.
        let place = unsafe { libc::mmap(place, to - from, libc::PROT_NONE, kept, -1, 0) };
        if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn options() -> OpenOptions {
        OpenOptions::new().read(true).write(true).clone()
    }
}

impl Object for Files {
    fn step(&mut self, step: &str, bytes: u64) -> Outcome {
        let bytes = bytes as usize;
        match step {
            "create" => {
                let file = Files::options().create_new(true).open(self.path())?;
                self.set_length(&file, 0, bytes)?;
                self.map(&file, 0, bytes)?;
                file.sync_all()?;
                self.flush_folder()?;
                self.open = Some((file, bytes));
            }
            "map" | "map again" => {
                let file = Files::options().open(self.path())?;
                let length = file.metadata()?.len() as usize;
                self.map(&file, 0, length)?;
                self.open = Some((file, length));
            }
            "extend" => {
                let (file, length) = self.open()?;
                let longer = length + bytes;
                self.set_length(file, *length, longer)?;
                self.map(file, *length, longer)?;
                file.sync_all()?;
                self.open = self.open.take().map(|(file, _)| (file, longer));
            }
            "reduce" => {
                let (file, length) = self.open()?;
                let shorter = length - bytes;
                self.unmap(shorter, *length)?;
                self.set_length(file, *length, shorter)?;
                file.sync_all()?;
                self.open = self.open.take().map(|(file, _)| (file, shorter));
            }
            "delete" => {
                std::fs::remove_file(self.path())?;
                self.flush_folder()?;
            }
            _ => {
                let (_file, length) = self.open.take().ok_or("the file is not open")?;
                self.unmap(0, length)?;
            }
        }
        Ok(())
    }

    fn fill(&mut self, _: u64) -> Outcome {
        Ok(())
    }

    fn length(&self) -> Outcome<u64> {
        Ok(self.open()?.0.metadata()?.len())
    }

    fn end(&mut self) -> Outcome {
        Ok(std::fs::remove_dir(&self.folder)?)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this value, and no reference to it remains.
        unsafe { libc::munmap(self.place, RANGE_BYTES) };
    }
}
