//! Options of a load: goals, and the expected use.

use super::Method;

/// Optimization goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Latency {
    /// Early first use: the image is usable before it is complete.
    #[default]
    FirstUse,
    /// Early completion: the image is complete when it is returned.
    Finish,
}

/// Order of access to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Order {
    /// Unknown order.
    #[default]
    Unknown,
    /// From start to end.
    Sequential,
    /// Random order.
    Random,
}

/// Treatment of the page cache after a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Cache {
    /// Fastest for this load.
    #[default]
    Auto,
    /// Keep the file cached, for other programs or the next run.
    Keep,
    /// Evict the pages that the load brought into the cache. If part of the file was cached before,
    /// only the method `read-uncached` does this.
    Drop,
}

/// Effect of a fork on an image that is still loading. Does not concern programs started by
/// `posix_spawn` or `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ForkPolicy {
    /// The fork waits until the image is complete, and the child has it.
    #[default]
    Finish,
    /// The fork does not wait, and the child does not have an image that loads on demand or is
    /// recorded, even if it is complete.
    DontFork,
}

/// All options of a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) latency: Latency,
    pub(crate) order: Order,
    pub(crate) cache: Cache,
    pub(crate) fork: ForkPolicy,
    /// Share of the pages that will be touched, if known.
    pub(crate) touched: Option<f64>,
    /// Share of the pages that will be written, if known.
    pub(crate) written: Option<f64>,
    /// Maximum private memory, in bytes.
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) threads: Option<usize>,
    /// The only method allowed.
    pub(crate) method: Option<Method>,
    pub(crate) may_map: bool,
}
