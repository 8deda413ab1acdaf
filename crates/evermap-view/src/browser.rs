//! What stands behind the window: visits, and the font of its own text.

use std::sync::Arc;
use std::time::Instant;

use evermap::Store;

use crate::keep;
use crate::page::PartKind;
use crate::paint::{Painter, Parts, SharedBytes};
use crate::target::Target;
use crate::visit::{self, VisitOptions, Watch};
use crate::window::{self, Browse, Reuse, Stage, Waiting};
use crate::{Layout, Result};

/// Pages for the window: kept in a store, if there is one.
pub struct Browser {
    store: std::result::Result<Store, String>,
    options: VisitOptions,
    keep: bool,
    find: Find,
}

/// Finds what an address means.
type Find = Box<dyn Fn(&str, Option<&Store>) -> Result<Target> + Send + Sync>;

impl Browser {
    /// Pages that are visited as `options` say. Without a store (and then with the reason) nothing is kept; nor is it if
    /// `keep` is false.
    pub fn new(
        store: std::result::Result<Store, String>,
        options: VisitOptions,
        keep: bool,
    ) -> Browser {
        Browser { store, options, keep, find: Box::new(Target::find) }
    }

    /// Finds what addresses mean with `find`, at each visit. Default: [`Target::find`].
    pub fn finding(
        mut self,
        find: impl Fn(&str, Option<&Store>) -> Result<Target> + Send + Sync + 'static,
    ) -> Browser {
        self.find = Box::new(find);
        self
    }

    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        watch: &Watch<'_>,
    ) -> Result<visit::Visit> {
        let store = self.store.as_ref().ok();
        let target = (self.find)(address, store)?;
        let options = VisitOptions {
            reload: reuse == Reuse::Nothing || self.options.reload,
            cold: reuse == Reuse::Resources || self.options.cold,
            ..self.options.clone()
        };
        let visit = visit::visit_watched(&target, layout, store, &options, watch)?;
        // What a kept page shares with others may have been removed: it is made anew then, before anything of it is missed.
        let missing =
            visit.warm && store.is_some_and(|store| !keep::has_parts(store, visit.page.block()));
        match missing {
            true => {
                let options = VisitOptions { cold: true, ..options };
                visit::visit_watched(&target, layout, store, &options, watch)
            }
            false => Ok(visit),
        }
    }
}

impl Browse for Browser {
    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        waiting: &Waiting,
    ) -> Result<window::Visit> {
        let start = Instant::now();
        let watch = Watch {
            stage: &|stage| waiting.progress(Stage::new(stage.to_string())),
            given_up: &|| waiting.given_up(),
        };
        let mut visit = self.visit(address, layout, reuse, &watch)?;
        let took = start.elapsed();
        let reason = visit.reasons.first().map(String::as_str).unwrap_or_default();
        let summary = match visit.warm {
            true => "warm".to_string(),
            false => format!("cold: {reason}"),
        };
        let page = visit.page.clone();
        let (url, warm) = (visit.url.to_string(), visit.warm);
        let after: Option<window::Afterwards> =
            match (&self.store, visit.is_to_be_kept() && self.keep) {
                (Ok(store), false) if visit.warm && self.keep => {
                    let store = store.clone();
                    Some(Box::new(move || {
                        visit.painted();
                        // The page is shown without what can't be asked for.
                        let _ = visit.retry_missing();
                        let slow = visit.note_slowness(&store).unwrap_or(false);
                        slow.then(|| "from this disk laying the page out is quicker".to_string())
                    }))
                }
                (_, false) => None,
                (Err(why), _) => {
                    let why = format!("the page is not kept: {why}");
                    Some(Box::new(move || Some(why)))
                }
                (Ok(store), _) => {
                    let store = store.clone();
                    Some(Box::new(move || {
                        visit.painted();
                        match visit.keep(&store, &mut Painter::new()) {
                            Ok(None) => None,
                            Ok(Some(why)) => Some(format!("the page is not kept: {why}")),
                            Err(error) => Some(format!("the page is not kept: {error}")),
                        }
                    }))
                }
            };
        Ok(window::Visit { page, url, warm, summary, took, after })
    }

    /// The font of a little page that says `sans-serif`, which is kept as any page.
    fn interface_font(&self) -> Option<(SharedBytes, u32)> {
        let store = self.store.as_ref().ok()?;
        let watch = Watch { stage: &|_| (), given_up: &|| false };
        let mut visit = visit::interface_page(store, &watch).ok()?;
        let page = visit.page.clone();
        let (hash, index) = page.block().fonts().next()?;
        let hash = *hash;
        visit.keep(store, &mut Painter::new()).ok()?;
        let parts = keep::StoreParts { store: store.clone() };
        let font = parts.load(PartKind::Font, &hash).ok()?;
        Some((Arc::clone(&font), index))
    }
}
