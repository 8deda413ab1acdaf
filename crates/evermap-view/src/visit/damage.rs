//! Tests visits of damaged stores. Any byte of a stored page, its fonts and its images may change,
//! and no visit may show wrong pixels. A mock engine replaces the real one. Like the real one, it
//! sends the fonts and images that the store lacks or has damaged.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyrender::{Glyph, PaintScene};
use kurbo::{Affine, Rect, Vec2};
use peniko::{Blob, Color, Fill, FontData, ImageAlphaType, ImageBrush, ImageData, ImageFormat};

use super::*;
use crate::fonts::FontSet;
use crate::manifest::Resource;
use crate::page::{PageSize, Recorder};
use crate::paint::{Area, Painter};
use crate::protocol::Answer;
use crate::{fetch::Stamp, run_engine::mock_engine};

#[path = "../../tests/support/random.rs"]
mod random;
use random::{Random, variable};

const LAYOUT: Layout = Layout { width: 96, height: 96, scale: 1.0 };
/// Higher than the strips that these tests store, so that commands below them are painted.
const ROWS: u32 = 160;

/// A store, in shared memory where possible, because flushes are free there.
struct Fixture {
    _directory: tempfile::TempDir,
    store: Store,
    target: Target,
    expected: Vec<u32>,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let target = Target::of_url(Url::parse("https://example.org/page").unwrap());
        mock_engine(Some(Box::new(lay_out)));
        let mut fixture = Fixture { _directory: directory, store, target, expected: Vec::new() };
        let visit = fixture.visit(&VisitOptions::default()).unwrap();
        let (shown, pixels) = visit.paint(paint).unwrap();
        fixture.expected = pixels;
        assert_eq!(shown.finish(&mut Painter::new()).unwrap(), Finished::Stored);
        fixture
    }

    fn visit(&self, options: &VisitOptions) -> Result<Visit> {
        visit(&self.target, LAYOUT, Some(&self.store), options, &|_| ())
    }

    /// Returns the files of the objects to damage.
    fn files(&self) -> Vec<PathBuf> {
        let names = self.store.list().unwrap().into_iter();
        let stored = names.filter(|name| {
            ["page-", "font-", "image-"].iter().any(|prefix| name.starts_with(prefix))
        });
        let mut files: Vec<PathBuf> = stored
            .map(|name| {
                let uuid = self.store.info(&name).unwrap().uuid;
                self.store.path().join("objects").join(uuid)
            })
            .collect();
        files.sort();
        files
    }

    /// Makes one visit as the command does: paints the page, lays it out again if the stored data
    /// is damaged, and stores it. Returns true if the visit was warm.
    fn render(&self, options: &VisitOptions, label: &str) -> bool {
        let painted = self.visit(options).and_then(|visit| visit.paint(paint));
        let (shown, pixels) = painted.unwrap_or_else(|error| panic!("{label}: {error}"));
        let (warm, reasons) = (shown.visit().warm, &shown.visit().reasons);
        assert!(pixels == self.expected, "wrong pixels after {label}, {options:?}: {reasons:?}");
        // Without the time, because the mock engine is faster than any disk.
        let finished = shown.without_time().finish(&mut Painter::new());
        let finished = finished.unwrap_or_else(|error| panic!("{label}: {error}"));
        assert_eq!(finished, if warm { Finished::Unchanged } else { Finished::Stored });
        warm
    }
}

fn paint(page: &Arc<Page>) -> Result<Vec<u32>> {
    let mut pixels = vec![0; (LAYOUT.width * ROWS) as usize];
    let area = Area { left: 0, top: 0, width: LAYOUT.width, height: ROWS };
    Painter::new().paint(page, area, &mut pixels)?;
    Ok(pixels)
}

fn font() -> Option<Vec<u8>> {
    let names = [
        "dejavu/DejaVuSans-Bold.ttf",
        "dejavu/DejaVuSans.ttf",
        "liberation/LiberationMono-Regular.ttf",
    ];
    let found = names
        .iter()
        .find_map(|name| std::fs::read(format!("/usr/share/fonts/truetype/{name}")).ok());
    if found.is_none() {
        println!("skipped: no font on this machine, so none is damaged");
    }
    found
}

