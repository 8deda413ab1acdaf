//! Worker threads: one per visit.
//!
//! A thread visits its page, sends the result, waits until the page is on the screen, and then runs
//! the remaining work. A cancelled visit is notified through its `Progress`. Its thread ends by
//! itself, and its result is discarded.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use super::browse::{AfterShown, Browse, Progress, Reuse, Stage, Visit};
use super::event::{Arrival, Event};
use super::text::InterfaceFont;
use crate::Layout;
use crate::{Result, ViewError};

/// Wakes the window up, so that it handles its events.
type Wake = Box<dyn Fn() + Send>;

/// Sends events to the window, even before it exists.
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

    /// Sets the function that is called after each event.
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + 'static) {
        if let Ok(mut known) = self.wake.lock() {
            *known = Some(Box::new(wake));
        }
    }

    pub(crate) fn send(&self, event: Event) {
        // An error is ignored: the window is closed.
        _ = self.events.send(event);
        if let Ok(known) = self.wake.lock()
            && let Some(wake) = &*known
        {
            wake();
        }
    }
}

/// Running visits, and the work that follows them.
pub(crate) struct Workers {
    shared: Shared,
    running: HashMap<u64, Running>,
}

/// Data shared by all threads.
#[derive(Clone)]
struct Shared {
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
        let shared = Shared { browse, outlet, has_font: Arc::default() };
        let font = shared.clone();
        // If this thread can't be started, the font is requested after the first visit.
        _ = Builder::new().name("font".to_string()).spawn(move || font.request_font());
        Workers { shared, running: HashMap::new() }
    }

    /// Starts a visit. Its events carry `number`.
    pub(crate) fn visit(&mut self, number: u64, address: String, layout: Layout, reuse: Reuse) {
        self.running.retain(|_, running| !running.thread.is_finished());
        let shared = self.shared.clone();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (shown, is_shown) = channel();
        let flag = cancelled.clone();
        let work = move || shared.work(number, &address, layout, reuse, flag, &is_shown);
        match Builder::new().name("visit".to_string()).spawn(work) {
            Ok(thread) => {
                let running = Running { cancelled, shown, is_shown: false, thread };
                self.running.insert(number, running);
            }
            Err(error) => {
                let why = format!("cannot start a thread: {error}");
                let result = Err(ViewError::NoWindow(why));
                self.shared.outlet.send(Event::Arrived { number, result });
            }
        }
    }

    /// Cancels a visit.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(running) = self.running.remove(&number) {
            running.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Notifies a visit that its page is on the screen.
    pub(crate) fn shown(&mut self, number: u64) {
        if let Some(running) = self.running.get_mut(&number) {
            running.is_shown = true;
            // An error is ignored: the thread has ended because no work remains.
            _ = running.shown.send(());
        }
    }

    /// Returns the provider of pages.
    pub(crate) fn browse(&self) -> &dyn Browse {
        &*self.shared.browse
    }

    /// Cancels running visits, and waits for the remaining work of pages that were shown.
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

impl Shared {
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
        let progress = Progress::new(report, cancelled);
        let (result, after) = split(self.visit(address, layout, reuse, &progress));
        // The font is requested first, so that the page's first frame has all its text.
        self.request_font();
        self.outlet.send(Event::Arrived { number, result });
        let Some(after) = after else { return };
        if is_shown.recv().is_err() {
            return;
        }
        // A panic in this work must not end the window.
        if let Ok(Some(message)) = catch_unwind(AssertUnwindSafe(after)) {
            self.outlet.send(Event::Message { number, message });
        }
    }

    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        progress: &Progress,
    ) -> Result<Visit> {
        let visit = || self.browse.visit(address, layout, reuse, progress);
        catch_unwind(AssertUnwindSafe(visit)).unwrap_or_else(|_| {
            let what = "or the viewer failed".to_string();
            Err(ViewError::Engine { url: address.to_string(), what })
        })
    }

    fn request_font(&self) {
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

/// Separates the window's part of a visit from the thread's.
fn split(visit: Result<Visit>) -> (Result<Arrival>, Option<AfterShown>) {
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

    /// Returns a page. "slow" waits until the visit is cancelled, and "broken" panics.
    #[derive(Default)]
    struct Pages {
        done_after: Arc<AtomicU32>,
        font_requests: AtomicU32,
    }

    impl Browse for Pages {
        fn visit(&self, address: &str, layout: Layout, _: Reuse, w: &Progress) -> Result<Visit> {
            w.report(Stage::new("looking"));
            while address == "slow" && !w.is_cancelled() {
                std::thread::yield_now();
            }
            assert_ne!(address, "broken", "the test provokes a panic");
            let done = self.done_after.clone();
            let after = move || {
                done.fetch_add(1, Ordering::Relaxed);
                Some("stored".to_string())
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
            self.font_requests.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    fn workers() -> (Arc<Pages>, Workers, Receiver<Event>) {
        let pages = Arc::new(Pages::default());
        let (outlet, events) = Outlet::new();
        (pages.clone(), Workers::new(pages, outlet), events)
    }

    /// Returns the result of a visit.
    fn arrival(events: &Receiver<Event>) -> (u64, Result<Arrival>) {
        loop {
            if let Event::Arrived { number, result } = events.recv().unwrap() {
                return (number, result);
            }
        }
    }

    #[test]
    fn work_after_a_shown_page_runs_even_if_the_window_closes() {
        let (pages, mut workers, events) = workers();
        workers.visit(1, "one".to_string(), LAYOUT, Reuse::Page);
        assert!(matches!(arrival(&events), (1, Ok(arrival)) if arrival.url == "one"));
        workers.shown(1);
        workers.finish();
        assert_eq!(pages.done_after.load(Ordering::Relaxed), 1);
        assert!(
            matches!(events.recv().unwrap(), Event::Message { number: 1, message } if message == "stored")
        );
    }

    #[test]
    fn no_work_runs_after_a_page_that_was_not_shown() {
        let (pages, mut workers, events) = workers();
        workers.visit(1, "one".to_string(), LAYOUT, Reuse::Page);
        assert!(arrival(&events).1.is_ok());
        workers.finish();
        // The thread ends by itself and closes the channel.
        while events.recv().is_ok() {}
        assert_eq!(pages.done_after.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_cancelled_visit_is_notified() {
        let (_, mut workers, events) = workers();
        workers.visit(1, "slow".to_string(), LAYOUT, Reuse::Page);
        assert!(matches!(events.recv().unwrap(), Event::Progress { number: 1, .. }));
        workers.cancel(1);
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
    fn a_font_is_requested_until_there_is_one() {
        let (pages, mut workers, events) = workers();
        for number in 1..=3 {
            workers.visit(number, "one".to_string(), LAYOUT, Reuse::Page);
            assert!(arrival(&events).1.is_ok());
        }
        assert!(pages.font_requests.load(Ordering::Relaxed) >= 3);
    }
}
