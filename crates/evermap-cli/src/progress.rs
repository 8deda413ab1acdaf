//! A progress bar for long operations.
//!
//! It appears on stderr after a second, and only on a terminal. A separate thread draws it, so that
//! a parser that does not report its position still shows activity.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Delay before the progress bar appears.
const START_DELAY: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);
/// Smaller sources are parsed long before the delay ends, so no thread is started for them.
const SOURCE_BYTES_MIN: u64 = 4 << 20;

/// A bar for one document or file. Dropping it clears the bar.
pub struct Progress {
    position_bytes: Arc<AtomicU64>,
    drawer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Makes a bar whose position is set with [`at`](Progress::at). `doing` names the operation.
    pub fn of(name: &str, doing: &'static str, source_bytes: u64) -> Progress {
        let position_bytes = Arc::new(AtomicU64::new(0));
        let position = Arc::clone(&position_bytes);
        let mut drawn = Progress::following(name, doing, source_bytes, move || {
            position.load(Ordering::Relaxed)
        });
        drawn.position_bytes = position_bytes;
        drawn
    }

    /// Makes a bar that calls `position` for the number of bytes done.
    pub fn following(
        name: &str,
        doing: &'static str,
        source_bytes: u64,
        position: impl Fn() -> u64 + Send + 'static,
    ) -> Progress {
        let wanted = source_bytes >= SOURCE_BYTES_MIN && std::io::stderr().is_terminal();
        let start = || {
            let (stop, stopped) = channel();
            let name = name.to_string();
            let thread = std::thread::Builder::new().spawn(move || {
                let wait = |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
                if wait(START_DELAY) {
                    draw(&name, doing, source_bytes, &position, wait);
                }
            });
            Some((stop, thread.ok()?))
        };
        // Best effort: if the thread cannot start, no bar is shown.
        let drawer = if wanted { start() } else { None };
        Progress { position_bytes: Arc::default(), drawer }
    }

    /// Sets the number of bytes done.
    pub fn at(&self, position_bytes: u64) {
        self.position_bytes.store(position_bytes, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawer.take() {
            drop(stop);
            // Best effort: a panic of the drawing thread is ignored.
            let _ = thread.join();
        }
    }
}

/// A bar for a tool of the library, which reports the total size in its first callback.
pub struct ToolProgress {
    name: String,
    doing: &'static str,
    bar: Arc<Mutex<Option<Progress>>>,
}

impl ToolProgress {
    pub fn new(directory: &Path, doing: &'static str) -> ToolProgress {
        let name = directory.display().to_string();
        ToolProgress { name, doing, bar: Arc::default() }
    }

    /// Returns the callback for the tool: bytes done, total bytes.
    pub fn callback(&self) -> impl Fn(u64, u64) + Send + Sync + 'static {
        let (name, doing, bar) = (self.name.clone(), self.doing, Arc::clone(&self.bar));
        move |done_bytes, total_bytes| {
            let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
            bar.get_or_insert_with(|| Progress::of(&name, doing, total_bytes)).at(done_bytes);
        }
    }
}

impl Drop for ToolProgress {
    fn drop(&mut self) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Draws the bar until `wait` returns false.
fn draw(
    name: &str,
    doing: &str,
    total: u64,
    position: &dyn Fn() -> u64,
    wait: impl Fn(Duration) -> bool,
) {
    let bar = ProgressBar::new(total).with_message(name.to_string());
    let styled = |template: &str| ProgressStyle::with_template(template);
    let unknown =
        styled(&format!("{{spinner}} {{msg}}: {doing} {{decimal_total_bytes}} ({{elapsed}})"));
    let known = styled("{msg}: {bar:30} {decimal_bytes} of {decimal_total_bytes}, {eta} left");
    let (Ok(unknown), Ok(known)) = (unknown, known) else {
        return;
    };
    loop {
        let now = position();
        let style = match now == 0 || now >= total {
            true => &unknown,
            false => &known,
        };
        bar.set_style(style.clone());
        bar.set_position(now);
        bar.tick();
        if !wait(REDRAW) {
            bar.finish_and_clear();
            return;
        }
    }
}
