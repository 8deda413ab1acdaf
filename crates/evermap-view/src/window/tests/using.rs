//! Tests of keys, mouse and touch on a page and in the window's text fields.
#![allow(clippy::unwrap_used)]

use super::*;

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
fn a_touchpad_scrolls_by_fractions_and_zooms_by_whole_steps() {
    let mut user = User::at("http://a/one");
    for _ in 0..10 {
        user.does(Event::Wheel { x: 0.0, y: 0.4 });
    }
    assert_eq!(user.state.top, 4);
    user.does(Event::Wheel { x: 0.0, y: -1.0 });
    assert_eq!(user.state.top, 3, "a change of direction takes effect at once");
    user.does(Event::Modifiers(CONTROL));
    for _ in 0..5 {
        user.does(Event::Wheel { x: 0.0, y: -13.0 });
    }
    assert_eq!((user.visits.len(), user.state.zoom), (2, 1.1), "65 pixels are one notch");
}

#[test]
fn the_scroll_bar_can_be_dragged_and_clicked() {
    let mut user = User::at("http://a/one");
    let bar = user.state.geometry.scroll_bar;
    let thumb = user.state.scroll().thumb().unwrap();
    assert_eq!((thumb.top, thumb.height), (bar.top, 120));
    let x = f64::from(bar.left + 5);
    user.points(x, f64::from(thumb.top + 10));
    user.does(Event::Pressed);
    user.points(x - 300.0, f64::from(thumb.top + 10 + 240));
    assert_eq!(user.state.top, 1200, "halfway");
    user.points(x, 5000.0);
    assert_eq!(user.state.top, 2400);
    user.does(Event::Released);
    user.points(x, 0.0);
    assert_eq!(user.state.top, 2400, "the thumb was released");
    user.clicks(x, f64::from(bar.top + 3));
    assert_eq!(user.state.top, 2400 - 560, "a click beside the thumb scrolls by a screen");
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
    assert_eq!(user.last_visit(), ("http://a/one", Reuse::Page));
}

#[test]
fn links_are_hovered_and_followed() {
    let mut user = User::at("http://a/home");
    user.points(30.0, 50.0);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Hand)));
    assert_eq!(user.status(), "http://a/one");
    user.does(Event::Pressed);
    user.points(500.0, 50.0);
    user.does(Event::Released);
    assert_eq!(user.visits.len(), 1, "the button was released elsewhere");
    user.clicks(30.0, 50.0);
    assert_eq!(user.last_visit(), ("http://a/one", Reuse::Page));
    user.answer();
    user.points(30.0, 500.0);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Arrow)));
    assert_eq!(user.status(), "visit 2");
}

#[test]
fn scrolling_updates_the_hovered_link() {
    let mut user = User::at("http://a/home");
    user.points(30.0, 45.0);
    assert_eq!(user.state.pointer.hover.as_deref(), Some("http://a/one"));
    user.key(NONE, Key::End);
    assert_eq!(user.state.pointer.hover, None);
    assert!(user.effects.contains(&Effect::Cursor(Cursor::Arrow)));
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

#[test]
fn the_address_is_edited_opened_and_restored() {
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
    assert_eq!((user.last_visit(), user.state.focus), (("http://a/7", Reuse::Page), Focus::Page));
    user.letter(CONTROL, "l");
    user.key(NONE, Key::Delete);
    user.key(NONE, Key::Enter);
    assert_eq!(user.visits.len(), 2, "an empty address is not visited");
}

#[test]
fn an_edited_address_survives_the_arrival_of_a_page() {
    let mut user = User::starting_at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("abc");
    user.answer();
    assert_eq!(user.state.address.text(), "abc");
    user.key(NONE, Key::Escape);
    assert_eq!(user.state.address.text(), "http://a/1");
}

#[test]
fn page_keys_edit_a_focused_address() {
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
    assert_eq!(user.state.address.text(), "xy", "a shortcut does not insert text");
}

#[test]
fn the_first_click_selects_the_address_and_the_second_places_the_cursor() {
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
fn typing_updates_the_matches() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "f");
    user.types("LINE 7");
    // Lines 7 and 70 to 79.
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
fn a_search_starts_at_the_scroll_position() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::End);
    user.letter(CONTROL, "f");
    user.types("line");
    assert_eq!(user.state.find.count(), "81 of 100");
    user.key(NONE, Key::Escape);
    user.key(NONE, Key::F3);
    assert_eq!(user.state.find.field.text(), "line", "the search text is remembered");
}

#[test]
fn tab_cycles_through_links_and_enter_follows() {
    let mut user = User::at("http://a/home");
    let mut seen = Vec::new();
    for _ in 0..4 {
        user.key(NONE, Key::Tab);
        seen.push(user.status());
    }
    let links = ["http://a/one", "http://a/two#middle", "http://a/home#middle", "http://a/one"];
    assert_eq!(seen, links);
    user.key(SHIFT, Key::Tab);
    assert_eq!(user.status(), links[2]);
    assert_eq!(user.state.ring_rects().len(), 1);
    user.key(NONE, Key::End);
    user.key(SHIFT, Key::Tab);
    assert_eq!(user.state.top, 0, "the page scrolls to the ring");
    user.key(NONE, Key::Enter);
    assert_eq!(user.last_visit(), ("http://a/two#middle", Reuse::Page));
    user.answer();
    assert_eq!(user.state.ring, None);
}
