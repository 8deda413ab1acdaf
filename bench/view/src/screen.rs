//! Screen whose pixels are in a mapped file, so that a program's window can be watched without help
//! from the program and without requests to the server.
//!
//! The screen is Xvfb without a pointer and without a window manager. About every two milliseconds
//! the pixels are compared with the previous ones, which takes a quarter of that time; a figure is
//! late by up to two milliseconds. A page counts as displayed at the last change of pixels that is
//! followed by a second without changes in which the program is almost idle: if a program computes
//! for seconds before it draws its page, the measurement waits. Five seconds without a change are
//! enough in any case, because NetSurf never becomes idle while a resource is missing.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use tempfile::TempDir;

use harness::Outcome;
use harness::ends::check_interrupted;
use harness::process::Cost;
use harness::running::Running;

const GAP: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_secs(1);
const REST_BUSY: Duration = Duration::from_secs(5);
/// Longest time in which a window may keep changing.
const LIMIT: Duration = Duration::from_secs(60);
/// Processor time in [`REST`] that an idle program may use, for example to blink.
const REST_CPU: Duration = Duration::from_millis(50);
/// Delay after a change before the processor time is read.
const SETTLED: Duration = Duration::from_millis(20);
/// Folder of the framebuffer, in memory, so that the kernel never writes it to a disk.
const MEMORY: &str = "/dev/shm";

pub struct Screen {
    server: Option<Running>,
    display: String,
    pixels: MmapRaw,
    seen: Vec<u8>,
    size: (u32, u32),
    _folder: TempDir,
}

/// Observation of a program's window.
pub struct Shown {
    /// From before the start to the last change.
    pub displayed: Duration,
    /// From before the start to the first change.
    pub first: Duration,
    pub cost: Cost,
}

impl Screen {
    pub fn start(width: u32, height: u32) -> Outcome<Screen> {
        let folder = match Path::new(MEMORY).is_dir() {
            true => tempfile::tempdir_in(MEMORY)?,
            false => tempfile::tempdir()?,
        };
        let (reader, writer) = std::io::pipe()?;
        // The server inherits only this descriptor.
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())?;
        let mut command = Command::new("Xvfb");
        command.args(["-screen", "0", &format!("{width}x{height}x24"), "-nolisten", "tcp"]);
        command.args(["-noreset", "-nocursor", "-displayfd", &writer.as_raw_fd().to_string()]);
        // A signal of the terminal must not stop the server before its clients.
        command.arg("-fbdir").arg(folder.path()).stdin(Stdio::null()).process_group(0);
        // SAFETY: the closure makes one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::TERM);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let server = Running::start_family(command)?;
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
        let mut running = Running::start_family(command)?;
        let (mut first, mut last) = (None, None);
        let mut mark = (running.start, None);
        loop {
            if running.ends_within(GAP)? {
                return Err(running.failure("ended before its page was displayed"));
            }
            check_interrupted()?;
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
                // Not at each change: reading it takes longer than comparing the pixels.
                mark.1 = Some(running.cpu());
            }
            if now - running.start > LIMIT {
                return Err(running.failure("does not come to rest"));
            }
        }
        let start = running.start;
        let since = |time: Option<Instant>| time.map_or(Duration::MAX, |time| time - start);
        let (displayed, first) = (since(last), since(first));
        Ok(Shown { displayed, first, cost: running.stop(leave_strays)? })
    }

    /// Writes the last pixels, which the last program showed, as a portable pixmap (`.ppm`).
    pub fn keep_picture(&self, to: &Path) -> Outcome {
        let mut picture = format!("P6 {} {} 255\n", self.size.0, self.size.1).into_bytes();
        // Bytes in memory: blue, green, red, unused.
        picture.extend(self.seen.chunks_exact(4).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]));
        Ok(std::fs::write(to, picture)?)
    }

    /// Waits until the last program's window has disappeared.
    fn wait_for_rest(&mut self) -> Outcome {
        let start = Instant::now();
        let mut still = start;
        while still.elapsed() < Duration::from_millis(150) {
            std::thread::sleep(Duration::from_millis(10));
            check_interrupted()?;
            if self.changed() {
                still = Instant::now();
            }
            if start.elapsed() > LIMIT {
                return Err("the screen does not come to rest".into());
            }
        }
        Ok(())
    }

    /// Returns true if the pixels have changed since the last call.
    fn changed(&mut self) -> bool {
        let length = self.seen.len();
        let (now, seen) = (self.pixels.as_ptr(), self.seen.as_mut_ptr());
        // SAFETY: both ranges are mapped and `length` bytes long, and only this value uses `seen`.
        // The server may write the pixels during the call: all bytes are valid pixels, and a torn
        // copy differs at the next call.
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
        // SIGTERM lets the server remove its lock and its socket.
        if let Err(error) = server.stop(true) {
            eprintln!("cannot end Xvfb: {error}");
        }
    }
}

/// Reads the number of the display, which the server writes when it is ready.
fn number(mut reader: impl Read) -> Outcome<u32> {
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    text.trim().parse().map_err(|_| "Xvfb failed to start".into())
}

/// Maps the pixels of a framebuffer file, which is a window dump: a head, a table of colours, rows
/// of pixels.
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
        return Err("the framebuffer file is too short for its header".into());
    }
    Ok(MmapOptions::new().offset(offset).len(length).map_raw_read_only(file)?)
}

/// Returns the package to install if Xvfb is missing.
pub fn missing() -> Option<&'static str> {
    harness::process::find_program("Xvfb").is_none().then_some("xvfb")
}
