//! Assigns guest addresses, durably before their use.
//!
//! While the window has room, no two objects of a store share an address, so any two objects can be
//! mapped by one guest. Later, an object can get addresses of another application's objects, except
//! addresses that an application that can map the object has or had.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evermap::guest::{GuestAddresses, GuestWindow};

use super::table::{AddressRange, Object, Table};
use crate::error::{Error, is_disk_full};
use crate::names::ObjectName;
use crate::state_file::StateFile;

/// Assigns addresses to one object.
pub(crate) struct TableAddresses {
    file: Arc<StateFile<Table>>,
    object: ObjectName,
    window: GuestWindow,
    in_use: Mutex<InUse>,
}

/// Known ranges of the object.
#[derive(Default)]
struct InUse {
    /// The ranges of the last commit are included, so the other assigned ranges are free.
    all: bool,
    ranges: Vec<AddressRange>,
}

impl TableAddresses {
    pub(crate) fn of(file: &Arc<StateFile<Table>>, object: &ObjectName) -> Arc<TableAddresses> {
        let (file, object) = (Arc::clone(file), object.clone());
        let (window, in_use) = (GuestWindow::default(), Mutex::default());
        Arc::new(TableAddresses { file, object, window, in_use })
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the object's ranges at the start of its only writer. The writer then gets the other
    /// ranges that were assigned to the object before new ones.
    pub(crate) fn set_in_use(&self, leases: impl Iterator<Item = (u64, u64)>) {
        let has: Vec<AddressRange> =
            leases.map(|(base, bytes)| AddressRange { base, bytes }).collect();
        let mut in_use = self.in_use();
        let is_new = !in_use.ranges.is_empty();
        *in_use = InUse { all: true, ranges: has.clone() };
        drop(in_use);
        if let Err(error) = self.keep(&has, is_new) {
            tracing::warn!(%error, object = %self.object, "cannot record the object's guest addresses in the access table");
        }
    }

    /// Puts missing ranges back into the table. A range is missing if another process took the new
    /// object for a removed one before it had its name. A renamed or restored object has no row at
    /// all.
    fn keep(&self, has: &[AddressRange], is_new: bool) -> crate::error::Result<()> {
        let (name, owner) = (self.object.in_store(), self.object.owner().as_str());
        // A process that removes the row of a new object may not have written the table yet, so
        // wait for its lock.
        if !is_new && self.file.query(|table| missing_of(table, name, has).is_empty())? {
            return Ok(());
        }
        self.file.change(|table| {
            let missing = missing_of(table, name, has);
            if let Some(row) = table.applications.get_mut(owner) {
                row.retired.retain(|retired| !missing.contains(retired));
            }
            if !missing.is_empty() {
                let new = || Object { owner: owner.to_string(), given: Vec::new() };
                table.objects.entry(name.to_string()).or_insert_with(new).given.extend(missing);
            }
            Ok(())
        })
    }

    /// Releases the ranges of an object whose creation failed; no guest has seen them. Keeps them
    /// if another process has also been assigned ranges for the object, because it may have
    /// created the object and taken over these ranges.
    pub(crate) fn release_unused(&self) {
        let ranges = std::mem::take(&mut self.in_use().ranges);
        let name = self.object.in_store();
        let taken = self.file.change(|table| {
            let ours = |object: &Object| object.given.iter().all(|given| ranges.contains(given));
            if table.objects.get(name).is_some_and(ours) {
                table.objects.remove(name);
            }
            Ok(())
        });
        if let Err(error) = taken {
            tracing::warn!(%error, object = %self.object, "cannot release the guest addresses of an object that was not created");
        }
    }

    /// Finds a gap in the ranges that were assigned to the object and that it does not use.
    fn unused_range(&self, table: &Table, bytes: u64) -> Option<AddressRange> {
        let in_use = self.in_use();
        let object = table.objects.get(self.object.in_store()).filter(|_| in_use.all)?;
        object.given.iter().find_map(|given| {
            let mut taken = in_use.ranges.clone();
            taken.retain(|range| range.overlaps(given));
            taken.sort_unstable_by_key(|range| range.base);
            first_gap(given.base..given.end(), taken, bytes)
        })
    }

    fn out_of(&self, bytes: u64, why: String) -> evermap::Error {
        evermap::Error::OutOfAddresses { what: format!("object `{}`", self.object), bytes, why }
    }

    fn give(&self, table: &mut Table, bytes: u64) -> Result<AddressRange, Refused> {
        if let Some(given) = self.unused_range(table, bytes) {
            return Ok(given);
        }
        let owner = self.object.owner().as_str();
        let quota_bytes = table.applications.get(owner).map_or(0, |row| row.quota_bytes);
        if table.used_bytes(owner).saturating_add(bytes) > quota_bytes {
            return Err(Refused::Quota(quota_bytes));
        }
        let name = self.object.in_store();
        let everybodys = ranges_of(table, &|_| true);
        let apart = first_gap(self.window.addresses(), everybodys, bytes);
        let given = match apart {
            Some(given) => given,
            None => {
                let affected = |id: &str| {
                    id == owner
                        || table.rights.iter().any(|r| r.application == id && r.object == name)
                };
                let theirs = ranges_of(table, &affected);
                first_gap(self.window.addresses(), theirs, bytes).ok_or(Refused::Window)?
            }
        };
        let new = || Object { owner: owner.to_string(), given: Vec::new() };
        table.objects.entry(name.to_string()).or_insert_with(new).given.push(given.clone());
        Ok(given)
    }
}

enum Refused {
    Quota(u64),
    Window,
}

/// Smallest disk space of a table.
const TABLE_BYTES_MIN: u64 = 4096;

impl GuestAddresses for TableAddresses {
    fn lease(&self, bytes: u64) -> evermap::Result<u64> {
        let mut refused = None;
        let given = self.file.change(|table| match self.give(table, bytes) {
            Ok(given) => Ok(Some(given)),
            Err(why) => {
                refused = Some(why);
                Ok(None)
            }
        });
        match (given, refused) {
            (Ok(Some(given)), _) => {
                let base = given.base;
                self.in_use().ranges.push(given);
                Ok(base)
            }
            (_, Some(Refused::Quota(quota_bytes))) => {
                let owner = self.object.owner();
                let what = format!("object `{}`", self.object);
                let why = format!("the quota of application `{owner}` is {quota_bytes} bytes");
                Err(evermap::Error::AddressQuota { what, bytes, why })
            }
            (_, Some(Refused::Window)) => {
                Err(self.out_of(bytes, "the guest window has no such gap left".to_string()))
            }
            (Err(Error::Io { doing, path, source }), None) if is_disk_full(&source) => {
                Err(evermap::Error::DiskFull { path, doing, needed_bytes: TABLE_BYTES_MIN })
            }
            (Err(Error::Io { source, doing, path }), None) => {
                Err(evermap::Error::Io { path, doing, source })
            }
            (Err(error), None) => Err(self.out_of(bytes, error.to_string())),
            (Ok(None), None) => Err(self.out_of(bytes, "no range was assigned".to_string())),
        }
    }

