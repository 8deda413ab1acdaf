//! Guest objects: objects mapped into a sandbox's linear memory, where the guest program uses them.
//!
//! The host opens objects here and passes the guest's memory. The host also decides which guest may
//! use which object. One process may map the same object into several memories, one of them for
//! writing, as several processes may. Guest objects have guest addresses, which the catalog does
//! not record. The host's [`GuestAddresses`] hands them out, and must never give one address to two
//! objects that one guest could open.

mod memory;
mod readers;
mod session;
mod snapshot;

use std::sync::Arc;

use crate::api::batch::Batch;
use crate::api::home::Use;
use crate::api::inner::StoreInner;
use crate::api::options::Verify;
use crate::api::store::Store;
use crate::api::store_files::Located;
use crate::catalog::Lease;
use crate::commit::WriteOptions;
use crate::error::Result;
use crate::format::CHUNK_BYTES;
use crate::layout::GUESTS_BYTE;
use crate::object::{GuestDraft, GuestWriter};

use memory::OwnMemory;
pub use memory::{GuestAddresses, GuestMemory, GuestWindow, Unmapped};
pub use readers::GuestReaders;
pub use session::{GuestRegion, GuestSession};
pub(super) use snapshot::info;
pub use snapshot::{GuestReading, GuestSnapshot};
use snapshot::{check_window, read_guest_of};

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
        let environment = own.memory.environment(&batch.inner().storage, addresses);
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
        let environment = memory.environment(&inner.storage, addresses);
        inner.find_and_open(name, |located| {
            let Located { uuid, mut leases } = located;
            // Keeps the store from being replaced while the guest has the object open.
            leases.add(&[Lease { base: GUESTS_BYTE, bytes: 1 }])?;
            let mut writer = inner.with_paths(name, uuid, |paths| {
                let timeout = inner.options.busy_timeout;
                GuestWriter::open(&environment, paths, options, timeout)
            })?;
            inner.check_application(name, writer.superblock(), self.application)?;
            check_window(name, &writer.superblock().guest, memory.window())?;
            if inner.options.verify != Verify::Superblock {
                writer.verify()?;
            }
            if writer.superblock().name() != name {
                writer.set_name(name);
            }
            Ok(GuestSession::of(writer, leases))
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
        Ok(GuestSnapshot::of(reader))
    }
}
