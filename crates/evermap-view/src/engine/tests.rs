//! Tests that a recorded page paints exactly the pixels that the engine paints.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyrender::PaintScene;
use blitz_traits::net::Bytes;
use evermap_dom::html;
use evermap_dom::html::HtmlOptions;
use kurbo::{Affine, Rect};
use peniko::{Color, Fill};
use url::Url;

use super::lay_out::LaidOut;
use super::resources::{Fetch, Resources, Skipped};
use crate::fetch::{FetchOptions, Fetcher, Origin, Purpose};
use crate::layout::Layout;
use crate::page::{Block, Part, PartKind, Recorded};
use crate::paint::replay::{View, replay};
use crate::paint::{Area, Page, Painter, Parts, SharedBytes, Strips};

/// Maximum number of rows to compare, to bound the time of a test.
const ROWS_MAX: u32 = 4096;

/// Fetches local resources, and records nothing.
struct Local(Fetcher);

impl Fetch for Local {
    fn is_local(&self, _: &Url) -> bool {
        true
    }

    fn get(&self, url: &Url, _: Instant) -> Bytes {
        let fetched = self.0.fetch(url, Origin::File, Purpose::Other, None);
        fetched.map(|fetched| fetched.bytes).unwrap_or_default()
    }

    fn skip(&self, _: &Url, _: Skipped) {}
}

struct VecParts(Vec<Part>);

impl Parts for VecParts {
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> crate::Result<SharedBytes> {
        let part = self.0.iter().find(|part| part.kind == kind && part.hash == *hash).unwrap();
        Ok(part.data.clone().into_raw_parts().0)
    }
}

pub(super) struct Laid {
    pub laid_out: LaidOut,
    pub recorded: Recorded,
}

pub(super) fn lay_out(bytes: &[u8], url: &Url, layout: Layout) -> Laid {
    let options = HtmlOptions { scripting: false, ..Default::default() };
    let block = html::parse_bytes(bytes, &options).unwrap().to_block();
    let options = FetchOptions { offline: true, ..Default::default() };
    let local = Local(Fetcher::new(options, None));
    let resources = Resources::new(local, Instant::now() + Duration::from_secs(60));
    let mut laid_out = LaidOut::new(&block.dom(), url, layout, &resources, &Arc::default());
    let recorded = laid_out.record(&block.dom(), url).finish();
    Laid { laid_out, recorded }
}

pub(super) fn page_of(recorded: Recorded) -> Arc<Page> {
    let page = Page::new(Arc::new(recorded.block), None, Box::new(VecParts(recorded.parts)));
    Arc::new(page.unwrap())
}

fn white(scene: &mut impl PaintScene, width: u32, rows: u32) {
    let all = Rect::new(0.0, 0.0, f64::from(width), f64::from(rows));
    scene.fill(Fill::NonZero, Affine::IDENTITY, Color::WHITE, None, &all);
}

/// Paints with the engine itself, without a block.
fn painted_by_the_engine(laid_out: &mut LaidOut, width: u32, rows: u32) -> Vec<u32> {
    let size = laid_out.size();
    let painted = Painter::new().rasterize(width, rows, |scene| {
        white(scene, width, rows);
        laid_out.paint(scene, size);
    });
    painted.unwrap()
}

/// Paints from the block, in one piece as well.
fn replayed(page: &Arc<Page>, width: u32, rows: u32) -> Vec<u32> {
    let painted = Painter::new().rasterize(width, rows, |scene| {
        white(scene, width, rows);
        let view = View { left: 0.0, top: 0.0, width: f64::from(width), height: f64::from(rows) };
        replay(page.block(), &**page, scene, view);
    });
    painted.unwrap()
}

pub(super) fn painted_from_the_block(page: &Arc<Page>, width: u32, rows: u32) -> Vec<u32> {
    let mut pixels = vec![0; (width * rows) as usize];
    let area = Area { left: 0, top: 0, width, height: rows };
    Painter::new().paint(page, area, &mut pixels).unwrap();
    assert!(page.damage().is_none());
    pixels
}

