//! A page ready for painting: its block, its strips, and its shared fonts and images.

use std::sync::{Arc, OnceLock};

use bytemuck::Contiguous;
use peniko::{Blob, FontData, ImageAlphaType, ImageData, ImageFormat};

use super::bounds;
use super::replay::PartSource;
use super::strips::Strips;
use crate::page::layout::{FONTS, FontRecord, IMAGES, ImageRecord};
use crate::page::{Block, Guarded, PageBytes, PartKind};
use crate::{Result, ViewError};

/// Bytes of a font or an image, in memory or mapped from an object of a store.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Source of the fonts and images of a page.
pub trait Parts: Send + Sync {
    /// Returns the bytes with this hash, verified.
    ///
    /// # Errors
    /// Fails if the part is missing or damaged.
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes>;
}

/// A page that any thread can paint and query. Fonts and images are loaded at their first use.
pub struct Page {
    block: Guarded,
    strips: Option<Guarded>,
    parts: Box<dyn Parts>,
    fonts: Vec<OnceLock<Option<FontData>>>,
    images: Vec<OnceLock<Option<ImageData>>>,
    /// The first font or image that could not be loaded, with the reason.
    missing: OnceLock<(String, String)>,
}

impl Page {
    /// Creates a page from its block and its strips, if there are any. Checks only their headers.
    /// Strips of a different width are ignored.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid page block.
    pub fn new(
        block: Arc<dyn PageBytes>,
        strips: Option<Arc<dyn PageBytes>>,
        parts: Box<dyn Parts>,
    ) -> Result<Page> {
        let block = Guarded::new(block);
        let checked = Block::guarded(&block)?;
        let (fonts, images) = checked.part_counts();
        let width = checked.size().window.0;
        let strips = strips.map(Guarded::new);
        let strips = match &strips {
            Some(guard) => {
                let suits = Strips::guarded(guard).is_ok_and(|s| s.width() == width);
                if let Some(damage) = guard.damage() {
                    return Err(ViewError::InvalidPage(damage.to_string()));
                }
                strips.filter(|_| suits)
            }
            None => None,
        };
        Ok(Page {
            strips,
            parts,
            fonts: (0..fonts).map(|_| OnceLock::new()).collect(),
            images: (0..images).map(|_| OnceLock::new()).collect(),
            missing: OnceLock::new(),
            block,
        })
    }

    /// Returns the block with the page's links, anchors, text and sizes.
    pub fn block(&self) -> Block<'_> {
        // `new` has checked these bytes. If an implementation returns other bytes later, the page
        // is empty.
        match Block::guarded(&self.block) {
            Ok(block) => block,
            Err(_) => Block::empty(),
        }
    }

    /// Returns the stored painted rows of the page.
    pub fn strips(&self) -> Option<Strips<'_>> {
        Strips::guarded(self.strips.as_ref()?).ok()
    }

    /// Returns the first stored data of the page that was found damaged or missing during use.
    /// Pixels painted so far must not be shown, and the page must be laid out again.
    pub fn damage(&self) -> Option<ViewError> {
        let guards = [Some(&self.block), self.strips.as_ref()];
        if let Some(damage) = guards.into_iter().flatten().find_map(Guarded::damage) {
            return Some(ViewError::InvalidPage(damage.to_string()));
        }
        let (object, why) = self.missing.get()?.clone();
        Some(ViewError::MissingPart { object, why })
    }

    /// Verifies everything that the page is painted from: its block, its strips, its fonts and
    /// images.
    ///
    /// Costs reading all their bytes.
    ///
    /// # Errors
    /// Fails with the first damaged or missing part.
    pub fn verify(&self) -> Result<()> {
        for guard in [Some(&self.block), self.strips.as_ref()].into_iter().flatten() {
            guard.verify(0..guard.bytes().len());
        }
        if self.damage().is_none() {
            for number in 0..self.fonts.len() as u32 {
                self.font(number);
            }
            for number in 0..self.images.len() as u32 {
                self.image(number);
            }
        }
        self.damage().map_or(Ok(()), Err)
    }

    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Option<Blob<u8>> {
        match self.parts.load(kind, hash) {
            Ok(bytes) => Some(Blob::new(bytes)),
            Err(error) => {
                self.missing.get_or_init(|| match error {
                    ViewError::MissingPart { object, why } => (object, why),
                    error => (format!("{kind:?} {}", short(hash)), error.to_string()),
                });
                None
            }
        }
    }
}

/// Returns the beginning of a hash.
fn short(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex()[..16].to_string()
}

impl PartSource for Page {
    fn font(&self, index: u32) -> Option<FontData> {
        let record = *self.block().section::<FontRecord>(FONTS).get(index as usize)?;
        let load = || {
            let data = self.load(PartKind::Font, &record.hash)?;
            // The rasterizer panics if the bytes are not a font.
            skrifa::FontRef::from_index(data.data(), record.index).ok()?;
            Some(FontData::new(data, record.index))
        };
        self.fonts.get(index as usize)?.get_or_init(load).clone()
    }

    fn image(&self, index: u32) -> Option<ImageData> {
        let record = *self.block().section::<ImageRecord>(IMAGES).get(index as usize)?;
        let load = || {
            let data = self.load(PartKind::Image, &record.hash)?;
            let bytes = u64::from(record.width) * u64::from(record.height) * 4;
            let sides = record.width.max(record.height) <= bounds::IMAGE_SIDE_MAX;
            (data.data().len() as u64 == bytes && bytes > 0 && sides).then_some(ImageData {
                data,
                // The rasterizer panics at other formats.
                format: ImageFormat::from_integer(record.format)
                    .filter(|format| matches!(format, ImageFormat::Rgba8 | ImageFormat::Bgra8))?,
                alpha_type: ImageAlphaType::from_integer(record.alpha)?,
                width: record.width,
                height: record.height,
            })
        };
        self.images.get(index as usize)?.get_or_init(load).clone()
    }
}
