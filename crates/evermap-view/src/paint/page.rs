//! A page that can be shown: its block, its strips, and the fonts and images it shares with others.

use std::sync::{Arc, Mutex, OnceLock};

use bytemuck::Contiguous;
use peniko::{Blob, FontData, ImageAlphaType, ImageData, ImageFormat};

use super::bounds;
use super::replay::PartSource;
use super::strips::Strips;
use crate::page::layout::{FONTS, FontRecord, IMAGES, ImageRecord};
use crate::page::{Block, PartKind};
use crate::{Result, ViewError};

/// Bytes that somebody keeps: in memory, or mapped from an object of a store.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Where the fonts and images of a page come from.
pub trait Parts: Send + Sync {
    /// The bytes with this hash.
    ///
    /// # Errors
    /// When they are not there.
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes>;
}

/// A page that can be painted and asked, from any thread. Fonts and images are looked for when they are first needed.
pub struct Page {
    block: SharedBytes,
    strips: Option<SharedBytes>,
    parts: Box<dyn Parts>,
    fonts: Vec<OnceLock<Option<FontData>>>,
    images: Vec<OnceLock<Option<ImageData>>>,
    missing: Mutex<Option<ViewError>>,
}

impl Page {
    /// A page from its block and, if there are any, its strips. Looks at their headers only. Strips that are not those
    /// of a page this wide are left out.
    ///
    /// # Errors
    /// When the block is none.
    pub fn new(
        block: SharedBytes,
        strips: Option<SharedBytes>,
        parts: Box<dyn Parts>,
    ) -> Result<Page> {
        let checked = Block::new((*block).as_ref())?;
        let fonts = checked.section::<FontRecord>(FONTS).len();
        let images = checked.section::<ImageRecord>(IMAGES).len();
        let width = checked.size().window.0;
        let suits = |strips: &SharedBytes| {
            Strips::new((**strips).as_ref()).is_ok_and(|s| s.width() == width)
        };
        Ok(Page {
            strips: strips.filter(suits),
            parts,
            fonts: (0..fonts).map(|_| OnceLock::new()).collect(),
            images: (0..images).map(|_| OnceLock::new()).collect(),
            missing: Mutex::new(None),
            block,
        })
    }

    /// The block: links, anchors, text, sizes.
    pub fn block(&self) -> Block<'_> {
        // `new` has looked at these bytes. An `AsRef` that gives other bytes each time gets an empty page.
        match Block::new((*self.block).as_ref()) {
            Ok(block) => block,
            Err(_) => Block::empty(),
        }
    }

    /// The painted rows that are kept of it.
    pub fn strips(&self) -> Option<Strips<'_>> {
        Strips::new((**self.strips.as_ref()?).as_ref()).ok()
    }

    /// The first font or image that was needed and not there, since the last call.
    pub fn take_missing(&self) -> Option<ViewError> {
        self.missing.lock().ok()?.take()
    }

    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Option<Blob<u8>> {
        match self.parts.load(kind, hash) {
            Ok(bytes) => Some(Blob::new(bytes)),
            Err(error) => {
                if let Ok(mut missing) = self.missing.lock() {
                    missing.get_or_insert(error);
                }
                None
            }
        }
    }
}

impl PartSource for Page {
    fn font(&self, index: u32) -> Option<FontData> {
        let record = *self.block().section::<FontRecord>(FONTS).get(index as usize)?;
        let load = || {
            let data = self.load(PartKind::Font, &record.hash)?;
            // The rasterizer panics at what is no font.
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
