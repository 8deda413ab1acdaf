//! The string: UTF-8 in the string's own 24 bytes if it is short, else in a block.
//!
//! The last byte tells the two apart. If it is 0, the bytes are those of a [`PVec<u8>`], whose
//! capacity stays far below `2^56`. If it is 1 to 23, that many bytes of text lie in place, from
//! the first byte on, and the bytes between the text and the last byte are zero. Other values are
//! damage. So 24 zero bytes are the empty string, and strings that were written before short ones
//! lay in place keep their meaning.
//!
//! Invariants: the text is UTF-8, which every method here maintains; a text in place is not empty;
//! a text in a block may have any length, because a block is kept until
//! [`shrink_to_fit`](Mut::shrink_to_fit). A text in place moves with its string, so no pointer to
//! it may outlive a borrow of the string.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::{self, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use super::{Bounds, Build, Built, Description, Mut, PVec, Persist, Releaser, Slot};
use crate::HeapError;

/// Longest text that lies in a string's own bytes.
const IN_PLACE_MAX: usize = 23;
/// Position of the byte with the length of a text in place.
const LENGTH_AT: usize = IN_PLACE_MAX;

/// UTF-8 text: `String` for objects. 24 bytes; texts of up to 23 bytes need no block.
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
// `MaybeUninit` keeps the provenance of a block's pointer, and the bytes behind a guest's pointer
// of four bytes, which are padding of a `PVec<u8>`, when the string is moved.
#[repr(C, align(8))]
pub struct PString([MaybeUninit<u8>; IN_PLACE_MAX + 1]);

const _: () = assert!(size_of::<PString>() == size_of::<PVec<u8>>());
const _: () = assert!(size_of::<PString>() == 24 && align_of::<PString>() == 8);
// The last byte is the highest one of the capacity.
const _: () = assert!(LENGTH_AT == mem::offset_of!(PVec<u8>, capacity) + 7);
const _: () = assert!(cfg!(target_endian = "little"), "objects are little-endian");

impl PString {
    /// Returns an empty string, which owns nothing.
    ///
    /// ```
    /// assert_eq!(evermap::PString::new(), "");
    /// ```
    pub const fn new() -> Self {
        PString([MaybeUninit::new(0); IN_PLACE_MAX + 1])
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
    #[inline]
    pub fn as_str(&self) -> &str {
        let text = match self.length_in_place() {
            0 => self.as_vec().as_slice(),
            // SAFETY: a text in place is initialised. The limit keeps a damaged length inside the
            // string, whose bytes are initialised unless they are a vector's.
            length => unsafe {
                slice::from_raw_parts(self.0.as_ptr().cast(), length.min(IN_PLACE_MAX))
            },
        };
        // SAFETY: the bytes are UTF-8: the invariant of this file, and of the object, whose pages
        // are checked against their checksums and whose type id says that this is a `PString`.
        unsafe { std::str::from_utf8_unchecked(text) }
    }

    /// Returns the number of bytes that fit before the string has to allocate: at least 23.
    ///
    /// ```
    /// assert_eq!(evermap::PString::new().capacity(), 23);
    /// ```
    pub const fn capacity(&self) -> usize {
        if self.length_in_place() != 0 {
            return IN_PLACE_MAX;
        }
        let capacity = self.as_vec().capacity();
        if capacity == 0 { IN_PLACE_MAX } else { capacity }
    }

    /// Returns the length of a text in place, or 0 if the bytes are a vector's. Exceeds 23 only in
    /// a damaged object.
    #[inline]
    const fn length_in_place(&self) -> usize {
        // SAFETY: the last byte is always initialised: it is a length, or part of a capacity.
        unsafe { self.0[LENGTH_AT].assume_init() as usize }
    }

    /// Returns the bytes as a vector, which they are if no text is in place.
    const fn as_vec(&self) -> &PVec<u8> {
        // SAFETY: size and alignment are asserted above. The bytes come from a vector or are zero,
        // which is an empty vector; any other bytes have a vector's fields too.
        unsafe { &*(&raw const *self).cast() }
    }

    /// Returns a string with a short text in place; `None` if the text is too long.
    fn in_place(text: &str) -> Option<PString> {
        let mut string = PString::new();
        (text.len() <= IN_PLACE_MAX).then(|| {
            string.append_in_place(0, text.as_bytes());
            string
        })
    }

    /// Appends bytes to a text in place of length `len`, or to an empty string without a block.
    fn append_in_place(&mut self, len: usize, bytes: &[u8]) {
        let end = len + bytes.len();
        for (place, byte) in self.0[..LENGTH_AT][len..end].iter_mut().zip(bytes) {
            place.write(*byte);
        }
        self.0[LENGTH_AT].write(end as u8);
    }

    /// Shortens a text in place.
    fn truncate_in_place(&mut self, len: usize) {
        self.0[..LENGTH_AT][len..].fill(MaybeUninit::new(0));
        self.0[LENGTH_AT].write(len as u8);
    }
}

impl Default for PString {
    fn default() -> Self {
        PString::new()
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
        self.reserve(text.len())?;
        if let Some(mut block) = self.block() {
            return block.extend_from_slice(text.as_bytes());
        }
        let len = self.len();
        self.raw().append_in_place(len, text.as_bytes());
        Ok(())
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
        self.cut(len);
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
        self.cut(len);
        true
    }

