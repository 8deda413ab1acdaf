//! Interface between the window and the rest of the viewer: pages, and a font for the window's own
//! text.
//!
//! The window does not depend on stores, networks or engines. It requests a page for a layout,
//! receives progress reports, shows the result, and reports when it is on the screen.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::geometry::Geometry;
use super::zoom;
use crate::paint::{Page, SharedBytes};
use crate::{Layout, ViewError};

/// Provides pages to the window. Called from worker threads, concurrently when one visit supersedes
/// another.
pub trait Browse: Send + Sync + 'static {
    /// Returns the page at `address` (typed text, or an absolute URL, with or without a fragment),
    /// laid out for `layout`. `reuse` limits the stored data that may be used.
    ///
    /// May take seconds. `progress` reports the stage to the window, and tells whether the visit
    /// was cancelled.
    ///
    /// # Errors
    /// An error is shown in place of the page.
    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        progress: &Progress,
    ) -> Result<Visit, ViewError>;

    /// Returns a font for the window's own text: the bytes of a file and the index of the font in
    /// it. Called at the start and after each visit until there is one. Without a font the window
    /// has no text.
    fn interface_font(&self) -> Option<(SharedBytes, u32)>;

    /// Called when the window was closed, on the thread that called [`run`](super::run). `window`
    /// has the window's last size, scale and zoom. A window opened with it requests its first page
    /// in the right layout. Does nothing by default.
    fn closed(&self, _window: &WindowOptions) {}
}

/// Stored data that a visit may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// All of it.
    #[default]
    Page,
    /// The page's resources. The page is laid out again, because its stored data was found damaged.
    Resources,
    /// No stored data, for a reload.
    Nothing,
}

/// Work to do once the page is on the screen, such as storing it. Runs on the visit's thread and
/// returns a message for the status line.
pub type AfterShown = Box<dyn FnOnce() -> Option<String> + Send>;

/// A page to show.
pub struct Visit {
    /// The page.
    pub page: Arc<Page>,
    /// Address after redirects, for the address bar and the history.
    pub url: String,
    /// True if the page came from the store.
    pub warm: bool,
    /// Text for the status line, such as "warm" or "cold: the style sheet x.css has changed". The
    /// window appends the duration.
    pub summary: String,
    /// Time until the page could be painted. The window adds the time to paint it.
    pub took: Duration,
    /// Work to do once the page is on the screen. Dropped if the page is never shown.
    pub after: Option<AfterShown>,
}

/// Stage of a visit.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Text for the status line, such as "fetching example.org" or "laying out".
    pub text: Cow<'static, str>,
    /// Fraction done, from 0 to 1, if known.
    pub done: Option<f32>,
}

impl Stage {
    /// Creates a stage without a known fraction.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Stage {
        Stage { text: text.into(), done: None }
    }
}

/// Reports the progress of a visit to the window, and receives its cancellation.
pub struct Progress {
    report: Box<dyn Fn(Stage) + Send + Sync>,
    cancelled: Arc<AtomicBool>,
}

impl Progress {
    /// Creates a handle that passes reports to `report`. The window sets `cancelled` to cancel the
    /// visit.
    pub fn new(
        report: impl Fn(Stage) + Send + Sync + 'static,
        cancelled: Arc<AtomicBool>,
    ) -> Progress {
        Progress { report: Box::new(report), cancelled }
    }

    /// Creates a handle that ignores reports.
    pub fn ignored() -> Progress {
        Progress::new(|_| (), Arc::default())
    }

    /// Reports the stage of the visit.
    pub fn report(&self, stage: Stage) {
        (self.report)(stage);
    }

    /// Returns true if the user stopped the visit, opened another page or closed the window. The
    /// visit's result is discarded then.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Maximum size of a window, in device pixels.
const SIDE_MAX: f64 = 16_384.0;

/// Options for opening the window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowOptions {
    /// Width of the whole window in CSS pixels.
    pub width: u32,
    /// Height of the whole window in CSS pixels.
    pub height: u32,
    /// Expected scale of the monitor. The first page is requested with it while the window is
    /// created. A wrong value costs a second visit.
    pub scale: f32,
    /// Zoom factor of pages; 1 is their normal size.
    pub zoom: f32,
    /// Address that the home button opens.
    pub home: String,
}

impl WindowOptions {
    /// Returns the layout of the first page: the window without its bars.
    pub fn page_layout(&self) -> Layout {
        self.geometry().layout(zoom::clamped(self.zoom))
    }

    /// Returns the positions of the window's parts at the expected scale.
    pub(super) fn geometry(&self) -> Geometry {
        let scale = f64::from(self.scale);
        let px = |css: u32| (f64::from(css) * scale).round().clamp(1.0, SIDE_MAX) as u32;
        Geometry::new(px(self.width), px(self.height), scale)
    }
}

impl Default for WindowOptions {
    fn default() -> WindowOptions {
        WindowOptions { width: 1024, height: 768, scale: 1.0, zoom: 1.0, home: String::new() }
    }
}
