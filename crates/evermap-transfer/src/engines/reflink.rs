//! Engine `reflink`: `FICLONERANGE` makes both files share extents. No bytes move until one file is
//! written.
//!
//! Whole blocks can be shared, and the source's last block if the target ends there. Other requests
//! are refused.

use evermap_observe::FileSystem;
use rustix::fs::{fstat, fstatfs};

use super::calls::{ended, refusal_or_failure, retry};
use super::{Engine, EngineKind, Refusal, Stop};
use crate::end::{Ends, Kind};
use crate::error::Side;
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys;

/// Bytes per call, so that a cancelled transfer stops soon. Sharing many extents takes a while.
const CANCELLABLE_BYTES_MAX: u64 = 16 << 30;

/// The engine `reflink`.
#[derive(Debug)]
pub struct Reflink;

/// Result of checking the start of a span.
enum Share {
    Bytes(u64),
    Nothing(Refusal),
    SourceEnded,
}

impl Reflink {
    /// Returns how much of `span` one call can share.
    fn share(ends: &Ends<'_>, span: Span) -> Result<Share, Stop> {
        let failed =
            |side| move |errno| Stop::Failed { side, operation: "read the attributes of", errno };
        // Query the current size: the kernel answers EINVAL if the source was truncated, as in many
        // other cases.
        let source_bytes = fstat(ends.source.fd()).map_err(failed(Side::Source))?.st_size as u64;
        let target = fstatfs(ends.target.fd()).map_err(failed(Side::Target))?;
        let block_bytes = (target.f_bsize as u64).max(512);
        if span.begin >= source_bytes {
            return Ok(Share::SourceEnded);
        }
        if !span.begin.is_multiple_of(block_bytes) {
            let why = format!(
                "byte {} is inside a block of {block_bytes} bytes, and only whole blocks are shared",
                span.begin
            );
            return Ok(Share::Nothing(Refusal::new(why)));
        }
        let until = span.end.min(source_bytes);
        let bytes = (until - span.begin).min(CANCELLABLE_BYTES_MAX);
        if span.begin + bytes == source_bytes {
            return Ok(Share::Bytes(bytes));
        }
        match bytes / block_bytes * block_bytes {
            0 => {
                let why = format!(
                    "byte {until} is inside a block of {block_bytes} bytes, and only whole blocks are shared"
                );
                Ok(Share::Nothing(Refusal::new(why)))
            }
            bytes => Ok(Share::Bytes(bytes)),
        }
    }
}

impl Engine for Reflink {
    fn kind(&self) -> EngineKind {
        EngineKind::Reflink
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if ends.source.kind() != Kind::File || ends.target.kind() != Kind::File {
            return Err(Refusal::new("only regular files share extents"));
        }
        // Subvolumes of one btrfs have different device numbers but share extents.
        let may_share = ends.same_file_system()
            || [&ends.source, &ends.target]
                .iter()
                .all(|end| end.file_system() == FileSystem::BTRFS);
        if !may_share {
            return Err(Refusal::new("source and target are on different file systems"));
        }
        if ends.source.identity() == ends.target.identity() {
            return Err(Refusal::new("source and target are the same file"));
        }
        if ends.target.appends() {
            return Err(Refusal::new(
                "extents cannot be shared with a target opened for appending",
            ));
        }
        if ends.target.file_system().never_reflinks() {
            return Err(Refusal::new("the file system does not share extents"));
        }
        Ok(())
    }

    /// Ignores `_bytes_max`: the cost depends on extents, not bytes.
    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        _bytes_max: u64,
    ) -> Result<(), Stop> {
        while let Some(span) = work.first() {
            let bytes = match Self::share(ends, span)? {
                Share::Bytes(bytes) => bytes,
                Share::Nothing(why) => return Err(Stop::Refused(why)),
                Share::SourceEnded => return ended(ends, work, "FICLONERANGE", span.begin, meter),
            };
            let shared = retry(meter, &[], || {
                meter.draining(|| {
                    sys::clone_range(ends.source.fd(), ends.target.fd(), span.begin, bytes)
                })
            })?;
            shared.map_err(|errno| {
                refusal_or_failure("FICLONERANGE", Side::Target, "share extents with", errno)
            })?;
            work.arrived(bytes);
            meter.arrived(bytes);
        }
        Ok(())
    }
}
