//! Takes a decoder's frames, one in each period, from a pipe that holds less than one frame. A
//! frame is in time only if it was decoded in time.
//!
//! This stands for a display and is not itself measured: its thread has a real-time priority above
//! the decoder's, if that is allowed, so that only the decoder can be late.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use evermap_lane::{Period, Quantiles};
use harness::Outcome;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// Decoder to run, and its rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The decoder, and its arguments.
    pub command: Vec<String>,
    pub frame_bytes: usize,
    pub fps: u32,
    /// Number of frames that count.
    pub frames: u64,
    /// Number of frames before those, while the decoder opens its film.
    pub first: u64,
}

/// Times of the frames.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// Frames that came after the end of their period, and periods that had passed completely.
    pub missed: u64,
    pub periods: u64,
    /// From the start of the period until its frame was read.
    pub completion: Quantiles,
    pub completions_ms: Vec<f64>,
}

const PIPE_BYTES: usize = 64 << 10;

pub fn watch(request: &Request) -> Outcome<Watched> {
    let (program, arguments) = request.command.split_first().ok_or("no decoder")?;
    let mut decoder = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut frames = decoder.stdout.take().ok_or("no pipe")?;
    rustix::pipe::fcntl_setpipe_size(&frames, PIPE_BYTES)?;
    real_time();
    let taken = take(&mut frames, request);
    drop(frames);
    let _ = decoder.wait();
    taken
}

fn take(frames: &mut impl Read, request: &Request) -> Outcome<Watched> {
    let period = Period::of_rate(u64::from(request.fps), 1).ok_or("no rate")?;
    let mut frame = vec![0; request.frame_bytes];
    for _ in 0..request.first {
        frames.read_exact(&mut frame)?;
    }
    let begin_ns = now_ns() + period.ns();
    let mut completions_ms = Vec::new();
    let (mut missed, mut at) = (0, 0);
    while at < request.frames {
        let due_ns = begin_ns + period.begin_ns(at);
        sleep_until(due_ns);
        frames.read_exact(&mut frame).map_err(|error| format!("frame {at}: {error}"))?;
        let there_ns = now_ns();
        completions_ms.push((there_ns - due_ns) as f64 / 1e6);
        if there_ns - due_ns > period.ns() {
            missed += 1;
        }
        // A period that has passed completely is missed; its frame is discarded, as a
        // player does.
        let next = period.at(there_ns - begin_ns).max(at + 1);
        for _ in at + 1..next.min(request.frames) {
            missed += 1;
            frames.read_exact(&mut frame)?;
        }
        at = next;
    }
    let completion = Quantiles::of(&completions_ms);
    Ok(Watched { missed, periods: request.frames, completion, completions_ms })
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn sleep_until(ns: u64) {
    let until =
        Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until).is_err() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Gives this thread a real-time priority. If that is not allowed, its own waiting is in the
/// figures.
fn real_time() {
    let priority = libc::sched_param { sched_priority: 60 };
    // SAFETY: only the calling thread's scheduling changes; the structure lives through the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &priority) };
}
