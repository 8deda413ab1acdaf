//! Which application may use which objects, at which guest addresses, at which level.
//!
//! The table is the host's alone: a file in the store's directory that no guest can reach. This
//! module answers questions about it and changes it; `table` is what it holds, `addresses` how guest addresses are given.

mod addresses;
mod table;

use std::path::Path;
use std::sync::Arc;

pub(crate) use addresses::{QUOTA_REFUSED, TableAddresses};
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
        let verifier = key.verifier();
        let known = self.file.look(|table| {
            table.applications.get(id.as_str()).map(|row| row.key_verifier == verifier)
        })?;
        match known {
            Some(true) => Ok(()),
            Some(false) => Err(wrong_key(id)),
            None => self.file.change(|table| {
                let row = table.application(id.as_str(), &verifier);
                if row.key_verifier == verifier { Ok(()) } else { Err(wrong_key(id)) }
            }),
        }
    }

    /// Does the table know an application?
    pub(crate) fn knows(&self, id: &ApplicationId) -> Result<bool> {
        self.file.look(|table| table.applications.contains_key(id.as_str()))
    }

    /// Binds modules to an application: from now on it is theirs alone.
    ///
    /// # Errors
    /// `NoApplication`, `DamagedTable` and the kernel's errors.
    pub fn bind(&self, id: &ApplicationId, module: ModuleBinding) -> Result<()> {
        self.change_application(id, |row| {
            let modules = row.modules.get_or_insert_default();
            if !modules.contains(&module) {
                modules.push(module);
            }
        })
    }

    /// Takes a binding back. Without the last one no module may be run as the application:
    /// [`unbind_all`](AccessTable::unbind_all) lets any.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn unbind(&self, id: &ApplicationId, module: &ModuleBinding) -> Result<()> {
        let retain = |modules: &mut Vec<_>| modules.retain(|bound| bound != module);
        self.change_application(id, |row| row.modules.as_mut().map_or((), retain))
    }

    /// Gives all bindings up: any module may be run as the application.
    ///
    /// # Errors
    /// As [`bind`](AccessTable::bind).
    pub fn unbind_all(&self, id: &ApplicationId) -> Result<()> {
        self.change_application(id, |row| row.modules = None)
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
        self.change_application(id, |row| row.quota_bytes = quota_bytes)
    }

    /// Gives an application a right to an object: of another application, or less than *write*
    /// to one of its own. An earlier right to it is replaced.
    ///
    /// # Errors
    /// `NoApplication`, `NoObject` where a right to another application's object is given,
    /// `AddressesMeet`.
    pub fn grant(&self, id: &ApplicationId, object: &ObjectName, level: Level) -> Result<()> {
        let no_application = || self.no_application(id);
        self.file.change(|table| {
            if !table.applications.contains_key(id.as_str()) {
                return Err(no_application());
            }
            if object.owner() != id {
                table.check_meets_nothing(id.as_str(), object.in_store())?;
            }
            table.set_right(id.as_str(), object.in_store(), level);
            Ok(())
        })
    }

    /// Takes the row of a right away: of another application's object nothing is left, of an
    /// application's own one the owner's *write*. (To leave nothing of that, grant *none*.)
    ///
    /// # Errors
    /// `NoObject` when there is no such row.
    pub fn revoke(&self, id: &ApplicationId, object: &ObjectName) -> Result<()> {
        self.file.change(|table| match table.remove_right(id.as_str(), object.in_store()) {
            true => Ok(()),
            false => {
                Err(Error::NoObject { application: id.to_string(), object: object.to_string() })
            }
        })
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

    fn change_application(
        &self,
        id: &ApplicationId,
        change: impl FnOnce(&mut table::Application),
    ) -> Result<()> {
        let no_application = || self.no_application(id);
        self.file.change(|table| {
            change(table.applications.get_mut(id.as_str()).ok_or_else(no_application)?);
            Ok(())
        })
    }

    fn no_application(&self, id: &ApplicationId) -> Error {
        Error::NoApplication {
            store: self.file.directory().to_path_buf(),
            application: id.to_string(),
        }
    }
}

fn wrong_key(id: &ApplicationId) -> Error {
    Error::WrongKey { application: id.to_string() }
}
