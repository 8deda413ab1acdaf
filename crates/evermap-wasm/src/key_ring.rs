//! Applications' keys, for hosts that have no better place for them: a file beside the access table.
//!
//! Whoever can read the store can read it. It keeps the applications of one user apart, not
//! users; an embedder with a place for secrets gives keys from there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::application::{ApplicationId, SecretKey};
use crate::error::{Error, Result};
use crate::kept::{Kept, KeptFile};
use crate::module::{from_hex, hex};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Keys(BTreeMap<String, String>);

impl Kept for Keys {
    const FILE: &'static str = "sandbox.keys";
    const MAGIC: &'static str = "evermap-keys";
    const CALLED: &'static str = "the key ring";
}

/// The key ring of one store: the file `sandbox.keys`, owner-only.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let ring = evermap_wasm::KeyRing::of_store(directory.path());
/// let key = ring.find_or_make(&"player".parse()?)?;
/// assert_eq!(ring.find(&"player".parse()?)?, Some(key));
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

    /// An application's key; a new one where there is none.
    ///
    /// # Errors
    /// `DamagedTable` and the kernel's errors.
    pub fn find_or_make(&self, id: &ApplicationId) -> Result<SecretKey> {
        if let Some(key) = self.find(id)? {
            return Ok(key);
        }
        let new = SecretKey::random()?;
        self.file.change(|keys| match keys.key(id)? {
            // Another process was quicker.
            Some(key) => Ok(key),
            None => {
                keys.0.insert(id.to_string(), hex(&new.to_bytes()));
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
        let Some(digits) = self.0.get(id.as_str()) else { return Ok(None) };
        let bytes = from_hex::<32>(digits).ok_or_else(|| Error::DamagedTable {
            what: Keys::CALLED,
            path: Keys::FILE.into(),
            why: format!("the key of `{id}` has not 64 hexadecimal digits"),
        })?;
        Ok(Some(SecretKey::from_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        let ring = KeyRing::of_store(directory.path());
        assert_eq!(ring.find(&one).unwrap(), None);
        let key = ring.find_or_make(&one).unwrap();
        let again = KeyRing::of_store(directory.path());
        assert_eq!(again.find_or_make(&one).unwrap(), key);
        assert_ne!(again.find_or_make(&other).unwrap(), key);
        assert_eq!(again.all().unwrap().len(), 2);
    }
}
