//! The threads that visits run on, one each.
//!
//! A thread asks for its page, hands it over, waits until the page is on the screen, and then does what is to be done after
//! that. A visit that is given up on is told so; its thread ends by itself, and what it brings is thrown away.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use super::browse::{Afterwards, Browse, Reuse, Stage, Visit, Waiting};
use super::state::{Arrival, Event};
use super::text::InterfaceFont;
use crate::Layout;
use crate::{Result, ViewError};

/// Wakes the window up to look at its events.
type Wake = Box<dyn Fn() + Send>;

/// Sends events to the window, which may not be there yet.
#[derive(Clone)]
pub(crate) struct Outlet {
    events: Sender<Event>,
    wake: Arc<Mutex<Option<Wake>>>,
}

impl Outlet {
    pub(crate) fn new() -> (Outlet, Receiver<Event>) {
        let (events, receiver) = channel();
        (Outlet { events, wake: Arc::default() }, receiver)
    }

    /// From now on, `wake` is called after each event.
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + 'static) {
        if let Ok(mut known) = self.wake.lock() {
            *known = Some(Box::new(wake));
        }
    }

    pub(crate) fn send(&self, event: Event) {
        // Nobody listens to a window that is closed.
        _ = self.events.send(event);
        if let Ok(known) = self.wake.lock()
            && let Some(wake) = &*known
        {
            wake();
        }
    }
}

/// The visits that are under way, and what goes on after them.
pub(crate) struct Workers {
    asked: Asked,
    running: HashMap<u64, Running>,
}

/// What each thread needs.
#[derive(Clone)]
struct Asked {
    browse: Arc<dyn Browse>,
    outlet: Outlet,
    has_font: Arc<Mutex<bool>>,
}

struct Running {
    cancelled: Arc<AtomicBool>,
    shown: Sender<()>,
    is_shown: bool,
    thread: JoinHandle<()>,
}

impl Workers {
    pub(crate) fn new(browse: Arc<dyn Browse>, outlet: Outlet) -> Workers {
        let asked = Asked { browse, outlet, has_font: Arc::default() };
        let font = asked.clone();
        // Without this thread the font is asked for after the first visit.
        _ = Builder::new().name("font".to_string()).spawn(move || font.ask_for_font());
        Workers { asked, running: HashMap::new() }
    }

    /// Begins a visit. Its events have its number.
    pub(crate) fn visit(&mut self, number: u64, address: String, layout: Layout, reuse: Reuse) {
        self.running.retain(|_, running| !running.thread.is_finished());
        let asked = self.asked.clone();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (shown, is_shown) = channel();
        let told = cancelled.clone();
        let work = move || asked.work(number, &address, layout, reuse, told, &is_shown);
        match Builder::new().name("visit".to_string()).spawn(work) {
            Ok(thread) => {
                let running = Running { cancelled, shown, is_shown: false, thread };
                self.running.insert(number, running);
            }
            Err(error) => {
                let why = format!("no thread can be started: {error}");
                let result = Err(ViewError::NoWindow(why));
                self.asked.outlet.send(Event::Arrived { number, result });
            }
        }
    }

