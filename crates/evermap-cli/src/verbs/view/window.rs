//! `evermap view`: a page in a window.

use std::path::Path;

use super::common::Visiting;
use crate::failure::Failure;

/// Show a page in a window
#[derive(Debug, clap::Args)]
pub struct View {
    /// URL, file, or name of a page or document in the store
    #[arg(value_name = "PAGE")]
    page: String,
    #[command(flatten)]
    visiting: Visiting,
}

impl View {
    pub fn run(&self, _directory: &Path) -> Result<(), Failure> {
        let _ = (&self.page, &self.visiting);
        Err(evermap_view::ViewError::NoWindow("not there yet".to_string()).into())
    }
}
