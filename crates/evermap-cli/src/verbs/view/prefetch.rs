//! `evermap prefetch`: lays pages out ahead.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap::Store;
use evermap_view::paint::Painter;
use evermap_view::{Layout, visit_whole};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::common::{Finder, Visiting};
use crate::failure::Failure;
use crate::limits::read_text;
use crate::output::{self, Output};

/// Bytes of the longest list of pages.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Lay pages out ahead, so that their first visit is warm
///
/// Each page is laid out as `view` shows it in its window, whose bars take some room, and as `render` paints it. Pages that
/// are kept and good are verified. One that fails is reported, and the others are built all the same.
#[derive(Debug, clap::Args)]
pub struct Prefetch {
    /// URLs, files, or documents of the store: their names, or the ends of these
    #[arg(value_name = "PAGE", required_unless_present = "from")]
    pages: Vec<String>,
    /// A file with one page a line; empty lines and those that begin with `#` are passed over; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Lay pages out only for one of the two
    #[arg(long, value_name = "VERB", value_enum)]
    r#for: Option<Shower>,
    /// One JSON object per page and line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    visiting: Visiting,
}

/// What shows pages.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Shower {
    View,
    Render,
}

#[derive(Serialize)]
struct Report {
    page: String,
    /// For how many layouts it was laid out; the others were kept already.
    built: usize,
    error: Option<String>,
    reasons: Vec<String>,
    /// Resources that servers did not give: the page is kept without them, and they are asked for again.
    missing: usize,
    total_ms: f64,
}

impl Prefetch {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let pages = self.pages()?;
        let store = Store::open_or_create(directory)?;
        let finder = self.visiting.finder(directory);
        let bar = progress(pages.len());
        let mut output = Output::new();
        let mut failed = 0;
        for page in &pages {
            bar.set_message(page.clone());
            let start = Instant::now();
            let outcome = self.build(page, &store, &finder);
            let total_ms = start.elapsed().as_secs_f64() * 1e3;
            failed += usize::from(outcome.is_err());
            let report = match outcome {
                Ok(Built { built, reasons, missing }) => {
                    Report { page: page.clone(), built, error: None, reasons, missing, total_ms }
                }
                Err(error) => Report {
                    page: page.clone(),
                    built: 0,
                    error: Some(error.to_string()),
                    reasons: Vec::new(),
                    missing: 0,
                    total_ms,
                },
            };
            bar.suspend(|| match self.json {
                true => output.json(&report),
                false => output.line(&report.in_words()),
            })?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        output.finish()?;
        match failed {
            0 => Ok(()),
            failed => Err(Failure::NotPrefetched { failed, pages: pages.len() }),
        }
    }

    /// Lays a page out for each of its windows, unless that is kept and whole.
    fn build(&self, page: &str, store: &Store, finder: &Finder) -> Result<Built, Failure> {
        let target = finder.find(page, Some(store))?;
        let options = self.visiting.options();
        let (mut built, mut reasons, mut missing) = (0, Vec::new(), 0);
        for layout in self.layouts() {
            let mut visit = visit_whole(&target, layout, Some(store), &options, &|_| ())?;
            if let Some(why) = visit.keep(store, &mut Painter::new())? {
                return Err(Failure::Usage(format!("it can't be kept: {why}")));
            }
            // The page is kept as it is if what it lacks can't be asked for.
            let _ = visit.retry_missing();
            built += usize::from(!visit.warm);
            missing = missing.max(visit.missing);
            let new = visit.reasons.into_iter().filter(|reason| !reasons.contains(reason));
            let new: Vec<String> = new.collect();
            reasons.extend(new);
        }
        Ok(Built { built, reasons, missing })
    }

    fn layouts(&self) -> Vec<Layout> {
        let view = self.visiting.window_options().page_layout();
        let render = self.visiting.layout();
        match self.r#for {
            Some(Shower::View) => vec![view],
            Some(Shower::Render) => vec![render],
            None => vec![view, render],
        }
    }

    fn pages(&self) -> Result<Vec<String>, Failure> {
        let mut pages = self.pages.clone();
        if let Some(from) = &self.from {
            let failed = |source| Failure::Source { path: from.clone(), source };
            let source: Box<dyn Read> = match from == Path::new("-") {
                true => Box::new(io::stdin().lock()),
                false => Box::new(std::fs::File::open(from).map_err(failed)?),
            };
            let text = read_text(from, source, LIST_BYTES_MAX)?;
            let lines = text.lines().map(|line| line.trim().to_string());
            pages.extend(lines.filter(|line| !line.is_empty() && !line.starts_with('#')));
        }
        Ok(pages)
    }
}

impl Report {
    fn in_words(&self) -> String {
        let spent = output::duration(std::time::Duration::from_secs_f64(self.total_ms / 1e3));
        let without = match self.missing {
            0 => String::new(),
            1 => ", without a resource that did not come".to_string(),
            many => format!(", without {many} resources that did not come"),
        };
        match (&self.error, self.built) {
            (Some(error), _) => format!("{}: {error}", self.page),
            (None, 1..) => format!("{}: laid out and kept in {spent}{without}", self.page),
            (None, 0) => format!("{}: kept already{without}", self.page),
        }
    }
}

/// What became of a page.
struct Built {
    /// How many times it was laid out.
    built: usize,
    /// Why.
    reasons: Vec<String>,
    missing: usize,
}

fn progress(pages: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(pages as u64);
    match ProgressStyle::with_template("{bar:30} {pos} of {len}  {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
