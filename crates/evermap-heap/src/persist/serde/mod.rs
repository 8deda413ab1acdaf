//! Support for serde in both directions (cargo feature `serde`).
//!
//! *Out*: every container implements `Serialize`, so `#[derive(serde::Serialize)]` works on a
//! struct of them. *In*: [`from`] turns any `Deserializer` into a source. A container, or a struct
//! with `#[derive(PersistDeserialize)]`, is built from it directly in the object, without an
//! intermediate tree of values.
//! between.
//!
//! ```
//! use evermap::{PBTree, PString, PVec, Persist, PersistDeserialize, Store};
//!
//! #[derive(Persist, PersistDeserialize, serde::Serialize)]
//! #[repr(C)]
//! #[serde(rename_all = "kebab-case", deny_unknown_fields)]
//! struct Config {
//!     listen_on: PVec<PString>,
//!     limits: PBTree<PString, u64>,
//!     #[serde(default)]
//!     retries: u32,
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let store = Store::create_new(directory.path().join("store"))?;
//! let text = r#"{ "limits": { "memory": 10 }, "listen-on": ["::1"] }"#;
//! let mut json = serde_json::Deserializer::from_str(text);
//! store.create::<Config, _>("config", evermap::serde::from(&mut json))?;
//!
//! let config = store.read::<Config>("config")?;
//! assert_eq!(config.limits["memory"], 10);
//! assert_eq!(
//!     serde_json::to_string(&*config)?,
//!     r#"{"listen-on":["::1"],"limits":{"memory":10},"retries":0}"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The input may be hostile: length hints of a format are trusted up to 64 KiB, and values nested
//! deeper than [`DEPTH_MAX`] are refused, so that the stack doesn't overflow (beyond the needs of
//! the format's own parser). Serializing recurses as deep as the data.

mod derived;
mod read;
mod write;

pub use derived::*;

use std::cell::Cell;
use std::rc::Rc;

use serde_core::de::{DeserializeSeed, Deserializer, Error as _};

use super::{Build, Built, Persist, Slot};
use crate::HeapError;

/// Maximum nesting of deserialized values. A box counts as its contents.
pub const DEPTH_MAX: u32 = 256;

/// A type that can be built in an object from a `Deserializer`.
///
/// Use `#[derive(PersistDeserialize)]` together with `#[derive(Persist)]` for structs and fieldless
/// enums. It supports these serde attributes, so that `#[derive(serde::Serialize)]` on the same
/// type writes a form that it can read:
///
/// | attribute | on |
/// |---|---|
/// | `#[serde(rename = "..")]`, `rename(deserialize = "..")` | type, field, variant |
/// | `#[serde(rename_all = "..")]`, `rename_all(deserialize = "..")` | type |
/// | `#[serde(alias = "..")]` | field, variant |
/// | `#[serde(default)]`, `default = "path"` | field |
/// | `#[serde(default)]` | struct |
/// | `#[serde(skip)]`, `skip_deserializing` | field: its `Default` is used |
/// | `#[serde(deny_unknown_fields)]` | struct |
/// | `#[serde(transparent)]` | tuple struct of one field |
///
/// Attributes that only change how a value is written are ignored; others are refused. A missing
/// `Option<PBox<..>>` is `None`, as with serde. A default is a value of the field's own type, so a
/// default that owns memory is empty.
///
/// ```
/// use evermap::{PString, Persist, PersistDeserialize, Scratch};
///
/// #[derive(Persist, PersistDeserialize)]
/// #[repr(C)]
/// struct Place { name: PString, at: [f64; 2] }
///
/// let mut json = serde_json::Deserializer::from_str(r#"{ "name": "here", "at": [1, 2.5] }"#);
/// let object = Scratch::<Place>::new(evermap::serde::from(&mut json))?;
/// assert_eq!(object.root().name, "here");
/// assert_eq!(object.root().at, [1.0, 2.5]);
/// # Ok::<(), evermap::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be deserialised into an object",
    label = "`{Self}` doesn't implement `PersistDeserialize`",
    note = "your own type: add `#[derive(evermap::PersistDeserialize)]` to it"
)]
pub trait PersistDeserialize<'de>: Persist {
    /// Fills the seed's place.
    ///
    /// # Errors
    ///
    /// Returns the deserializer's error. Nothing stays allocated in the object then.
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error>;

    /// Fills the place of a missing field, if the type has a value for that.
    #[doc(hidden)]
    fn absent(seed: Seed<'_, Self>) -> Option<Built<'_, Self>> {
        let _ = seed;
        None
    }
}

/// A source created from a `Deserializer`: see [`from`].
pub struct FromDeserializer<D>(D);

