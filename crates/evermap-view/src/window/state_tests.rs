//! The window without a window: what each event does.
#![allow(clippy::unwrap_used)]

use super::browse::{Layout, Stage, WindowOptions};
use super::fake;
use super::frame::Frame;
use super::geometry::{Button, Rectangle};
use super::keys::{Key, Modifiers};
use super::state::{Arrival, Content, Cursor, Effect, Event, Focus, State, Timer};
use crate::ViewError;

const NONE: Modifiers = Modifiers { shift: false, control: false, alt: false };
const SHIFT: Modifiers = Modifiers { shift: true, ..NONE };
const CONTROL: Modifiers = Modifiers { control: true, ..NONE };
const ALT: Modifiers = Modifiers { alt: true, ..NONE };

/// A user in front of the window. Visits are answered when [`User::answer`] says so.
struct User {
    state: State,
    visits: Vec<(u64, String, Layout, bool)>,
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

    /// At a page of 100 lines, 30 pixels each, in an area of 1000 x 600 pixels.
    fn at(url: &str) -> User {
        let mut user = User::starting_at(url);
        user.answer();
        user
    }

    fn note(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            if let Effect::Visit { number, address, layout, fresh } = effect {
                self.visits.push((*number, address.clone(), *layout, *fresh));
            }
        }
        self.effects = effects;
    }

    fn does(&mut self, event: Event) -> &[Effect] {
        let effects = self.state.handle(event);
        self.note(effects);
        &self.effects
    }

    /// The last visit gives its page.
    fn answer(&mut self) {
        let (number, address, layout, _) = self.visits.last().unwrap().clone();
        self.answer_to(number, &address, layout);
    }

    fn answer_to(&mut self, number: u64, address: &str, layout: Layout) {
        let url = address.split('#').next().unwrap().to_string();
        let page = fake::site(&url, layout);
        let arrival = Arrival { page, url, summary: format!("visit {number}") };
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

    /// A point of the page.
    fn clicks_page(&mut self, x: u32, y: u32) {
        let y = y - self.state.top + self.state.geometry.page.top;
        self.clicks(f64::from(x - self.state.left), f64::from(y));
    }

    fn last_visit(&self) -> (&str, bool) {
        let (_, address, _, fresh) = self.visits.last().unwrap();
        (address, *fresh)
    }

    fn url(&self) -> &str {
        &self.state.shown().unwrap().url
    }
}

#[test]
fn the_first_page_is_asked_for_at_once_and_shown_when_it_comes() {
    let mut user = User::starting_at("http://a/one");
    let layout = Layout { width: 1000, height: 600, scale: 1.0 };
    assert_eq!(user.visits, [(1, "http://a/one".to_string(), layout, false)]);
    assert!(matches!(user.state.content, Content::Nothing));
    user.answer();
    assert!(user.effects.contains(&Effect::Shown(1)) && user.effects.contains(&Effect::Redraw));
    assert!(user.effects.contains(&Effect::Title("one - Evermap".to_string())));
    assert_eq!(user.state.status().0, "visit 1");
}

#[test]
fn without_an_address_the_home_page_is_shown() {
    assert_eq!(User::starting_at("").last_visit(), ("http://a/home", false));
}

#[test]
fn keys_scroll_and_stop_at_both_ends() {
    let mut user = User::at("http://a/one");
    let steps = [
        (NONE, Key::Up, 0),
        (NONE, Key::Down, 40),
        (NONE, Key::Space, 600),
        (NONE, Key::PageDown, 1160),
        (SHIFT, Key::Space, 600),
        (NONE, Key::PageUp, 40),
        (NONE, Key::End, 2400),
        (NONE, Key::Down, 2400),
        (NONE, Key::Up, 2360),
        (NONE, Key::Home, 0),
        (NONE, Key::Right, 0),
    ];
    for (modifiers, key, top) in steps {
        user.key(modifiers, key.clone());
        assert_eq!(user.state.top, top, "{key:?}");
    }
    assert_eq!(user.state.left, 0);
    assert!(!user.effects.contains(&Effect::Redraw), "nothing moved");
}

