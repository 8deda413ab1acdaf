//! Addresses: the window that Evermap uses, the arenas reserved in it, and the mappings in them.
//!
//! Objects hold raw pointers, so an object must lie at the same addresses in every process. This
//! module ensures that: a [`Reservation`] keeps an arena's addresses free from the moment a store
//! is opened, and a [`Mapping`] puts a part of a file at an exact address inside a reservation.
//! This module hands out addresses only, no references: the code that creates references argues for
//! their safety.

mod access;
mod dirty;
mod elsewhere;
mod keys;
mod mapping;
mod maps;
mod placement;
mod register;
mod reservation;
mod view;
mod watch;

pub use access::{Access, AccessKey, ThreadRights};

pub(crate) use dirty::{PageScanner, push_run};
pub(crate) use elsewhere::{ADDRESS_END, Elsewhere, Leads, heap_end};
pub(crate) use keys::{Key, prepare as prepare_keys};
pub(crate) use mapping::{
    AddressSpace, Mapping, Sharing, Vacancy, drop_private_runs, populate_runs,
};
pub(crate) use maps::{NamedRange, parse_maps};
pub(crate) use reservation::{recently_released, reserved_here};
pub(crate) use view::View;

use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;

/// Range of virtual addresses in which stores reserve their arenas.
///
/// The default on x86-64 and 64-bit Arm is `0x1400_0000_0000..0x5500_0000_0000`. It ends below the
/// place where Linux puts position-independent programs and the heap after them (two thirds of the
/// address space, `0x5555_5555_4000` and up, randomised by at most 2^44), and far below stack and
/// libraries. Inside it, addresses that cannot be text are preferred. Sanitizers and kernels with
/// fewer address bits need another window.
///
/// ```
/// let window = evermap::Window::default();
/// assert!(window.contains(0x2000_0000_0000, 64 << 30));
/// assert!(evermap::Window::new(0x1000, 0x800).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    base: u64,
    end: u64,
}

impl Default for Window {
    fn default() -> Self {
        Window { base: 0x1400_0000_0000, end: 0x5500_0000_0000 }
    }
}

impl Window {
    /// Creates a window from `base` up to, not including, `end`. Both are multiples of 1 GiB.
    ///
    /// # Errors
    /// `Unsupported` when the range is empty or not aligned.
    pub fn new(base: u64, end: u64) -> Result<Window> {
        if base >= end
            || !base.is_multiple_of(ARENA_ALIGN_BYTES)
            || !end.is_multiple_of(ARENA_ALIGN_BYTES)
        {
            return Err(Error::Unsupported {
                why: format!("window {base:#x}..{end:#x} is empty or not aligned to 1 GiB"),
            });
        }
        Ok(Window { base, end })
    }

    /// Returns the first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the address after the last one.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns true if the window contains `length` bytes from `address`.
    pub fn contains(&self, address: u64, length: u64) -> bool {
        address >= self.base && address.checked_add(length).is_some_and(|end| end <= self.end)
    }
}

/// Alignment of arenas.
pub(crate) const ARENA_ALIGN_BYTES: u64 = 1 << 30;

/// Returns random bits from the kernel.
pub(crate) fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|e| Error::Unsupported { why: format!("no random numbers: {e}") })
}

/// Returns a random identity for a store or an object.
pub(crate) fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random_u64()?.to_le_bytes());
    uuid[8..].copy_from_slice(&random_u64()?.to_le_bytes());
    // RFC 9562, version 4, variant 1.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// Refuses kernels with larger pages than the format's: regions begin at 4 KiB steps.
pub(crate) fn check_page_size() -> Result<()> {
    let kernel = rustix::param::page_size() as u64;
    if kernel == PAGE_BYTES {
        return Ok(());
    }
    Err(Error::Unsupported {
        why: format!("the kernel's pages have {kernel} bytes, Evermap needs {PAGE_BYTES}"),
    })
}
