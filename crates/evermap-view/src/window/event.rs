//! Events that the window handles, and the effects that it performs in response.

use std::sync::Arc;
use std::time::Duration;

use super::browse::{Reuse, Stage};
use super::keys::{Key, Modifiers};
use super::text::InterfaceFont;
use crate::paint::Page;
use crate::{Layout, ViewError};

/// Events that the window handles.
pub(crate) enum Event {
    /// The window was created (`made`) or resized: its size in device pixels, and device pixels per
    /// CSS pixel.
    Sized {
        width: u32,
        height: u32,
        scale: f64,
        made: bool,
    },
    Key {
        key: Key,
        text: Option<String>,
    },
    Modifiers(Modifiers),
    PointerMoved(f64, f64),
    PointerLeft,
    Pressed,
    Released,
    /// Distance in device pixels.
    Wheel {
        x: f64,
        y: f64,
    },
    Touched(f64, f64),
    TouchMoved(f64, f64),
    TouchEnded,
    /// Back (-1) or forward (1), from a mouse button.
    Travel(isize),
    Arrived {
        number: u64,
        result: Result<Arrival, ViewError>,
    },
    Progress {
        number: u64,
        stage: Stage,
    },
    /// Message of work that was done after a page was shown.
    Message {
        number: u64,
        message: String,
    },
    Font(InterfaceFont),
    Pasted(String),
    TimeUp(Timer),
    /// The page can't be painted.
    Unpaintable(ViewError),
    /// The display is open. Does not change the state.
    Opened,
    Close,
}

/// A page returned by a visit.
pub(crate) struct Arrival {
    pub page: Arc<Page>,
    pub url: String,
    pub warm: bool,
    pub summary: String,
    pub took: Duration,
}

/// Actions in response to an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Visit {
        number: u64,
        address: String,
        layout: Layout,
        reuse: Reuse,
    },
    /// Cancel a visit.
    Cancel(u64),
    /// Run the visit's remaining work once the next frame is on the screen.
    Shown(u64),
    Redraw,
    Cursor(Cursor),
    Title(String),
    /// Start a timer, or restart it.
    Start(Timer),
    Copy(String),
    Paste,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The window's size has not changed for a while.
    Resize,
    /// A visit is still in progress.
    Loading,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cursor {
    #[default]
    Arrow,
    Hand,
    Text,
}
