//! Finds fonts in the usual directories, and maps text to glyphs by the font's tables, without
//! shaping.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peniko::{Blob, FontData};
use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

/// Bytes of a font, read from a file or mapped from an object.
pub type FontBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Fonts that are legible from a distance, in order of preference: for text and for titles.
const WANTED: [(&str, &str); 6] = [
    ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf"),
    ("Roboto-Regular.ttf", "Roboto-Bold.ttf"),
    ("OpenSans-Regular.ttf", "OpenSans-Bold.ttf"),
    ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
    ("LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf"),
    ("FreeSans.ttf", "FreeSansBold.ttf"),
];
/// Deepest level of directories to search.
const DEPTH_MAX: usize = 6;
/// Longest text to set: more would not fit on any screen.
const CHARS_MAX: usize = 1024;

/// Returns the usual directories of fonts.
pub fn usual_directories() -> Vec<PathBuf> {
    let mut directories = vec!["/usr/share/fonts".into(), "/usr/local/share/fonts".into()];
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        directories.push(home.join(".local/share/fonts"));
        directories.push(home.join(".fonts"));
    }
    directories
}

/// Returns the font files for text and for titles, if any. Without a preferred font, returns the
/// first one by name.
pub fn find(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in directories {
        walk(directory, 0, &mut files);
    }
    let named = |name: &str| files.iter().find(|file| file.file_name().is_some_and(|n| n == name));
    for (text, title) in WANTED {
        if let Some(text) = named(text) {
            return [Some(text), named(title)].into_iter().flatten().cloned().collect();
        }
    }
    files.sort();
    let is_font = |file: &&PathBuf| {
        std::fs::read(file).is_ok_and(|bytes| Face::new(Arc::new(bytes)).is_some())
    };
    files.iter().find(is_font).cloned().into_iter().collect()
}

fn walk(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    if depth > DEPTH_MAX {
        return;
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, depth + 1, files),
            Ok(_) if path.extension().is_some_and(|e| e == "ttf" || e == "otf") => files.push(path),
            _ => (),
        }
    }
}

/// Font with characters.
#[derive(Clone)]
pub struct Face {
    pub(crate) data: FontData,
}

impl Face {
    /// Parses the bytes; `None` if they are not a font.
    pub fn new(bytes: FontBytes) -> Option<Face> {
        let face = Face { data: FontData::new(Blob::new(bytes), 0) };
        let has_characters = face.reference()?.charmap().map('n').is_some();
        has_characters.then_some(face)
    }

    fn reference(&self) -> Option<FontRef<'_>> {
        FontRef::from_index(self.data.data.data(), self.data.index).ok()
    }

    /// Returns position, glyph and advance of each character.
    fn glyphs(&self, text: &str, size: f32) -> Vec<(usize, u32, f32)> {
        let Some(font) = self.reference() else { return Vec::new() };
        let charmap = font.charmap();
        let metrics = font.glyph_metrics(Size::new(size), LocationRef::default());
        let glyph = |(at, character): (usize, char)| {
            let glyph = charmap.map(character).unwrap_or_default();
            (at, glyph.to_u32(), metrics.advance_width(glyph).unwrap_or(0.0))
        };
        text.char_indices().take(CHARS_MAX).map(glyph).collect()
    }
}

/// Fonts of the user interface. Without fonts, everything but text is drawn.
#[derive(Clone, Default)]
pub struct Fonts {
    faces: Vec<Face>,
}

/// Selects one of the two fonts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Text to read.
    Text = 0,
    /// Titles.
    Title = 1,
}

/// Glyphs of a line with their positions, and the width of the line.
pub(crate) struct SetLine {
    pub glyphs: Vec<(u32, f32)>,
    pub width: f32,
}

impl Fonts {
    /// Creates the fonts from their files' bytes, for text and for titles. Skips invalid fonts.
    pub fn new(files: Vec<FontBytes>) -> Fonts {
        Fonts { faces: files.into_iter().filter_map(Face::new).collect() }
    }

    /// Returns the font of this weight, or the other one.
    pub(crate) fn face(&self, weight: Weight) -> Option<&Face> {
        self.faces.get(weight as usize).or(self.faces.first())
    }

    /// Sets a line of at most `room` pixels, truncated with an ellipsis if necessary.
    pub(crate) fn line(&self, weight: Weight, size: f32, text: &str, room: f32) -> SetLine {
        let glyphs = self.face(weight).map(|face| face.glyphs(text, size)).unwrap_or_default();
        let width: f32 = glyphs.iter().map(|(_, _, advance)| advance).sum();
        let mut line = SetLine { glyphs: Vec::with_capacity(glyphs.len()), width: 0.0 };
        let dots = match width > room {
            true => self.face(weight).map(|face| face.glyphs("…", size)).unwrap_or_default(),
            false => Vec::new(),
        };
        let dots_width: f32 = dots.iter().map(|(_, _, advance)| advance).sum();
        // A sum in another order may differ in the last bit, so only a line that must be truncated
        // is compared.
        let fits = |used: f32| width <= room || used + dots_width <= room;
        for (_, glyph, advance) in glyphs.into_iter() {
            if !fits(line.width + advance) {
                break;
            }
            line.glyphs.push((glyph, line.width));
            line.width += advance;
        }
        if dots_width <= room {
            for (_, glyph, advance) in dots {
                line.glyphs.push((glyph, line.width));
                line.width += advance;
            }
        }
        line
    }

    /// Breaks the text at spaces into at most `count` lines. The last one may be too long, and is
    /// truncated when it is set.
    pub(crate) fn broken<'t>(
        &self,
        weight: Weight,
        size: f32,
        text: &'t str,
        room: f32,
        count: usize,
    ) -> Vec<&'t str> {
        let glyphs = self.face(weight).map(|face| face.glyphs(text, size)).unwrap_or_default();
        let (mut lines, mut start, mut used) = (Vec::new(), 0, 0.0);
        // The last space, and the width of the line up to its end.
        let mut space: Option<(usize, f32)> = None;
        for (at, _, advance) in glyphs {
            if lines.len() + 1 == count {
                break;
            }
            used += advance;
            if text[at..].starts_with(' ') {
                space = Some((at, used));
            } else if let Some((end, before)) = space.filter(|_| used > room) {
                lines.push(&text[start..end]);
                (start, used, space) = (end + 1, used - before, None);
            }
        }
        if start < text.len() && count > 0 {
            lines.push(&text[start..]);
        }
        lines
    }
}
