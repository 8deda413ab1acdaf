//! Produces pixels of a page: copies them from strips where possible, and paints the rest from the
//! commands.
//!
//! Painting is done in bands of 256 rows that begin at multiples of 256, for any requested area. So
//! a pixel has the same value for every scroll position, whether it comes from a strip or not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyrender::{ImageRenderer, PaintScene};
use anyrender_vello_cpu::VelloCpuImageRenderer;
use kurbo::{Affine, Rect};
use peniko::{Color, Fill};

use super::page::Page;
use super::replay::{View, replay};
use super::strips::{STRIP_ROWS, StripPacker};
use crate::page::WIDTH_MAX;
use crate::{Result, ViewError};

/// Rows of a band, a multiple of [`STRIP_ROWS`].
const BAND_ROWS: u32 = 256;
/// Number of cached bands; several screens.
const BANDS_MAX: usize = 24;

/// A part of a page, in device pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Distance from the page's left edge.
    pub left: u32,
    /// Distance from the page's top.
    pub top: u32,
    /// Width in pixels.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
}

/// Numbers of strips and bands that an area took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Painted {
    /// Number of copied strips.
    pub strips: u32,
    /// Number of painted bands.
    pub bands: u32,
}

/// Paints pages. Caches its renderer and the last bands of the last page.
#[derive(Default)]
pub struct Painter {
    renderer: Option<(u32, u32, VelloCpuImageRenderer)>,
    rgba: Vec<u8>,
    strip: Vec<u32>,
    bands: Vec<Band>,
}

struct Band {
    page: Arc<Page>,
    left: u32,
    width: u32,
    number: u32,
    pixels: Vec<u32>,
}

impl Painter {
    /// Creates a painter without cached bands.
    pub fn new() -> Painter {
        Painter::default()
    }

    /// Writes the pixels of `area` row by row, each 0x00RRGGBB. Pixels outside the page get its
    /// background.
    ///
    /// Rows that are stored as strips are unpacked. Others are painted, which takes several times
    /// as long.
    ///
    /// # Errors
    /// Fails if the area is too large, or the rasterizer can't paint the page. Fails with
    /// [`ViewError::is_damage`] if data of the page is damaged or missing. The pixels must not be
    /// shown then.
    pub fn paint(&mut self, page: &Arc<Page>, area: Area, pixels: &mut [u32]) -> Result<Painted> {
        let Area { width, height, .. } = area;
        let bad = |why: &str| ViewError::BadSize { width, height, why: why.to_string() };
        if width == 0 || width > WIDTH_MAX {
            return Err(bad("the width must be between 1 and 16384 pixels"));
        }
        if pixels.len() as u64 != u64::from(width) * u64::from(height) {
            return Err(bad("the size of the buffer does not match"));
        }
        let mut painted = Painted::default();
        let page_height = page.block().size().height;
        let mut row = 0;
        while row < height {
            let y = area.top.saturating_add(row);
            if y >= page_height {
                pixels[row as usize * width as usize..].fill(page.block().background());
                break;
            }
            let strip = y / STRIP_ROWS;
            let rows = (STRIP_ROWS - y % STRIP_ROWS).min(height - row);
            let start = row as usize * width as usize;
            let target = &mut pixels[start..start + rows as usize * width as usize];
            match self.copy_strip(page, area, strip, y % STRIP_ROWS, target) {
                true => painted.strips += 1,
                false => {
                    page.damage().map_or(Ok(()), Err)?;
                    painted.bands += self.copy_band(page, area, y, target)?;
                }
            }
            row += rows;
        }
        page.damage().map_or(Ok(painted), Err)
    }

    /// Copies rows from `first_row` on of a strip. Returns false if the strip is not stored.
    fn copy_strip(
        &mut self,
        page: &Page,
        area: Area,
        strip: u32,
        first_row: u32,
        target: &mut [u32],
    ) -> bool {
        let Some(strips) = page.strips() else { return false };
        if area.left != 0 || strips.width() != area.width || strip >= strips.count() {
            return false;
        }
        let whole = (area.width * STRIP_ROWS) as usize;
        if target.len() == whole {
            return strips.unpack(strip, target).is_ok();
        }
        self.strip.resize(whole, 0);
        if strips.unpack(strip, &mut self.strip).is_err() {
            return false;
        }
        let start = (first_row * area.width) as usize;
        target.copy_from_slice(&self.strip[start..start + target.len()]);
        true
    }

