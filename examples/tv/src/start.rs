//! A start: from nothing to the pixels of the first screen, one way or the other, with the time that each step took.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use evermap::{Snapshot, Store};
use serde::Serialize;

use crate::contents::parse;
use crate::error::{Result, TvError};
use crate::fonts::{FontBytes, Fonts, find};
use crate::frame::{FramePainter, pack, unpack};
use crate::keep::{self, Checked, Source};
use crate::kept::{KeptInterface, KeptStamp};
use crate::layout::lay_out;
use crate::model::Interface;
use crate::plain::PlainInterface;
use crate::state::State;

/// Screens whose first frame is kept.
pub const FIRST_SCREENS: [&str; 3] = ["home", "posters", "guide"];

/// How to start.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Where the XML files are.
    pub directory: PathBuf,
    /// Where the store is.
    pub store: PathBuf,
    /// Whether the store is used; else everything is parsed.
    pub kept: bool,
    /// Paints the first frame although it is kept painted.
    pub repaint: bool,
    /// The screen to show.
    pub screen: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Where fonts are looked for.
    pub font_directories: Vec<PathBuf>,
}

/// What a start cost, in milliseconds of the process's own time.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Timing {
    /// The tree was mapped, not made.
    pub kept: bool,
    /// The frame was painted, not copied.
    pub painted: bool,
    pub screen: String,
    pub width: u32,
    pub height: u32,
    /// Reading the XML files; or opening the store and mapping the tree.
    pub read_ms: f64,
    /// Comparing files with what is kept.
    pub check_ms: f64,
    pub parse_ms: f64,
    pub layout_ms: f64,
    /// Finding and reading fonts, or mapping them.
    pub fonts_ms: f64,
    /// Painting or copying the pixels.
    pub paint_ms: f64,
    pub total_ms: f64,
    /// Bytes of the tree: of the object's file, or of all strings and tables.
    pub model_bytes: u64,
    /// Why nothing that is kept was used.
    pub why: Option<String>,
}

/// The tree, wherever it lies.
enum Tree {
    Plain(PlainInterface),
    Kept(Store, Snapshot<KeptInterface>),
}

/// A television that is on.
pub struct Started {
    tree: Tree,
    /// What has the focus.
    pub state: State,
    fonts: Option<Fonts>,
    /// The first frame, each pixel 0x00RRGGBB.
    pub pixels: Vec<u32>,
    /// What it cost.
    pub timing: Timing,
    /// Paints the next frames.
    pub painter: FramePainter,
    later: Later,
}

/// What is to be kept, once the screen is seen.
enum Later {
    Nothing,
    Restamp(Vec<KeptStamp>),
    Keep { sources: Box<[Source; 3]>, fonts: Vec<FontBytes>, options: StartOptions },
}

struct Clock(Instant);

impl Clock {
    /// Milliseconds since the last lap.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let ms = now.duration_since(self.0).as_secs_f64() * 1000.0;
        self.0 = now;
        ms
    }
}

