//! Deserializes scalars and containers. Each part is deserialized in its final place. After an
//! error, the guards that building always uses release the parts built before.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};

use super::{Context, FromDeserializer, PersistDeserialize, Seed};
use crate::HeapError;
use crate::alloc::Heap;
use crate::persist::build::{Block, Staged};
use crate::persist::pbtree::Filling;
use crate::persist::scalars::Row;
use crate::persist::{
    Build, Built, Mut, PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, PersistHash, Slot,
};

/// Maximum bytes reserved for a length hint, which may be hostile.
const RESERVED_BYTES_MAX: usize = 64 * 1024;

/// Returns the number of elements to reserve room for.
fn reserved<T>(hint: Option<usize>) -> usize {
    hint.unwrap_or(0).min(RESERVED_BYTES_MAX / size_of::<T>().max(1))
}

/// A visitor that fills a seed's place.
struct Filler<'a, T>(Seed<'a, T>);

macro_rules! build_by_deserializing {
    ($([$($generics:tt)*] $target:ty),* $(,)?) => {$(
        impl<'de, D, $($generics)*> Build<FromDeserializer<D>> for $target
        where
            D: Deserializer<'de>,
            $target: PersistDeserialize<'de>,
        {
            fn build<'a>(
                source: FromDeserializer<D>,
                slot: Slot<'a, Self>,
            ) -> Result<Built<'a, Self>, HeapError> {
                source.build_in(slot)
            }
        }
    )*};
}

// Not for scalars: with two kinds of sources the compiler could no longer infer `x.into()`, and its
// error for a `u32` in place of a `u64` would be less clear. Scalars deserialize themselves.
build_by_deserializing!(
    [] PString,
    [] PTextMap,
    [T: Persist] PVec<T>,
    [T: Persist] Option<PBox<T>>,
    [T: Persist, const N: usize] [T; N],
    [K: Persist, V: Persist] PMap<K, V>,
    [K: Persist, V: Persist] PBTree<K, V>,
);

macro_rules! by_value {
    ($([$($generics:tt)*] $value:ty),* $(,)?) => {$(
        impl<'de, $($generics)*> PersistDeserialize<'de> for $value {
            fn deserialize_into<'a, D: Deserializer<'de>>(
                seed: Seed<'a, Self>,
                deserializer: D,
            ) -> Result<Built<'a, Self>, D::Error> {
                Ok(seed.slot.write(<$value>::deserialize(deserializer)?))
            }
        }
    )*};
}

by_value!(
    [] u8, [] u16, [] u32, [] u64, [] u128, [] i8, [] i16, [] i32, [] i64, [] i128, [] f32, [] f64,
    [] bool, [] char, [T: Persist] PhantomData<T>,
);

impl<'de> PersistDeserialize<'de> for PString {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        deserializer.deserialize_str(Filler(seed))
    }
}

impl<'a> Visitor<'_> for Filler<'a, PString> {
    type Value = Built<'a, PString>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.0.fill(text)
    }
}

impl<'de> PersistDeserialize<'de> for PTextMap {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        deserializer.deserialize_map(Filler(seed))
    }
}

impl<'a, 'de> Visitor<'de> for Filler<'a, PTextMap> {
    type Value = Built<'a, PTextMap>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
        let Seed { slot, context } = self.0;
        slot.fill_with(PTextMap::new(), |mut map| {
            while let Some((key, value)) = pairs.next_entry::<String, String>()? {
                map.insert(&key, &value).map_err(|error| context.fail(error))?;
            }
            map.shrink_to_fit().map_err(|error| context.fail(error))
        })
    }
}

impl<'de, T: PersistDeserialize<'de>> PersistDeserialize<'de> for PVec<T> {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        deserializer.deserialize_seq(Filler(seed))
    }
}

impl<'a, 'de, T: PersistDeserialize<'de>> Visitor<'de> for Filler<'a, PVec<T>> {
    type Value = Built<'a, PVec<T>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Seed { slot, context } = self.0;
        slot.fill_with(PVec::new(), |mut vec| {
            let hint = reserved::<T>(seq.size_hint());
            vec.reserve(hint).map_err(|error| context.fail(error))?;
            loop {
                vec.reserve(1).map_err(|error| context.fail(error))?;
                if !vec.push_with(|slot| seq.next_element_seed(context.seed(slot)))? {
                    return Ok(());
                }
            }
        })
    }
}

impl<'de, T: PersistDeserialize<'de>, const N: usize> PersistDeserialize<'de> for [T; N] {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        deserializer.deserialize_tuple(N, Filler(seed))
    }
}

impl<'a, 'de, T: PersistDeserialize<'de>, const N: usize> Visitor<'de> for Filler<'a, [T; N]> {
    type Value = Built<'a, [T; N]>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an array of {N} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Seed { slot, context } = self.0;
        let mut row = Row::begin(&slot);
        for index in 0..N {
            if !row.push_with(|slot| seq.next_element_seed(context.seed(slot)))? {
                return Err(A::Error::invalid_length(index, &format!("{N} elements").as_str()));
            }
        }
        Ok(row.finish(slot))
    }
}

impl<'de, T: PersistDeserialize<'de>> PersistDeserialize<'de> for PBox<T> {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        let Seed { slot, context } = seed;
        let owned = boxed(slot.heap, &context, deserializer)?;
        Ok(slot.write(owned))
    }
}

