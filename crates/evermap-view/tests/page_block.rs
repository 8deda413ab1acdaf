//! Tests of the page block: recording and reading back, culling, and that a damaged block paints at
//! most a wrong picture.
#![allow(clippy::unwrap_used)]

#[path = "support/drawing.rs"]
mod drawing;
#[path = "support/random.rs"]
mod random;

use std::collections::HashMap;
use std::sync::Arc;

use anyrender::filters::FilterEffect;
use anyrender::{Filter, Glyph, ImageRenderer, PaintScene};
use anyrender_vello_cpu::VelloCpuImageRenderer;
use evermap_view::page::{AlignedBytes, Block, PageSize, PartKind, Recorded, Recorder};
use evermap_view::paint::{Area, Page, Painter, Parts, SharedBytes};
use evermap_view::{Result, ViewError};
use kurbo::{Affine, BezPath, Rect, Stroke, Vec2};
use peniko::{Color, Fill, Gradient, Mix};

use drawing::{HEIGHT, TestParts, WIDTH, draw, size};
use random::{Random, variable};

const BAND: u32 = 256;
/// Offset of the section table, and the number of sections.
const SECTIONS_AT: usize = 72;
const SECTIONS: usize = 27;
/// Index of the section of lines.
const LINES: usize = 24;

fn recorded(parts: &TestParts, seed: u64, commands: usize) -> Recorded {
    let mut recorder = Recorder::new(size());
    recorder.set_title("A page", "file:///tmp/page.html");
    draw(&mut recorder, Affine::IDENTITY, parts, seed, commands);
    for line in 0..12 {
        let top = f64::from(line) * 20.0;
        let words = ["Every", " ", "thing", " ", "flöws", " ", "on", " "];
        recorder.add_line(10.0, top, 18.0, line % 3 == 1, words.iter().map(|word| (*word, 9.5)));
        recorder.add_link(Rect::new(10.0, top, 50.0, top + 18.0), "https://example.org/", line);
        recorder.add_anchor(&format!("part-{line}"), top);
        if line % 4 == 3 {
            recorder.end_block();
        }
    }
    recorder.finish()
}

struct Shared(HashMap<[u8; 32], SharedBytes>);

impl Shared {
    fn of(recorded: &Recorded) -> Shared {
        let bytes = |part: &evermap_view::page::Part| {
            (part.hash, Arc::new(part.data.clone()) as SharedBytes)
        };
        Shared(recorded.parts.iter().map(bytes).collect())
    }
}

impl Parts for Shared {
    fn load(&self, _: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let missing = || ViewError::InvalidPage("a part is missing".to_string());
        self.0.get(hash).cloned().ok_or_else(missing)
    }
}

fn page(bytes: &[u8], recorded: &Recorded) -> Result<Arc<Page>> {
    let block = Arc::new(AlignedBytes::copy_of(bytes));
    Ok(Arc::new(Page::new(block, None, Box::new(Shared::of(recorded)))?))
}

fn paint(painter: &mut Painter, page: &Arc<Page>, area: Area) -> Result<Vec<u32>> {
    let mut pixels = vec![0; (area.width * area.height) as usize];
    painter.paint(page, area, &mut pixels)?;
    Ok(pixels)
}

/// Returns a band from `left` on, painted by the rasterizer directly from all calls.
fn painted_directly(
    parts: &TestParts,
    seed: u64,
    commands: usize,
    left: u32,
    band: u32,
) -> Vec<u32> {
    let mut rgba = Vec::new();
    VelloCpuImageRenderer::new(WIDTH, BAND).render_to_vec(
        |scene| {
            let all = Rect::new(0.0, 0.0, f64::from(WIDTH), f64::from(BAND));
            scene.fill(Fill::NonZero, Affine::IDENTITY, Color::WHITE, None, &all);
            let at = Affine::translate((-f64::from(left), -f64::from(band * BAND)));
            draw(scene, at, parts, seed, commands);
        },
        &mut rgba,
    );
    let pixels = rgba.as_chunks::<4>().0.iter();
    pixels.map(|[red, green, blue, _]| u32::from_be_bytes([0, *red, *green, *blue])).collect()
}

