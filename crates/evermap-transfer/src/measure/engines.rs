//! Each engine on the same files, in turns, so that noise falls on all alike.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap_observe::Moment;
use rustix::fs::{self, Advice, Mode, OFlags};

use crate::drive::Drive;
use crate::end::Ends;
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::policy::rates::Kept;
use crate::policy::{Facts, Wish};
use crate::span::{Span, Work};

/// One engine on one size.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Cell {
    /// Which engine.
    pub engine: EngineKind,
    /// Of the file, in bytes.
    pub size_bytes: u64,
    /// Each round's time from opening both files to closing them, in seconds; ascending.
    pub wall_s: Vec<f64>,
    /// Each round's processor time; ascending.
    pub processor_s: Vec<f64>,
    /// System calls that moved data, in the last round.
    pub calls: u64,
    /// Voluntary switches, in the last round.
    pub switches: u64,
    /// Why there are no figures, if there are none.
    pub refused: Option<String>,
}

impl Cell {
    /// The time of the round in the middle, in seconds.
    pub fn median_s(&self) -> Option<f64> {
        self.wall_s.get(self.wall_s.len() / 2).copied()
    }

    /// The processor time of the round in the middle, in seconds.
    pub fn processor_median_s(&self) -> Option<f64> {
        self.processor_s.get(self.processor_s.len() / 2).copied()
    }

    /// As the field's papers have it: bytes a millisecond.
    pub fn bytes_per_ms(&self) -> Option<f64> {
        self.median_s().map(|median_s| self.size_bytes as f64 / (median_s * 1e3))
    }
}

/// A measurement of engines.
///
/// ```
/// # let place = tempfile::tempdir()?;
/// use evermap_transfer::{Measure, engines::EngineKind};
/// let cells = Measure::new(place.path()).sizes([4096]).rounds(3).engines([EngineKind::ReadWrite]).run()?;
/// assert_eq!(cells[0].wall_s.len(), 3);
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
    /// With files in `directory`, which have no names and are gone when it ends.
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

    /// Targets elsewhere, as on another file system.
    pub fn into_directory(mut self, target: impl Into<PathBuf>) -> Measure {
        self.target = target.into();
        self
    }

    /// The files' sizes, in bytes.
    pub fn sizes(mut self, sizes: impl IntoIterator<Item = u64>) -> Measure {
        self.sizes = sizes.into_iter().collect();
        self
    }

    /// How often each engine moves each file.
    pub fn rounds(mut self, rounds: usize) -> Measure {
        self.rounds = rounds.max(1);
        self
    }

    /// Only these.
    pub fn engines(mut self, engines: impl IntoIterator<Item = EngineKind>) -> Measure {
        self.engines = engines.into_iter().collect();
        self
    }

    /// The source's pages are dropped from the cache before each round. (The host of a virtual machine may still have them.)
    pub fn cold(mut self, cold: bool) -> Measure {
        self.cold = cold;
        self
    }

    /// Each round ends when the target is on the disk.
    pub fn synced(mut self, synced: bool) -> Measure {
        self.synced = synced;
        self
    }

    /// Measures.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::NoSpace`]. An engine that does not serve here is no error, but a cell that says so.
    pub fn run(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for size_bytes in &self.sizes {
            let source = self.source(*size_bytes)?;
            let mut of_size: Vec<Cell> =
                self.engines.iter().map(|engine| empty(*engine, *size_bytes)).collect();
            for _ in 0..self.rounds {
                for cell in &mut of_size {
                    if cell.refused.is_none() {
                        self.round(&source, cell)?;
                    }
                }
            }
            for cell in &mut of_size {
                cell.wall_s.sort_by(f64::total_cmp);
                cell.processor_s.sort_by(f64::total_cmp);
            }
            cells.extend(of_size);
        }
        Ok(cells)
    }

    /// A file that is on the disk and in the cache, of bytes that no file system makes less of.
    fn source(&self, size_bytes: u64) -> Result<OwnedFd> {
        let file = nameless(&self.directory)?;
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

    fn round(&self, source: &OwnedFd, cell: &mut Cell) -> Result<()> {
        if self.cold {
            // Advice; what has been flushed goes.
            let _ = fs::fadvise(source, 0, None, Advice::DontNeed);
        }
        let start = (Moment::now(), Instant::now());
        let target = nameless(&self.target)?;
        let ends = Ends::new((source, &self.directory), (&target, &self.target))?;
        let meter = Meter::default();
        let facts = Facts::of(&ends, 0);
        let drive = Drive {
            ends: &ends,
            facts: &facts,
            wish: &Wish { engine: Some(cell.engine), ..Wish::default() },
            tuning: &Tuning::default(),
            meter: &meter,
            kept: &Kept::default(),
            reserve: &|_| Ok(()),
        };
        let (_, moved) = drive.run(&mut Work::new([Span::new(0, cell.size_bytes)]));
        match moved {
            Ok(()) => {}
            Err(Error::Refused { why, .. }) => {
                cell.refused = Some(why);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        if self.synced {
            fs::fsync(target.as_fd()).map_err(Error::io("flush", &self.target))?;
        }
        let usage = start.0.since();
        drop(target);
        cell.wall_s.push(start.1.elapsed().as_secs_f64());
        cell.processor_s.push(usage.processor_s());
        cell.calls = meter.calls();
        cell.switches = usage.voluntary_switches;
        Ok(())
    }
}

fn empty(engine: EngineKind, size_bytes: u64) -> Cell {
    Cell {
        engine,
        size_bytes,
        wall_s: Vec::new(),
        processor_s: Vec::new(),
        calls: 0,
        switches: 0,
        refused: None,
    }
}

/// A file without a name.
fn nameless(directory: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    fs::openat(fs::CWD, directory, flags, Mode::RUSR | Mode::WUSR)
        .map_err(Error::io("make a file without a name in", directory))
}
