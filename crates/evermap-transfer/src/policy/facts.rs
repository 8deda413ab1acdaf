//! What a plan is made of. Asked once, and only as far as it matters for so many bytes.

use evermap_observe::{DirectAlignment, FileSystem};

use crate::end::{Ends, Kind};

/// What is up to this is moved by one read and one write, and nothing is asked about it.
pub(super) const SMALL_BYTES_MAX: u64 = 256 << 10;
/// What is below this gains nothing from passing the cache by: a ring takes some 2 ms of the processor to set up.
pub(super) const COLD_BYTES_MIN: u64 = 16 << 20;
/// What is below this is no threat to the memory of any machine.
const LARGE_BYTES_MIN: u64 = 256 << 20;

/// What is known of two ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) source: Kind,
    pub(crate) target: Kind,
    pub(crate) target_appends: bool,
    /// As the source's size says.
    pub(crate) size_bytes: u64,
    /// Of these, in extents.
    pub(crate) data_bytes: u64,
    pub(crate) source_file_system: FileSystem,
    pub(crate) target_file_system: FileSystem,
    pub(crate) same_device: bool,
    pub(crate) direct: Direct,
    /// The resident share of the source, if that was asked and told.
    pub(crate) resident: Option<f64>,
    /// Memory that is to be had, if that was asked and told.
    pub(crate) available_bytes: Option<u64>,
}

/// Which end says that it does direct I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Direct {
    pub(crate) source: Option<DirectAlignment>,
    pub(crate) target: Option<DirectAlignment>,
}

impl Facts {
    /// What both ends say of themselves: asks nothing.
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
            same_device: ends.share_a_file_system(),
            direct: Direct { source: source.direct(), target: target.direct() },
            resident: None,
            available_bytes: None,
        }
    }

    /// Asks what is cached, and how much memory there is: a system call that takes 10 us for 64 MiB in large folios and 3 ms for
    /// 1 GiB in small ones, and for what is large two small files of `/proc`. Nothing for what is small.
    pub(crate) fn look_at_memory(&mut self, ends: &Ends<'_>) {
        let data_bytes = self.data_bytes;
        self.resident = (self.source == Kind::File && data_bytes > SMALL_BYTES_MAX)
            .then(|| evermap_observe::residency(ends.source.fd()))
            .flatten()
            .map(|residency| (residency.resident_bytes as f64 / data_bytes as f64).min(1.0));
        self.available_bytes =
            (data_bytes >= LARGE_BYTES_MIN).then(evermap_observe::available_bytes).flatten();
    }
}
