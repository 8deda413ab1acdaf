//! Applications' keys, for hosts that have no better place for them: a file beside the access table.
//!
//! Whoever can read the store can read it. It keeps the applications of one user apart, not
//! users; an embedder with a place for secrets gives keys from there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::access::{AccessTable, Change, Table};
use crate::application::{ApplicationId, SecretKey};
use crate::error::{Error, Result};
use crate::kept::{Kept, KeptFile};
use crate::module::{from_hex, hex};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keys(BTreeMap<String, String>);

/// Prefix of a key whose application is not in the access table yet.
const NEW: &str = "new:";

impl Kept for Keys {
    const FILE: &'static str = "sandbox.keys";
    const MAGIC: &'static str = "evermap-keys";
    const CALLED: &'static str = "the key ring";
}

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
    file: KeptFile<Keys>,
}

impl KeyRing {
    /// The key ring of the store in a directory; it is made with the first key.
    pub fn of_store(directory: impl AsRef<Path>) -> KeyRing {
        KeyRing { file: KeptFile::new(directory.as_ref()) }
    }

    /// An application's key, if it has one.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn find(&self, id: &ApplicationId) -> Result<Option<SecretKey>> {
        self.file.look(|keys| keys.key(id))?
    }

    /// Enters an application in the access table of the same store, and gives its key. A new application
    /// gets a new key.
    ///
    /// A key is marked as new until the table has its application, so a kill between the two writes does
    /// no harm. Later, an application that only one of the two files knows is refused, because the other
    /// file was removed or replaced.
    ///
    /// # Errors
    /// `HalfKnown`, `MissingTable`, `WrongKey`, `DamagedTable`, `UnsafeTable` and the kernel's errors.
    pub fn enter(&self, table: &AccessTable, id: &ApplicationId) -> Result<SecretKey> {
        self.enter_with(table, id, &[])
    }

    /// Enters an application like [`enter`](KeyRing::enter) and makes changes to it. If one of them
    /// fails, nothing is changed, and a new application is not made.
    ///
    /// # Errors
    /// Those of [`enter`](KeyRing::enter) and of [`AccessTable::apply`].
    pub fn enter_with(
        &self,
        table: &AccessTable,
        id: &ApplicationId,
        changes: &[Change],
    ) -> Result<SecretKey> {
        let half_known =
            |knows, lacks| Error::HalfKnown { application: id.to_string(), knows, lacks };
        let known = self.file.look(|keys| keys.entry(id))??;
        let (key, is_new) = match (known, table.knows(id)?) {
            (None, true) => return Err(half_known(Table::FILE, Keys::FILE)),
            (Some((_, false)), false) => return Err(half_known(Keys::FILE, Table::FILE)),
            (Some(known), _) => known,
            (None, false) => {
                // Before the files are made: they would stay.
                table.check(id, changes)?;
                // The table first: keys without a table are refused.
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

    /// Removes an application without objects: its rights, its bindings and its key. `in_store` has the
    /// names of all objects of the store. None of its guests may be running: one that is can make no
    /// objects afterwards.
    ///
    /// # Errors
    /// `NoApplication`, `HasObjects`, `HalfKnown`, `DamagedTable`, `UnsafeTable` and the kernel's errors.
    pub fn remove(
        &self,
        table: &AccessTable,
        id: &ApplicationId,
        in_store: &[String],
    ) -> Result<()> {
        let half_known =
            |knows, lacks| Error::HalfKnown { application: id.to_string(), knows, lacks };
        let key = match (self.file.look(|keys| keys.entry(id))??, table.knows(id)?) {
            (None, false) => return Err(table.no_application(id)),
            (None, true) => return Err(half_known(Table::FILE, Keys::FILE)),
            (Some((_, false)), false) => return Err(half_known(Keys::FILE, Table::FILE)),
            (Some((key, _)), _) => hex(&key.to_bytes()),
        };
        table.check_removable(id, in_store)?;
        // A key that is marked as new may be without a row, so a kill between the steps does no harm.
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

    /// Removes a key that is marked as new, unless the table has its application by now.
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

    /// All keys.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn all(&self) -> Result<Vec<(ApplicationId, SecretKey)>> {
        let ids: Vec<String> = self.file.look(|keys| keys.0.keys().cloned().collect())?;
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

impl Keys {
    fn key(&self, id: &ApplicationId) -> Result<Option<SecretKey>> {
        Ok(self.entry(id)?.map(|(key, _)| key))
    }

    /// An application's key, and whether it is marked as new.
    fn entry(&self, id: &ApplicationId) -> Result<Option<(SecretKey, bool)>> {
        let Some(text) = self.0.get(id.as_str()) else { return Ok(None) };
        let (digits, is_new) = match text.strip_prefix(NEW) {
            Some(digits) => (digits, true),
            None => (text.as_str(), false),
        };
        let bytes = from_hex::<32>(digits).ok_or_else(|| Error::DamagedTable {
            what: Keys::CALLED,
            path: Keys::FILE.into(),
            why: format!("the key of `{id}` has not 64 hexadecimal digits"),
        })?;
        Ok(Some((SecretKey::from_bytes(bytes), is_new)))
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
    fn a_key_is_made_once_and_found_again() {
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
    fn an_application_with_a_change_that_fails_is_not_made() {
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

        // Of one that is there, nothing changes.
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
    fn an_application_without_objects_is_removed_and_one_with_objects_is_not() {
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
    fn a_kill_between_the_steps_of_a_removal_leaves_nothing_in_the_way() {
        let (_directory, ring, table) = files();
        let one = "one".parse().unwrap();
        let key = ring.enter(&table, &one).unwrap();
        // After the mark; after the row is gone.
        ring.set(&one, format!("{NEW}{}", hex(&key.to_bytes()))).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        ring.set(&one, format!("{NEW}{}", hex(&key.to_bytes()))).unwrap();
        table.remove(&one, &[]).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        ring.remove(&table, &one, &[]).unwrap();
    }

    #[test]
    fn a_kill_between_the_two_files_leaves_nothing_in_the_way() {
        let (_directory, ring, table) = files();
        let one = "one".parse().unwrap();
        // Before the first key; before the row; before the mark is gone.
        table.file().ensure().unwrap();
        assert!(!table.knows(&one).unwrap());
        let key = ring.add(&one).unwrap();
        assert_eq!(ring.enter(&table, &one).unwrap(), key);
        let two = "two".parse().unwrap();
        let key = ring.add(&two).unwrap();
        table.enter(&two, &key).unwrap();
        assert_eq!(ring.enter(&table, &two).unwrap(), key);
        assert_eq!(ring.file.look(|keys| keys.entry(&two)).unwrap().unwrap(), Some((key, false)));
    }

    #[test]
    fn an_application_that_one_file_alone_knows_is_refused() {
        let (directory, ring, table) = files();
        let one = "one".parse().unwrap();
        ring.enter(&table, &one).unwrap();
        let path = |name: &str| directory.path().join(name);
        let keys = std::fs::read(path(Keys::FILE)).unwrap();
        let rights = std::fs::read(path(Table::FILE)).unwrap();
        std::fs::remove_file(path(Keys::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::HalfKnown { .. })));
        assert!(!path(Keys::FILE).exists(), "and no new key was made");
        std::fs::write(path(Keys::FILE), keys).unwrap();
        std::fs::remove_file(path(Table::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::MissingTable { .. })));
        // A table that is whole, and has no row of the application.
        let elsewhere = tempfile::tempdir().unwrap();
        AccessTable::of_store(elsewhere.path()).file().ensure().unwrap();
        std::fs::copy(elsewhere.path().join(Table::FILE), path(Table::FILE)).unwrap();
        assert!(matches!(ring.enter(&table, &one), Err(Error::HalfKnown { .. })));
        std::fs::write(path(Table::FILE), rights).unwrap();
        ring.enter(&table, &one).unwrap();
    }
}
