//! Visits and the history: which page is shown, and which is loading.
//!
//! Only one visit is in progress at a time. A new one supersedes it. The result of an older visit
//! is recognised by its number and discarded.

use std::sync::Arc;
use std::time::Duration;

use super::browse::{Reuse, Stage};
use super::event::{Effect, Timer};
use super::history::{History, ScrollPosition};
use crate::page::Block;
use crate::paint::Page;
use crate::{Layout, ViewError};

/// Content of the page's area.
pub(crate) enum Content {
    Nothing,
    Page(Shown),
    Failed(Failure),
}

pub(crate) struct Shown {
    pub page: Arc<Page>,
    /// Address, with its fragment.
    pub url: String,
    /// Layout that was requested.
    pub layout: Layout,
    pub warm: bool,
    pub summary: String,
    pub took: Duration,
    pub number: u64,
}

/// Description of a page that could not be shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub address: String,
    pub why: String,
    pub remedy: String,
}

/// A visit in progress.
pub(crate) struct Loading {
    pub number: u64,
    pub address: String,
    pub purpose: Purpose,
    pub layout: Layout,
    pub reuse: Reuse,
    pub stage: Option<Stage>,
    /// Number of timeouts of [`Timer::Loading`] since the start.
    pub ticks: u32,
}

/// Reason for a visit, which determines the changes of the history and of the scroll position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Purpose {
    Open,
    Travel(usize, ScrollPosition),
    Reload,
    /// Lay out the current page for another size or zoom.
    Relayout,
}

/// The page that is shown, the visit in progress, and the history.
pub(crate) struct Visits {
    pub content: Content,
    pub loading: Option<Loading>,
    pub history: History,
    home: String,
    numbers: u64,
}

impl Visits {
    /// `home` is the address that the home button opens; may be empty.
    pub(super) fn new(home: String) -> Visits {
        let (content, history) = (Content::Nothing, History::default());
        Visits { content, loading: None, history, home, numbers: 0 }
    }

    pub(super) fn home(&self) -> &str {
        &self.home
    }

    pub(crate) fn has_home(&self) -> bool {
        !self.home.is_empty()
    }

    pub(crate) fn shown(&self) -> Option<&Shown> {
        match &self.content {
            Content::Page(shown) => Some(shown),
            _ => None,
        }
    }

