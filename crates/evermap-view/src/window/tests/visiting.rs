//! Tests of visits: the history, sizes and zoom, errors.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn the_first_page_is_requested_at_once_and_shown_on_arrival() {
    let mut user = User::starting_at("http://a/one");
    let layout = Layout { width: 1000, height: 600, scale: 1.0 };
    assert_eq!(user.visits, [(1, "http://a/one".to_string(), layout, Reuse::Page)]);
    assert!(matches!(user.state.visits.content, Content::Nothing));
    user.answer();
    assert!(user.effects.contains(&Effect::Shown(1)) && user.effects.contains(&Effect::Redraw));
    assert!(user.effects.contains(&Effect::Title("one - Evermap".to_string())));
    assert_eq!(user.status(), "visit 1");
}

#[test]
fn without_an_address_the_home_page_is_shown() {
    assert_eq!(User::starting_at("").last_visit(), ("http://a/home", Reuse::Page));
}

#[test]
fn a_fragment_of_the_same_page_scrolls_and_adds_an_entry() {
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
fn a_fragment_of_another_page_is_scrolled_to_on_arrival() {
    let mut user = User::at("http://a/home");
    user.clicks_page(30, 45);
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/two#middle", 1500));
}

#[test]
fn fragments_may_be_encoded_unknown_or_empty() {
    let mut user = User::at("http://a/home#%6Didd%6ce");
    assert_eq!(user.state.top, 1500);
    user.goes("http://a/home#nowhere");
    assert_eq!((user.visits.len(), user.state.top), (1, 1500));
    user.goes("http://a/home#");
    assert_eq!((user.visits.len(), user.state.top), (1, 0));
}

#[test]
fn back_and_forward_restore_the_scroll_position() {
    let mut user = User::at("http://a/home");
    user.key(NONE, Key::Space);
    user.goes("http://a/two");
    assert_eq!(user.state.top, 0);
    user.key(NONE, Key::End);
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/home", Reuse::Page));
    assert_eq!(user.url(), "http://a/two", "the old page stays until the new one arrives");
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/home", 560));
    user.does(Event::Travel(1));
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/two", 2400));
    let visits = user.visits.len();
    user.key(ALT, Key::Right);
    assert_eq!(user.visits.len(), visits, "there is no entry ahead");
    user.clicks_button(Button::Back);
    user.answer();
    assert_eq!(user.url(), "http://a/home");
}

#[test]
fn a_new_page_drops_entries_ahead() {
    let mut user = User::at("http://a/1");
    user.goes("http://a/2");
    user.key(ALT, Key::Left);
    user.answer();
    user.goes("http://a/3");
    assert!(user.state.visits.history.ahead(1).is_none());
    assert_eq!(user.state.visits.history.ahead(-1).unwrap().1.url, "http://a/1");
}

#[test]
fn the_same_address_adds_no_entry() {
    let mut user = User::at("http://a/1");
    user.goes("http://a/1");
    assert!(user.state.visits.history.ahead(-1).is_none());
}

#[test]
fn reloading_keeps_the_scroll_position_and_may_ignore_stored_data() {
    let mut user = User::at("http://a/home");
    user.key(NONE, Key::Space);
    let keys = [
        (NONE, Key::F5, Reuse::Page),
        (CONTROL, Key::Character("r".to_string()), Reuse::Page),
        (Modifiers { shift: true, ..CONTROL }, Key::Character("r".to_string()), Reuse::Nothing),
        (SHIFT, Key::F5, Reuse::Nothing),
    ];
    for (modifiers, key, reuse) in keys {
        user.key(modifiers, key);
        assert_eq!(user.last_visit(), ("http://a/home", reuse));
        user.answer();
        assert_eq!(user.state.top, 560);
    }
    assert!(user.state.visits.history.ahead(-1).is_none());
    assert_eq!(user.visits.len(), 5);
}

#[test]
fn home_has_a_key_and_a_button() {
    let mut user = User::at("http://a/1");
    user.key(ALT, Key::Home);
    assert_eq!(user.last_visit(), ("http://a/home", Reuse::Page));
    user.answer();
    user.goes("http://a/1");
    user.clicks_button(Button::Home);
    assert_eq!(user.last_visit(), ("http://a/home", Reuse::Page));
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
    assert!(user.effects.contains(&Effect::Cancel(2)));
    user.answer_to(2, "http://a/2", layout);
    assert_eq!(user.url(), "http://a/1");
    user.does(Event::Progress { number: 2, stage: Stage::new("late") });
    user.answer_to(3, "http://a/3", layout);
    assert_eq!(user.url(), "http://a/3");
    assert_eq!(user.state.visits.history.ahead(-1).unwrap().1.url, "http://a/1");
}

#[test]
fn escape_and_the_stop_button_cancel_the_visit() {
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
        assert!(user.state.visits.loading.is_none());
        assert_eq!(user.state.address.text(), "http://a/1");
        assert_eq!(user.status(), "stopped");
        user.answer();
        assert_eq!(user.url(), "http://a/1");
    }
}

