//! Guest objects open for reading.

use std::sync::Arc;

use super::memory::{GuestAddresses, GuestMemory, GuestWindow, NoAddresses, OwnMemory};
use super::session::GuestRegion;
use crate::address::Mapping;
use crate::api::application::ApplicationKey;
use crate::api::info::ObjectInfo;
use crate::api::options::Verify;
use crate::api::store_files::StoreFiles;
use crate::error::{Error, Result};
use crate::format::{GuestRecord, Superblock};
use crate::object::{ObjectPaths, Reader, ReadyObject, ReadySnapshot, Writes};

/// One commit of a guest object, mapped into a guest's memory.
pub struct GuestSnapshot(Mapped);

/// Way in which a snapshot was mapped.
enum Mapped {
    /// The object was opened.
    Opened(Box<Reader>),
    /// The object's file was already open.
    Ready(ReadySnapshot),
}

impl GuestSnapshot {
    pub(super) fn of(reader: Reader) -> GuestSnapshot {
        // Boxed because it is large, and a guest has few of them.
        GuestSnapshot(Mapped::Opened(Box::new(reader)))
    }

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
    fn writes(self) -> Writes {
        match self {
            GuestReading::ReadOnly => Writes::Fault,
            GuestReading::Private => Writes::Private,
        }
    }
}

impl GuestMemory {
    /// Ends all these snapshots of this memory at once, which costs less than one by one. Use it
    /// when the guest has ended: it also clears what the guest stored between the objects.
    pub fn end_all(&self, snapshots: Vec<GuestSnapshot>) {
        self.space().clear_all(snapshots.iter().flat_map(GuestSnapshot::mappings));
    }

    /// Maps a ready object. Returns `None` if the object must be opened again.
    pub(super) fn map_ready(
        &self,
        ready: &Arc<ReadyObject>,
        reading: GuestReading,
    ) -> Result<Option<GuestSnapshot>> {
        let mapped = ready.map(self.space(), self.displacement(), reading.writes())?;
        Ok(mapped.map(|snapshot| GuestSnapshot(Mapped::Ready(snapshot))))
    }
}

/// Opens a guest object of this store for reading.
pub(super) fn read_guest_of(
    files: &StoreFiles,
    name: &str,
    application: Option<ApplicationKey>,
    memory: &GuestMemory,
    reading: GuestReading,
) -> Result<Reader> {
    let none: Arc<dyn GuestAddresses> = Arc::new(NoAddresses);
    let environment = memory.environment(&files.storage, &none);
    files.find_and_open(name, |located| {
        let reader = files.with_paths(name, located.uuid, |paths| {
            Reader::open_for(&environment, paths, reading.writes())
        })?;
        files.check_application(name, reader.superblock(), application)?;
        check_window(name, &reader.superblock().guest, memory.window())?;
        if files.options.verify != Verify::Superblock {
            reader.verify()?;
        }
        Ok(reader)
    })
}

/// Returns information about a guest object. Needs no guest.
pub(in crate::api) fn info(files: &StoreFiles, name: &str) -> Result<ObjectInfo> {
    let own = OwnMemory::new(GuestWindow::default())?;
    let none: Arc<dyn GuestAddresses> = Arc::new(NoAddresses);
    let environment = own.memory.environment(&files.storage, &none);
    files.find_and_open(name, |located| {
        let open = |paths: &ObjectPaths| Reader::open(&environment, paths);
        let reader = files.with_paths(name, located.uuid, open)?;
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

impl std::fmt::Debug for GuestSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSnapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
