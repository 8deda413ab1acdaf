//! Runs ffmpeg: makes a film, and decodes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::Outcome;
use harness::process::find_program;

/// Size of the film's picture, and bytes of a decoded frame (4:2:0).
pub const SIZE: (usize, usize) = (1_280, 720);
pub const FRAME_BYTES: usize = SIZE.0 * SIZE.1 * 3 / 2;
pub const FPS: u32 = 24;

pub fn find() -> Option<PathBuf> {
    find_program("ffmpeg")
}

/// Makes a film of this length, H.264 at 6 Mbit/s: a moving picture with noise, which keeps the
/// decoder busy.
pub fn film(program: &Path, seconds: u64, path: &Path) -> Outcome {
    let (width, height) = SIZE;
    let source = format!(
        "testsrc2=size={width}x{height}:rate={FPS}:duration={seconds},noise=alls=12:allf=t"
    );
    let status = Command::new(program)
        .args(["-loglevel", "error", "-y", "-f", "lavfi", "-i", &source])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-b:v", "6M", "-pix_fmt", "yuv420p"])
        .arg(path)
        .stdin(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("ffmpeg failed to make the film: {status}").into()),
    }
}

/// Returns the command line that decodes this many frames to standard output with one thread.
pub fn decoding(program: &Path, film: &Path, frames: u64) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    words.extend(["-loglevel", "error", "-nostdin", "-threads", "1", "-i"].map(String::from));
    words.push(film.display().to_string());
    words.extend(["-frames:v".to_string(), frames.to_string()]);
    words.extend(["-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1"].map(String::from));
    words
}
