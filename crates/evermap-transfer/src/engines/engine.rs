//! Interface of an engine, and the reasons why one stops.

use super::kind::EngineKind;
use crate::end::Ends;
use crate::error::{Error, Side};
use crate::meter::Meter;
use crate::span::Work;

/// A mechanism for moving bytes.
pub trait Engine: Send {
    /// Returns the engine's kind.
    fn kind(&self) -> EngineKind;

    /// Checks whether the engine supports these ends, as far as possible without moving bytes. It
    /// refuses ends that the kernel would refuse or that it would copy incorrectly.
    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal>;

    /// Moves up to about `bytes_max` of the remaining bytes and removes the arrived ones from
    /// `work`.
    ///
    /// `Ok` means that bytes arrived or no work remains. On any error `work` is exact: all bytes
    /// not in it are in the target.
    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop>;

    /// Writes bytes that cannot be read from the source again (taken from a pipe or socket) to the
    /// target, and drops the rest. Called after the last step, successful or not. If the target
    /// does not accept the bytes, the engine keeps them, and the next `drain` or `step` writes them
    /// first. The default is for engines that hold no bytes.
    fn drain(&mut self, _ends: &Ends<'_>, _work: &mut Work, _meter: &Meter) -> Result<(), Stop> {
        Ok(())
    }
}

/// Reason why an engine cannot start or continue. Not an error: another engine may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// Creates a refusal with this reason.
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why a step ended early.
#[derive(Debug)]
pub enum Stop {
    /// The kernel refuses this mechanism. Another engine continues from here.
    Refused(Refusal),
    /// The source was confirmed to end at this offset, before the end of the work.
    SourceEnded {
        /// Offset of the end.
        at_bytes: u64,
    },
    /// A call failed in a way that no other engine can avoid.
    Failed {
        /// The end that failed.
        side: Side,
        /// The operation, as in "cannot ...".
        operation: &'static str,
        /// The system's error.
        errno: rustix::io::Errno,
    },
    /// The transfer was cancelled.
    Cancelled,
}

impl Stop {
    /// Converts this into an error about `ends`.
    pub fn into_error(self, engine: EngineKind, ends: &Ends<'_>) -> Error {
        let (source, target) = (ends.source.path().to_path_buf(), ends.target.path().to_path_buf());
        match self {
            Stop::Refused(why) => Error::Refused {
                engine: engine.name(),
                source_path: source,
                target_path: target,
                why: why.0,
            },
            Stop::SourceEnded { at_bytes } => Error::SourceChanged {
                path: source,
                what: format!(
                    "it ended at byte {at_bytes} instead of {}",
                    ends.source.size_bytes()
                ),
            },
            Stop::Failed {
                side: Side::Target,
                errno: rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT,
                ..
            } => Error::NoSpace { path: target, needed_bytes: ends.source.size_bytes() },
            Stop::Failed { side, operation, errno } => {
                let path = if side == Side::Source { source } else { target };
                Error::Io { operation, path, source: errno.into() }
            }
            Stop::Cancelled => Error::Cancelled { left: "no partial file remains".into() },
        }
    }
}