#[test]
fn progress_is_shown_only_for_slow_visits() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::F5);
    let number = user.visits.last().unwrap().0;
    user.does(Event::Progress { number, stage: Stage::new("laying out") });
    assert_eq!(user.state.visits.loaded_part(), None);
    assert_eq!(user.status(), "visit 1", "a fast visit is not announced");
    user.does(Event::TimeUp(Timer::Loading));
    assert!(user.effects.contains(&Effect::Start(Timer::Loading)));
    assert_eq!(user.status(), "laying out");
    let first = user.state.visits.loaded_part().unwrap();
    user.does(Event::TimeUp(Timer::Loading));
    assert!(user.state.visits.loaded_part().unwrap() > first);
    let stage = Stage { done: Some(0.5), ..Stage::new("fetching") };
    user.does(Event::Progress { number, stage });
    assert_eq!(user.state.visits.loaded_part(), Some(0.5));
    user.answer();
    assert_eq!(user.state.visits.loaded_part(), None);
    user.does(Event::TimeUp(Timer::Loading));
    assert!(!user.effects.contains(&Effect::Start(Timer::Loading)));
}

#[test]
fn an_error_page_can_be_retried() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "l");
    user.types("http://a/2");
    user.key(NONE, Key::Enter);
    user.fails();
    let Content::Failed(failure) = &user.state.visits.content else { panic!("no error") };
    assert_eq!(failure.why, "cannot fetch http://a/2: no answer");
    assert_eq!(failure.remedy, "try later");
    user.key(NONE, Key::Down);
    user.clicks(300.0, 300.0);
    user.key(NONE, Key::Enter);
    assert_eq!(user.last_visit(), ("http://a/2", Reuse::Page));
    user.fails();
    user.key(NONE, Key::Enter);
    user.answer();
    assert_eq!(user.url(), "http://a/2");
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/1", Reuse::Page));
}

#[test]
fn an_error_of_the_first_page_is_shown() {
    let mut user = User::starting_at("http://a/1");
    user.fails();
    assert!(matches!(user.state.visits.content, Content::Failed(_)));
    user.goes("http://a/2");
    user.key(ALT, Key::Left);
    assert_eq!(user.last_visit(), ("http://a/1", Reuse::Page));
}

#[test]
fn a_page_that_cannot_be_painted_shows_an_error() {
    let mut user = User::at("http://a/1");
    let too_wide = ViewError::BadSize { width: 9, height: 9, why: "broken".to_string() };
    user.does(Event::Unpaintable(too_wide));
    assert!(matches!(user.state.visits.content, Content::Failed(_)));
    user.key(NONE, Key::Enter);
    user.answer();
    assert_eq!(user.url(), "http://a/1");
}

#[test]
fn a_damaged_stored_page_is_laid_out_again_at_the_same_position() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::Space);
    let top = user.state.top;
    assert!(top > 0);
    let Content::Page(shown) = &mut user.state.visits.content else { panic!("a page is shown") };
    shown.warm = true;
    let damage = || ViewError::InvalidPage("damaged".to_string());
    user.does(Event::Unpaintable(damage()));
    assert_eq!(user.last_visit(), ("http://a/1", Reuse::Resources));
    assert!(matches!(user.state.visits.content, Content::Nothing), "no part of it is shown");
    let visits = user.visits.len();
    user.answer();
    assert_eq!((user.url(), user.state.top), ("http://a/1", top));
    assert!(user.state.visits.history.ahead(-1).is_none());
    // A page that was just laid out is not laid out again for the same reason.
    let Content::Page(shown) = &mut user.state.visits.content else { panic!("a page is shown") };
    shown.warm = false;
    user.does(Event::Unpaintable(damage()));
    assert!(matches!(user.state.visits.content, Content::Failed(_)));
    assert_eq!(user.visits.len(), visits);
}

#[test]
fn zoom_requests_another_layout_and_keeps_the_position() {
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
    assert_eq!((user.state.top, user.state.status().right.as_str()), (450, "150 %"));
    user.letter(CONTROL, "-");
    user.answer();
    user.letter(CONTROL, "0");
    user.answer();
    assert_eq!((user.state.top, user.state.status().right.as_str()), (300, ""));
    assert!(user.state.visits.history.ahead(-1).is_none());
    let visits = user.visits.len();
    user.letter(CONTROL, "0");
    assert_eq!(user.visits.len(), visits, "the zoom has not changed");
}

