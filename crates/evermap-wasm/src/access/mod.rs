//! Which application may use which objects, at which guest addresses, at which level.
//!
//! The table is the host's alone: a file in the store's directory that no guest can reach. This
//! module answers questions about it and changes it; `table` is what it holds, `changes` what a change of it does,
//! `addresses` how guest addresses are given.

mod addresses;
mod changes;
mod table;

use std::path::Path;
use std::sync::Arc;

pub(crate) use addresses::{QUOTA_REFUSED, TableAddresses};
pub use changes::Change;
pub use table::{Access, ApplicationRow, Level, ModuleBinding, ObjectRow, RightRow};

use crate::application::{ApplicationId, SecretKey};
use crate::error::{Error, Result};
use crate::kept::KeptFile;
use crate::names::ObjectName;
pub(crate) use table::Table;

/// Bytes of guest addresses that an application may have when nobody says otherwise.
pub const QUOTA_BYTES_DEFAULT: u64 = 256 << 20;

/// The access table of one store.
///
/// Clones are the same table. Questions look at the file again when it was replaced; a right that
/// was revoked is gone with the next `map`.
///
/// ```
/// use evermap_wasm::{AccessTable, ApplicationId, Level, SecretKey};
/// # let directory = tempfile::tempdir()?;
/// let table = AccessTable::of_store(directory.path());
/// let player: ApplicationId = "player".parse()?;
/// table.enter(&player, &SecretKey::random()?)?;
/// table.set_quota(&player, 64 << 20)?;
/// // From its next `map` on, it may look at its own playlist, and not change it.
/// let playlist = "player:playlist".parse()?;
/// table.grant(&player, &playlist, Level::Snapshot)?;
/// assert_eq!(table.level(&player, &playlist)?, Level::Snapshot);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessTable {
    file: Arc<KeptFile<Table>>,
}

impl AccessTable {
    /// The table of the store in a directory; it is made by the first change.
    pub fn of_store(directory: impl AsRef<Path>) -> AccessTable {
        AccessTable { file: Arc::new(KeptFile::new(directory.as_ref())) }
    }

    /// Makes an application, if there is none of this id, or checks that the key is its key.
    ///
    /// # Errors
    /// `WrongKey`, `DamagedTable` and the kernel's errors.
    pub fn enter(&self, id: &ApplicationId, key: &SecretKey) -> Result<()> {
        self.enter_with(id, key, &[])
    }

    /// Enters an application and makes changes to it, all in one step.
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

    /// Returns true if the table knows an application by this key.
    ///
    /// # Errors
    /// `WrongKey` for another key.
    pub(crate) fn knows_with(&self, id: &ApplicationId, verifier: &str) -> Result<bool> {
        let is_same = |table: &Table| {
            table.applications.get(id.as_str()).map(|row| row.key_verifier == verifier)
        };
        match self.file.look(is_same)? {
            Some(false) => Err(wrong_key(id)),
            known => Ok(known.is_some()),
        }
    }

    /// Tells whether these changes to an application would succeed. The application may be new.
    pub(crate) fn check(&self, id: &ApplicationId, changes: &[Change]) -> Result<()> {
        self.file.look(|table| table.clone().apply(id, changes))?
    }

    /// Does the table know an application?
    pub(crate) fn knows(&self, id: &ApplicationId) -> Result<bool> {
        self.file.look(|table| table.applications.contains_key(id.as_str()))
    }

    /// Makes changes to an application, all of them or none.
    ///
    /// # Errors
    /// `NoApplication`; `NoObject` where a right to another application's object is given and there is no
    /// such object; `AddressesMeet`; `NoRight` and `NoBinding` for what is to be removed and is not there;
    /// `DamagedTable` and the kernel's errors. Nothing has changed then.
    pub fn apply(&self, id: &ApplicationId, changes: &[Change]) -> Result<()> {
        let no_application = || self.no_application(id);
        self.file.change(|table| match table.applications.contains_key(id.as_str()) {
            true => table.apply(id, changes),
            false => Err(no_application()),
        })
    }

