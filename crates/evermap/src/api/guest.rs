//! Guest objects: objects mapped into a sandbox's linear memory, where the guest program uses them.
//!
//! The host opens objects here and passes the guest's memory. The host also decides which guest may
//! use which object. One process may map the same object into several memories, one of them for
//! writing, as several processes may. Guest objects have guest addresses, which the catalog does
//! not record. The host's [`GuestAddresses`] hands them out, and must never hand out one address
//! twice.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::application::{ApplicationKey, check_application};
use super::batch::Batch;
pub use super::guest_readers::GuestReaders;
use super::home::Use;
use super::info::ObjectInfo;
use super::inner::StoreInner;
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
/// Version of the layout that guests rely on.
const GUEST_VERSION: u32 = 1;

/// Range of guest addresses for objects.
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
    /// Returns the addresses of the window.
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

/// Hands out guest addresses. A lease is permanent: the implementation records it durably before it
/// returns, and never leases the same addresses to two objects that one guest could open.
pub trait GuestAddresses: Send + Sync {
    /// Leases `bytes` addresses of the window. Size and base are multiples of 4 MiB.
    ///
    /// # Errors
    /// `OutOfAddresses` when the window is used up, and `AddressQuota` when a quota is.
    fn lease(&self, bytes: u64) -> Result<u64>;

    /// Takes back a lease that the object does not need. No commit of the object ever used it, and
    /// nothing is mapped there. Only the same object may get these addresses again.
    fn release(&self, _base: u64, _bytes: u64) {}
}

/// The window of one guest's linear memory, into which objects are mapped.
///
/// Clones share the same memory.
#[derive(Clone, Debug)]
pub struct GuestMemory {
    space: Arc<AddressSpace>,
    memory_base: u64,
    window: GuestWindow,
}

/// Contents of the window where no object is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapped {
    /// Zeros, and private memory after the first store, as elsewhere in a linear memory.
    #[default]
    Zeros,
    /// A fault.
    Hole,
}

impl GuestMemory {
    /// Wraps the window of a linear memory whose address zero is at `memory_base` in this process.
    /// Maps nothing yet.
    ///
    /// # Errors
    /// `Unsupported` if the memory does not begin at a page.
    ///
    /// # Safety
    /// The window's part of the memory is a private anonymous mapping. It stays mapped at this
    /// place while this value, its clones, and any session or snapshot opened with them live. No
    /// Rust reference into it exists in this process.
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
            // A claim that ends leaves the space's vacant state there, which is a hole.
            drop(space.claim(base, window.bytes)?);
        }
        Ok(GuestMemory { space, memory_base, window })
    }

    /// Returns the window of guest addresses.
    pub fn window(&self) -> GuestWindow {
        self.window
    }

    /// Ends all these snapshots of this memory at once, which costs less than one by one. Use it
    /// when the guest has ended: it also clears what the guest stored between the objects.
    pub fn end_all(&self, snapshots: Vec<GuestSnapshot>) {
        self.space.clear_all(snapshots.iter().flat_map(GuestSnapshot::mappings));
    }

    /// Maps a ready object. Returns `None` if the object must be opened again.
    pub(super) fn map_ready(
        &self,
        ready: &Arc<ReadyObject>,
        reading: GuestReading,
    ) -> Result<Option<GuestSnapshot>> {
        let here = Displacement::by(self.memory_base);
        let mapped = ready.map(&self.space, here, reading.writes())?;
        Ok(mapped.map(|snapshot| GuestSnapshot(Mapped::Ready(snapshot))))
    }

    fn environment(
        &self,
        inner: &Arc<StoreInner>,
        addresses: &Arc<dyn GuestAddresses>,
    ) -> Environment {
        let here = Displacement::by(self.memory_base);
        Environment {
            storage: Arc::clone(&inner.storage),
            space: Arc::clone(&self.space),
            addresses: Arc::new(Displaced { here, addresses: Arc::clone(addresses) }),
            guest: Some(here),
        }
    }
}

/// Translates guest addresses to addresses of this process.
struct Displaced {
    here: Displacement,
    addresses: Arc<dyn GuestAddresses>,
}

impl Addresses for Displaced {
    fn lease(&self, bytes: u64) -> Result<u64> {
        self.addresses.lease(bytes).map(|address| self.here.to_here(address))
    }

    fn release(&self, base: u64, bytes: u64) {
        self.addresses.release(self.here.to_object(base), bytes);
    }
}

/// Address source for objects that do not grow.
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

/// Linear memory without a guest, used to create and inspect guest objects.
struct OwnMemory {
    memory: GuestMemory,
    // Declared last, so that it is unmapped after the objects in it.
    _range: AnonymousRange,
}

