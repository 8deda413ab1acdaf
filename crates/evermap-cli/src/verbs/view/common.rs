//! Shared by the three verbs: how a page is named and visited, and the store that keeps it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evermap::{Error, Store};
use evermap_dom::Document;
use evermap_view::window::WindowOptions;
use evermap_view::{Layers, Layout, Target, ViewError, VisitOptions};

use crate::failure::Failure;
use crate::names;
use crate::stale::{self, Stale};

/// How pages are visited.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Visiting")]
pub struct Visiting {
    /// Width of the window, in CSS pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=16384))]
    width: u32,
    /// Height of the window, in CSS pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 768, value_parser = clap::value_parser!(u32).range(16..=16384))]
    height: u32,
    /// Device pixels a CSS pixel
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = scale)]
    scale: f32,
    /// Never use the network
    #[arg(long)]
    offline: bool,
    /// Use nothing that is kept, and ask the servers about everything
    #[arg(long)]
    reload: bool,
    /// Lay the page out even when it is kept and good
    #[arg(long)]
    cold: bool,
    /// Keep nothing
    #[arg(long)]
    no_keep: bool,
    /// Use only these layers of what is kept: the document, the laid-out page, the painted rows
    #[arg(long, value_name = "LAYERS", default_value = "abc")]
    layers: LayersArgument,
    /// What to do if a document of the store is shown, and its source has changed or is gone
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    stale: Stale,
    /// Largest page, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    limit: u64,
    /// Seconds that a page may take to come, and to be laid out
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LayersArgument {
    A,
    Ab,
    Abc,
}

fn scale(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(scale) if (0.1..=10.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.1 to 10 is needed".to_string()),
    }
}

impl Visiting {
    pub fn layout(&self) -> Layout {
        let pixels = |length: u32| (length as f32 * self.scale).round() as u32;
        Layout { width: pixels(self.width), height: pixels(self.height), scale: self.scale }
    }

    /// The window of this size that `view` opens.
    pub fn window_options(&self) -> WindowOptions {
        let zoom = self.scale;
        WindowOptions { width: self.width, height: self.height, zoom, ..WindowOptions::default() }
    }

    pub fn options(&self) -> VisitOptions {
        let patience = Duration::from_secs(self.patience.max(1));
        let standard = VisitOptions::default();
        VisitOptions {
            offline: self.offline,
            reload: self.reload,
            cold: self.cold,
            layers: match self.layers {
                LayersArgument::A => Layers::Document,
                LayersArgument::Ab => Layers::Block,
                LayersArgument::Abc => Layers::All,
            },
            page_bytes_max: self.limit.saturating_mul(1 << 20),
            timeout: standard.timeout.min(patience),
            engine_timeout: patience,
            ..standard
        }
    }

    /// Finds pages in the store at `directory`, as these options say.
    pub fn finder(&self, directory: &Path) -> Finder {
        Finder { directory: directory.to_path_buf(), stale: self.stale }
    }

    pub fn keeps(&self) -> bool {
        !self.no_keep
    }

    /// The store, which is made if pages are to be kept; or why there is none, which keeps no page from being shown.
    pub fn store(&self, directory: &Path) -> Result<Store, String> {
        let opened = match self.no_keep {
            true => Store::open(directory),
            false => Store::open_or_create(directory),
        };
        opened.map_err(|error| error.to_string())
    }
}

/// Finds what a user names. Documents have the names that the other verbs take, and are as new as `--stale` wants them.
pub struct Finder {
    directory: PathBuf,
    stale: Stale,
}

impl Finder {
    /// An address, a file, an object of the store, or the document whose name ends in `page`.
    ///
    /// # Errors
    /// If nothing or several documents match; `Stale` with `--stale fail`.
    pub fn find(&self, page: &str, store: Option<&Store>) -> Result<Target, Failure> {
        let target = match (Target::find(page, store), store) {
            (Err(ViewError::NotFound { name, why }), Some(store)) => {
                match names::resolve(store, &self.directory, page) {
                    Ok(object) => Target::named(&object, store)?,
                    Err(ambiguous @ Failure::Usage(_)) => return Err(ambiguous),
                    Err(_) => return Err(ViewError::NotFound { name, why }.into()),
                }
            }
            (found, _) => found?,
        };
        if let (Some(name), Some(store)) = (&target.document, store) {
            self.settle(store, name)?;
        }
        Ok(target)
    }

    /// Like [`find`](Finder::find), for the window.
    pub fn find_for_window(
        &self,
        page: &str,
        store: Option<&Store>,
    ) -> evermap_view::Result<Target> {
        self.find(page, store).map_err(|failure| match failure {
            Failure::Page(error) => error,
            other => ViewError::NotFound { name: page.to_string(), why: other.to_string() },
        })
    }

    fn settle(&self, store: &Store, name: &str) -> Result<(), Failure> {
        let document = match store.read::<Document>(name) {
            Ok(document) => document,
            // The visit says what is wrong with it.
            Err(Error::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stale::settle(store, &self.directory, name, document, self.stale).map(drop)
    }
}
