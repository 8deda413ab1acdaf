//! Tests the movement of the focus, without a display.
#![allow(clippy::unwrap_used)]

use evermap_tv::contents::{FILES, parse};
use evermap_tv::generate::{Amounts, generate};
use evermap_tv::layout::lay_out;
use evermap_tv::model::{Interface, Kind};
use evermap_tv::plain::PlainInterface;
use evermap_tv::state::{Key, Outcome, State};

fn interface() -> PlainInterface {
    let directory = tempfile::tempdir().unwrap();
    let amounts = Amounts { seed: 3, programmes: 2_000, channels: 20, films: 60 };
    generate(directory.path(), amounts).unwrap();
    let bytes = FILES.map(|name| std::fs::read(directory.path().join(name)).unwrap());
    lay_out(parse(directory.path(), &bytes).unwrap(), 1920, 1080)
}

fn opened(interface: &PlainInterface, screen: &str) -> State {
    State::new(interface, interface.find(screen).unwrap())
}

fn press(interface: &PlainInterface, state: &mut State, keys: &[Key]) {
    for key in keys {
        state.press(interface, *key);
    }
}

fn at(state: &State) -> (usize, usize) {
    let place = state.place().unwrap();
    (place.row, place.item)
}

fn title(interface: &PlainInterface, state: &State) -> String {
    state.focused(interface).unwrap().title.to_string()
}

#[test]
fn home_starts_below_the_menu_bar_and_the_bar_opens_screens() {
    let interface = interface();
    let mut state = opened(&interface, "home");
    assert_eq!(at(&state), (1, 0));
    press(&interface, &mut state, &[Key::Up, Key::Right]);
    assert_eq!((at(&state), title(&interface, &state).as_str()), ((0, 1), "Guide"));
    assert_eq!(state.press(&interface, Key::Enter), Outcome::Changed);
    assert_eq!(state.place().unwrap().screen, interface.find("guide").unwrap());
    assert_eq!(state.press(&interface, Key::Back), Outcome::Changed);
    assert_eq!((at(&state), state.places.len()), ((0, 1), 1));
    assert_eq!(state.press(&interface, Key::Back), Outcome::Exit);
}

#[test]
fn the_focus_stops_at_the_edges() {
    let interface = interface();
    let mut state = opened(&interface, "posters");
    assert_eq!(state.press(&interface, Key::Left), Outcome::Nothing);
    assert_eq!(state.press(&interface, Key::Up), Outcome::Nothing);
    press(&interface, &mut state, &[Key::Right; 20]);
    assert_eq!(at(&state), (0, 6));
    press(&interface, &mut state, &[Key::PageDown; 20]);
    // 60 films in rows of 7 leave 4 for the last one.
    assert_eq!(at(&state), (8, 3));
    assert_eq!(state.press(&interface, Key::Down), Outcome::Nothing);
}

#[test]
fn menus_open_submenus_and_other_entries_do_nothing() {
    let interface = interface();
    let mut state = opened(&interface, "home");
    press(&interface, &mut state, &[Key::Up, Key::Right, Key::Right, Key::Right, Key::Right]);
    assert_eq!(title(&interface, &state), "Settings");
    press(&interface, &mut state, &[Key::Enter, Key::Down, Key::Enter]);
    assert_eq!(title(&interface, &state), "Night mode");
    assert_eq!(state.places.len(), 3);
    assert_eq!(state.press(&interface, Key::Enter), Outcome::Nothing);
    press(&interface, &mut state, &[Key::Back]);
    assert_eq!(title(&interface, &state), "Sound");
}

#[test]
fn a_film_opens_in_large_and_closes_again() {
    let interface = interface();
    let mut state = opened(&interface, "posters");
    press(&interface, &mut state, &[Key::Right, Key::Enter]);
    assert!(state.opened);
    assert_eq!(state.press(&interface, Key::Right), Outcome::Nothing);
    press(&interface, &mut state, &[Key::Back]);
    assert_eq!((state.opened, at(&state)), (false, (0, 1)));
}

#[test]
fn home_is_returned_to_instead_of_opened_twice() {
    let interface = interface();
    let mut state = opened(&interface, "home");
    press(&interface, &mut state, &[Key::Up, Key::Enter, Key::Enter, Key::Enter]);
    assert_eq!(state.places.len(), 1);
}

