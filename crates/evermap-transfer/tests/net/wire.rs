//! The protocol's bytes, implemented a second time from its specification, to act as a foreign
//! peer.

use std::io::{Read, Write};

/// Fields of a hello.
#[derive(Clone)]
pub struct Hello {
    pub magic: [u8; 8],
    pub version: u16,
    pub flags: u16,
    pub index: u16,
    pub connections: u16,
    pub id: [u8; 16],
    pub manifest_bytes: u32,
}

impl Hello {
    pub fn new(manifest: &[u8]) -> Hello {
        Hello {
            magic: *b"\x89EVMT\r\n\x1a",
            version: 1,
            flags: 0,
            index: 0,
            connections: 1,
            id: [3; 16],
            manifest_bytes: manifest.len() as u32,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.connections.to_le_bytes());
        bytes.extend(self.id);
        bytes.extend(self.manifest_bytes.to_le_bytes());
        bytes.extend([0; 8]);
        summed(bytes)
    }
}

/// Appends the checksum.
pub fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Returns the manifest of a file.
pub fn manifest(name: &[u8], size_bytes: u64, extents: &[(u64, u64)]) -> Vec<u8> {
    manifest_with(name, size_bytes, 0o644, 0, extents)
}

pub fn manifest_with(
    name: &[u8],
    size_bytes: u64,
    mode: u32,
    digest_chunk_bytes: u64,
    extents: &[(u64, u64)],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(size_bytes.to_le_bytes());
    bytes.extend(mode.to_le_bytes());
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(1_000_000_000i64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(1_000_000_000i64.to_le_bytes());
    bytes.extend(digest_chunk_bytes.to_le_bytes());
    bytes.extend((extents.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(name);
    for (begin, end) in extents {
        bytes.extend(range(*begin, *end));
    }
    summed(bytes)
}

pub fn range(begin: u64, end: u64) -> Vec<u8> {
    let mut bytes = begin.to_le_bytes().to_vec();
    bytes.extend(end.to_le_bytes());
    bytes
}

/// Returns the end marker of a connection.
pub fn end() -> Vec<u8> {
    range(u64::MAX, u64::MAX)
}

pub const READY: u32 = 1;
pub const DIGEST: u32 = 3;
pub const STORED: u32 = 4;
pub const KEEP: u32 = 5;
pub const PUBLISHED: u32 = 6;
pub const FAILED: u32 = 7;

/// Returns a frame with its two numbers.
pub fn frame(kind: u32, a: u64, b: u64) -> Vec<u8> {
    frame_with(kind, a, b, [0; 32])
}

pub fn frame_with(kind: u32, a: u64, b: u64, digest: [u8; 32]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(a.to_le_bytes());
    bytes.extend(b.to_le_bytes());
    bytes.extend(digest);
    bytes.extend(0u32.to_le_bytes());
    summed(bytes)
}

/// Reads frames until one of this kind, skipping `working`. Returns its first number and its text.
pub fn expect(stream: &mut impl Read, kind: u32) -> (u64, String) {
    loop {
        let mut bytes = [0; 64];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[60..], crc32c::crc32c(&bytes[..60]).to_le_bytes(), "wrong checksum");
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut text = vec![0; number(4) as usize];
        stream.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        if number(0) != 2 {
            assert_eq!(number(0), kind, "{text}");
            return (u64::from_le_bytes(bytes[8..16].try_into().unwrap()), text);
        }
    }
}

/// Sends hello and manifest of one connection and reads the receiver's answer.
pub fn send_greeting(stream: &mut (impl Read + Write), manifest: &[u8]) {
    stream.write_all(&[Hello::new(manifest).bytes(), manifest.to_vec()].concat()).unwrap();
    expect(stream, READY);
}
