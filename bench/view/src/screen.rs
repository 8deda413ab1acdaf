//! A screen whose pixels lie in a file that this process maps: a program's window is watched without the program's
//! help and without asking the server for anything.
//!
//! The screen is Xvfb without a pointer and without a window manager. The pixels are compared with those seen last
//! about every two milliseconds, which takes a quarter of one of them; so a figure is late by up to that. A page is
//! displayed with the last change of pixels after which nothing changes for a second in which the program does next
//! to nothing: a program that computes for seconds before it draws its page is waited for. Five seconds without a
//! change are enough in any case: NetSurf never rests while a resource is not there.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use tempfile::TempDir;

use crate::Outcome;
use crate::environment::{self, go_on};
use crate::process::{Running, Usage};

const GAP: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_secs(1);
const REST_BUSY: Duration = Duration::from_secs(5);
/// How long a window may go on changing.
const LIMIT: Duration = Duration::from_secs(60);
/// Processor time in [`REST`] that a program at rest may take: it may blink.
const REST_CPU: Duration = Duration::from_millis(50);
/// How long after a change the processor time is asked for, from which rest is judged.
const SETTLED: Duration = Duration::from_millis(20);
/// Where the framebuffer is kept: no disk may write it back.
const MEMORY: &str = "/dev/shm";

pub struct Screen {
    server: Option<Running>,
    display: String,
    pixels: MmapRaw,
    seen: Vec<u8>,
    size: (u32, u32),
    _folder: TempDir,
}

/// What was seen of a program.
pub struct Shown {
    /// From before its start to the last change.
    pub displayed: Duration,
    /// From before its start to the first.
    pub first: Duration,
    pub usage: Usage,
}

impl Screen {
    pub fn start(width: u32, height: u32) -> Outcome<Screen> {
        let folder = match Path::new(MEMORY).is_dir() {
            true => tempfile::tempdir_in(MEMORY)?,
            false => tempfile::tempdir()?,
        };
        let (reader, writer) = std::io::pipe()?;
        // Of what is open here, the server gets this alone.
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())?;
        let mut command = Command::new("Xvfb");
        command.args(["-screen", "0", &format!("{width}x{height}x24"), "-nolisten", "tcp"]);
        command.args(["-noreset", "-nocursor", "-displayfd", &writer.as_raw_fd().to_string()]);
        // Not stopped by the terminal before its clients are.
        command.arg("-fbdir").arg(folder.path()).stdin(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec, one system call is made and nothing else.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::TERM);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let server = Running::start(command)?;
        drop(writer);
        let display = format!(":{}", number(reader)?);
        let file = File::open(folder.path().join("Xvfb_screen0"))?;
        let pixels = map(&file, (width, height))?;
        let seen = vec![0; pixels.len()];
        let size = (width, height);
        Ok(Screen { server: Some(server), display, pixels, seen, size, _folder: folder })
    }

    /// Starts a program, waits until its page is displayed, and ends it.
    pub fn show(&mut self, mut command: Command, leave_strays: bool) -> Outcome<Shown> {
        self.wait_for_rest()?;
        command.env("DISPLAY", &self.display);
        let mut running = Running::start(command)?;
        let (mut first, mut last) = (None, None);
        let mut mark = (running.start, None);
        loop {
            if running.ends_within(GAP)? {
                return Err(running.failure("ended before its page was displayed"));
            }
            go_on()?;
            let now = Instant::now();
            if self.changed() {
                first = first.or(Some(now));
                last = Some(now);
                mark = (now, None);
            } else if now - mark.0 >= REST {
                let cpu = running.cpu();
                let idle = mark.1.is_some_and(|before| cpu.saturating_sub(before) < REST_CPU);
                mark = (now, Some(cpu));
                let still = last.map(|last| now - last);
                if still.is_some_and(|still| idle || still >= REST_BUSY) {
                    break;
                }
            } else if mark.1.is_none() && now - mark.0 > SETTLED {
                // Not at each change: asking for it takes longer than a look at the pixels.
                mark.1 = Some(running.cpu());
            }
            if now - running.start > LIMIT {
                return Err(running.failure("does not come to rest"));
            }
        }
        let start = running.start;
        let since = |time: Option<Instant>| time.map_or(Duration::MAX, |time| time - start);
        let (displayed, first) = (since(last), since(first));
        Ok(Shown { displayed, first, usage: running.stop(leave_strays)? })
    }

    /// Writes what was seen last, which is what the last program showed, as a portable pixmap (`.ppm`).
    pub fn keep_picture(&self, to: &Path) -> Outcome {
        let mut picture = format!("P6 {} {} 255\n", self.size.0, self.size.1).into_bytes();
        // In memory: blue, green, red, nothing.
        picture.extend(self.seen.chunks_exact(4).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]));
        Ok(std::fs::write(to, picture)?)
    }

    /// What the last program left is taken away first.
    fn wait_for_rest(&mut self) -> Outcome {
        let start = Instant::now();
        let mut still = start;
        while still.elapsed() < Duration::from_millis(150) {
            std::thread::sleep(Duration::from_millis(10));
            go_on()?;
            if self.changed() {
                still = Instant::now();
            }
            if start.elapsed() > LIMIT {
                return Err("the screen does not come to rest".into());
            }
        }
        Ok(())
    }

    /// Whether pixels are others than when this was asked last.
    fn changed(&mut self) -> bool {
        let length = self.seen.len();
        let (now, seen) = (self.pixels.as_ptr(), self.seen.as_mut_ptr());
        // SAFETY: both ranges are mapped and `length` bytes long, and `seen` is this value's own. The server may write
        // the pixels meanwhile: any bytes that come of it are valid, and what is torn differs the next time.
        unsafe {
            if libc::memcmp(now.cast(), seen.cast(), length) == 0 {
                return false;
            }
            libc::memcpy(seen.cast(), now.cast(), length);
        }
        true
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        // Asked, so that it takes its lock and its socket away.
        if let Err(error) = server.stop(true) {
            eprintln!("Xvfb is left behind: {error}");
        }
    }
}

/// The number of the display, which the server writes when it is ready.
fn number(mut reader: impl Read) -> Outcome<u32> {
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    text.trim().parse().map_err(|_| "Xvfb does not start".into())
}

/// The pixels of a framebuffer file, which is a window dump: a head, a table of colours, rows of pixels.
fn map(file: &File, (width, height): (u32, u32)) -> Outcome<MmapRaw> {
    let mut head = [0; 100];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut head, 0)?;
    let fields: Vec<u32> = head
        .chunks_exact(4)
        .map(|field| u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
        .collect();
    let (head_bytes, version) = (fields[0], fields[1]);
    let (row_bytes, colours) = (fields[12], fields[19]);
    if (version, fields[4], fields[5], row_bytes) != (7, width, height, width * 4) {
        return Err(format!("the framebuffer is not {width} x {height} pixels of 4 bytes").into());
    }
    let offset = u64::from(head_bytes) + 12 * u64::from(colours);
    let length = (row_bytes * height) as usize;
    if file.metadata()?.len() < offset + length as u64 {
        return Err("the framebuffer is shorter than it says".into());
    }
    Ok(MmapOptions::new().offset(offset).len(length).map_raw_read_only(file)?)
}

/// Whether there can be a screen; else the package that is missing.
pub fn missing() -> Option<&'static str> {
    environment::find_program("Xvfb").is_none().then_some("xvfb")
}