fn assert_same_pixels(path: &Path, layout: Layout) {
    let url = Url::from_file_path(path).unwrap();
    let Laid { mut laid_out, recorded } = lay_out(&std::fs::read(path).unwrap(), &url, layout);
    assert_eq!(recorded.unsupported, 0, "{}", path.display());
    let rows = Block::new(recorded.block.as_bytes()).unwrap().size().height.min(ROWS_MAX);
    let direct = painted_by_the_engine(&mut laid_out, layout.width, rows);
    let page = page_of(recorded);
    let replayed = replayed(&page, layout.width, rows);
    let different = direct.iter().zip(&replayed).filter(|(a, b)| a != b).count();
    assert_eq!(different, 0, "{} pixels of {} differ at {layout:?}", different, path.display());

    // Strips must hold the painted pixels.
    let painted = painted_from_the_block(&page, layout.width, rows);
    let strips = Painter::new().strips(&page, rows).unwrap().finish();
    let stored = Strips::new(strips.as_bytes()).unwrap();
    let mut strip = vec![0; (layout.width * crate::paint::STRIP_ROWS) as usize];
    for (number, expected) in painted.chunks_exact(strip.len()).enumerate() {
        stored.unpack(number as u32, &mut strip).unwrap();
        assert!(strip == expected, "strip {number} of {}", path.display());
    }
}

fn own_pages() -> Vec<PathBuf> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    pages_in(&pages)
}

fn pages_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "html");
    let mut pages: Vec<PathBuf> = paths.filter(is_page).collect();
    pages.sort();
    pages
}

#[test]
fn a_recorded_page_paints_the_pixels_of_the_engine() {
    let pages = own_pages();
    assert!(!pages.is_empty());
    for path in pages {
        assert_same_pixels(&path, Layout::default());
        assert_same_pixels(&path, Layout { width: 700, height: 500, scale: 1.25 });
    }
}

/// Tests pages from the web. `EVERMAP_CORPUS` names folders of them, separated by `:`.
#[test]
fn pages_from_the_web_paint_the_pixels_of_the_engine() {
    let named = std::env::var("EVERMAP_CORPUS").unwrap_or_default();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folders = named.split(':').map(PathBuf::from);
    let corpus = ["viewer-pages", "viewer-pages/tutorial", "html"].map(|name| corpus.join(name));
    let pages: Vec<PathBuf> = folders.chain(corpus).flat_map(|folder| pages_in(&folder)).collect();
    if pages.is_empty() {
        eprintln!("SKIPPED: no pages from the web; set EVERMAP_CORPUS to folders of them");
        return;
    }
    // Tests every sixth page, about a dozen. Each takes about a second.
    for path in pages.iter().step_by(6) {
        assert_same_pixels(path, Layout::default());
    }
}

#[test]
fn links_anchors_and_text_match_the_painted_positions() {
    let html = b"<!doctype html><style>body{margin:0;font:16px/20px sans-serif}</style>
        <div style=height:100px></div><p id=there style=margin:0>See <a href=other.html#x>the <b>other</b></a> page</p>
        <p style=margin:0><a href='javascript:alert(1)'>no script</a> <a href=#there>up</a></p>";
    let url = Url::parse("file:///folder/page.html").unwrap();
    let laid = lay_out(html, &url, Layout::default());
    let block = Block::new(laid.recorded.block.as_bytes()).unwrap();
    let links: Vec<_> = block.links().collect();
    let targets: Vec<&str> = links.iter().map(|link| link.url).collect();
    assert_eq!(targets, ["file:///folder/other.html#x", "file:///folder/page.html#there"]);
    let first = links[0].rect;
    assert!((100.0..120.0).contains(&first.y0) && first.y1 <= 120.5 && first.x0 > 0.0, "{first:?}");
    assert_eq!(block.link_at(first.center().x, first.center().y).unwrap().url, targets[0]);
    assert_eq!(block.link_at(900.0, 700.0), None);
    assert_eq!(block.anchor("there"), Some(100.0));

    let found = block.find("THE OTHER");
    assert_eq!(found.len(), 1);
    let marked = found[0].rects[0];
    assert!((marked.x0 - first.x0).abs() < 1.0 && (marked.x1 - first.x1).abs() < 1.0);
    assert!(block.find("page no").is_empty(), "a match must not cross two blocks");
    assert_eq!(block.find("O").len(), 2);
}

#[test]
fn right_to_left_text_is_found_at_its_position() {
    let html = "<!doctype html><body style='margin:0;font:16px sans-serif'><p dir=rtl style=margin:0>\u{5d0}\u{5d1}\u{5d2} \u{5d3}\u{5d4}";
    let url = Url::parse("file:///page.html").unwrap();
    let laid = lay_out(html.as_bytes(), &url, Layout::default());
    let block = Block::new(laid.recorded.block.as_bytes()).unwrap();
    let first = block.find("\u{5d0}\u{5d1}");
    let last = block.find("\u{5d3}\u{5d4}");
    assert_eq!((first.len(), last.len()), (1, 1));
    assert!(first[0].rects[0].x0 > last[0].rects[0].x1, "text that is read first is on the right");
    assert!(first[0].rects[0].x1 <= 1024.5);
}