/// Returns the mock engine's output for the page.
fn lay_out(request: &Request) -> Result<EngineOutput> {
    let window = (LAYOUT.width, LAYOUT.height);
    let size = PageSize { width: LAYOUT.width, height: ROWS, window, scale: 1.0 };
    let mut recorder = Recorder::new(size);
    recorder.set_title("A page", &request.url);
    for row in 0..16_u32 {
        let top = f64::from(row * 10);
        let color = Color::from_rgb8((row * 16) as u8, 90, 200);
        let rect = Rect::new(0.0, top, 40.0 + f64::from(row), top + 7.5);
        recorder.fill(Fill::NonZero, Affine::IDENTITY, color, None, &rect);
    }
    let pixels: Vec<u8> = (0..40 * 40 * 4).map(|at| (at * 7 % 251) as u8 | 3).collect();
    let image = ImageBrush::new(ImageData {
        data: Blob::from(pixels),
        format: ImageFormat::Rgba8,
        alpha_type: ImageAlphaType::Alpha,
        width: 40,
        height: 40,
    });
    let place = Affine::translate((50.0, 20.0));
    recorder.fill(Fill::NonZero, place, image.as_ref(), None, &Rect::new(0.0, 0.0, 40.0, 40.0));
    static FONT: std::sync::OnceLock<Option<FontData>> = std::sync::OnceLock::new();
    let font = FONT.get_or_init(|| font().map(|bytes| FontData::new(Blob::from(bytes), 0)));
    if let Some(font) = font {
        let glyphs = (0..8).map(|at| Glyph { id: 36 + at, x: at as f32 * 10.0, y: 140.0 });
        recorder.draw_glyphs(
            font,
            14.0,
            false,
            &[],
            Vec2::ZERO,
            Fill::NonZero,
            Color::BLACK,
            1.0,
            Affine::IDENTITY,
            None,
            glyphs,
        );
    }
    let recorded = recorder.finish();
    let store = request.store.as_ref().map(|path| Store::open(path).unwrap());
    let mut parts = recorded.parts;
    parts.retain(|part| {
        !store.as_ref().is_some_and(|store| page_store::has_part(store, part.kind, &part.hash))
    });
    Ok(EngineOutput {
        answer: Answer {
            final_url: request.url.clone(),
            fonts: FontSet::default(),
            resources: vec![Resource { url: request.url.clone(), stamp: Stamp::Data }],
            keepable: None,
            notes: Vec::new(),
            times: Times::default(),
            source_bytes: 0,
            source_modified_ns: 0,
            source_hash: [0; 32],
        },
        block: recorded.block,
        document: None,
        parts,
    })
}

/// A change of bytes in a file.
struct Damage {
    offset: u64,
    old: Vec<u8>,
    label: String,
}

impl Damage {
    /// Makes a random change: half of them in nonzero bytes and a quarter in the first page,
    /// because most of a file is zeros.
    fn random(file: &PathBuf, random: &mut Random) -> Damage {
        let bytes = std::fs::read(file).unwrap();
        let mut at = random.below(bytes.len());
        match random.below(4) {
            0 => at %= 4096,
            1 | 2 => at += bytes[at..].iter().position(|byte| *byte != 0).unwrap_or(0),
            _ => (),
        }
        let (kind, length) = match random.below(5) {
            0..3 => ("a bit", 1),
            3 => ("400 bytes", 400),
            _ => ("4 KiB", 4096),
        };
        let end = (at + length).min(bytes.len());
        let old = bytes[at..end].to_vec();
        let new: Vec<u8> = match length {
            1 => vec![old[0] ^ 1 << random.below(8)],
            _ => old.iter().map(|_| random.number() as u8).collect(),
        };
        OpenOptions::new().write(true).open(file).unwrap().write_all_at(&new, at as u64).unwrap();
        Damage { offset: at as u64, old, label: format!("{kind} at {at} of {}", bytes.len()) }
    }

    /// Restores the bytes, because no visit may have used and replaced them. The next case tests
    /// other damage.
    fn undo(&self, file: &PathBuf) {
        if let Ok(file) = OpenOptions::new().write(true).open(file) {
            file.write_all_at(&self.old, self.offset).unwrap();
        }
    }
}