    /// Copies rows from `y` on, all of one band. Returns the number of bands that had to be
    /// painted.
    fn copy_band(
        &mut self,
        page: &Arc<Page>,
        area: Area,
        y: u32,
        target: &mut [u32],
    ) -> Result<u32> {
        let number = y / BAND_ROWS;
        let is_same = |band: &Band| {
            Arc::ptr_eq(&band.page, page)
                && (band.left, band.width, band.number) == (area.left, area.width, number)
        };
        let known = self.bands.iter().position(is_same);
        let at = match known {
            Some(at) => at,
            None => {
                let pixels = self.paint_band(page, area.left, area.width, number)?;
                page.damage().map_or(Ok(()), Err)?;
                self.bands.retain(|band| Arc::ptr_eq(&band.page, page));
                if self.bands.len() == BANDS_MAX {
                    self.bands.remove(0);
                }
                let (left, width) = (area.left, area.width);
                self.bands.push(Band { page: page.clone(), left, width, number, pixels });
                self.bands.len() - 1
            }
        };
        let start = (y % BAND_ROWS * area.width) as usize;
        target.copy_from_slice(&self.bands[at].pixels[start..start + target.len()]);
        Ok(u32::from(known.is_none()))
    }

    fn paint_band(&mut self, page: &Page, left: u32, width: u32, number: u32) -> Result<Vec<u32>> {
        let view = View {
            left: f64::from(left),
            top: f64::from(number) * f64::from(BAND_ROWS),
            width: f64::from(width),
            height: f64::from(BAND_ROWS),
        };
        self.rasterize(width, BAND_ROWS, |scene| {
            let [_, red, green, blue] = page.block().background().to_be_bytes();
            let all = Rect::new(0.0, 0.0, f64::from(width), f64::from(BAND_ROWS));
            scene.fill(
                Fill::NonZero,
                Affine::IDENTITY,
                Color::from_rgb8(red, green, blue),
                None,
                &all,
            );
            replay(page.block(), page, scene, view);
        })
    }

    /// Returns rows of pixels painted by `draw`. A panic of the rasterizer, which is third-party
    /// code, becomes an error.
    pub(crate) fn rasterize(
        &mut self,
        width: u32,
        rows: u32,
        draw: impl FnOnce(&mut anyrender_vello_cpu::VelloCpuScenePainter),
    ) -> Result<Vec<u32>> {
        let renderer = match self.renderer.take() {
            Some((same_width, same_rows, mut renderer))
                if (same_width, same_rows) == (width, rows) =>
            {
                renderer.reset();
                renderer
            }
            _ => VelloCpuImageRenderer::new(width, rows),
        };
        let rgba = &mut self.rgba;
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut renderer = renderer;
            renderer.render_to_vec(draw, rgba);
            renderer
        }));
        let Ok(renderer) = done else {
            return Err(ViewError::InvalidPage("the rasterizer panicked".to_string()));
        };
        self.renderer = Some((width, rows, renderer));
        let pixels = self.rgba.as_chunks::<4>().0.iter();
        Ok(pixels
            .map(|[red, green, blue, _]| u32::from_be_bytes([0, *red, *green, *blue]))
            .collect())
    }

    /// Returns the strips of the first `rows` rows of a page, for storing.
    ///
    /// # Errors
    /// Same errors as [`Painter::paint`].
    pub fn strips(&mut self, page: &Arc<Page>, rows: u32) -> Result<StripPacker> {
        let size = page.block().size();
        let rows = rows.min(size.height).next_multiple_of(STRIP_ROWS);
        let width = size.window.0;
        let mut packer = StripPacker::new(width);
        let mut pixels = vec![0; width as usize * STRIP_ROWS as usize];
        for strip in 0..rows / STRIP_ROWS {
            let area = Area { left: 0, top: strip * STRIP_ROWS, width, height: STRIP_ROWS };
            self.paint(page, area, &mut pixels)?;
            packer.push(&pixels);
        }
        Ok(packer)
    }
}
