//! Measures engines on the same files in alternating rounds, so that noise affects all alike.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap_observe::{Moment, quantile};
use rustix::fs::{self, Advice, Mode, OFlags};

use crate::drive::Drive;
use crate::end::Ends;
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::policy::rates::RateCache;
use crate::policy::{Facts, Request};
use crate::span::{Span, Work};

/// Measurement of one engine at one file size.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Measurement {
    /// The engine.
    pub engine: EngineKind,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Seconds per round, from creating the target to closing it, ascending. The source stays open.
    pub wall_s: Vec<f64>,
    /// Processor seconds per round, ascending.
    pub processor_s: Vec<f64>,
    /// System calls that moved data or tried to, in the last round.
    pub calls: u64,
    /// Voluntary context switches, in the last round.
    pub switches: u64,
    /// Reason for missing figures.
    pub refused: Option<String>,
}

impl Measurement {
    /// Returns the median wall time in seconds.
    pub fn median_s(&self) -> Option<f64> {
        quantile(&self.wall_s, 0.5)
    }

    /// Returns the median processor time in seconds.
    pub fn processor_median_s(&self) -> Option<f64> {
        quantile(&self.processor_s, 0.5)
    }

    /// Returns the median data rate in bytes per millisecond, the unit used in the literature.
    pub fn bytes_per_ms(&self) -> Option<f64> {
        self.median_s().map(|median_s| self.size_bytes as f64 / (median_s * 1e3))
    }
}

/// Measurement of engines on the user's disks.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// use evermap_transfer::{Measure, engines::EngineKind};
/// let measurements = Measure::new(directory.path())
///     .sizes([4096])
///     .rounds(3)
///     .engines([EngineKind::ReadWrite])
///     .run()?;
/// assert_eq!(measurements[0].wall_s.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Measure {
    directory: PathBuf,
    target: PathBuf,
    sizes: Vec<u64>,
    rounds: usize,
    engines: Vec<EngineKind>,
    cold: bool,
    synced: bool,
}

impl Measure {
    /// Creates a measurement in `directory`. Its files are unnamed and vanish when closed.
    pub fn new(directory: impl Into<PathBuf>) -> Measure {
        let directory = directory.into();
        Measure {
            target: directory.clone(),
            directory,
            sizes: vec![4 << 10, 1 << 20, 64 << 20],
            rounds: 10,
            engines: EngineKind::ALL.to_vec(),
            cold: false,
            synced: false,
        }
    }

    /// Places the targets in another directory, for example on another file system.
    pub fn into_directory(mut self, target: impl Into<PathBuf>) -> Measure {
        self.target = target.into();
        self
    }

    /// Sets the file sizes in bytes.
    pub fn sizes(mut self, sizes: impl IntoIterator<Item = u64>) -> Measure {
        self.sizes = sizes.into_iter().collect();
        self
    }

    /// Sets the number of rounds per engine and size.
    pub fn rounds(mut self, rounds: usize) -> Measure {
        self.rounds = rounds.max(1);
        self
    }

    /// Measures only these engines.
    pub fn engines(mut self, engines: impl IntoIterator<Item = EngineKind>) -> Measure {
        self.engines = engines.into_iter().collect();
        self
    }

    /// Drops the source from the page cache before each round. The host of a virtual machine may
    /// still cache it.
    pub fn cold(mut self, cold: bool) -> Measure {
        self.cold = cold;
        self
    }

    /// Flushes the target in each round.
    pub fn synced(mut self, synced: bool) -> Measure {
        self.synced = synced;
        self
    }

    /// Runs the measurement.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::NoSpace`]. A refusal by an engine is not an error: its
    /// measurement contains the reason.
    pub fn run(&self) -> Result<Vec<Measurement>> {
        let mut measurements = Vec::new();
        for size_bytes in &self.sizes {
            let source = self.source(*size_bytes)?;
            let mut of_size: Vec<Measurement> =
                self.engines.iter().map(|engine| empty(*engine, *size_bytes)).collect();
            for _ in 0..self.rounds {
                for measurement in &mut of_size {
                    if measurement.refused.is_none() {
                        self.round(&source, measurement)?;
                    }
                }
            }
            for measurement in &mut of_size {
                measurement.wall_s.sort_by(f64::total_cmp);
                measurement.processor_s.sort_by(f64::total_cmp);
            }
            measurements.extend(of_size);
        }
        Ok(measurements)
    }

    /// Creates a file that is flushed and cached, with incompressible contents.
    fn source(&self, size_bytes: u64) -> Result<OwnedFd> {
        let file = unnamed_file(&self.directory)?;
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut chunk = vec![0u8; 1 << 20];
        let mut at = 0;
        while at < size_bytes {
            for word in chunk.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            let bytes = (size_bytes - at).min(chunk.len() as u64) as usize;
            let written =
                rustix::io::pwrite(&file, &chunk[..bytes], at).map_err(|errno| match errno {
                    rustix::io::Errno::NOSPC => {
                        Error::NoSpace { path: self.directory.clone(), needed_bytes: size_bytes }
                    }
                    errno => Error::io("write into", &self.directory)(errno),
                })?;
            at += written as u64;
        }
        fs::fsync(&file).map_err(Error::io("flush", &self.directory))?;
        Ok(file)
    }

    fn round(&self, source: &OwnedFd, measurement: &mut Measurement) -> Result<()> {
        if self.cold {
            // Advice only; drops pages that have been flushed.
            let _ = fs::fadvise(source, 0, None, Advice::DontNeed);
        }
        let start = (Moment::now(), Instant::now());
        let target = unnamed_file(&self.target)?;
        let ends = Ends::new((source, &self.directory), (&target, &self.target))?;
        let meter = Meter::default();
        let facts = Facts::of(&ends, 0);
        let drive = Drive {
            ends: &ends,
            facts: &facts,
            request: &Request { engine: Some(measurement.engine), ..Request::default() },
            tuning: &Tuning::default(),
            meter: &meter,
            rate_cache: &RateCache::default(),
            reserve: &|_| Ok(()),
        };
        let (_, moved) = drive.run(&mut Work::new([Span::new(0, measurement.size_bytes)]));
        match moved {
            Ok(()) => {}
            Err(Error::Refused { why, .. }) => {
                measurement.refused = Some(why);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        if self.synced {
            fs::fsync(target.as_fd()).map_err(Error::io("flush", &self.target))?;
        }
        let usage = start.0.since();
        drop(target);
        measurement.wall_s.push(start.1.elapsed().as_secs_f64());
        measurement.processor_s.push(usage.processor_s());
        measurement.calls = meter.calls();
        measurement.switches = usage.voluntary_switches;
        Ok(())
    }
}

fn empty(engine: EngineKind, size_bytes: u64) -> Measurement {
    Measurement {
        engine,
        size_bytes,
        wall_s: Vec::new(),
        processor_s: Vec::new(),
        calls: 0,
        switches: 0,
        refused: None,
    }
}

/// Creates an unnamed file.
fn unnamed_file(directory: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    fs::openat(fs::CWD, directory, flags, Mode::RUSR | Mode::WUSR)
        .map_err(Error::io("create an unnamed file in", directory))
}