    pub(crate) fn block(&self) -> Option<Block<'_>> {
        self.shown().map(|shown| shown.page.block())
    }

    /// Returns the address of the page that is shown or could not be shown.
    pub(super) fn address(&self) -> Option<&str> {
        match &self.content {
            Content::Page(shown) => Some(&shown.url),
            Content::Failed(failure) => Some(&failure.address),
            Content::Nothing => None,
        }
    }

    /// Starts a visit.
    pub(super) fn start(
        &mut self,
        address: String,
        purpose: Purpose,
        reuse: Reuse,
        layout: Layout,
    ) -> impl Iterator<Item = Effect> + use<> {
        let cancel = self.cancel();
        self.numbers += 1;
        let number = self.numbers;
        let visit = Effect::Visit { number, address: address.clone(), layout, reuse };
        let loading = Loading { number, address, purpose, layout, reuse, stage: None, ticks: 0 };
        self.loading = Some(loading);
        cancel.into_iter().chain([visit, Effect::Start(Timer::Loading)])
    }

    /// Cancels the visit in progress, if there is one.
    pub(super) fn cancel(&mut self) -> Option<Effect> {
        self.loading.take().map(|loading| Effect::Cancel(loading.number))
    }

    /// Returns the address and the purpose of a visit that repeats the one in progress or the last
    /// one.
    pub(super) fn again(&self) -> Option<(String, Purpose)> {
        match &self.loading {
            Some(loading) => Some((loading.address.clone(), loading.purpose)),
            None => self.address().map(|address| (address.to_string(), Purpose::Reload)),
        }
    }

    /// Returns the visit that is needed for another layout, unless that page is shown or loading
    /// already.
    pub(super) fn for_layout(&self, layout: Layout) -> Option<(String, Purpose, Reuse)> {
        if let Some(loading) = &self.loading {
            let (address, purpose, reuse) =
                (loading.address.clone(), loading.purpose, loading.reuse);
            return (loading.layout != layout).then_some((address, purpose, reuse));
        }
        let shown = self.shown().filter(|shown| shown.layout != layout)?;
        Some((shown.url.clone(), Purpose::Relayout, Reuse::Page))
    }

    /// Ends the visit with this number. Returns `None` if it was superseded.
    pub(super) fn arrived(&mut self, number: u64) -> Option<Loading> {
        self.loading.take_if(|loading| loading.number == number)
    }

    /// Records the stage of a visit. Returns true if it is visible.
    pub(super) fn progress(&mut self, number: u64, stage: Stage) -> bool {
        match self.loading.as_mut().filter(|loading| loading.number == number) {
            Some(loading) => {
                loading.stage = Some(stage);
                loading.ticks > 0
            }
            None => false,
        }
    }

    /// Called periodically while a visit is in progress.
    pub(super) fn waited(&mut self) -> Option<Effect> {
        self.loading.as_mut()?.ticks += 1;
        Some(Effect::Start(Timer::Loading))
    }

    /// Updates the history when a requested page has arrived.
    pub(super) fn enter(&mut self, purpose: Purpose, url: &str) {
        match purpose {
            Purpose::Open => self.push_new(url),
            Purpose::Travel(number, _) => {
                self.history.go(number);
                self.history.rename(url.to_string());
            }
            Purpose::Reload | Purpose::Relayout => self.history.rename(url.to_string()),
        }
    }

    /// Adds an entry to the history, unless the current one has this address.
    pub(super) fn push_new(&mut self, url: &str) {
        if self.history.current().is_none_or(|entry| entry.url != url) {
            self.history.push(url.to_string());
        }
    }

    /// Returns the stage of a visit that takes a while. A fast visit is not announced.
    pub(super) fn loading_text(&self) -> Option<String> {
        let loading = self.loading.as_ref().filter(|loading| loading.ticks > 0)?;
        let stage = loading.stage.as_ref().map(|stage| stage.text.to_string());
        Some(stage.unwrap_or_else(|| format!("loading {}", loading.address)))
    }

    /// Returns the fraction of the loading page that is done, for the progress line; `None` if it
    /// is hidden.
    pub(crate) fn loaded_part(&self) -> Option<f64> {
        let loading = self.loading.as_ref().filter(|loading| loading.ticks > 0)?;
        // Without a known fraction, the line grows more and more slowly.
        let waited = 1.0 - 0.97_f64.powi(loading.ticks.min(1000) as i32);
        let fraction = loading.stage.as_ref().and_then(|stage| stage.done).unwrap_or(0.0);
        Some(f64::from(fraction).max(waited).clamp(0.02, 1.0))
    }
}

impl Failure {
    pub(super) fn of(address: String, error: &ViewError) -> Failure {
        let message = error.to_string();
        // In all error messages of this project, the remedy follows the cause after a semicolon.
        let (why, remedy) = message.split_once("; ").unwrap_or((&message, ""));
        Failure { address, why: why.to_string(), remedy: remedy.to_string() }
    }
}

/// Returns the part after the `#`.
pub(super) fn fragment(url: &str) -> Option<&str> {
    // A file name typed by a user may contain a `#`.
    let is_url = url.contains("://") || url.starts_with("file:") || url.starts_with("data:");
    url.split_once('#').map(|(_, fragment)| fragment).filter(|_| is_url)
}

/// Returns true if two addresses differ only in their fragments.
pub(super) fn same_document(one: &str, other: &str) -> bool {
    let document = |url: &str| match fragment(url) {
        Some(fragment) => url.len() - fragment.len() - 1,
        None => url.len(),
    };
    one[..document(one)] == other[..document(other)]
}

/// Adds the fragment of the requested address. Servers do not receive it, so it is not in a
/// redirected address.
pub(super) fn with_fragment_of(url: String, requested: &str) -> String {
    match fragment(requested) {
        Some(fragment) if !url.contains('#') => url + "#" + fragment,
        _ => url,
    }
}