/// Turns a `Deserializer` into a source, from which an object's root, a field (by
/// [`assign`](crate::Mut::assign)) or an element is built in place.
///
/// Costs as much as parsing plus building the same values. Keys of maps are built before
/// they are looked up, and the last of equal keys wins.
///
/// It reads one value and leaves the deserializer after it. If trailing data matters, check for it,
/// for example with `serde_json::Deserializer::end`.
///
/// # Errors
///
/// Building from it fails with [`HeapError::Deserialize`], which contains serde's message, and with
/// the errors of building, such as a full object. Nothing stays allocated then.
///
/// ```
/// use evermap::{HeapError, PMap, PString, PVec, Scratch};
///
/// let mut object = Scratch::<PMap<PString, PVec<u64>>>::new(PMap::new())?;
/// let mut json = serde_json::Deserializer::from_str(r#"{ "odd": [1, 3], "even": [2] }"#);
/// object.root_mut().assign(evermap::serde::from(&mut json))?;
/// assert_eq!(object.root()["odd"], [1, 3]);
///
/// let mut wrong = serde_json::Deserializer::from_str(r#"{ "odd": 1 }"#);
/// let error = object.root_mut().assign(evermap::serde::from(&mut wrong));
/// assert!(matches!(error, Err(HeapError::Deserialize { .. })));
/// assert_eq!(object.root().len(), 2);
/// # Ok::<(), HeapError>(())
/// ```
pub fn from<'de, D: Deserializer<'de>>(deserializer: D) -> FromDeserializer<D> {
    FromDeserializer(deserializer)
}

impl<D> FromDeserializer<D> {
    /// Builds in a slot: the `Build` implementation of each type that is `PersistDeserialize`.
    #[doc(hidden)]
    pub fn build_in<'a, 'de, T>(self, slot: Slot<'a, T>) -> Result<Built<'a, T>, HeapError>
    where
        T: PersistDeserialize<'de>,
        D: Deserializer<'de>,
    {
        let context = Context::default();
        let seed = Seed { slot, context: context.clone() };
        seed.deserialize(self.0).map_err(|error| {
            context.0.failure.take().unwrap_or_else(|| HeapError::Deserialize {
                what: super::typing::type_name::<T>().to_string(),
                why: error.to_string(),
            })
        })
    }
}

/// An unfilled place for a value in an object. Implements serde's `DeserializeSeed`.
pub struct Seed<'a, T> {
    slot: Slot<'a, T>,
    context: Context,
}

/// State shared by all seeds of one build.
#[derive(Clone, Default)]
pub(super) struct Context(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Original error of the object, because serde's errors are only texts.
    failure: Cell<Option<HeapError>>,
    depth: Cell<u32>,
}

impl Context {
    /// Converts an error of the object into one of the deserializer.
    fn fail<E: serde_core::de::Error>(&self, error: HeapError) -> E {
        let text = E::custom(&error);
        self.0.failure.set(Some(error));
        text
    }

    /// Creates a seed for a nested value.
    fn seed<'a, T>(&self, slot: Slot<'a, T>) -> Seed<'a, T> {
        Seed { slot, context: self.clone() }
    }
}

impl<'a, T: Persist> Seed<'a, T> {
    /// Builds the value from an existing source: the last step of a hand-written
    /// [`PersistDeserialize`].
    ///
    /// ```
    /// use evermap::serde::{PersistDeserialize, Seed};
    /// use evermap::{Build, Built, Persist, Scratch};
    /// use serde::Deserialize;
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Percent(u64);
    ///
    /// impl<'de> PersistDeserialize<'de> for Percent {
    ///     fn deserialize_into<'a, D: serde::Deserializer<'de>>(
    ///         seed: Seed<'a, Self>,
    ///         deserializer: D,
    ///     ) -> Result<Built<'a, Self>, D::Error> {
    ///         let ratio = f64::deserialize(deserializer)?;
    ///         seed.fill(Percent((ratio * 100.0) as u64))
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error when building fails; the underlying error is preserved.
    pub fn fill<S, E: serde_core::de::Error>(self, source: S) -> Result<Built<'a, T>, E>
    where
        T: Build<S>,
    {
        self.slot.build(source).map_err(|error| self.context.fail(error))
    }
}

impl<'a, 'de, T: PersistDeserialize<'de>> DeserializeSeed<'de> for Seed<'a, T> {
    type Value = Built<'a, T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Built<'a, T>, D::Error> {
        let shared = self.context.0.clone();
        let depth = shared.depth.get() + 1;
        if depth > DEPTH_MAX {
            return Err(D::Error::custom(format_args!("values nested deeper than {DEPTH_MAX}")));
        }
        shared.depth.set(depth);
        let built = T::deserialize_into(self, deserializer);
        shared.depth.set(depth - 1);
        built
    }
}
