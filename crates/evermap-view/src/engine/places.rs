//! Records links, anchors and text of a laid-out page.
//!
//! One walk over all lines finds the rectangles of everything in them. Only elements with their own
//! box (a link around a picture, a heading with an id) are looked up separately. Querying the
//! engine for each link would walk over all lines of its paragraph each time.

use blitz_dom::{BaseDocument, NodeId};
use evermap_dom::{Dom, NodeKind, NodeRef};
use foldhash::HashMap;
use kurbo::Rect;
use parley::PositionedLayoutItem;
use url::Url;

use super::build::Nodes;
use crate::page::Recorder;

/// Returns the base of relative addresses: the address in the page's `base` element, or `url`.
pub(super) fn base_url(dom: &Dom<'_>, url: &Url) -> Url {
    let is_base = |node: &NodeRef<'_>| {
        node.kind() == NodeKind::Element && node.name() == "base" && node.attr("href").is_some()
    };
    let base = dom.document_node().descendants().find(is_base);
    let joined = base.and_then(|base| url.join(base.attr("href")?.trim()).ok());
    // A page from the network must not use a file as its base.
    joined
        .filter(|base| base.scheme() == url.scheme() || base.scheme() != "file")
        .unwrap_or_else(|| url.clone())
}

/// Records links and anchors in document order, and all text.
pub(crate) fn record_places(
    document: &BaseDocument,
    nodes: &Nodes,
    dom: &Dom<'_>,
    url: &Url,
    recorder: &mut Recorder,
) {
    let base = base_url(dom, url);
    let mut places = Places::default();
    for node in dom.document_node().descendants().filter(NodeRef::is_element) {
        let Some(id) = nodes.of(node.id()) else { continue };
        let target = target_of(&node, url, &base);
        if target.is_some() || names_of(&node).next().is_some() {
            places.found.insert(id, Found { target, rects: Vec::new() });
        }
    }
    let walk = Walk { document, scale: f64::from(document.viewport().scale()) };
    walk.lines(&mut places, recorder);
    for node in dom.document_node().descendants().filter(NodeRef::is_element) {
        let Some(id) = nodes.of(node.id()) else { continue };
        let Some(found) = places.found.remove(&id) else { continue };
        let rects = match found.rects.is_empty() {
            true => walk.own_box(id).into_iter().collect(),
            false => found.rects,
        };
        if let Some(target) = found.target {
            for rect in rects.iter().filter(|rect| rect.area() > 0.0) {
                recorder.add_link(*rect, &target, node.id());
            }
        }
        if let Some(first) = rects.first() {
            for name in names_of(&node) {
                recorder.add_anchor(name, first.y0);
            }
        }
    }
}

/// Returns the address of a link, unless it runs a script.
fn target_of(node: &NodeRef<'_>, url: &Url, base: &Url) -> Option<String> {
    if !matches!(node.local_name(), "a" | "area") {
        return None;
    }
    let href = node.attr("href")?.trim();
    let target = if href.starts_with('#') { url.join(href) } else { base.join(href) };
    target.ok().filter(|target| target.scheme() != "javascript").map(Into::into)
}

/// Returns the names by which a fragment can refer to this element.
fn names_of<'a>(node: &NodeRef<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let name = node.attr("name").filter(|_| node.local_name() == "a");
    [node.attr("id"), name].into_iter().flatten().filter(|name| !name.is_empty())
}

/// Elements to locate, and their rectangles.
#[derive(Default)]
struct Places {
    found: HashMap<NodeId, Found>,
    /// For an element in a line: the links and anchors around it, innermost first.
    around: HashMap<NodeId, Vec<NodeId>>,
}

#[derive(Default)]
struct Found {
    /// Address, if the element is a link.
    target: Option<String>,
    rects: Vec<Rect>,
}