impl OwnMemory {
    fn new(window: GuestWindow) -> Result<OwnMemory> {
        let range = AnonymousRange::new(window.bytes)?;
        let memory_base = range.base().wrapping_sub(window.base);
        // SAFETY: this value owns the range, which is as long as the window and lives as long as
        // the space. Objects in it are closed before both are dropped.
        let space = unsafe {
            AddressSpace::lent("a guest object", range.base(), window.bytes, Vacancy::Zeros)
        };
        Ok(OwnMemory { memory: GuestMemory { space, memory_base, window }, _range: range })
    }
}

/// One region of a guest object, as stored in the file: 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion(RegionRecord);

impl GuestRegion {
    /// Returns the first guest address.
    pub fn base(&self) -> u64 {
        self.0.base
    }

    /// Returns the bytes that the file backs.
    pub fn length_bytes(&self) -> u64 {
        self.0.length
    }

    /// Returns the leased guest addresses: first address, and bytes.
    pub fn lease(&self) -> (u64, u64) {
        lease_of(&self.0)
    }

    /// Returns the record as stored in the superblock's region table.
    pub fn to_bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes.copy_from_slice(bytemuck::bytes_of(&self.0));
        bytes
    }
}

/// A guest object open for writing. Dropping it discards uncommitted changes and unmaps the object
/// from the guest's memory.
pub struct GuestSession {
    writer: Option<GuestWriter>,
}

impl GuestSession {
    /// Guest address of the superblock.
    pub fn base(&self) -> u64 {
        self.writer().records().first().map_or(0, |r| r.base)
    }

    /// Returns the object's id, as in the catalog.
    pub fn uuid(&self) -> [u8; 16] {
        self.writer().superblock().object_uuid
    }

    /// Returns the regions, including uncommitted growth.
    pub fn regions(&self) -> Vec<GuestRegion> {
        self.writer().records().into_iter().map(GuestRegion).collect()
    }

    /// Grows the object until its regions have at least `data_bytes` for data, counted from the
    /// first chunk of each region to its backed end. The new space becomes part of the object with
    /// the next commit.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`. Space gained before the error stays.
    pub fn grow_to(&self, data_bytes: u64) -> Result<()> {
        self.writer().grow_to(data_bytes)
    }

    /// Makes everything that the guest stored since the last commit durable, all of it or nothing.
    /// Returns false if nothing had changed. Guest threads that store during the commit can damage
    /// only their own object.
    ///
    /// # Errors
    /// Same errors as [`Session::commit`](crate::Session::commit); `BadGuestRoot` if the guest
    /// stored an invalid root. In that case nothing was committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.writer_mut().commit()
    }

    /// Number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.writer().sequence()
    }

    /// Ends the session and discards uncommitted changes.
    ///
    /// # Errors
    /// Commits are durable whatever this returns.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match self.writer.take() {
            // A forked child only drops its copy, because the session belongs to the parent.
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
            tracing::warn!(%error, "cannot close a guest's session");
        }
    }
}

/// One commit of a guest object, mapped into a guest's memory.
pub struct GuestSnapshot(pub(super) Mapped);

/// Way in which a snapshot was mapped.
pub(super) enum Mapped {
    /// The object was opened.
    Opened(Box<Reader>),
    /// The object's file was already open.
    Ready(ReadySnapshot),
}

impl GuestSnapshot {
    /// Guest address of the superblock.
    pub fn base(&self) -> u64 {
        self.superblock().regions[0].base
    }

    /// Returns the regions.
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

/// Access of a guest to an object that it cannot write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestReading {
    /// Read only. Stores fault.
    ReadOnly,
    /// Read, and store privately. The stores are not visible elsewhere and end with the mapping.
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
    /// Creates a guest object without a root, with addresses for at least `data_bytes` from
    /// `addresses`. The object is durable when this returns.
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
    /// `NotFound`, `Busy` if the object is already open for writing,
    /// `OtherApplication`, `OtherKind`, `Damaged`, `AddressTaken` if the guest has something else
    /// at the object's addresses.
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
        inner: &Arc<StoreInner>,
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
    /// Same errors as [`write_guest`](Store::write_guest), without `Busy`.
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
        // Boxed because it is large, and a guest has few of them.
        Ok(GuestSnapshot(Mapped::Opened(Box::new(reader))))
    }
}

/// Opens a guest object of this store for reading.
pub(super) fn read_guest_of(
    inner: &Arc<StoreInner>,
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

/// Returns information about a guest object. Needs no guest.
pub(super) fn info(inner: &Arc<StoreInner>, name: &str) -> Result<ObjectInfo> {
    let own = OwnMemory::new(GuestWindow::default())?;
    let none: Arc<dyn GuestAddresses> = Arc::new(NoAddresses);
    let environment = own.memory.environment(inner, &none);
    inner.find_and_open(name, |located| {
        let open = |paths: &ObjectPaths| Reader::open(&environment, paths);
        let reader = inner.with_paths(name, located.uuid, open)?;
        ObjectInfo::of_reader(name, &reader)
    })
}

/// Refuses an object made for another pointer width or another window.
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
