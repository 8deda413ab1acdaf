//! Reads a page block in place.
//!
//! [`Block::new`] checks only the header. Everything else is untrusted: every index is checked
//! where it is used, so that no read panics, loops forever or leaves the block. The block of a
//! stored page is also verified, section by section, at the first use of each. A damaged section
//! reads as empty.

use bytemuck::Pod;
use kurbo::{Affine, BezPath, PathEl, Point, Rect, RoundedRect, RoundedRectRadii};

use super::guarded::Guarded;
use super::layout::*;
use super::parts::PartKind;
use super::size::{HEIGHT_MAX, PageSize, SCALE_MAX, WIDTH_MAX};
use crate::{Result, ViewError};

/// A page block in memory owned by the caller.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    /// Verifies sections before their use, if the bytes may be damaged.
    guard: Option<&'a Guarded>,
}

/// A clickable rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link<'a> {
    /// Position on the page, in device pixels.
    pub rect: Rect,
    /// Absolute address of the target.
    pub url: &'a str,
    /// Id of the element in the document's tables; `None` for pages without a document.
    pub node: Option<u32>,
}

/// Reference to a font or an image of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRef<'a> {
    /// Font or image.
    pub kind: PartKind,
    /// BLAKE3 of its bytes.
    pub hash: &'a [u8; 32],
}

/// A shape as it was recorded.
pub(crate) enum AnyShape {
    Rect(Rect),
    Rounded(RoundedRect),
    Path(BezPath),
}

impl<'a> Block<'a> {
    /// Returns the page in `bytes`, which must be aligned to 8 bytes. Checks only the header.
    ///
    /// # Errors
    /// Fails if the bytes are not a page block of a format that this build can read.
    pub fn new(bytes: &'a [u8]) -> Result<Block<'a>> {
        let invalid = |why: &str| ViewError::InvalidPage(why.to_string());
        let header = bytes
            .get(..size_of::<Header>())
            .ok_or_else(|| invalid("it is shorter than its header"))?;
        let header: &Header =
            bytemuck::try_from_bytes(header).map_err(|_| invalid("it is not aligned"))?;
        if header.magic != MAGIC {
            return Err(invalid("it does not start with a page block's magic number"));
        }
        if header.version != FORMAT_VERSION || header.header_bytes as usize != size_of::<Header>() {
            return Err(ViewError::InvalidPage(format!(
                "it has format {}, but this program supports only {FORMAT_VERSION}",
                header.version
            )));
        }
        let mut end = size_of::<Header>() as u64;
        for (section, record) in header.sections.iter().zip(RECORD_BYTES) {
            if section.offset != end || !section.bytes.is_multiple_of(record as u64) {
                return Err(invalid("its sections are not contiguous"));
            }
            let padded = section.bytes.checked_next_multiple_of(ALIGNMENT as u64);
            end = padded
                .and_then(|padded| end.checked_add(padded))
                .filter(|end| *end <= bytes.len() as u64)
                .ok_or_else(|| invalid("a section extends past the end"))?;
        }
        if end != header.block_bytes || end != bytes.len() as u64 {
            return Err(invalid("its length differs from the header"));
        }
        if !(1..=WIDTH_MAX).contains(&header.width) || !(1..=HEIGHT_MAX).contains(&header.height) {
            return Err(invalid("the page size is out of bounds"));
        }
        let window = (header.window_width, header.window_height);
        if !(1..=WIDTH_MAX).contains(&window.0) || !(1..=HEIGHT_MAX).contains(&window.1) {
            return Err(invalid("the window size is out of bounds"));
        }
        if !(header.scale > 0.0 && header.scale <= SCALE_MAX) {
            return Err(invalid("the scale is out of bounds"));
        }
        Ok(Block { bytes, header, guard: None })
    }

    /// Returns the page in bytes that are verified at their first use. Verifies the header now.
    ///
    /// # Errors
    /// Fails if the header is damaged or has an unknown format.
    pub(crate) fn guarded(guard: &'a Guarded) -> Result<Block<'a>> {
        let bytes = guard.bytes();
        if !guard.verify(0..size_of::<Header>().min(bytes.len())) {
            let why = guard.damage().unwrap_or("its header is damaged");
            return Err(ViewError::InvalidPage(why.to_string()));
        }
        Ok(Block { guard: Some(guard), ..Block::new(bytes)? })
    }

    /// Returns an empty page of one pixel.
    pub(crate) fn empty() -> Block<'static> {
        Block { bytes: bytemuck::bytes_of(&EMPTY), header: &EMPTY, guard: None }
    }

    /// Returns the size of the page and of the window that it was laid out for.
    pub fn size(&self) -> PageSize {
        PageSize {
            width: self.header.width,
            height: self.header.height,
            window: (self.header.window_width, self.header.window_height),
            scale: self.header.scale,
        }
    }

    /// Returns the page's title, which may be empty.
    pub fn title(&self) -> &'a str {
        self.text(self.header.title).unwrap_or_default()
    }