/// Damages a random page, font or image `cases` times, and visits the page several times after
/// each.
fn damage_by_chance(cases: u64) {
    let seed = variable("EVERMAP_SEED", 20_261_124);
    println!("{cases} cases; EVERMAP_SEED={seed}");
    let fixture = Fixture::new();
    let mut random = Random(seed | 1);
    let (mut renders, mut warm) = (0, 0);
    for case in 0..cases {
        let files = fixture.files();
        let file = &files[random.below(files.len())];
        let damage = Damage::random(file, &mut random);
        let label = format!("case {case}: {}", damage.label);
        let standard = VisitOptions::default();
        let block = VisitOptions { layers: Layers::Block, ..standard.clone() };
        let first = match random.below(5) {
            0 => standard.clone(),
            1 | 2 => block.clone(),
            3 => VisitOptions { cold: true, ..standard.clone() },
            _ => VisitOptions { reload: true, ..standard.clone() },
        };
        fixture.render(&first, &label);
        // The next visit must succeed as well.
        warm += u64::from(fixture.render(&standard, &label));
        let again = first.cold || first.reload;
        let from_commands = fixture.render(&block, &label);
        if first.layers == Layers::Block || again {
            // The previous visit found its data intact or replaced it.
            assert!(from_commands, "{label}: the next visit is not warm");
        }
        renders += 3;
        let whole = fixture.visit(&standard).unwrap().verify().unwrap();
        whole.page.verify().unwrap();
        damage.undo(file);
        // A page that was laid out again replaces the damaged data before the next case.
        whole.unpainted().finish(&mut Painter::new()).unwrap();
    }
    println!("{renders} renders, {warm} of {cases} second visits warm");
}

#[test]
fn no_changed_byte_of_a_page_a_font_or_an_image_shows_wrong_pixels() {
    damage_by_chance(variable("EVERMAP_DAMAGES", 3_400));
}

/// Flips every bit of the root's part of the first page. A page with a damaged root is never
/// painted.
#[test]
fn no_flipped_bit_of_a_pages_root_is_followed() {
    let fixture = Fixture::new();
    let name = page_store::page_name(&fixture.target.url, LAYOUT);
    let file = fixture.store.path().join("objects").join(fixture.store.info(&name).unwrap().uuid);
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut refused = 0;
    for bit in 0..(4096 - 3072) * 8_u64 {
        let at = 3072 + bit / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
        let found = StoredPage::open(&fixture.store, &fixture.target.url, LAYOUT);
        refused += u64::from(found.is_err());
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(refused, (4096 - 3072) * 8);
    assert!(fixture.render(&VisitOptions::default(), "nothing"));
}

/// Flips every bit of the root itself and updates its checksum. Lengths and addresses must be
/// checked before use.
#[test]
fn no_bit_of_a_root_leads_out_of_its_object() {
    let fixture = Fixture::new();
    let name = page_store::page_name(&fixture.target.url, LAYOUT);
    let bits = size_of::<page_store::PageRoot>() * 8;
    let mut painted = 0;
    for bit in 0..bits {
        let flip = || {
            let mut session = fixture.store.write_raw(&name).unwrap();
            let root = session.root().address;
            // SAFETY: the root's bytes belong to this session, and nothing else refers to them. The
            // object is only opened by code that checks the root before it follows its addresses.
            unsafe { *root.add(bit / 8) ^= 1 << (bit % 8) };
            session.commit().unwrap();
            session.close().unwrap();
        };
        flip();
        if let Ok(found) = StoredPage::open(&fixture.store, &fixture.target.url, LAYOUT)
            && found.manifest().is_ok()
            && let Ok(page) = found.page(true)
        {
            // A bit that no reader uses: the pixels must be right.
            if let Ok(pixels) = paint(&Arc::new(page)) {
                assert!(pixels == fixture.expected, "bit {bit}");
                painted += 1;
            }
        }
        flip();
    }
    // The vector's capacity, and lengths that differ only in the padding.
    println!("{painted} of {bits} bits are not used by a reader");
    assert!(painted < 96, "what a reader uses is checked");
    assert!(fixture.render(&VisitOptions::default(), "nothing"));
}
