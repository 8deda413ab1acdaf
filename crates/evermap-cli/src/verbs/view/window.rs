//! `evermap view`: a page in a window.

use std::path::Path;
use std::sync::Arc;

use evermap_view::window::{WindowOptions, run};
use evermap_view::{Browser, HOME};

use super::common::Visiting;
use crate::failure::Failure;

/// Show a page in a window
///
/// Ctrl+L goes to the address bar, Ctrl+F finds in the page, Alt+Left and Alt+Right go back and forward, F5 reloads,
/// Ctrl++ and Ctrl+- zoom, Tab goes from link to link, Ctrl+Q closes.
#[derive(Debug, clap::Args)]
pub struct View {
    /// URL, file, or a page or document of the store: its name, or the end of that
    #[arg(value_name = "PAGE", required_unless_present = "home")]
    page: Option<String>,
    /// Open on the start page: what the store keeps
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
        let browser = Browser::new(store, self.visiting.options(), self.visiting.keeps())
            .with_resolver(move |page, store| finder.find_for_window(page, store));
        let page = self.page.as_deref().unwrap_or(HOME);
        Ok(run(Arc::new(browser), page, options)?)
    }
}