#[test]
fn the_wheel_scrolls_and_with_control_zooms() {
    let mut user = User::at("http://a/one");
    user.does(Event::Wheel { x: 0.0, y: 120.0 });
    assert_eq!(user.state.top, 120);
    user.does(Event::Wheel { x: 0.0, y: -500.0 });
    assert_eq!(user.state.top, 0);
    user.does(Event::Modifiers(CONTROL));
    user.does(Event::Wheel { x: 0.0, y: -60.0 });
    assert_eq!(user.visits.last().unwrap().2.scale, 1.1);
}

#[test]
fn the_scroll_bar_is_dragged_and_pressed() {
    let mut user = User::at("http://a/one");
    let bar = user.state.geometry.scroll_bar;
    let thumb = user.state.thumb().unwrap();
    assert_eq!((thumb.top, thumb.height), (bar.top, 120));
    let x = f64::from(bar.left + 5);
    user.points(x, f64::from(thumb.top + 10));
    user.does(Event::Pressed);
    user.points(x - 300.0, f64::from(thumb.top + 10 + 240));
    assert_eq!(user.state.top, 1200, "half of the way");
    user.points(x, 5000.0);
    assert_eq!(user.state.top, 2400);
    user.does(Event::Released);
    user.points(x, 0.0);
    assert_eq!(user.state.top, 2400, "it was let go");
    user.clicks(x, f64::from(bar.top + 3));
    assert_eq!(user.state.top, 2400 - 560, "beside the thumb: a screen");
}

#[test]
fn a_finger_scrolls_and_taps() {
    let mut user = User::at("http://a/home");
    user.does(Event::Touched(30.0, 300.0));
    user.does(Event::TouchMoved(30.0, 299.0));
    assert_eq!(user.state.top, 0);
    user.does(Event::TouchMoved(30.0, 199.5));
    user.does(Event::TouchMoved(30.0, 199.0));
    assert_eq!(user.state.top, 101);
    user.does(Event::TouchEnded);
    user.key(NONE, Key::Home);
    user.does(Event::Touched(30.0, 50.0));
    user.does(Event::TouchEnded);
    assert_eq!(user.last_visit(), ("http://a/one", false));
}

#[test]
fn links_are_seen_and_followed() {
    let mut user = User::at("http://a/home");
    user.points(30.0, 50.0);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Hand)));
    assert_eq!(user.state.status().0, "http://a/one");
    user.does(Event::Pressed);
    user.points(500.0, 50.0);
    user.does(Event::Released);
    assert_eq!(user.visits.len(), 1, "the button was let go elsewhere");
    user.clicks(30.0, 50.0);
    assert_eq!(user.last_visit(), ("http://a/one", false));
    user.answer();
    user.points(30.0, 500.0);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Arrow)));
    assert_eq!(user.state.status().0, "visit 2");
}

#[test]
fn what_is_under_a_still_pointer_changes_with_scrolling() {
    let mut user = User::at("http://a/home");
    user.points(30.0, 45.0);
    assert_eq!(user.state.hover.as_deref(), Some("http://a/one"));
    user.key(NONE, Key::End);
    assert_eq!(user.state.hover, None);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Arrow)));
}

#[test]
fn a_fragment_of_the_same_page_scrolls_and_is_a_stop() {
    let mut user = User::at("http://a/home");
    user.key(NONE, Key::Down);
    user.clicks_page(30, 75);
    assert_eq!((user.visits.len(), user.state.top), (1, 1500));
    assert_eq!(user.state.address.text(), "http://a/home#middle");
    user.key(ALT, Key::Left);
    assert_eq!((user.visits.len(), user.state.top), (1, 40));
    assert_eq!(user.url(), "http://a/home");
    user.key(ALT, Key::Right);
    assert_eq!((user.visits.len(), user.state.top), (1, 1500));
}

#[test]
fn a_fragment_of_another_page_is_scrolled_to_once_that_is_there() {
    let mut user = User::at("http://a/home");
    user.clicks_page(30, 45);
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/two#middle", 1500));
}

#[test]
fn fragments_may_be_encoded_unknown_or_the_top() {
    let mut user = User::at("http://a/home#%6Didd%6ce");
    assert_eq!(user.state.top, 1500);
    user.goes("http://a/home#nowhere");
    assert_eq!((user.visits.len(), user.state.top), (1, 1500));
    user.goes("http://a/home#");
    assert_eq!((user.visits.len(), user.state.top), (1, 0));
}

