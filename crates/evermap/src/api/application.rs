//! Application keys: which application an object belongs to.

use std::fmt;

use crate::object::hex;

/// Names the application that an object belongs to.
///
/// An object created with a key opens only with that key. An object created without one opens with
/// any key. Keys prevent accidents and are not a secret: the tools (`check`, `backup`, `audit`,
/// ...) ignore them.
///
/// ```
/// use evermap::{ApplicationKey, Error, Store};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::create_new(directory.path().join("store"))?;
/// let player = store.for_application(ApplicationKey::named("player"));
/// player.create::<u64, _>("position", 7)?;
/// assert_eq!(*player.read::<u64>("position")?, 7);
/// assert!(matches!(store.read::<u64>("position"), Err(Error::OtherApplication { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApplicationKey([u8; 16]);

impl ApplicationKey {
    /// Derives a key from a name: its XXH3 hash of 128 bits, little-endian.
    pub fn named(name: &str) -> ApplicationKey {
        ApplicationKey(xxhash_rust::xxh3::xxh3_128(name.as_bytes()).to_le_bytes())
    }

    /// Returns the key with these bytes, or `None` for sixteen zeros, which stand for "no key".
    pub fn from_bytes(bytes: [u8; 16]) -> Option<ApplicationKey> {
        (bytes != [0; 16]).then_some(ApplicationKey(bytes))
    }

    /// Returns the bytes of the key, as stored in the superblock.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for ApplicationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApplicationKey({})", hex(&self.0))
    }
}
