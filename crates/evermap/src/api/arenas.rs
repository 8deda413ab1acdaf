//! Addresses for objects: from the store's arenas, or from a new one when they are used up.

use std::sync::Weak;

use tracing::debug;

use super::catalog_access::own_leases;
use super::inner::Inner;
use super::options::Options;
use crate::address::AddressSpace;
use crate::catalog::{Arena, Lease};
use crate::error::{Error, Result};
use crate::object::Addresses;

/// Leases addresses for objects of a store.
pub(super) struct StoreAddresses(pub(super) Weak<Inner>);

impl Addresses for StoreAddresses {
    fn lease(&self, bytes: u64) -> Result<u64> {
        match self.0.upgrade() {
            Some(inner) => inner.lease(bytes),
            None => Err(Error::OutOfAddresses {
                what: "an object".to_string(),
                bytes,
                why: "its store was closed".to_string(),
            }),
        }
    }

    fn give_up(&self, base: u64, bytes: u64) {
        if let Some(inner) = self.0.upgrade() {
            inner.book.give_up(&[Lease { base, bytes }]);
        }
    }
}

impl Inner {
    /// Takes addresses for an object: from an arena of the store, or from a new one.
    pub(super) fn lease(&self, bytes: u64) -> Result<u64> {
        let book = &self.book;
        let taken = self.catalog().look(|catalog, reader| {
            let arenas: Vec<Arena> = catalog.arenas.iter().copied().collect();
            if let Some(base) = book.take_above(&arenas, bytes)? {
                return Ok(Some(base));
            }
            let mut used = catalog.used();
            used.extend(own_leases(reader));
            used.sort_unstable_by_key(|lease| lease.base);
            book.take_gap(&arenas, &used, bytes)
        })??;
        match taken {
            Some(base) => Ok(base),
            None => self.lease_from_new_arena(bytes),
        }
    }

    fn lease_from_new_arena(&self, bytes: u64) -> Result<u64> {
        let length = self.options.arena_bytes.max(bytes.next_power_of_two());
        let base = reserve_somewhere(&self.space, &self.options, length)?;
        debug!(base, length, "new arena");
        self.catalog().change(|mut catalog| {
            catalog.fields().arenas.push(Arena { base, length, high_water: base }).map(drop)
        })?;
        let arenas = [Arena { base, length, high_water: base }];
        self.book.take_above(&arenas, bytes)?.ok_or_else(|| Error::OutOfAddresses {
            what: "an object".to_string(),
            bytes,
            why: "other processes took the new arena at once".to_string(),
        })
    }
}

/// Reserves an arena at a random place in the window; a place that is taken is tried elsewhere.
pub(super) fn reserve_somewhere(
    space: &AddressSpace,
    options: &Options,
    length: u64,
) -> Result<u64> {
    let mut last = None;
    for _ in 0..16 {
        let base = options.window.random_base(length)?;
        match space.reserve(base, length) {
            Ok(()) => return Ok(base),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or(Error::OutOfAddresses {
        what: "an arena".to_string(),
        bytes: length,
        why: "no place was tried".to_string(),
    }))
}
