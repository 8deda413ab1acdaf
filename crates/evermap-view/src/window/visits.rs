//! Which page is shown, and which is waited for: visits, the history, what comes back.
//!
//! One visit at a time is waited for. A new one supersedes it; what an older one brings is thrown away, by its number.

use super::browse::{Reuse, Stage};
use super::history::Place;
use super::state::{
    Arrival, Content, Effect, Failure, Focus, Loading, Purpose, Shown, State, Timer,
};
use crate::ViewError;

impl State {
    /// Goes to what a user typed or a link names.
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

    /// Scrolls, if `url` is a place on the page that is shown.
    fn jumps_within_page(&mut self, url: &str) -> bool {
        let Some(shown) = self.shown() else { return false };
        let Some(fragment) = fragment(url).filter(|_| same_document(&shown.url, url)) else {
            return false;
        };
        let fragment = fragment.to_string();
        self.stop_waiting();
        self.history.note_place(self.place());
        if self.history.current().is_none_or(|entry| entry.url != url) {
            self.history.push(url.to_string());
        }
        self.renamed(url.to_string());
        self.scroll_to_fragment(&fragment);
        true
    }

    pub(super) fn travel(&mut self, steps: isize) {
        let Some((number, entry)) = self.history.ahead(steps) else { return };
        let (url, place) = (entry.url.clone(), entry.place);
        self.focus = Focus::Page;
        if self.shown().is_some_and(|shown| same_document(&shown.url, &url)) {
            self.stop_waiting();
            self.history.note_place(self.place());
            self.history.go(number);
            self.renamed(url);
            self.scroll_to_place(place);
            return;
        }
        self.address.set(&url);
        self.edited = false;
        self.visit(url, Purpose::Travel(number, place), Reuse::Page);
    }

    pub(crate) fn has_home(&self) -> bool {
        !self.home.is_empty()
    }

    pub(super) fn go_home(&mut self) {
        let home = self.home.clone();
        self.focus = Focus::Page;
        self.open(&home);
    }

    /// Asks for the page again; `fresh` without anything that is kept.
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

    /// Asks for the page in the window's present size and zoom, if it is not the one that is there or on its way.
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
        self.stop_waiting();
        self.numbers += 1;
        self.message.clear();
        let (number, layout) = (self.numbers, self.layout());
        self.effects.push(Effect::Visit { number, address: address.clone(), layout, reuse });
        self.effects.push(Effect::Start(Timer::Waiting));
        let loading = Loading { number, address, purpose, layout, reuse, stage: None, ticks: 0 };
        self.loading = Some(loading);
        self.redraw();
    }

    fn stop_waiting(&mut self) {
        if let Some(loading) = self.loading.take() {
            self.effects.push(Effect::GiveUp(loading.number));
            self.redraw();
        }
    }

    /// Stops waiting, at the user's wish: the page that is there stays.
    pub(super) fn stop(&mut self) {
        if self.loading.is_none() {
            return;
        }
        self.stop_waiting();
        self.message = "stopped".to_string();
        self.restore_address();
    }

    /// Shows the address of what is shown.
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

    /// A visit still takes its time.
    pub(super) fn waited(&mut self) {
        if let Some(loading) = &mut self.loading {
            loading.ticks += 1;
            self.effects.push(Effect::Start(Timer::Waiting));
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
                // The page is still there, if not in the size that was asked for.
                self.message = error.to_string();
            }
            Err(error) => self.fail(loading, &error),
        }
        self.redraw();
    }

    fn show(&mut self, loading: Loading, arrival: Arrival) {
        let (stays, place) = (self.shown().is_some(), self.place());
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
            Purpose::Travel(_, place) => self.scroll_to_place(place),
            Purpose::Reload | Purpose::Relayout if stays => self.scroll_to_place(place),
            _ => match fragment(&url) {
                Some(fragment) => self.scroll_to_fragment(fragment),
                None => self.scroll_to(0, 0),
            },
        }
        self.find_again();
        if self.layout() != loading.layout {
            // The window got another size while this page was on its way.
            self.effects.push(Effect::Start(Timer::Settled));
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

    /// What is shown could not be painted. A kept page that was found damaged is laid out anew; the place in it stays.
    pub(super) fn unpaintable(&mut self, error: &ViewError) {
        let Some(shown) = self.shown() else { return };
        let (address, warm) = (shown.url.clone(), shown.warm);
        if warm && error.is_damage() {
            let place = self.place();
            self.content = Content::Nothing;
            if self.loading.is_none() {
                let purpose = Purpose::Travel(self.history.number(), place);
                self.visit(address, purpose, Reuse::Resources);
            }
            return;
        }
        self.content = Content::Failed(Failure::of(address, error));
        self.redraw();
    }

    /// The history, once the page has come that was asked for.
    fn enter(&mut self, purpose: Purpose, url: &str) {
        self.history.note_place(self.place());
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

    /// What is shown has this address.
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

    pub(super) fn kept(&mut self, number: u64, message: String) {
        if self.shown().is_some_and(|shown| shown.number == number) {
            self.message = message;
            self.redraw();
        }
    }

    /// Where the user is on the page.
    pub(crate) fn place(&self) -> Place {
        self.block().map_or(Place::default(), |block| Place::on(block, self.left, self.top))
    }
}

impl Failure {
    fn of(address: String, error: &ViewError) -> Failure {
        let said = error.to_string();
        // What can be done follows the cause: every error of this project is written so.
        let (why, remedy) = said.split_once("; ").unwrap_or((&said, ""));
        Failure { address, why: why.to_string(), remedy: remedy.to_string() }
    }
}

/// What follows the `#`.
fn fragment(url: &str) -> Option<&str> {
    // A file's name that a user typed may have one.
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

/// Servers are not told fragments, so they can't tell them back.
fn with_fragment_of(url: String, asked: &str) -> String {
    match fragment(asked) {
        Some(fragment) if !url.contains('#') => url + "#" + fragment,
        _ => url,
    }
}
