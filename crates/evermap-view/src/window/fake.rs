//! Test pages, created by the recorder without an engine.

use std::sync::Arc;

use anyrender::PaintScene;
use kurbo::{Affine, Rect};
use peniko::{Color, Fill};

use crate::Layout;
use crate::page::{PageSize, PartKind, Recorder};
use crate::paint::{Page, Parts, SharedBytes};
use crate::{Result, ViewError};

struct NoParts;

impl Parts for NoParts {
    fn load(&self, _: PartKind, _: &[u8; 32]) -> Result<SharedBytes> {
        Err(ViewError::InvalidPage("the test page has no parts".to_string()))
    }
}

pub(crate) fn record(size: PageSize, url: &str, draw: impl FnOnce(&mut Recorder)) -> Arc<Page> {
    let mut recorder = Recorder::new(size);
    recorder.set_title(url.rsplit('/').next().unwrap_or_default(), url);
    draw(&mut recorder);
    match Page::new(Arc::new(recorder.finish().block), None, Box::new(NoParts)) {
        Ok(page) => Arc::new(page),
        Err(error) => panic!("{error}"),
    }
}

fn size(width: u32, height: u32, window: (u32, u32), scale: f32) -> PageSize {
    PageSize { width, height, window, scale }
}

/// Returns a page without content.
pub(crate) fn page(url: &str, width: u32, height: u32) -> Arc<Page> {
    record(size(width, height, (width, 600), 1.0), url, |_| ())
}

/// Returns a page of `count` lines of text, `pitch` pixels apart: "line 0", "line 1" and so on.
pub(crate) fn lines(url: &str, count: u32, pitch: u32, scale: f32) -> Arc<Page> {
    record(size(1000, count * pitch, (1000, 600), scale), url, |recorder| {
        add_lines(recorder, count, pitch);
    })
}

fn add_lines(recorder: &mut Recorder, count: u32, pitch: u32) {
    for number in 0..count {
        let top = f64::from(number * pitch);
        let text = format!("line {number}");
        let clusters = text.char_indices().map(|(at, c)| (&text[at..at + c.len_utf8()], 10.0));
        recorder.add_line(0.0, top, 16.0, false, clusters);
        recorder.end_block();
    }
}

/// Returns a page like one laid out for `layout`: 100 lines, 30 CSS pixels apart. The first three
/// link to `a/one`, `a/two#middle` and `#middle`, which is line 50. Its rows are painted in
/// alternating colours.
pub(crate) fn site(url: &str, layout: Layout) -> Arc<Page> {
    let pitch = (30.0 * layout.scale).round() as u32;
    let window = (layout.width, layout.height);
    record(size(layout.width, 100 * pitch, window, layout.scale), url, |recorder| {
        add_lines(recorder, 100, pitch);
        let line = |number: u32| {
            let top = f64::from(number * pitch);
            Rect::new(0.0, top, 60.0, top + f64::from(pitch))
        };
        let here = url.split('#').next().unwrap_or_default();
        let targets = ["http://a/one", "http://a/two#middle", &format!("{here}#middle")];
        for (number, target) in (0..).zip(targets) {
            recorder.add_link(line(number), target, number);
        }
        recorder.add_anchor("middle", line(50).y0);
        for number in 0..100_u32 {
            let color = Color::from_rgb8(number as u8, 0, (number % 2 * 255) as u8);
            recorder.fill(Fill::NonZero, Affine::IDENTITY, color, None, &line(number));
        }
    })
}

/// Returns a page twice as wide as its window and 3000 pixels high. Its left half is black.
pub(crate) fn wide(url: &str, layout: Layout) -> Arc<Page> {
    let window = (layout.width, layout.height);
    record(size(2 * layout.width, 3000, window, layout.scale), url, |recorder| {
        let half = Rect::new(0.0, 0.0, f64::from(layout.width), 3000.0);
        recorder.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &half);
    })
}
