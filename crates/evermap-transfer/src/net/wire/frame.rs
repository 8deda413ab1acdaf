//! Control messages: frames of 64 bytes, some with a text.

use super::{Malformed, checked, field, u32_at, u64_at};
use crate::span::Span;

/// Length of a frame without its text.
pub(in crate::net) const FRAME_BYTES: usize = 64;

/// Maximum length of a frame's text.
pub(in crate::net) const TEXT_BYTES_MAX: usize = 1024;

/// Kind number of [`Frame::Failed`].
const FAILED: u32 = 7;

/// Reason for refusing, discarding or failing a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Reason {
    /// The data is not of this protocol or violates it.
    Malformed,
    /// The protocol version is newer.
    NewerVersion,
    /// Another transfer is in progress, or too many are.
    Busy,
    /// Not enough space for the file.
    NoSpace,
    /// The source changed during the transfer.
    SourceChanged,
    /// The data read back differs from the source.
    Differs,
    /// The transfer was cancelled.
    Cancelled,
    /// Other; see the text.
    Other,
}

const REASONS: [Reason; 8] = [
    Reason::Other,
    Reason::Malformed,
    Reason::NewerVersion,
    Reason::Busy,
    Reason::NoSpace,
    Reason::SourceChanged,
    Reason::Differs,
    Reason::Cancelled,
];

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::net) enum Frame {
    /// The receiver is ready, and sends digests of this many bytes each (0: none). `discards`: it
    /// will not keep the data.
    Ready { digest_chunk_bytes: u64, discards: bool },
    /// Keep-alive.
    Working,
    /// BLAKE3 digest of this span, as read back by the receiver.
    Digest { span: Span, digest: [u8; 32] },
    /// The receiver stored all data, with its byte count.
    Stored { bytes: u64 },
    /// The source is unchanged: the receiver shall publish the file.
    Keep,
    /// The file is published.
    Published,
    /// The transfer ends and nothing is kept. Sent by either end. `at` is the first differing byte
    /// for [`Reason::Differs`].
    Failed { reason: Reason, at: u64, text: String },
}

impl Frame {
    pub(in crate::net) fn encode(&self) -> Vec<u8> {
        let (kind, a, b, digest, code, text) = match self {
            Frame::Ready { digest_chunk_bytes, discards } => {
                (1u32, *digest_chunk_bytes, u64::from(*discards), [0; 32], 0, "")
            }
            Frame::Working => (2, 0, 0, [0; 32], 0, ""),
            Frame::Digest { span, digest } => (3, span.begin, span.end, *digest, 0, ""),
            Frame::Stored { bytes } => (4, *bytes, 0, [0; 32], 0, ""),
            Frame::Keep => (5, 0, 0, [0; 32], 0, ""),
            Frame::Published => (6, 0, 0, [0; 32], 0, ""),
            Frame::Failed { reason, at, text } => {
                let code = REASONS.iter().position(|known| known == reason).unwrap_or(0) as u32;
                (FAILED, *at, 0, [0; 32], code, text.as_str())
            }
        };
        let text = &text[..text.floor_char_boundary_of(TEXT_BYTES_MAX)];
        let mut bytes = Vec::with_capacity(FRAME_BYTES + text.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(a.to_le_bytes());
        bytes.extend(b.to_le_bytes());
        bytes.extend(digest);
        bytes.extend(code.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), FRAME_BYTES);
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Validates the frame and returns the length of its text.
    pub(in crate::net) fn text_bytes(bytes: &[u8; FRAME_BYTES]) -> Result<usize, Malformed> {
        checked(bytes, "frame")?;
        match u32_at(bytes, 4) as usize {
            length @ 0..=TEXT_BYTES_MAX => Ok(length),
            length => Err(Malformed::new(format!(
                "the peer announces a message of {length} bytes, more than {TEXT_BYTES_MAX}"
            ))),
        }
    }

    /// Decodes a frame with its text.
    pub(in crate::net) fn decode(
        bytes: &[u8; FRAME_BYTES],
        text: &[u8],
    ) -> Result<Frame, Malformed> {
        checked(bytes, "frame")?;
        let (a, b) = (u64_at(bytes, 8), u64_at(bytes, 16));
        match u32_at(bytes, 0) {
            1 => Ok(Frame::Ready { digest_chunk_bytes: a, discards: b & 1 == 1 }),
            2 => Ok(Frame::Working),
            3 => Ok(Frame::Digest { span: Span::new(a, b), digest: field(bytes, 24) }),
            4 => Ok(Frame::Stored { bytes: a }),
            5 => Ok(Frame::Keep),
            6 => Ok(Frame::Published),
            FAILED => {
                let code = u32_at(bytes, 56) as usize;
                let reason = REASONS.get(code).copied().unwrap_or(Reason::Other);
                Ok(Frame::Failed { reason, at: a, text: sanitized(&String::from_utf8_lossy(text)) })
            }
            kind => Err(Malformed::new(format!("the peer sent a message of unknown kind {kind}"))),
        }
    }

    /// Returns true if a frame with this kind field is a failure.
    pub(in crate::net) fn is_failed(kind: &[u8; 4]) -> bool {
        u32::from_le_bytes(*kind) == FAILED
    }

    /// Returns the name for messages.
    pub(in crate::net) fn name(&self) -> &'static str {
        match self {
            Frame::Ready { .. } => "ready",
            Frame::Working => "working",
            Frame::Digest { .. } => "digest",
            Frame::Stored { .. } => "stored",
            Frame::Keep => "keep",
            Frame::Published => "published",
            Frame::Failed { .. } => "failed",
        }
    }
}

