//! Identity of modules: the hash of their bytes, and their signatures.

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

use crate::access::{AccessTable, ModuleBinding};
use crate::application::ApplicationId;
use crate::error::{Error, Result};

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    // `from_str_radix` accepts a sign; hex strings must not have one.
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

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

    /// Checks that the module may run as the application. Any module may if the application has no
    /// bindings.
    ///
    /// # Errors
    /// `NotBound`, `NoApplication`, and the errors of reading the access table.
    pub fn check_bound(&self, table: &AccessTable, id: &ApplicationId) -> Result<()> {
        match table.bindings(id)? {
            Some(bindings) if !bindings.iter().any(|binding| self.is(binding)) => {
                Err(Error::NotBound { application: id.to_string(), module: self.sha256() })
            }
            _ => Ok(()),
        }
    }

    fn is(&self, binding: &ModuleBinding) -> bool {
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
    /// `BadSignature` if the bytes are not a public key.
    pub fn signer(public_key: &[u8; 32]) -> Result<ModuleBinding> {
        let signer = hex(public_key);
        match VerifyingKey::from_bytes(public_key) {
            Ok(_) => Ok(ModuleBinding::Signer(signer)),
            Err(_) => Err(Error::BadSignature { module: "of any kind".to_string(), signer }),
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
    #![allow(clippy::unwrap_used)]

    use ed25519_dalek::{Signer, SigningKey};

    use super::*;
    use crate::application::SecretKey;

    fn table() -> (tempfile::TempDir, AccessTable, ApplicationId) {
        let directory = tempfile::tempdir().unwrap();
        let table = AccessTable::of_store(directory.path());
        let id: ApplicationId = "player".parse().unwrap();
        table.enter(&id, &SecretKey::from_bytes([1; 32])).unwrap();
        (directory, table, id)
    }

    #[test]
    fn the_hash_is_plain_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ModuleIdentity::of(b"").sha256(), empty);
    }

    #[test]
    fn hex_digits_must_not_have_a_sign() {
        assert_eq!(from_hex::<2>("0aFf"), Some([10, 255]));
        assert!(["+a0f", "0a+f", "0a", "0a0f0", "zz0f"].iter().all(|t| from_hex::<2>(t).is_none()));
    }

    #[test]
    fn only_bound_modules_run_as_the_application() {
        let (_directory, table, id) = table();
        let (one, other) = (ModuleIdentity::of(b"one"), ModuleIdentity::of(b"other"));
        one.check_bound(&table, &id).unwrap();
        table.bind(&id, ModuleBinding::module(&one)).unwrap();
        one.check_bound(&table, &id).unwrap();
        assert!(matches!(other.check_bound(&table, &id), Err(Error::NotBound { .. })));
        table.bind(&id, ModuleBinding::module(&other)).unwrap();
        other.check_bound(&table, &id).unwrap();
        table.unbind(&id, &ModuleBinding::module(&one)).unwrap();
        assert!(one.check_bound(&table, &id).is_err());

        table.unbind(&id, &ModuleBinding::module(&other)).unwrap();
        assert!(
            other.check_bound(&table, &id).is_err(),
            "no module may run after the last binding is removed"
        );
        table.unbind_all(&id).unwrap();
        one.check_bound(&table, &id).unwrap();
    }

    #[test]
    fn a_bound_signer_allows_only_the_modules_it_signed() {
        let (_directory, table, id) = table();
        let (key, other_key) = (SigningKey::from_bytes(&[3; 32]), SigningKey::from_bytes(&[4; 32]));
        let signer = ModuleBinding::signer(&key.verifying_key().to_bytes()).unwrap();
        table.bind(&id, signer).unwrap();
        let module = ModuleIdentity::of(b"module");
        let signed_by = |key: &SigningKey, of: &ModuleIdentity| key.sign(&of.hash()).to_bytes();
        let check = |module: ModuleIdentity| module.check_bound(&table, &id);
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
