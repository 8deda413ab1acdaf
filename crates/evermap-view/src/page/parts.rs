//! What a page shares with others, while it is being recorded: fonts and images, each kept once, by its content's hash.

use foldhash::HashMap;
use peniko::{Blob, FontData, ImageData};

use super::layout::{FontRecord, ImageRecord};

/// What a page shares with others: the bytes of a font file, or an image's pixels.
#[derive(Clone, Debug)]
pub struct Part {
    /// Which of the two.
    pub kind: PartKind,
    /// BLAKE3 of the bytes.
    pub hash: [u8; 32],
    /// The bytes.
    pub data: Blob<u8>,
}

/// What a [`Part`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// A font file, or a collection.
    Font,
    /// Decoded pixels.
    Image,
}

/// The fonts and images of a page.
#[derive(Default)]
pub(super) struct SharedParts {
    pub parts: Vec<Part>,
    pub fonts: Vec<FontRecord>,
    pub images: Vec<ImageRecord>,
    seen: Seen,
}

/// Fonts, images and hashes by the id of their bytes, which is unique in a process.
#[derive(Default)]
struct Seen {
    fonts: HashMap<(u64, u32), u32>,
    images: HashMap<(u64, u32, u32), u32>,
    hashes: HashMap<u64, [u8; 32]>,
}

impl SharedParts {
    /// The index of a font.
    pub fn font(&mut self, font: &FontData) -> u32 {
        let key = (font.data.id(), font.index);
        if let Some(index) = self.seen.fonts.get(&key) {
            return *index;
        }
        let hash = self.part(PartKind::Font, &font.data);
        let index = self.fonts.len() as u32;
        self.fonts.push(FontRecord { hash, index: font.index, reserved: 0 });
        self.seen.fonts.insert(key, index);
        index
    }

    /// The index of an image.
    pub fn image(&mut self, image: &ImageData) -> u32 {
        let key = (image.data.id(), image.width, image.height);
        if let Some(index) = self.seen.images.get(&key) {
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
        self.seen.images.insert(key, index);
        index
    }

    /// Notes bytes that are kept apart, once however often they are used, and gives their hash.
    fn part(&mut self, kind: PartKind, data: &Blob<u8>) -> [u8; 32] {
        if let Some(hash) = self.seen.hashes.get(&data.id()) {
            return *hash;
        }
        let hash = blake3::hash(data.data()).into();
        self.seen.hashes.insert(data.id(), hash);
        if !self.parts.iter().any(|part| part.kind == kind && part.hash == hash) {
            self.parts.push(Part { kind, hash, data: data.clone() });
        }
        hash
    }
}
