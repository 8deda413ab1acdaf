//! What damage in a store does to visits: any byte of a kept page, its fonts and its images may change, and no visit shows
//! wrong pixels. The engine is a stand-in that says what the real one would: it sends the fonts and images that the store does not
//! have in a good state.
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
use crate::paint::Area;
use crate::protocol::Answer;
use crate::{fetch::Stamp, run_engine::stand_in};

#[path = "../../tests/support/random.rs"]
mod random;
use random::{Random, variable};

const LAYOUT: Layout = Layout { width: 96, height: 96, scale: 1.0 };
/// More than the rows that are kept as strips in these tests would hide the commands behind them.
const ROWS: u32 = 160;

/// A store on a file system whose flushes cost nothing, where there is one.
struct Place {
    _directory: tempfile::TempDir,
    store: Store,
    target: Target,
    right: Vec<u32>,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let target = Target::of_url(Url::parse("https://example.org/page").unwrap());
        stand_in(Some(Box::new(lay_out)));
        let mut place = Place { _directory: directory, store, target, right: Vec::new() };
        let mut visit = place.visit(&VisitOptions::default()).unwrap();
        place.right = paint(&visit).unwrap();
        assert_eq!(visit.keep(&place.store, &mut Painter::new()).unwrap(), None);
        place
    }

    fn visit(&self, options: &VisitOptions) -> Result<Visit> {
        visit(&self.target, LAYOUT, Some(&self.store), options, &|_| ())
    }

    /// The objects whose damage is tried, and their files.
    fn files(&self) -> Vec<PathBuf> {
        let names = self.store.list().unwrap().into_iter();
        let kept = names.filter(|name| {
            ["page-", "font-", "image-"].iter().any(|prefix| name.starts_with(prefix))
        });
        let mut files: Vec<PathBuf> = kept
            .map(|name| {
                let uuid = self.store.info(&name).unwrap().uuid;
                self.store.path().join("objects").join(uuid)
            })
            .collect();
        files.sort();
        files
    }

    /// One visit as the command makes it: painted, made anew if what is kept is damaged, kept. Gives whether it was warm.
    fn render(&self, options: &VisitOptions, words: &str) -> bool {
        let mut options = options.clone();
        let (mut visit, pixels) = loop {
            let visit = self.visit(&options).unwrap_or_else(|error| panic!("{words}: {error}"));
            match paint(&visit) {
                Ok(pixels) => break (visit, pixels),
                Err(error) if error.is_flaw() && visit.warm => options.cold = true,
                Err(error) => panic!("{words}: {error}"),
            }
        };
        assert!(
            pixels == self.right,
            "wrong pixels after {words}, {options:?}: {:?}",
            visit.reasons
        );
        let kept = visit.keep(&self.store, &mut Painter::new());
        assert_eq!(kept.unwrap_or_else(|error| panic!("{words}: {error}")), None);
        visit.warm
    }
}

