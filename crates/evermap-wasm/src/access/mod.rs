//! Access table: which application may use which objects, at which guest addresses and at which
//! level.
//!
//! The table is a file in the store's directory that no guest can reach. This module queries and
//! changes it. `table` has its contents, `changes` applies changes, `addresses` assigns guest
//! addresses.

mod addresses;
mod changes;
mod table;

use std::path::Path;
use std::sync::Arc;

pub(crate) use addresses::TableAddresses;
pub use changes::Change;
pub use table::{Access, ApplicationRow, Level, ObjectRow, QUOTA_BYTES_DEFAULT, RightRow};

use crate::application::SecretKey;
use crate::error::{Error, Result};
use crate::module::{ModuleBinding, ModuleIdentity};
use crate::names::{ApplicationId, ObjectName};
use crate::state_file::StateFile;
pub(crate) use table::Table;

/// The access table of one store.
///
/// Clones share one table. Each query reads the file again if it was replaced, so a revoked right
/// is gone at the next `map`.
///
/// ```
/// use evermap_wasm::{AccessTable, ApplicationId, Level, SecretKey};
/// # let directory = tempfile::tempdir()?;
/// let table = AccessTable::of_store(directory.path());
/// let player: ApplicationId = "player".parse()?;
/// table.enter(&player, &SecretKey::random()?)?;
/// table.set_quota(&player, 64 << 20)?;
/// // From its next `map` on, it can read its playlist but not change it.
/// let playlist = "player:playlist".parse()?;
/// table.grant(&player, &playlist, Level::Snapshot)?;
/// assert_eq!(table.level(&player, &playlist)?, Level::Snapshot);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessTable {
    file: Arc<StateFile<Table>>,
}

impl AccessTable {
    /// Returns the access table of the store in `directory`. The first change creates the file.
    pub fn of_store(directory: impl AsRef<Path>) -> AccessTable {
        AccessTable { file: Arc::new(StateFile::new(directory.as_ref())) }
    }

    /// Creates an application, or checks the key of an existing one.
    ///
    /// # Errors
    /// `WrongKey`, `DamagedTable` and I/O errors.
    pub fn enter(&self, id: &ApplicationId, key: &SecretKey) -> Result<()> {
        self.enter_with(id, key, &[])
    }

    /// Enters an application and changes it, in one step.
    pub(crate) fn enter_with(
        &self,
        id: &ApplicationId,
        key: &SecretKey,
        changes: &[Change],
    ) -> Result<()> {
        let verifier = key.verifier();
        if changes.is_empty() && self.knows_with(id, &verifier)? {
            return Ok(());
        }
        self.file.change(|table| {
            if table.application(id.as_str(), &verifier).key_verifier != verifier {
                return Err(wrong_key(id));
            }
            table.apply(id, changes)
        })
    }

    /// Returns true if the table has the application with this key.
    ///
    /// # Errors
    /// `WrongKey` if it has another key.
    pub(crate) fn knows_with(&self, id: &ApplicationId, verifier: &str) -> Result<bool> {
        let is_same = |table: &Table| {
            table.applications.get(id.as_str()).map(|row| row.key_verifier == verifier)
        };
        match self.file.query(is_same)? {
            Some(false) => Err(wrong_key(id)),
            known => Ok(known.is_some()),
        }
    }

    /// Checks that these changes to an application would succeed. The application may be new.
    pub(crate) fn check(&self, id: &ApplicationId, changes: &[Change]) -> Result<()> {
        self.file.query(|table| table.clone().apply(id, changes))?
    }

    /// Returns true if the table has the application.
    pub(crate) fn knows(&self, id: &ApplicationId) -> Result<bool> {
        self.file.query(|table| table.applications.contains_key(id.as_str()))
    }

    /// Makes changes to an application: all of them or none.
    ///
    /// # Errors
    /// `NoApplication`; `NoObject` when granting a right to an object of another application that
    /// does not exist; `AddressesOverlap`; `NoRight` and `NoBinding` for rights and bindings to be
    /// removed that do not exist; `DamagedTable` and I/O errors. After an error nothing has
    /// changed.
    pub fn apply(&self, id: &ApplicationId, changes: &[Change]) -> Result<()> {
        let no_application = || self.no_application(id);
        self.file.change(|table| match table.applications.contains_key(id.as_str()) {
            true => table.apply(id, changes),
            false => Err(no_application()),
        })
    }

