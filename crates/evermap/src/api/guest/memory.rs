//! Windows of linear memories into which guest objects are mapped, and the addresses in them.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use evermap_heap::anonymous::AnonymousRange;

use crate::address::{AddressSpace, Vacancy};
use crate::error::{Error, Result};
use crate::format::{GuestRecord, PAGE_BYTES};
use crate::object::{Addresses, Displacement, Environment};
use crate::storage::Storage;

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

    pub(super) fn record(&self) -> GuestRecord {
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

    pub(super) fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    pub(super) fn displacement(&self) -> Displacement {
        Displacement::by(self.memory_base)
    }

    /// Returns the environment for objects in this memory.
    pub(super) fn environment(
        &self,
        storage: &Arc<dyn Storage>,
        addresses: &Arc<dyn GuestAddresses>,
    ) -> Environment {
        let here = self.displacement();
        Environment {
            storage: Arc::clone(storage),
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
pub(super) struct NoAddresses;

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
pub(super) struct OwnMemory {
    pub(super) memory: GuestMemory,
    // Declared last, so that it is unmapped after the objects in it.
    _range: AnonymousRange,
}

impl OwnMemory {
    pub(super) fn new(window: GuestWindow) -> Result<OwnMemory> {
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
