//! Copying a file's contents by the kernel's ways to do so, in the page cache and in small pieces.
//!
//! What decides the choice of ways is who uses the copy next: a writer that maps it and stores to
//! single pages. A page that is written belongs to a folio, and a commit of one page costs the more
//! the larger that is. Folios get as large as the write that made them: 64 KiB here, as
//! `copy_file_range` and `sendfile` move bytes through a pipe of that size within the kernel (they copy each byte
//! once, and need a call where a loop needs a thousand). Mappings, larger pipes and direct writes
//! are faster still and leave folios of 2 MiB, or none.
//!
//! Nothing is measured, kept or looked up: the same files are copied in the same way every time.

use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Error as Failed, Move, Span};

use super::{COPY_BYTES, File};
use crate::error::{Error, Result};

/// Each goes on where the one before it is refused: between file systems, or by one that cannot.
const ENGINES: [EngineKind; 4] =
    [EngineKind::Reflink, EngineKind::CopyFileRange, EngineKind::Sendfile, EngineKind::ReadWrite];

/// Makes `target`, which is empty, the first `length` bytes of `source`. No more than asked for:
/// behind it lies what a writer has just reserved. Shared, it would be flushed first, and a store into memory
/// mapped over a shared block needs a new one, which a full disk refuses by a signal.
///
/// A disk without room for the copy is `DiskFull` before the first byte is written. False when
/// nothing can be moved between the two.
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
        // What the source lacks reads as zeros: whether that is damage is for who checks the copy to say.
        Ok(_) | Err(Failed::SourceChanged { .. }) => {}
        Err(Failed::Refused { .. }) => return Ok(false),
        // Looking comes first. Sandboxes forbid some of it as if the kernel had no such call.
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
