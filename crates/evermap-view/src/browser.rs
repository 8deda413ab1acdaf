//! Serves the window: visits pages, and provides the font of the window's own text.

use std::sync::Arc;
use std::time::Instant;

use evermap::Store;

use crate::find::find_target;
use crate::page::PartKind;
use crate::page_store;
use crate::paint::{Painter, Parts, SharedBytes};
use crate::run_engine::Watch;
use crate::target::Target;
use crate::visit::{self, Finished, VisitOptions};
use crate::window::{self, Browse, Progress, Reuse, Stage};
use crate::{Layout, Result};

/// Visits pages for the window and stores them, if there is a store.
pub struct Browser {
    store: std::result::Result<Store, String>,
    options: VisitOptions,
    saves_pages: bool,
    find: Find,
}

/// Resolves an address to a target.
type Find = Box<dyn Fn(&str, Option<&Store>) -> Result<Target> + Send + Sync>;

impl Browser {
    /// Creates a browser that visits pages with `options`. No page is stored if `store` is an
    /// error, which is shown as the reason, or if `saves_pages` is false.
    pub fn new(
        store: std::result::Result<Store, String>,
        options: VisitOptions,
        saves_pages: bool,
    ) -> Browser {
        Browser { store, options, saves_pages, find: Box::new(find_target) }
    }

    /// Sets the function that resolves an address at each visit. Default: [`find_target`].
    pub fn with_resolver(
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
        visit::visit_watched(&target, layout, store, &options, watch)?.with_all_parts(watch)
    }
}

impl Browse for Browser {
    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        progress: &Progress,
    ) -> Result<window::Visit> {
        let start = Instant::now();
        let watch = Watch {
            stage: &|stage| progress.report(Stage::new(stage.to_string())),
            cancelled: &|| progress.is_cancelled(),
        };
        let visit = self.visit(address, layout, reuse, &watch)?;
        let took = start.elapsed();
        let reason = visit.reasons.first().map(String::as_str).unwrap_or_default();
        let summary = match visit.warm {
            true => "warm".to_string(),
            false => format!("cold: {reason}"),
        };
        let page = visit.page.clone();
        let (url, warm) = (visit.url.to_string(), visit.warm);
        let no_store = self.store.as_ref().err().cloned();
        let after = self.saves_pages.then(|| -> window::AfterShown {
            Box::new(move || match visit.shown().finish(&mut Painter::new()) {
                Ok(Finished::Unchanged | Finished::Stored) => None,
                Ok(Finished::SlowDisk) => {
                    Some("laying the page out is faster than reading it from this disk".to_string())
                }
                Ok(Finished::NotStored(why)) => {
                    Some(format!("the page is not stored: {}", no_store.unwrap_or(why)))
                }
                Err(error) => Some(format!("the page is not stored: {error}")),
            })
        });
        Ok(window::Visit { page, url, warm, summary, took, after })
    }

    /// Returns the font of a small page that requests `sans-serif`. That page is stored like any
    /// other.
    fn interface_font(&self) -> Option<(SharedBytes, u32)> {
        let store = self.store.as_ref().ok()?;
        let visit = visit::interface_page(store).ok()?;
        let page = visit.page.clone();
        let (hash, index) = page.block().fonts().next()?;
        let hash = *hash;
        visit.unpainted().finish(&mut Painter::new()).ok()?;
        let parts = page_store::StoreParts { store: store.clone() };
        let font = parts.load(PartKind::Font, &hash).ok()?;
        Some((Arc::clone(&font), index))
    }
}
