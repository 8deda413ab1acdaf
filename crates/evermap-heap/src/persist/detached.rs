//! Moves the contents of a value to another place of the same object, without copying.
//!
//! In this layer, safe code never has a non-empty value that owns memory. A [`Detached`] wraps one:
//! its contents are inaccessible, it doesn't outlive the borrow of its object, it can only be built
//! into the same object again (which is checked), and it frees its memory otherwise.

use super::build::Staged;
use super::{Build, Built, Mut, PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, Slot};
use crate::HeapError;

/// Detached contents of a container: a source for a container of the same type in the same object.
/// See [`Mut::detach`]. Released if it is dropped.
pub struct Detached<'a, T: Persist>(Staged<'a, T>);

impl<'a, T: Persist + Default> Mut<'a, T> {
    /// Takes the contents out and leaves an empty value. Another value of the same object can be
    /// built from them in constant time.
    ///
    /// Works for types with an empty value: `PVec`, `PString`, `PMap`, `PBTree`, `Option<PBox>`.
    /// Works for types with an empty value: `PVec`, `PString`, `PMap`, `PBTree`, `Option<PBox>`.
    ///
    /// ```
    /// use evermap::{PString, PVec, Persist, Scratch};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Mail { inbox: PVec<PVec<PString>>, read: PVec<PVec<PString>> }
    ///
    /// let mut object = Scratch::<Mail>::new(MailInit { inbox: [["hi", "bye"]], read: [[""; 0]; 0] })?;
    /// let mut root = object.root_mut();
    /// let MailFields { mut inbox, mut read } = root.fields();
    /// if let Some(first) = inbox.get_mut(0) {
    ///     read.push(first.detach())?;
    /// }
    /// inbox.discard(0);
    /// assert_eq!(object.root().read[0], ["hi", "bye"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Building it into another object returns [`HeapError::OtherObject`].
    /// Building it into another object is refused: [`HeapError::OtherObject`].
    pub fn detach(self) -> Detached<'a, T> {
        let empty = T::default();
        // SAFETY: the cursor's value is moved out of its place, which gets another value at once.
        unsafe {
            let value = self.target.cast().read();
            self.target.write(empty);
            Detached(Staged::adopt(self.heap, value))
        }
    }
}

macro_rules! from_detached {
    ($([$($generics:tt)*] $target:ty),* $(,)?) => {$(
        impl<$($generics)*> Build<Detached<'_, $target>> for $target {
            fn build<'a>(
                source: Detached<'_, $target>,
                slot: Slot<'a, Self>,
            ) -> Result<Built<'a, Self>, HeapError> {
                if !std::ptr::eq(source.0.heap(), slot.heap) {
                    return Err(HeapError::OtherObject { what: super::typing::type_name::<Self>() });
                }
                // SAFETY: a valid value of the slot's object, moved in once.
                unsafe {
                    slot.target.cast().write(source.0.take());
                    Ok(slot.assume_built())
                }
            }
        }
    )*};
}

from_detached!(
    [] PString,
    [] PTextMap,
    [T: Persist] PVec<T>,
    [T: Persist] Option<PBox<T>>,
    [K: Persist, V: Persist] PMap<K, V>,
    [K: Persist, V: Persist] PBTree<K, V>,
);
