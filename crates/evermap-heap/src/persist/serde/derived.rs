//! Functions that `#[derive(PersistDeserialize)]` calls. Not public API: it may change with any
//! version, together with the macro. The macro generates tables and one `match` over the fields;
//! the walking is done here.

use std::fmt;

use serde_core::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{Context, PersistDeserialize, Seed};
use crate::persist::private::{Part, Parts};
use crate::persist::{Build, Built, Persist, Slot};

#[doc(hidden)]
pub use serde_core as __serde;

/// Names of a struct and its fields in the serialized form.
#[doc(hidden)]
pub enum Shape {
    Named,
    Tuple,
    Newtype,
    Unit,
}

/// A struct whose fields are filled one by one, by index.
///
/// # Safety
///
/// `next` and `absent` build the field with that index of this struct; `FIELDS` has one entry for
/// each field.
/// each field.
#[doc(hidden)]
pub unsafe trait Fill<'de>: Persist {
    /// Name of the type.
    const NAME: &'static str;
    /// Names of the fields that are read, in order.
    const NAMES: &'static [&'static str];
    /// All names of each field. Empty for a field that isn't read.
    const FIELDS: &'static [&'static [&'static str]];
    const SHAPE: Shape;
    const DENIES_UNKNOWN: bool;
    /// Array with a place for each field's guard.
    type Guards<'a>: AsMut<[Option<Part<'a>>]>;

    fn guards<'a>() -> Self::Guards<'a>;

    /// Builds a field from the next value.
    ///
    /// # Safety
    ///
    /// The field hasn't been built yet.
    unsafe fn next<'a, A: Values<'de>>(
        place: &Place<'a, Self>,
        field: usize,
        values: &mut A,
    ) -> Result<Option<Part<'a>>, A::Error>;

    /// Builds a field that is missing in the input.
    ///
    /// # Safety
    ///
    /// The field hasn't been built yet.
    unsafe fn absent<'a, E: serde_core::de::Error>(
        place: &Place<'a, Self>,
        field: usize,
    ) -> Result<Part<'a>, E>;
}

/// Source of the fields' values.
#[doc(hidden)]
pub trait Values<'de> {
    type Error: serde_core::de::Error;

    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error>;
}

struct OfMap<'m, A>(&'m mut A);

impl<'de, A: MapAccess<'de>> Values<'de> for OfMap<'_, A> {
    type Error = A::Error;

    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_value_seed(seed).map(Some)
    }
}

struct OfSeq<A>(A);

impl<'de, A: SeqAccess<'de>> Values<'de> for OfSeq<A> {
    type Error = A::Error;

    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(seed)
    }
}

struct Single<D>(Option<D>);

impl<'de, D: Deserializer<'de>> Values<'de> for Single<D> {
    type Error = D::Error;

    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, D::Error> {
        self.0.take().map(|deserializer| seed.deserialize(deserializer)).transpose()
    }
}

/// A struct being built.
#[doc(hidden)]
pub struct Place<'a, T> {
    parts: Parts<'a, T>,
    context: Context,
}

impl<'a, T: Persist> Place<'a, T> {
    /// Returns the struct's address.
    pub fn as_ptr(&self) -> *mut T {
        self.parts.as_ptr()
    }

    /// Returns the seed of a field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the struct that hasn't been built yet.
    pub unsafe fn seed<F: Persist>(&self, field: *mut F) -> FieldSeed<'a, F> {
        // SAFETY: the caller guarantees an unbuilt field of the struct.
        FieldSeed { slot: unsafe { self.parts.slot(field) }, context: self.context.clone() }
    }

    /// Builds a missing field, if its type has a value for that.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the struct that hasn't been built yet.
    pub unsafe fn missing<'de, F: PersistDeserialize<'de>, E: serde_core::de::Error>(
        &self,
        field: *mut F,
        name: &'static str,
    ) -> Result<Part<'a>, E> {
        // SAFETY: the caller guarantees an unbuilt field of the struct.
        let FieldSeed { slot, context } = unsafe { self.seed(field) };
        let (heap, target) = (slot.heap, slot.target);
        let built = F::absent(context.seed(slot)).ok_or_else(|| E::missing_field(name))?;
        Ok(Part::built(heap, target, built))
    }

    /// Builds a field from a value of its own type.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the struct that hasn't been built yet.
    pub unsafe fn value<F: Build<F>, E: serde_core::de::Error>(
        &self,
        field: *mut F,
        value: F,
    ) -> Result<Part<'a>, E> {
        // SAFETY: the caller guarantees an unbuilt field of the struct.
        let FieldSeed { slot, context } = unsafe { self.seed(field) };
        let (heap, target) = (slot.heap, slot.target);
        let built = context.seed(slot).fill(value)?;
        Ok(Part::built(heap, target, built))
    }
}

/// Place for a field.
#[doc(hidden)]
pub struct FieldSeed<'a, F> {
    slot: Slot<'a, F>,
    context: Context,
}

impl<'a, 'de, F: PersistDeserialize<'de>> DeserializeSeed<'de> for FieldSeed<'a, F> {
    type Value = Part<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Part<'a>, D::Error> {
        let (heap, target) = (self.slot.heap, self.slot.target);
        let built = self.context.seed(self.slot).deserialize(deserializer)?;
        Ok(Part::built(heap, target, built))
    }
}

