//! Draws the toolbar, the status line, the find bar and the error page.
//!
//! Each is a panel, whose pixels are cached until its content changes. The content is a comparable
//! value that holds everything the drawing depends on.

use anyrender::{ImageRenderer, PaintScene};
use anyrender_vello_cpu::{VelloCpuImageRenderer, VelloCpuScenePainter};
use kurbo::{Affine, Circle, Rect, RoundedRect, Shape, Stroke};
use peniko::Fill;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::canvas::{color, colors};
use super::geometry::{Button, Rectangle};
use super::icons::icon;
use super::keys::Focus;
use super::state::State;
use super::text::TextStyle;
use super::visits::Failure;
use crate::{Result, ViewError};

/// The panels and their rasterizer.
#[derive(Default)]
pub(crate) struct Chrome {
    rasterizer: Rasterizer,
    toolbar: Panel,
    status: Panel,
    find: Panel,
    failure: Panel,
}

/// Cached pixels and their content.
#[derive(Default)]
struct Panel {
    content: Option<PanelContent>,
    pixels: Vec<u32>,
}

/// Everything that a panel's drawing depends on.
#[derive(Clone, Debug, PartialEq)]
struct PanelContent {
    size: (u32, u32),
    scale: f64,
    has_font: bool,
    /// Button under the pointer, and true if it is pressed.
    lit: Option<(Button, bool)>,
    /// Buttons, each with true if it is enabled.
    enabled: Vec<(Button, bool)>,
    loading: bool,
    field: Option<FieldContent>,
    texts: Vec<String>,
    /// True if the page came from the store. Determines the colour of the dot; `None` draws no dot.
    warm: Option<bool>,
}

/// Visible state of a text field. Positions are in pixels from the left of the window.
#[derive(Clone, Debug, PartialEq)]
struct FieldContent {
    text: String,
    start: f32,
    /// Positions of the cursor and of the selection's ends, for the focused field.
    cursor: Option<(f32, (f32, f32))>,
}

/// Formats a duration in milliseconds, with one decimal below 10 ms.
fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

impl Chrome {
    /// Returns the toolbar's pixels.
    pub(crate) fn toolbar(&mut self, state: &State) -> Result<&[u32]> {
        let g = &state.geometry;
        let lit = state.pointer.lit.filter(|(button, _)| {
            matches!(button, Button::Back | Button::Forward | Button::Reload | Button::Home)
        });
        let content = PanelContent {
            lit,
            enabled: vec![
                (Button::Back, state.visits.history.ahead(-1).is_some()),
                (Button::Forward, state.visits.history.ahead(1).is_some()),
                (Button::Reload, true),
                (Button::Home, state.visits.has_home()),
            ],
            // A fast visit ends before the first tick, and does not change the icon.
            loading: state.visits.loading.as_ref().is_some_and(|loading| loading.ticks > 0),
            field: Some(address_content(state)),
            ..PanelContent::of(state, g.toolbar)
        };
        self.toolbar.draw(&mut self.rasterizer, content, |scene, content| {
            draw_line(
                scene,
                Rectangle { top: g.toolbar.bottom().saturating_sub(1), height: 1, ..g.toolbar },
            );
            draw_buttons(scene, state, content, (0, 0));
            draw_field(scene, state, content, g.address, (0, 0), state.focus == Focus::Address);
        })
    }

