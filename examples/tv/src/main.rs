//! `tv`: generates, shows and measures the user interface of a television.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use evermap_tv::compare::compare;
use evermap_tv::fonts::usual_directories;
use evermap_tv::frame::write_png;
use evermap_tv::generate::{Amounts, generate};
use evermap_tv::start::{FIRST_SCREENS, StartOptions, start};
use evermap_tv::state::Key;
use evermap_tv::{Result, window};

#[derive(Parser)]
#[command(
    version,
    about = "Television user interface that is on the screen immediately at the next start"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Write the XML files of an invented user interface
    Generate {
        /// Directory for the files
        directory: PathBuf,
        /// Seed of the random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of programmes in the guide
        #[arg(long, default_value_t = 10_000)]
        programmes: usize,
        /// Number of channels in the guide
        #[arg(long, default_value_t = 56)]
        channels: usize,
        /// Number of films
        #[arg(long, default_value_t = 320)]
        films: usize,
    },
    /// Make the first frame of a screen, without a window
    Start {
        #[command(flatten)]
        common: Common,
        /// Write the frame to this PNG file
        #[arg(long)]
        png: Option<PathBuf>,
        /// Print the time of each step
        #[arg(long)]
        timing: bool,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
        /// Press keys first: left, right, up, down, enter, back, page-up, page-down, hours-back,
        /// hours-on
        #[arg(long, value_delimiter = ',', value_parser = key)]
        keys: Vec<Key>,
        /// Then paint a scroll of this many frames, and print the time of a frame
        #[arg(long)]
        scroll: Option<usize>,
    },
    /// Show the user interface in a window. Keys: arrows, Enter, Esc; Page Up and Down, with Shift
    /// by hours
    Run {
        #[command(flatten)]
        common: Common,
        /// Use the whole screen
        #[arg(long)]
        fullscreen: bool,
    },
    /// Start both ways, as new processes in turns, and print the time from the start to the first
    /// frame
    Compare {
        #[command(flatten)]
        common: Common,
        /// Number of rounds
        #[arg(long, default_value_t = 21)]
        rounds: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Common {
    /// Directory of the XML files
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Map the stored interface, and store it if it is missing (default)
    #[arg(long, conflicts_with = "parse")]
    kept: bool,
    /// Parse the XML and store nothing
    #[arg(long)]
    parse: bool,
    /// Paint the first frame even if it is stored
    #[arg(long)]
    repaint: bool,
    /// Store to use; default: `tv.store` next to the XML files
    #[arg(long)]
    store: Option<PathBuf>,
    /// Screen to show: home, posters, guide, or a menu
    #[arg(long, default_value = "home")]
    screen: String,
    /// Size of the screen in pixels
    #[arg(long, default_value = "1920x1080", value_parser = size)]
    size: (u32, u32),
    /// Directory of fonts, in place of the usual directories
    #[arg(long)]
    fonts: Vec<PathBuf>,
}

impl Common {
    fn options(self) -> StartOptions {
        StartOptions {
            store: self.store.unwrap_or_else(|| self.directory.join("tv.store")),
            directory: self.directory,
            kept: !self.parse,
            repaint: self.repaint,
            screen: self.screen,
            size: self.size,
            font_directories: if self.fonts.is_empty() { usual_directories() } else { self.fonts },
        }
    }
}

fn size(text: &str) -> std::result::Result<(u32, u32), String> {
    let parsed = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    let possible =
        |size: &(u32, u32)| (320..=7680).contains(&size.0) && (180..=4320).contains(&size.1);
    parsed
        .filter(possible)
        .ok_or_else(|| "give a size like 1920x1080, from 320x180 to 7680x4320".into())
}

fn key(text: &str) -> std::result::Result<Key, String> {
    Ok(match text {
        "left" => Key::Left,
        "right" => Key::Right,
        "up" => Key::Up,
        "down" => Key::Down,
        "enter" => Key::Enter,
        "back" => Key::Back,
        "page-up" => Key::PageUp,
        "page-down" => Key::PageDown,
        "hours-back" => Key::HoursBack,
        "hours-on" => Key::HoursOn,
        _ => return Err("unknown key; see --help".to_string()),
    })
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Generate { directory, seed, programmes, channels, films } => {
            generate(&directory, Amounts { seed, programmes, channels, films })
        }
        Verb::Start { common, png, timing, json, keys, scroll } => {
            start_once(common.options(), png, timing, json, &keys, scroll)
        }
        Verb::Run { common, fullscreen } => window::run(common.options(), fullscreen),
        Verb::Compare { common, rounds, json } => compare_all(common, rounds, json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tv: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. A closed output is not an error.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn start_once(
    options: StartOptions,
    png: Option<PathBuf>,
    timing: bool,
    json: bool,
    keys: &[Key],
    scroll: Option<usize>,
) -> Result<()> {
    let mut started = start(&options)?;
    if timing && json {
        // A measuring program waits for this line, so writing to the store comes after it.
        let model_bytes = started.model_bytes();
        started.timing.model_bytes = model_bytes;
        say(&serde_json::to_string(&started.timing).unwrap_or_default());
    } else if timing {
        let t = &started.timing;
        let way = if t.kept { "kept" } else { "parsed" };
        say(&format!(
            "{way}: read {:.2}, check {:.2}, parse {:.2}, layout {:.2}, fonts {:.2}, paint {:.2}, total {:.2} ms",
            t.read_ms, t.check_ms, t.parse_ms, t.layout_ms, t.fonts_ms, t.paint_ms, t.total_ms
        ));
    }
    if let Some(why) = started.timing.why.as_ref().filter(|_| timing && !json) {
        say(&format!("parsed because: {why}"));
    }
    if let Err(error) = started.keep(&options.store) {
        eprintln!("tv: cannot store the interface for the next start: {error}");
    }
    for key in keys {
        let mut state = started.state.clone();
        state.press(started.interface(), *key);
        state.arrive();
        started.state = state;
    }
    if !keys.is_empty() {
        started.repaint()?;
    }
    if let Some(file) = png {
        write_png(&file, options.size, &started.pixels)?;
    }
    if let Some(frames) = scroll {
        scroll_through(&mut started, frames)?;
    }
    Ok(())
}

/// Simulates held keys: one press every eight frames, and a frame for each 16 ms of the animation.
fn scroll_through(started: &mut evermap_tv::start::Started, frames: usize) -> Result<()> {
    let mut times = Vec::with_capacity(frames);
    for number in 0..frames {
        let mut state = started.state.clone();
        if number % 8 == 0 {
            let key = if number % 64 < 32 { Key::Down } else { Key::Right };
            state.press(started.interface(), key);
        }
        state.advance(0.016);
        started.state = state;
        let began = std::time::Instant::now();
        started.repaint()?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let last = times.len().saturating_sub(1) as f64;
        times.get((last * part).round() as usize).copied().unwrap_or(0.0)
    };
    let (median, late, worst) = (at(0.5), at(0.95), at(1.0));
    say(&format!(
        "{frames} frames: median {median:.1}, 95 % within {late:.1}, worst {worst:.1} ms"
    ));
    Ok(())
}

fn compare_all(common: Common, rounds: usize, json: bool) -> Result<()> {
    let program = std::env::current_exe()
        .map_err(|error| evermap_tv::TvError::Child(format!("can't be found: {error}")))?;
    let options = common.options();
    let path = |path: &std::path::Path| path.display().to_string();
    let mut same = vec![path(&options.directory), "--store".into(), path(&options.store)];
    same.extend(["--size".into(), format!("{}x{}", options.size.0, options.size.1)]);
    for directory in &options.font_directories {
        same.extend(["--fonts".into(), path(directory)]);
    }
    if !json {
        say("from the start of a process to its first frame, in ms; files are in the page cache");
        say("screen    way             median   quartiles        fastest   times");
    }
    for screen in FIRST_SCREENS {
        for cost in compare(&program, &same, screen, rounds)? {
            let (low, high) = (cost.quarter_ms, cost.three_quarters_ms);
            say(&match json {
                true => serde_json::to_string(&cost).unwrap_or_default(),
                false => format!(
                    "{screen:<9} {:<15} {:>6.1}   {low:>6.1} - {high:<6.1}  {:>6.1}   {:>5.1}",
                    cost.way, cost.median_ms, cost.fastest_ms, cost.ratio
                ),
            });
        }
    }
    Ok(())
}