#[test]
fn back_and_forward_come_to_the_same_place() {
    let mut user = User::at("http://a/home");
    user.key(NONE, Key::Space);
    user.goes("http://a/two");
    assert_eq!(user.state.top, 0);
    user.key(NONE, Key::End);
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/home", false));
    assert_eq!(user.url(), "http://a/two", "the old page stays until the new one is there");
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/home", 560));
    user.does(Event::Travel(1));
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/two", 2400));
    let visits = user.visits.len();
    user.key(ALT, Key::Right);
    assert_eq!(user.visits.len(), visits, "nothing is ahead");
    user.clicks_button(Button::Back);
    user.answer();
    assert_eq!(user.url(), "http://a/home");
}

#[test]
fn a_new_page_forgets_those_ahead() {
    let mut user = User::at("http://a/1");
    user.goes("http://a/2");
    user.key(ALT, Key::Left);
    user.answer();
    user.goes("http://a/3");
    assert!(user.state.history.ahead(1).is_none());
    assert_eq!(user.state.history.ahead(-1).unwrap().1.url, "http://a/1");
}

#[test]
fn the_same_address_is_no_new_stop() {
    let mut user = User::at("http://a/1");
    user.goes("http://a/1");
    assert!(user.state.history.ahead(-1).is_none());
}

#[test]
fn reloading_keeps_the_place_and_may_ask_for_everything_anew() {
    let mut user = User::at("http://a/home");
    user.key(NONE, Key::Space);
    let keys = [
        (NONE, Key::F5, false),
        (CONTROL, Key::Character("r".to_string()), false),
        (Modifiers { shift: true, ..CONTROL }, Key::Character("r".to_string()), true),
        (SHIFT, Key::F5, true),
    ];
    for (modifiers, key, fresh) in keys {
        user.key(modifiers, key);
        assert_eq!(user.last_visit(), ("http://a/home", fresh));
        user.answer();
        assert_eq!(user.state.top, 560);
    }
    assert!(user.state.history.ahead(-1).is_none());
    assert_eq!(user.visits.len(), 5);
}

#[test]
fn home_is_a_key_and_a_button() {
    let mut user = User::at("http://a/1");
    user.key(ALT, Key::Home);
    assert_eq!(user.last_visit(), ("http://a/home", false));
    user.answer();
    user.goes("http://a/1");
    user.clicks_button(Button::Home);
    assert_eq!(user.last_visit(), ("http://a/home", false));
}

#[test]
fn a_later_visit_supersedes_an_earlier_one() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("http://a/2");
    user.key(NONE, Key::Enter);
    let layout = user.state.layout();
    user.letter(CONTROL, "l");
    user.types("http://a/3");
    user.key(NONE, Key::Enter);
    assert!(user.effects.contains(&Effect::GiveUp(2)));
    user.answer_to(2, "http://a/2", layout);
    assert_eq!(user.url(), "http://a/1");
    user.does(Event::Progress { number: 2, stage: Stage::new("late") });
    user.answer_to(3, "http://a/3", layout);
    assert_eq!(user.url(), "http://a/3");
    assert_eq!(user.state.history.ahead(-1).unwrap().1.url, "http://a/1");
}

#[test]
fn escape_and_the_stop_button_stop_waiting() {
    for by_key in [true, false] {
        let mut user = User::at("http://a/1");
        user.letter(CONTROL, "l");
        user.types("http://a/2");
        user.key(NONE, Key::Enter);
        assert_eq!(user.state.address.text(), "http://a/2");
        match by_key {
            true => user.key(NONE, Key::Escape),
            false => user.clicks_button(Button::Reload),
        }
        assert!(user.state.loading.is_none());
        assert_eq!(user.state.address.text(), "http://a/1");
        assert_eq!(user.state.status().0, "stopped");
        user.answer();
        assert_eq!(user.url(), "http://a/1");
    }
}