    /// Returns the status line's pixels. `painting` is the time to paint the page.
    pub(crate) fn status(&mut self, state: &State, painting: Duration) -> Result<&[u32]> {
        let g = &state.geometry;
        let status = state.status();
        let text = match status.took {
            Some(took) => format!("{}, {}", status.text, milliseconds(took + painting)),
            None => status.text,
        };
        let texts = vec![text, status.right];
        let content =
            PanelContent { texts, warm: status.warm, ..PanelContent::of(state, g.status) };
        self.status.draw(&mut self.rasterizer, content, |scene, content| {
            draw_line(scene, Rectangle::new(0, 0, g.status.width, 1));
            let style = state.text_style(0.92);
            let middle = g.status.height as f32 / 2.0 + 0.5;
            let (padding, width) = (state.field_padding(), g.status.width as f32);
            let mut left = padding;
            if let Some(warm) = content.warm {
                let radius = 3.5 * content.scale;
                let center = (f64::from(left) + radius, f64::from(middle));
                let rgb = if warm { colors::WARM } else { colors::COLD };
                fill(scene, &Circle::new(center, radius), rgb);
                left += 2.0 * radius as f32 + g.px(6.0) as f32;
            }
            let right = style.width(&content.texts[1]);
            let room = width - left - right - 2.0 * padding;
            let text = style.shortened(&content.texts[0], room.max(0.0));
            style.draw(scene, &text, left, middle, color(colors::QUIET));
            let x = width - right - padding;
            style.draw(scene, &content.texts[1], x, middle, color(colors::QUIET));
        })
    }

    /// Returns the find bar's pixels.
    pub(crate) fn find(&mut self, state: &State) -> Result<&[u32]> {
        let g = &state.geometry;
        let lit = state.pointer.lit.filter(|(button, _)| {
            matches!(button, Button::FindPrevious | Button::FindNext | Button::FindClose)
        });
        let found = !state.find.matches.is_empty();
        let content = PanelContent {
            lit,
            enabled: vec![
                (Button::FindPrevious, found),
                (Button::FindNext, found),
                (Button::FindClose, true),
            ],
            field: Some(find_content(state)),
            texts: vec![state.find.count()],
            ..PanelContent::of(state, g.find)
        };
        let origin = (g.find.left, g.find.top);
        self.find.draw(&mut self.rasterizer, content, |scene, content| {
            let size = (g.find.width, g.find.height);
            draw_line(scene, Rectangle::new(0, 0, 1, size.1));
            draw_line(scene, Rectangle::new(0, size.1.saturating_sub(1), size.0, 1));
            draw_buttons(scene, state, content, origin);
            draw_field(scene, state, content, g.find_field, origin, state.focus == Focus::Find);
            let style = state.text_style(0.92);
            let (count, bounds) = (&content.texts[0], g.find_field);
            let right = (bounds.right() - origin.0) as f32 - state.field_padding();
            let middle = (bounds.top - origin.1) as f32 + bounds.height as f32 / 2.0;
            let x = right - style.width(count);
            if x > (bounds.left - origin.0) as f32 {
                style.draw(scene, count, x, middle, color(colors::QUIET));
            }
        })
    }

    /// Returns the pixels of an error page.
    pub(crate) fn failure(&mut self, state: &State, failure: &Failure) -> Result<&[u32]> {
        let page = state.geometry.page;
        let texts = vec![failure.address.clone(), failure.why.clone(), failure.remedy.clone()];
        let content = PanelContent { texts, ..PanelContent::of(state, page) };
        self.failure.draw(&mut self.rasterizer, content, |scene, _| {
            let all = Rect::new(0.0, 0.0, f64::from(page.width), f64::from(page.height));
            fill(scene, &all, colors::PAPER);
            draw_failure(scene, state, failure);
        })
    }
}

impl PanelContent {
    fn of(state: &State, part: Rectangle) -> PanelContent {
        PanelContent {
            size: (part.width, part.height),
            scale: state.geometry.scale,
            has_font: state.font.is_some(),
            lit: None,
            enabled: Vec::new(),
            loading: false,
            field: None,
            texts: Vec::new(),
            warm: None,
        }
    }
}

impl Panel {
    fn draw(
        &mut self,
        rasterizer: &mut Rasterizer,
        content: PanelContent,
        draw: impl FnOnce(&mut VelloCpuScenePainter, &PanelContent),
    ) -> Result<&[u32]> {
        if self.content.as_ref() != Some(&content) {
            self.content = None;
            rasterizer.rasterize(content.size, &mut self.pixels, |scene| draw(scene, &content))?;
            self.content = Some(content);
        }
        Ok(&self.pixels)
    }
}

/// One rasterizer for all panels, so that glyphs are outlined once.
#[derive(Default)]
struct Rasterizer {
    renderer: Option<VelloCpuImageRenderer>,
    rgba: Vec<u8>,
}

