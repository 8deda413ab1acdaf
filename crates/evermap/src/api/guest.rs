//! Guest objects: mapped into a sandbox's linear memory, where a guest's own program uses them.
//!
//! A host opens them here and says where the memory is; which guest may have which object is its
//! own concern. In one process the same object may be mapped into several memories, one of them for
//! writing, as it may be by several processes. Addresses of guest objects are guest addresses and no
//! concern of the catalog: whoever hands them out is given as [`GuestAddresses`].

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::application::{ApplicationKey, check_application};
use super::batch::Batch;
pub use super::guest_readers::GuestReaders;
use super::home::Use;
use super::info::ObjectInfo;
use super::inner::Inner;
use super::options::Verify;
use super::store::Store;
use crate::address::{AddressSpace, AnonymousRange, Mapping, Vacancy};
use crate::at_fork;
use crate::commit::WriteOptions;
use crate::error::{Error, Result};
use crate::format::{CHUNK_BYTES, GuestRecord, PAGE_BYTES, RegionRecord, Superblock};
use crate::object::{
    Addresses, Displacement, Environment, GuestDraft, GuestWriter, ObjectPaths, Reader,
    ReadyObject, ReadySnapshot, Writes, lease_of,
};

/// Bytes of a pointer in a guest object.
const POINTER_BYTES: u32 = 4;
/// Version of what guests rely on.
const GUEST_VERSION: u32 = 1;

/// The guest addresses that objects may have.
///
/// ```
/// let window = evermap::guest::GuestWindow::default();
/// assert_eq!(window.addresses(), 0x1000_0000..0x5000_0000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestWindow {
    base: u64,
    bytes: u64,
}

impl Default for GuestWindow {
    /// 256 MiB to 1.25 GiB.
    fn default() -> GuestWindow {
        GuestWindow { base: 0x1000_0000, bytes: 0x4000_0000 }
    }
}

impl GuestWindow {
    /// First address, and the one behind the last.
    pub fn addresses(&self) -> Range<u64> {
        self.base..self.base + self.bytes
    }

    fn record(&self) -> GuestRecord {
        GuestRecord {
            pointer_bytes: POINTER_BYTES,
            version: GUEST_VERSION,
            window_base: self.base,
            window_bytes: self.bytes,
            reserved0: 0,
        }
    }
}

/// Hands out guest addresses. They are given for good: who hands them out records them durably
/// before it returns, and never gives them twice to those who could meet.
pub trait GuestAddresses: Send + Sync {
    /// `bytes` addresses of the window, a multiple of 4 MiB from a multiple of 4 MiB.
    ///
    /// # Errors
    /// `OutOfAddresses` when the window or a quota is used up.
    fn lease(&self, bytes: u64) -> Result<u64>;

    /// The object does not have this lease after all: no commit of it ever had, and nothing is mapped
    /// there. The same object may be given it again, and no other.
    fn give_up(&self, _base: u64, _bytes: u64) {}
}

/// The window of one guest's linear memory, into which objects are mapped.
///
/// Clones are the same memory.
#[derive(Clone, Debug)]
pub struct GuestMemory {
    space: Arc<AddressSpace>,
    memory_base: u64,
    window: GuestWindow,
}

/// What a guest finds in its window where no object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapped {
    /// Zeros, and memory of its own once it stores there, as anywhere in a linear memory.
    #[default]
    Zeros,
    /// A fault.
    Hole,
}

impl GuestMemory {
    /// The window of a linear memory whose address zero is at `memory_base` in this process. Nothing
    /// is mapped yet.
    ///
    /// # Errors
    /// `Unsupported` when the memory does not begin at a page.
    ///
    /// # Safety
    /// The window's part of the memory is mapped, private and anonymous, and stays so, at this place,
    /// as long as this value, its clones and what is opened with them live. Nobody in this
    /// process has a Rust reference into it.
    pub unsafe fn new(
        memory_base: NonNull<u8>,
        window: GuestWindow,
        unmapped: Unmapped,
    ) -> Result<GuestMemory> {
        let memory_base = memory_base.as_ptr().expose_provenance() as u64;
        if !memory_base.is_multiple_of(PAGE_BYTES) {
            return Err(Error::Unsupported {
                why: format!("the linear memory at {memory_base:#x} does not begin at a page"),
            });
        }
        let vacancy = match unmapped {
            Unmapped::Zeros => Vacancy::Zeros,
            Unmapped::Hole => Vacancy::Hole,
        };
        let base = Displacement::by(memory_base).to_here(window.base);
        // SAFETY: the caller's promise.
        let space = unsafe { AddressSpace::lent("the guest window", base, window.bytes, vacancy) };
        if unmapped == Unmapped::Hole {
            // A claim that ends leaves what the space has where nothing is mapped.
            drop(space.claim(base, window.bytes)?);
        }
        Ok(GuestMemory { space, memory_base, window })
    }

