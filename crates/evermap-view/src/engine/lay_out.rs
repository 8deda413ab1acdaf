//! Lays a parsed page out for a window and records it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_dom::{BaseDocument, DocumentConfig, UserAgentStylesheet};
use blitz_paint::paint_scene;
use blitz_traits::shell::{ColorScheme, Viewport};
use evermap_dom::Dom;
use kurbo::Rect;
use url::Url;

use super::after::adjust;
use super::build::{Frames, Nodes, build};
use super::css::CssBudget;
use super::places::{base_url, record_places};
use super::resources::Resources;
use crate::layout::Layout;
use crate::page::{HEIGHT_MAX, PageSize, Recorder, WIDTH_MAX};

/// Maximum number of rounds of style and layout. A loaded image changes the layout, which may
/// request another image.
const ROUNDS_MAX: usize = 8;

/// A page laid out by the engine.
pub struct LaidOut {
    document: BaseDocument,
    nodes: Nodes,
    layout: Layout,
    /// Duration of style and layout, including resources.
    pub took: Duration,
}

impl LaidOut {
    /// Lays out `dom`. Relative addresses are resolved against `url`. `css` is the budget of all
    /// its style sheets, including fetched ones.
    pub(crate) fn new(
        dom: &Dom<'_>,
        url: &Url,
        layout: Layout,
        resources: &Resources,
        css: &Arc<CssBudget>,
    ) -> LaidOut {
        let start = Instant::now();
        let base = base_url(dom, url);
        let mut document = BaseDocument::new(DocumentConfig {
            base_url: Some(base.to_string()),
            net_provider: Some(Arc::new(resources.clone())),
            html_parser_provider: Some(Arc::new(Frames(css.clone()))),
            ua_stylesheets: vec![
                UserAgentStylesheet::default_sheet(),
                UserAgentStylesheet::parse(include_str!("user_agent.css")),
            ],
            viewport: Some(Viewport::new(
                layout.width,
                layout.height,
                layout.scale,
                ColorScheme::Light,
            )),
            ..Default::default()
        });
        let nodes = build(dom, &mut document, css);
        let resolve = |document: &mut BaseDocument| {
            for _ in 0..ROUNDS_MAX {
                resources.wait();
                let (requests, _) = resources.counts();
                document.resolve(0.0);
                if resources.counts() == (requests, 0) && !document.has_pending_critical_resources()
                {
                    break;
                }
            }
        };
        resolve(&mut document);
        if adjust(&mut document) {
            resolve(&mut document);
        }
        LaidOut { document, nodes, layout, took: start.elapsed() }
    }

    /// Returns messages for people about parts of the page that were left out.
    pub(crate) fn left_out(&self) -> &[&'static str] {
        &self.nodes.notes
    }

    /// Returns the page's size in device pixels, which is at least the window's.
    pub fn size(&self) -> PageSize {
        let Layout { width, height, scale } = self.layout;
        let root = self.document.try_root_element().map(|root| *root.scrollable_overflow());
        let root = root.unwrap_or(Rect::ZERO);
        let pixels = |length: f64| match length.is_finite() {
            true => length.ceil().max(0.0) as u32,
            false => 0,
        };
        PageSize {
            width: pixels(root.x1).max(width).min(WIDTH_MAX),
            height: pixels(root.y1).max(height).min(HEIGHT_MAX),
            window: (width, height),
            scale,
        }
    }

    /// Paints the page from its upper left corner into `scene`.
    pub fn paint(&mut self, scene: &mut impl anyrender::PaintScene, size: PageSize) {
        let scale = f64::from(self.layout.scale);
        paint_scene(scene, &mut self.document, scale, size.width, size.height, 0, 0);
    }

    /// Records the page with its links, anchors and text.
    pub(crate) fn record(&mut self, dom: &Dom<'_>, url: &Url) -> Recorder {
        let size = self.size();
        let mut recorder = Recorder::new(size);
        recorder.set_title(dom.title().unwrap_or_default().trim(), url.as_str());
        self.paint(&mut recorder, size);
        record_places(&self.document, &self.nodes, dom, url, &mut recorder);
        recorder
    }
}
