//! `evermap render`: paints a page into a picture.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap_complete::ArgValueCompleter;
use evermap::Store;
use evermap_view::page::{Block, PartKind};
use evermap_view::paint::{Area, Page, Painter, Pixels};
use evermap_view::{Finished, Layout, Target, ViewError, Visit, page_store, visit};
use serde::Serialize;

use super::common::Visiting;
use crate::completion::objects;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::result_file;

/// Rows that are painted and written at a time.
const ROWS: u32 = 256;
/// Maximum height of a picture. Many programs reject higher ones.
const HEIGHT_MAX: u32 = 65_535;

/// Paint a page into a PNG picture
///
/// A page that was visited before in a window of the same size, and has not changed since, is
/// mapped and painted without parsing or layout. Any other page is laid out first, and stored for
/// later visits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap render https://example.org/ --output page.png --full
  evermap render page.html --timing --json")]
pub struct Render {
    /// URL, file, or page or document in the store (full name or unique ending)
    #[arg(value_name = "PAGE")]
    #[arg(add = ArgValueCompleter::new(objects))]
    page: String,
    /// Output file (PNG), `-` for standard output
    #[arg(long, short, value_name = "FILE", required_unless_present = "timing")]
    output: Option<PathBuf>,
    /// Paint the whole page instead of its first screen
    #[arg(long)]
    full: bool,
    /// Print to stderr why the page was or was not laid out
    #[arg(long)]
    explain: bool,
    /// Print the times instead of writing a picture
    #[arg(long, conflicts_with = "output")]
    timing: bool,
    /// Print the sizes of the stored page's parts
    #[arg(long)]
    sizes: bool,
    /// Print the times as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    visiting: Visiting,
}

/// Times of a visit. Steps that did not run have time 0.
#[derive(Serialize)]
pub struct Report {
    pub page: String,
    pub warm: bool,
    pub reasons: Vec<String>,
    /// Resources that servers did not deliver.
    pub missing: usize,
    pub width: u32,
    pub height: u32,
    /// Opening and checking the stored page, or reading the page.
    pub disk_ms: f64,
    pub parse_ms: f64,
    /// Style, shaping and layout, including waiting for resources.
    pub layout_ms: f64,
    pub record_ms: f64,
    pub paint_ms: f64,
    /// From the start of the program until the pixels are painted.
    pub total_ms: f64,
    /// Time when the pixels were painted, in nanoseconds of the system's monotonic clock.
    pub painted_ns: u64,
    pub keep_ms: f64,
    /// Duration of the cold visit.
    pub cold_ms: f64,
    pub commands: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
}

/// Sizes of the stored parts of a page, in bytes.
#[derive(Default, Serialize)]
pub struct Sizes {
    /// The page block.
    pub tree_bytes: u64,
    pub font_bytes: u64,
    pub image_bytes: u64,
    pub strip_bytes: u64,
    pub document_bytes: u64,
}

impl Render {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let start = Instant::now();
        if let Some(file) = &self.output {
            result_file::check_outside_store(directory, file)?;
        }
        let layout = self.visiting.layout();
        let there = Store::open(directory);
        let target = self.visiting.finder(directory).find(&self.page, there.as_ref().ok())?;
        // A store is made only once the page was found.
        let store = there.or_else(|_| self.visiting.store(directory));
        let options = self.visiting.options();
        let visit = visit(&target, layout, store.as_ref().ok(), &options, &|_| ())?;
        let mut painter = Painter::new();
        let mut opened = Instant::now();
        // A large picture is written while it is painted, and written rows can't be revoked. So the
        // whole page is verified first.
        let (shown, pixels) = if self.full && !self.timing {
            let visit = visit.verify()?;
            opened = Instant::now();
            (visit.unpainted(), None)
        } else {
            let (shown, pixels) = visit.paint(|page| {
                opened = Instant::now();
                painter = Painter::new();
                rows(&mut painter, page, layout.width, 0, self.height(page, layout))
            })?;
            (if self.full { shown.without_time() } else { shown }, Some(pixels))
        };
        let (painted, painted_ns) = (Instant::now(), monotonic_ns());
        let page = shown.visit().page.clone();
        let height = self.height(&page, layout);
        if let Some(output) = &self.output {
            self.write(output, &mut painter, &page, (layout.width, height), pixels.as_deref())?;
        }
        let mut report = Report::of(shown.visit(), &target, layout, height);
        let keep_start = Instant::now();
        let mut not_stored = store.as_ref().err().cloned();
        if self.visiting.saves_pages() && store.is_ok() {
            match shown.finish(&mut painter) {
                Ok(Finished::Unchanged | Finished::Stored) => (),
                Ok(Finished::SlowDisk) => report.reasons.push(
                    "laying the page out is faster than reading it from this disk; the next visit does so"
                        .to_string(),
                ),
                Ok(Finished::NotStored(why)) => not_stored = Some(why),
                Err(error) => not_stored = Some(error.to_string()),
            }
        }
        report.keep_ms = keep_start.elapsed().as_secs_f64() * 1e3;
        report.paint_ms = (painted - opened).as_secs_f64() * 1e3;
        report.total_ms = (painted - start).as_secs_f64() * 1e3;
        report.painted_ns = painted_ns;
        if self.sizes {
            report.sizes = Some(Sizes::of(page.block(), store.as_ref().ok(), &target, layout));
        }
        self.say(report, not_stored)
    }

    fn height(&self, page: &Page, layout: Layout) -> u32 {
        match self.full {
            true => page.block().size().height.min(HEIGHT_MAX),
            false => layout.height,
        }
    }

    fn write(
        &self,
        path: &Path,
        painter: &mut Painter,
        page: &Arc<Page>,
        (width, height): (u32, u32),
        painted: Option<&[u32]>,
    ) -> Result<(), Failure> {
        let failed = Failure::target(path);
        let target: Box<dyn Write> = match path == Path::new("-") {
            true => Box::new(output::Stdout),
            false => Box::new(File::create(path).map_err(failed)?),
        };
        let mut encoder = png::Encoder::new(BufWriter::new(target), width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let mut picture = encoder.write_header().map_err(io::Error::from).map_err(failed)?;
        let mut stream = picture.stream_writer().map_err(io::Error::from).map_err(failed)?;
        let mut top = 0;
        while top < height {
            let count = ROWS.min(height - top);
            let bytes = match painted {
                Some(all) => rgb(&all[(top * width) as usize..((top + count) * width) as usize]),
                None => rgb(&rows(painter, page, width, top, count)?),
            };
            stream.write_all(&bytes).map_err(failed)?;
            top += count;
        }
        stream.finish().map_err(io::Error::from).map_err(failed)
    }

    fn say(&self, report: Report, not_stored: Option<String>) -> Result<(), Failure> {
        if self.explain {
            let temperature = if report.warm { "warm" } else { "cold" };
            let mut lines = report.reasons.iter();
            let first = lines.next().map(String::as_str).unwrap_or_default();
            eprintln_quietly(&format!("{temperature}: {first}"));
            for line in lines {
                eprintln_quietly(&format!("      {line}"));
            }
        }
        if let Some(why) = not_stored.filter(|_| self.visiting.saves_pages()) {
            eprintln_quietly(&format!("evermap: the page is not stored: {why}"));
        }
        // `-` is standard output, too.
        let picture = self.output.as_deref().map(|path| match path == Path::new("-") {
            true => Path::new("/dev/stdout"),
            false => path,
        });
        let mut output = Output::beside(picture);
        match (self.json, self.timing) {
            (true, _) => output.json(&report)?,
            (false, true) => output.line(&report.in_words())?,
            _ => (),
        }
        if let (Some(sizes), false) = (&report.sizes, self.json) {
            output.line(&sizes.in_words())?;
        }
        output.finish()
    }
}