    /// Refuses an application that has objects among these names of the store.
    pub(crate) fn check_removable(&self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        self.file.look(|table| table.check_removable(id, in_store))?
    }

    /// Removes an application without objects.
    pub(crate) fn remove(&self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        self.file.change(|table| table.remove(id, in_store))
    }

    /// Binds modules to an application: from now on it is theirs alone.
    ///
    /// # Errors
    /// `NoApplication`, `DamagedTable` and the kernel's errors.
    pub fn bind(&self, id: &ApplicationId, module: ModuleBinding) -> Result<()> {
        self.apply(id, &[Change::Bind(module)])
    }

    /// Takes a binding back. Without the last one no module may be run as the application:
    /// [`unbind_all`](AccessTable::unbind_all) lets any.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind), and `NoBinding`.
    pub fn unbind(&self, id: &ApplicationId, module: &ModuleBinding) -> Result<()> {
        self.apply(id, &[Change::Unbind(module.clone())])
    }

    /// Gives all bindings up: any module may be run as the application.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn unbind_all(&self, id: &ApplicationId) -> Result<()> {
        self.apply(id, &[Change::UnbindAll])
    }

    /// What is bound to an application; `None` means that any module may be run as it.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn bindings(&self, id: &ApplicationId) -> Result<Option<Vec<ModuleBinding>>> {
        self.file
            .look(|table| table.applications.get(id.as_str()).map(|row| row.modules.clone()))?
            .ok_or_else(|| self.no_application(id))
    }

    /// Sets the bytes of guest addresses that an application's objects may have together. What it
    /// has already stays.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn set_quota(&self, id: &ApplicationId, quota_bytes: u64) -> Result<()> {
        self.apply(id, &[Change::Quota(quota_bytes)])
    }

    /// Gives an application a right to an object: of another application, or less than *write*
    /// to one of its own. An earlier right to it is replaced.
    ///
    /// # Errors
    /// `NoApplication`, `NoObject` where a right to another application's object is given,
    /// `AddressesMeet`.
    pub fn grant(&self, id: &ApplicationId, object: &ObjectName, level: Level) -> Result<()> {
        self.apply(id, &[Change::Grant(object.clone(), level)])
    }

    /// Takes the row of a right away: of another application's object nothing is left, of an
    /// application's own one the owner's *write*. (To leave nothing of that, grant *none*.)
    ///
    /// # Errors
    /// `NoApplication`, and `NoRight` when there is no such row.
    pub fn revoke(&self, id: &ApplicationId, object: &ObjectName) -> Result<()> {
        self.apply(id, &[Change::Revoke(object.clone())])
    }

    /// What an application may do with an object.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn level(&self, id: &ApplicationId, object: &ObjectName) -> Result<Level> {
        self.file.look(|table| {
            let owned = if object.owner() == id { Level::Write } else { Level::None };
            table.right(id.as_str(), object.in_store()).unwrap_or(owned)
        })
    }

    /// Bytes of guest addresses that an application has left.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn left_bytes(&self, id: &ApplicationId) -> Result<u64> {
        self.file
            .look(|table| {
                let row = table.applications.get(id.as_str())?;
                Some(row.quota_bytes.saturating_sub(table.used_bytes(id.as_str())))
            })?
            .ok_or_else(|| self.no_application(id))
    }

    /// Forgets the objects that are no longer in the store, so that they take nothing of a quota.
    /// Their addresses are not given again.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn forget_missing(&self, exists: impl Fn(&str) -> bool) -> Result<()> {
        let gone = self.file.look(|table| table.objects.keys().any(|name| !exists(name)))?;
        if !gone {
            return Ok(());
        }
        self.file.change(|table| {
            table.forget(&exists);
            Ok(())
        })
    }

    /// All of it, for people.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn read(&self) -> Result<Access> {
        self.file.look(Table::read)
    }

    pub(crate) fn file(&self) -> &Arc<KeptFile<Table>> {
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