#[test]
fn a_recorded_page_is_read_back() {
    let recorded = recorded(&TestParts::new(), 7, 60);
    let block = Block::new(recorded.block.as_bytes()).unwrap();
    assert_eq!(block.size(), size());
    assert_eq!((block.title(), block.url()), ("A page", "file:///tmp/page.html"));
    assert_eq!(block.links().count(), 12);
    let link = block.link_at(20.0, 45.0).unwrap();
    assert_eq!((link.url, link.node), ("https://example.org/", Some(2)));
    assert!(block.link_at(60.0, 45.0).is_none());
    assert_eq!(block.anchor("part-5"), Some(100.0));
    assert_eq!(block.anchor("part-50"), None);
    let hashes: Vec<_> = block.parts().map(|part| *part.hash).collect();
    assert_eq!(hashes.len(), recorded.parts.len());
    assert!(recorded.parts.iter().all(|part| hashes.contains(&part.hash)));
}

#[test]
fn text_is_found_at_its_position_in_both_directions() {
    let recorded = recorded(&TestParts::new(), 7, 0);
    let block = Block::new(recorded.block.as_bytes()).unwrap();
    let found = block.find("FLÖWS on");
    assert_eq!(found.len(), 12);
    // The fifth to the seventh of eight clusters. In the second line, counted from the right.
    assert_eq!(found[0].rects, [Rect::new(48.0, 0.0, 76.5, 18.0)]);
    assert_eq!(found[1].rects, [Rect::new(19.5, 20.0, 48.0, 38.0)]);
    // Matches cross the end of a line, but not of a block. Three of four lines are followed by
    // another in their block.
    assert_eq!(block.find("on every").len(), 9);
    assert!(block.find("").is_empty());
}

#[test]
fn culling_removes_no_visible_pixels() {
    let parts = TestParts::new();
    let start = variable("EVERMAP_SEED", 1);
    for seed in start..start + variable("EVERMAP_STEPS", 25) {
        let recorded = recorded(&parts, seed, 60);
        let page = page(recorded.block.as_bytes(), &recorded).unwrap();
        let whole = Area { left: 0, top: 0, width: WIDTH, height: HEIGHT };
        let painted = paint(&mut Painter::new(), &page, whole).unwrap();
        for (band, rows) in painted.chunks((WIDTH * BAND) as usize).enumerate() {
            let expected = painted_directly(&parts, seed, 60, 0, band as u32);
            let differ = rows.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "pixels of band {band} with EVERMAP_SEED={seed}");
        }
        let random = &mut Random(seed | 1);
        for _ in 0..8 {
            let (top, height) = (random.below(600) as u32, 1 + random.below(100) as u32);
            let area = Area { left: 0, top, width: WIDTH, height };
            let part = paint(&mut Painter::new(), &page, area).unwrap();
            let from = (top * WIDTH) as usize;
            assert!(part == painted[from..from + part.len()], "{area:?}, EVERMAP_SEED={seed}");
        }
    }
}

#[test]
fn a_page_scrolled_sideways_is_painted_from_its_left_edge() {
    let parts = TestParts::new();
    let start = variable("EVERMAP_SEED", 1);
    for seed in start..start + variable("EVERMAP_STEPS", 6) {
        let recorded = recorded(&parts, seed, 60);
        let page = page(recorded.block.as_bytes(), &recorded).unwrap();
        let painter = &mut Painter::new();
        for left in [1, 37, 150, WIDTH - 1] {
            // Rows of two bands. The painter must not reuse a band with a different left edge.
            let (top, height) = (BAND - 20, 40);
            let part = paint(painter, &page, Area { left, top, width: WIDTH, height }).unwrap();
            let above = painted_directly(&parts, seed, 60, left, 0);
            let below = painted_directly(&parts, seed, 60, left, 1);
            let all = [above, below].concat();
            let from = (top * WIDTH) as usize;
            assert!(part == all[from..from + part.len()], "{left}, EVERMAP_SEED={seed}");
        }
    }
}

