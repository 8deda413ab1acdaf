//! Tests of the window's state without a window: a simulated user presses keys and waits for pages.
#![allow(clippy::unwrap_used)]

mod frames;
mod using;
mod visiting;

use super::browse::{Reuse, Stage, WindowOptions};
use super::event::{Arrival, Cursor, Effect, Event, Timer};
use super::fake;
use super::frame::Frame;
use super::geometry::{Button, Rectangle};
use super::keys::{Focus, Key, Modifiers};
use super::state::State;
use super::visits::Content;
use crate::Layout;
use crate::ViewError;

const NONE: Modifiers = Modifiers { shift: false, control: false, alt: false };
const SHIFT: Modifiers = Modifiers { shift: true, ..NONE };
const CONTROL: Modifiers = Modifiers { control: true, ..NONE };
const ALT: Modifiers = Modifiers { alt: true, ..NONE };

/// A simulated user. [`User::answer`] answers a visit.
struct User {
    state: State,
    visits: Vec<(u64, String, Layout, Reuse)>,
    effects: Vec<Effect>,
}

impl User {
    fn starting_at(url: &str) -> User {
        let options = WindowOptions {
            width: 1014,
            height: 664,
            home: "http://a/home".to_string(),
            ..Default::default()
        };
        let (state, effects) = State::new(&options, url);
        let mut user = User { state, visits: Vec::new(), effects: Vec::new() };
        user.note(effects);
        user
    }

    /// Starts at a page of 100 lines, 30 pixels each, in an area of 1000 x 600 pixels.
    fn at(url: &str) -> User {
        let mut user = User::starting_at(url);
        user.answer();
        user
    }

    fn note(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            if let Effect::Visit { number, address, layout, reuse } = effect {
                self.visits.push((*number, address.clone(), *layout, *reuse));
            }
        }
        self.effects = effects;
    }

    fn does(&mut self, event: Event) -> &[Effect] {
        let effects = self.state.handle(event);
        self.note(effects);
        &self.effects
    }

    /// Answers the last visit with its page.
    fn answer(&mut self) {
        let (number, address, layout, _) = self.visits.last().unwrap().clone();
        self.answer_to(number, &address, layout);
    }

    fn answer_to(&mut self, number: u64, address: &str, layout: Layout) {
        let url = address.split('#').next().unwrap().to_string();
        let page = fake::site(&url, layout);
        let summary = format!("visit {number}");
        let arrival =
            Arrival { page, url, warm: number > 1, summary, took: std::time::Duration::ZERO };
        self.does(Event::Arrived { number, result: Ok(arrival) });
    }

    fn fails(&mut self) {
        let (number, url, ..) = self.visits.last().unwrap().clone();
        let why = "no answer; try later".to_string();
        let result = Err(ViewError::Fetch { url, why });
        self.does(Event::Arrived { number, result });
    }

    fn key(&mut self, modifiers: Modifiers, key: Key) {
        self.does(Event::Modifiers(modifiers));
        let text = match &key {
            Key::Character(character) => Some(character.clone()),
            Key::Space => Some(" ".to_string()),
            Key::Enter => Some("\r".to_string()),
            Key::Backspace => Some("\u{8}".to_string()),
            _ => None,
        };
        self.does(Event::Key { key, text });
    }

    fn letter(&mut self, modifiers: Modifiers, letter: &str) {
        self.key(modifiers, Key::Character(letter.to_string()));
    }

    fn types(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                ' ' => self.key(NONE, Key::Space),
                _ => self.letter(NONE, &letter.to_string()),
            }
        }
    }

    fn goes(&mut self, address: &str) {
        self.letter(CONTROL, "l");
        self.types(address);
        self.key(NONE, Key::Enter);
        self.answer();
    }

    fn points(&mut self, x: f64, y: f64) {
        self.does(Event::PointerMoved(x, y));
    }

    fn clicks(&mut self, x: f64, y: f64) {
        self.points(x, y);
        self.does(Event::Pressed);
        self.does(Event::Released);
    }

    fn clicks_button(&mut self, button: Button) {
        let at = self.state.geometry.button(button);
        self.clicks(f64::from(at.left + 5), f64::from(at.top + 5));
    }

    /// Clicks a point of the page.
    fn clicks_page(&mut self, x: u32, y: u32) {
        let y = y - self.state.top + self.state.geometry.page.top;
        self.clicks(f64::from(x - self.state.left), f64::from(y));
    }

    fn status(&self) -> String {
        self.state.status().text
    }

    fn last_visit(&self) -> (&str, Reuse) {
        let (_, address, _, reuse) = self.visits.last().unwrap();
        (address, *reuse)
    }

    fn url(&self) -> &str {
        &self.state.visits.shown().unwrap().url
    }
}

fn sized(width: u32, height: u32, made: bool) -> Event {
    Event::Sized { width, height, scale: 1.0, made }
}
