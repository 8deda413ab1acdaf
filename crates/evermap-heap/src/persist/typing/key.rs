//! Looks up a key before it is built: inserting over an existing key must not allocate a second
//! one.

use std::borrow::{Borrow, Cow};

use crate::persist::{PString, PVec, Persist};

/// An ordinary value that represents a key of type `K`: the argument of a map's
/// [`insert`](crate::Mut::insert).
///
/// `&str`, `String` and similar types represent a [`PString`]; slices, `Vec`s and arrays represent
/// a [`PVec`]; every key type represents itself.
///
/// ```
/// use evermap::{PMap, PString, Scratch};
///
/// let mut object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
/// object.root_mut().insert(String::from("b"), 2)?;
/// assert_eq!(object.root().get("b"), Some(&2));
/// # Ok::<(), evermap::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't stand for a key of type `{K}`",
    label = "not a source of `{K}` keys"
)]
pub trait KeySource<K> {
    /// Form in which the key is looked up.
    type Query: ?Sized;

    /// Returns the key in its lookup form.
    fn query(&self) -> &Self::Query;
}

impl<K: Persist> KeySource<K> for K {
    type Query = K;

    fn query(&self) -> &K {
        self
    }
}

macro_rules! text {
    ($($source:ty),*) => {$(
        impl KeySource<PString> for $source {
            type Query = str;

            fn query(&self) -> &str {
                self.as_ref()
            }
        }
    )*};
}

text!(&str, String, &String, Box<str>, Cow<'_, str>, &PString);

macro_rules! elements {
    ($([$($generics:tt)*] $source:ty),*) => {$(
        impl<$($generics)*> KeySource<PVec<T>> for $source {
            type Query = [T];

            fn query(&self) -> &[T] {
                Borrow::<[T]>::borrow(self)
            }
        }
    )*};
}

elements!([T] &[T], [T] Vec<T>, [T, const N: usize] [T; N]);