/// Starts.
///
/// # Errors
/// When the files are missing or wrong, or the screen is not there. A store that can't be used is no error: everything is
/// parsed then, and [`Timing::why`] says so.
pub fn start(options: &StartOptions) -> Result<Started> {
    let began = Instant::now();
    let mut why = None;
    if options.kept {
        match start_kept(options, began) {
            Ok(Ok(started)) => return Ok(started),
            Ok(Err(reason)) => why = Some(reason),
            // A store whose making was interrupted, or an object of another type: keeping replaces it if that can be done.
            Err(TvError::Store(error)) => why = Some(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let mut started = start_parsing(options, began, options.kept)?;
    started.timing.why = why;
    Ok(started)
}

fn no_screen(interface: &dyn Interface, screen: &str) -> TvError {
    let all = (0..interface.screens()).filter_map(|at| interface.screen(at));
    let all: Vec<String> = all.map(|screen| format!("`{}`", screen.name)).collect();
    TvError::NoScreen(screen.to_string(), all.join(", "))
}

/// From the store; or why not.
fn start_kept(
    options: &StartOptions,
    began: Instant,
) -> Result<std::result::Result<Started, String>> {
    let mut clock = Clock(began);
    let Some((store, kept)) = keep::open(&options.store, options.size)? else {
        return Ok(Err("nothing is kept for this size".to_string()));
    };
    let read_ms = clock.lap();
    let made_by = keep::made_by(&options.font_directories);
    let later = match keep::check(&store, &kept, &options.directory, &made_by)? {
        Checked::Good => Later::Nothing,
        Checked::Restamped(stamps) => Later::Restamp(stamps),
        Checked::Changed(what) => return Ok(Err(format!("changed since it was kept: {what}"))),
    };
    let check_ms = clock.lap();
    let screen = kept.find(&options.screen).ok_or_else(|| no_screen(&*kept, &options.screen))?;
    let state = State::new(&*kept, screen);
    let (mut pixels, mut painter, mut fonts) = (Vec::new(), FramePainter::new(), None);
    let frame = kept.frames.iter().find(|frame| frame.screen == *options.screen.as_str());
    let copied = !options.repaint
        && frame.is_some_and(|frame| unpack(&frame.strips, options.size, &mut pixels).is_ok());
    let mut fonts_ms = 0.0;
    if !copied {
        clock.lap();
        let mapped = keep::map_fonts(&store, &kept)?;
        fonts_ms = clock.lap();
        painter.paint(&*kept, &state, &mapped, &mut pixels)?;
        fonts = Some(mapped);
    }
    let paint_ms = clock.lap();
    let timing = Timing {
        kept: true,
        painted: !copied,
        screen: options.screen.clone(),
        width: options.size.0,
        height: options.size.1,
        read_ms,
        check_ms,
        fonts_ms,
        paint_ms,
        total_ms: began.elapsed().as_secs_f64() * 1000.0,
        ..Timing::default()
    };
    let tree = Tree::Kept(store, kept);
    Ok(Ok(Started { tree, state, fonts, pixels, timing, painter, later }))
}

/// From the XML files.
fn start_parsing(options: &StartOptions, began: Instant, keep: bool) -> Result<Started> {
    let mut clock = Clock(Instant::now());
    let mut sources = keep::read_sources(&options.directory)?;
    let read_ms = clock.lap();
    let bytes = sources.each_mut().map(|source| std::mem::take(&mut source.bytes));
    let contents = parse(&options.directory, &bytes)?;
    for (source, bytes) in sources.iter_mut().zip(bytes) {
        source.bytes = bytes;
    }
    let parse_ms = clock.lap();
    let (width, height) = options.size;
    let interface = lay_out(contents, width, height);
    let screen =
        interface.find(&options.screen).ok_or_else(|| no_screen(&interface, &options.screen))?;
    let state = State::new(&interface, screen);
    let layout_ms = clock.lap();
    let files = find(&options.font_directories);
    let read = files.iter().filter_map(|file| std::fs::read(file).ok());
    let bytes: Vec<FontBytes> = read.map(|bytes| Arc::new(bytes) as FontBytes).collect();
    let fonts = Fonts::new(bytes.clone());
    let fonts_ms = clock.lap();
    let (mut pixels, mut painter) = (Vec::new(), FramePainter::new());
    painter.paint(&interface, &state, &fonts, &mut pixels)?;
    let paint_ms = clock.lap();
    let timing = Timing {
        painted: true,
        screen: options.screen.clone(),
        width,
        height,
        read_ms,
        parse_ms,
        layout_ms,
        fonts_ms,
        paint_ms,
        total_ms: began.elapsed().as_secs_f64() * 1000.0,
        ..Timing::default()
    };
    let later = match keep {
        true => Later::Keep { sources: Box::new(sources), fonts: bytes, options: options.clone() },
        false => Later::Nothing,
    };
    let fonts = Some(fonts);
    Ok(Started { tree: Tree::Plain(interface), state, fonts, pixels, timing, painter, later })
}

impl Started {
    /// The tree.
    pub fn interface(&self) -> &dyn Interface {
        match &self.tree {
            Tree::Plain(interface) => interface,
            Tree::Kept(_, kept) => &**kept,
        }
    }

    /// Paints the state as it is now.
    ///
    /// # Errors
    /// When the fonts that are kept are gone, or nothing can be painted.
    pub fn repaint(&mut self) -> Result<()> {
        if let (None, Tree::Kept(store, kept)) = (&self.fonts, &self.tree) {
            self.fonts = Some(keep::map_fonts(store, kept)?);
        }
        let none = Fonts::default();
        let fonts = self.fonts.as_ref().unwrap_or(&none);
        let interface: &dyn Interface = match &self.tree {
            Tree::Plain(interface) => interface,
            Tree::Kept(_, kept) => &**kept,
        };
        self.painter.paint(interface, &self.state, fonts, &mut self.pixels)
    }

    /// How many bytes the tree has. Costs a walk through an ordinary one.
    pub fn model_bytes(&self) -> u64 {
        match &self.tree {
            Tree::Plain(interface) => interface.bytes(),
            Tree::Kept(_, kept) => kept.info().map_or(0, |info| info.file_bytes),
        }
    }

    /// Keeps what there is to keep, now that the screen is seen. Paints the first frames of the main screens for that.
    ///
    /// # Errors
    /// When the store can't be written: the next start will parse again.
    pub fn keep(&mut self, store: &Path) -> Result<()> {
        match std::mem::replace(&mut self.later, Later::Nothing) {
            Later::Nothing => Ok(()),
            Later::Restamp(stamps) => match &self.tree {
                Tree::Kept(store, _) => keep::restamp(store, self.interface().size(), &stamps),
                Tree::Plain(_) => Ok(()),
            },
            Later::Keep { sources, fonts, options } => {
                let Tree::Plain(interface) = &self.tree else { return Ok(()) };
                let drawn_with = Fonts::new(fonts.clone());
                let mut frames = Vec::new();
                let mut pixels = Vec::new();
                let mut painter = FramePainter::new();
                for name in FIRST_SCREENS {
                    let Some(screen) = interface.find(name) else { continue };
                    let state = State::new(interface, screen);
                    painter.paint(interface, &state, &drawn_with, &mut pixels)?;
                    frames.push((name.to_string(), pack(&pixels, interface.width)));
                }
                let made_by = keep::made_by(&options.font_directories);
                keep::keep(store, interface, &frames, &sources, &fonts, &made_by)
            }
        }
    }
}
