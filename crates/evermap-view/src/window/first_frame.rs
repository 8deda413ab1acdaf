//! Prepares the first frame while the display is being opened, on a separate thread.
//!
//! Opening a display takes tens of milliseconds, mostly waiting for the server and reading key
//! tables. A stored page arrives before that. So the first frame is composed in advance: its glyphs
//! are outlined, its bands are painted, and its panels are ready.

use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use super::event::{Effect, Event};
use super::frame::Frame;
use super::state::State;
use crate::{Result, ViewError};

/// The window's state and frame before the window exists.
pub(crate) struct FirstFrame {
    thread: JoinHandle<Prepared>,
}

/// The prepared state and frame, and the effects that remain to be performed.
pub(crate) struct Prepared {
    pub state: State,
    pub frame: Frame,
    pub events: Receiver<Event>,
    pub effects: Vec<Effect>,
}

impl FirstFrame {
    /// Starts a thread that handles events until [`Event::Opened`].
    pub(crate) fn begin(state: State, events: Receiver<Event>) -> Result<FirstFrame> {
        let thread = Builder::new()
            .name("first frame".to_string())
            .spawn(move || prepare(state, events))
            .map_err(|error| failed(&format!("cannot start a thread: {error}")))?;
        Ok(FirstFrame { thread })
    }

    /// Waits for the thread. [`Event::Opened`] must have been sent.
    pub(crate) fn end(self) -> Result<Prepared> {
        self.thread.join().map_err(|_| failed("preparing the first frame failed"))
    }
}

fn failed(why: &str) -> ViewError {
    ViewError::NoWindow(why.to_string())
}

fn prepare(mut state: State, events: Receiver<Event>) -> Prepared {
    let mut frame = Frame::default();
    let mut effects = Vec::new();
    let (width, height) = state.geometry.window;
    let mut pixels = vec![0; width as usize * height as usize];
    while let Ok(event) = events.recv() {
        let is_page = matches!(event, Event::Arrived { .. });
        if matches!(event, Event::Opened) {
            break;
        }
        effects.extend(state.handle(event));
        if is_page {
            // The window reports paint errors itself, when it draws its first frame.
            _ = frame.compose(&state, &mut pixels);
        }
    }
    Prepared { state, frame, events, effects }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::browse::WindowOptions;
    use super::super::event::Arrival;
    use super::super::fake;
    use super::*;

    #[test]
    fn the_first_frame_is_painted_before_there_is_a_window() {
        let (state, _) = State::new(&WindowOptions::default(), "http://a/1");
        let (send, events) = channel();
        let page = fake::site("http://a/1", state.layout());
        let height = u64::from(state.layout().height);
        let first_frame = FirstFrame::begin(state, events).unwrap();
        let url = "http://a/1".to_string();
        let (summary, took) = (String::new(), Duration::ZERO);
        let arrival = Arrival { page, url, warm: true, summary, took };
        send.send(Event::Arrived { number: 1, result: Ok(arrival) }).unwrap();
        send.send(Event::Opened).unwrap();
        send.send(Event::Close).unwrap();
        let mut prepared = first_frame.end().unwrap();
        assert_eq!(prepared.frame.requested_rows, height);
        assert!(prepared.effects.contains(&Effect::Shown(1)));
        assert!(
            matches!(prepared.events.try_recv(), Ok(Event::Close)),
            "later events remain in the queue"
        );
        let (width, height) = prepared.state.geometry.window;
        let mut pixels = vec![0; (width * height) as usize];
        let before = prepared.frame.requested_rows;
        prepared.frame.compose(&prepared.state, &mut pixels).unwrap();
        assert_eq!(prepared.frame.requested_rows, before, "nothing is painted twice");
    }

    #[test]
    fn the_first_frame_does_not_wait_for_a_late_page() {
        let (state, _) = State::new(&WindowOptions::default(), "http://a/1");
        let (send, events) = channel();
        let first_frame = FirstFrame::begin(state, events).unwrap();
        send.send(Event::Opened).unwrap();
        assert!(first_frame.end().unwrap().state.visits.loading.is_some());
    }
}
