//! BLAKE3 digests of file contents: of the source after sending, and of the target after reading
//! back.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};

use crate::span::Span;
use rustix::io::retry_on_intr;

/// Bytes per read: small enough to stay in the processor's cache until hashed.
const BUFFER_BYTES: usize = 256 << 10;

/// Returns the spans to digest: `extents`, split at multiples of `chunk_bytes` from their begin.
/// Both ends compute the same.
pub(super) fn chunks(extents: &[Span], chunk_bytes: u64) -> impl Iterator<Item = Span> {
    extents.iter().flat_map(move |extent| {
        let cuts = (extent.begin..extent.end)
            .step_by(usize::try_from(chunk_bytes).unwrap_or(usize::MAX).max(1));
        cuts.map(move |begin| Span::new(begin, extent.end.min(begin.saturating_add(chunk_bytes))))
    })
}

/// Computes digests.
#[derive(Debug)]
pub(super) struct Digester {
    buffer: Vec<u8>,
}

impl Digester {
    pub(super) fn new() -> Digester {
        Digester { buffer: vec![0; BUFFER_BYTES] }
    }

    /// Returns the BLAKE3 digest of a span, or `None` if the file ends within it.
    pub(super) fn digest(
        &mut self,
        file: BorrowedFd<'_>,
        span: Span,
    ) -> Result<Option<[u8; 32]>, Errno> {
        let mut hasher = blake3::Hasher::new();
        let mut at = span.begin;
        while at < span.end {
            let wanted = (span.end - at).min(BUFFER_BYTES as u64) as usize;
            let read = retry_on_intr(|| pread(file, &mut self.buffer[..wanted], at))?;
            if read == 0 {
                return Ok(None);
            }
            hasher.update(&self.buffer[..read]);
            at += read as u64;
        }
        Ok(Some(hasher.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn chunks_cover_each_extent_and_nothing_else() {
        let extents = [Span::new(3, 10), Span::new(10, 12), Span::new(20, 21)];
        let cut: Vec<Span> = chunks(&extents, 4).collect();
        let expected =
            [(3, 7), (7, 10), (10, 12), (20, 21)].map(|(begin, end)| Span::new(begin, end));
        assert_eq!(cut, expected);
        assert_eq!(chunks(&[Span::new(u64::MAX - 2, u64::MAX - 1)], 1 << 30).count(), 1);
    }

    #[test]
    fn digest_covers_the_span_and_is_none_beyond_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        let mut digester = Digester::new();
        let digest = digester.digest(file.as_fd(), Span::new(2, 5)).unwrap();
        assert_eq!(digest, Some(*blake3::hash(b"234").as_bytes()));
        assert_eq!(digester.digest(file.as_fd(), Span::new(2, 11)).unwrap(), None);
    }
}