impl Places {
    /// Records that a piece of `node` occupies `rect` in a line of `root`. Adjacent pieces are
    /// merged.
    fn add(&mut self, document: &BaseDocument, node: NodeId, root: NodeId, rect: Rect) {
        let around = self.around.entry(node).or_insert_with(|| {
            let mut around = Vec::new();
            let mut at = Some(node);
            while let Some(id) = at.filter(|id| *id != root) {
                if self.found.contains_key(&id) {
                    around.push(id);
                }
                at = document.get_node(id).and_then(|node| node.parent);
            }
            around
        });
        for id in around {
            let Some(found) = self.found.get_mut(id) else { continue };
            match found.rects.last_mut() {
                Some(last) if last.y0 == rect.y0 && last.y1 == rect.y1 => *last = last.union(rect),
                Some(_) if found.target.is_none() => (),
                _ => found.rects.push(rect),
            }
        }
    }
}

struct Walk<'a> {
    document: &'a BaseDocument,
    scale: f64,
}

impl Walk<'_> {
    /// Records the text of all lines in reading order.
    fn lines(&self, places: &mut Places, recorder: &mut Recorder) {
        let Some(root) = self.document.try_root_element() else { return };
        let mut waiting = vec![root.id];
        while let Some(id) = waiting.pop() {
            let Some(node) = self.document.get_node(id) else { continue };
            if node.flags.is_inline_root() {
                self.lines_of(id, places, recorder);
            }
            let children = node.layout_children.borrow();
            waiting.extend(children.iter().flatten().rev());
        }
    }

    fn lines_of(&self, root: NodeId, places: &mut Places, recorder: &mut Recorder) {
        let Some(node) = self.document.get_node(root) else { return };
        let element = node.element_data();
        let Some(text) = element.and_then(|element| element.inline_layout_data.as_ref()) else {
            return;
        };
        let layout = node.final_layout();
        let corner = node.absolute_position(0.0, 0.0);
        let inset = layout.padding + layout.border;
        let left = f64::from(corner.x + inset.left) * self.scale;
        let top = f64::from(corner.y + inset.top + text.block_offset) * self.scale;
        for line in text.layout.lines() {
            let metrics = line.metrics();
            let line_top = top + f64::from(metrics.block_min_coord);
            let height = f64::from(metrics.block_max_coord - metrics.block_min_coord);
            let mut last = None;
            for item in line.items() {
                let glyphs = match item {
                    PositionedLayoutItem::GlyphRun(glyphs) => glyphs,
                    PositionedLayoutItem::InlineBox(inline) => {
                        let (x, y) = (left + f64::from(inline.x), top + f64::from(inline.y));
                        let (width, height) = (f64::from(inline.width), f64::from(inline.height));
                        let rect = Rect::new(x, y, x + width, y + height);
                        places.add(self.document, NodeId::from_u64(inline.id), root, rect);
                        continue;
                    }
                };
                let x = left + f64::from(glyphs.offset());
                let right = x + f64::from(glyphs.advance());
                let rect = Rect::new(x, line_top, right, line_top + height);
                places.add(self.document, glyphs.style().brush.id, root, rect);
                // Pieces of one run (in different colours, for example) share their clusters.
                let run = glyphs.run();
                if last.replace(run.text_range()) == Some(run.text_range()) {
                    continue;
                }
                let clusters = run.clusters().map(|cluster| {
                    let text = text.text.get(cluster.text_range());
                    (text.unwrap_or_default(), cluster.advance())
                });
                recorder.add_line(x, line_top, height, run.is_rtl(), clusters);
            }
        }
        recorder.end_block();
    }

    /// Returns the rectangle of an element with its own box. For an empty inline element, returns
    /// that of its paragraph.
    fn own_box(&self, id: NodeId) -> Option<Rect> {
        let node = self.document.get_node(id)?;
        let node = match node.is_non_atomic_inline() {
            true => node.inline_root_ancestor()?,
            false => node,
        };
        let corner = node.absolute_position(0.0, 0.0);
        let size = node.final_layout().size;
        let (x, y) = (f64::from(corner.x) * self.scale, f64::from(corner.y) * self.scale);
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let rect = Rect::new(x, y, x + width * self.scale, y + height * self.scale);
        rect.is_finite().then_some(rect)
    }
}
