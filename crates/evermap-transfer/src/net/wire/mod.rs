//! Encoding, decoding and validation of the protocol's bytes.
//!
//! `docs/transfer-protocol.md` has the tables. All integers are little-endian, every length is
//! checked against a limit before memory is allocated, and this module does no I/O.

mod frame;
mod hello;
mod manifest;
mod range;

pub(super) use frame::{FRAME_BYTES, Frame, Reason, TEXT_BYTES_MAX};
pub(super) use hello::{CONNECTIONS_MAX, HELLO_BYTES, Hello, TransferId, VERSION};
pub(super) use manifest::{
    DIGEST_CHUNK_BYTES, EXTENTS_MAX, Manifest, NANOSECONDS, Timestamp, is_digest_chunk, name_of,
};
pub(super) use range::{RANGE_BYTES, Range};

/// Reason why received bytes are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Newer protocol version.
    Newer(u16),
    /// Any other violation.
    Bytes(String),
}

impl Malformed {
    fn new(what: impl Into<String>) -> Malformed {
        Malformed::Bytes(what.into())
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Newer(version) => write!(
                f,
                "the peer uses protocol version {version}, and this program version {VERSION}: update this program, or send with \
                 the older one"
            ),
            Malformed::Bytes(what) => f.write_str(what),
        }
    }
}

/// Returns the `N` bytes at `at`, or zeros if `bytes` is shorter, which all callers exclude.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    debug_assert!(at + N <= bytes.len());
    bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(field(bytes, at))
}

/// Checks that the last four bytes are the CRC-32C of the rest.
fn checked(bytes: &[u8], of: &str) -> Result<(), Malformed> {
    let (content, sum) = bytes.split_at(bytes.len().saturating_sub(4));
    match sum == crc32c::crc32c(content).to_le_bytes() {
        true => Ok(()),
        false => Err(Malformed::new(format!(
            "the checksum of the {of} is wrong: it was corrupted on the way"
        ))),
    }
}
