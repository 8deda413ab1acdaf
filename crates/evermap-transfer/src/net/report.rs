//! What a transfer did, for people and for programs.

use std::path::PathBuf;

use evermap_observe::{Moment, Usage};

use crate::engines::EngineKind;
use crate::meter::Meter;
use crate::report::{NotKept, NotUsed};

/// What one connection carried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Connection {
    /// The other end.
    pub peer: String,
    /// The engine that moved its bytes last; none if there were none, or they were thrown away.
    pub engine: Option<EngineKind>,
    /// Bytes of the file.
    pub bytes: u64,
    /// In so many spans.
    pub spans: u64,
}

/// What moving the bytes took, on this side.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes of data that crossed the network, without holes.
    pub bytes: u64,
    /// What it has cost this whole process, from the first connection to the end of the transfer.
    pub usage: Usage,
    /// System calls that moved data.
    pub calls: u64,
    /// Each of the connections.
    pub connections: Vec<Connection>,
    /// Engines that come earlier in the plan than the one used, and why they did not serve.
    pub not_used: Vec<NotUsed>,
}

impl Traffic {
    /// The engine that moved the bytes, of the first connection that moved any.
    pub fn engine(&self) -> Option<EngineKind> {
        self.connections.iter().find_map(|connection| connection.engine)
    }
}

/// What a sender did.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SendReport {
    /// The file that was sent.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::report::lossy"))]
    pub path: PathBuf,
    /// Its size; for a stream what was read of it.
    pub size_bytes: u64,
    /// Whether the receiver read back what it stored, and it was what the source has.
    pub verified: bool,
    /// Whether the receiver said that it has published the file. Never so when it throws away, nor with raw bytes.
    pub published: bool,
    /// What it took.
    pub traffic: Traffic,
}

/// What a receiver did.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReceiveReport {
    /// The file that was published; none if the bytes were thrown away.
    #[cfg_attr(feature = "serde", serde(serialize_with = "lossy"))]
    pub path: Option<PathBuf>,
    /// Its size.
    pub size_bytes: u64,
    /// Whether it was read back, and is what the sender has.
    pub verified: bool,
    /// Which of its attributes the file system or this user's rights don't allow.
    pub not_kept: Vec<NotKept>,
    /// What it took.
    pub traffic: Traffic,
}

impl Traffic {
    /// Of a transfer that began at `begin`.
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

/// Paths have any bytes; JSON has not.
#[cfg(feature = "serde")]
fn lossy<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.serialize_some(&path.to_string_lossy()),
        None => serializer.serialize_none(),
    }
}
