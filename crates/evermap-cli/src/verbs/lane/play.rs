//! `evermap lane play`.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use clap::ValueEnum;
use evermap_lane::bench::clip::{FRAME_BYTES, is_frame};
use evermap_lane::bench::{Clip, Play as Playing, Played, Preset, play_until};
use evermap_lane::{Error, IoMode, Policy, Rate, Scheduler, Share};

use crate::failure::Failure;
use crate::output::Output;
use crate::result_file;

/// Play a clip and count missed deadlines
///
/// Behaves like a program with deadlines: each period it reads a frame, decodes for some processor
/// time, and sleeps. Without `--clip` it plays a temporary unnamed clip. Frames of clips made by
/// `evermap lane play` are verified. Settings that need a missing right are reported and are no
/// failure. Ctrl-C ends it with a report so far.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap lane play --fps 60 --io nowait --seconds 10
  evermap lane play --policy player.toml --clip film.clip --json")]
pub struct Play {
    /// Policy file; command-line options override it
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Frames a second, as 24, 23.976 or 24000/1001 [default: the policy's, else 24]
    #[arg(long, value_name = "RATE")]
    fps: Option<String>,
    /// Number of periods to play
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds")]
    frames: Option<u64>,
    /// Seconds to play; 10 unless --frames is given
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Play FILE repeatedly, in frames of --frame-bytes
    #[arg(long, value_name = "FILE")]
    clip: Option<PathBuf>,
    /// Make a clip of this name, and play nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["clip", "policy", "json", "svg"])]
    make: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "make")]
    force: bool,
    /// Directory of the temporary clip, on the disk to read from
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Bytes of each frame [default: 128 KiB, or 16 KiB at 1,000 frames a second]
    #[arg(long, value_name = "BYTES")]
    frame_bytes: Option<usize>,
    /// Processor time of each frame [default: 10.5 ms, 4 ms, 0.25 ms at 24, 60, 1,000 frames a
    /// second; else a quarter of the period]
    #[arg(long, value_name = "MICROSECONDS")]
    decode_us: Option<u64>,
    /// I/O mode
    #[arg(long, value_name = "MODE")]
    io: Option<Mode>,
    /// Run as an ordinary program, without a lane
    #[arg(long)]
    no_lane: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Draw the completion of each period to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Map,
    Nowait,
    Uring,
    Blocking,
}

impl Play {
    pub fn run(&self) -> Result<(), Failure> {
        let policy = self.policy()?;
        let period = policy.period().map_err(Failure::Usage)?.ok_or(Error::NoPeriod)?;
        let rate_hz = period.rate_hz();
        let preset = Preset::of_rate(rate_hz.round() as u32);
        let seconds = self.seconds.unwrap_or(10.0);
        if !(seconds > 0.0 && seconds <= 1e6) {
            return Err(Failure::Usage(format!(
                "`--seconds {seconds}`: use more than 0 and at most a million"
            )));
        }
        let periods = self.frames.unwrap_or((seconds * rate_hz).ceil() as u64).max(1);
        let frame_bytes = self.frame_bytes.unwrap_or(preset.frame_bytes);
        let clip = Clip { frames: periods, frame_bytes };
        if let Some(path) = &self.make {
            return match path.symlink_metadata() {
                Ok(_) if !self.force => Err(Failure::FileExists { path: path.clone() }),
                _ => Ok(clip.make(path)?),
            };
        }
        result_file::check_writable(self.svg.as_deref())?;
        // The unnamed clip exists while it is open.
        let own = match &self.clip {
            Some(_) => None,
            None => Some(own_clip(clip, &self.dir)?),
        };
        let path = match (&self.clip, &own) {
            (Some(path), _) => path.clone(),
            (None, own) => own_path(own.as_ref()),
        };
        let is_verified = own.is_some() || has_number(&path, frame_bytes);
        let playing = Playing {
            clip: path,
            frame_bytes,
            periods,
            decode_us: self.decode_us.unwrap_or(preset.decode_us),
            is_verified,
            is_direct: false,
        };
        // Ctrl-C ends the player with the result so far.
        let stop = evermap_transfer::cancelled_by_signals();
        let played = play_until(&policy, &playing, None, &stop)?;
        // Prints the results even if the chart cannot be drawn.
        let printed = self.print(&played);
        self.draw(&played)?;
        printed
    }

    fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = match &self.policy {
            Some(path) => Policy::read(path)?,
            None => Policy::default(),
        };
        let has_none = policy.app.fps.is_none() && policy.app.period_us.is_none();
        if let Some(fps) = self.fps.clone().or(has_none.then(|| "24".to_string())) {
            (policy.app.fps, policy.app.period_us) = (Some(Rate::Text(fps)), None);
        }
        if let Some(mode) = self.io {
            policy.io.mode = match mode {
                Mode::Map => IoMode::Map,
                Mode::Nowait => IoMode::Nowait,
                Mode::Uring => IoMode::Uring,
                Mode::Blocking => IoMode::Blocking,
            };
        }
        if self.no_lane {
            policy.app.share = Share::Off;
            policy.app.scheduler = Scheduler::Other;
            policy.io.lock_memory = Some(false);
        }
        policy.verify().map_err(Failure::Usage)?;
        Ok(policy)
    }

    fn draw(&self, played: &Played) -> Result<(), Failure> {
        let Some(path) = &self.svg else { return Ok(()) };
        let svg = played
            .report
            .svg("Completion of each period")
            .map_err(|error| Failure::Usage(error.to_string()))?;
        result_file::write(path, svg)
    }

    fn print(&self, played: &Played) -> Result<(), Failure> {
        let report = &played.report;
        let mut output = Output::beside(self.svg.as_deref());
        match self.json {
            true => output.json(report)?,
            false => output.line(report.to_string().trim_end())?,
        }
        output.finish()?;
        match played.damaged {
            0 => Ok(()),
            count => Err(Failure::DamageFound(format!("{count} frames had wrong contents"))),
        }
    }
}

/// Returns true if the file begins with frame 0 of a clip. The player reports unreadable files.
fn has_number(path: &std::path::Path, frame_bytes: usize) -> bool {
    let mut first = vec![0; frame_bytes.min(*FRAME_BYTES.end())];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && is_frame(&first, 0)
}

/// Makes a temporary clip, as long as necessary and at most 256 MiB.
fn own_clip(clip: Clip, dir: &std::path::Path) -> Result<fs::File, Failure> {
    let frames_max = ((256 << 20) / clip.frame_bytes.max(1) as u64).max(1);
    Ok(Clip { frames: clip.frames.min(frames_max), ..clip }.unnamed(dir)?)
}

fn own_path(file: Option<&fs::File>) -> PathBuf {
    let number = file.map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
    format!("/proc/self/fd/{number}").into()
}