    /// Removes all text. A block is kept, with its capacity.
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
        self.cut(0);
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
        self.make_room(additional, |block, more| block.reserve(more))
    }

    /// Frees unused capacity. A text of up to 23 bytes gives up its block.
    ///
    /// # Errors
    ///
    /// Returns an error when the smaller block can't be allocated. The string is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, Scratch};
    ///
    /// let mut object = Scratch::<PString>::new("text")?;
    /// object.root_mut().reserve(100)?;
    /// object.root_mut().shrink_to_fit()?;
    /// assert_eq!(object.root().capacity(), 23);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self) -> Result<(), HeapError> {
        let heap = self.heap;
        let in_place = PString::in_place(self);
        let Some(mut block) = self.block() else { return Ok(()) };
        let Some(in_place) = in_place else { return block.shrink_to_fit() };
        let freed = block.first();
        *self.raw() = in_place;
        // SAFETY: the string's own block, which it gave up in the line above.
        unsafe { heap.free(freed) };
        Ok(())
    }

    /// Shortens the text to `len` bytes, which is at the beginning of a character.
    fn cut(&mut self, len: usize) {
        if let Some(mut block) = self.block() {
            block.truncate(len);
        } else if len < self.len() {
            self.raw().truncate_in_place(len);
        }
    }

    /// Makes room for `additional` more bytes by `reserve`, in the block or in a new one. Does
    /// nothing if they fit in place.
    fn make_room(
        &mut self,
        additional: usize,
        reserve: fn(&mut Mut<'_, PVec<u8>>, usize) -> Result<(), HeapError>,
    ) -> Result<(), HeapError> {
        if let Some(mut block) = self.block() {
            return reserve(&mut block, additional);
        }
        if additional <= IN_PLACE_MAX - self.len() {
            return Ok(());
        }
        let mut vec = PVec::new();
        // SAFETY: a valid vector, to which this function has exclusive access. It owns nothing if
        // `reserve` fails, and is moved into the string otherwise.
        let mut block = unsafe { Mut::from_raw(self.heap, NonNull::from(&mut vec)) };
        reserve(&mut block, self.len().saturating_add(additional))?;
        block.extend_from_slice(self.as_bytes())?;
        // SAFETY: a string without a text in place is a vector of the same size.
        *self.raw() = unsafe { mem::transmute::<PVec<u8>, PString>(vec) };
        Ok(())
    }

    /// Returns the block's bytes, for the methods of this file, which keep them UTF-8. Returns
    /// `None` if the text is in place, or empty without a block.
    fn block(&mut self) -> Option<Mut<'_, PVec<u8>>> {
        let has_block = self.length_in_place() == 0 && self.as_vec().capacity() != 0;
        // SAFETY: the bytes are a vector's, and the cursor's exclusive access is passed on.
        has_block.then(|| unsafe { Mut::from_raw(self.heap, self.target.cast()) })
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

// SAFETY: 24 bytes of fixed layout, which are a text or those of a `PVec<u8>`, to which the calls
// are forwarded then. A string that owns a block is created only inside an object.
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
        // SAFETY: the caller guarantees a valid value, which is a vector if no text is in place.
        unsafe {
            if this.as_ref().length_in_place() == 0 {
                PVec::<u8>::release(this.cast(), releaser);
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: the caller lets the bytes be read.
        match unsafe { this.as_ref() }.length_in_place() {
            // SAFETY: as above.
            0 => unsafe { PVec::<u8>::is_bounded(this.cast(), bounds) },
            length => length <= IN_PLACE_MAX,
        }
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
                if let Some(string) = PString::in_place(text) {
                    return Ok(slot.write(string));
                }
                slot.write_with(PString::new(), |mut string| {
                    string.make_room(text.len(), |block, more| block.reserve_exact(more))?;
                    string.push_str(text)
                })
            }

            // The old block is reused if the text fits.
            fn assign(source: $source, mut target: Mut<'_, Self>) -> Result<(), HeapError> {
                let text: &str = source.as_ref();
                // Reserved before anything is cleared: a failure leaves the old text.
                let more = text.len().saturating_sub(target.len());
                target.reserve(more)?;
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
