//! The 16 bytes before the bytes of a span: where they belong.

use super::{Malformed, u64_at};
use crate::span::Span;

/// A header's length.
pub(in crate::net) const RANGE_BYTES: usize = 16;

/// What comes next on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Range {
    /// The bytes of this span.
    Bytes(Span),
    /// No bytes any more.
    End,
}

impl Range {
    pub(in crate::net) fn encode(self) -> [u8; RANGE_BYTES] {
        let (begin, end) = match self {
            Range::Bytes(span) => (span.begin, span.end),
            Range::End => (u64::MAX, u64::MAX),
        };
        let mut bytes = [0; RANGE_BYTES];
        bytes[..8].copy_from_slice(&begin.to_le_bytes());
        bytes[8..].copy_from_slice(&end.to_le_bytes());
        bytes
    }

    /// Whether the span was announced is for the account to say.
    pub(in crate::net) fn decode(bytes: &[u8; RANGE_BYTES]) -> Result<Range, Malformed> {
        let span = Span::new(u64_at(bytes, 0), u64_at(bytes, 8));
        match (span.begin, span.end) {
            (u64::MAX, u64::MAX) => Ok(Range::End),
            _ if span.is_empty() || span.is_open() => Err(Malformed::new(format!(
                "it announces bytes {} to {}, which are none",
                span.begin, span.end
            ))),
            _ => Ok(Range::Bytes(span)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_comes_back_as_it_went(begin in 0..u64::MAX - 1, bytes in 1u64..) {
            let range = Range::Bytes(Span::new(begin, begin.saturating_add(bytes).min(u64::MAX - 1)));
            prop_assert_eq!(Range::decode(&range.encode()).unwrap(), range);
        }

        #[test]
        fn any_bytes_are_a_range_with_something_in_it_or_refused(bytes: [u8; RANGE_BYTES]) {
            if let Ok(Range::Bytes(span)) = Range::decode(&bytes) {
                prop_assert!(!span.is_empty() && !span.is_open());
            }
        }
    }

    #[test]
    fn the_end_is_no_span() {
        assert_eq!(Range::decode(&Range::End.encode()).unwrap(), Range::End);
        assert!(Range::decode(&[0; RANGE_BYTES]).is_err());
    }
}
