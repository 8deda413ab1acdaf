//! First message on each connection: identifies the protocol and the transfer.

use super::{Malformed, checked, field, u16_at, u32_at};
use crate::net::wire::manifest::MANIFEST_BYTES_MAX;

/// Length of a hello.
pub(in crate::net) const HELLO_BYTES: usize = 48;

/// Protocol version of this crate.
pub(in crate::net) const VERSION: u16 = 1;

/// Maximum number of connections per transfer.
pub(in crate::net) const CONNECTIONS_MAX: u16 = 64;

/// The high bit detects a path that is not 8-bit clean, the line ending one that converts text.
const MAGIC: [u8; 8] = *b"\x89EVMT\r\n\x1a";

/// Identifier of a transfer: 128 random bits.
pub(in crate::net) type TransferId = [u8; 16];

/// First bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct Hello {
    pub id: TransferId,
    /// Index of this connection. Connection 0 carries the manifest and all control messages, except
    /// the `Ready` that answers each further connection.
    pub index: u16,
    /// Number of connections of the transfer.
    pub connections: u16,
    /// Length of the following manifest. 0 on all connections except the first.
    pub manifest_bytes: u32,
}

impl Hello {
    pub(in crate::net) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        // Bytes 10..12 are flags, none of which is defined.
        bytes[12..14].copy_from_slice(&self.index.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.connections.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..36].copy_from_slice(&self.manifest_bytes.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..HELLO_BYTES - 4]);
        bytes[HELLO_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(in crate::net) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, Malformed> {
        if bytes[..8] != MAGIC {
            return Err(Malformed::new(
                "the peer is not an Evermap sender: send with `evermap send` without `--raw`, or receive with \
                 `--raw`",
            ));
        }
        // A newer version may change everything after the version field, including the checksum.
        match u16_at(bytes, 8) {
            0 => {
                return Err(Malformed::new(
                    "the peer uses protocol version 0, which does not exist",
                ));
            }
            VERSION => {}
            newer => return Err(Malformed::Newer(newer)),
        }
        checked(bytes, "hello")?;
        let hello = Hello {
            id: field(bytes, 16),
            index: u16_at(bytes, 12),
            connections: u16_at(bytes, 14),
            manifest_bytes: u32_at(bytes, 32),
        };
        let flags = u16_at(bytes, 10);
        if flags != 0 || bytes[36..HELLO_BYTES - 4] != [0; 8] {
            return Err(Malformed::new(format!(
                "the peer requires unknown features (flags {flags:#x})"
            )));
        }
        if hello.connections == 0
            || hello.connections > CONNECTIONS_MAX
            || hello.index >= hello.connections
        {
            return Err(Malformed::new(format!(
                "the peer announces connection {} of {}: 1 to {CONNECTIONS_MAX} are allowed, counted from 0",
                hello.index, hello.connections
            )));
        }
        match (hello.index, hello.manifest_bytes as usize) {
            (0, 1..=MANIFEST_BYTES_MAX) | (1.., 0) => Ok(hello),
            (_, bytes) => Err(Malformed::new(format!(
                "the peer announces a manifest of {bytes} bytes on connection {}: up to {MANIFEST_BYTES_MAX} are allowed on the \
                 first, none on the others",
                hello.index
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const HELLO: Hello = Hello { id: [7; 16], index: 0, connections: 2, manifest_bytes: 100 };

    /// Fixes the checksum, as a hostile peer would.
    fn summed(mut bytes: [u8; HELLO_BYTES]) -> [u8; HELLO_BYTES] {
        let sum = crc32c::crc32c(&bytes[..HELLO_BYTES - 4]);
        bytes[HELLO_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn hello_round_trips(id: [u8; 16], connections in 1..=CONNECTIONS_MAX, index: u16, length in 1u32..1000) {
            let index = index % connections;
            let manifest_bytes = if index == 0 { length } else { 0 };
            let hello = Hello { id, index, connections, manifest_bytes };
            prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
        }

        #[test]
        fn hello_with_one_wrong_byte_is_refused(at in 0..HELLO_BYTES, by in 1u8..) {
            let mut bytes = HELLO.encode();
            bytes[at] ^= by;
            prop_assert!(Hello::decode(&bytes).is_err());
        }

        #[test]
        fn accepted_hello_is_within_the_limits(tail: [u8; HELLO_BYTES - 12]) {
            let mut bytes = HELLO.encode();
            bytes[12..].copy_from_slice(&tail);
            bytes[36..].fill(0);
            if let Ok(hello) = Hello::decode(&summed(bytes)) {
                prop_assert!(hello.index < hello.connections && hello.connections <= CONNECTIONS_MAX);
                prop_assert!(hello.manifest_bytes as usize <= MANIFEST_BYTES_MAX);
                prop_assert_eq!(hello.index == 0, hello.manifest_bytes > 0);
            }
        }
    }

    #[test]
    fn newer_version_is_detected_despite_unknown_fields() {
        let mut bytes = HELLO.encode();
        bytes[8] = 2;
        bytes[40] = 9;
        assert_eq!(Hello::decode(&bytes), Err(Malformed::Newer(2)));
    }

    #[test]
    fn unknown_flag_is_refused() {
        let mut bytes = HELLO.encode();
        bytes[10] = 1;
        assert!(Hello::decode(&summed(bytes)).unwrap_err().to_string().contains("0x1"));
    }
}
