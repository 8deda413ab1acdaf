//! Secret keys of applications.

use std::fmt;

use evermap::ApplicationKey;

use crate::error::{Error, Result};
use crate::hex::hex;

/// Secret key of an application, needed to open its objects. Guests neither supply nor see it.
///
/// Objects and the access table hold values derived from the key by BLAKE3 in key derivation mode,
/// not the key itself. Only a [`KeyRing`](crate::KeyRing), if one is used, stores the key.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// Returns the key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> SecretKey {
        SecretKey(bytes)
    }

    /// Returns a new key from the kernel's random numbers.
    ///
    /// # Errors
    /// `Io` if the kernel has none.
    pub fn random() -> Result<SecretKey> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| Error::Io {
            path: "/dev/urandom".into(),
            doing: "read random numbers from",
            source: std::io::Error::other(e.to_string()),
        })?;
        Ok(SecretKey(bytes))
    }

    /// Returns the bytes, for storage.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Derives the key in the headers of the application's objects.
    pub(crate) fn application_key(&self) -> Result<ApplicationKey> {
        let derived =
            blake3::derive_key("evermap 2026-11 application key of guest objects", &self.0);
        let mut key = [0; 16];
        key.copy_from_slice(&derived[..16]);
        // All zeros means "no key"; the probability is 2^-128.
        ApplicationKey::from_bytes(key).ok_or(Error::Engine {
            why: "the derived key is all zeros, which means no key",
            remedy: "use another secret key",
        })
    }

    /// Derives the hash by which the access table recognises the key.
    pub(crate) fn verifier(&self) -> String {
        let derived =
            blake3::derive_key("evermap 2026-11 verifier of an application's key", &self.0);
        hex(&derived)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}