    /// Which guest addresses it has.
    pub fn window(&self) -> GuestWindow {
        self.window
    }

    /// Ends snapshots of this memory all at once, which costs less than one by one: for a guest that
    /// has ended. What it stored between them, where no object is, goes as well.
    pub fn end_all(&self, snapshots: Vec<GuestSnapshot>) {
        self.space.clear_all(snapshots.iter().flat_map(GuestSnapshot::mappings));
    }

    /// Maps what is ready; `None` where it is to be opened anew.
    pub(super) fn map_ready(
        &self,
        ready: &Arc<ReadyObject>,
        reading: GuestReading,
    ) -> Result<Option<GuestSnapshot>> {
        let here = Displacement::by(self.memory_base);
        let mapped = ready.map(&self.space, here, reading.writes())?;
        Ok(mapped.map(|snapshot| GuestSnapshot(Mapped::Ready(snapshot))))
    }

    fn environment(&self, inner: &Arc<Inner>, addresses: &Arc<dyn GuestAddresses>) -> Environment {
        let here = Displacement::by(self.memory_base);
        Environment {
            storage: Arc::clone(&inner.storage),
            space: Arc::clone(&self.space),
            addresses: Arc::new(Displaced { here, addresses: Arc::clone(addresses) }),
            guest: Some(here),
        }
    }
}

/// Guest addresses where they are in this process.
struct Displaced {
    here: Displacement,
    addresses: Arc<dyn GuestAddresses>,
}

impl Addresses for Displaced {
    fn lease(&self, bytes: u64) -> Result<u64> {
        self.addresses.lease(bytes).map(|address| self.here.to_here(address))
    }

    fn give_up(&self, base: u64, bytes: u64) {
        self.addresses.give_up(self.here.to_object(base), bytes);
    }
}

/// For opening what does not grow.
struct NoAddresses;

impl GuestAddresses for NoAddresses {
    fn lease(&self, bytes: u64) -> Result<u64> {
        Err(Error::OutOfAddresses {
            what: "an object that is only read".to_string(),
            bytes,
            why: "it does not grow".to_string(),
        })
    }
}

/// A linear memory that no guest has: for looking at guest objects and for making them.
struct OwnMemory {
    memory: GuestMemory,
    // Unmapped after what is mapped over it.
    _range: AnonymousRange,
}

impl OwnMemory {
    fn new(window: GuestWindow) -> Result<OwnMemory> {
        let range = AnonymousRange::new(window.bytes)?;
        let memory_base = range.base().wrapping_sub(window.base);
        // SAFETY: the range is ours, is as long as the window and lives as long as the space:
        // both go together, and what is mapped is closed before.
        let space = unsafe {
            AddressSpace::lent("a guest object", range.base(), window.bytes, Vacancy::Zeros)
        };
        Ok(OwnMemory { memory: GuestMemory { space, memory_base, window }, _range: range })
    }
}

/// One region of a guest object, as the file has it: 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion(RegionRecord);

impl GuestRegion {
    /// First guest address.
    pub fn base(&self) -> u64 {
        self.0.base
    }

    /// Bytes that the file backs.
    pub fn length_bytes(&self) -> u64 {
        self.0.length
    }

    /// The guest addresses that were leased for it: first, and bytes.
    pub fn lease(&self) -> (u64, u64) {
        lease_of(&self.0)
    }

    /// The record as it stands in the superblock's region table.
    pub fn to_bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes.copy_from_slice(bytemuck::bytes_of(&self.0));
        bytes
    }
}

