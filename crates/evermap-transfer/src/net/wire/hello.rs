//! What a sender says first on each connection: who it is, which transfer this belongs to.

use super::{Malformed, checked, field, u16_at, u32_at};
use crate::net::wire::manifest::MANIFEST_BYTES_MAX;

/// Its length.
pub(in crate::net) const HELLO_BYTES: usize = 48;

/// The version of the protocol that is spoken here.
pub(in crate::net) const VERSION: u16 = 1;

/// Connections that one transfer may have.
pub(in crate::net) const CONNECTIONS_MAX: u16 = 64;

/// The high bit shows a path that is not clean for 8 bits, the line end one that converts text.
const MAGIC: [u8; 8] = *b"\x89EVMT\r\n\x1a";

/// What a transfer's connections know each other by: 128 random bits.
pub(in crate::net) type TransferId = [u8; 16];

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct Hello {
    pub id: TransferId,
    /// Which of the transfer's connections this is; the first one, 0, carries the manifest and all that is said.
    pub index: u16,
    /// How many the transfer has.
    pub connections: u16,
    /// Length of the manifest that follows; 0 on all but the first.
    pub manifest_bytes: u32,
}

impl Hello {
    pub(in crate::net) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        // 10..12 are flags: none is defined.
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
                "its first bytes are none of an Evermap sender's: send with `evermap send` without `--raw`, or receive with \
                 `--raw`",
            ));
        }
        // What lies behind the version is a newer version's own affair, its checksum as well.
        match u16_at(bytes, 8) {
            0 => {
                return Err(Malformed::new(
                    "it speaks version 0 of the protocol, which there is not",
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
                "it asks for what this version has not (flags {flags:#x})"
            )));
        }
        if hello.connections == 0
            || hello.connections > CONNECTIONS_MAX
            || hello.index >= hello.connections
        {
            return Err(Malformed::new(format!(
                "it says that it is connection {} of {}: there are 1 to {CONNECTIONS_MAX}, counted from 0",
                hello.index, hello.connections
            )));
        }
        match (hello.index, hello.manifest_bytes as usize) {
            (0, 1..=MANIFEST_BYTES_MAX) | (1.., 0) => Ok(hello),
            (_, bytes) => Err(Malformed::new(format!(
                "it announces a manifest of {bytes} bytes on connection {}: up to {MANIFEST_BYTES_MAX} on the first, none on \
                 the others",
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

    /// With a checksum that is right, as a hostile peer's would be.
    fn summed(mut bytes: [u8; HELLO_BYTES]) -> [u8; HELLO_BYTES] {
        let sum = crc32c::crc32c(&bytes[..HELLO_BYTES - 4]);
        bytes[HELLO_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn a_hello_comes_back_as_it_went(id: [u8; 16], connections in 1..=CONNECTIONS_MAX, index: u16, length in 1u32..1000) {
            let index = index % connections;
            let manifest_bytes = if index == 0 { length } else { 0 };
            let hello = Hello { id, index, connections, manifest_bytes };
            prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
        }

        #[test]
        fn one_wrong_byte_is_never_taken_for_a_hello(at in 0..HELLO_BYTES, by in 1u8..) {
            let mut bytes = HELLO.encode();
            bytes[at] ^= by;
            prop_assert!(Hello::decode(&bytes).is_err());
        }

        #[test]
        fn whatever_is_accepted_keeps_the_limits(tail: [u8; HELLO_BYTES - 12]) {
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
    fn a_newer_version_is_called_that_whatever_comes_behind_it() {
        let mut bytes = HELLO.encode();
        bytes[8] = 2;
        bytes[40] = 9;
        assert_eq!(Hello::decode(&bytes), Err(Malformed::Newer(2)));
    }

    #[test]
    fn an_unknown_flag_is_refused_rather_than_ignored() {
        let mut bytes = HELLO.encode();
        bytes[10] = 1;
        assert!(Hello::decode(&summed(bytes)).unwrap_err().to_string().contains("0x1"));
    }
}
