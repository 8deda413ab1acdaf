//! Changes of the page: opening, reloading, travelling, and results of visits.

use super::State;
use crate::ViewError;
use crate::window::browse::Reuse;
use crate::window::event::{Arrival, Effect, Timer};
use crate::window::history::ScrollPosition;
use crate::window::keys::Focus;
use crate::window::visits::{
    Content, Failure, Loading, Purpose, Shown, fragment, same_document, with_fragment_of,
};

impl State {
    /// Opens an address that a user typed or a link names.
    pub(super) fn open(&mut self, address: &str) {
        let address = address.trim();
        if address.is_empty() || self.jumps_within_page(address) {
            return;
        }
        self.set_address(address);
        self.visit(address.to_string(), Purpose::Open, Reuse::Page);
    }

    /// Scrolls if `url` is a fragment of the page that is shown.
    fn jumps_within_page(&mut self, url: &str) -> bool {
        let Some(fragment) = fragment(url) else { return false };
        if !self.shows(url) {
            return false;
        }
        self.leave_position();
        self.visits.push_new(url);
        self.renamed(url.to_string());
        self.scroll_to_fragment(fragment);
        true
    }

    /// Returns true if the page at `url` is shown, at any fragment.
    fn shows(&self, url: &str) -> bool {
        self.visits.shown().is_some_and(|shown| same_document(&shown.url, url))
    }

    /// Ends a visit and records the scroll position, before another position of the page.
    fn leave_position(&mut self) {
        self.cancel_visit();
        self.visits.history.record_position(self.position());
    }

    pub(super) fn travel(&mut self, steps: isize) {
        let Some((number, entry)) = self.visits.history.ahead(steps) else { return };
        let (url, position) = (entry.url.clone(), entry.position);
        self.focus = Focus::Page;
        if self.shows(&url) {
            self.leave_position();
            self.visits.history.go(number);
            self.renamed(url);
            self.scroll_to_position(position);
            return;
        }
        self.set_address(&url);
        self.visit(url, Purpose::Travel(number, position), Reuse::Page);
    }

    pub(super) fn go_home(&mut self) {
        let home = self.visits.home().to_string();
        self.focus = Focus::Page;
        self.open(&home);
    }

    /// Visits the page again. With `fresh`, ignores stored data.
    pub(super) fn reload(&mut self, fresh: bool) {
        let typed = || (self.address.text().to_string(), Purpose::Open);
        let (address, purpose) = self.visits.again().unwrap_or_else(typed);
        if !address.is_empty() {
            let reuse = if fresh { Reuse::Nothing } else { Reuse::Page };
            self.visit(address, purpose, reuse);
        }
    }

    /// Visits the page in the window's current size and zoom, unless that page is shown or loading
    /// already.
    pub(super) fn relayout(&mut self) {
        if let Some((address, purpose, reuse)) = self.visits.for_layout(self.layout()) {
            self.visit(address, purpose, reuse);
        }
    }

    fn visit(&mut self, address: String, purpose: Purpose, reuse: Reuse) {
        let effects = self.visits.start(address, purpose, reuse, self.layout());
        self.effects.extend(effects);
        self.message.clear();
        self.redraw();
    }

    fn cancel_visit(&mut self) {
        if let Some(cancel) = self.visits.cancel() {
            self.effects.push(cancel);
            self.redraw();
        }
    }

    /// Stops the visit at the user's request. The current page stays.
    pub(super) fn stop(&mut self) {
        if self.visits.loading.is_some() {
            self.cancel_visit();
            self.message = "stopped".to_string();
            self.restore_address();
        }
    }

    /// Sets the address bar to the address of the page that is shown.
    pub(super) fn restore_address(&mut self) {
        let address = self.visits.address().unwrap_or(self.address.text()).to_string();
        self.set_address(&address);
        self.redraw();
    }

    fn set_address(&mut self, address: &str) {
        self.address.set(address);
        self.edited = false;
    }

    pub(super) fn waited(&mut self) {
        if let Some(again) = self.visits.waited() {
            self.effects.push(again);
            self.redraw();
        }
    }

    pub(super) fn arrived(&mut self, number: u64, result: Result<Arrival, ViewError>) {
        let Some(loading) = self.visits.arrived(number) else { return };
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
        let (stays, position) = (self.visits.shown().is_some(), self.position());
        let url = with_fragment_of(arrival.url, &loading.address);
        self.visits.history.record_position(position);
        self.visits.enter(loading.purpose, &url);
        self.visits.content = Content::Page(Shown {
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
                None => self.scroll_to((0, 0)),
            },
        }
        self.search_again();
        if self.layout() != loading.layout {
            // The window was resized during the visit.
            self.effects.push(Effect::Start(Timer::Resize));
        }
    }

    fn fail(&mut self, loading: Loading, error: &ViewError) {
        self.visits.history.record_position(self.position());
        self.visits.enter(loading.purpose, &loading.address);
        self.ring = None;
        self.visits.content = Content::Failed(Failure::of(loading.address.clone(), error));
        self.renamed(loading.address);
        self.scroll_to((0, 0));
        self.search_again();
    }

    /// Handles a page that could not be painted. A stored page that is damaged is laid out again at
    /// the same scroll position.
    pub(super) fn unpaintable(&mut self, error: &ViewError) {
        let Some(shown) = self.visits.shown() else { return };
        let (address, warm) = (shown.url.clone(), shown.warm);
        if warm && error.is_damage() {
            let position = self.position();
            self.visits.content = Content::Nothing;
            if self.visits.loading.is_none() {
                let purpose = Purpose::Travel(self.visits.history.number(), position);
                self.visit(address, purpose, Reuse::Resources);
            }
            return;
        }
        self.visits.content = Content::Failed(Failure::of(address, error));
        self.redraw();
    }

    /// Sets the address and the title of the page that is shown.
    fn renamed(&mut self, url: String) {
        let title = self.visits.block().map_or("", |block| block.title());
        let name = if title.is_empty() { url.as_str() } else { title };
        self.effects.push(Effect::Title(format!("{name} - Evermap")));
        if !(self.edited && self.focus == Focus::Address) {
            self.set_address(&url);
            if self.focus == Focus::Address {
                self.address.select_all();
            }
        }
        if let Content::Page(shown) = &mut self.visits.content {
            shown.url = url;
        }
        self.redraw();
    }

    pub(super) fn show_message(&mut self, number: u64, message: String) {
        if self.visits.shown().is_some_and(|shown| shown.number == number) {
            self.message = message;
            self.redraw();
        }
    }

    fn position(&self) -> ScrollPosition {
        self.visits.block().map_or(ScrollPosition::default(), |block| {
            ScrollPosition::on(block, self.left, self.top)
        })
    }

    fn scroll_to_position(&mut self, position: ScrollPosition) {
        if let Some(block) = self.visits.block() {
            self.scroll_to(position.find_on(block));
        }
    }

    fn scroll_to_fragment(&mut self, fragment: &str) {
        if let Some(to) = self.scroll().to_fragment(fragment) {
            self.scroll_to(to);
        }
    }
}
