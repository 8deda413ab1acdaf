//! Collects the fonts and images of a page during recording. Each is stored once and named by its
//! content's hash.

use foldhash::HashMap;
use peniko::{Blob, FontData, ImageData};

use super::layout::{FontRecord, ImageRecord};

/// A part that pages share: the bytes of a font file, or an image's pixels.
#[derive(Clone, Debug)]
pub struct Part {
    /// Font or image.
    pub kind: PartKind,
    /// BLAKE3 of the bytes.
    pub hash: [u8; 32],
    /// The bytes.
    pub data: Blob<u8>,
}

/// Kind of a [`Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// A font file or collection.
    Font,
    /// Decoded pixels.
    Image,
}

/// Fonts and images of a page.
#[derive(Default)]
pub(super) struct SharedParts {
    pub parts: Vec<Part>,
    pub fonts: Vec<FontRecord>,
    pub images: Vec<ImageRecord>,
    known: Known,
}

/// Known fonts, images and hashes, by the id of their bytes, which is unique in a process.
#[derive(Default)]
struct Known {
    fonts: HashMap<(u64, u32), u32>,
    images: HashMap<(u64, u32, u32), u32>,
    hashes: HashMap<u64, [u8; 32]>,
}

impl SharedParts {
    /// Returns the index of a font.
    pub fn font(&mut self, font: &FontData) -> u32 {
        let key = (font.data.id(), font.index);
        if let Some(index) = self.known.fonts.get(&key) {
            return *index;
        }
        let hash = self.part(PartKind::Font, &font.data);
        let index = self.fonts.len() as u32;
        self.fonts.push(FontRecord { hash, index: font.index, reserved: 0 });
        self.known.fonts.insert(key, index);
        index
    }

    /// Returns the index of an image.
    pub fn image(&mut self, image: &ImageData) -> u32 {
        let key = (image.data.id(), image.width, image.height);
        if let Some(index) = self.known.images.get(&key) {
            return *index;
        }
        let index = self.images.len() as u32;
        let record = ImageRecord {
            hash: self.part(PartKind::Image, &image.data),
            width: image.width,
            height: image.height,
            format: image.format as u8,
            alpha: image.alpha_type as u8,
            reserved: [0; 6],
        };
        self.images.push(record);
        self.known.images.insert(key, index);
        index
    }

    /// Adds the bytes as a part, unless they are known. Returns their hash.
    fn part(&mut self, kind: PartKind, data: &Blob<u8>) -> [u8; 32] {
        if let Some(hash) = self.known.hashes.get(&data.id()) {
            return *hash;
        }
        let hash = blake3::hash(data.data()).into();
        self.known.hashes.insert(data.id(), hash);
        if !self.parts.iter().any(|part| part.kind == kind && part.hash == hash) {
            self.parts.push(Part { kind, hash, data: data.clone() });
        }
        hash
    }
}
