//! serde, both ways (cargo feature `serde`).
//!
//! *Out*: every container is `Serialize`, so `#[derive(serde::Serialize)]` on a struct of them just
//! works. *In*: [`from`] makes a source of any `Deserializer`, from which a container, or a struct with
//! `#[derive(PersistDeserialize)]`, is built in its place in the object, without a tree of values in
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
//! What comes from outside may be hostile: sizes that a format announces are believed up to 64 KiB, and
//! values nested deeper than [`DEPTH_MAX`] are refused, so that the stack doesn't overflow (beyond what
//! the format's own parser needs). Writing out recurses as deep as the data does.

mod derived;
mod read;
mod write;

pub use derived::*;

use std::cell::Cell;
use std::rc::Rc;

use serde_core::de::{DeserializeSeed, Deserializer, Error as _};

use super::{Build, Built, Persist, Slot};
use crate::Error;

/// How deep values may be nested in what is deserialised; a box counts as what is in it.
pub const DEPTH_MAX: u32 = 256;

/// A type that can be built in an object from what a `Deserializer` gives.
///
/// Use `#[derive(PersistDeserialize)]` beside `#[derive(Persist)]` for structs and fieldless enums. It
/// follows these of serde's attributes, so that `#[derive(serde::Serialize)]` on the same type writes what
/// it reads:
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
/// Attributes that only change how a value is written are passed over; others are refused. A missing
/// `Option<PBox<..>>` is `None`, as with serde. A default is a value of the field's own type, so one that
/// owns memory is empty.
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
    /// What the deserializer says. Nothing is left behind in the object.
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error>;

    /// Fills the place of a field that isn't there, if the type has a value that stands for that.
    #[doc(hidden)]
    fn absent(seed: Seed<'_, Self>) -> Option<Built<'_, Self>> {
        let _ = seed;
        None
    }
}

/// A source made of a `Deserializer`: see [`from`].
pub struct FromDeserializer<D>(D);

/// Makes a source of a `Deserializer`, from which an object's root, a field (by
/// [`assign`](crate::Mut::assign)) or an element is built in place.
///
/// Costs what parsing costs and what building the same values costs; keys of maps are built before they
/// are looked up, and the last of equal keys wins.
///
/// It reads one value and leaves the deserializer there: ask it whether that was all, as
/// `serde_json::Deserializer::end` does, if that matters.
///
/// # Errors
///
/// Building from it fails with [`Error::Deserialize`], which says what serde said, and with the errors of
/// building, such as a full object. Nothing is left behind then.
///
/// ```
/// use evermap::{Error, PMap, PString, PVec, Scratch};
///
/// let mut object = Scratch::<PMap<PString, PVec<u64>>>::new(PMap::new())?;
/// let mut json = serde_json::Deserializer::from_str(r#"{ "odd": [1, 3], "even": [2] }"#);
/// object.root_mut().assign(evermap::serde::from(&mut json))?;
/// assert_eq!(object.root()["odd"], [1, 3]);
///
/// let mut wrong = serde_json::Deserializer::from_str(r#"{ "odd": 1 }"#);
/// let error = object.root_mut().assign(evermap::serde::from(&mut wrong));
/// assert!(matches!(error, Err(Error::Deserialize { .. })));
/// assert_eq!(object.root().len(), 2);
/// # Ok::<(), Error>(())
/// ```
pub fn from<'de, D: Deserializer<'de>>(deserializer: D) -> FromDeserializer<D> {
    FromDeserializer(deserializer)
}

impl<D> FromDeserializer<D> {
    /// Builds in a slot. What `Build` does for each type that is `PersistDeserialize`.
    #[doc(hidden)]
    pub fn build_in<'a, 'de, T>(self, slot: Slot<'a, T>) -> Result<Built<'a, T>, Error>
    where
        T: PersistDeserialize<'de>,
        D: Deserializer<'de>,
    {
        let context = Context::default();
        let seed = Seed { slot, context: context.clone() };
        seed.deserialize(self.0).map_err(|error| {
            context.0.failure.take().unwrap_or_else(|| Error::Deserialize {
                what: super::describe::type_name::<T>().to_string(),
                why: error.to_string(),
            })
        })
    }
}

/// A place in an object that waits for a value to be deserialised. serde calls such a thing a seed, and
/// it is one: a `DeserializeSeed`.
pub struct Seed<'a, T> {
    slot: Slot<'a, T>,
    context: Context,
}

/// What all seeds of one build share.
#[derive(Clone, Default)]
pub(super) struct Context(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// serde's errors are texts: the error of the object that caused one is kept here.
    failure: Cell<Option<Error>>,
    depth: Cell<u32>,
}

impl Context {
    /// Turns an error of the object into one of the deserializer's.
    fn fail<E: serde_core::de::Error>(&self, error: Error) -> E {
        let text = E::custom(&error);
        self.0.failure.set(Some(error));
        text
    }

    /// A place for a value within.
    fn seed<'a, T>(&self, slot: Slot<'a, T>) -> Seed<'a, T> {
        Seed { slot, context: self.clone() }
    }
}

impl<'a, T: Persist> Seed<'a, T> {
    /// Builds the value from a source that is there already: what a hand-written
    /// [`PersistDeserialize`] ends with.
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
    /// When building fails; the error behind it isn't lost.
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
