//! A byte range of a file.

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
    /// The byte after the last one, or [`Span::OPEN`] if only the source knows its end.
    pub end: u64,
}

impl Span {
    /// End of a span whose length is unknown until it has been read.
    pub const OPEN: u64 = u64::MAX;

    /// Returns the span from `begin` up to, but not including, `end`.
    pub fn new(begin: u64, end: u64) -> Span {
        Span { begin, end }
    }

    /// Returns the length in bytes. Meaningless if [`Span::is_open`].
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// Returns true if the span has no bytes.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// Returns true if only the source knows the end of the span.
    pub fn is_open(&self) -> bool {
        self.end == Span::OPEN
    }
}