/// Damages a block in one or several ways.
fn damage(block: &mut Vec<u8>, random: &mut Random) {
    let entry = |block: &[u8], section: usize| {
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let at = SECTIONS_AT + 16 * section;
        (number(at) as usize, number(at + 8) as usize)
    };
    let extreme = [
        0,
        1,
        u32::MAX,
        1 << 31,
        0x7F80_0000,
        0x7FC0_0000,
        0x7F00_0000,
        0xFEFF_FFFF,
        0x4B00_0000,
        0x5F00_0000,
        0x0000_0001,
        0x3F80_0000,
        0x41F0_0000,
        0xC1E0_0000,
        0x3E11_2E0B,
    ];
    match random.below(20) {
        0 => {
            let end = random.below(block.len());
            block.truncate(end);
        }
        1 => {
            let (a, b) = (random.below(SECTIONS), random.below(SECTIONS));
            for at in 0..16 {
                block.swap(SECTIONS_AT + 16 * a + at, SECTIONS_AT + 16 * b + at);
            }
        }
        2 => {
            // A section and its records grow at the cost of the next section.
            let at = SECTIONS_AT + 16 * random.below(SECTIONS - 1);
            let moved = (8 * random.below(64)) as u64;
            for (at, up) in [(at + 8, true), (at + 16, true), (at + 24, false)] {
                let value = u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
                let value = if up { value.wrapping_add(moved) } else { value.wrapping_sub(moved) };
                block[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        3 => {
            let at = random.below(SECTIONS_AT + 16 * SECTIONS);
            block[at] ^= 1 << random.below(8);
        }
        way => {
            for _ in 0..1 + random.below(8) {
                let (start, bytes) = entry(block, random.below(SECTIONS));
                if bytes < 4 {
                    continue;
                }
                let at = start + random.below(bytes / 4) * 4;
                let value = match random.below(3) {
                    0 => extreme[random.below(extreme.len())],
                    1 => random.number() as u32,
                    _ => random.below(100) as u32,
                };
                match way % 2 {
                    0 => block[at..at + 4].copy_from_slice(&value.to_le_bytes()),
                    _ => block[at + random.below(4)] = value as u8,
                }
            }
        }
    }
}

/// Queries a page and paints parts of it. The rasterizer must not panic.
fn use_page(page: &Arc<Page>, random: &mut Random) {
    let block = page.block();
    let size = block.size();
    _ = (block.title(), block.url(), block.background(), block.links().count());
    _ = (block.link_at(20.0, 45.0), block.anchor("part-3"), block.parts().count());
    _ = (block.fonts().count(), block.searchable().len(), block.commands());
    assert!(block.find("on").len() <= 10_000);
    let areas = [
        Area { left: 0, top: 0, width: WIDTH, height: 64 },
        Area {
            left: random.below(100) as u32,
            top: BAND,
            width: 1 + random.below(300) as u32,
            height: 1,
        },
        Area { left: u32::MAX, top: size.height.saturating_sub(10), width: 10, height: 20 },
    ];
    for area in areas {
        // A damaged hash refers to a missing font or image.
        if let Err(error) = paint(&mut Painter::new(), page, area) {
            assert!(error.is_damage(), "{error}");
        }
    }
    _ = page.damage();
}

#[test]
fn damaged_blocks_paint_at_most_a_wrong_picture() {
    let parts = TestParts::new();
    let start = variable("EVERMAP_SEED", 1);
    for seed in start..start + variable("EVERMAP_STEPS", 2000) {
        let random = &mut Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let recorded = recorded(&parts, seed % 50, 40);
        let mut bytes = recorded.block.as_bytes().to_vec();
        damage(&mut bytes, random);
        let Ok(page) = page(&bytes, &recorded) else { continue };
        let used =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| use_page(&page, random)));
        assert!(used.is_ok(), "EVERMAP_SEED={seed} EVERMAP_STEPS=1");
    }
}

#[test]
fn truncated_blocks_are_rejected() {
    let recorded = recorded(&TestParts::new(), 3, 40);
    let bytes = recorded.block.as_bytes();
    for end in 0..bytes.len().min(2000) {
        let cut = AlignedBytes::copy_of(&bytes[..end]);
        assert!(Block::new(cut.as_bytes()).is_err(), "{end} bytes");
    }
    let longer = AlignedBytes::copy_of(&[bytes, &[0; 8]].concat());
    assert!(Block::new(longer.as_bytes()).is_err());
}

/// Paints a page that requests far more work than real pages. The test passes if it terminates.
fn paints(draw: impl FnOnce(&mut Recorder)) {
    let mut recorder = Recorder::new(PageSize { width: 1000, window: (1000, 100), ..size() });
    draw(&mut recorder);
    let recorded = recorder.finish();
    let page = page(recorded.block.as_bytes(), &recorded).unwrap();
    let area = Area { left: 0, top: 0, width: 1000, height: 64 };
    paint(&mut Painter::new(), &page, area).unwrap();
}

#[test]
fn extreme_lines_terminate() {
    let mut line = BezPath::new();
    line.move_to((0.0, 10.0));
    line.line_to((6e7, 30.0));
    for dashes in
        [vec![1e-9], vec![0.0, 0.0], vec![-1.0, 1.0], vec![1e300, 1e-300], vec![1.0; 5000]]
    {
        let style = Stroke::new(3.0).with_dashes(1e7, dashes);
        paints(|page| page.stroke(&style, Affine::IDENTITY, Color::BLACK, None, &line));
    }
    if let Some(font) = TestParts::new().font {
        let style = Stroke::new(1.0).with_dashes(0.0, [1e-9]);
        let glyphs = (0..50).map(|at| Glyph { id: 36 + at, x: at as f32 * 20.0, y: 40.0 });
        let plain = Affine::IDENTITY;
        paints(|page| {
            let none = Vec2::ZERO;
            page.draw_glyphs(
                &font,
                30.0,
                false,
                &[],
                none,
                &style,
                Color::BLACK,
                1.0,
                plain,
                None,
                glyphs,
            );
        });
    }
    for width in [1e-300, 1e5, 1e30, f64::MAX, f64::NAN, -3.0] {
        paints(|page| {
            page.stroke(&Stroke::new(width), Affine::IDENTITY, Color::BLACK, None, &line)
        });
    }
}

#[test]
fn a_long_path_and_a_million_commands_terminate() {
    let mut path = BezPath::new();
    path.move_to((0.0, 0.0));
    for at in 0..200_000 {
        path.curve_to((f64::from(at % 977), 3e6), (1e6, 20.0), (f64::from(at % 911), 60.0));
    }
    paints(|page| page.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &path));
    let square = Rect::new(0.0, 0.0, 1000.0, 1000.0);
    let gradient =
        Gradient::new_linear((0.0, 0.0), (9.0, 9.0)).with_stops([Color::BLACK, Color::WHITE]);
    paints(|page| {
        for _ in 0..1_000_000 {
            page.fill(Fill::NonZero, Affine::IDENTITY, &gradient, None, &square);
        }
    });
}