/// A guest object that its guest writes. Dropping it forgets what was not committed, and takes the
/// mapping out of the guest's memory.
pub struct GuestSession {
    writer: Option<GuestWriter>,
}

impl GuestSession {
    /// Guest address of the superblock.
    pub fn base(&self) -> u64 {
        self.writer().records().first().map_or(0, |r| r.base)
    }

    /// Its id, as in the catalog.
    pub fn uuid(&self) -> [u8; 16] {
        self.writer().superblock().object_uuid
    }

    /// Its regions, uncommitted growth included.
    pub fn regions(&self) -> Vec<GuestRegion> {
        self.writer().records().into_iter().map(GuestRegion).collect()
    }

    /// Makes its regions have at least `data_bytes` for data, from the first chunk of each to its
    /// backed end. What was gained is part of the object with the next commit.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`; what was gained before stays.
    pub fn grow_to(&self, data_bytes: u64) -> Result<()> {
        self.writer().grow_to(data_bytes)
    }

    /// Makes everything that the guest stored since the last commit durable, all of it or nothing;
    /// false when nothing had changed. A guest's threads that store meanwhile harm nothing but their
    /// own object.
    ///
    /// # Errors
    /// As [`Session::commit`](crate::Session::commit); `BadGuestRoot` when the guest wrote a root
    /// that is none: nothing was committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.writer_mut().commit()
    }

    /// Number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.writer().sequence()
    }

    /// Ends the session, forgetting what was not committed.
    ///
    /// # Errors
    /// What was committed is durable whatever this returns.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match self.writer.take() {
            // A child gives up its copy. The session is the parent's.
            Some(mut writer) if !at_fork::is_child() => writer.close(),
            _ => Ok(()),
        }
    }

    fn writer(&self) -> &GuestWriter {
        // The writer is taken out only while the session is being dropped.
        self.writer.as_ref().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }

    fn writer_mut(&mut self) -> &mut GuestWriter {
        self.writer.as_mut().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }
}

impl Drop for GuestSession {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "closing a guest's session");
        }
    }
}

/// One commit of a guest object, mapped into a guest's memory.
pub struct GuestSnapshot(pub(super) Mapped);

/// How a snapshot came to be mapped.
pub(super) enum Mapped {
    /// By opening the object.
    Opened(Box<Reader>),
    /// From a file that was open.
    Ready(ReadySnapshot),
}

impl GuestSnapshot {
    /// Guest address of the superblock.
    pub fn base(&self) -> u64 {
        self.superblock().regions[0].base
    }

    /// Its regions.
    pub fn regions(&self) -> Vec<GuestRegion> {
        self.superblock().regions().iter().copied().map(GuestRegion).collect()
    }

    /// Number of the commit.
    pub fn sequence(&self) -> u64 {
        self.superblock().commit_sequence
    }

    fn superblock(&self) -> &Superblock {
        match &self.0 {
            Mapped::Opened(reader) => reader.superblock(),
            Mapped::Ready(ready) => ready.superblock(),
        }
    }

    fn mappings(&self) -> &[Mapping] {
        match &self.0 {
            Mapped::Opened(reader) => reader.mappings(),
            Mapped::Ready(ready) => ready.mappings(),
        }
    }
}

/// What a guest may do with an object that it does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestReading {
    /// Read. Its stores fault.
    ReadOnly,
    /// Read, and store for itself: nobody else sees that, and it is gone with the mapping.
    Private,
}

impl GuestReading {
    pub(super) fn writes(self) -> Writes {
        match self {
            GuestReading::ReadOnly => Writes::Fault,
            GuestReading::Private => Writes::Private,
        }
    }
}

impl Store {
    /// Makes a guest object, with addresses for at least `data_bytes` from `addresses`. It has no
    /// root. Durable when this returns.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`, `OutOfAddresses`.
    pub fn create_guest(
        &self,
        name: &str,
        window: GuestWindow,
        addresses: &Arc<dyn GuestAddresses>,
        data_bytes: u64,
    ) -> Result<()> {
        let own = OwnMemory::new(window)?;
        let guest =
            GuestDraft { record: window.record(), capacity_bytes: data_bytes.max(CHUNK_BYTES) };
        let mut batch = Batch::new(&self.home, self.application)?;
        let environment = own.memory.environment(batch.inner(), addresses);
        batch.add_guest(name, &environment, guest)?;
        batch.commit()
    }

