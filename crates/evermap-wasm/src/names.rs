//! Names of applications, and of objects as guests pass them and as the store has them.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// Returns true if the name is valid for an application or an object.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
}

/// Id of an application: 1 to 64 ASCII letters, digits, `.`, `_` and `-`, not beginning with `.`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApplicationId(String);

impl ApplicationId {
    /// Returns the id as text.
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

/// Name of an object: the application that created it, and its name there. The text form,
/// `OWNER:NAME`, is the name in the store.
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
    /// The name in the store, kept whole because each `map` needs it.
    whole: String,
}

impl ObjectName {
    /// Returns the name of an application's own object.
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

    /// Returns the application that created the object.
    pub fn owner(&self) -> &ApplicationId {
        &self.owner
    }

    /// Returns the name without the owner.
    pub fn name(&self) -> &str {
        &self.whole[self.owner.as_str().len() + 1..]
    }

    /// Returns the name in the store: `OWNER:NAME`.
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