/// Deserializes a value in its own block.
fn boxed<'de, T: PersistDeserialize<'de>, D: Deserializer<'de>>(
    heap: &Heap,
    context: &Context,
    deserializer: D,
) -> Result<PBox<T>, D::Error> {
    let block = Block::<T>::allocate(heap).map_err(|error| context.fail(error))?;
    // The box itself does not count as a level; the value in it does.
    let block = block.fill(|slot| context.seed(slot).deserialize(deserializer))?;
    Ok(PBox::owning(block))
}

impl<'de, T: PersistDeserialize<'de>> PersistDeserialize<'de> for Option<PBox<T>> {
    fn deserialize_into<'a, D: Deserializer<'de>>(
        seed: Seed<'a, Self>,
        deserializer: D,
    ) -> Result<Built<'a, Self>, D::Error> {
        deserializer.deserialize_option(Filler(seed))
    }

    fn absent(seed: Seed<'_, Self>) -> Option<Built<'_, Self>> {
        Some(seed.slot.write(None))
    }
}

impl<'a, 'de, T: PersistDeserialize<'de>> Visitor<'de> for Filler<'a, Option<PBox<T>>> {
    type Value = Built<'a, Option<PBox<T>>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value or nothing")
    }

    fn visit_none<E: serde_core::de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.0.slot.write(None))
    }

    fn visit_unit<E: serde_core::de::Error>(self) -> Result<Self::Value, E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let Seed { slot, context } = self.0;
        let owned = boxed(slot.heap, &context, deserializer)?;
        Ok(slot.write(Some(owned)))
    }
}

/// The next key and its value, built outside of the map.
type Pair<'h, K, V> = Option<(Staged<'h, K>, Staged<'h, V>)>;

fn next_pair<'h, 'de, K, V, A>(
    heap: &'h Heap,
    context: &Context,
    access: &mut A,
) -> Result<Pair<'h, K, V>, A::Error>
where
    K: PersistDeserialize<'de>,
    V: PersistDeserialize<'de>,
    A: MapAccess<'de>,
{
    let key = Staged::fill(heap, |slot| access.next_key_seed(context.seed(slot)))?;
    let Some(key) = key else { return Ok(None) };
    let value = Staged::fill(heap, |slot| access.next_value_seed(context.seed(slot)).map(Some))?;
    Ok(value.map(|value| (key, value)))
}

macro_rules! map {
    ($map:ident, [$($key:tt)*], $fill:ident) => {
        impl<'de, K, V> PersistDeserialize<'de> for $map<K, V>
        where
            K: PersistDeserialize<'de> + $($key)*,
            V: PersistDeserialize<'de>,
        {
            fn deserialize_into<'a, D: Deserializer<'de>>(
                seed: Seed<'a, Self>,
                deserializer: D,
            ) -> Result<Built<'a, Self>, D::Error> {
                deserializer.deserialize_map(Filler(seed))
            }
        }

        impl<'a, 'de, K, V> Visitor<'de> for Filler<'a, $map<K, V>>
        where
            K: PersistDeserialize<'de> + $($key)*,
            V: PersistDeserialize<'de>,
        {
            type Value = Built<'a, $map<K, V>>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
                let Seed { slot, context } = self.0;
                slot.fill_with($map::new(), |map| $fill(map, &context, access))
            }
        }
    };
}

map!(PMap, [PersistHash + Eq], fill_map);
map!(PBTree, [Ord], fill_tree);

fn fill_map<'de, K, V, A>(
    mut map: Mut<'_, PMap<K, V>>,
    context: &Context,
    mut access: A,
) -> Result<(), A::Error>
where
    K: PersistDeserialize<'de> + PersistHash + Eq,
    V: PersistDeserialize<'de>,
    A: MapAccess<'de>,
{
    let heap = map.heap;
    let hint = reserved::<(K, V)>(access.size_hint());
    map.reserve(hint).map_err(|error| context.fail(error))?;
    while let Some((key, value)) = next_pair(heap, context, &mut access)? {
        map.insert_staged(key, value).map_err(|error| context.fail(error))?;
    }
    Ok(())
}

fn fill_tree<'de, K, V, A>(
    mut tree: Mut<'_, PBTree<K, V>>,
    context: &Context,
    mut access: A,
) -> Result<(), A::Error>
where
    K: PersistDeserialize<'de> + Ord,
    V: PersistDeserialize<'de>,
    A: MapAccess<'de>,
{
    let heap = tree.heap;
    // Works while keys ascend, which they do in data serialized from a tree.
    let mut filling = Filling::begin(&mut tree);
    let mut pair = loop {
        let Some((key, value)) = next_pair::<K, V, A>(heap, context, &mut access)? else {
            return Ok(());
        };
        if filling.last_key().is_some_and(|last| *last >= *key) {
            break Some((key, value));
        }
        filling.append(key, value).map_err(|error| context.fail(error))?;
    };
    drop(filling);
    while let Some((key, value)) = pair {
        tree.insert_staged(key, value).map_err(|error| context.fail(error))?;
        pair = next_pair(heap, context, &mut access)?;
    }
    Ok(())
}
