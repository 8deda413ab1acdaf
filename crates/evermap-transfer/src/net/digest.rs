//! Digests of what is in a file: at the source after it was sent, at the target after it was read back.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};

use super::again;
use crate::span::Span;

/// Read at a time: stays in the processor's cache between the reading and the hashing.
const BUFFER_BYTES: usize = 256 << 10;

/// The spans that get a digest each: `extents`, cut where they are longer than `chunk_bytes`. Both ends have the same.
pub(super) fn chunks(extents: &[Span], chunk_bytes: u64) -> impl Iterator<Item = Span> {
    extents.iter().flat_map(move |extent| {
        let cuts = (extent.begin..extent.end)
            .step_by(usize::try_from(chunk_bytes).unwrap_or(usize::MAX).max(1));
        cuts.map(move |begin| Span::new(begin, extent.end.min(begin.saturating_add(chunk_bytes))))
    })
}

/// Makes digests, one after the other.
#[derive(Debug)]
pub(super) struct Digester {
    buffer: Vec<u8>,
}

impl Digester {
    pub(super) fn new() -> Digester {
        Digester { buffer: vec![0; BUFFER_BYTES] }
    }

    /// The BLAKE3 digest of a span of a file; `None` if the file ends within.
    pub(super) fn digest(
        &mut self,
        file: BorrowedFd<'_>,
        span: Span,
    ) -> Result<Option<[u8; 32]>, Errno> {
        let mut hasher = blake3::Hasher::new();
        let mut at = span.begin;
        while at < span.end {
            let wanted = (span.end - at).min(BUFFER_BYTES as u64) as usize;
            let read = again(|| pread(file, &mut self.buffer[..wanted], at))?;
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
    fn a_digest_is_that_of_the_span_and_of_nothing_that_is_not_there() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        let mut digester = Digester::new();
        let digest = digester.digest(file.as_fd(), Span::new(2, 5)).unwrap();
        assert_eq!(digest, Some(*blake3::hash(b"234").as_bytes()));
        assert_eq!(digester.digest(file.as_fd(), Span::new(2, 11)).unwrap(), None);
    }
}