    fn release(&self, base: u64, bytes: u64) {
        let mut in_use = self.in_use();
        // While the object is being created, `release_unused` needs all ranges.
        if in_use.all {
            in_use.ranges.retain(|range| *range != AddressRange { base, bytes });
        }
    }
}

/// Returns the object's ranges that its row in the table lacks.
fn missing_of(table: &Table, name: &str, has: &[AddressRange]) -> Vec<AddressRange> {
    let given = table.objects.get(name).map_or(&[][..], |object| &object.given);
    let known = |range: &AddressRange| given.iter().any(|given| given.contains(range));
    has.iter().filter(|range| !known(range)).cloned().collect()
}

/// Returns the ranges that the affected applications have, had or can map.
fn ranges_of(table: &Table, affected: &dyn Fn(&str) -> bool) -> Vec<AddressRange> {
    let mut taken = Vec::new();
    for (id, row) in table.applications.iter().filter(|(id, _)| affected(id)) {
        taken.extend(row.retired.iter().cloned());
        taken.extend(table.reachable(id).flat_map(|(_, object)| object.given.iter().cloned()));
    }
    taken.sort_unstable_by_key(|given| given.base);
    taken
}

/// Returns the first gap of `bytes` bytes between sorted ranges, at a multiple of 4 MiB.
fn first_gap(addresses: Range<u64>, taken: Vec<AddressRange>, bytes: u64) -> Option<AddressRange> {
    const ALIGN_BYTES: u64 = 4 << 20;
    let mut base = addresses.start;
    for range in taken {
        if base.checked_add(bytes)? <= range.base {
            break;
        }
        base = base.max(range.end().checked_next_multiple_of(ALIGN_BYTES)?);
    }
    (base.checked_add(bytes)? <= addresses.end).then_some(AddressRange { base, bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::AccessTable;
    use super::super::table::Level;
    use super::*;
    use crate::application::SecretKey;
    use crate::names::ApplicationId;

    const MIB: u64 = 1 << 20;

    struct Store {
        _directory: tempfile::TempDir,
        table: AccessTable,
    }

    fn store(applications: &[&str]) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let table = AccessTable::of_store(directory.path());
        for id in applications {
            table.enter(&id.parse().unwrap(), &SecretKey::from_bytes([7; 32])).unwrap();
        }
        Store { _directory: directory, table }
    }

    fn id(text: &str) -> ApplicationId {
        text.parse().unwrap()
    }

    impl Store {
        fn lease(&self, object: &str, bytes: u64) -> evermap::Result<u64> {
            TableAddresses::of(self.table.file(), &object.parse().unwrap()).lease(bytes)
        }

        fn remove(&self, object: &str) {
            self.table.forget_missing(|name| name != object).unwrap();
        }
    }

    #[test]
    fn addresses_are_unique_in_the_store_while_the_window_has_room() {
        let store = store(&["a", "b"]);
        assert_eq!(store.lease("a:x", 4 * MIB).unwrap(), 0x1000_0000);
        assert_eq!(store.lease("b:x", 8 * MIB).unwrap(), 0x1040_0000);
        assert_eq!(store.lease("a:x", 4 * MIB).unwrap(), 0x10c0_0000);
    }

    #[test]
    fn a_removed_objects_addresses_are_never_assigned_again_to_applications_that_could_map_it() {
        let store = store(&["a", "b", "c"]);
        let first = store.lease("a:x", 4 * MIB).unwrap();
        store.table.grant(&id("b"), &"a:x".parse().unwrap(), Level::Snapshot).unwrap();
        store.remove("a:x");
        for object in ["a:x", "a:y", "b:x", "c:x"] {
            assert_ne!(store.lease(object, 4 * MIB).unwrap(), first, "{object}");
        }
    }

    #[test]
    fn a_full_window_is_reused_by_applications_that_never_had_the_addresses() {
        let store = store(&["a", "b"]);
        for id in ["a", "b"] {
            store.table.set_quota(&id.parse().unwrap(), 4 << 30).unwrap();
        }
        store.lease("a:x", 1024 * MIB - 4 * MIB).unwrap();
        let last = store.lease("b:x", 4 * MIB).unwrap();
        assert_eq!(last, 0x5000_0000 - 4 * MIB);
        assert_eq!(store.lease("b:y", 4 * MIB).unwrap(), 0x1000_0000, "an address of a:x");
        assert!(matches!(
            store.table.grant(&id("b"), &"a:x".parse().unwrap(), Level::Read),
            Err(Error::AddressesOverlap { .. })
        ));
        assert!(matches!(
            store.table.grant(&id("a"), &"b:y".parse().unwrap(), Level::Read),
            Err(Error::AddressesOverlap { .. })
        ));
        let refused = store.lease("a:y", 8 * MIB).unwrap_err();
        assert!(refused.to_string().contains("window"), "{refused}");
    }

    #[test]
    fn a_shared_object_grows_only_into_addresses_free_for_all_that_can_map_it() {
        let store = store(&["a", "b"]);
        for id in ["a", "b"] {
            store.table.set_quota(&id.parse().unwrap(), 4 << 30).unwrap();
        }
        store.lease("a:x", 4 * MIB).unwrap();
        store.lease("b:big", 1016 * MIB).unwrap();
        store.lease("a:last", 4 * MIB).unwrap();
        store.table.grant(&id("b"), &"a:x".parse().unwrap(), Level::Snapshot).unwrap();
        assert!(store.lease("a:x", 4 * MIB).is_err(), "only addresses of b:big are left");
        assert!(store.lease("a:own", 4 * MIB).is_ok(), "b cannot map a:own");
    }

    #[test]
    fn uncommitted_ranges_are_assigned_again_to_the_same_object_only() {
        let store = store(&["a"]);
        let first = store.lease("a:x", 4 * MIB).unwrap();
        let lost = store.lease("a:x", 8 * MIB).unwrap();
        let other = store.lease("a:y", 4 * MIB).unwrap();
        let addresses = TableAddresses::of(store.table.file(), &"a:x".parse().unwrap());
        addresses.set_in_use([(first, 4 * MIB)].into_iter());
        assert_eq!(addresses.lease(4 * MIB).unwrap(), lost);
        assert_eq!(addresses.lease(4 * MIB).unwrap(), lost + 4 * MIB);
        assert_eq!(addresses.lease(4 * MIB).unwrap(), other + 4 * MIB);
    }

    #[test]
    fn ranges_of_an_object_that_was_not_created_are_released() {
        let store = store(&["a"]);
        let addresses = TableAddresses::of(store.table.file(), &"a:x".parse().unwrap());
        let base = addresses.lease(4 * MIB).unwrap();
        addresses.release_unused();
        assert_eq!(store.lease("a:y", 4 * MIB).unwrap(), base);
    }

    #[test]
    fn ranges_are_kept_if_another_process_has_created_the_object() {
        let store = store(&["a"]);
        let of = || TableAddresses::of(store.table.file(), &"a:x".parse().unwrap());
        let (slower, quicker) = (of(), of());
        let lost = slower.lease(4 * MIB).unwrap();
        let first = quicker.lease(4 * MIB).unwrap();
        quicker.set_in_use([(first, 4 * MIB)].into_iter());
        assert_eq!(quicker.lease(4 * MIB).unwrap(), lost);
        slower.release_unused();
        assert_ne!(store.lease("a:y", 4 * MIB).unwrap(), lost, "an address of a:x");
    }

    #[test]
    fn an_object_removed_from_the_table_during_its_creation_is_added_again() {
        let store = store(&["a", "b"]);
        let object: ObjectName = "a:x".parse().unwrap();
        let addresses = TableAddresses::of(store.table.file(), &object);
        let first = addresses.lease(8 * MIB).unwrap();
        let left_bytes = store.table.left_bytes(&id("a")).unwrap();
        // Another guest creates an object and sees that the store does not have this one yet.
        store.remove("a:x");
        addresses.set_in_use([(first, 8 * MIB)].into_iter());
        assert_eq!(store.table.left_bytes(&id("a")).unwrap(), left_bytes);
        store.table.grant(&id("b"), &object, Level::Snapshot).unwrap();
        assert!(store.lease("a:x", 4 * MIB).is_ok_and(|more| more != first));
    }

    #[test]
    fn a_quota_counts_existing_objects_only() {
        let store = store(&["a"]);
        store.table.set_quota(&id("a"), 8 * MIB).unwrap();
        store.lease("a:x", 8 * MIB).unwrap();
        let refused = store.lease("a:y", 4 * MIB).unwrap_err();
        assert!(matches!(refused, evermap::Error::AddressQuota { .. }), "{refused}");
        assert_eq!(store.table.left_bytes(&id("a")).unwrap(), 0);
        store.remove("a:x");
        store.lease("a:y", 4 * MIB).unwrap();
        assert_eq!(store.table.left_bytes(&id("a")).unwrap(), 4 * MIB);
    }
}
