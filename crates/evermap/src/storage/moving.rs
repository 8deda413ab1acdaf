//! Copies a file's contents by sharing its blocks, or inside the kernel, through the page cache and
//! in small pieces.
//!
//! The choice of methods suits the user of the copy: a writer that maps it and stores to single
//! pages. A written page belongs to a folio, and the larger the folio, the more a commit of one
//! page costs. A folio is as large as the write that created it: 64 KiB here, because
//! `copy_file_range` and `sendfile` move bytes through a pipe of that size within the kernel (they
//! copy each byte once, and need one call where a loop needs a thousand). Mappings, larger pipes
//! and direct writes are faster still, but leave folios of 2 MiB, or none.
//!
//! The choice involves no measurements and no saved state: the same files are always copied in the
//! same way.

use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Error as Failed, Move, Span};

use super::{COPY_BYTES, File};
use crate::error::{Error, Result};

/// Each engine is tried if the previous one is refused: across file systems, or for lack of
/// support.
const ENGINES: [EngineKind; 4] =
    [EngineKind::Reflink, EngineKind::CopyFileRange, EngineKind::Sendfile, EngineKind::ReadWrite];

/// Copies the first `length` bytes of `source` into the empty `target`, and shares blocks if the
/// file system can. Copies no more than that: memory that grows after these bytes is mapped over
/// the file, and a store into a shared block would need a new block, which a full disk refuses with
/// a signal.
///
/// Returns `DiskFull` before the first byte is written if the copy does not fit, and false
/// if the kernel cannot copy between the two.
pub(super) fn copy(source: &dyn File, target: &dyn File, length: u64) -> Result<bool> {
    let (from, to) = (source.descriptor(), target.descriptor());
    let moved = Move::new(&from, &to)
        .named(source.path(), target.path())
        .spans([Span::new(0, length)])
        .sparse(true)
        .engines(ENGINES)
        .tuning(Tuning { chunk_bytes: COPY_BYTES, ..Tuning::default() })
        .run();
    match moved {
        // Missing bytes of the source read as zeros. The caller's checksum pass decides whether
        // that is damage.
        Ok(_) | Err(Failed::SourceChanged { .. }) => {}
        Err(Failed::Refused { .. }) => return Ok(false),
        // `statx` comes first. Some sandboxes forbid it as if the kernel had no such call.
        Err(Failed::Io { operation, source, .. })
            if operation.starts_with("look at") && is_forbidden(&source) =>
        {
            return Ok(false);
        }
        Err(failed) => return Err(error_of(failed, target)),
    }
    if target.length()? != length {
        target.set_length(length)?;
    }
    Ok(true)
}

fn is_forbidden(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

fn error_of(failed: Failed, target: &dyn File) -> Error {
    match failed {
        Failed::NoSpace { path, needed_bytes } => {
            Error::DiskFull { path, doing: "copy into", needed_bytes }
        }
        Failed::Io { operation, path, source } => Error::from_io(source, operation, &path),
        other => Error::Io {
            path: target.path().to_path_buf(),
            doing: "copy into",
            source: std::io::Error::other(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::storage::{Disk, OpenMode, Storage};

    fn file(directory: &Path, name: &str) -> Arc<dyn File> {
        Disk::default().open(&directory.join(name), OpenMode::CreateNew).unwrap()
    }

    /// 4 MiB file: data, a hole, data, a hole at the end; 1 MiB of data.
    fn source(directory: &Path) -> Arc<dyn File> {
        let source = file(directory, "source");
        source.write_at(&vec![1; 512 << 10], 0).unwrap();
        source.write_at(&vec![2; 512 << 10], 2 << 20).unwrap();
        source.set_length(4 << 20).unwrap();
        source
    }

    fn contents(file: &dyn File) -> Vec<u8> {
        let mut bytes = vec![0; file.length().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    fn is_copied_with_its_holes(from: &Path, to: &Path) {
        let source = source(from);
        for (name, length) in [("whole", 4 << 20), ("part", (2 << 20) + 4096), ("hole", 1 << 20)] {
            let target = file(to, name);
            assert!(copy(&*source, &*target, length).unwrap(), "{name}");
            assert!(contents(&*target) == contents(&*source)[..length as usize], "{name}");
            assert!(target.disk_bytes().unwrap() <= source.disk_bytes().unwrap() + (64 << 10));
        }
    }

    #[test]
    fn the_kernel_copies_a_file_with_its_holes_and_no_more_than_asked_for() {
        let directory = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        is_copied_with_its_holes(directory.path(), directory.path());
    }

    #[test]
    fn the_kernel_copies_between_file_systems() {
        let (Ok(one), Ok(other)) = (tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")) else {
            return eprintln!("SKIPPED: no file can be made in /dev/shm");
        };
        is_copied_with_its_holes(one.path(), other.path());
        is_copied_with_its_holes(other.path(), one.path());
    }

    #[test]
    fn bytes_past_the_end_of_the_source_become_a_hole() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (source(directory.path()), file(directory.path(), "target"));
        assert!(copy(&*source, &*target, 8 << 20).unwrap());
        let mut expected = contents(&*source);
        expected.resize(8 << 20, 0);
        assert!(contents(&*target) == expected);
    }
}
