//! Catalog changes of a repair. Each is one commit, and checks its conditions under the catalog's
//! lock.

use crate::api::home::Use;
use crate::api::inner::StoreInner;
use crate::api::store::Store;
use crate::catalog::{self, Catalog, Found, Lease};
use crate::error::Result;
use crate::layout::{BUILDING, OBJECTS};
use crate::object::hex;
use crate::persist::Mut;
use crate::storage::OpenMode;

impl Store {
    fn change_catalog<R>(
        &self,
        change: impl Fn(&StoreInner, Mut<'_, Catalog>) -> Result<R>,
    ) -> Result<R> {
        self.home
            .run(Use::Change, |inner| inner.catalog()?.change(|catalog| change(inner, catalog)))
    }

    /// Removes a name whose file is missing. Returns false if the file exists after all, or the
    /// name belongs to another object.
    pub(crate) fn repair_missing(&self, name: &str, uuid: [u8; 16]) -> Result<bool> {
        self.change_catalog(|inner, mut catalog| {
            let missing = [OBJECTS, BUILDING].iter().all(|folder| {
                let opened = inner.storage.open(&inner.path_in(folder, uuid), OpenMode::Read);
                opened.is_err_and(|e| e.is_missing_file())
            });
            let named = catalog.find(name).is_some_and(|found| found.uuid == uuid);
            if missing && named {
                catalog.fields().objects.remove(name);
            }
            Ok(missing && named)
        })
    }

    /// Names an object file: with the name stored in the file, or one made from its id if that is
    /// taken. Returns `None` if the object already has a name, or another object has its addresses.
    pub(crate) fn repair_unnamed(&self, own_name: &str, found: &Found) -> Result<Option<String>> {
        self.change_catalog(|_, catalog| {
            let used = catalog.used();
            let taken = found.leases.iter().any(|lease| used.iter().any(|u| overlap(u, lease)));
            if catalog.has_uuid(found.uuid) || taken {
                return Ok(None);
            }
            let free = catalog::check_name(own_name).is_ok() && catalog.find(own_name).is_none();
            let name = match free {
                true => own_name.to_string(),
                false => format!("recovered-{}", hex(&found.uuid)),
            };
            catalog::insert(catalog, &name, found)?;
            Ok(Some(name))
        })
    }

    /// Records the leases of an object. Returns false if they overlap those of another object.
    pub(crate) fn repair_leases(&self, uuid: [u8; 16], leases: &[Lease]) -> Result<bool> {
        self.change_catalog(|_, catalog| {
            let others = catalog.list();
            let others = others.iter().filter(|(_, entry)| entry.uuid != uuid);
            let mut taken = others.flat_map(|(_, entry)| &entry.leases);
            if taken.any(|used| leases.iter().any(|lease| overlap(used, lease))) {
                return Ok(false);
            }
            catalog::set_leases(catalog, uuid, leases)
        })
    }

    /// Removes a name whose file was moved out of the store. Returns false if the name now belongs
    /// to another object.
    pub(crate) fn repair_take_out(&self, name: &str, uuid: [u8; 16]) -> Result<bool> {
        self.change_catalog(|_, mut catalog| {
            let named = catalog.find(name).is_some_and(|found| found.uuid == uuid);
            if named {
                catalog.fields().objects.remove(name);
            }
            Ok(named)
        })
    }
}

fn overlap(a: &Lease, b: &Lease) -> bool {
    a.base < b.base.saturating_add(b.bytes) && b.base < a.base.saturating_add(a.bytes)
}
