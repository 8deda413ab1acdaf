//! Contents of the key ring's file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::application::SecretKey;
use crate::error::{Error, Result};
use crate::hex::from_hex;
use crate::names::ApplicationId;
use crate::state_file::Contents;

/// Keys by application, as 64 hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keys(pub(crate) BTreeMap<String, String>);

/// Prefix of a key whose application is not in the access table yet, or is being removed.
pub(crate) const NEW: &str = "new:";

impl Contents for Keys {
    const FILE: &'static str = "sandbox.keys";
    const MAGIC: &'static str = "evermap-keys";
    const DISPLAY_NAME: &'static str = "the key ring";
}

impl Keys {
    /// Returns an application's key.
    pub(crate) fn key(&self, id: &ApplicationId) -> Result<Option<SecretKey>> {
        Ok(self.entry(id)?.map(|(key, _)| key))
    }

    /// Returns an application's key, and true if the key is marked as new.
    pub(crate) fn entry(&self, id: &ApplicationId) -> Result<Option<(SecretKey, bool)>> {
        let Some(text) = self.0.get(id.as_str()) else { return Ok(None) };
        let (digits, is_new) = match text.strip_prefix(NEW) {
            Some(digits) => (digits, true),
            None => (text.as_str(), false),
        };
        let bytes = from_hex::<32>(digits).ok_or_else(|| Error::DamagedTable {
            what: Keys::DISPLAY_NAME,
            path: Keys::FILE.into(),
            why: format!("the key of `{id}` is not 64 hexadecimal digits"),
        })?;
        Ok(Some((SecretKey::from_bytes(bytes), is_new)))
    }
}
