//! Visits and the history: which page is shown, and which is loading.
//!
//! Only one visit is in progress at a time. A new one supersedes it. The result of an older visit
//! is recognised by its number and discarded.

use super::browse::{Reuse, Stage};
use super::history::ScrollPosition;
use super::state::{
    Arrival, Content, Effect, Failure, Focus, Loading, Purpose, Shown, State, Timer,
};
use crate::ViewError;

impl State {
    /// Opens an address that a user typed or a link names.
    pub(super) fn open(&mut self, address: &str) {
        let address = address.trim();
        if address.is_empty() {
            return;
        }
        if self.jumps_within_page(address) {
            return;
        }
        self.address.set(address);
        self.edited = false;
        self.visit(address.to_string(), Purpose::Open, Reuse::Page);
    }

    /// Scrolls if `url` is a fragment of the page that is shown.
    fn jumps_within_page(&mut self, url: &str) -> bool {
        let Some(shown) = self.shown() else { return false };
        let Some(fragment) = fragment(url).filter(|_| same_document(&shown.url, url)) else {
            return false;
        };
        let fragment = fragment.to_string();
        self.cancel_visit();
        self.history.record_position(self.position());
        if self.history.current().is_none_or(|entry| entry.url != url) {
            self.history.push(url.to_string());
        }
        self.renamed(url.to_string());
        self.scroll_to_fragment(&fragment);
        true
    }

    pub(super) fn travel(&mut self, steps: isize) {
        let Some((number, entry)) = self.history.ahead(steps) else { return };
        let (url, position) = (entry.url.clone(), entry.position);
        self.focus = Focus::Page;
        if self.shown().is_some_and(|shown| same_document(&shown.url, &url)) {
            self.cancel_visit();
            self.history.record_position(self.position());
            self.history.go(number);
            self.renamed(url);
            self.scroll_to_position(position);
            return;
        }
        self.address.set(&url);
        self.edited = false;
        self.visit(url, Purpose::Travel(number, position), Reuse::Page);
    }

    pub(crate) fn has_home(&self) -> bool {
        !self.home.is_empty()
    }

    pub(super) fn go_home(&mut self) {
        let home = self.home.clone();
        self.focus = Focus::Page;
        self.open(&home);
    }

    /// Visits the page again. With `fresh`, ignores stored data.
    pub(super) fn reload(&mut self, fresh: bool) {
        let (address, purpose) = match (&self.loading, &self.content) {
            (Some(loading), _) => (loading.address.clone(), loading.purpose),
            (None, Content::Page(shown)) => (shown.url.clone(), Purpose::Reload),
            (None, Content::Failed(failure)) => (failure.address.clone(), Purpose::Reload),
            (None, Content::Nothing) => (self.address.text().to_string(), Purpose::Open),
        };
        if !address.is_empty() {
            let reuse = if fresh { Reuse::Nothing } else { Reuse::Page };
            self.visit(address, purpose, reuse);
        }
    }

    /// Visits the page in the window's current size and zoom, unless that page is shown or loading
    /// already.
    pub(super) fn relayout(&mut self) {
        let layout = self.layout();
        if let Some(loading) = &self.loading {
            let (address, purpose, reuse) =
                (loading.address.clone(), loading.purpose, loading.reuse);
            if loading.layout != layout {
                self.visit(address, purpose, reuse);
            }
            return;
        }
        let shown = self.shown().filter(|shown| shown.layout != layout);
        if let Some(address) = shown.map(|shown| shown.url.clone()) {
            self.visit(address, Purpose::Relayout, Reuse::Page);
        }
    }

    fn visit(&mut self, address: String, purpose: Purpose, reuse: Reuse) {
        self.cancel_visit();
        self.numbers += 1;
        self.message.clear();
        let (number, layout) = (self.numbers, self.layout());
        self.effects.push(Effect::Visit { number, address: address.clone(), layout, reuse });
        self.effects.push(Effect::Start(Timer::Loading));
        let loading = Loading { number, address, purpose, layout, reuse, stage: None, ticks: 0 };
        self.loading = Some(loading);
        self.redraw();
    }

    fn cancel_visit(&mut self) {
        if let Some(loading) = self.loading.take() {
            self.effects.push(Effect::Cancel(loading.number));
            self.redraw();
        }
    }

    /// Stops the visit at the user's request. The current page stays.
    pub(super) fn stop(&mut self) {
        if self.loading.is_none() {
            return;
        }
        self.cancel_visit();
        self.message = "stopped".to_string();
        self.restore_address();
    }

    /// Sets the address bar to the address of the page that is shown.
    pub(super) fn restore_address(&mut self) {
        let address = match &self.content {
            Content::Page(shown) => shown.url.clone(),
            Content::Failed(failure) => failure.address.clone(),
            Content::Nothing => self.address.text().to_string(),
        };
        self.address.set(&address);
        self.edited = false;
        self.redraw();
    }

    pub(super) fn progress(&mut self, number: u64, stage: Stage) {
        if let Some(loading) = self.loading.as_mut().filter(|loading| loading.number == number) {
            loading.stage = Some(stage);
            if loading.ticks > 0 {
                self.redraw();
            }
        }
    }

    /// Called periodically while a visit is in progress.
    pub(super) fn waited(&mut self) {
        if let Some(loading) = &mut self.loading {
            loading.ticks += 1;
            self.effects.push(Effect::Start(Timer::Loading));
            self.redraw();
        }
    }

