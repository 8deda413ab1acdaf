//! What a copy of one file was done with, and what it has cost.

use std::path::PathBuf;

use evermap_observe::{DeviceRates, Residency, Usage};

use crate::engines::EngineKind;
use crate::tree::{Counts, Outcome};

/// An engine and what it moved.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EngineUse {
    /// Which.
    pub engine: EngineKind,
    /// How much of the data arrived by it.
    pub bytes: u64,
    /// How often the processor copies each byte on this way, between these kinds of ends.
    pub copies: u8,
}

/// An engine that was not used, or not to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NotUsed {
    /// Which.
    pub engine: EngineKind,
    /// Why not.
    pub why: String,
}

/// An attribute that the copy does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NotKept {
    /// Of which file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "lossy"))]
    pub path: PathBuf,
    /// Which attribute.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// What there is to say of a tree beside the bytes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TreeSummary {
    /// What became of the target.
    pub outcome: Outcome,
    /// Files, directories, links.
    pub counts: Counts,
    /// Threads that copied.
    pub threads: usize,
    /// What could not be copied, the first of it.
    pub errors: Vec<String>,
    /// How much of that there is, listed or not.
    pub errors_total: u64,
    /// How much there is that was not kept, listed or not.
    pub not_kept_total: u64,
}

/// How a file was copied, or a tree.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Report {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Of these, what was moved or shared.
    pub data_bytes: u64,
    /// Of these, what are holes in source and target.
    pub hole_bytes: u64,
    /// What an earlier, interrupted copy had brought already.
    pub resumed_bytes: u64,
    /// The engines, in the order of their first use.
    pub engines: Vec<EngineUse>,
    /// Why the first of them.
    pub why: String,
    /// Why not others.
    pub not_used: Vec<NotUsed>,
    /// What was tried while it ran.
    pub log: Vec<String>,
    /// System calls that moved data.
    pub calls: u64,
    /// Time, processor time, faults, switches.
    pub usage: Usage,
    /// Of this time, what flushing took, in seconds.
    pub flush_s: f64,
    /// Of the source, before.
    pub source_resident_before: Option<Residency>,
    /// Of the source, after.
    pub source_resident_after: Option<Residency>,
    /// Of the target, after.
    pub target_resident_after: Option<Residency>,
    /// What the target's device can do by itself, if that was asked and is known.
    pub device: Option<DeviceRates>,
    /// Whether it was read back and compared.
    pub verified: bool,
    /// Of a directory and what is in it.
    pub tree: Option<TreeSummary>,
    /// Attributes that the target does not have.
    pub not_kept: Vec<NotKept>,
}

impl Report {
    /// Processor time a GiB of data, in milliseconds; `None` where no data moved.
    pub fn processor_ms_per_gib(&self) -> Option<f64> {
        let gib = self.moved_bytes() as f64 / (1u64 << 30) as f64;
        (gib > 0.0).then(|| self.usage.processor_s() * 1e3 / gib)
    }

    /// How often the processor copied each byte of data, on average over the engines.
    pub fn copies_per_byte(&self) -> Option<f64> {
        let copied: f64 =
            self.engines.iter().map(|used| used.bytes as f64 * f64::from(used.copies)).sum();
        (self.moved_bytes() > 0).then(|| copied / self.moved_bytes() as f64)
    }

    /// The share of the device's own rate that was reached: of the slower of its reading and writing.
    pub fn device_share(&self) -> Option<f64> {
        let device = self.device?;
        let limit = device.read_bytes_per_s.min(device.write_bytes_per_s);
        (self.usage.wall_s > 0.0 && limit > 0.0)
            .then(|| self.moved_bytes() as f64 / self.usage.wall_s / limit)
    }

    /// Data that was moved or shared by this copy itself.
    pub fn moved_bytes(&self) -> u64 {
        self.engines.iter().map(|used| used.bytes).sum()
    }
}

/// Paths have any bytes; JSON has not.
#[cfg(feature = "serde")]
pub(crate) fn lossy<S: serde::Serializer>(
    path: &std::path::Path,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