    /// Returns an error if the application has objects among these names of the store.
    pub(crate) fn check_removable(&self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        self.file.query(|table| table.check_removable(id, in_store))?
    }

    /// Removes an application without objects.
    pub(crate) fn remove(&self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        self.file.change(|table| table.remove(id, in_store))
    }

    /// Binds modules to an application. From now on only bound modules run as it.
    ///
    /// # Errors
    /// `NoApplication`, `DamagedTable` and I/O errors.
    pub fn bind(&self, id: &ApplicationId, module: ModuleBinding) -> Result<()> {
        self.apply(id, &[Change::Bind(module)])
    }

    /// Removes a binding. After the last one is removed, no module can run as the application.
    /// [`unbind_all`](AccessTable::unbind_all) allows any module.
    ///
    /// # Errors
    /// Same errors as [`bind`](AccessTable::bind), and `NoBinding`.
    pub fn unbind(&self, id: &ApplicationId, module: &ModuleBinding) -> Result<()> {
        self.apply(id, &[Change::Unbind(module.clone())])
    }

    /// Removes all bindings: any module can run as the application.
    ///
    /// # Errors
    /// Same errors as [`bind`](AccessTable::bind).
    pub fn unbind_all(&self, id: &ApplicationId) -> Result<()> {
        self.apply(id, &[Change::UnbindAll])
    }

    /// Returns the bindings of an application. `None` means that any module can run as it.
    ///
    /// # Errors
    /// Same errors as [`bind`](AccessTable::bind).
    pub fn bindings(&self, id: &ApplicationId) -> Result<Option<Vec<ModuleBinding>>> {
        self.file
            .query(|table| table.applications.get(id.as_str()).map(|row| row.modules.clone()))?
            .ok_or_else(|| self.no_application(id))
    }

    /// Checks that a module may run as an application. Any module may if the application has no
    /// bindings.
    ///
    /// # Errors
    /// `NotBound`, `NoApplication`, and the errors of reading the access table.
    pub fn check_bound(&self, id: &ApplicationId, module: &ModuleIdentity) -> Result<()> {
        match self.bindings(id)? {
            Some(bindings) if !bindings.iter().any(|binding| module.is(binding)) => {
                Err(Error::NotBound { application: id.to_string(), module: module.sha256() })
            }
            _ => Ok(()),
        }
    }

    /// Sets the bytes of guest addresses that an application's objects may have together. Existing
    /// objects keep what they have.
    ///
    /// # Errors
    /// Same errors as [`bind`](AccessTable::bind).
    pub fn set_quota(&self, id: &ApplicationId, quota_bytes: u64) -> Result<()> {
        self.apply(id, &[Change::Quota(quota_bytes)])
    }

    /// Grants an application a right to an object of another application, or limits its right to
    /// one of its objects. Replaces an earlier right to the object.
    ///
    /// # Errors
    /// `NoApplication`, `NoObject` when granting a right to an object of another application that
    /// does not exist, `AddressesOverlap`.
    pub fn grant(&self, id: &ApplicationId, object: &ObjectName, level: Level) -> Result<()> {
        self.apply(id, &[Change::Grant(object.clone(), level)])
    }

    /// Removes the row of a right. The application then has no right to another application's
    /// object, and *write* to its own object. (To take away the owner's right, grant *none*.)
    ///
    /// # Errors
    /// `NoApplication`, and `NoRight` if the row does not exist.
    pub fn revoke(&self, id: &ApplicationId, object: &ObjectName) -> Result<()> {
        self.apply(id, &[Change::Revoke(object.clone())])
    }

    /// Returns the level at which an application may use an object.
    ///
    /// # Errors
    /// `DamagedTable` and I/O errors.
    pub fn level(&self, id: &ApplicationId, object: &ObjectName) -> Result<Level> {
        self.file.query(|table| {
            let owned = if object.owner() == id { Level::Write } else { Level::None };
            table.right(id.as_str(), object.in_store()).unwrap_or(owned)
        })
    }