impl Rasterizer {
    fn rasterize(
        &mut self,
        (width, height): (u32, u32),
        pixels: &mut Vec<u32>,
        draw: impl FnOnce(&mut VelloCpuScenePainter),
    ) -> Result<()> {
        pixels.clear();
        let bounds = 1..=u32::from(u16::MAX);
        if !bounds.contains(&width) || !bounds.contains(&height) {
            return Ok(());
        }
        let mut renderer = match self.renderer.take() {
            Some(mut renderer) => {
                renderer.resize(width, height);
                renderer
            }
            None => VelloCpuImageRenderer::new(width, height),
        };
        let rgba = &mut self.rgba;
        rgba.clear();
        // The rasterizer is third-party code and may panic, for example if the font is damaged.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let background = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
            let draw = |scene: &mut VelloCpuScenePainter| {
                fill(scene, &background, colors::BAR);
                draw(scene);
            };
            renderer.render_to_vec(draw, rgba);
            renderer
        }));
        let Ok(renderer) = done else {
            let why = "the rasterizer panicked on the window's own text".to_string();
            return Err(ViewError::InvalidPage(why));
        };
        self.renderer = Some(renderer);
        let quads = self.rgba.as_chunks::<4>().0.iter();
        pixels.extend(
            quads.map(|[red, green, blue, _]| u32::from_be_bytes([0, *red, *green, *blue])),
        );
        Ok(())
    }
}

/// Returns the address: complete and scrolled during editing, else shortened in the middle if it is
/// too long.
fn address_content(state: &State) -> FieldContent {
    if state.focus == Focus::Address {
        return edited_content(state);
    }
    let padding = state.field_padding();
    let room = state.geometry.address.width as f32 - 2.0 * padding;
    FieldContent {
        text: state.text_style(1.0).shortened(state.address.text(), room.max(0.0)),
        start: state.geometry.address.left as f32 + padding,
        cursor: None,
    }
}

fn find_content(state: &State) -> FieldContent {
    if state.focus == Focus::Find {
        return edited_content(state);
    }
    let start = state.geometry.find_field.left as f32 + state.field_padding();
    FieldContent { text: state.find.field.text().to_string(), start, cursor: None }
}

/// Returns the content of the focused field, with its cursor and selection.
fn edited_content(state: &State) -> FieldContent {
    let field = if state.focus == Focus::Find { &state.find.field } else { &state.address };
    let style = state.text_style(1.0);
    let start = state.field_start();
    let at = |byte: usize| start + style.width(&field.text()[..byte]);
    let selection = field.selection();
    FieldContent {
        text: field.text().to_string(),
        start,
        cursor: Some((at(field.cursor()), (at(selection.start), at(selection.end)))),
    }
}

pub(super) fn fill(scene: &mut impl PaintScene, shape: &impl Shape, rgb: u32) {
    scene.fill(Fill::NonZero, Affine::IDENTITY, color(rgb), None, shape);
}

fn draw_line(scene: &mut impl PaintScene, rect: Rectangle) {
    fill(scene, &moved(rect, (0, 0)), colors::LINE);
}

/// Converts a rectangle from window to panel coordinates. The panel begins at `origin`.
fn moved(rect: Rectangle, origin: (u32, u32)) -> Rect {
    let (x, y) =
        (f64::from(rect.left) - f64::from(origin.0), f64::from(rect.top) - f64::from(origin.1));
    Rect::new(x, y, x + f64::from(rect.width), y + f64::from(rect.height))
}

fn draw_buttons(
    scene: &mut impl PaintScene,
    state: &State,
    content: &PanelContent,
    origin: (u32, u32),
) {
    for (button, enabled) in &content.enabled {
        let at = moved(state.geometry.button(*button), origin);
        let lit = content.lit.filter(|(lit, _)| lit == button && *enabled);
        if let Some((_, held)) = lit {
            let background = RoundedRect::from_rect(at, 6.0 * content.scale);
            fill(scene, &background, if held { colors::HELD } else { colors::LIT });
        }
        let ink = if *enabled { colors::ICON } else { colors::FAINT };
        icon(scene, *button, content.loading, at, ink);
    }
}