    pub(super) fn arrived(&mut self, number: u64, result: Result<Arrival, ViewError>) {
        let Some(loading) = self.loading.take_if(|loading| loading.number == number) else {
            return;
        };
        match result {
            Ok(arrival) => self.show(loading, arrival),
            Err(error) if loading.purpose == Purpose::Relayout => {
                // The page is still shown in the old size.
                self.message = error.to_string();
            }
            Err(error) => self.fail(loading, &error),
        }
        self.redraw();
    }

    fn show(&mut self, loading: Loading, arrival: Arrival) {
        let (stays, position) = (self.shown().is_some(), self.position());
        let url = with_fragment_of(arrival.url, &loading.address);
        self.enter(loading.purpose, &url);
        self.content = Content::Page(Shown {
            page: arrival.page,
            url: url.clone(),
            layout: loading.layout,
            warm: arrival.warm,
            summary: arrival.summary,
            took: arrival.took,
            number: loading.number,
        });
        self.effects.push(Effect::Shown(loading.number));
        if loading.purpose != Purpose::Relayout {
            self.ring = None;
        }
        self.renamed(url.clone());
        match loading.purpose {
            Purpose::Travel(_, position) => self.scroll_to_position(position),
            Purpose::Reload | Purpose::Relayout if stays => self.scroll_to_position(position),
            _ => match fragment(&url) {
                Some(fragment) => self.scroll_to_fragment(fragment),
                None => self.scroll_to(0, 0),
            },
        }
        self.find_again();
        if self.layout() != loading.layout {
            // The window was resized during the visit.
            self.effects.push(Effect::Start(Timer::Resize));
        }
    }

    fn fail(&mut self, loading: Loading, error: &ViewError) {
        self.enter(loading.purpose, &loading.address);
        self.ring = None;
        self.content = Content::Failed(Failure::of(loading.address.clone(), error));
        self.renamed(loading.address);
        self.scroll_to(0, 0);
        self.find_again();
    }

    /// Handles a page that could not be painted. A stored page that is damaged is laid out again at
    /// the same scroll position.
    pub(super) fn unpaintable(&mut self, error: &ViewError) {
        let Some(shown) = self.shown() else { return };
        let (address, warm) = (shown.url.clone(), shown.warm);
        if warm && error.is_damage() {
            let position = self.position();
            self.content = Content::Nothing;
            if self.loading.is_none() {
                let purpose = Purpose::Travel(self.history.number(), position);
                self.visit(address, purpose, Reuse::Resources);
            }
            return;
        }
        self.content = Content::Failed(Failure::of(address, error));
        self.redraw();
    }

    /// Updates the history when a requested page has arrived.
    fn enter(&mut self, purpose: Purpose, url: &str) {
        self.history.record_position(self.position());
        match purpose {
            Purpose::Open if self.history.current().is_none_or(|entry| entry.url != url) => {
                self.history.push(url.to_string());
            }
            Purpose::Travel(number, _) => {
                self.history.go(number);
                self.history.rename(url.to_string());
            }
            _ => self.history.rename(url.to_string()),
        }
    }

    /// Sets the address and the title of the page that is shown.
    fn renamed(&mut self, url: String) {
        let title = self.block().map_or("", |block| block.title());
        let name = if title.is_empty() { url.as_str() } else { title };
        self.effects.push(Effect::Title(format!("{name} - Evermap")));
        if !(self.edited && self.focus == Focus::Address) {
            self.address.set(&url);
            self.edited = false;
            if self.focus == Focus::Address {
                self.address.select_all();
            }
        }
        if let Content::Page(shown) = &mut self.content {
            shown.url = url;
        }
        self.redraw();
    }

    pub(super) fn show_message(&mut self, number: u64, message: String) {
        if self.shown().is_some_and(|shown| shown.number == number) {
            self.message = message;
            self.redraw();
        }
    }

    /// Returns the scroll position.
    pub(crate) fn position(&self) -> ScrollPosition {
        self.block().map_or(ScrollPosition::default(), |block| {
            ScrollPosition::on(block, self.left, self.top)
        })
    }
}

impl Failure {
    fn of(address: String, error: &ViewError) -> Failure {
        let message = error.to_string();
        // In all error messages of this project, the remedy follows the cause after a semicolon.
        let (why, remedy) = message.split_once("; ").unwrap_or((&message, ""));
        Failure { address, why: why.to_string(), remedy: remedy.to_string() }
    }
}

/// Returns the part after the `#`.
fn fragment(url: &str) -> Option<&str> {
    // A file name typed by a user may contain a `#`.
    let is_url = url.contains("://") || url.starts_with("file:") || url.starts_with("data:");
    url.split_once('#').map(|(_, fragment)| fragment).filter(|_| is_url)
}

fn same_document(one: &str, other: &str) -> bool {
    let document = |url: &str| match fragment(url) {
        Some(fragment) => url.len() - fragment.len() - 1,
        None => url.len(),
    };
    one[..document(one)] == other[..document(other)]
}

/// Servers do not receive the fragment, so it is not in a redirected address.
fn with_fragment_of(url: String, requested: &str) -> String {
    match fragment(requested) {
        Some(fragment) if !url.contains('#') => url + "#" + fragment,
        _ => url,
    }
}
