//! What is done while the display is being opened, on a thread of its own: the first page is taken in and painted.
//!
//! Opening a display takes tens of milliseconds, most of it waiting for the server and reading key tables. A page that is
//! kept is there before that is over, and what the first frame shows has then been drawn once: glyphs are outlined, bands
//! are painted, panels are ready.

use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use super::frame::Frame;
use super::state::{Effect, Event, State};
use crate::{Result, ViewError};

/// The window's state and frame, while there is no window.
pub(crate) struct Prelude {
    thread: JoinHandle<Prepared>,
}

/// What was prepared, and what is still to be done about it.
pub(crate) struct Prepared {
    pub state: State,
    pub frame: Frame,
    pub events: Receiver<Event>,
    pub effects: Vec<Effect>,
}

impl Prelude {
    /// Handles events until [`Event::Opened`].
    pub(crate) fn begin(state: State, events: Receiver<Event>) -> Result<Prelude> {
        let thread = Builder::new()
            .name("first frame".to_string())
            .spawn(move || prepare(state, events))
            .map_err(|error| failed(&format!("no thread can be started: {error}")))?;
        Ok(Prelude { thread })
    }

    /// Waits for what is being done; [`Event::Opened`] has to be on its way.
    pub(crate) fn end(self) -> Result<Prepared> {
        self.thread.join().map_err(|_| failed("the first frame could not be prepared"))
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
            // What can't be painted is found out, and said, by the window itself.
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
    use super::super::fake;
    use super::super::state::Arrival;
    use super::*;

    #[test]
    fn the_first_frame_is_painted_before_there_is_a_window() {
        let (state, _) = State::new(&WindowOptions::default(), "http://a/1");
        let (send, events) = channel();
        let page = fake::site("http://a/1", state.layout());
        let height = u64::from(state.layout().height);
        let prelude = Prelude::begin(state, events).unwrap();
        let url = "http://a/1".to_string();
        let (summary, took) = (String::new(), Duration::ZERO);
        let arrival = Arrival { page, url, warm: true, summary, took };
        send.send(Event::Arrived { number: 1, result: Ok(arrival) }).unwrap();
        send.send(Event::Opened).unwrap();
        send.send(Event::Close).unwrap();
        let mut prepared = prelude.end().unwrap();
        assert_eq!(prepared.frame.asked_rows, height);
        assert!(prepared.effects.contains(&Effect::Shown(1)));
        assert!(matches!(prepared.events.try_recv(), Ok(Event::Close)), "what came later is left");
        let (width, height) = prepared.state.geometry.window;
        let mut pixels = vec![0; (width * height) as usize];
        let before = prepared.frame.asked_rows;
        prepared.frame.compose(&prepared.state, &mut pixels).unwrap();
        assert_eq!(prepared.frame.asked_rows, before, "nothing is painted twice");
    }

    #[test]
    fn a_page_that_is_late_is_not_waited_for() {
        let (state, _) = State::new(&WindowOptions::default(), "http://a/1");
        let (send, events) = channel();
        let prelude = Prelude::begin(state, events).unwrap();
        send.send(Event::Opened).unwrap();
        assert!(prelude.end().unwrap().state.loading.is_some());
    }
}