    /// Maps a guest object's last commit into a guest's memory, for the guest to write.
    ///
    /// # Errors
    /// `NotFound`, `Busy` when somebody else writes it, `OtherApplication`, `OtherKind`, `Damaged`,
    /// `AddressTaken` when the guest has something else at its addresses.
    pub fn write_guest(
        &self,
        name: &str,
        memory: &GuestMemory,
        addresses: &Arc<dyn GuestAddresses>,
        options: &WriteOptions,
    ) -> Result<GuestSession> {
        self.home
            .run(Use::Open, |inner| self.write_guest_of(inner, name, memory, addresses, options))
    }

    fn write_guest_of(
        &self,
        inner: &Arc<Inner>,
        name: &str,
        memory: &GuestMemory,
        addresses: &Arc<dyn GuestAddresses>,
        options: &WriteOptions,
    ) -> Result<GuestSession> {
        let environment = memory.environment(inner, addresses);
        inner.find_and_open(name, |located| {
            let mut writer = inner.with_paths(name, located.uuid, |paths| {
                let timeout = inner.options.busy_timeout;
                GuestWriter::open(&environment, paths, options, timeout)
            })?;
            check_application(inner, name, writer.superblock(), self.application)?;
            check_window(name, &writer.superblock().guest, memory.window)?;
            if inner.options.verify != Verify::Superblock {
                writer.verify()?;
            }
            if writer.superblock().name() != name {
                writer.set_name(name);
            }
            Ok(GuestSession { writer: Some(writer) })
        })
    }

    /// Maps a guest object's last commit into a guest's memory, for the guest to read.
    ///
    /// # Errors
    /// As [`write_guest`](Store::write_guest), without `Busy`.
    pub fn read_guest(
        &self,
        name: &str,
        memory: &GuestMemory,
        reading: GuestReading,
    ) -> Result<GuestSnapshot> {
        let application = self.application;
        let reader = self
            .home
            .run(Use::Read, |inner| read_guest_of(inner, name, application, memory, reading))?;
        // Large, and a guest has few.
        Ok(GuestSnapshot(Mapped::Opened(Box::new(reader))))
    }
}

/// Opens a guest object of this store for reading.
pub(super) fn read_guest_of(
    inner: &Arc<Inner>,
    name: &str,
    application: Option<ApplicationKey>,
    memory: &GuestMemory,
    reading: GuestReading,
) -> Result<Reader> {
    let none: Arc<dyn GuestAddresses> = Arc::new(NoAddresses);
    let environment = memory.environment(inner, &none);
    inner.find_and_open(name, |located| {
        let reader = inner.with_paths(name, located.uuid, |paths| {
            Reader::open_for(&environment, paths, reading.writes())
        })?;
        check_application(inner, name, reader.superblock(), application)?;
        check_window(name, &reader.superblock().guest, memory.window)?;
        if inner.options.verify != Verify::Superblock {
            reader.verify()?;
        }
        Ok(reader)
    })
}

/// What is known about a guest object, which nobody has to have a guest for.
pub(super) fn info(inner: &Arc<Inner>, name: &str) -> Result<ObjectInfo> {
    let own = OwnMemory::new(GuestWindow::default())?;
    let none: Arc<dyn GuestAddresses> = Arc::new(NoAddresses);
    let environment = own.memory.environment(inner, &none);
    inner.find_and_open(name, |located| {
        let open = |paths: &ObjectPaths| Reader::open(&environment, paths);
        let reader = inner.with_paths(name, located.uuid, open)?;
        ObjectInfo::of_reader(name, &reader)
    })
}

/// Refuses an object for other pointers, or for another window.
pub(super) fn check_window(name: &str, found: &GuestRecord, window: GuestWindow) -> Result<()> {
    if *found == window.record() {
        return Ok(());
    }
    Err(Error::OtherKind {
        what: format!("object `{name}`"),
        found: "a guest object for another window, other pointers, or a newer version",
        remedy: "open it with the window that it was made for",
    })
}

impl std::fmt::Debug for GuestSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSession").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GuestSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSnapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