#[test]
fn progress_is_shown_once_a_visit_takes_its_time() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::F5);
    let number = user.visits.last().unwrap().0;
    user.does(Event::Progress { number, stage: Stage::new("laying out") });
    assert_eq!(user.state.loaded_part(), None);
    assert_eq!(user.state.status().0, "visit 1", "what comes soon is not announced");
    user.does(Event::TimeUp(Timer::Waiting));
    assert!(user.effects.contains(&Effect::Start(Timer::Waiting)));
    assert_eq!(user.state.status().0, "laying out");
    let first = user.state.loaded_part().unwrap();
    user.does(Event::TimeUp(Timer::Waiting));
    assert!(user.state.loaded_part().unwrap() > first);
    let stage = Stage { done: Some(0.5), ..Stage::new("fetching") };
    user.does(Event::Progress { number, stage });
    assert_eq!(user.state.loaded_part(), Some(0.5));
    user.answer();
    assert_eq!(user.state.loaded_part(), None);
    user.does(Event::TimeUp(Timer::Waiting));
    assert!(!user.effects.contains(&Effect::Start(Timer::Waiting)));
}

#[test]
fn an_error_is_a_page_that_can_be_tried_again() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("http://a/2");
    user.key(NONE, Key::Enter);
    user.fails();
    let Content::Failed(failure) = &user.state.content else { panic!("no error") };
    assert_eq!(failure.why, "http://a/2 can't be fetched: no answer");
    assert_eq!(failure.remedy, "try later");
    user.key(NONE, Key::Down);
    user.clicks(300.0, 300.0);
    user.key(NONE, Key::Enter);
    assert_eq!(user.last_visit(), ("http://a/2", false));
    user.fails();
    user.key(NONE, Key::Enter);
    user.answer();
    assert_eq!(user.url(), "http://a/2");
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/1", false));
}

#[test]
fn an_error_at_the_very_first_is_a_page_too() {
    let mut user = User::starting_at("http://a/1");
    user.fails();
    assert!(matches!(user.state.content, Content::Failed(_)));
    user.goes("http://a/2");
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/1", false));
}

#[test]
fn a_page_that_cannot_be_painted_is_an_error() {
    let mut user = User::at("http://a/1");
    user.does(Event::Unpaintable(ViewError::InvalidPage("broken".to_string())));
    assert!(matches!(user.state.content, Content::Failed(_)));
    user.key(NONE, Key::Enter);
    user.answer();
    assert_eq!(user.url(), "http://a/1");
}

#[test]
fn zoom_asks_for_another_layout_and_keeps_the_place() {
    let mut user = User::at("http://a/1");
    for _ in 0..5 {
        user.key(NONE, Key::Down);
    }
    user.does(Event::Wheel { x: 0.0, y: 100.0 });
    assert_eq!(user.state.top, 300, "line 10");
    for _ in 0..3 {
        user.letter(CONTROL, "+");
    }
    let layout = user.visits.last().unwrap().2;
    assert_eq!(layout, Layout { width: 1000, height: 600, scale: 1.5 });
    assert_eq!(user.state.top, 300);
    user.answer();
    assert_eq!((user.state.top, user.state.status().1.as_str()), (450, "150 %"));
    user.letter(CONTROL, "-");
    user.answer();
    user.letter(CONTROL, "0");
    user.answer();
    assert_eq!((user.state.top, user.state.status().1.as_str()), (300, ""));
    assert!(user.state.history.ahead(-1).is_none());
    let visits = user.visits.len();
    user.letter(CONTROL, "0");
    assert_eq!(user.visits.len(), visits, "nothing to change");
}

#[test]
fn zoom_has_bounds() {
    let mut user = User::at("http://a/1");
    for _ in 0..40 {
        user.letter(CONTROL, "=");
    }
    assert_eq!(user.state.zoom, 5.0);
    for _ in 0..40 {
        user.letter(CONTROL, "-");
    }
    assert_eq!(user.state.zoom, 0.25);
}

fn sized(width: u32, height: u32, made: bool) -> Event {
    Event::Sized { width, height, scale: 1.0, made }
}

#[test]
fn a_new_size_is_laid_out_for_once_it_stays() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::End);
    user.does(sized(814, 564, false));
    assert!(user.effects.contains(&Effect::Start(Timer::Settled)));
    user.does(sized(714, 764, false));
    assert!(user.effects.contains(&Effect::Start(Timer::Settled)));
    assert_eq!((user.visits.len(), user.state.top), (1, 2300));
    user.does(Event::TimeUp(Timer::Settled));
    assert_eq!(user.visits.last().unwrap().2, Layout { width: 700, height: 700, scale: 1.0 });
    user.answer();
    assert_eq!((user.visits.len(), user.state.top), (2, 2300));
    user.does(Event::TimeUp(Timer::Settled));
    assert_eq!(user.visits.len(), 2);
}