/// Replaces control characters in a peer's text, which could manipulate a terminal.
pub(in crate::net) fn sanitized(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect()
}

/// `str::floor_char_boundary`, which the oldest supported Rust lacks.
trait FloorCharBoundary {
    fn floor_char_boundary_of(&self, bytes_max: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_of(&self, bytes_max: usize) -> usize {
        let end = bytes_max.min(self.len());
        (0..=end).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn a_frame() -> impl Strategy<Value = Frame> {
        let reason = prop::sample::select(REASONS.to_vec());
        prop_oneof![
            (any::<u64>(), any::<bool>()).prop_map(|(digest_chunk_bytes, discards)| Frame::Ready {
                digest_chunk_bytes,
                discards
            }),
            Just(Frame::Working),
            (any::<u64>(), any::<u64>(), any::<[u8; 32]>()).prop_map(|(begin, end, digest)| {
                Frame::Digest { span: Span::new(begin, end), digest }
            }),
            any::<u64>().prop_map(|bytes| Frame::Stored { bytes }),
            Just(Frame::Keep),
            Just(Frame::Published),
            (reason, any::<u64>(), "[^\\p{C}]{0,300}")
                .prop_map(|(reason, at, text)| Frame::Failed { reason, at, text }),
        ]
    }

    fn parts(bytes: &[u8]) -> ([u8; FRAME_BYTES], &[u8]) {
        (bytes[..FRAME_BYTES].try_into().unwrap(), &bytes[FRAME_BYTES..])
    }

    proptest! {
        #[test]
        fn frame_round_trips(frame in a_frame()) {
            let bytes = frame.encode();
            let (head, text) = parts(&bytes);
            prop_assert_eq!(Frame::text_bytes(&head).unwrap(), text.len());
            let came = Frame::decode(&head, text).unwrap();
            match (&came, &frame) {
                (Frame::Failed { text: came, .. }, Frame::Failed { text: went, .. }) => prop_assert!(went.starts_with(came.as_str())),
                _ => prop_assert_eq!(came, frame),
            }
        }

        #[test]
        fn frame_with_one_wrong_byte_is_refused(frame in a_frame(), at in 0..FRAME_BYTES, by in 1u8..) {
            let (mut head, _) = parts(&frame.encode());
            head[at] ^= by;
            prop_assert!(Frame::text_bytes(&head).is_err());
        }
    }

    #[test]
    fn control_characters_in_a_peers_text_are_replaced() {
        let frame = Frame::Failed { reason: Reason::Other, at: 0, text: "\u{1b}[2Jgone\n".into() };
        let bytes = frame.encode();
        let (head, text) = parts(&bytes);
        let Frame::Failed { text, .. } = Frame::decode(&head, text).unwrap() else {
            panic!("decoded to another kind of frame")
        };
        assert!(text.chars().all(|character| !character.is_control()), "{text:?}");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = "ü".repeat(TEXT_BYTES_MAX);
        let bytes = Frame::Failed { reason: Reason::Other, at: 0, text }.encode();
        let (head, text) = parts(&bytes);
        assert_eq!(Frame::text_bytes(&head).unwrap(), text.len());
        assert!(text.len() <= TEXT_BYTES_MAX && std::str::from_utf8(text).is_ok());
    }
}
