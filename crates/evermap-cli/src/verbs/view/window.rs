//! `evermap view`: shows a page in a window.

use std::path::Path;
use std::sync::Arc;

use clap_complete::ArgValueCompleter;
use evermap_view::window::{WindowOptions, run};
use evermap_view::{Browser, HOME};

use super::common::Visiting;
use crate::completion::objects;
use crate::failure::Failure;

/// Show a page in a window
///
/// Keys: Ctrl+L edits the address. Alt+Left and Alt+Right go back and forward. F5 or Ctrl+R
/// reloads. Ctrl+F finds text; F3 and Shift+F3 go to the next and the previous match. Ctrl++,
/// Ctrl+- and Ctrl+0 zoom. Tab, Shift+Tab and Enter follow links. Alt+Home opens the start page.
/// Esc goes back to the page. Ctrl+W and Ctrl+Q close the window.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap view https://example.org/
  evermap view --home")]
pub struct View {
    /// URL, file, or page or document in the store (full name or unique ending)
    #[arg(value_name = "PAGE", required_unless_present = "home")]
    #[arg(add = ArgValueCompleter::new(objects))]
    page: Option<String>,
    /// Open the start page, which lists the stored pages and documents
    #[arg(long, conflicts_with = "page")]
    home: bool,
    #[command(flatten)]
    visiting: Visiting,
}

impl View {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let options = WindowOptions { home: HOME.to_string(), ..self.visiting.window_options() };
        let store = self.visiting.store(directory);
        let finder = self.visiting.finder(directory);
        let browser = Browser::new(store, self.visiting.options(), self.visiting.saves_pages())
            .with_resolver(move |page, store| finder.find_for_window(page, store));
        let page = self.page.as_deref().unwrap_or(HOME);
        Ok(run(Arc::new(browser), page, options)?)
    }
}