#[test]
fn a_size_that_comes_back_costs_nothing() {
    let mut user = User::at("http://a/1");
    user.does(sized(814, 564, false));
    user.does(sized(1014, 664, false));
    user.does(Event::TimeUp(Timer::Settled));
    assert_eq!(user.visits.len(), 1);
}

#[test]
fn a_window_of_another_size_than_expected_asks_again_at_once() {
    let mut user = User::starting_at("http://a/1");
    user.does(Event::Sized { width: 2028, height: 1328, scale: 2.0, made: true });
    assert!(user.effects.contains(&Effect::GiveUp(1)));
    assert_eq!(user.visits.last().unwrap().2, Layout { width: 2000, height: 1200, scale: 2.0 });
    user.answer();
    assert_eq!(user.url(), "http://a/1");
    let mut user = User::starting_at("http://a/1");
    user.does(sized(1014, 664, true));
    assert_eq!(user.visits.len(), 1, "as expected");
}

#[test]
fn a_size_that_fails_leaves_the_old_page() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "+");
    user.fails();
    assert_eq!(user.url(), "http://a/1");
    assert!(user.state.status().0.contains("no answer"));
}

#[test]
fn a_page_that_came_for_an_old_size_is_asked_for_again() {
    let mut user = User::starting_at("http://a/1");
    user.does(sized(814, 564, false));
    user.answer();
    assert!(user.effects.contains(&Effect::Start(Timer::Settled)));
    user.does(Event::TimeUp(Timer::Settled));
    assert_eq!(user.visits.last().unwrap().2.width, 800);
}

#[test]
fn the_address_is_edited_taken_and_restored() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "l");
    assert_eq!((user.state.focus, user.state.address.selected()), (Focus::Address, "http://a/1"));
    user.types("wxy z");
    user.key(NONE, Key::Backspace);
    assert_eq!(user.state.address.text(), "wxy ");
    user.key(NONE, Key::Escape);
    assert_eq!((user.state.focus, user.state.address.text()), (Focus::Page, "http://a/1"));
    user.letter(CONTROL, "l");
    user.key(NONE, Key::End);
    user.key(NONE, Key::Backspace);
    user.types("7");
    user.key(NONE, Key::Enter);
    assert_eq!((user.last_visit(), user.state.focus), (("http://a/7", false), Focus::Page));
    user.letter(CONTROL, "l");
    user.key(NONE, Key::Delete);
    user.key(NONE, Key::Enter);
    assert_eq!(user.visits.len(), 2, "an empty address leads nowhere");
}

#[test]
fn the_address_under_edit_survives_a_page_that_comes() {
    let mut user = User::starting_at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("abc");
    user.answer();
    assert_eq!(user.state.address.text(), "abc");
    user.key(NONE, Key::Escape);
    assert_eq!(user.state.address.text(), "http://a/1");
}

#[test]
fn keys_of_the_page_type_in_the_address() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("a b");
    user.key(NONE, Key::Home);
    user.key(SHIFT, Key::Right);
    assert_eq!((user.state.address.selected(), user.state.top), ("a", 0));
    user.letter(CONTROL, "a");
    user.letter(CONTROL, "x");
    assert!(user.effects.contains(&Effect::Copy("a b".to_string())));
    assert_eq!(user.state.address.text(), "");
    user.letter(CONTROL, "v");
    assert!(user.effects.contains(&Effect::Paste));
    user.does(Event::Pasted("x\ny".to_string()));
    assert_eq!(user.state.address.text(), "xy");
    user.letter(Modifiers { alt: true, ..NONE }, "q");
    assert_eq!(user.state.address.text(), "xy", "a shortcut is no text");
}