    /// Returns the unused bytes of an application's quota.
    ///
    /// # Errors
    /// Same errors as [`bind`](AccessTable::bind).
    pub fn left_bytes(&self, id: &ApplicationId) -> Result<u64> {
        self.file
            .query(|table| {
                let row = table.applications.get(id.as_str())?;
                Some(row.quota_bytes.saturating_sub(table.used_bytes(id.as_str())))
            })?
            .ok_or_else(|| self.no_application(id))
    }

    /// Removes objects that no longer exist from the table, so they no longer count in a quota.
    /// Their addresses are not assigned again to applications that could map them.
    ///
    /// # Errors
    /// `DamagedTable` and I/O errors.
    pub fn forget_missing(&self, exists: impl Fn(&str) -> bool) -> Result<()> {
        let gone = self.file.query(|table| table.objects.keys().any(|name| !exists(name)))?;
        if !gone {
            return Ok(());
        }
        self.file.change(|table| {
            table.forget(&exists);
            Ok(())
        })
    }

    /// Returns the whole table, for display.
    ///
    /// # Errors
    /// `DamagedTable` and I/O errors.
    pub fn read(&self) -> Result<Access> {
        self.file.query(Table::read)
    }

    pub(crate) fn file(&self) -> &Arc<StateFile<Table>> {
        &self.file
    }

    pub(crate) fn no_application(&self, id: &ApplicationId) -> Error {
        Error::NoApplication {
            store: self.file.directory().to_path_buf(),
            application: id.to_string(),
        }
    }
}

fn wrong_key(id: &ApplicationId) -> Error {
    Error::WrongKey { application: id.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    fn table() -> (tempfile::TempDir, AccessTable, ApplicationId) {
        let directory = tempfile::tempdir().unwrap();
        let table = AccessTable::of_store(directory.path());
        let id: ApplicationId = "player".parse().unwrap();
        table.enter(&id, &SecretKey::from_bytes([1; 32])).unwrap();
        (directory, table, id)
    }

    #[test]
    fn only_bound_modules_run_as_the_application() {
        let (_directory, table, id) = table();
        let (one, other) = (ModuleIdentity::of(b"one"), ModuleIdentity::of(b"other"));
        table.check_bound(&id, &one).unwrap();
        table.bind(&id, ModuleBinding::module(&one)).unwrap();
        table.check_bound(&id, &one).unwrap();
        assert!(matches!(table.check_bound(&id, &other), Err(Error::NotBound { .. })));
        table.bind(&id, ModuleBinding::module(&other)).unwrap();
        table.check_bound(&id, &other).unwrap();
        table.unbind(&id, &ModuleBinding::module(&one)).unwrap();
        assert!(table.check_bound(&id, &one).is_err());

        table.unbind(&id, &ModuleBinding::module(&other)).unwrap();
        assert!(
            table.check_bound(&id, &other).is_err(),
            "no module may run after the last binding is removed"
        );
        table.unbind_all(&id).unwrap();
        table.check_bound(&id, &one).unwrap();
    }

    #[test]
    fn a_bound_signer_allows_only_the_modules_it_signed() {
        let (_directory, table, id) = table();
        let (key, other_key) = (SigningKey::from_bytes(&[3; 32]), SigningKey::from_bytes(&[4; 32]));
        let signer = ModuleBinding::signer(&key.verifying_key().to_bytes()).unwrap();
        table.bind(&id, signer).unwrap();
        let module = ModuleIdentity::of(b"module");
        let signed_by = |key: &SigningKey, of: &ModuleIdentity| key.sign(&of.hash()).to_bytes();
        let check = |module: ModuleIdentity| table.check_bound(&id, &module);
        assert!(check(module.clone()).is_err(), "no signature");
        assert!(check(module.clone().signed(signed_by(&other_key, &module))).is_err());
        let other = ModuleIdentity::of(b"another");
        assert!(
            check(other.signed(signed_by(&key, &module))).is_err(),
            "signature of another module"
        );
        check(
            module.clone().signed(signed_by(&other_key, &module)).signed(signed_by(&key, &module)),
        )
        .unwrap();
    }

    #[test]
    fn an_application_is_entered_with_its_own_key_only() {
        let (_directory, table, id) = table();
        let refused = table.enter(&id, &SecretKey::from_bytes([2; 32]));
        assert!(matches!(refused, Err(Error::WrongKey { .. })));
        table.enter(&id, &SecretKey::from_bytes([1; 32])).unwrap();
    }
}