fn paint(visit: &Visit) -> Result<Vec<u32>> {
    let mut pixels = vec![0; (LAYOUT.width * ROWS) as usize];
    let area = Area { left: 0, top: 0, width: LAYOUT.width, height: ROWS };
    Painter::new().paint(&visit.page, area, &mut pixels)?;
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

/// What the engine makes of the page.
fn lay_out(request: &Request) -> Result<Made> {
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
        !store.as_ref().is_some_and(|store| keep::has_part(store, part.kind, &part.hash))
    });
    Ok(Made {
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

/// A change of a file's bytes.
struct Damage {
    offset: u64,
    old: Vec<u8>,
    words: String,
}

impl Damage {
    /// Half of them where something stands, a quarter in the first page: a file is mostly zeros.
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
        Damage { offset: at as u64, old, words: format!("{kind} at {at} of {}", bytes.len()) }
    }

    /// What no visit used is still there; the next case is about other damage.
    fn undo(&self, file: &PathBuf) {
        if let Ok(file) = OpenOptions::new().write(true).open(file) {
            file.write_all_at(&self.old, self.offset).unwrap();
        }
    }
}

/// `cases` times: something of a page, a font or an image changes; a visit, and another.
fn damage_by_chance(cases: u64) {
    let seed = variable("EVERMAP_SEED", 20_261_124);
    println!("{cases} cases; EVERMAP_SEED={seed}");
    let place = Place::new();
    let mut random = Random(seed | 1);
    let (mut renders, mut warm) = (0, 0);
    for case in 0..cases {
        let files = place.files();
        let file = &files[random.below(files.len())];
        let damage = Damage::random(file, &mut random);
        let words = format!("case {case}: {}", damage.words);
        let standard = VisitOptions::default();
        let block = VisitOptions { layers: Layers::Block, ..standard.clone() };
        let first = match random.below(5) {
            0 => standard.clone(),
            1 | 2 => block.clone(),
            3 => VisitOptions { cold: true, ..standard.clone() },
            _ => VisitOptions { reload: true, ..standard.clone() },
        };
        place.render(&first, &words);
        // The next visit is whole.
        warm += u64::from(place.render(&standard, &words));
        let again = first.cold || first.reload;
        let from_commands = place.render(&block, &words);
        if first.layers == Layers::Block || again {
            // What that visit used was good, or was made anew.
            assert!(from_commands, "{words}: the next visit is not warm");
        }
        renders += 3;
        let whole =
            visit_whole(&place.target, LAYOUT, Some(&place.store), &standard, &|_| ()).unwrap();
        whole.page.verify().unwrap();
        damage.undo(file);
        if !whole.warm {
            // It was laid out and is not kept: what is damaged is still there, and goes with the next case.
            let mut whole = whole;
            assert_eq!(whole.keep(&place.store, &mut Painter::new()).unwrap(), None);
        }
    }
    println!("{renders} renders, {warm} of {cases} second visits warm");
}

#[test]
fn no_changed_byte_of_a_page_a_font_or_an_image_shows_wrong_pixels() {
    damage_by_chance(variable("EVERMAP_DAMAGES", 3_400));
}

/// All bits of the root's part of the first page: nothing is painted from a page whose root is damaged.
#[test]
fn no_flipped_bit_of_a_pages_root_is_followed() {
    let place = Place::new();
    let name = keep::page_name(&place.target.url, LAYOUT);
    let file = place.store.path().join("objects").join(place.store.info(&name).unwrap().uuid);
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut refused = 0;
    for bit in 0..(4096 - 3072) * 8_u64 {
        let at = 3072 + bit / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
        let found = Found::open(&place.store, &place.target.url, LAYOUT);
        refused += u64::from(found.is_err());
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(refused, (4096 - 3072) * 8);
    assert!(place.render(&VisitOptions::default(), "nothing"));
}

/// All bits of the root itself, with a checksum that is right: lengths and addresses are bounded before they are followed.
#[test]
fn no_bit_of_a_root_leads_out_of_its_object() {
    let place = Place::new();
    let name = keep::page_name(&place.target.url, LAYOUT);
    let bits = size_of::<keep::KeptPage>() * 8;
    let mut painted = 0;
    for bit in 0..bits {
        let flip = || {
            let mut session = place.store.write_raw(&name).unwrap();
            let root = session.root().address;
            // SAFETY: the root's bytes belong to this session, and nothing else refers to them. What the
            // object holds then is what this test is about: it is opened by code that checks it.
            unsafe { *root.add(bit / 8) ^= 1 << (bit % 8) };
            session.commit().unwrap();
            session.close().unwrap();
        };
        flip();
        if let Ok(found) = Found::open(&place.store, &place.target.url, LAYOUT)
            && found.manifest().is_ok()
            && let Ok(page) = found.page(true)
        {
            // A bit that no reader uses: what is painted is right.
            let page = Arc::new(page);
            let mut pixels = vec![0; (LAYOUT.width * ROWS) as usize];
            let area = Area { left: 0, top: 0, width: LAYOUT.width, height: ROWS };
            if Painter::new().paint(&page, area, &mut pixels).is_ok() {
                assert!(pixels == place.right, "bit {bit}");
                painted += 1;
            }
        }
        flip();
    }
    // The vector's capacity, and lengths that differ in the padding.
    println!("{painted} of {bits} bits are not used by a reader");
    assert!(painted < 96, "what a reader uses is checked");
    assert!(place.render(&VisitOptions::default(), "nothing"));
}
