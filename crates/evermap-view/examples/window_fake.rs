//! Opens the viewer's window with generated pages, without an engine, a store or the network.
//!
//!     cargo run -p evermap-view --no-default-features --features window --example window_fake
//!
//! Prints the window's requests to standard output, where the tests read them. With `--trace`,
//! prints the times of the window's steps to standard error.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyrender::{Glyph, PaintScene};
use evermap_view::page::{PageBytes, PageSize, Part, PartKind, Recorder};
use evermap_view::paint::{Page, Painter, Parts, SharedBytes};
use evermap_view::window::{Browse, Progress, Reuse, Stage, Visit, WindowOptions, run};
use evermap_view::{Layout, Result, ViewError};
use kurbo::{Affine, Rect, Vec2};
use peniko::{Blob, Color, Fill, FontData};
use skrifa::MetadataProvider;
use skrifa::instance::{LocationRef, Size};

const FONTS: [&str; 3] = [
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
];

/// Provides linked pages, 3000 CSS pixels high, with a stripe on the left whose colour shows the
/// vertical position.
struct TestPages {
    font: Option<FontData>,
}

impl Browse for TestPages {
    fn visit(
        &self,
        address: &str,
        layout: Layout,
        reuse: Reuse,
        progress: &Progress,
    ) -> Result<Visit> {
        let Layout { width, height, scale } = layout;
        say(&format!("visit {address} {width}x{height}@{scale} fresh={}", reuse == Reuse::Nothing));
        let url = address.split('#').next().unwrap_or(address);
        match url {
            "fake://slow" => {
                for part in 0..600 {
                    progress.report(Stage {
                        done: Some(part as f32 / 600.0),
                        ..Stage::new("loading slowly")
                    });
                    sleep(Duration::from_millis(50));
                    if progress.is_cancelled() {
                        say("cancelled");
                        break;
                    }
                }
            }
            "fake://one" | "fake://two" | "fake://wide" => (),
            _ => {
                return Err(ViewError::NotFound {
                    name: address.to_string(),
                    why: "not a file and not an object".to_string(),
                });
            }
        }
        let page = self.page(url, layout)?;
        let shown = url.to_string();
        Ok(Visit {
            page,
            url: url.to_string(),
            warm: true,
            summary: "warm".to_string(),
            took: Duration::from_micros(100),
            after: Some(Box::new(move || {
                say(&format!("shown {shown}"));
                None
            })),
        })
    }

    fn interface_font(&self) -> Option<(SharedBytes, u32)> {
        let font = self.font.as_ref()?;
        Some((Arc::new(font.data.clone()), font.index))
    }