fn eprintln_quietly(line: &str) {
    // An error is ignored: stderr is closed.
    let _ = writeln!(io::stderr(), "{}", output::plain(line));
}

fn rows(
    painter: &mut Painter,
    page: &Arc<Page>,
    width: u32,
    top: u32,
    height: u32,
) -> Result<Pixels, ViewError> {
    let mut pixels = Pixels::new(width, height)?;
    painter.paint(page, Area { left: 0, top, width, height }, &mut pixels)?;
    Ok(pixels)
}

fn rgb(pixels: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pixels.len() * 3);
    for pixel in pixels {
        let [_, red, green, blue] = pixel.to_be_bytes();
        bytes.extend([red, green, blue]);
    }
    bytes
}

impl Report {
    fn of(visit: &Visit, target: &Target, layout: Layout, height: u32) -> Report {
        let times = visit.times.unwrap_or_default();
        Report {
            page: target.url.to_string(),
            warm: visit.warm,
            reasons: visit.reasons.clone(),
            missing: visit.missing,
            width: layout.width,
            height,
            disk_ms: visit.open_ms + times.fetch_ms,
            parse_ms: times.parse_ms,
            layout_ms: times.layout_ms,
            record_ms: times.record_ms,
            paint_ms: 0.0,
            total_ms: 0.0,
            painted_ns: 0,
            keep_ms: 0.0,
            cold_ms: visit.cold_ms,
            commands: visit.page.block().commands() as u64,
            sizes: None,
        }
    }

    fn in_words(&self) -> String {
        let temperature = if self.warm { "warm" } else { "cold" };
        let total = self.total_ms;
        format!(
            "{temperature}: {total:.1} ms (disk {:.1}, parse {:.1}, style and layout {:.1}, record {:.1}, paint {:.1})",
            self.disk_ms, self.parse_ms, self.layout_ms, self.record_ms, self.paint_ms
        )
    }
}

impl Sizes {
    /// Adds up the sizes of the page's objects that exist.
    fn of(block: Block<'_>, store: Option<&Store>, target: &Target, layout: Layout) -> Sizes {
        let mut sizes = Sizes { tree_bytes: block.len() as u64, ..Sizes::default() };
        let Some(store) = store else { return sizes };
        let mut seen = std::collections::HashSet::new();
        for part in block.parts().filter(|part| seen.insert(part.hash)) {
            let bytes = page_store::part_bytes(store, part.kind, part.hash).unwrap_or(0);
            match part.kind {
                PartKind::Font => sizes.font_bytes += bytes,
                PartKind::Image => sizes.image_bytes += bytes,
            }
        }
        if let Ok(found) = page_store::StoredPage::open(store, &target.key(), layout) {
            sizes.strip_bytes = found.sizes().1;
        }
        if let Some(document) = page_store::document(store, &target.url) {
            sizes.document_bytes = document.block_bytes();
        }
        sizes
    }

    fn in_words(&self) -> String {
        let said = |bytes| humansize::format_size(bytes, humansize::BINARY);
        format!(
            "stored: page {}, painted rows {}, document {}, fonts {}, images {}",
            said(self.tree_bytes),
            said(self.strip_bytes),
            said(self.document_bytes),
            said(self.font_bytes),
            said(self.image_bytes)
        )
    }
}

/// Returns the time of the system's monotonic clock, which is the same in all processes.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
