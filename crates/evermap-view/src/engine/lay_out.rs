//! A parsed page, laid out for a window and recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_dom::{BaseDocument, DocumentConfig, NodeId};
use blitz_html::HtmlProvider;
use blitz_paint::paint_scene;
use blitz_traits::shell::{ColorScheme, Viewport};
use evermap_dom::{Dom, NodeKind, NodeRef};
use kurbo::Rect;
use parley::PositionedLayoutItem;
use url::Url;

use super::build::{Nodes, build};
use super::resources::Resources;
use crate::layout::Layout;
use crate::page::{HEIGHT_MAX, PageSize, Recorder, WIDTH_MAX};

/// Rounds of style and layout at most: an image that comes in changes the layout, which may ask for another image.
const ROUNDS_MAX: usize = 8;

/// A page in the engine, laid out.
pub struct LaidOut {
    document: BaseDocument,
    nodes: Nodes,
    layout: Layout,
    /// Style and layout, resources included.
    pub took: Duration,
}

impl LaidOut {
    /// Lays out `dom`; relative addresses in it are relative to `url`.
    pub(crate) fn new(dom: &Dom<'_>, url: &Url, layout: Layout, resources: &Resources) -> LaidOut {
        let start = Instant::now();
        let base = base_url(dom, url);
        let mut document = BaseDocument::new(DocumentConfig {
            base_url: Some(base.to_string()),
            net_provider: Some(Arc::new(resources.clone())),
            html_parser_provider: Some(Arc::new(HtmlProvider)),
            viewport: Some(Viewport::new(
                layout.width,
                layout.height,
                layout.scale,
                ColorScheme::Light,
            )),
            ..Default::default()
        });
        let nodes = build(dom, &mut document);
        for _ in 0..ROUNDS_MAX {
            resources.wait();
            let (asked, _) = resources.counts();
            document.resolve(0.0);
            if resources.counts() == (asked, 0) && !document.has_pending_critical_resources() {
                break;
            }
        }
        LaidOut { document, nodes, layout, took: start.elapsed() }
    }

    /// The page's size in device pixels: at least the window's.
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

    /// Paints the page, from its upper left corner, into anything that takes paint commands.
    pub fn paint(&mut self, scene: &mut impl anyrender::PaintScene, size: PageSize) {
        let scale = f64::from(self.layout.scale);
        paint_scene(scene, &mut self.document, scale, size.width, size.height, 0, 0);
    }

    /// Paints what a window shows that is scrolled down to `top`: what the page's block has to paint, too.
    #[cfg(test)]
    pub(crate) fn paint_scrolled(
        &mut self,
        scene: &mut impl anyrender::PaintScene,
        width: u32,
        top: u32,
        rows: u32,
    ) {
        let scale = f64::from(self.layout.scale);
        self.document.set_viewport_scroll(blitz_dom::Point { x: 0.0, y: f64::from(top) / scale });
        paint_scene(scene, &mut self.document, scale, width, rows, 0, 0);
        self.document.set_viewport_scroll(blitz_dom::Point { x: 0.0, y: 0.0 });
    }

    /// The page as a block, with links, anchors and text.
    pub fn record(&mut self, dom: &Dom<'_>, url: &Url) -> Recorder {
        let size = self.size();
        let mut recorder = Recorder::new(size);
        recorder.set_title(dom.title().unwrap_or_default().trim(), url.as_str());
        self.paint(&mut recorder, size);
        self.record_places(dom, url, &mut recorder);
        self.record_text(&mut recorder);
        recorder
    }

