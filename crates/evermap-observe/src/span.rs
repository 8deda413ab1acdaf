//! A part of a file.

/// A half-open range of a file, in bytes.
///
/// ```
/// use evermap_observe::Span;
/// let span = Span::new(4096, 8192);
/// assert_eq!((span.bytes(), span.is_empty()), (4096, false));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub begin: u64,
    /// The byte after the last one; [`Span::OPEN`] when the end is where the source says.
    pub end: u64,
}

impl Span {
    /// The end of a span whose length is not known before it was read.
    pub const OPEN: u64 = u64::MAX;

    /// From `begin` up to, and without, `end`.
    pub fn new(begin: u64, end: u64) -> Span {
        Span { begin, end }
    }

    /// Its length in bytes; meaningless where [`Span::is_open`].
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// Whether only the source knows its end.
    pub fn is_open(&self) -> bool {
        self.end == Span::OPEN
    }
}
