//! Announcement of a file: name, size, attributes, and extents with data.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Malformed, checked, i64_at, u32_at, u64_at};
use crate::span::Span;

/// Maximum number of extents. A sender of a file with more fills its smallest holes.
pub(in crate::net) const EXTENTS_MAX: usize = 1 << 20;

/// Bytes before the name.
const HEAD_BYTES: usize = 56;
const NAME_BYTES_MAX: usize = 255;
const EXTENT_BYTES: usize = 16;
const SUM_BYTES: usize = 4;

/// Size with the longest name and the maximum number of extents: 16 MiB.
pub(super) const MANIFEST_BYTES_MAX: usize =
    HEAD_BYTES + NAME_BYTES_MAX + EXTENTS_MAX * EXTENT_BYTES + SUM_BYTES;
const _: () = assert!(MANIFEST_BYTES_MAX < u32::MAX as usize);

/// Bytes per digest: small enough to locate a difference and to show progress, large enough to cost
/// nothing.
pub(in crate::net) const DIGEST_CHUNK_BYTES: u64 = 16 << 20;

/// Nanoseconds per second.
pub(in crate::net) const NANOSECONDS: u32 = 1_000_000_000;

/// Largest offset in a file.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A point in time: seconds since 1970, and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// Announcement of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::net) struct Manifest {
    /// File name: one path component.
    pub name: Vec<u8>,
    pub size_bytes: u64,
    /// Permissions: the twelve lowest bits.
    pub mode: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    /// Requested bytes per digest; 0 for none.
    pub digest_chunk_bytes: u64,
    /// Extents with data: ascending, non-empty, disjoint, within the size.
    pub extents: Vec<Span>,
}

