//! Tests of composed frames: the same pixels for every way to reach a state, and no repeated
//! painting.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn tiny_windows_do_not_panic() {
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

/// Returns the page's part of the window.
fn page_rows(state: &State, pixels: &[u32]) -> Vec<u32> {
    let Rectangle { top, width, height, .. } = state.geometry.page;
    let window = state.geometry.window.0 as usize;
    let rows = pixels.chunks(window).skip(top as usize).take(height as usize);
    rows.flat_map(|row| row[..width as usize].to_vec()).collect()
}

#[test]
fn scrolling_requests_only_new_rows_and_gives_the_same_pixels() {
    let mut user = User::at("http://a/1");
    let mut frame = Frame::default();
    let mut pixels = vec![0; 1014 * 664];
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_eq!(frame.requested_rows, 600);
    let moves = [
        (Key::Down, 40),
        (Key::Up, 40),
        (Key::PageDown, 560),
        (Key::PageDown, 560),
        (Key::End, 600),
        (Key::PageUp, 560),
        (Key::Tab, 600),
    ];
    let mut requested = 600;
    for (key, rows) in moves {
        user.key(NONE, key.clone());
        frame.compose(&user.state, &mut pixels).unwrap();
        requested += rows;
        assert_eq!(frame.requested_rows, requested, "{key:?}");
        let mut again = vec![0; 1014 * 664];
        Frame::default().compose(&user.state, &mut again).unwrap();
        assert!(again == pixels, "{key:?}");
    }
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_eq!(frame.requested_rows, requested, "nothing has moved");
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
    assert_eq!(frame.requested_rows, 600, "no row is painted twice");
}

#[test]
fn matches_and_the_focus_ring_are_visible() {
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

#[test]
fn a_wide_page_scrolls_sideways_to_its_end() {
    let mut user = User::at("http://a/1");
    let page = fake::wide("http://a/1", user.state.layout());
    user.key(NONE, Key::F5);
    let arrival = Arrival {
        page,
        url: "http://a/1".to_string(),
        warm: true,
        summary: String::new(),
        took: std::time::Duration::ZERO,
    };
    user.does(Event::Arrived { number: 2, result: Ok(arrival) });
    let bar = user.state.geometry.horizontal_bar();
    assert_eq!((bar.width, bar.height), (1000, 14));
    user.key(NONE, Key::End);
    assert_eq!(user.state.top, 3000 + 14 - 600, "the last rows are not covered by the bar");
    user.key(NONE, Key::Right);
    assert_eq!(user.state.left, 40);
    user.does(Event::Wheel { x: 5000.0, y: 0.0 });
    assert_eq!(user.state.left, 1000);
    let y = f64::from(bar.top + 5);
    let thumb = user.state.scroll().horizontal_thumb().unwrap();
    user.points(f64::from(thumb.left + 5), y);
    user.does(Event::Pressed);
    user.points(0.0, y - 200.0);
    user.does(Event::Released);
    assert_eq!(user.state.left, 0);
    user.clicks(990.0, y);
    assert_eq!((user.state.left, user.visits.len()), (560, 2));
    let mut pixels = vec![0; 1014 * 664];
    Frame::default().compose(&user.state, &mut pixels).unwrap();
    // The page's right half is white, and its left half is not.
    let row = 300 * 1014;
    assert_eq!((pixels[row + 300] == 0x00FF_FFFF, pixels[row + 600]), (false, 0x00FF_FFFF));
}

#[test]
fn painting_time_is_that_of_a_pages_first_frame() {
    let mut user = User::at("http://a/1");
    let mut frame = Frame::default();
    let mut pixels = vec![0; 1014 * 664];
    frame.compose(&user.state, &mut pixels).unwrap();
    let (visit, took) = frame.painting;
    assert!(took > std::time::Duration::ZERO);
    user.key(NONE, Key::End);
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_eq!(frame.painting, (visit, took), "scrolling is not a visit");
    user.key(NONE, Key::F5);
    user.answer();
    frame.compose(&user.state, &mut pixels).unwrap();
    assert_ne!(frame.painting.0, visit);
}
