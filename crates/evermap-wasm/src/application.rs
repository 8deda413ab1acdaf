//! Applications: what rights belong to, and the keys that they are made with.

use std::fmt;
use std::str::FromStr;

use evermap::ApplicationKey;

use crate::error::{Error, Result};
use crate::names::is_name;

/// Names an application, to people and in the access table: 1 to 64 ASCII letters, digits, `.`,
/// `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApplicationId(String);

impl ApplicationId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ApplicationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<ApplicationId> {
        if is_name(text) {
            return Ok(ApplicationId(text.to_string()));
        }
        Err(Error::InvalidName { what: "an application", name: text.to_string() })
    }
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An application's secret: what its objects open with. Its guests neither give nor see it.
///
/// The store and the access table hold what was derived from it, by BLAKE3 in key derivation mode,
/// and never the key.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A key of the embedder's making.
    pub fn from_bytes(bytes: [u8; 32]) -> SecretKey {
        SecretKey(bytes)
    }

    /// A new one, from the kernel's random numbers.
    ///
    /// # Errors
    /// When there are none.
    pub fn random() -> Result<SecretKey> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| Error::Io {
            path: "/dev/urandom".into(),
            doing: "read random numbers from",
            source: std::io::Error::other(e.to_string()),
        })?;
        Ok(SecretKey(bytes))
    }

    /// Its bytes, for whoever keeps it.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// What the application's objects carry.
    pub(crate) fn application_key(&self) -> Result<ApplicationKey> {
        let derived =
            blake3::derive_key("evermap 2026-11 application key of guest objects", &self.0);
        let mut key = [0; 16];
        key.copy_from_slice(&derived[..16]);
        // Sixteen zeros would be no key; nobody will ever see that.
        ApplicationKey::from_bytes(key).ok_or(Error::Engine {
            why: "a key was derived that is none",
            remedy: "use another secret key",
        })
    }

    /// What the access table knows it by.
    pub(crate) fn verifier(&self) -> String {
        let derived =
            blake3::derive_key("evermap 2026-11 verifier of an application's key", &self.0);
        crate::module::hex(&derived)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}