#[test]
fn a_click_into_the_address_selects_it_and_another_sets_the_cursor() {
    let mut user = User::at("http://a/1");
    let at = user.state.geometry.address;
    let (left, y) = (f64::from(at.left) + 9.0, f64::from(at.top + 10));
    user.clicks(left + 100.0, y);
    assert_eq!(user.state.address.selected(), "http://a/1");
    // Without a font, characters are 6.5 pixels wide.
    user.clicks(left + 13.0, y);
    assert_eq!((user.state.address.cursor(), user.state.address.selected()), (2, ""));
    user.points(left + 6.5, y);
    user.does(Event::Pressed);
    user.points(left + 6.5 * 4.0, y);
    assert_eq!(user.state.address.selected(), "ttp");
    user.does(Event::Released);
    user.clicks(500.0, 400.0);
    assert_eq!(user.state.focus, Focus::Page);
}

#[test]
fn typing_finds_at_once() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "f");
    user.types("LINE 7");
    // 7 and 70 to 79.
    assert_eq!(user.state.find.count(), "1 of 11");
    assert_eq!(user.state.top, 0, "line 7 is in view");
    user.key(NONE, Key::Enter);
    assert_eq!((user.state.find.count().as_str(), user.state.top), ("2 of 11", 1900));
    user.key(NONE, Key::F3);
    assert_eq!(user.state.find.count(), "3 of 11");
    user.key(SHIFT, Key::F3);
    user.key(SHIFT, Key::Enter);
    user.key(SHIFT, Key::Enter);
    assert_eq!(user.state.find.count(), "11 of 11");
    user.types("x");
    assert_eq!(user.state.find.count(), "not found");
    user.key(NONE, Key::Enter);
    user.key(NONE, Key::Escape);
    assert_eq!((user.state.find.open, user.state.focus), (false, Focus::Page));
    user.key(NONE, Key::Down);
    assert_ne!(user.state.top, 0);
}

#[test]
fn finding_begins_where_the_user_is_and_goes_on_from_there() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::End);
    user.letter(CONTROL, "f");
    user.types("line");
    assert_eq!(user.state.find.count(), "81 of 100");
    user.key(NONE, Key::Escape);
    user.key(NONE, Key::F3);
    assert_eq!(user.state.find.field.text(), "line", "it is remembered");
}

#[test]
fn what_is_found_follows_a_new_page() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "f");
    user.types("line 99");
    assert_eq!(user.state.find.count(), "1 of 1");
    let before = user.state.find.matches.clone();
    user.letter(CONTROL, "+");
    user.answer();
    assert_eq!(user.state.find.count(), "1 of 1");
    assert_ne!(user.state.find.matches, before);
    user.clicks_button(Button::FindClose);
    assert!(!user.state.find.open && user.state.find.matches.is_empty());
}

#[test]
fn tab_goes_round_the_links_and_enter_follows() {
    let mut user = User::at("http://a/home");
    let mut seen = Vec::new();
    for _ in 0..4 {
        user.key(NONE, Key::Tab);
        seen.push(user.state.status().0);
    }
    let links = ["http://a/one", "http://a/two#middle", "http://a/home#middle", "http://a/one"];
    assert_eq!(seen, links);
    user.key(SHIFT, Key::Tab);
    assert_eq!(user.state.status().0, links[2]);
    assert_eq!(user.state.ring_rects().len(), 1);
    user.key(NONE, Key::End);
    user.key(SHIFT, Key::Tab);
    assert_eq!(user.state.top, 0, "the ring is brought into view");
    user.key(NONE, Key::Enter);
    assert_eq!(user.last_visit(), ("http://a/two#middle", false));
    user.answer();
    assert_eq!(user.state.ring, None);
}

#[test]
fn closing_ends() {
    for letter in ["w", "q"] {
        let mut user = User::at("http://a/1");
        user.letter(CONTROL, letter);
        assert!(user.effects.contains(&Effect::Exit));
    }
    assert!(User::at("http://a/1").does(Event::Close).contains(&Effect::Exit));
}

#[test]
fn what_was_done_after_a_page_was_shown_is_said_for_that_page_only() {
    let mut user = User::at("http://a/1");
    user.does(Event::Kept { number: 1, message: "kept".to_string() });
    assert_eq!(user.state.status().0, "kept");
    user.goes("http://a/2");
    assert_eq!(user.state.status().0, "visit 2");
    user.does(Event::Kept { number: 1, message: "late".to_string() });
    assert_eq!(user.state.status().0, "visit 2");
}