impl Manifest {
    pub(in crate::net) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(
            HEAD_BYTES + self.name.len() + self.extents.len() * EXTENT_BYTES + SUM_BYTES,
        );
        bytes.extend(self.size_bytes.to_le_bytes());
        bytes.extend(self.mode.to_le_bytes());
        bytes.extend((self.name.len() as u32).to_le_bytes());
        bytes.extend(self.accessed.seconds.to_le_bytes());
        bytes.extend(self.accessed.nanoseconds.to_le_bytes());
        bytes.extend(self.modified.nanoseconds.to_le_bytes());
        bytes.extend(self.modified.seconds.to_le_bytes());
        bytes.extend(self.digest_chunk_bytes.to_le_bytes());
        bytes.extend((self.extents.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        debug_assert_eq!(bytes.len(), HEAD_BYTES);
        bytes.extend(&self.name);
        for extent in &self.extents {
            bytes.extend(extent.begin.to_le_bytes());
            bytes.extend(extent.end.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    pub(in crate::net) fn decode(bytes: &[u8]) -> Result<Manifest, Malformed> {
        if bytes.len() < HEAD_BYTES + SUM_BYTES {
            return Err(Malformed::new(format!(
                "the manifest of {} bytes is too short",
                bytes.len()
            )));
        }
        checked(bytes, "manifest")?;
        let (name_bytes, extents) = (u32_at(bytes, 12) as usize, u32_at(bytes, 48) as usize);
        if name_bytes > NAME_BYTES_MAX || extents > EXTENTS_MAX {
            return Err(Malformed::new(format!(
                "the peer announces a name of {name_bytes} bytes and {extents} extents: at most {NAME_BYTES_MAX} and {EXTENTS_MAX} are allowed"
            )));
        }
        let extents_at = HEAD_BYTES + name_bytes;
        if bytes.len() != extents_at + extents * EXTENT_BYTES + SUM_BYTES {
            return Err(Malformed::new("the length of the manifest does not match its contents"));
        }
        let span = |pair: &[u8]| Span::new(u64_at(pair, 0), u64_at(pair, 8));
        let manifest = Manifest {
            name: bytes[HEAD_BYTES..extents_at].to_vec(),
            size_bytes: u64_at(bytes, 0),
            mode: u32_at(bytes, 8),
            accessed: Timestamp { seconds: i64_at(bytes, 16), nanoseconds: u32_at(bytes, 24) },
            modified: Timestamp { seconds: i64_at(bytes, 32), nanoseconds: u32_at(bytes, 28) },
            digest_chunk_bytes: u64_at(bytes, 40),
            extents: bytes[extents_at..bytes.len() - SUM_BYTES]
                .chunks_exact(EXTENT_BYTES)
                .map(span)
                .collect(),
        };
        manifest.check(u32_at(bytes, 52))?;
        Ok(manifest)
    }

    /// Checks all fields except the lengths.
    fn check(&self, reserved: u32) -> Result<(), Malformed> {
        if !is_plain_name(&self.name) {
            return Err(Malformed::new(format!(
                "the name {:?} is not a plain file name: nothing is written",
                OsStr::from_bytes(&self.name)
            )));
        }
        let times_are_real =
            self.accessed.nanoseconds < NANOSECONDS && self.modified.nanoseconds < NANOSECONDS;
        if self.mode & !0o7777 != 0 || !times_are_real || reserved != 0 {
            return Err(Malformed::new("the manifest has an invalid mode or time"));
        }
        if self.digest_chunk_bytes != 0 && !is_digest_chunk(self.digest_chunk_bytes) {
            return Err(Malformed::new(format!(
                "the peer requests digests of {} bytes each, an unsupported size",
                self.digest_chunk_bytes
            )));
        }
        let mut end = 0;
        for extent in &self.extents {
            if extent.begin < end || extent.is_empty() {
                return Err(Malformed::new(
                    "the extents of the manifest overlap or are not in order",
                ));
            }
            end = extent.end;
        }
        match end <= self.size_bytes && self.size_bytes <= OFFSET_MAX {
            true => Ok(()),
            false => Err(Malformed::new(format!(
                "the peer announces {} bytes, but data up to byte {end}",
                self.size_bytes
            ))),
        }
    }

    /// Returns the bytes in the extents.
    pub(in crate::net) fn data_bytes(&self) -> u64 {
        self.extents.iter().map(Span::bytes).sum()
    }
}

/// Returns true for powers of two from 64 KiB to 1 GiB.
pub(in crate::net) fn is_digest_chunk(bytes: u64) -> bool {
    bytes.is_power_of_two() && (1 << 16..=1 << 30).contains(&bytes)
}

/// Returns true if this is a plain file name, without a path.
pub(in crate::net) fn is_plain_name(name: &[u8]) -> bool {
    let is_a_name =
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name != b"." && name != b"..";
    is_a_name && !name.contains(&b'/') && !name.contains(&0)
}

/// Converts the bytes to a path component.
pub(in crate::net) fn name_of(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn a_manifest() -> impl Strategy<Value = Manifest> {
        let name = prop::collection::vec(any::<u8>(), 1..=NAME_BYTES_MAX).prop_map(|mut name| {
            name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'_');
            if name.iter().all(|byte| *byte == b'.') { vec![b'x'] } else { name }
        });
        let stamp = (any::<i64>(), 0..NANOSECONDS)
            .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds });
        let gaps = prop::collection::vec((0u64..1 << 40, 1u64..1 << 40), 0..20);
        let chunk = prop_oneof![Just(0), (16u32..=30).prop_map(|power| 1u64 << power)];
        (name, 0u32..=0o7777, stamp.clone(), stamp, chunk, gaps, 0u64..1000).prop_map(
            |(name, mode, accessed, modified, digest_chunk_bytes, gaps, after)| {
                let mut end = 0;
                let extents: Vec<Span> = gaps
                    .into_iter()
                    .map(|(gap, bytes)| {
                        let span = Span::new(end + gap, end + gap + bytes);
                        end = span.end;
                        span
                    })
                    .collect();
                Manifest {
                    name,
                    size_bytes: end + after,
                    mode,
                    accessed,
                    modified,
                    digest_chunk_bytes,
                    extents,
                }
            },
        )
    }

    /// Fixes the checksum, as a hostile peer would.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        let at = bytes.len() - SUM_BYTES;
        let sum = crc32c::crc32c(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn manifest_round_trips(manifest in a_manifest()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
        }

        #[test]
        fn truncated_or_modified_manifest_is_refused(manifest in a_manifest(), at: prop::sample::Index, by in 1u8..) {
            let mut bytes = manifest.encode();
            let at = at.index(bytes.len());
            prop_assert!(Manifest::decode(&bytes[..at]).is_err());
            bytes[at] ^= by;
            prop_assert!(Manifest::decode(&bytes).is_err());
        }

        #[test]
        fn accepted_manifest_is_valid_even_if_forged(manifest in a_manifest(), at: prop::sample::Index, by in 1u8..) {
            let mut bytes = manifest.encode();
            let at = at.index(bytes.len() - SUM_BYTES);
            bytes[at] ^= by;
            if let Ok(accepted) = Manifest::decode(&summed(bytes)) {
                prop_assert!(is_plain_name(&accepted.name));
                prop_assert!(accepted.extents.iter().all(|extent| !extent.is_empty() && extent.end <= accepted.size_bytes));
                prop_assert!(accepted.extents.windows(2).all(|pair| pair[0].end <= pair[1].begin));
                prop_assert!(accepted.data_bytes() <= accepted.size_bytes);
            }
        }
    }

    #[test]
    fn names_with_paths_are_refused() {
        for name in
            [&b""[..], b".", b"..", b"/", b"a/b", b"../a", b"/etc/passwd", b"a\0b", &[b'x'; 256]]
        {
            assert!(!is_plain_name(name), "{name:?}");
        }
        for name in
            [&b"a"[..], b"...", b".hidden", b"a b", b"line\nfeed", b"\xff\xfe", &[b'x'; 255]]
        {
            assert!(is_plain_name(name), "{name:?}");
        }
    }
}
