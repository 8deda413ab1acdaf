//! What the two ends say to each other beside the file's bytes: 64 bytes each, some with a few words.

use super::{Malformed, checked, field, u32_at, u64_at};
use crate::span::Span;

/// A frame's length, without its text.
pub(in crate::net) const FRAME_BYTES: usize = 64;

/// The most that a frame's text may have.
pub(in crate::net) const TEXT_BYTES_MAX: usize = 1024;

/// The kind of [`Frame::Failed`].
const FAILED: u32 = 7;

/// Why a transfer was refused, discarded, or failed at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Reason {
    /// What was sent is none of the protocol's, or breaks its rules.
    Malformed,
    /// It is of a newer version.
    NewerVersion,
    /// Another transfer is under way, or too many are.
    Busy,
    /// No room for the file.
    NoSpace,
    /// The source changed while it was sent.
    SourceChanged,
    /// What was read back is not what the source has.
    Differs,
    /// Somebody interrupted it.
    Cancelled,
    /// Anything else; the text says more.
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

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::net) enum Frame {
    /// The receiver wants the bytes, and with digests of so many bytes each (0: none). It may say that it will keep nothing.
    Ready { digest_chunk_bytes: u64, discards: bool },
    /// Nothing new, and still at work.
    Working,
    /// What the receiver read back of this span has this BLAKE3 digest.
    Digest { span: Span, digest: [u8; 32] },
    /// The receiver has stored so many bytes, all there are.
    Stored { bytes: u64 },
    /// The sender's source is what it was: the file is to get its name.
    Keep,
    /// The file has its name.
    Published,
    /// It ends here, and nothing is to be kept: from either end. `at` is the first byte that differs, where that is
    /// the reason.
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

    /// The length of the text that follows, once the frame is known to be one.
    pub(in crate::net) fn text_bytes(bytes: &[u8; FRAME_BYTES]) -> Result<usize, Malformed> {
        checked(bytes, "frame")?;
        match u32_at(bytes, 4) as usize {
            length @ 0..=TEXT_BYTES_MAX => Ok(length),
            length => Err(Malformed::new(format!(
                "it announces a message of {length} bytes, and {TEXT_BYTES_MAX} are the most"
            ))),
        }
    }

    /// With the text that came behind it.
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
                Ok(Frame::Failed { reason, at: a, text: shown(&String::from_utf8_lossy(text)) })
            }
            kind => {
                Err(Malformed::new(format!("it says something of kind {kind}, which there is not")))
            }
        }
    }

    /// Whether a frame that begins so says that this is the end.
    pub(in crate::net) fn is_failed(kind: &[u8; 4]) -> bool {
        u32::from_le_bytes(*kind) == FAILED
    }

    /// For messages.
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

/// Words from elsewhere for a message of our own: nothing in them drives a terminal.
pub(in crate::net) fn shown(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect()
}

/// `str::floor_char_boundary` came later than the oldest Rust that this is built with.
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
        fn a_frame_comes_back_as_it_went(frame in a_frame()) {
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
        fn one_wrong_byte_is_never_taken_for_a_frame(frame in a_frame(), at in 0..FRAME_BYTES, by in 1u8..) {
            let (mut head, _) = parts(&frame.encode());
            head[at] ^= by;
            prop_assert!(Frame::text_bytes(&head).is_err());
        }
    }

    #[test]
    fn what_a_peer_says_cannot_drive_the_terminal() {
        let frame = Frame::Failed { reason: Reason::Other, at: 0, text: "\u{1b}[2Jgone\n".into() };
        let bytes = frame.encode();
        let (head, text) = parts(&bytes);
        let Frame::Failed { text, .. } = Frame::decode(&head, text).unwrap() else {
            panic!("another frame")
        };
        assert!(text.chars().all(|character| !character.is_control()), "{text:?}");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let text = "ü".repeat(TEXT_BYTES_MAX);
        let bytes = Frame::Failed { reason: Reason::Other, at: 0, text }.encode();
        let (head, text) = parts(&bytes);
        assert_eq!(Frame::text_bytes(&head).unwrap(), text.len());
        assert!(text.len() <= TEXT_BYTES_MAX && std::str::from_utf8(text).is_ok());
    }
}
