//! Reports of sending and receiving.

use std::path::PathBuf;

use evermap_observe::{Moment, Usage};

use crate::engines::EngineKind;
use crate::meter::Meter;
use crate::report::{NotKept, NotUsed};

/// Report of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Connection {
    /// Address of the peer.
    pub peer: String,
    /// Engine that moved bytes last. `None` if no bytes moved or they were discarded.
    pub engine: Option<EngineKind>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of spans.
    pub spans: u64,
}

/// Cost of the transfer on this side.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Traffic {
    /// Data bytes transferred, without holes.
    pub bytes: u64,
    /// Usage of the whole process, from the first connection to the end of the transfer.
    pub usage: Usage,
    /// System calls that moved data or tried to.
    pub calls: u64,
    /// Report of each connection.
    pub connections: Vec<Connection>,
    /// Engines that were tried before the one used, with reasons.
    pub not_used: Vec<NotUsed>,
}

impl Traffic {
    /// Returns the engine of the first connection that moved bytes.
    pub fn engine(&self) -> Option<EngineKind> {
        self.connections.iter().find_map(|connection| connection.engine)
    }
}

/// Report of a sender.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SendReport {
    /// The file sent.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::report::lossy"))]
    pub path: PathBuf,
    /// Size in bytes; for a stream the bytes read.
    pub size_bytes: u64,
    /// True if the receiver read back its copy and the digests matched.
    pub verified: bool,
    /// True if the receiver confirmed that the file is published. Always false if it discards the
    /// data, and for raw bytes.
    pub published: bool,
    /// Cost of the transfer.
    pub traffic: Traffic,
}

/// Report of a receiver.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReceiveReport {
    /// The published file, or `None` if the data was discarded or written into a stream.
    #[cfg_attr(feature = "serde", serde(serialize_with = "lossy"))]
    pub path: Option<PathBuf>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True if the copy was read back and the digests matched.
    pub verified: bool,
    /// Attributes that could not be set, because of the file system or this user's rights.
    pub not_kept: Vec<NotKept>,
    /// Cost of the transfer.
    pub traffic: Traffic,
}

impl Traffic {
    /// Creates a report of a transfer that began at `begin`.
    pub(super) fn since(
        begin: &Moment,
        meter: &Meter,
        connections: Vec<Connection>,
        not_used: Vec<NotUsed>,
    ) -> Traffic {
        Traffic {
            bytes: meter.arrived_bytes(),
            usage: begin.since(),
            calls: meter.calls(),
            connections,
            not_used,
        }
    }
}

/// Serializes a path as a string. Bytes that are not UTF-8 are replaced.
#[cfg(feature = "serde")]
fn lossy<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.serialize_some(&path.to_string_lossy()),
        None => serializer.serialize_none(),
    }
}
