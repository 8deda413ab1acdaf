//! What whoever loads a file wants, and knows of what will be done with it.

use super::Method;

/// What is to be soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Latency {
    /// The first use: the image can be used before all of it is there.
    #[default]
    FirstUse,
    /// The finish: nothing is used before all is there, and all is wanted.
    Finish,
}

/// In which order an image will be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Order {
    /// Not known.
    #[default]
    Unknown,
    /// From the beginning to the end.
    Sequential,
    /// Here and there.
    Random,
}

/// What is to be with the page cache afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Cache {
    /// Whatever is fastest now.
    #[default]
    Auto,
    /// Others will want the file, or this program the next time: it shall be in the cache.
    Keep,
    /// Nobody will: what the load brought into the cache is dropped.
    Drop,
}

/// What happens to an image that is being loaded when the process forks. Programs that are started (`posix_spawn`, `exec`) are
/// not concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ForkPolicy {
    /// The fork waits until it is complete; the child has it.
    #[default]
    Finish,
    /// The fork doesn't wait; the child does not have it.
    DontFork,
}

/// All wishes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) latency: Latency,
    pub(crate) order: Order,
    pub(crate) cache: Cache,
    pub(crate) fork: ForkPolicy,
    /// Share of the pages that will be touched, if known.
    pub(crate) touched: Option<f64>,
    /// Share of the pages that will be written, if known.
    pub(crate) written: Option<f64>,
    /// More private memory than this is not to be used.
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) threads: Option<usize>,
    /// Nothing else will do.
    pub(crate) method: Option<Method>,
    pub(crate) may_map: bool,
}