fn draw_field(
    scene: &mut impl PaintScene,
    state: &State,
    content: &PanelContent,
    bounds: Rectangle,
    origin: (u32, u32),
    focused: bool,
) {
    let Some(field) = &content.field else { return };
    let scale = content.scale;
    let at = moved(bounds, origin);
    let (edge, thick) = if focused { (colors::FOCUS, 1.5 * scale) } else { (colors::LINE, 1.0) };
    let frame = RoundedRect::from_rect(at.inset(-thick / 2.0), 6.0 * scale);
    fill(scene, &frame, colors::FIELD);
    let mut clip = at.inset(-f64::from(state.field_padding()) + 2.0);
    if focused {
        clip.x1 = (clip.x1 - f64::from(state.field_reserve())).max(clip.x0);
    }
    scene.push_clip_layer(Fill::NonZero, Affine::IDENTITY, &clip);
    let shift = origin.0 as f32;
    if let Some((cursor, (from, to))) = field.cursor {
        let (top, bottom) = (at.y0 + 5.0 * scale, at.y1 - 5.0 * scale);
        let span = |from: f32, to: f32| {
            Rect::new(f64::from(from - shift), top, f64::from(to - shift), bottom)
        };
        fill(scene, &span(from, to), colors::SELECTED);
        if from == to {
            let left = cursor.round();
            fill(scene, &span(left, left + scale.max(1.0) as f32), colors::TEXT);
        }
    }
    let middle = at.center().y as f32;
    let style = state.text_style(1.0);
    style.draw(scene, &field.text, field.start - shift, middle, color(colors::TEXT));
    scene.pop_layer();
    scene.stroke(&Stroke::new(thick), Affine::IDENTITY, color(edge), None, &frame);
}

fn draw_failure(scene: &mut impl PaintScene, state: &State, failure: &Failure) {
    let page = state.geometry.page;
    let px = |css: f64| state.geometry.px(css) as f32;
    let width = (page.width as f32 - 2.0 * px(32.0)).clamp(1.0, px(620.0));
    let left = (page.width as f32 - width) / 2.0;
    let mut y = (page.height as f32 / 4.0).min(px(150.0)).round();
    let sign = Rect::new(
        f64::from(left),
        f64::from(y),
        f64::from(left + px(30.0)),
        f64::from(y + px(30.0)),
    );
    super::icons::warning(scene, sign);
    let heading = state.text_style(1.7);
    let x = left + px(44.0);
    heading.draw(scene, "This page can't be shown", x, y + px(15.0), color(colors::TEXT));
    y += px(60.0);
    let body = state.text_style(1.1);
    let mut paragraph = |text: &str, style: TextStyle<'_>, rgb: u32| {
        for line in style.lines(text, width) {
            style.draw(scene, line.trim_end(), left, y, color(rgb));
            y += style.size * 1.5;
        }
        y += style.size * 0.7;
    };
    // Do not repeat an address that the message contains.
    if !failure.why.contains(&failure.address) {
        paragraph(&body.shortened(&failure.address, width), body, colors::QUIET);
    }
    let why = match failure.why.starts_with(&failure.address) {
        true => failure.why.clone() + ".",
        false => sentence(&failure.why),
    };
    paragraph(&why, body, colors::TEXT);
    if !failure.remedy.is_empty() {
        paragraph(&sentence(&failure.remedy), body, colors::TEXT);
    }
    paragraph("Press Enter to try again", body, colors::QUIET);
}

/// Formats an error message as a sentence.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str() + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_below_ten_milliseconds_have_one_decimal() {
        let formatted = |us| milliseconds(Duration::from_micros(us));
        assert_eq!(
            [formatted(0), formatted(1_840), formatted(9_940)],
            ["0.0 ms", "1.8 ms", "9.9 ms"]
        );
        assert_eq!([formatted(10_400), formatted(1_234_567)], ["10 ms", "1235 ms"]);
    }
}