    fn closed(&self, window: &WindowOptions) {
        let WindowOptions { width, height, scale, zoom, .. } = window;
        say(&format!("closed {width}x{height}@{scale} zoom={zoom}"));
    }
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // An error is ignored: no test is reading.
    _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// Fonts of a page that was just recorded.
struct Recorded(Vec<Part>);

impl Parts for Recorded {
    fn load(&self, _: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let part = self.0.iter().find(|part| part.hash == *hash);
        let part = part.ok_or_else(|| ViewError::InvalidPage("a font is missing".to_string()))?;
        Ok(Arc::new(part.data.clone()))
    }
}

impl TestPages {
    fn page(&self, url: &str, layout: Layout) -> Result<Arc<Page>> {
        let px = |css: f64| css * f64::from(layout.scale);
        let is_wide = url == "fake://wide";
        let width = if is_wide { layout.width * 2 } else { layout.width };
        let window = (layout.width, layout.height);
        let size = PageSize { width, height: px(3000.0) as u32, window, scale: layout.scale };
        let mut recorder = Recorder::new(size);
        let name = url.rsplit('/').next().unwrap_or_default();
        recorder.set_title(&format!("Page {name}"), url);
        for band in 0..30_u8 {
            let top = px(100.0 * f64::from(band));
            let rect = Rect::new(0.0, top, px(20.0), top + px(100.0));
            fill(
                &mut recorder,
                rect,
                Color::from_rgb8(band * 8, if name == "two" { 200 } else { 100 }, 60),
            );
        }
        let ink = Color::from_rgb8(30, 34, 40);
        let blue = Color::from_rgb8(20, 80, 180);
        let text = |recorder: &mut Recorder, text: &str, top: f64, size: f64, color: Color| {
            self.text(recorder, text, (px(60.0), px(top)), px(size), color)
        };
        text(&mut recorder, &format!("This is page {name}"), 40.0, 32.0, ink);
        let links =
            ["fake://one", "fake://two", "#middle", "fake://wide", "fake://slow", "fake://none"];
        for (number, target) in (0..).zip(links) {
            let top = 100.0 + 30.0 * f64::from(number);
            let width = text(&mut recorder, &format!("a link to {target}"), top, 16.0, blue);
            let rect =
                Rect::new(px(60.0), px(top), px(60.0) + width.max(px(100.0)), px(top + 22.0));
            let target =
                if target.starts_with('#') { format!("{url}{target}") } else { target.to_string() };
            recorder.add_link(rect, &target, number);
        }
        for line in 0..80 {
            let what = "lines of text, so that there is something to scroll and to find";
            text(
                &mut recorder,
                &format!("{line}: {what}"),
                320.0 + 30.0 * f64::from(line),
                16.0,
                ink,
            );
        }
        recorder.add_anchor("middle", px(1500.0));
        let recorded = recorder.finish();
        let parts = || Box::new(Recorded(recorded.parts.clone()));
        let block: Arc<dyn PageBytes> = Arc::new(recorded.block);
        let plain = Arc::new(Page::new(block.clone(), None, parts())?);
        // The first rows have strips, as in a stored page.
        let strips = Painter::new().strips(&plain, layout.height * 2)?.finish();
        Ok(Arc::new(Page::new(block, Some(Arc::new(strips)), parts())?))
    }

    /// Draws a line of text and returns its width.
    fn text(
        &self,
        recorder: &mut Recorder,
        text: &str,
        at: (f64, f64),
        size: f64,
        color: Color,
    ) -> f64 {
        let Some(font) = &self.font else { return 0.0 };
        let Ok(file) = skrifa::FontRef::from_index(font.data.data(), font.index) else {
            return 0.0;
        };
        let metrics = file.glyph_metrics(Size::new(size as f32), LocationRef::default());
        let charmap = file.charmap();
        let mut x = 0.0;
        let mut glyphs = Vec::new();
        let mut clusters = Vec::new();
        for (start, character) in text.char_indices() {
            let id = charmap.map(character).unwrap_or_default();
            let advance = metrics.advance_width(id).unwrap_or(0.0);
            glyphs.push(Glyph { id: id.to_u32(), x, y: 0.0 });
            clusters.push((&text[start..start + character.len_utf8()], advance));
            x += advance;
        }
        let to_place = Affine::translate((at.0, (at.1 + size).round()));
        recorder.draw_glyphs(
            font,
            size as f32,
            true,
            &[],
            Vec2::ZERO,
            Fill::NonZero,
            color,
            1.0,
            to_place,
            None,
            glyphs.into_iter(),
        );
        recorder.add_line(at.0, at.1, size * 1.3, false, clusters.into_iter());
        recorder.end_block();
        f64::from(x)
    }
}

fn fill(recorder: &mut Recorder, rect: Rect, color: Color) {
    recorder.fill(Fill::NonZero, Affine::IDENTITY, color, None, &rect);
}

fn font() -> Option<FontData> {
    let path = FONTS.iter().map(Path::new).find(|path| path.exists())?;
    Some(FontData::new(Blob::new(Arc::new(std::fs::read(path).ok()?)), 0))
}

/// Opens the window. Returns the program's exit code.
pub fn main() -> std::process::ExitCode {
    if std::env::args().any(|argument| argument == "--trace") {
        let level = tracing_subscriber::filter::LevelFilter::DEBUG;
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    }
    let start = std::env::args().skip(1).find(|argument| argument.contains("://"));
    let start = start.as_deref().unwrap_or("fake://one");
    let options = WindowOptions { home: "fake://one".to_string(), ..Default::default() };
    match run(Arc::new(TestPages { font: font() }), start, options) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