#[test]
fn a_new_size_is_requested_once_it_is_stable() {
    let mut user = User::at("http://a/1");
    user.key(NONE, Key::End);
    user.does(sized(814, 564, false));
    assert!(user.effects.contains(&Effect::Start(Timer::Resize)));
    user.does(sized(714, 764, false));
    assert!(user.effects.contains(&Effect::Start(Timer::Resize)));
    assert_eq!((user.visits.len(), user.state.top), (1, 2300));
    user.does(Event::TimeUp(Timer::Resize));
    assert_eq!(user.visits.last().unwrap().2, Layout { width: 700, height: 700, scale: 1.0 });
    user.answer();
    assert_eq!((user.visits.len(), user.state.top), (2, 2300));
    user.does(Event::TimeUp(Timer::Resize));
    assert_eq!(user.visits.len(), 2);
}

#[test]
fn a_restored_size_requests_nothing() {
    let mut user = User::at("http://a/1");
    user.does(sized(814, 564, false));
    user.does(sized(1014, 664, false));
    user.does(Event::TimeUp(Timer::Resize));
    assert_eq!(user.visits.len(), 1);
}

#[test]
fn a_window_of_unexpected_size_requests_its_page_again() {
    let mut user = User::starting_at("http://a/1");
    user.does(Event::Sized { width: 2028, height: 1328, scale: 2.0, made: true });
    assert!(user.effects.contains(&Effect::Cancel(1)));
    assert_eq!(user.visits.last().unwrap().2, Layout { width: 2000, height: 1200, scale: 2.0 });
    user.answer();
    assert_eq!(user.url(), "http://a/1");
    let mut user = User::starting_at("http://a/1");
    user.does(sized(1014, 664, true));
    assert_eq!(user.visits.len(), 1, "the size is as expected");
}

#[test]
fn a_failed_relayout_leaves_the_old_page() {
    let mut user = User::at("http://a/1");
    user.letter(CONTROL, "+");
    user.fails();
    assert_eq!(user.url(), "http://a/1");
    assert!(user.status().contains("no answer"));
}

#[test]
fn a_page_that_arrived_for_an_old_size_is_requested_again() {
    let mut user = User::starting_at("http://a/1");
    user.does(sized(814, 564, false));
    user.answer();
    assert!(user.effects.contains(&Effect::Start(Timer::Resize)));
    user.does(Event::TimeUp(Timer::Resize));
    assert_eq!(user.visits.last().unwrap().2.width, 800);
}

#[test]
fn matches_are_updated_for_a_new_page() {
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
fn closing_exits() {
    for letter in ["w", "q"] {
        let mut user = User::at("http://a/1");
        user.letter(CONTROL, letter);
        assert!(user.effects.contains(&Effect::Exit));
    }
    assert!(User::at("http://a/1").does(Event::Close).contains(&Effect::Exit));
}

#[test]
fn messages_are_shown_only_for_their_page() {
    let mut user = User::at("http://a/1");
    user.does(Event::Message { number: 1, message: "stored".to_string() });
    assert_eq!(user.status(), "stored");
    user.goes("http://a/2");
    assert_eq!(user.status(), "visit 2");
    user.does(Event::Message { number: 1, message: "late".to_string() });
    assert_eq!(user.status(), "visit 2");
}

#[test]
fn the_status_line_shows_whether_the_page_was_stored() {
    let mut user = User::at("http://a/1");
    assert_eq!(user.state.status().warm, Some(false));
    user.key(NONE, Key::F5);
    user.answer();
    assert_eq!(user.state.status().warm, Some(true));
    user.points(30.0, 50.0);
    assert_eq!(user.state.status().warm, None, "the status describes the link");
}

#[test]
fn without_a_page_the_address_bar_has_the_focus() {
    let (state, effects) = State::new(&WindowOptions::default(), "");
    assert!(state.visits.loading.is_none());
    assert_eq!((state.focus, effects.len()), (Focus::Address, 0));
}

#[test]
fn a_window_opened_with_the_last_options_requests_the_same_layout() {
    let mut user = User::at("http://a/1");
    user.does(Event::Sized { width: 1999, height: 1501, scale: 1.5, made: true });
    user.letter(CONTROL, "+");
    let options = user.state.as_options(WindowOptions::default());
    let (mut next, _) = State::new(&options, "http://a/1");
    next.handle(Event::Sized { width: 2000, height: 1502, scale: 1.5, made: true });
    let layout = user.state.layout();
    let close = |one: u32, other: u32| one.abs_diff(other) <= 1;
    assert!(close(next.layout().width, layout.width) && close(next.layout().height, layout.height));
    assert_eq!(next.layout().scale, layout.scale);
}
