//! Verification of a copy by reading it back from the disk.

use std::os::fd::BorrowedFd;
use std::path::Path;

use evermap_observe::extents;
use rustix::fs::{Advice, fadvise, fdatasync};

use super::read_fully::read_fully;
use crate::end::statx_of;
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::span::Span;

const CHUNK_BYTES: usize = 1 << 20;

/// An open file with its name for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedFile<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) path: &'a Path,
}

/// Compares two files. Returns [`Error::Differs`] with the first differing byte.
///
/// The target is first flushed and dropped from the cache, so that its data is read from the disk.
pub(crate) fn compare(source: NamedFile<'_>, target: NamedFile<'_>, meter: &Meter) -> Result<()> {
    fdatasync(target.file).map_err(Error::io("flush", target.path))?;
    // Advice only. Pages that stay cached are compared too, though not from the disk.
    let _ = fadvise(target.file, 0, None, Advice::DontNeed);
    let size_of = |named: NamedFile<'_>| {
        statx_of(named.file)
            .map(|stat| (stat.stx_size, stat.stx_blocks * 512))
            .map_err(Error::io("read the attributes of", named.path))
    };
    let (sizes, target_sizes) = (size_of(source)?, size_of(target)?);
    let differs = |offset_bytes| Error::Differs {
        source_path: source.path.into(),
        target_path: target.path.into(),
        offset_bytes,
    };
    if sizes.0 != target_sizes.0 {
        return Err(differs(sizes.0.min(target_sizes.0)));
    }
    // Common holes are equal. Overlapping extents are merged, so no byte is compared twice.
    let of_source =
        extents(source.file, sizes.0, sizes.1).map_err(Error::io("read", source.path))?;
    let of_target =
        extents(target.file, sizes.0, target_sizes.1).map_err(Error::io("read", target.path))?;
    let spans = union(of_source, of_target);
    match first_difference(source, target, &spans, meter)? {
        Some(offset_bytes) => Err(differs(offset_bytes)),
        None => Ok(()),
    }
}

/// Returns the offset of the first difference within `spans`.
pub(crate) fn first_difference(
    source: NamedFile<'_>,
    target: NamedFile<'_>,
    spans: &[Span],
    meter: &Meter,
) -> Result<Option<u64>> {
    let mut buffers = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    for span in spans {
        let mut at = span.begin;
        while at < span.end {
            if meter.is_cancelled() {
                return Err(Error::Cancelled { left: "no partial file remains".into() });
            }
            let wanted = (span.end - at).min(CHUNK_BYTES as u64) as usize;
            let first = read(source, &mut buffers.0[..wanted], at)?;
            let read_back = read(target, &mut buffers.1[..wanted], at)?;
            let (a, b) = (&buffers.0[..first], &buffers.1[..read_back]);
            if a != b {
                let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                return Ok(Some(at + same as u64));
            }
            if first == 0 {
                break;
            }
            at += first as u64;
        }
    }
    Ok(None)
}

fn read(named: NamedFile<'_>, buffer: &mut [u8], offset: u64) -> Result<usize> {
    read_fully(named.file, buffer, offset).map_err(Error::io("read", named.path))
}

/// Returns the union of two span lists, ascending.
fn union(a: Vec<Span>, b: Vec<Span>) -> Vec<Span> {
    let mut all = a;
    all.extend(b);
    all.sort_by_key(|span| span.begin);
    let mut joined: Vec<Span> = Vec::with_capacity(all.len());
    for span in all {
        match joined.last_mut() {
            Some(last) if span.begin <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn compared(change: impl Fn(&std::fs::File)) -> Result<()> {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        for file in &files {
            file.set_len(8 << 20).unwrap();
            file.write_all_at(&[7; 10_000], 3 << 20).unwrap();
        }
        change(&files[1]);
        let named =
            |index: usize| NamedFile { file: files[index].as_fd(), path: Path::new("file") };
        compare(named(0), named(1), &Meter::default())
    }

    #[test]
    fn equal_files_compare_equal() {
        compared(|_| ()).unwrap();
        // A hole equals zeros.
        compared(|file| file.write_all_at(&[0; 4096], 1 << 20).unwrap()).unwrap();
    }

    #[test]
    fn first_differing_byte_is_reported() {
        for at in [0, (3 << 20) + 9_999, (8 << 20) - 1] {
            let result = compared(|file| file.write_all_at(&[1], at).unwrap());
            assert!(
                matches!(result, Err(Error::Differs { offset_bytes, .. }) if offset_bytes == at),
                "{result:?}"
            );
        }
    }

    #[test]
    fn short_copy_differs_at_its_end() {
        let result = compared(|file| file.set_len(5 << 20).unwrap());
        assert!(
            matches!(result, Err(Error::Differs { offset_bytes, .. }) if offset_bytes == 5 << 20)
        );
    }
}
