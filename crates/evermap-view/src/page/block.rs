//! Reading a page block where it lies.
//!
//! [`Block::new`] looks at the header only. Behind it nothing is believed: every index is checked where it is used, so that
//! nothing panics, loops for ever or reads outside the block. The block of a kept page is verified too, section by section,
//! when a section is first used; one that is damaged reads as empty.

use bytemuck::Pod;
use kurbo::{Affine, BezPath, PathEl, Point, Rect, RoundedRect, RoundedRectRadii};

use super::guarded::Guarded;
use super::layout::*;
use super::parts::PartKind;
use super::recorder::PageSize;
use crate::{Result, ViewError};

/// Wider or higher pages can't be painted: the rasterizer counts pixels in 16 bits across, and heights are exact in `f32`
/// up to here.
pub const WIDTH_MAX: u32 = 16_384;
/// See [`WIDTH_MAX`].
pub const HEIGHT_MAX: u32 = 1 << 24;

/// Device pixels a CSS pixel, at most.
const SCALE_MAX: f32 = 1_024.0;

/// A page block, in memory that somebody else keeps.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    /// Verifies what is used, if the bytes may be damaged.
    guard: Option<&'a Guarded>,
}

/// A rectangle that leads somewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link<'a> {
    /// Where it is on the page, in device pixels.
    pub rect: Rect,
    /// The absolute address that it leads to.
    pub url: &'a str,
    /// The element's id in the document's tables; `None` for pages that have none.
    pub node: Option<u32>,
}

/// A font or image that a page refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRef<'a> {
    /// Which of the two.
    pub kind: PartKind,
    /// BLAKE3 of its bytes.
    pub hash: &'a [u8; 32],
}

/// A shape, as the recorder was given it.
pub(crate) enum AnyShape {
    Rect(Rect),
    Rounded(RoundedRect),
    Path(BezPath),
}

impl<'a> Block<'a> {
    /// The page in `bytes`, which have to begin at a multiple of 8. Looks at the header only.
    ///
    /// # Errors
    /// When it is not a page block of a format that this build knows.
    pub fn new(bytes: &'a [u8]) -> Result<Block<'a>> {
        let invalid = |why: &str| ViewError::InvalidPage(why.to_string());
        let header = bytes
            .get(..size_of::<Header>())
            .ok_or_else(|| invalid("it is shorter than its header"))?;
        let header: &Header =
            bytemuck::try_from_bytes(header).map_err(|_| invalid("it is not aligned"))?;
        if header.magic != MAGIC {
            return Err(invalid("it does not begin like one"));
        }
        if header.version != FORMAT_VERSION || header.header_bytes as usize != size_of::<Header>() {
            return Err(ViewError::InvalidPage(format!(
                "it has format {}, this program knows {FORMAT_VERSION}",
                header.version
            )));
        }
        let mut end = size_of::<Header>() as u64;
        for (section, record) in header.sections.iter().zip(RECORD_BYTES) {
            if section.offset != end || !section.bytes.is_multiple_of(record as u64) {
                return Err(invalid("its sections do not follow each other"));
            }
            let padded = section.bytes.checked_next_multiple_of(ALIGNMENT as u64);
            end = padded
                .and_then(|padded| end.checked_add(padded))
                .filter(|end| *end <= bytes.len() as u64)
                .ok_or_else(|| invalid("a section reaches beyond its end"))?;
        }
        if end != header.block_bytes || end != bytes.len() as u64 {
            return Err(invalid("its length is not what it says"));
        }
        if !(1..=WIDTH_MAX).contains(&header.width) || !(1..=HEIGHT_MAX).contains(&header.height) {
            return Err(invalid("its size is out of bounds"));
        }
        let window = (header.window_width, header.window_height);
        if !(1..=WIDTH_MAX).contains(&window.0) || !(1..=HEIGHT_MAX).contains(&window.1) {
            return Err(invalid("the size of its window is out of bounds"));
        }
        if !(header.scale > 0.0 && header.scale <= SCALE_MAX) {
            return Err(invalid("its scale is out of bounds"));
        }
        Ok(Block { bytes, header, guard: None })
    }

    /// The page in bytes that are verified when they are used, and the header now.
    ///
    /// # Errors
    /// When the header is damaged, or not one of a format that this build knows.
    pub(crate) fn guarded(guard: &'a Guarded) -> Result<Block<'a>> {
        let bytes = guard.bytes();
        if !guard.is_good(0..size_of::<Header>().min(bytes.len())) {
            let why = guard.damage().unwrap_or("its header is damaged");
            return Err(ViewError::InvalidPage(why.to_string()));
        }
        Ok(Block { guard: Some(guard), ..Block::new(bytes)? })
    }

    /// A page of one pixel without content.
    pub(crate) fn empty() -> Block<'static> {
        Block { bytes: bytemuck::bytes_of(&EMPTY), header: &EMPTY, guard: None }
    }

    /// The size of the page, and what it was laid out for.
    pub fn size(&self) -> PageSize {
        PageSize {
            width: self.header.width,
            height: self.header.height,
            window: (self.header.window_width, self.header.window_height),
            scale: self.header.scale,
        }
    }

    /// What the page is called; empty when it has no title.
    pub fn title(&self) -> &'a str {
        self.text(self.header.title).unwrap_or_default()
    }