    /// Returns the address from which the page was laid out.
    pub fn url(&self) -> &'a str {
        self.text(self.header.url).unwrap_or_default()
    }

    /// Returns the background colour, 0x00RRGGBB.
    pub fn background(&self) -> u32 {
        self.header.background & 0x00FF_FFFF
    }

    /// Returns the size of the block in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of paint commands.
    pub fn commands(&self) -> usize {
        self.range_of(COMMANDS).len() / size_of::<Command>()
    }

    /// Returns all links in document order.
    pub fn links(&self) -> impl Iterator<Item = Link<'a>> + use<'a> {
        let block = *self;
        block.section::<LinkRecord>(LINKS).iter().filter_map(move |link| block.link(link))
    }

    /// Returns the link at a point of the page. If several overlap, returns the last in document
    /// order.
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

    /// Returns the vertical position of the anchor `#name`.
    pub fn anchor(&self, name: &str) -> Option<f64> {
        let anchors = self.section::<Anchor>(ANCHORS).iter();
        let found = anchors.clone().find(|anchor| self.text(anchor.name) == Some(name))?;
        Some(f64::from(found.top)).filter(|top| top.is_finite())
    }

    /// Returns the numbers of fonts and images of the page. Reads only the header.
    pub(crate) fn part_counts(&self) -> (usize, usize) {
        let count = |section, record: usize| self.range_of(section).len() / record;
        (count(FONTS, size_of::<FontRecord>()), count(IMAGES, size_of::<ImageRecord>()))
    }

    /// Returns the fonts and images of the page.
    pub fn parts(&self) -> impl Iterator<Item = PartRef<'a>> + use<'a> {
        let fonts = self.section::<FontRecord>(FONTS).iter();
        let fonts = fonts.map(|font| PartRef { kind: PartKind::Font, hash: &font.hash });
        let images = self.section::<ImageRecord>(IMAGES).iter();
        fonts.chain(images.map(|image| PartRef { kind: PartKind::Image, hash: &image.hash }))
    }

    /// Returns the fonts of the page: the file's hash and the index of the font in the file.
    pub fn fonts(&self) -> impl Iterator<Item = (&'a [u8; 32], u32)> + use<'a> {
        self.section::<FontRecord>(FONTS).iter().map(|font| (&font.hash, font.index))
    }

    /// Returns all searchable text. Blocks end with a line feed.
    pub fn searchable(&self) -> &'a str {
        let bytes = self.section::<u8>(TEXT);
        let length = (self.header.searchable_bytes as usize).min(bytes.len());
        valid_start(&bytes[..length])
    }

    pub(crate) fn lines(&self) -> &'a [Line] {
        self.section(LINES)
    }

    /// Returns the cluster records of a line.
    pub(crate) fn clusters_of(&self, line: &Line) -> &'a [u16] {
        let count = line.clusters & !LINE_RIGHT_TO_LEFT;
        slice(self.section(CLUSTERS), line.first_cluster, count).unwrap_or_default()
    }

    pub(crate) fn section<T: Pod>(&self, number: usize) -> &'a [T] {
        let range = self.range_of(number);
        if self.guard.is_some_and(|guard| !guard.verify_section(number, range.clone())) {
            return &[];
        }
        let bytes = &self.bytes[range];
        // `new` has checked that the section is aligned to 8 bytes and holds whole records.
        bytemuck::try_cast_slice(bytes).unwrap_or_default()
    }

    fn range_of(&self, section: usize) -> std::ops::Range<usize> {
        let place = &self.header.sections[section];
        place.offset as usize..(place.offset + place.bytes) as usize
    }

    /// Returns a span of the text. If the section has not been verified, verifies only the span.
    pub(crate) fn text(&self, span: Span) -> Option<&'a str> {
        let all = self.range_of(TEXT);
        let bytes = slice(&self.bytes[all.clone()], span.offset, span.bytes)?;
        if let Some(guard) = self.guard.filter(|guard| !guard.is_section_verified(TEXT)) {
            let start = all.start + span.offset as usize;
            if !guard.verify(start..start + bytes.len()) {
                return None;
            }
        }
        std::str::from_utf8(bytes).ok()
    }

    /// Returns `N` numbers, or `None` if one is not finite.
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

    /// Returns the number of elements of a command's path. Other shapes have few, and count as
    /// four.
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

/// Returns the path, or `None` if it does not begin with a move.
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
