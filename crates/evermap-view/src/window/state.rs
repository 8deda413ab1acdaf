//! State machine of the window: takes events and returns effects.
//!
//! Independent of the windowing system, clocks and threads, so that tests can drive all of it.
//! Other modules implement its parts: `visits` (which page), `keys`, `pointer`, `scroll`,
//! `find_bar`.

use std::sync::Arc;
use std::time::Duration;

use super::address_bar::TextField;
use super::browse::{Reuse, Stage, WindowOptions};
use super::find_bar::FindBar;
use super::geometry::{Button, Geometry};
use super::history::{History, ScrollPosition};
use super::keys::{Key, Modifiers};
use super::pointer::Grab;
use super::text::{InterfaceFont, Type};
use crate::Layout;
use crate::ViewError;
use crate::page::Block;
use crate::paint::Page;

/// Size of the window's own text, in CSS pixels.
const TEXT_SIZE: f32 = 13.0;
/// Maximum size of a window, in device pixels.
const SIDE_MAX: f64 = 16_384.0;
/// Zoom levels of Ctrl+plus and Ctrl+minus.
const ZOOMS: [f32; 17] =
    [0.25, 0.33, 0.5, 0.67, 0.75, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0];

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

/// Target of key presses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Page,
    Address,
    Find,
}

/// Content of the page's area.
pub(crate) enum Content {
    Nothing,
    Page(Shown),
    Failed(Failure),
}

pub(crate) struct Shown {
    pub page: Arc<Page>,
    /// Address, with its fragment.
    pub url: String,
    /// Layout that was requested.
    pub layout: Layout,
    pub warm: bool,
    pub summary: String,
    pub took: Duration,
    pub number: u64,
}

/// Content of the status line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    pub text: String,
    /// Duration of the visit without painting, if the text describes the visit.
    pub took: Option<Duration>,
    /// Text at the right end.
    pub right: String,
    /// True if the page came from the store. `None` unless the text describes the visit.
    pub warm: Option<bool>,
}

/// Description of a page that could not be shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub address: String,
    pub why: String,
    pub remedy: String,
}

/// A visit in progress.
pub(crate) struct Loading {
    pub number: u64,
    pub address: String,
    pub purpose: Purpose,
    pub layout: Layout,
    pub reuse: Reuse,
    pub stage: Option<Stage>,
    /// Number of timeouts of [`Timer::Loading`] since the start.
    pub ticks: u32,
}

/// Reason for a visit, which determines the changes of the history and of the scroll position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Purpose {
    Open,
    Travel(usize, ScrollPosition),
    Reload,
    /// Lay out the current page for another size or zoom.
    Relayout,
}

pub(crate) struct State {
    pub geometry: Geometry,
    pub zoom: f32,
    pub content: Content,
    pub loading: Option<Loading>,
    pub history: History,
    pub left: u32,
    pub top: u32,
    pub address: TextField,
    /// True if the user has edited the address since it was last set.
    pub edited: bool,
    pub focus: Focus,
    pub find: FindBar,
    /// Index of the link with the keyboard focus.
    pub ring: Option<usize>,
    pub pointer: Option<(f64, f64)>,
    /// Target of the link under the pointer.
    pub hover: Option<String>,
    /// Button under the pointer, and whether it is pressed.
    pub lit: Option<(Button, bool)>,
    pub pressed: Option<Grab>,
    /// Wheel movement that has not had an effect yet.
    pub turned: (f64, f64),
    pub modifiers: Modifiers,
    pub message: String,
    pub font: Option<InterfaceFont>,
    pub(super) home: String,
    pub(super) numbers: u64,
    cursor: Cursor,
    pub(super) effects: Vec<Effect>,
    redraw: bool,
}

impl State {
    /// Creates the state of a new window, with the effects for its first page.
    pub(crate) fn new(options: &WindowOptions, start: &str) -> (State, Vec<Effect>) {
        let scale = f64::from(options.scale);
        let px = |css: u32| (f64::from(css) * scale).round().clamp(1.0, SIDE_MAX) as u32;
        let mut state = State {
            geometry: Geometry::new(px(options.width), px(options.height), scale),
            zoom: options.zoom.clamp(ZOOMS[0], ZOOMS[ZOOMS.len() - 1]),
            content: Content::Nothing,
            loading: None,
            history: History::default(),
            left: 0,
            top: 0,
            address: TextField::default(),
            edited: false,
            focus: Focus::Page,
            find: FindBar::default(),
            ring: None,
            pointer: None,
            hover: None,
            lit: None,
            pressed: None,
            turned: (0.0, 0.0),
            modifiers: Modifiers::default(),
            message: String::new(),
            font: None,
            home: options.home.clone(),
            numbers: 0,
            cursor: Cursor::Arrow,
            effects: Vec::new(),
            redraw: false,
        };
        let start = if start.is_empty() { options.home.as_str() } else { start };
        state.open(start);
        if state.loading.is_none() {
            // Without a page, the user will type an address.
            state.focus = Focus::Address;
        }
        let effects = state.take_effects();
        (state, effects)
    }