    /// Nobody waits for this visit any longer.
    pub(crate) fn give_up(&mut self, number: u64) {
        if let Some(running) = self.running.remove(&number) {
            running.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// The page of this visit is on the screen.
    pub(crate) fn shown(&mut self, number: u64) {
        if let Some(running) = self.running.get_mut(&number) {
            running.is_shown = true;
            // A thread that has nothing to do after that has ended.
            _ = running.shown.send(());
        }
    }

    /// Whom the visits are asked of.
    pub(crate) fn browse(&self) -> &dyn Browse {
        &*self.asked.browse
    }

    /// Gives up on what is still waited for, and waits for what pages that were shown have still to do.
    pub(crate) fn finish(self) {
        for running in self.running.into_values() {
            running.cancelled.store(true, Ordering::Relaxed);
            drop(running.shown);
            if running.is_shown {
                _ = running.thread.join();
            }
        }
    }
}

impl Asked {
    fn work(
        &self,
        number: u64,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        cancelled: Arc<AtomicBool>,
        is_shown: &Receiver<()>,
    ) {
        let outlet = self.outlet.clone();
        let report = move |stage: Stage| outlet.send(Event::Progress { number, stage });
        let waiting = Waiting::new(report, cancelled);
        let (result, after) = split(self.ask(address, layout, reuse, &waiting));
        // The page's first frame is to have all its text.
        self.ask_for_font();
        self.outlet.send(Event::Arrived { number, result });
        let Some(after) = after else { return };
        if is_shown.recv().is_err() {
            return;
        }
        // What is done after the page was shown can't take the window down.
        if let Ok(Some(message)) = catch_unwind(AssertUnwindSafe(after)) {
            self.outlet.send(Event::Kept { number, message });
        }
    }

    fn ask(&self, address: &str, layout: Layout, reuse: Reuse, waiting: &Waiting) -> Result<Visit> {
        let visit = || self.browse.visit(address, layout, reuse, waiting);
        catch_unwind(AssertUnwindSafe(visit)).unwrap_or_else(|_| {
            let what = "or the viewer failed".to_string();
            Err(ViewError::Engine { url: address.to_string(), what })
        })
    }

    fn ask_for_font(&self) {
        let Ok(mut known) = self.has_font.lock() else { return };
        if *known {
            return;
        }
        let font = catch_unwind(AssertUnwindSafe(|| self.browse.interface_font())).ok().flatten();
        if let Some(font) = font.and_then(|(bytes, index)| InterfaceFont::new(bytes, index)) {
            *known = true;
            self.outlet.send(Event::Font(font));
        }
    }
}

/// What the window gets, and what stays on the thread.
fn split(visit: Result<Visit>) -> (Result<Arrival>, Option<Afterwards>) {
    match visit {
        Ok(visit) => {
            let Visit { page, url, warm, summary, took, after } = visit;
            (Ok(Arrival { page, url, warm, summary, took }), after)
        }
        Err(error) => (Err(error), None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicU32;

    use super::super::fake;
    use super::*;
    use crate::paint::SharedBytes;

    const LAYOUT: Layout = Layout { width: 100, height: 100, scale: 1.0 };

    /// Answers with a page; "slow" waits until nobody waits any longer, "broken" panics.
    #[derive(Default)]
    struct Pages {
        done_after: Arc<AtomicU32>,
        asked_for_font: AtomicU32,
    }

    impl Browse for Pages {
        fn visit(&self, address: &str, layout: Layout, _: Reuse, w: &Waiting) -> Result<Visit> {
            w.progress(Stage::new("looking"));
            while address == "slow" && !w.cancelled() {
                std::thread::yield_now();
            }
            assert_ne!(address, "broken", "what the test does");
            let done = self.done_after.clone();
            let after = move || {
                done.fetch_add(1, Ordering::Relaxed);
                Some("kept".to_string())
            };
            Ok(Visit {
                page: fake::site("http://a/1", layout),
                url: address.to_string(),
                warm: false,
                summary: String::new(),
                took: std::time::Duration::ZERO,
                after: Some(Box::new(after)),
            })
        }

        fn interface_font(&self) -> Option<(SharedBytes, u32)> {
            self.asked_for_font.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    fn workers() -> (Arc<Pages>, Workers, Receiver<Event>) {
        let pages = Arc::new(Pages::default());
        let (outlet, events) = Outlet::new();
        (pages.clone(), Workers::new(pages, outlet), events)
    }

    /// What a visit brings in the end.
    fn arrival(events: &Receiver<Event>) -> (u64, Result<Arrival>) {
        loop {
            if let Event::Arrived { number, result } = events.recv().unwrap() {
                return (number, result);
            }
        }
    }

    #[test]
    fn what_is_done_after_a_page_was_shown_is_done_even_if_the_window_closes() {
        let (pages, mut workers, events) = workers();
        workers.visit(1, "one".to_string(), LAYOUT, Reuse::Page);
        assert!(matches!(arrival(&events), (1, Ok(arrival)) if arrival.url == "one"));
        workers.shown(1);
        workers.finish();
        assert_eq!(pages.done_after.load(Ordering::Relaxed), 1);
        assert!(
            matches!(events.recv().unwrap(), Event::Kept { number: 1, message } if message == "kept")
        );
    }

    #[test]
    fn nothing_is_done_after_a_page_that_was_not_shown() {
        let (pages, mut workers, events) = workers();
        workers.visit(1, "one".to_string(), LAYOUT, Reuse::Page);
        assert!(arrival(&events).1.is_ok());
        workers.finish();
        // The thread ends by itself, and with it the last end of the channel.
        while events.recv().is_ok() {}
        assert_eq!(pages.done_after.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_visit_that_is_given_up_is_told_so() {
        let (_, mut workers, events) = workers();
        workers.visit(1, "slow".to_string(), LAYOUT, Reuse::Page);
        assert!(matches!(events.recv().unwrap(), Event::Progress { number: 1, .. }));
        workers.give_up(1);
        assert_eq!(arrival(&events).0, 1);
    }

    #[test]
    fn a_visit_that_panics_is_an_error() {
        let (_, mut workers, events) = workers();
        workers.visit(7, "broken".to_string(), LAYOUT, Reuse::Page);
        let (number, result) = arrival(&events);
        assert_eq!(number, 7);
        assert!(matches!(result, Err(ViewError::Engine { .. })));
    }

    #[test]
    fn a_font_is_asked_for_until_there_is_one() {
        let (pages, mut workers, events) = workers();
        for number in 1..=3 {
            workers.visit(number, "one".to_string(), LAYOUT, Reuse::Page);
            assert!(arrival(&events).1.is_ok());
        }
        assert!(pages.asked_for_font.load(Ordering::Relaxed) >= 3);
    }
}
