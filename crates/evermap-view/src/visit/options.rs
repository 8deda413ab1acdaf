//! Options of a visit.

use std::time::Duration;

use crate::fetch::FetchOptions;

/// Layers of a stored page to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// Only the document's tables. The page is styled and laid out.
    Document,
    /// Also the page block. The page is painted.
    Block,
    /// Also the strips. The first screens are copied.
    #[default]
    All,
}

/// Options of a visit.
#[derive(Clone, Debug)]
pub struct VisitOptions {
    /// Never use the network.
    pub offline: bool,
    /// Ignore stored pages and revalidate every cached response.
    pub reload: bool,
    /// Lay the page out even if the stored page is valid. Cached resources are used.
    pub cold: bool,
    /// Layers of a stored page to use.
    pub layers: Layers,
    /// Maximum size of a page, in bytes.
    pub page_bytes_max: u64,
    /// Time limit for the page itself.
    pub timeout: Duration,
    /// Time that resources may delay the page.
    pub resources_timeout: Duration,
    /// Time limit for the engine.
    pub engine_timeout: Duration,
    /// Memory limit of the engine.
    pub memory_bytes_max: u64,
}

impl Default for VisitOptions {
    fn default() -> VisitOptions {
        VisitOptions {
            offline: false,
            reload: false,
            cold: false,
            layers: Layers::All,
            page_bytes_max: 32 << 20,
            timeout: Duration::from_secs(30),
            resources_timeout: Duration::from_secs(5),
            engine_timeout: Duration::from_secs(60),
            memory_bytes_max: 4 << 30,
        }
    }
}

impl VisitOptions {
    /// Returns the options for fetching the page and its resources.
    pub(crate) fn fetch_options(&self) -> FetchOptions {
        FetchOptions {
            page_bytes_max: self.page_bytes_max,
            timeout: self.timeout,
            offline: self.offline,
            ..FetchOptions::default()
        }
    }
}
