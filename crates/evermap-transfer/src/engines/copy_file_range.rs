//! Engine `copy_file_range`: the file system copies, shares extents, or asks a server to copy.
//!
//! Between file systems it fails with EXDEV. Kernels 5.3 to 5.18 return 0 for generated files. It
//! may also refuse after moving a part. In all these cases another engine continues, because
//! [`Work`] tracks what is in the target.

use rustix::fs::copy_file_range;

use super::calls::move_by_call;
use super::{Engine, EngineKind, Refusal, Stop};
use crate::end::{Ends, Kind};
use crate::meter::Meter;
use crate::span::Work;

/// The engine `copy-file-range`.
#[derive(Debug)]
pub struct CopyFileRange;

impl Engine for CopyFileRange {
    fn kind(&self) -> EngineKind {
        EngineKind::CopyFileRange
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if ends.source.kind() != Kind::File || ends.target.kind() != Kind::File {
            return Err(Refusal::new("copy_file_range supports only regular files"));
        }
        if ends.target.appends() {
            return Err(Refusal::new("copy_file_range refuses a target opened for appending"));
        }
        if ends.source.identity() == ends.target.identity() {
            return Err(Refusal::new("copy_file_range refuses overlapping ranges of one file"));
        }
        Ok(())
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        let (source, target) = (ends.source.fd(), ends.target.fd());
        move_by_call("copy_file_range", (ends, work, meter), bytes_max, &[], |at, bytes| {
            let (mut from, mut to) = (at, at);
            copy_file_range(source, Some(&mut from), target, Some(&mut to), bytes)
        })
    }
}
