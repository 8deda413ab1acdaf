//! State of the window: takes events and returns effects.
//!
//! Independent of the windowing system, clocks and threads, so that tests can drive all of it. The
//! parts of the window own their data and know nothing of each other: `visits`, `find_bar`,
//! `pointer`, `address_bar`. `keys`, `scroll` and `links` compute. This module connects them:
//! `input` performs commands and clicks, `navigation` changes the page.

mod input;
mod navigation;

use std::time::Duration;

use super::address_bar::TextField;
use super::browse::WindowOptions;
use super::event::{Cursor, Effect, Event, Timer};
use super::find_bar::FindBar;
use super::geometry::Geometry;
use super::keys::{self, Focus, Modifiers};
use super::pointer::Pointer;
use super::scroll::Scroll;
use super::text::{InterfaceFont, TextStyle};
use super::visits::{Content, Visits};
use super::{links, zoom};
use crate::Layout;

/// Size of the window's own text, in CSS pixels.
const TEXT_SIZE: f32 = 13.0;

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

pub(crate) struct State {
    pub geometry: Geometry,
    pub zoom: f32,
    pub visits: Visits,
    pub left: u32,
    pub top: u32,
    pub address: TextField,
    /// True if the user has edited the address since it was last set.
    pub edited: bool,
    pub focus: Focus,
    pub find: FindBar,
    /// Index of the link with the keyboard focus.
    pub ring: Option<usize>,
    pub pointer: Pointer,
    pub font: Option<InterfaceFont>,
    modifiers: Modifiers,
    message: String,
    cursor: Cursor,
    effects: Vec<Effect>,
    redraw: bool,
}

impl State {
    /// Creates the state of a new window, with the effects for its first page.
    pub(crate) fn new(options: &WindowOptions, start: &str) -> (State, Vec<Effect>) {
        let mut state = State {
            geometry: options.geometry(),
            zoom: zoom::clamped(options.zoom),
            visits: Visits::new(options.home.clone()),
            left: 0,
            top: 0,
            address: TextField::default(),
            edited: false,
            focus: Focus::Page,
            find: FindBar::default(),
            ring: None,
            pointer: Pointer::default(),
            font: None,
            modifiers: Modifiers::default(),
            message: String::new(),
            cursor: Cursor::Arrow,
            effects: Vec::new(),
            redraw: false,
        };
        let start = if start.is_empty() { options.home.as_str() } else { start };
        state.open(start);
        if state.visits.loading.is_none() {
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
            Event::Key { key, text } => {
                let command = keys::command(&key, text.as_deref(), self.modifiers, self.focus);
                command.into_iter().for_each(|command| self.perform(command));
            }
            Event::Modifiers(modifiers) => self.modifiers = modifiers,
            Event::PointerMoved(x, y) => self.pointer_moved(Some((x, y))),
            Event::PointerLeft => self.pointer_moved(None),
            Event::Pressed => self.pressed(),
            Event::Released => self.released(),
            Event::Wheel { x, y } => self.wheel(x, y),
            Event::Touched(x, y) => self.pointer.touched((x, y)),
            Event::TouchMoved(x, y) => self.touch_moved((x, y)),
            Event::TouchEnded => self.touch_ended(),
            Event::Travel(steps) => self.travel(steps),
            Event::Arrived { number, result } => self.arrived(number, result),
            Event::Progress { number, stage } => self.redraw |= self.visits.progress(number, stage),
            Event::Message { number, message } => self.show_message(number, message),
            Event::Font(font) => {
                self.font = Some(font);
                self.redraw();
            }
            Event::Pasted(text) => self.insert(&text),
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

    fn redraw(&mut self) {
        self.redraw = true;
    }

    fn set_cursor(&mut self, cursor: Cursor) {
        if std::mem::replace(&mut self.cursor, cursor) != cursor {
            self.effects.push(Effect::Cursor(cursor));
        }
    }

    /// Returns the layout for pages.
    pub(crate) fn layout(&self) -> Layout {
        self.geometry.layout(self.zoom)
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

    /// Returns the window's text style, enlarged by a factor.
    pub(crate) fn text_style(&self, larger: f32) -> TextStyle<'_> {
        let size = TEXT_SIZE * larger * self.geometry.scale as f32;
        TextStyle { font: self.font.as_ref(), size }
    }

    /// Returns the page in the window.
    pub(crate) fn scroll(&self) -> Scroll<'_> {
        let (geometry, block) = (&self.geometry, self.visits.block());
        Scroll { geometry, block, left: self.left, top: self.top }
    }

    fn scroll_to(&mut self, to: (u32, u32)) {
        let to = self.scroll().to(to);
        if (self.left, self.top) != to {
            (self.left, self.top) = to;
            self.redraw();
        }
    }

    fn scroll_by(&mut self, x: i64, y: i64) {
        self.scroll_to(self.scroll().by(x, y));
    }

    /// Returns the rectangles of the link with the keyboard focus.
    pub(crate) fn ring_rects(&self) -> Vec<kurbo::Rect> {
        match (self.visits.block(), self.ring) {
            (Some(block), Some(ring)) => links::rects(block, ring),
            _ => Vec::new(),
        }
    }

    fn ring_url(&self) -> Option<String> {
        let link = self.visits.block()?.links().nth(self.ring?)?;
        Some(link.url.to_string())
    }

    fn sized(&mut self, width: u32, height: u32, scale: f64, made: bool) {
        let before = self.layout();
        self.geometry = Geometry::new(width, height, scale);
        self.scroll_to((self.left, self.top));
        self.redraw();
        if self.layout() == before {
            return;
        }
        match made {
            true => self.relayout(),
            false => self.effects.push(Effect::Start(Timer::Resize)),
        }
    }

    pub(crate) fn status(&self) -> Status {
        let right = match (self.zoom * 100.0).round() {
            100.0 => String::new(),
            percent => format!("{percent} %"),
        };
        match (self.passing_status(), &self.visits.content) {
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
        let link = self.pointer.hover.clone().or_else(|| self.ring_url());
        let message = || Some(self.message.clone()).filter(|message| !message.is_empty());
        link.or_else(|| self.visits.loading_text()).or_else(message)
    }
}
