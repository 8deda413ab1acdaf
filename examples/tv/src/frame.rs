//! Paints a state: draws it into a page of `evermap-view`, and paints that with the viewer's
//! painter.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use evermap_view::ViewError;
use evermap_view::page::{PageSize, Part, PartKind, Recorder};
use evermap_view::paint::{
    Area, Page, Painter, Parts, STRIP_ROWS, SharedBytes, StripPacker, Strips,
};

use crate::canvas::Canvas;
use crate::draw::draw;
use crate::error::{Result, TvError};
use crate::fonts::Fonts;
use crate::model::Interface;
use crate::state::State;

/// Paints frames and reuses its caches.
#[derive(Default)]
pub struct FramePainter {
    painter: Painter,
}

/// Fonts of the recorded page.
struct Drawn(HashMap<[u8; 32], Part>);

impl Parts for Drawn {
    fn load(&self, _: PartKind, hash: &[u8; 32]) -> evermap_view::Result<SharedBytes> {
        let part = self.0.get(hash).map(|part| part.data.clone());
        let part =
            part.ok_or_else(|| ViewError::InvalidPage("the page lacks a font".to_string()))?;
        Ok(Arc::new(part))
    }
}

impl FramePainter {
    /// Creates a painter with empty caches.
    pub fn new() -> FramePainter {
        FramePainter::default()
    }

    /// Paints a state into pixels, row by row, each 0x00RRGGBB.
    ///
    /// # Errors
    /// If the size is not supported.
    pub fn paint(
        &mut self,
        interface: &dyn Interface,
        state: &State,
        fonts: &Fonts,
        pixels: &mut Vec<u32>,
    ) -> Result<()> {
        let (width, height) = interface.size();
        let size = PageSize { width, height, window: (width, height), scale: 1.0 };
        let mut recorder = Recorder::new(size);
        draw(&mut Canvas { scene: &mut recorder, fonts, unit: interface.unit() }, interface, state);
        let recorded = recorder.finish();
        let parts = recorded.parts.into_iter().map(|part| (part.hash, part)).collect();
        let page = Page::new(Arc::new(recorded.block), None, Box::new(Drawn(parts)))?;
        pixels.resize(width as usize * height as usize, 0);
        let area = Area { left: 0, top: 0, width, height };
        self.painter.paint(&Arc::new(page), area, pixels)?;
        Ok(())
    }
}

/// Compresses a frame for the store, in strips of 64 rows; the last strip is padded.
pub fn pack(pixels: &[u32], width: u32) -> Vec<u8> {
    let mut packer = StripPacker::new(width);
    let mut padded = pixels.to_vec();
    padded.resize(pixels.len().next_multiple_of(width as usize * STRIP_ROWS as usize), 0);
    packer.push(&padded);
    packer.finish().as_bytes().to_vec()
}

/// Decompresses a stored frame.
///
/// # Errors
/// If it has another size or is damaged.
pub fn unpack(strips: &[u8], (width, height): (u32, u32), pixels: &mut Vec<u32>) -> Result<()> {
    let strips = Strips::new(strips)?;
    let strip = width as usize * STRIP_ROWS as usize;
    if strips.width() != width || strips.count() != height.div_ceil(STRIP_ROWS) {
        return Err(ViewError::InvalidPage("the stored frame has another size".to_string()).into());
    }
    let length = width as usize * height as usize;
    // Allocates zeroed pages, which are untouched: clearing an old buffer would cost as much as
    // decompressing.
    *pixels = vec![0; strip * strips.count() as usize];
    for (number, rows) in pixels.chunks_exact_mut(strip).enumerate() {
        strips.unpack(number as u32, rows)?;
    }
    pixels.truncate(length);
    Ok(())
}

/// Writes pixels as a PNG file.
///
/// # Errors
/// If the file can't be written.
pub fn write_png(file: &Path, (width, height): (u32, u32), pixels: &[u32]) -> Result<()> {
    let remedy = "name a file in a directory that can be written";
    let out = BufWriter::new(File::create(file).map_err(TvError::file(file, remedy))?);
    let mut encoder = png::Encoder::new(out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Fast);
    let bytes: Vec<u8> = pixels
        .iter()
        .flat_map(|pixel| {
            let [_, red, green, blue] = pixel.to_be_bytes();
            [red, green, blue]
        })
        .collect();
    let bad =
        |why: png::EncodingError| TvError::Picture { file: file.into(), why: why.to_string() };
    let mut writer = encoder.write_header().map_err(bad)?;
    writer.write_image_data(&bytes).map_err(bad)?;
    writer.finish().map_err(bad)
}
