//! Guest objects open for writing.

use crate::api::addresses::leases::SharedLeases;
use crate::at_fork;
use crate::error::Result;
use crate::format::RegionRecord;
use crate::object::{GuestWriter, lease_of};

/// One region of a guest object, as stored in the file: 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion(pub(super) RegionRecord);

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
    // Declared last, so that the store is kept until the writer is closed.
    _leases: SharedLeases,
}

impl GuestSession {
    pub(super) fn of(writer: GuestWriter, leases: SharedLeases) -> GuestSession {
        GuestSession { writer: Some(writer), _leases: leases }
    }

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
    /// Same errors as [`Session::close`](crate::Session::close).
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

impl std::fmt::Debug for GuestSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSession").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
