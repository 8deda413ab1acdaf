//! The catalog: names, files and addresses of a store's objects.
//!
//! The catalog is itself an object, at the first address of the store's first arena. It is a hash
//! table by name over a list in order of creation, built from the public containers. Everything
//! here is a pure function of its contents; the layers around it handle locks, files and commits.

use evermap_derive::{Persist, Plain};

use crate::Error;
use crate::error::Result;
use crate::persist::{Mut, PMap, PString, PVec, Reads};

/// Root of the catalog.
#[derive(Persist)]
#[repr(C)]
#[persist(name = "EvermapCatalog")]
pub(crate) struct Catalog {
    /// Address ranges that belong to the store.
    pub(crate) arenas: PVec<Arena>,
    /// Objects by name, in order of creation.
    pub(crate) objects: PMap<PString, Entry>,
    /// Objects that were removed from the catalog but whose files still exist.
    pub(crate) doomed: PVec<[u8; 16]>,
}

impl Catalog {
    /// Type id of the catalog. It is part of the file format, so it is a constant: computing it
    /// from the type takes a tenth of the time to open a store.
    pub(crate) const TYPE_ID: [u8; 16] =
        0x4c91_2834_3c92_eb59_078d_921b_aaef_ff1d_u128.to_be_bytes();
}

/// One address range of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
pub(crate) struct Arena {
    /// First address.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// No object was ever given an address at or above this one. Freed addresses below are reused
    /// only when the arena has none above, so a process that still has a removed object open does
    /// not block a new object.
    pub(crate) high_water: u64,
}

/// Addresses of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
pub(crate) struct Lease {
    /// First address.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) bytes: u64,
}

/// Catalog entry of one object.
#[derive(Persist)]
#[repr(C)]
pub(crate) struct Entry {
    /// UUID, which names the object's file.
    pub(crate) uuid: [u8; 16],
    /// Nanoseconds since 1970.
    pub(crate) created_ns: u64,
    /// Address ranges of the object. After a crash, the object's own region table may lag behind
    /// this list, but never lists more.
    pub(crate) leases: PVec<Lease>,
}

/// Copy of an entry, for use after the catalog is unlocked.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) uuid: [u8; 16],
    pub(crate) created_ns: u64,
    pub(crate) leases: Vec<Lease>,
}

impl Catalog {
    /// Returns a copy of the entry with this name.
    pub(crate) fn find(&self, name: &str) -> Option<Found> {
        self.objects.get(name).map(Found::of)
    }

    /// Like [`find`](Catalog::find), and calls `verify` with address and bytes before each read
    /// outside of the root: the cost does not depend on the number of objects.
    pub(crate) fn find_verified(
        &self,
        name: &str,
        mut verify: impl FnMut(u64, usize) -> Result<()>,
    ) -> Result<Option<Found>> {
        let entry = self.objects.get_after(name, |reads| match reads {
            Reads::Cell(cell) => verify(cell.addr() as u64, size_of::<u32>()),
            Reads::Entry(entry, bytes) => verify(entry.addr() as u64, bytes),
            Reads::Key(key) => verify(key.as_str().as_ptr().addr() as u64, key.as_str().len()),
        })?;
        let Some(entry) = entry else { return Ok(None) };
        let leases = entry.leases.as_slice();
        verify(leases.as_ptr().addr() as u64, size_of_val(leases))?;
        Ok(Some(Found::of(entry)))
    }

    /// Returns true if an object has this file.
    pub(crate) fn has_uuid(&self, uuid: [u8; 16]) -> bool {
        self.objects.iter().any(|(_, entry)| entry.uuid == uuid)
    }

    /// Returns names and entries, in order of creation.
    pub(crate) fn list(&self) -> Vec<(String, Found)> {
        self.objects
            .iter()
            .map(|(name, entry)| (name.as_str().to_string(), Found::of(entry)))
            .collect()
    }

    /// Returns the name of the object that owns `address`.
    pub(crate) fn holder(&self, address: u64) -> Option<String> {
        let holds = |lease: &Lease| address.wrapping_sub(lease.base) < lease.bytes;
        let mut objects = self.objects.iter();
        let (name, _) = objects.find(|(_, entry)| entry.leases.iter().any(holds))?;
        Some(name.as_str().to_string())
    }