#[test]
fn extreme_blurs_and_layers_terminate() {
    let square = Rect::new(0.0, 0.0, 500.0, 500.0);
    for deviation in [1e3, 1e6, f64::MAX, f64::NAN, -1.0] {
        paints(|page| page.draw_box_shadow(Affine::IDENTITY, square, Color::BLACK, 1e9, deviation));
    }
    for (effect, scale, layers) in [
        (FilterEffect::blur(1e6), 1.0, 50),
        (FilterEffect::blur(900.0), 1.0, 50),
        (FilterEffect::blur(3.0), 60_000.0, 50),
        (FilterEffect::drop_shadow(1e30, 0.0, 3.0, Color::BLACK), 1.0, 50),
        (FilterEffect::grayscale(1.0), 1.0, 1000),
    ] {
        let filter = Arc::new(Filter::single(effect));
        paints(|page| {
            for _ in 0..layers {
                let (filter, scale) = (Some(filter.clone()), Affine::scale(scale));
                page.push_layer(Fill::NonZero, Mix::Multiply, 0.5, scale, &square, filter, None);
                page.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &square);
            }
        });
    }
}

#[test]
fn a_row_at_the_edge_of_a_band_is_painted() {
    let mut recorder = Recorder::new(size());
    let column = |at: f64, top, bottom| Rect::new(at, top, at + 1.0, bottom);
    let black = |recorder: &mut Recorder, moved, shape: &Rect| {
        recorder.fill(Fill::NonZero, Affine::translate((0.0, moved)), Color::BLACK, None, shape);
    };
    black(&mut recorder, 0.0, &column(0.0, 200.0, 257.0));
    black(&mut recorder, 0.25, &column(1.0, 200.0, 256.5));
    black(&mut recorder, 200.0, &column(2.0, 55.0, 300.0));
    let recorded = recorder.finish();
    let page = page(recorded.block.as_bytes(), &recorded).unwrap();
    let area = Area { left: 0, top: 255, width: WIDTH, height: 2 };
    let pixels = paint(&mut Painter::new(), &page, area).unwrap();
    let row = |row: usize| [0, 1, 2].map(|at| pixels[row * WIDTH as usize + at] != 0x00FF_FFFF);
    assert_eq!((row(0), row(1)), ([true; 3], [true; 3]));
}

