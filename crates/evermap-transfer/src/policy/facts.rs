//! Facts that a plan depends on. Queried once, and only as far as the size requires.

use evermap_observe::{DirectAlignment, FileSystem};

use crate::end::{Ends, Kind};
use crate::engines::EngineKind;

/// Up to this size a file is moved by one read and one write, without further queries.
pub(super) const SMALL_BYTES_MAX: u64 = 256 << 10;
/// Below this size direct I/O gains nothing: setting up a ring takes about 2 ms of processor time.
pub(super) const COLD_BYTES_MIN: u64 = 16 << 20;
/// Below this size a copy cannot crowd the memory of any machine.
const LARGE_BYTES_MIN: u64 = 256 << 20;

/// Known facts about both ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) source: Kind,
    pub(crate) target: Kind,
    pub(crate) target_appends: bool,
    /// Size of the source.
    pub(crate) size_bytes: u64,
    /// Bytes of the source in extents.
    pub(crate) data_bytes: u64,
    pub(crate) source_file_system: FileSystem,
    pub(crate) target_file_system: FileSystem,
    pub(crate) same_device: bool,
    pub(crate) direct: Direct,
    /// Cached share of the source, if queried and known.
    pub(crate) resident: Option<f64>,
    /// Available memory, if queried and known.
    pub(crate) available_bytes: Option<u64>,
    /// Sharing was already tried and refused.
    pub(crate) sharing_was_tried: bool,
    /// Engine measured to be fastest for cached files between these devices.
    pub(crate) warm: Option<EngineKind>,
}

/// Direct I/O alignment of each end that reports one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Direct {
    pub(crate) source: Option<DirectAlignment>,
    pub(crate) target: Option<DirectAlignment>,
}

impl Facts {
    /// Collects the facts already stored in `ends`. Makes no system call.
    pub(crate) fn of(ends: &Ends<'_>, data_bytes: u64) -> Facts {
        let (source, target) = (&ends.source, &ends.target);
        Facts {
            source: source.kind(),
            target: target.kind(),
            target_appends: target.appends(),
            size_bytes: source.size_bytes(),
            data_bytes,
            source_file_system: source.file_system(),
            target_file_system: target.file_system(),
            same_device: ends.same_file_system(),
            direct: Direct { source: source.direct(), target: target.direct() },
            resident: None,
            available_bytes: None,
            sharing_was_tried: false,
            warm: None,
        }
    }

    /// Returns true if both ends are files or devices, and the source has a size.
    pub(super) fn are_files_with_data(&self) -> bool {
        let is_file = |kind| matches!(kind, Kind::File | Kind::Block);
        is_file(self.source) && is_file(self.target) && self.size_bytes > 0
    }

    /// Queries the cached share and, for large files, the available memory. Small files are
    /// skipped.
    ///
    /// Cost: one system call that takes 10 us for 64 MiB in large folios and 3 ms for 1 GiB in
    /// small ones; for large files, also reads two small files of `/proc`.
    pub(crate) fn query_memory(&mut self, ends: &Ends<'_>) {
        let data_bytes = self.data_bytes;
        self.resident = (self.source == Kind::File && data_bytes > SMALL_BYTES_MAX)
            .then(|| evermap_observe::residency(ends.source.fd()))
            .flatten()
            .map(|residency| (residency.resident_bytes as f64 / data_bytes as f64).min(1.0));
        self.available_bytes =
            (data_bytes >= LARGE_BYTES_MIN).then(evermap_observe::available_bytes).flatten();
    }
}
