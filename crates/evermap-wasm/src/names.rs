//! Names that come from guests, and what they are in the store.

use std::fmt;
use std::str::FromStr;

use crate::application::ApplicationId;
use crate::error::{Error, Result};

/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// May this name an application, or an object of one?
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
}

/// An object and the application that made it. As text: owner, colon, name; and so it is called
/// in the store.
///
/// ```
/// use evermap_wasm::ObjectName;
/// let name: ObjectName = "player:playlist".parse()?;
/// assert_eq!((name.owner().as_str(), name.name()), ("player", "playlist"));
/// assert!("player:../playlist".parse::<ObjectName>().is_err());
/// # Ok::<(), evermap_wasm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    owner: ApplicationId,
    /// Owner, colon, name: what the store calls it, and asked for at every `map`.
    whole: String,
}

impl ObjectName {
    /// An application's own object of this name.
    ///
    /// # Errors
    /// `InvalidName`.
    pub fn new(owner: &ApplicationId, name: &str) -> Result<ObjectName> {
        if !is_name(name) {
            return Err(Error::InvalidName { what: "an object", name: name.to_string() });
        }
        let whole = [owner.as_str(), ":", name].concat();
        Ok(ObjectName { owner: owner.clone(), whole })
    }

    /// The application that made it.
    pub fn owner(&self) -> &ApplicationId {
        &self.owner
    }

    /// What that calls it.
    pub fn name(&self) -> &str {
        &self.whole[self.owner.as_str().len() + 1..]
    }

    /// What the store calls it.
    pub fn in_store(&self) -> &str {
        &self.whole
    }
}

impl FromStr for ObjectName {
    type Err = Error;

    fn from_str(text: &str) -> Result<ObjectName> {
        let invalid = || Error::InvalidName { what: "an object", name: text.to_string() };
        let (owner, name) = text.split_once(':').ok_or_else(invalid)?;
        ObjectName::new(&owner.parse()?, name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.whole)
    }
}