    /// Handles an event. Returns the effects to perform.
    pub(crate) fn handle(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Sized { width, height, scale, made } => self.sized(width, height, scale, made),
            Event::Key { key, text } => self.key(key, text.as_deref()),
            Event::Modifiers(modifiers) => self.modifiers = modifiers,
            Event::PointerMoved(x, y) => self.pointer_moved(Some((x, y))),
            Event::PointerLeft => self.pointer_moved(None),
            Event::Pressed => self.pressed(),
            Event::Released => self.released(),
            Event::Wheel { x, y } => self.wheel(x, y),
            Event::Touched(x, y) => self.touched((x, y)),
            Event::TouchMoved(x, y) => self.touch_moved((x, y)),
            Event::TouchEnded => self.touch_ended(),
            Event::Travel(steps) => self.travel(steps),
            Event::Arrived { number, result } => self.arrived(number, result),
            Event::Progress { number, stage } => self.progress(number, stage),
            Event::Message { number, message } => self.show_message(number, message),
            Event::Font(font) => {
                self.font = Some(font);
                self.redraw();
            }
            Event::Pasted(text) => self.pasted(&text),
            Event::TimeUp(Timer::Resize) => self.relayout(),
            Event::TimeUp(Timer::Loading) => self.waited(),
            Event::Unpaintable(error) => self.unpaintable(&error),
            Event::Opened => (),
            Event::Close => self.effects.push(Effect::Exit),
        }
        self.take_effects()
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        self.update_hover();
        if std::mem::take(&mut self.redraw) {
            self.effects.push(Effect::Redraw);
        }
        std::mem::take(&mut self.effects)
    }

    pub(super) fn redraw(&mut self) {
        self.redraw = true;
    }

    pub(super) fn set_cursor(&mut self, cursor: Cursor) {
        if std::mem::replace(&mut self.cursor, cursor) != cursor {
            self.effects.push(Effect::Cursor(cursor));
        }
    }

    /// Returns the layout for pages.
    pub(crate) fn layout(&self) -> Layout {
        let page = self.geometry.page;
        Layout {
            width: page.width.max(1),
            height: page.height.max(1),
            scale: self.geometry.scale as f32 * self.zoom,
        }
    }

    /// Returns options that open a window with the same size, scale and zoom.
    pub(crate) fn as_options(&self, options: WindowOptions) -> WindowOptions {
        let css = |pixels: u32| (f64::from(pixels) / self.geometry.scale).round() as u32;
        let (width, height) = self.geometry.window;
        WindowOptions {
            width: css(width),
            height: css(height),
            scale: self.geometry.scale as f32,
            zoom: self.zoom,
            ..options
        }
    }

    pub(crate) fn shown(&self) -> Option<&Shown> {
        match &self.content {
            Content::Page(shown) => Some(shown),
            _ => None,
        }
    }

    pub(crate) fn block(&self) -> Option<Block<'_>> {
        self.shown().map(|shown| shown.page.block())
    }

    /// Returns the window's text style, enlarged by a factor.
    pub(crate) fn type_of(&self, larger: f32) -> Type<'_> {
        let size = TEXT_SIZE * larger * self.geometry.scale as f32;
        Type { font: self.font.as_ref(), size }
    }

    fn sized(&mut self, width: u32, height: u32, scale: f64, made: bool) {
        let before = self.layout();
        self.geometry = Geometry::new(width, height, scale);
        self.scroll_to(self.left, self.top);
        self.redraw();
        if self.layout() == before {
            return;
        }
        match made {
            true => self.relayout(),
            false => self.effects.push(Effect::Start(Timer::Resize)),
        }
    }

    pub(super) fn zoom_by(&mut self, steps: i32) {
        let zoom = self.zoom;
        let next = match steps {
            0 => Some(1.0),
            1.. => ZOOMS.into_iter().find(|step| *step > zoom + 0.001),
            _ => ZOOMS.into_iter().rev().find(|step| *step < zoom - 0.001),
        };
        if let Some(next) = next.filter(|next| *next != zoom) {
            self.zoom = next;
            self.redraw();
            self.relayout();
        }
    }

    pub(super) fn press_button(&mut self, button: Button) {
        match button {
            Button::Back => self.travel(-1),
            Button::Forward => self.travel(1),
            Button::Reload if self.loading.is_some() => self.stop(),
            Button::Reload => self.reload(false),
            Button::Home => self.go_home(),
            Button::FindPrevious => self.find_step(-1),
            Button::FindNext => self.find_step(1),
            Button::FindClose => self.close_find(),
        }
    }

    pub(crate) fn status(&self) -> Status {
        let right = match (self.zoom * 100.0).round() {
            100.0 => String::new(),
            percent => format!("{percent} %"),
        };
        match (self.passing_status(), &self.content) {
            (Some(text), _) => Status { text, right, ..Default::default() },
            (None, Content::Page(shown)) => Status {
                text: shown.summary.clone(),
                took: Some(shown.took),
                right,
                warm: Some(shown.warm),
            },
            (None, _) => Status { right, ..Default::default() },
        }
    }

    /// Returns a temporary text: a link's target, a stage of loading, or a message.
    fn passing_status(&self) -> Option<String> {
        if let Some(url) = self.hover.clone().or_else(|| self.ring_url()) {
            return Some(url);
        }
        // A fast visit is not announced.
        if let Some(loading) = self.loading.as_ref().filter(|loading| loading.ticks > 0) {
            let stage = loading.stage.as_ref().map(|stage| stage.text.to_string());
            return Some(stage.unwrap_or_else(|| format!("loading {}", loading.address)));
        }
        Some(self.message.clone()).filter(|message| !message.is_empty())
    }

    /// Returns the fraction of the loading page that is done, for the progress line; `None` if it
    /// is hidden.
    pub(crate) fn loaded_part(&self) -> Option<f64> {
        let loading = self.loading.as_ref().filter(|loading| loading.ticks > 0)?;
        // Without a known fraction, the line grows more and more slowly.
        let waited = 1.0 - 0.97_f64.powi(loading.ticks.min(1000) as i32);
        let fraction = loading.stage.as_ref().and_then(|stage| stage.done).unwrap_or(0.0);
        Some(f64::from(fraction).max(waited).clamp(0.02, 1.0))
    }
}