/// Deserialises a derived struct.
#[doc(hidden)]
pub fn fill<'a, 'de, T: Fill<'de>, D: Deserializer<'de>>(
    seed: Seed<'a, T>,
    deserializer: D,
) -> Result<Built<'a, T>, D::Error> {
    let visitor = StructVisitor(seed);
    match T::SHAPE {
        Shape::Named => deserializer.deserialize_struct(T::NAME, T::NAMES, visitor),
        Shape::Tuple => deserializer.deserialize_tuple_struct(T::NAME, T::NAMES.len(), visitor),
        Shape::Newtype => deserializer.deserialize_newtype_struct(T::NAME, visitor),
        Shape::Unit => deserializer.deserialize_unit_struct(T::NAME, visitor),
    }
}

struct StructVisitor<'a, T>(Seed<'a, T>);

impl<'a, T> StructVisitor<'a, T> {
    fn place(self) -> Place<'a, T>
    where
        T: Persist,
    {
        let Seed { slot, context } = self.0;
        Place { parts: Parts::of(slot), context }
    }
}

/// Builds the missing fields and keeps all fields.
fn finish<'a, 'de, T: Fill<'de>, E: serde_core::de::Error>(
    place: Place<'a, T>,
    mut guards: T::Guards<'a>,
) -> Result<Built<'a, T>, E> {
    for (field, guard) in guards.as_mut().iter_mut().enumerate() {
        if guard.is_none() {
            // SAFETY: without a guard, the field hasn't been built.
            *guard = Some(unsafe { T::absent(&place, field)? });
        }
    }
    guards.as_mut().iter_mut().filter_map(Option::take).for_each(Part::keep);
    // SAFETY: each field has been built and kept.
    Ok(unsafe { place.parts.finish() })
}

/// Builds fields that come in order, without names.
fn in_order<'a, 'de, T: Fill<'de>, A: Values<'de>>(
    place: Place<'a, T>,
    mut values: A,
) -> Result<Built<'a, T>, A::Error> {
    let mut guards = T::guards();
    let read = (0..T::FIELDS.len()).filter(|field| !T::FIELDS[*field].is_empty());
    for (index, field) in read.enumerate() {
        // SAFETY: each field is built once.
        guards.as_mut()[field] = unsafe { T::next(&place, field, &mut values)? };
        if guards.as_mut()[field].is_none() {
            let expected = format!("{} with {} elements", T::NAME, T::NAMES.len());
            // Fields missing at the end may have a default.
            return finish(place, guards)
                .map_err(|_: A::Error| A::Error::invalid_length(index, &expected.as_str()));
        }
    }
    finish(place, guards)
}

impl<'a, 'de, T: Fill<'de>> Visitor<'de> for StructVisitor<'a, T> {
    type Value = Built<'a, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "struct {}", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let place = self.place();
        let mut guards = T::guards();
        while let Some(field) = map.next_key_seed(Name { all: T::FIELDS })? {
            let Some(field) = field.known else {
                if T::DENIES_UNKNOWN {
                    return Err(A::Error::unknown_field(&field.text, T::NAMES));
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if guards.as_mut()[field].is_some() {
                return Err(A::Error::duplicate_field(T::FIELDS[field][0]));
            }
            // SAFETY: without a guard, the field hasn't been built.
            guards.as_mut()[field] = unsafe { T::next(&place, field, &mut OfMap(&mut map))? };
        }
        finish(place, guards)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        in_order(self.place(), OfSeq(seq))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        in_order(self.place(), Single(Some(deserializer)))
    }

    fn visit_unit<E: serde_core::de::Error>(self) -> Result<Self::Value, E> {
        finish(self.place(), T::guards())
    }
}

/// Finds a name, or an index that replaces a name, in a table.
struct Name {
    all: &'static [&'static [&'static str]],
}

struct Found {
    known: Option<usize>,
    /// The unknown name, if it isn't in the table.
    text: String,
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Found;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<Found, E> {
        let known = self.all.iter().position(|names| names.contains(&text));
        let text = if known.is_none() { text.to_string() } else { String::new() };
        Ok(Found { known, text })
    }

    fn visit_bytes<E: serde_core::de::Error>(self, bytes: &[u8]) -> Result<Found, E> {
        self.visit_str(&String::from_utf8_lossy(bytes))
    }

    fn visit_u64<E: serde_core::de::Error>(self, number: u64) -> Result<Found, E> {
        // Indices count only fields that are read.
        let mut read = (0..self.all.len()).filter(|index| !self.all[*index].is_empty());
        let known = usize::try_from(number).ok().and_then(|number| read.nth(number));
        Ok(Found { known, text: number.to_string() })
    }
}

/// Deserializes the index of a fieldless enum's variant.
#[doc(hidden)]
pub fn variant<'de, D: Deserializer<'de>>(
    name: &'static str,
    names: &'static [&'static str],
    all: &'static [&'static [&'static str]],
    deserializer: D,
) -> Result<usize, D::Error> {
    deserializer.deserialize_enum(name, names, VariantVisitor { name, names, all })
}

struct VariantVisitor {
    name: &'static str,
    names: &'static [&'static str],
    all: &'static [&'static [&'static str]],
}

impl<'de> Visitor<'de> for VariantVisitor {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a variant of {}", self.name)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<usize, A::Error> {
        let (found, contents) = access.variant_seed(Name { all: self.all })?;
        contents.unit_variant()?;
        found.known.ok_or_else(|| A::Error::unknown_variant(&found.text, self.names))
    }
}
