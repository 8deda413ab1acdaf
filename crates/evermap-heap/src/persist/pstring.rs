//! The string: a [`PVec<u8>`] whose bytes are UTF-8. Every method here keeps them UTF-8.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr::NonNull;

use super::{Bounds, Build, Built, Description, Mut, PVec, Persist, Releaser, Slot};
use crate::HeapError;

/// UTF-8 text: `String` for objects. 24 bytes, laid out like a [`PVec<u8>`].
///
/// A string dereferences to `str` for reading. Contents come from [`Build`] sources (`&str`,
/// `String`, ..) and from the methods of its cursor: [`push_str`](Mut::push_str),
/// [`push`](Mut::push), [`pop`](Mut::pop), [`truncate`](Mut::truncate), [`clear`](Mut::clear). The
/// cursor implements [`fmt::Write`], so `write!` works on it.
///
/// ```
/// use evermap::{PString, Scratch};
///
/// let mut object = Scratch::<PString>::new("hello")?;
/// object.root_mut().push_str(" world")?;
/// assert_eq!(object.root(), "hello world");
/// assert!(object.root().starts_with("hell"));
///
/// object.root_mut().assign("bye")?;
/// assert_eq!(object.root(), "bye");
/// # Ok::<(), evermap::Error>(())
/// ```
#[derive(Default)]
#[repr(transparent)]
pub struct PString(PVec<u8>);

const _: () = assert!(size_of::<PString>() == 24 && align_of::<PString>() == 8);

impl PString {
    /// Returns an empty string, which owns nothing.
    ///
    /// ```
    /// assert_eq!(evermap::PString::new(), "");
    /// ```
    pub const fn new() -> Self {
        PString(PVec::new())
    }

    /// Returns the text.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let object = Scratch::<PString>::new("text")?;
    /// assert_eq!(object.root().as_str(), "text");
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn as_str(&self) -> &str {
        // SAFETY: the bytes are UTF-8: the invariant of this file, and of the object, whose pages
        // are checked against their checksums and whose type id says that this is a `PString`.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }

    /// Returns the number of bytes that fit before the string has to grow.
    ///
    /// ```
    /// assert_eq!(evermap::PString::new().capacity(), 0);
    /// ```
    pub const fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<'a> Mut<'a, PString> {
    /// Appends text. Takes amortised time linear in the length of `text`.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The string is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("a")?;
    /// object.root_mut().push_str("bc")?;
    /// assert_eq!(object.root(), "abc");
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn push_str(&mut self, text: &str) -> Result<(), HeapError> {
        self.bytes().extend_from_slice(text.as_bytes())
    }

    /// Appends a character.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The string is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("a")?;
    /// object.root_mut().push('\u{e9}')?;
    /// assert_eq!(object.root(), "a\u{e9}");
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn push(&mut self, character: char) -> Result<(), HeapError> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// Removes the last character and returns it.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("ab")?;
    /// assert_eq!(object.root_mut().pop(), Some('b'));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        let len = self.len() - last.len_utf8();
        self.bytes().truncate(len);
        Some(last)
    }

    /// Truncates the text to `len` bytes. Returns `false`, and does nothing, if that is inside a
    /// character. A `len` longer than the text changes nothing.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("\u{e9}")?;
    /// assert!(!object.root_mut().truncate(1));
    /// assert!(object.root_mut().truncate(0));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn truncate(&mut self, len: usize) -> bool {
        if len < self.len() && !self.is_char_boundary(len) {
            return false;
        }
        self.bytes().truncate(len);
        true
    }

    /// Removes all text. The capacity is kept.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("text")?;
    /// object.root_mut().clear();
    /// assert_eq!(object.root(), "");
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.bytes().clear();
    }

    /// Reserves capacity for at least `additional` more bytes.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The string is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("")?;
    /// object.root_mut().reserve(100)?;
    /// assert!(object.root().capacity() >= 100);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.bytes().reserve(additional)
    }

    /// Frees unused capacity.
    ///
    /// # Errors
    ///
    /// Returns an error when the smaller block can't be allocated. The string is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("text")?;
    /// object.root_mut().clear();
    /// object.root_mut().shrink_to_fit()?;
    /// assert_eq!(object.root().capacity(), 0);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self) -> Result<(), HeapError> {
        self.bytes().shrink_to_fit()
    }

    /// Returns the bytes, for the methods of this file, which keep them UTF-8.
    fn bytes(&mut self) -> Mut<'_, PVec<u8>> {
        // SAFETY: `repr(transparent)`; the cursor's exclusive access is passed on.
        unsafe { Mut::from_raw(self.heap, self.target.cast()) }
    }
}

/// `write!` on a string's cursor. Returns [`fmt::Error`] when the object can't grow; text written
/// before stays.
///
/// ```
/// use std::fmt::Write;
/// use evermap::{PString, Scratch};
///
/// let mut object = Scratch::<PString>::new("")?;
/// let _ = write!(object.root_mut(), "{} of {}", 1, 2);
/// assert_eq!(object.root(), "1 of 2");
/// # Ok::<(), evermap::Error>(())
/// ```
impl fmt::Write for Mut<'_, PString> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text).map_err(|_| fmt::Error)
    }
}

// SAFETY: laid out like `PVec<u8>`, to which all calls are forwarded.
unsafe impl Persist for PString {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PString", &[]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: `repr(transparent)`; the caller guarantees a valid value.
        unsafe { PVec::<u8>::release(this.cast(), releaser) }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: `repr(transparent)`; the caller lets the bytes be read.
        unsafe { PVec::<u8>::is_bounded(this.cast(), bounds) }
    }
}

impl Build<PString> for PString {
    fn build<'a>(source: PString, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}

macro_rules! from_text {
    ($($source:ty),*) => {$(
        impl Build<$source> for PString {
            fn build<'a>(source: $source, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
                let text: &str = source.as_ref();
                slot.write_with(PString::new(), |mut string| {
                    string.bytes().reserve_exact(text.len())?;
                    string.push_str(text)
                })
            }

            // The old block is reused if the text fits.
            fn assign(source: $source, mut target: Mut<'_, Self>) -> Result<(), HeapError> {
                let text: &str = source.as_ref();
                // Reserved before anything is cleared: a failure leaves the old text.
                let more = text.len().saturating_sub(target.len());
                target.bytes().reserve(more)?;
                target.clear();
                target.push_str(text)
            }
        }
    )*};
}

from_text!(&str, String, &String, Box<str>, Cow<'_, str>, &PString);

impl Build<char> for PString {
    fn build<'a>(source: char, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(&*source.encode_utf8(&mut [0; 4]))
    }
}

impl Deref for PString {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for PString {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), formatter)
    }
}

impl fmt::Debug for PString {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl PartialEq for PString {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for PString {}

macro_rules! equals_text {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for PString {
            fn eq(&self, other: &$other) -> bool {
                let other: &str = other.as_ref();
                self.as_str() == other
            }
        }

        impl PartialEq<PString> for $other {
            fn eq(&self, other: &PString) -> bool {
                other == self
            }
        }
    )*};
}

equals_text!(str, &str, String);

impl PartialOrd for PString {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PString {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for PString {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for PString {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for PString {
    fn as_ref(&self) -> &str {
        self
    }
}