    /// The address it was laid out from.
    pub fn url(&self) -> &'a str {
        self.text(self.header.url).unwrap_or_default()
    }

    /// The colour behind everything, 0x00RRGGBB.
    pub fn background(&self) -> u32 {
        self.header.background & 0x00FF_FFFF
    }

    /// Bytes of the block.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of paint commands.
    pub fn commands(&self) -> usize {
        self.range_of(COMMANDS).len() / size_of::<Command>()
    }

    /// All links, in the order of the document.
    pub fn links(&self) -> impl Iterator<Item = Link<'a>> + use<'a> {
        let block = *self;
        block.section::<LinkRecord>(LINKS).iter().filter_map(move |link| block.link(link))
    }

    /// The link at a point of the page; of several, the one that comes last in the document.
    pub fn link_at(&self, x: f64, y: f64) -> Option<Link<'a>> {
        let links = self.section::<LinkRecord>(LINKS);
        let mut hits = links.iter().rev().filter(|link| {
            let [left, top, right, bottom] = link.rect.map(f64::from);
            (left..right).contains(&x) && (top..bottom).contains(&y)
        });
        hits.find_map(|link| self.link(link))
    }

    fn link(&self, link: &LinkRecord) -> Option<Link<'a>> {
        let [x0, y0, x1, y1] = link.rect.map(f64::from);
        let target = self.section::<Span>(TARGETS).get(link.target as usize)?;
        Some(Link {
            rect: Rect { x0, y0, x1, y1 },
            url: self.text(*target)?,
            node: (link.node != NONE).then_some(link.node),
        })
    }

    /// How far down the place is that `#name` leads to.
    pub fn anchor(&self, name: &str) -> Option<f64> {
        let anchors = self.section::<Anchor>(ANCHORS).iter();
        let found = anchors.clone().find(|anchor| self.text(anchor.name) == Some(name))?;
        Some(f64::from(found.top)).filter(|top| top.is_finite())
    }

    /// How many fonts and images the page needs. Looks at the header only.
    pub(crate) fn part_counts(&self) -> (usize, usize) {
        let count = |section, record: usize| self.range_of(section).len() / record;
        (count(FONTS, size_of::<FontRecord>()), count(IMAGES, size_of::<ImageRecord>()))
    }

    /// The fonts and images that the page needs.
    pub fn parts(&self) -> impl Iterator<Item = PartRef<'a>> + use<'a> {
        let fonts = self.section::<FontRecord>(FONTS).iter();
        let fonts = fonts.map(|font| PartRef { kind: PartKind::Font, hash: &font.hash });
        let images = self.section::<ImageRecord>(IMAGES).iter();
        fonts.chain(images.map(|image| PartRef { kind: PartKind::Image, hash: &image.hash }))
    }

    /// The fonts that the page needs: the file's hash, and which font of it.
    pub fn fonts(&self) -> impl Iterator<Item = (&'a [u8; 32], u32)> + use<'a> {
        self.section::<FontRecord>(FONTS).iter().map(|font| (&font.hash, font.index))
    }

    /// All text that can be found; blocks end with a line feed.
    pub fn searchable(&self) -> &'a str {
        let bytes = self.section::<u8>(TEXT);
        let length = (self.header.searchable_bytes as usize).min(bytes.len());
        valid_start(&bytes[..length])
    }

    pub(crate) fn lines(&self) -> &'a [Line] {
        self.section(LINES)
    }

    /// The records of a line's clusters.
    pub(crate) fn clusters_of(&self, line: &Line) -> &'a [u16] {
        let count = line.clusters & !LINE_RIGHT_TO_LEFT;
        slice(self.section(CLUSTERS), line.first_cluster, count).unwrap_or_default()
    }

    pub(crate) fn section<T: Pod>(&self, number: usize) -> &'a [T] {
        let range = self.range_of(number);
        if self.guard.is_some_and(|guard| !guard.is_section_good(number, range.clone())) {
            return &[];
        }
        let bytes = &self.bytes[range];
        // Sections begin at multiples of 8, as the block does, and hold whole records: `new` has seen to it.
        bytemuck::try_cast_slice(bytes).unwrap_or_default()
    }

    fn range_of(&self, section: usize) -> std::ops::Range<usize> {
        let place = &self.header.sections[section];
        place.offset as usize..(place.offset + place.bytes) as usize
    }

    /// A piece of the text. Of a section that was not verified yet, only the piece is.
    pub(crate) fn text(&self, span: Span) -> Option<&'a str> {
        let all = self.range_of(TEXT);
        let bytes = slice(&self.bytes[all.clone()], span.offset, span.bytes)?;
        if let Some(guard) = self.guard.filter(|guard| !guard.has_section(TEXT)) {
            let start = all.start + span.offset as usize;
            if !guard.is_good(start..start + bytes.len()) {
                return None;
            }
        }
        std::str::from_utf8(bytes).ok()
    }

    /// `N` of the numbers, all finite.
    pub(crate) fn numbers<const N: usize>(&self, first: u32) -> Option<[f64; N]> {
        let numbers = slice(self.section::<f64>(NUMBERS), first, N as u32)?;
        let numbers: [f64; N] = numbers.try_into().ok()?;
        numbers.iter().all(|number| number.is_finite()).then_some(numbers)
    }

    pub(crate) fn affine(&self, first: u32) -> Option<Affine> {
        self.numbers(first).map(Affine::new)
    }

    pub(crate) fn transform_of(&self, command: &Command) -> Option<Affine> {
        let [first, second] = command.transform;
        let moved = match command.transform_kind() {
            TRANSFORM_MOVE => [first, second].map(|bits| f64::from(f32::from_bits(bits))),
            TRANSFORM_MOVE_PRECISE => self.numbers(first)?,
            TRANSFORM_AFFINE => return self.affine(first),
            _ => return None,
        };
        moved
            .iter()
            .all(|number| number.is_finite())
            .then(|| Affine::translate((moved[0], moved[1])))
    }

    pub(crate) fn shape_of(&self, command: &Command) -> Option<AnyShape> {
        let rect = |[x0, y0, x1, y1]: [f64; 4]| Rect { x0, y0, x1, y1 };
        match command.shape_kind() {
            SHAPE_RECT => {
                let edges = self.section::<[f32; 4]>(RECTS).get(command.shape as usize)?;
                let rect = rect(edges.map(f64::from));
                rect.is_finite().then_some(AnyShape::Rect(rect))
            }
            SHAPE_RECT_PRECISE => Some(AnyShape::Rect(rect(self.numbers(command.shape)?))),
            SHAPE_ROUNDED => {
                let [x0, y0, x1, y1, a, b, c, d] = self.numbers(command.shape)?;
                let radii = RoundedRectRadii::new(a, b, c, d);
                Some(AnyShape::Rounded(RoundedRect::from_rect(rect([x0, y0, x1, y1]), radii)))
            }
            SHAPE_PATH => {
                let path = self.section::<Path>(PATHS).get(command.shape as usize)?;
                self.path(path).map(AnyShape::Path)
            }
            _ => None,
        }
    }

    /// How many pieces the path of a command has; those of other shapes don't matter.
    pub(crate) fn elements_of(&self, command: &Command) -> u64 {
        match command.shape_kind() {
            SHAPE_PATH => {
                let path = self.section::<Path>(PATHS).get(command.shape as usize);
                path.map_or(0, |path| u64::from(path.verbs))
            }
            _ => 4,
        }
    }

    fn path(&self, path: &Path) -> Option<BezPath> {
        let verbs = slice(self.section::<u8>(VERBS), path.first_verb, path.verbs)?;
        match path.flags & PATH_PRECISE != 0 {
            true => {
                let numbers = self.section::<f64>(NUMBERS).get(path.first_point as usize..)?;
                path_of(verbs, numbers.chunks_exact(2).map(|pair| Point::new(pair[0], pair[1])))
            }
            false => {
                let points = self.section::<[f32; 2]>(POINTS).get(path.first_point as usize..)?;
                path_of(verbs, points.iter().map(|[x, y]| Point::new(f64::from(*x), f64::from(*y))))
            }
        }
    }
}

/// A path that begins with a move, as all paths have to, or nothing.
fn path_of(verbs: &[u8], points: impl Iterator<Item = Point>) -> Option<BezPath> {
    let mut points = points.map(|point| point.is_finite().then_some(point));
    let mut next = || points.next().flatten();
    let mut elements = Vec::with_capacity(verbs.len());
    for verb in verbs {
        elements.push(match *verb {
            VERB_MOVE => PathEl::MoveTo(next()?),
            _ if elements.is_empty() => return None,
            VERB_LINE => PathEl::LineTo(next()?),
            VERB_QUAD => PathEl::QuadTo(next()?, next()?),
            VERB_CUBIC => PathEl::CurveTo(next()?, next()?, next()?),
            VERB_CLOSE => PathEl::ClosePath,
            _ => return None,
        });
    }
    Some(BezPath::from_vec(elements))
}

pub(crate) fn slice<T>(all: &[T], first: u32, count: u32) -> Option<&[T]> {
    let first = first as usize;
    all.get(first..first.checked_add(count as usize)?)
}

fn valid_start(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}
