//! Key ring: a file next to the access table with applications' keys, for hosts without a secret
//! store.
//!
//! Only its owner and root can read the file. The keys separate the applications of one user, not
//! users. An embedder with a secret store passes keys from there instead.

use std::path::Path;

use crate::access::{AccessTable, Change, Table};
use crate::application::SecretKey;
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::keys::{Keys, NEW};
use crate::names::ApplicationId;
use crate::state_file::{Contents, StateFile};

/// The key ring of one store: the file `sandbox.keys`, owner-only.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// use evermap_wasm::{AccessTable, ApplicationId, KeyRing};
/// let (ring, table) = (KeyRing::of_store(directory.path()), AccessTable::of_store(directory.path()));
/// let player: ApplicationId = "player".parse()?;
/// let key = ring.enter(&table, &player)?;
/// assert_eq!(ring.find(&player)?, Some(key));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeyRing {
    file: StateFile<Keys>,
}

impl KeyRing {
    /// Returns the key ring of the store in `directory`. The first key creates the file.
    pub fn of_store(directory: impl AsRef<Path>) -> KeyRing {
        KeyRing { file: StateFile::new(directory.as_ref()) }
    }

    /// Returns an application's key, if it has one.
    ///
    /// # Errors
    /// `DamagedTable` and I/O errors.
    pub fn find(&self, id: &ApplicationId) -> Result<Option<SecretKey>> {
        self.file.query(|keys| keys.key(id))?
    }

    /// Enters an application in the access table of the same store, and returns its key. A new
    /// application gets a new key.
    ///
    /// A key is marked as new until the table has its application, so a kill between the two writes
    /// does no harm. Later, an application that only one of the two files has is refused, because
    /// the other file was removed or replaced.
    ///
    /// # Errors
    /// `IncompleteApplication`, `MissingTable`, `WrongKey`, `DamagedTable`, `UnsafeTable` and I/O
    /// errors.
    pub fn enter(&self, table: &AccessTable, id: &ApplicationId) -> Result<SecretKey> {
        self.enter_with(table, id, &[])
    }

    /// Enters an application like [`enter`](KeyRing::enter) and changes it. If a change fails,
    /// nothing is changed, and a new application is not created.
    ///
    /// # Errors
    /// Same errors as [`enter`](KeyRing::enter) and [`AccessTable::apply`].
    pub fn enter_with(
        &self,
        table: &AccessTable,
        id: &ApplicationId,
        changes: &[Change],
    ) -> Result<SecretKey> {
        let incomplete = |found_in, missing_in| Error::IncompleteApplication {
            application: id.to_string(),
            found_in,
            missing_in,
        };
        let known = self.file.query(|keys| keys.entry(id))??;
        let (key, is_new) = match (known, table.knows(id)?) {
            (None, true) => return Err(incomplete(Table::FILE, Keys::FILE)),
            (Some((_, false)), false) => return Err(incomplete(Keys::FILE, Table::FILE)),
            (Some(known), _) => known,
            (None, false) => {
                // Checked before the files are created, because they would stay.
                table.check(id, changes)?;
                // The table is created first: keys without a table are refused.
                table.file().ensure()?;
                (self.add(id)?, true)
            }
        };
        if let Err(error) = table.enter_with(id, &key, changes) {
            if is_new {
                self.remove_new(table, id)?;
            }
            return Err(error);
        }
        if is_new {
            self.set(id, hex(&key.to_bytes()))?;
        }
        Ok(key)
    }

