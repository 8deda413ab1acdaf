//! Report of a copy: engines used, reasons, costs.

use std::path::PathBuf;

use evermap_observe::{DeviceRates, Residency, Usage};

use crate::engines::EngineKind;
use crate::tally::{Counts, Outcome};

/// An engine and the bytes it moved.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EngineUse {
    /// The engine.
    pub engine: EngineKind,
    /// Bytes that arrived by it.
    pub bytes: u64,
    /// Processor copies of each byte by this engine, between these kinds of ends.
    pub copies: u8,
}

/// An engine that was not used, or was abandoned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NotUsed {
    /// The engine.
    pub engine: EngineKind,
    /// Reason.
    pub why: String,
}

/// An attribute that was not preserved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NotKept {
    /// The file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "lossy"))]
    pub path: PathBuf,
    /// The attribute.
    pub what: String,
    /// Reason.
    pub why: String,
}

/// Report of a tree copy, in addition to the byte counts.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TreeSummary {
    /// State of the target after the copy.
    pub outcome: Outcome,
    /// Numbers of files, directories, links.
    pub counts: Counts,
    /// Number of threads that copied.
    pub threads: usize,
    /// The first errors.
    pub errors: Vec<String>,
    /// Number of errors, listed or not.
    pub errors_total: u64,
    /// Number of attributes not preserved, listed or not.
    pub not_kept_total: u64,
}

/// Report of a copied file or tree.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Report {
    /// Size of the source, or of the spans to move, in bytes.
    pub size_bytes: u64,
    /// Bytes of data in the target: moved, shared, or resumed. Without holes.
    pub data_bytes: u64,
    /// Bytes in holes, in source and target.
    pub hole_bytes: u64,
    /// Bytes already present from an interrupted copy.
    pub resumed_bytes: u64,
    /// Engines used, in the order of first use.
    pub engines: Vec<EngineUse>,
    /// Reason for the first engine.
    pub why: String,
    /// Engines not used, with reasons.
    pub not_used: Vec<NotUsed>,
    /// Events during the copy, such as lanes added.
    pub log: Vec<String>,
    /// System calls that moved data or tried to.
    pub calls: u64,
    /// Wall time, processor time, page faults, context switches.
    pub usage: Usage,
    /// Seconds spent flushing, included in `usage`.
    pub flush_s: f64,
    /// Cached share of the source before the copy.
    pub source_resident_before: Option<Residency>,
    /// Cached share of the source after the copy.
    pub source_resident_after: Option<Residency>,
    /// Cached share of the target after the copy.
    pub target_resident_after: Option<Residency>,
    /// The target device's own rates, if requested and known.
    pub device: Option<DeviceRates>,
    /// True if the copy was read back and compared.
    pub verified: bool,
    /// Summary of a tree copy.
    pub tree: Option<TreeSummary>,
    /// Attributes that were not preserved. For a tree, the first ones.
    pub not_kept: Vec<NotKept>,
}

impl Report {
    /// Returns processor milliseconds per GiB moved, or `None` if no data moved.
    pub fn processor_ms_per_gib(&self) -> Option<f64> {
        let gib = self.moved_bytes() as f64 / (1u64 << 30) as f64;
        (gib > 0.0).then(|| self.usage.processor_s() * 1e3 / gib)
    }

    /// Returns processor copies per byte, averaged over the engines by bytes.
    pub fn copies_per_byte(&self) -> Option<f64> {
        let copied: f64 =
            self.engines.iter().map(|used| used.bytes as f64 * f64::from(used.copies)).sum();
        (self.moved_bytes() > 0).then(|| copied / self.moved_bytes() as f64)
    }

    /// Returns the throughput as a fraction of the device's read or write rate, whichever is lower.
    pub fn device_share(&self) -> Option<f64> {
        let device = self.device?;
        let limit = device.read_bytes_per_s.min(device.write_bytes_per_s);
        (self.usage.wall_s > 0.0 && limit > 0.0)
            .then(|| self.moved_bytes() as f64 / self.usage.wall_s / limit)
    }

    /// Returns the bytes moved or shared by this copy, without resumed bytes.
    pub fn moved_bytes(&self) -> u64 {
        self.engines.iter().map(|used| used.bytes).sum()
    }
}

/// Serializes a path as a string. Bytes that are not UTF-8 are replaced.
#[cfg(feature = "serde")]
pub(crate) fn lossy<S: serde::Serializer>(
    path: &std::path::Path,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
