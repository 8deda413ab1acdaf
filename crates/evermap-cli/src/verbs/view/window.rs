//! `evermap view`: shows a page in a window.

use std::path::Path;
use std::sync::Arc;

use evermap_view::window::{WindowOptions, run};
use evermap_view::{Browser, HOME};

use super::common::Visiting;
use crate::failure::Failure;

/// Show a page in a window
///
/// Keys: Ctrl+L edits the address, Ctrl+F finds text, Alt+Left and Alt+Right go back and forward,
/// F5 reloads, Ctrl++ and Ctrl+- zoom, Tab moves between links, Ctrl+Q closes the window.
#[derive(Debug, clap::Args)]
pub struct View {
    /// URL, file, or page or document in the store (full name or unique ending)
    #[arg(value_name = "PAGE", required_unless_present = "home")]
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