    /// Removes an application without objects: its rights, its bindings and its key. `in_store`
    /// lists all object names of the store. Call this only when none of its guests is running,
    /// because a guest that is still running could no longer create objects.
    ///
    /// # Errors
    /// `NoApplication`, `HasObjects`, `IncompleteApplication`, `DamagedTable`, `UnsafeTable` and
    /// I/O errors.
    pub fn remove(
        &self,
        table: &AccessTable,
        id: &ApplicationId,
        in_store: &[String],
    ) -> Result<()> {
        let incomplete = |found_in, missing_in| Error::IncompleteApplication {
            application: id.to_string(),
            found_in,
            missing_in,
        };
        let key = match (self.file.query(|keys| keys.entry(id))??, table.knows(id)?) {
            (None, false) => return Err(table.no_application(id)),
            (None, true) => return Err(incomplete(Table::FILE, Keys::FILE)),
            (Some((_, false)), false) => return Err(incomplete(Keys::FILE, Table::FILE)),
            (Some((key, _)), _) => hex(&key.to_bytes()),
        };
        table.check_removable(id, in_store)?;
        // A key that is marked as new can lack a row in the table, so a kill between the steps does
        // no harm.
        self.set(id, format!("{NEW}{key}"))?;
        if let Err(error) = table.remove(id, in_store) {
            self.set(id, key)?;
            return Err(error);
        }
        self.remove_new(table, id)
    }

    fn set(&self, id: &ApplicationId, text: String) -> Result<()> {
        self.file.change(|keys| {
            keys.0.insert(id.to_string(), text);
            Ok(())
        })
    }

    /// Removes a key that is marked as new, unless the table has its application.
    fn remove_new(&self, table: &AccessTable, id: &ApplicationId) -> Result<()> {
        self.file.change(|keys| {
            let is_new = keys.entry(id)?.is_some_and(|(_, is_new)| is_new);
            if is_new && !table.knows(id)? {
                keys.0.remove(id.as_str());
            }
            Ok(())
        })
    }

    /// Adds a key and marks it as new. Returns the existing key if another process was faster.
    fn add(&self, id: &ApplicationId) -> Result<SecretKey> {
        let new = SecretKey::random()?;
        self.file.change(|keys| match keys.key(id)? {
            Some(key) => Ok(key),
            None => {
                keys.0.insert(id.to_string(), format!("{NEW}{}", hex(&new.to_bytes())));
                Ok(new)
            }
        })
    }