#[test]
fn nothing_panics_in_the_smallest_of_windows() {
    for (width, height) in [(1, 1), (20, 45), (45, 20), (200, 66)] {
        let mut user = User::starting_at("http://a/1");
        user.does(sized(width, height, true));
        user.answer();
        user.letter(CONTROL, "f");
        user.types("line");
        for key in [Key::Tab, Key::PageDown, Key::End, Key::Up, Key::Tab, Key::Enter] {
            user.key(NONE, key);
        }
        user.clicks(f64::from(width) - 0.5, f64::from(height) / 2.0);
        let mut pixels = vec![0; (width * height) as usize];
        Frame::default().compose(&user.state, &mut pixels).unwrap();
    }
}

/// The page's part of the window.
fn page_rows(state: &State, pixels: &[u32]) -> Vec<u32> {
    let Rectangle { top, width, height, .. } = state.geometry.page;
    let window = state.geometry.window.0 as usize;
    let rows = pixels.chunks(window).skip(top as usize).take(height as usize);
    rows.flat_map(|row| row[..width as usize].to_vec()).collect()
}

#[test]
fn scrolling_asks_for_new_rows_only_and_gives_the_same_pixels() {
    let mut user = User::at("http://a/1");
    let mut frame = Frame::default();
    let mut pixels = vec![0; 1014 * 664];
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_eq!(frame.asked_rows, 600);
    let moves = [
        (Key::Down, 40),
        (Key::Up, 40),
        (Key::PageDown, 560),
        (Key::PageDown, 560),
        (Key::End, 600),
        (Key::PageUp, 560),
        (Key::Tab, 600),
    ];
    let mut asked = 600;
    for (key, rows) in moves {
        user.key(NONE, key.clone());
        frame.compose(&user.state, &mut pixels).unwrap();
        asked += rows;
        assert_eq!(frame.asked_rows, asked, "{key:?}");
        let mut anew = vec![0; 1014 * 664];
        Frame::default().compose(&user.state, &mut anew).unwrap();
        assert!(anew == pixels, "{key:?}");
    }
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_eq!(frame.asked_rows, asked, "nothing has moved");
}

#[test]
fn a_page_of_another_size_is_shown_cut_or_padded() {
    let mut user = User::at("http://a/1");
    let mut pixels = vec![0; 1014 * 664];
    let mut frame = Frame::default();
    frame.compose(&user.state, &mut pixels).unwrap();
    let before = page_rows(&user.state, &pixels);
    for width in [514, 1314] {
        user.does(sized(width, 664, false));
        let mut pixels = vec![7; width as usize * 664];
        frame.compose(&user.state, &mut pixels).unwrap();
        let now = page_rows(&user.state, &pixels);
        let seen = user.state.geometry.page.width as usize;
        for (old, new) in before.chunks(1000).zip(now.chunks(seen)) {
            let both = seen.min(1000);
            assert!(old[..both] == new[..both]);
            assert!(new[both..].iter().all(|pixel| *pixel == 0x00FF_FFFF));
        }
        assert_eq!(user.visits.len(), 1);
    }
    assert_eq!(frame.asked_rows, 600, "no row was painted twice");
}

#[test]
fn what_is_found_and_where_the_keyboard_is_can_be_seen() {
    let mut user = User::at("http://a/1");
    let mut frame = Frame::default();
    let mut plain = vec![0; 1014 * 664];
    frame.compose(&user.state, &mut plain).unwrap();
    user.key(NONE, Key::Tab);
    let mut ringed = vec![0; 1014 * 664];
    frame.compose(&user.state, &mut ringed).unwrap();
    let changed = plain.iter().zip(&ringed).filter(|(a, b)| a != b).count();
    assert!(changed > 100, "{changed}");
    user.key(NONE, Key::Escape);
    frame.compose(&user.state, &mut ringed).unwrap();
    assert!(plain == ringed);
    user.letter(CONTROL, "f");
    user.types("line 5");
    frame.compose(&user.state, &mut ringed).unwrap();
    let first = user.state.find.matches[0].rects[0];
    let at = (first.y0 as usize + 40 + 5) * 1014 + first.x0 as usize + 5;
    assert_ne!(plain[at], ringed[at]);
}
