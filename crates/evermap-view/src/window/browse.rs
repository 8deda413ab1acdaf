//! What the window asks of the rest of the viewer: pages, and a font for its own text.
//!
//! The window knows neither stores nor networks nor engines. It asks for a page of a given layout, is told how far that
//! is, shows what comes, and says when it is on the screen.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::state::State;
use crate::paint::{Page, SharedBytes};
use crate::{Layout, ViewError};

/// Gives the window its pages. Called from threads of their own, several at a time when one visit supersedes another.
pub trait Browse: Send + Sync + 'static {
    /// The page at `address` (what a user types, or an absolute URL, with or without a fragment), laid out for `layout`.
    /// `reuse` says what of what is kept may be used.
    ///
    /// May take seconds. `waiting` tells the window how far it is, and whether anybody still waits for it.
    ///
    /// # Errors
    /// They are shown in place of the page.
    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        waiting: &Waiting,
    ) -> Result<Visit, ViewError>;

    /// A font for the window's own text: a file's bytes, and the index of the font in them. Asked for at the start and after
    /// each visit until there is one; without it the window has no text.
    fn interface_font(&self) -> Option<(SharedBytes, u32)>;

    /// The window was closed, and had this size, scale and zoom: opened with the same, the next one asks for its first page
    /// as it needs it. On the thread that [`run`](super::run) was called from. Does nothing unless it is implemented.
    fn closed(&self, _window: &WindowOptions) {}
}

/// How much of what is kept a visit may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// All of it.
    #[default]
    Page,
    /// The page's resources: it is laid out anew, because what is kept of it was found damaged.
    Resources,
    /// Nothing: a reload.
    Nothing,
}

/// What runs once the page is on the screen (keeping it, say), on the thread of the visit; gives a message for the status line.
pub type Afterwards = Box<dyn FnOnce() -> Option<String> + Send>;

/// A page to be shown.
pub struct Visit {
    /// The page.
    pub page: Arc<Page>,
    /// Where it came from in the end, for the address bar and the history.
    pub url: String,
    /// Whether it had been kept.
    pub warm: bool,
    /// For the status line: "warm", or "cold: the style sheet x.css has changed". What it took is said behind it.
    pub summary: String,
    /// What it took until the page could be painted; the window adds what its painting takes.
    pub took: Duration,
    /// What is to be done once the page is on the screen. Not done if the page is never shown.
    pub after: Option<Afterwards>,
}

/// How far a visit is.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// For the status line: "fetching example.org", "laying out".
    pub text: Cow<'static, str>,
    /// How much is done, from 0 to 1, where that can be said.
    pub done: Option<f32>,
}

impl Stage {
    /// A stage that can't say how much is done.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Stage {
        Stage { text: text.into(), done: None }
    }
}

/// The window's end of a visit that is under way.
pub struct Waiting {
    report: Box<dyn Fn(Stage) + Send + Sync>,
    cancelled: Arc<AtomicBool>,
}

impl Waiting {
    /// Reports are handed to `report`; `cancelled` is set when nobody waits any longer.
    pub fn new(
        report: impl Fn(Stage) + Send + Sync + 'static,
        cancelled: Arc<AtomicBool>,
    ) -> Waiting {
        Waiting { report: Box::new(report), cancelled }
    }

    /// For a visit that nobody watches.
    pub fn alone() -> Waiting {
        Waiting::new(|_| (), Arc::default())
    }

    /// Shows how far the visit is.
    pub fn progress(&self, stage: Stage) {
        (self.report)(stage);
    }

    /// Whether the user stopped the visit, went elsewhere or closed the window: what is returned then is thrown away.
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// How the window opens.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowOptions {
    /// Width of the whole window in CSS pixels.
    pub width: u32,
    /// Height of the whole window in CSS pixels.
    pub height: u32,
    /// The monitor's scale, as far as it is known. The first page is asked for with it while the window is being made: a
    /// wrong guess costs a second visit.
    pub scale: f32,
    /// Pages are shown this much larger than their author meant: 1 is not at all.
    pub zoom: f32,
    /// Where the home button leads.
    pub home: String,
}

impl WindowOptions {
    /// What the first page is laid out for: what the window's bars leave of it.
    pub fn page_layout(&self) -> Layout {
        State::new(self, "").0.layout()
    }
}

impl Default for WindowOptions {
    fn default() -> WindowOptions {
        WindowOptions { width: 1024, height: 768, scale: 1.0, zoom: 1.0, home: String::new() }
    }
}
