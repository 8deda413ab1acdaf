//! Identity of modules (the hash of their bytes, and their signatures), and rules that name
//! modules.

use std::fmt;

use ed25519_dalek::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::hex::{from_hex, hex};

/// Parses an Ed25519 public key from 64 hexadecimal digits. Returns `None` if they are not a public
/// key.
pub fn public_key_of(digits: &str) -> Option<[u8; 32]> {
    let bytes = from_hex::<32>(digits)?;
    VerifyingKey::from_bytes(&bytes).is_ok().then_some(bytes)
}

/// Identity of a module: the SHA-256 of its bytes, and the signatures that came with it.
///
/// A signature is an Ed25519 signature of the hash's 32 bytes.
#[derive(Clone, Debug)]
pub struct ModuleIdentity {
    sha256: [u8; 32],
    signatures: Vec<[u8; 64]>,
}

impl ModuleIdentity {
    /// Returns the identity of a module with these bytes, as they are in its file.
    pub fn of(bytes: &[u8]) -> ModuleIdentity {
        ModuleIdentity { sha256: Sha256::digest(bytes).into(), signatures: Vec::new() }
    }

    /// Adds a signature. It is checked only when it is compared with bindings.
    pub fn signed(mut self, signature: [u8; 64]) -> ModuleIdentity {
        self.signatures.push(signature);
        self
    }

    /// Returns the hash in hexadecimal digits, as `sha256sum` prints it.
    pub fn sha256(&self) -> String {
        hex(&self.sha256)
    }

    /// Returns the hash, which signatures sign.
    pub fn hash(&self) -> [u8; 32] {
        self.sha256
    }

    /// Returns true if the binding is for this module.
    pub(crate) fn is(&self, binding: &ModuleBinding) -> bool {
        match binding {
            ModuleBinding::Sha256(hash) => *hash == self.sha256(),
            ModuleBinding::Signer(key) => {
                self.signatures.iter().any(|signature| self.is_signed_by(key, signature))
            }
        }
    }

    fn is_signed_by(&self, signer: &str, signature: &[u8; 64]) -> bool {
        let key = from_hex::<32>(signer).and_then(|key| VerifyingKey::from_bytes(&key).ok());
        key.is_some_and(|key| {
            key.verify_strict(&self.sha256, &Signature::from_bytes(signature)).is_ok()
        })
    }
}

/// A rule that allows modules to run as an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleBinding {
    /// The module with this SHA-256, in hexadecimal digits.
    Sha256(String),
    /// Modules signed with this Ed25519 public key, in hexadecimal digits.
    Signer(String),
}

impl fmt::Display for ModuleBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleBinding::Sha256(hash) => write!(f, "sha256:{hash}"),
            ModuleBinding::Signer(key) => write!(f, "signer:{key}"),
        }
    }
}

impl ModuleBinding {
    /// Binds modules by their signer's Ed25519 public key.
    ///
    /// ```
    /// use evermap_wasm::{ModuleBinding, public_key_of};
    /// let digits = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    /// let key = public_key_of(digits).ok_or("64 hexadecimal digits")?;
    /// assert_eq!(ModuleBinding::signer(&key)?, ModuleBinding::Signer(digits.to_string()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `BadPublicKey` if the bytes are not a public key.
    pub fn signer(public_key: &[u8; 32]) -> Result<ModuleBinding> {
        let key = hex(public_key);
        match VerifyingKey::from_bytes(public_key) {
            Ok(_) => Ok(ModuleBinding::Signer(key)),
            Err(_) => Err(Error::BadPublicKey { key }),
        }
    }

    /// Binds one module by its hash.
    ///
    /// ```
    /// use evermap_wasm::{ModuleBinding, Sandbox, SecretKey};
    /// # let directory = tempfile::tempdir()?;
    /// let sandbox = Sandbox::open(directory.path().join("store"))?;
    /// let (ours, other) = (sandbox.compile("ours", b"(module)")?, br#"(module (memory 1))"#);
    /// let player = sandbox.application("player".parse()?, SecretKey::random()?)?;
    /// sandbox.access().bind(player.id(), ModuleBinding::module(ours.identity()))?;
    /// // From now on no other module runs as the player.
    /// let other = sandbox.compile("other", other)?;
    /// assert!(sandbox.start(&other, &player, &Default::default()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn module(identity: &ModuleIdentity) -> ModuleBinding {
        ModuleBinding::Sha256(identity.sha256())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_without_a_valid_key_is_refused_by_its_bytes() {
        let mut keys = (0..=u8::MAX).map(|byte| [byte; 32]);
        let bad = keys.find(|key| VerifyingKey::from_bytes(key).is_err()).unwrap();
        let message = ModuleBinding::signer(&bad).unwrap_err().to_string();
        assert!(message.contains(&hex(&bad)) && message.contains("public key"), "{message}");
    }

    #[test]
    fn the_hash_is_plain_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ModuleIdentity::of(b"").sha256(), empty);
    }
}