#[test]
fn an_unsupported_filter_leaves_its_content() {
    let square = Rect::new(0.0, 0.0, 500.0, 500.0);
    let mut recorder = Recorder::new(size());
    let filter = Some(Arc::new(Filter::single(FilterEffect::grayscale(1.0))));
    recorder.push_layer(Fill::NonZero, Mix::Normal, 1.0, Affine::IDENTITY, &square, filter, None);
    recorder.fill(Fill::NonZero, Affine::IDENTITY, Color::from_rgb8(255, 0, 0), None, &square);
    let recorded = recorder.finish();
    let page = page(recorded.block.as_bytes(), &recorded).unwrap();
    let pixels = paint(&mut Painter::new(), &page, Area { left: 0, top: 0, width: 9, height: 9 });
    assert_eq!(pixels.unwrap()[0], 0x00FF_0000);
}

#[test]
fn finding_in_overlapping_lines_terminates() {
    let mut recorder = Recorder::new(size());
    for line in 0..3000 {
        recorder.add_line(0.0, f64::from(line), 1.0, false, ["e"; 100].iter().map(|e| (*e, 1.0)));
    }
    let recorded = recorder.finish();
    let mut block = AlignedBytes::copy_of(recorded.block.as_bytes());
    let bytes = block.as_mut_bytes();
    let at = SECTIONS_AT + 16 * LINES;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (start, length) = (number(at), number(at + 8));
    for line in bytes[start..start + length].chunks_mut(28) {
        line[12..16].copy_from_slice(&0_u32.to_le_bytes());
        line[16..20].copy_from_slice(&300_000_u32.to_le_bytes());
        line[20..24].copy_from_slice(&0_u32.to_le_bytes());
        line[24..28].copy_from_slice(&300_000_u32.to_le_bytes());
    }
    let found = Block::new(block.as_bytes()).unwrap().find("e").len();
    assert!(found < 10_000, "{found}");
}
