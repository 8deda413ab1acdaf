//! Header of 16 bytes before the bytes of a span: their offsets.

use super::{Malformed, u64_at};
use crate::span::Span;

/// Length of a range header.
pub(in crate::net) const RANGE_BYTES: usize = 16;

/// Next item on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Range {
    /// Bytes of this span follow.
    Bytes(Span),
    /// No more bytes follow.
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

    /// Decodes a header. The caller checks that the span was announced.
    pub(in crate::net) fn decode(bytes: &[u8; RANGE_BYTES]) -> Result<Range, Malformed> {
        let span = Span::new(u64_at(bytes, 0), u64_at(bytes, 8));
        match (span.begin, span.end) {
            (u64::MAX, u64::MAX) => Ok(Range::End),
            _ if span.is_empty() || span.is_open() => Err(Malformed::new(format!(
                "the peer announces bytes {} to {}, an empty span",
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
        fn range_round_trips(begin in 0..u64::MAX - 1, bytes in 1u64..) {
            let range = Range::Bytes(Span::new(begin, begin.saturating_add(bytes).min(u64::MAX - 1)));
            prop_assert_eq!(Range::decode(&range.encode()).unwrap(), range);
        }

        #[test]
        fn decoded_range_is_never_empty_or_open(bytes: [u8; RANGE_BYTES]) {
            if let Ok(Range::Bytes(span)) = Range::decode(&bytes) {
                prop_assert!(!span.is_empty() && !span.is_open());
            }
        }
    }

    #[test]
    fn end_is_distinct_from_a_span() {
        assert_eq!(Range::decode(&Range::End.encode()).unwrap(), Range::End);
        assert!(Range::decode(&[0; RANGE_BYTES]).is_err());
    }
}
