//! `evermap prefetch`: lays pages out in advance.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap_complete::ArgValueCompleter;
use evermap::Store;
use evermap_view::paint::Painter;
use evermap_view::{Finished, Layout, visit};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::common::{Finder, Visiting};
use crate::completion::objects;
use crate::failure::Failure;
use crate::limits::read_text;
use crate::output::{self, Output};

/// Maximum length of a list of pages, in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Lay out pages in advance, so that their first visit is warm
///
/// Lays out each page for the window of `view` and for `render`. Stored pages that are valid are
/// verified. A failure does not stop the remaining pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap prefetch https://example.org/ page.html
  evermap prefetch --from pages.txt --for view")]
pub struct Prefetch {
    /// URLs, files, or documents in the store (full name or unique ending)
    #[arg(value_name = "PAGE", required_unless_present = "from")]
    #[arg(add = ArgValueCompleter::new(objects))]
    pages: Vec<String>,
    /// File with one page per line, `-` for standard input; empty lines and lines starting with `#`
    /// are ignored
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Lay out pages only for this verb
    #[arg(long, value_name = "VERB", value_enum)]
    r#for: Option<ForVerb>,
    /// Print one JSON object per page
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    visiting: Visiting,
}

/// Verb that shows a page.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum ForVerb {
    View,
    Render,
}

#[derive(Serialize)]
struct Report {
    page: String,
    /// Number of layouts that were made. The others were stored already.
    built: usize,
    error: Option<String>,
    reasons: Vec<String>,
    /// Resources that servers did not deliver. The page is stored without them, and they are
    /// requested again.
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

    /// Lays a page out for each of its windows, unless it is stored undamaged.
    fn build(&self, page: &str, store: &Store, finder: &Finder) -> Result<Built, Failure> {
        let target = finder.find(page, Some(store))?;
        let options = self.visiting.options();
        let (mut built, mut reasons, mut missing) = (0, Vec::new(), 0);
        for layout in self.layouts() {
            let visit = visit(&target, layout, Some(store), &options, &|_| ())?.verify()?;
            built += usize::from(!visit.warm);
            missing = missing.max(visit.missing);
            let new = visit.reasons.iter().filter(|reason| !reasons.contains(*reason)).cloned();
            let new: Vec<String> = new.collect();
            reasons.extend(new);
            if let Finished::NotStored(why) = visit.unpainted().finish(&mut Painter::new())? {
                return Err(Failure::Usage(format!("cannot store the page: {why}")));
            }
        }
        Ok(Built { built, reasons, missing })
    }

    fn layouts(&self) -> Vec<Layout> {
        let view = self.visiting.window_options().page_layout();
        let render = self.visiting.layout();
        match self.r#for {
            Some(ForVerb::View) => vec![view],
            Some(ForVerb::Render) => vec![render],
            None => vec![view, render],
        }
    }

    fn pages(&self) -> Result<Vec<String>, Failure> {
        let mut pages = self.pages.clone();
        if let Some(from) = &self.from {
            let failed = Failure::source(from);
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
            1 => ", without 1 missing resource".to_string(),
            many => format!(", without {many} missing resources"),
        };
        match (&self.error, self.built) {
            (Some(error), _) => format!("{}: {error}", self.page),
            (None, 1..) => format!("{}: laid out and stored in {spent}{without}", self.page),
            (None, 0) => format!("{}: already stored{without}", self.page),
        }
    }
}

/// Result of laying out a page.
struct Built {
    /// Number of layouts that were made.
    built: usize,
    /// Reasons for them.
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