    /// Links and anchors.
    fn record_places(&self, dom: &Dom<'_>, url: &Url, recorder: &mut Recorder) {
        let base = base_url(dom, url);
        for node in dom.document_node().descendants() {
            let Some(id) = self.nodes.of(node.id()).filter(|_| node.is_element()) else { continue };
            let is_link = matches!(node.local_name(), "a" | "area");
            if let Some(href) = node.attr("href").filter(|_| is_link)
                && let Some(target) = target_of(href, url, &base)
            {
                for rect in self.rects(id) {
                    recorder.add_link(rect, &target, node.id());
                }
            }
            let names = [node.attr("id"), node.attr("name").filter(|_| is_link)];
            for name in names.into_iter().flatten().filter(|name| !name.is_empty()) {
                if let Some(rect) = self.document.get_client_bounding_rect(id) {
                    recorder.add_anchor(name, rect.y * f64::from(self.layout.scale));
                }
            }
        }
    }

    /// Where an element is on the page, in device pixels: a link around blocks is where they are.
    fn rects(&self, id: NodeId) -> Vec<Rect> {
        let scale = f64::from(self.layout.scale);
        let rects = self.document.node_client_rects(id).into_iter();
        let rects = rects.map(|rect| {
            let (x, y) = (rect.x * scale, rect.y * scale);
            Rect::new(x, y, x + rect.width * scale, y + rect.height * scale)
        });
        rects.filter(|rect| rect.is_finite() && rect.area() > 0.0).collect()
    }

    /// The text that can be found, from the lines that were set.
    fn record_text(&self, recorder: &mut Recorder) {
        let Some(root) = self.document.try_root_element() else { return };
        let mut waiting = vec![root.id];
        while let Some(id) = waiting.pop() {
            let Some(node) = self.document.get_node(id) else { continue };
            if node.flags.is_inline_root() {
                self.record_lines(id, recorder);
            }
            let children = node.layout_children.borrow();
            waiting.extend(children.iter().flatten().rev());
        }
    }

    fn record_lines(&self, id: NodeId, recorder: &mut Recorder) {
        let Some(node) = self.document.get_node(id) else { return };
        let Some(text) =
            node.element_data().and_then(|element| element.inline_layout_data.as_ref())
        else {
            return;
        };
        let scale = f64::from(self.layout.scale);
        let box_layout = node.final_layout();
        let corner = node.absolute_position(0.0, 0.0);
        let inset = box_layout.padding + box_layout.border;
        let left = f64::from(corner.x + inset.left) * scale;
        let top = f64::from(corner.y + inset.top + text.block_offset) * scale;
        for line in text.layout.lines() {
            let metrics = line.metrics();
            let line_top = top + f64::from(metrics.block_min_coord);
            let height = f64::from(metrics.block_max_coord - metrics.block_min_coord);
            let mut last = None;
            for item in line.items() {
                let PositionedLayoutItem::GlyphRun(glyphs) = item else { continue };
                // Several pieces of one run, differently coloured, say, have their clusters in common.
                let run = glyphs.run();
                if last.replace(run.text_range()) == Some(run.text_range()) {
                    continue;
                }
                let clusters = run.clusters().map(|cluster| {
                    (text.text.get(cluster.text_range()).unwrap_or_default(), cluster.advance())
                });
                let x = left + f64::from(glyphs.offset());
                recorder.add_line(x, line_top, height, run.is_rtl(), clusters);
            }
        }
        recorder.end_block();
    }
}

/// What relative addresses on the page are relative to: its `base` element's, or its own.
fn base_url(dom: &Dom<'_>, url: &Url) -> Url {
    let is_base = |node: &NodeRef<'_>| {
        node.kind() == NodeKind::Element && node.name() == "base" && node.attr("href").is_some()
    };
    let base = dom.document_node().descendants().find(is_base);
    let joined = base.and_then(|base| url.join(base.attr("href")?.trim()).ok());
    // A page from the network can't make itself one from a file.
    joined
        .filter(|base| base.scheme() == url.scheme() || base.scheme() != "file")
        .unwrap_or_else(|| url.clone())
}

/// Where a link leads, unless that is a script.
fn target_of(href: &str, url: &Url, base: &Url) -> Option<String> {
    let href = href.trim();
    let target = match href.strip_prefix('#') {
        Some(_) => url.join(href),
        None => base.join(href),
    };
    target.ok().filter(|target| target.scheme() != "javascript").map(Into::into)
}