    /// Returns all address ranges in use, in order.
    pub(crate) fn used(&self) -> Vec<Lease> {
        let mut used: Vec<Lease> =
            self.objects.iter().flat_map(|(_, entry)| entry.leases.iter().copied()).collect();
        used.sort_unstable_by_key(|lease| lease.base);
        used
    }
}

impl Found {
    fn of(entry: &Entry) -> Found {
        Found {
            uuid: entry.uuid,
            created_ns: entry.created_ns,
            leases: entry.leases.iter().copied().collect(),
        }
    }
}

/// Adds an object. The name must be free.
pub(crate) fn insert(mut catalog: Mut<'_, Catalog>, name: &str, entry: &Found) -> Result<()> {
    for lease in &entry.leases {
        raise_high_water(catalog.reborrow(), lease);
    }
    let source = EntryInit {
        uuid: entry.uuid,
        created_ns: entry.created_ns,
        leases: entry.leases.as_slice(),
    };
    catalog.fields().objects.insert(name, source)?;
    Ok(())
}

/// Removes an object from the catalog. Its file still has to be removed.
///
/// This must work on a full disk, because removing objects frees space. The catalog does not grow,
/// and the commit fits the existing log: the first note reuses the block of the entry's leases, and
/// no other entry moves. Later notes use the rest of that block if the caller keeps the list short.
pub(crate) fn remove(mut catalog: Mut<'_, Catalog>, name: &str, uuid: [u8; 16]) -> Result<()> {
    let room = catalog.objects.get(name).map_or(0, |entry| entry.leases.capacity());
    let mut fields = catalog.fields();
    fields.objects.remove_in_place(name);
    if fields.doomed.capacity() == 0 {
        fields.doomed.reserve_exact(room.max(1))?;
    }
    fields.doomed.push(uuid)?;
    Ok(())
}

/// Renames an object.
pub(crate) fn rename(mut catalog: Mut<'_, Catalog>, from: &str, to: &str) -> Result<()> {
    let Some(entry) = catalog.find(from) else {
        return Ok(());
    };
    insert(catalog.reborrow(), to, &entry)?;
    catalog.fields().objects.remove(from);
    Ok(())
}

/// Sets all addresses of an object. Returns false if it does not exist. This also frees addresses
/// that a crash left recorded but unused.
pub(crate) fn set_leases(
    mut catalog: Mut<'_, Catalog>,
    uuid: [u8; 16],
    leases: &[Lease],
) -> Result<bool> {
    for lease in leases {
        raise_high_water(catalog.reborrow(), lease);
    }
    let mut fields = catalog.fields();
    for (_, mut entry) in fields.objects.iter_mut() {
        if entry.uuid == uuid {
            entry.fields().leases.assign(leases)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Records that addresses up to the end of `lease` were given out.
pub(crate) fn raise_high_water(mut catalog: Mut<'_, Catalog>, lease: &Lease) {
    for arena in catalog.fields().arenas.as_mut_slice() {
        let end = lease.base + lease.bytes;
        if lease.base >= arena.base && end <= arena.base + arena.length {
            arena.high_water = arena.high_water.max(end);
        }
    }
}

/// Checks a name: it must not contain control characters such as line breaks, and must not be a
/// relative path component. Slashes are allowed, because documents are named after their files; no
/// file is ever named by an object's name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > crate::format::NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name == "." || name == ".." {
        "it means a directory"
    } else if name.chars().any(char::is_control) {
        "it contains a control character"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName { name: name.to_string(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::type_id;

    #[test]
    fn the_type_id_constant_is_the_id_of_the_type() {
        assert_eq!(type_id::<Catalog>().0, Catalog::TYPE_ID);
    }

    #[test]
    fn invalid_names_are_refused() {
        for bad in ["", ".", "..", "a\0b", "a\nb", &"x".repeat(256)] {
            assert!(matches!(check_name(bad), Err(Error::InvalidName { .. })), "{bad:?}");
        }
        for good in ["a", "...", "a/b", "/home/a", "übergröße", "a b", "-x", &"x".repeat(255)] {
            check_name(good).unwrap();
        }
    }
}