    /// Returns all keys.
    ///
    /// # Errors
    /// `DamagedTable` and I/O errors.
    pub fn all(&self) -> Result<Vec<(ApplicationId, SecretKey)>> {
        let ids: Vec<String> = self.file.query(|keys| keys.0.keys().cloned().collect())?;
        let mut all = Vec::new();
        for id in ids {
            let id: ApplicationId = id.parse()?;
            if let Some(key) = self.find(&id)? {
                all.push((id, key));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::access::Level;

    fn files() -> (tempfile::TempDir, KeyRing, AccessTable) {
        let directory = tempfile::tempdir().unwrap();
        let (ring, table) =
            (KeyRing::of_store(directory.path()), AccessTable::of_store(directory.path()));
        (directory, ring, table)
    }

    #[test]
    fn a_key_is_created_once_and_found_again() {
        let (directory, ring, table) = files();
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        assert_eq!(ring.find(&one).unwrap(), None);
        let key = ring.enter(&table, &one).unwrap();
        let again = KeyRing::of_store(directory.path());
        assert_eq!(again.enter(&table, &one).unwrap(), key);
        assert_ne!(again.enter(&table, &other).unwrap(), key);
        assert_eq!(again.all().unwrap().len(), 2);
    }

    #[test]
    fn an_application_is_not_created_if_a_change_fails() {
        let (directory, ring, table) = files();
        let one = "one".parse().unwrap();
        let fails = [
            Change::Quota(1),
            Change::Grant("one:own".parse().unwrap(), Level::None),
            Change::Grant("other:x".parse().unwrap(), Level::Read),
        ];
        let refused = ring.enter_with(&table, &one, &fails).unwrap_err();
        assert!(matches!(refused, Error::NoObject { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

        // An existing application is unchanged.
        let key = ring.enter_with(&table, &one, &fails[..2]).unwrap();
        let before = table.read().unwrap();
        assert_eq!(before.applications[0].quota_bytes, 1);
        for last in [fails[2].clone(), Change::Revoke("other:x".parse().unwrap())] {
            let changes = [Change::Quota(2), Change::Revoke("one:own".parse().unwrap()), last];
            assert!(ring.enter_with(&table, &one, &changes).is_err());
            assert!(table.apply(&one, &changes).is_err());
            assert_eq!(table.read().unwrap(), before);
        }
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
    }

    #[test]
    fn only_an_application_without_objects_can_be_removed() {
        let (_directory, ring, table) = files();
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        let key = ring.enter(&table, &one).unwrap();
        let rights = [Change::Grant("other:own".parse().unwrap(), Level::None)];
        let other_key = ring.enter_with(&table, &other, &rights).unwrap();
        let in_store = ["one:heap".to_string()];
        let refused = ring.remove(&table, &one, &in_store).unwrap_err();
        assert!(matches!(refused, Error::HasObjects { .. }), "{refused}");
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        ring.remove(&table, &other, &in_store).unwrap();
        assert_eq!(ring.find(&other).unwrap(), None);
        let left = table.read().unwrap();
        assert_eq!((left.applications.len(), left.rights.len()), (1, 0));
        let refused = ring.remove(&table, &other, &in_store).unwrap_err();
        assert!(matches!(refused, Error::NoApplication { .. }), "{refused}");
        assert_ne!(ring.enter(&table, &other).unwrap(), other_key);
    }

    #[test]
    fn a_removal_can_be_repeated_after_a_kill_between_its_steps() {
        let (_directory, ring, table) = files();
        let one = "one".parse().unwrap();
        let key = ring.enter(&table, &one).unwrap();
        // Killed after the mark, and after the row was removed.
        ring.set(&one, format!("{NEW}{}", hex(&key.to_bytes()))).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        ring.set(&one, format!("{NEW}{}", hex(&key.to_bytes()))).unwrap();
        table.remove(&one, &[]).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        ring.remove(&table, &one, &[]).unwrap();
    }

    #[test]
    fn an_entry_can_be_repeated_after_a_kill_between_the_two_files() {
        let (_directory, ring, table) = files();
        let one = "one".parse().unwrap();
        // Killed before the first key, before the row, and before the mark is removed.
        table.file().ensure().unwrap();
        assert!(!table.knows(&one).unwrap());
        let key = ring.add(&one).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        let two = "two".parse().unwrap();
        let key = ring.add(&two).unwrap();
        table.enter(&two, &key).unwrap();
        assert_eq!(ring.enter(&table, &two).unwrap(), key);
        assert_eq!(ring.file.query(|keys| keys.entry(&two)).unwrap().unwrap(), Some((key, false)));
    }

    #[test]
    fn an_application_that_only_one_file_has_is_refused() {
        let (directory, ring, table) = files();
        let one = "one".parse().unwrap();
        ring.enter(&table, &one).unwrap();
        let path = |name: &str| directory.path().join(name);
        let keys = std::fs::read(path(Keys::FILE)).unwrap();
        let rights = std::fs::read(path(Table::FILE)).unwrap();
        std::fs::remove_file(path(Keys::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::IncompleteApplication { .. })));
        assert!(!path(Keys::FILE).exists(), "a new key was created");
        std::fs::write(path(Keys::FILE), keys).unwrap();
        std::fs::remove_file(path(Table::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::MissingTable { .. })));
        // An intact table without a row for the application.
        let elsewhere = tempfile::tempdir().unwrap();
        AccessTable::of_store(elsewhere.path()).file().ensure().unwrap();
        std::fs::copy(elsewhere.path().join(Table::FILE), path(Table::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::IncompleteApplication { .. })));
        std::fs::write(path(Table::FILE), rights).unwrap();
        ring.enter(&table, &one).unwrap();
    }
}
