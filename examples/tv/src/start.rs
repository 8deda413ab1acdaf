//! Starts the user interface up to the pixels of the first screen, in either way, and measures each
//! step.

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

/// Screens whose first frame is stored.
pub const FIRST_SCREENS: [&str; 3] = ["home", "posters", "guide"];

/// Options of a start.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Directory of the XML files.
    pub directory: PathBuf,
    /// Path of the store.
    pub store: PathBuf,
    /// Uses the store; otherwise everything is parsed.
    pub kept: bool,
    /// Paints the first frame even if it is stored.
    pub repaint: bool,
    /// Screen to show.
    pub screen: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Directories of fonts.
    pub font_directories: Vec<PathBuf>,
}

/// Times of a start, in milliseconds since the process began to run.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Timing {
    /// True if the tree was mapped.
    pub kept: bool,
    /// True if the frame was painted, false if it was copied.
    pub painted: bool,
    pub screen: String,
    pub width: u32,
    pub height: u32,
    /// Reading the XML files, or opening the store and mapping the tree.
    pub read_ms: f64,
    /// Comparing the files with the stored interface.
    pub check_ms: f64,
    pub parse_ms: f64,
    pub layout_ms: f64,
    /// Finding and reading fonts, or mapping them.
    pub fonts_ms: f64,
    /// Painting or copying the pixels.
    pub paint_ms: f64,
    pub total_ms: f64,
    /// Bytes of the tree: size of the object's file, or of all strings and tables.
    pub model_bytes: u64,
    /// Reason why the stored interface was not used.
    pub why: Option<String>,
}

/// Tree of either kind.
enum Tree {
    Plain(PlainInterface),
    Kept(Store, Snapshot<KeptInterface>),
}

/// Running television.
pub struct Started {
    tree: Tree,
    /// State of the focus.
    pub state: State,
    fonts: Option<Fonts>,
    /// The first frame, each pixel 0x00RRGGBB.
    pub pixels: Vec<u32>,
    /// Times of the start.
    pub timing: Timing,
    /// Paints the next frames.
    pub painter: FramePainter,
    later: Later,
}

/// Work for the store, done after the screen is visible.
enum Later {
    Nothing,
    Restamp(Vec<KeptStamp>),
    Keep { sources: Box<[Source; 3]>, fonts: Vec<FontBytes>, options: StartOptions },
}

struct Clock(Instant);

impl Clock {
    /// Returns the milliseconds since the last lap.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let ms = now.duration_since(self.0).as_secs_f64() * 1000.0;
        self.0 = now;
        ms
    }
}

/// Starts the user interface.
///
/// # Errors
/// If the files are missing or invalid, or the screen does not exist. A store that can't be used is
/// not an error: everything is parsed, and [`Timing::why`] has the reason.
pub fn start(options: &StartOptions) -> Result<Started> {
    let began = Instant::now();
    let mut why = None;
    if options.kept {
        match start_kept(options, began) {
            Ok(Ok(started)) => return Ok(started),
            Ok(Err(reason)) => why = Some(reason),
            // The creation of the store was interrupted, or the object has another type: storing
            // replaces it if possible.
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

/// Starts from the store, or returns the reason why not.
fn start_kept(
    options: &StartOptions,
    began: Instant,
) -> Result<std::result::Result<Started, String>> {
    let mut clock = Clock(began);
    let Some((store, kept)) = keep::open(&options.store, options.size)? else {
        return Ok(Err("the store has no interface for this size".to_string()));
    };
    let read_ms = clock.lap();
    let made_by = keep::made_by(&options.font_directories);
    let later = match keep::check(&store, &kept, &options.directory, &made_by)? {
        Checked::Good => Later::Nothing,
        Checked::Restamped(stamps) => Later::Restamp(stamps),
        Checked::Changed(what) => return Ok(Err(format!("changed since it was stored: {what}"))),
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

/// Starts from the XML files.
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
    /// Returns the tree.
    pub fn interface(&self) -> &dyn Interface {
        match &self.tree {
            Tree::Plain(interface) => interface,
            Tree::Kept(_, kept) => &**kept,
        }
    }

    /// Paints the current state.
    ///
    /// # Errors
    /// If stored fonts are missing, or the state can't be painted.
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

    /// Returns the bytes of the tree. Walks through an ordinary one.
    pub fn model_bytes(&self) -> u64 {
        match &self.tree {
            Tree::Plain(interface) => interface.bytes(),
            Tree::Kept(_, kept) => kept.info().map_or(0, |info| info.file_bytes),
        }
    }

    /// Writes to the store, after the screen is visible. Paints the first frames of the main
    /// screens for that.
    ///
    /// # Errors
    /// If the store can't be written; the next start parses again.
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
