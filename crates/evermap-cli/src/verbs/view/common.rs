//! Shared by the three verbs: the page argument, the options of a visit, and the store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evermap::{Error, Store};
use evermap_dom::Document;
use evermap_view::window::WindowOptions;
use evermap_view::{Layers, Layout, Target, ViewError, VisitOptions, find_object, find_target};

use crate::failure::Failure;
use crate::names;
use crate::stale::{self, Stale};

/// Options of a visit.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Visiting")]
pub struct Visiting {
    /// Width of the window, in CSS pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=16384))]
    width: u32,
    /// Height of the window, in CSS pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 768, value_parser = clap::value_parser!(u32).range(16..=16384))]
    height: u32,
    /// Device pixels per CSS pixel
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = scale)]
    scale: f32,
    /// Never use the network
    #[arg(long)]
    offline: bool,
    /// Ignore stored pages and revalidate every cached response
    #[arg(long)]
    reload: bool,
    /// Lay the page out even if the stored page is valid
    #[arg(long)]
    cold: bool,
    /// Do not store anything
    #[arg(long)]
    no_keep: bool,
    /// Use only these layers of a stored page: document (a), layout (b), painted rows (c)
    #[arg(long, value_name = "LAYERS", default_value = "abc")]
    layers: LayersArgument,
    /// Policy for documents in the store whose source has changed or is missing
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    stale: Stale,
    /// Maximum size of the page, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    limit: u64,
    /// Time limit for fetching and laying out the page
    #[arg(long = "patience", value_name = "SECONDS", default_value_t = 60)]
    timeout_seconds: u64,
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
        _ => Err("must be a number from 0.1 to 10".to_string()),
    }
}

impl Visiting {
    pub fn layout(&self) -> Layout {
        let pixels = |length: u32| (length as f32 * self.scale).round() as u32;
        Layout { width: pixels(self.width), height: pixels(self.height), scale: self.scale }
    }

    /// Returns options for a window of this size, for `view`.
    pub fn window_options(&self) -> WindowOptions {
        let zoom = self.scale;
        WindowOptions { width: self.width, height: self.height, zoom, ..WindowOptions::default() }
    }

    pub fn options(&self) -> VisitOptions {
        let timeout = Duration::from_secs(self.timeout_seconds.max(1));
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
            timeout: standard.timeout.min(timeout),
            engine_timeout: timeout,
            ..standard
        }
    }

    /// Returns a finder for the store at `directory`.
    pub fn finder(&self, directory: &Path) -> Finder {
        Finder { directory: directory.to_path_buf(), stale: self.stale }
    }

    pub fn saves_pages(&self) -> bool {
        !self.no_keep
    }

    /// Opens the store, and creates it if pages will be stored. An error does not prevent showing
    /// the page.
    pub fn store(&self, directory: &Path) -> Result<Store, String> {
        let opened = match self.no_keep {
            true => Store::open(directory),
            false => Store::open_or_create(directory),
        };
        opened.map_err(|error| error.to_string())
    }
}

/// Resolves a user's page argument. Documents can be named as in the other verbs, and are refreshed
/// as `--stale` says.
pub struct Finder {
    directory: PathBuf,
    stale: Stale,
}

impl Finder {
    /// Resolves an address, a file, an object of the store, or the document whose name ends in
    /// `page`.
    ///
    /// # Errors
    /// Fails if nothing or several documents match, or if the document is stale with `--stale
    /// fail`.
    pub fn find(&self, page: &str, store: Option<&Store>) -> Result<Target, Failure> {
        let target = match (find_target(page, store), store) {
            (Err(ViewError::NotFound { name, why }), Some(store)) => {
                match names::resolve(store, &self.directory, page) {
                    Ok(object) => find_object(&object, store)?,
                    Err(ambiguous @ Failure::Usage(_)) => return Err(ambiguous),
                    Err(_) => return Err(ViewError::NotFound { name, why }.into()),
                }
            }
            (found, _) => found?,
        };
        if let (Some(name), Some(store)) = (&target.document, store) {
            self.refresh(store, name)?;
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

    fn refresh(&self, store: &Store, name: &str) -> Result<(), Failure> {
        let document = match store.read::<Document>(name) {
            Ok(document) => document,
            // The visit reports the damage.
            Err(Error::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stale::apply_policy(store, &self.directory, name, document, self.stale).map(drop)
    }
}