#[test]
fn the_guide_starts_now_and_changing_channels_keeps_the_time() {
    let interface = interface();
    let mut state = opened(&interface, "guide");
    let guide = interface.screen(interface.find("guide").unwrap()).unwrap();
    let now = (guide.now_minute - guide.first_minute) as f32 * evermap_tv::layout::MINUTE;
    let runs = |state: &State, x: f32| {
        let frame = state.focused(&interface).unwrap().frame;
        (frame.left - 1.0..frame.right() + 1.0).contains(&x)
    };
    assert!(runs(&state, now));
    let begins = state.focused(&interface).unwrap().frame.left;
    let anchor = begins.max(state.place().unwrap().lefts[0].target) + 1.0;
    for _ in 0..12 {
        press(&interface, &mut state, &[Key::Down]);
        assert!(runs(&state, anchor), "row {}", at(&state).0);
    }
    let before = state.place().unwrap().lefts[0].target;
    press(&interface, &mut state, &[Key::HoursOn]);
    let after = state.place().unwrap().lefts[0].target;
    assert_eq!((after - before).round(), (120.0 * evermap_tv::layout::MINUTE).round());
    press(&interface, &mut state, &[Key::HoursBack]);
    assert!(runs(&state, anchor));
    press(&interface, &mut state, &[Key::PageUp]);
    assert_eq!(at(&state).0, 12 - 8);
}

#[test]
fn programmes_of_a_channel_are_adjacent() {
    let interface = interface();
    let guide = interface.find("guide").unwrap();
    for row in 0..interface.screen(guide).unwrap().rows {
        let items = interface.row(guide, row).unwrap().items;
        for item in 1..items {
            let before = interface.item(guide, row, item - 1).unwrap().frame;
            let frame = interface.item(guide, row, item).unwrap().frame;
            assert_eq!(before.right(), frame.left, "row {row}, item {item}");
            assert!(frame.width > 0.0);
        }
    }
}

#[test]
fn the_focus_is_visible_after_any_keys() {
    let interface = interface();
    let keys = [
        Key::Left,
        Key::Right,
        Key::Up,
        Key::Down,
        Key::Enter,
        Key::Back,
        Key::PageUp,
        Key::PageDown,
        Key::HoursBack,
        Key::HoursOn,
        Key::Right,
        Key::Down,
    ];
    let mut dice = 11u64;
    let mut seen = [0; 4];
    for start in ["home", "posters", "guide", "menu/4"] {
        let mut state = opened(&interface, start);
        for step in 0..4_000 {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.press(&interface, keys[(dice >> 33) as usize % keys.len()]);
            seen[interface.screen(state.place().unwrap().screen).unwrap().kind as usize] += 1;
            assert_seen(&interface, &state, &format!("step {step} from {start}"));
        }
    }
    assert!(seen.iter().all(|count| *count > 1_000), "{seen:?}");
}

#[track_caller]
fn assert_seen(interface: &PlainInterface, state: &State, what: &str) {
    let place = state.place().unwrap();
    let screen = interface.screen(place.screen).unwrap();
    let frame = state.on_screen(interface, place.row, place.item).unwrap();
    let what = format!("{what}: {frame:?} of {}", screen.name);
    assert!(frame.left < 1920.0 - 60.0 && frame.right() > 60.0, "{what}");
    if place.row >= screen.fixed_rows {
        assert!(frame.top >= screen.viewport.top - 1.0, "{what}");
        assert!(frame.bottom() <= 1081.0 || screen.kind == Kind::Home, "{what}");
    }
    if screen.kind == Kind::Guide {
        assert!(frame.right() > screen.viewport.left + 1.0, "{what}");
    }
}

#[test]
fn animations_end() {
    let interface = interface();
    let mut state = opened(&interface, "guide");
    press(&interface, &mut state, &[Key::PageDown, Key::HoursOn]);
    let mut frames = 0;
    while state.advance(0.016) {
        frames += 1;
        assert!(frames < 100);
    }
    assert!(frames > 3);
    let place = state.place().unwrap();
    assert_eq!(place.top.shown, place.top.target);
    assert_eq!(place.lefts[0].shown, place.lefts[0].target);
}
