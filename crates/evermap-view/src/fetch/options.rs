//! Limits of a fetcher on bytes, time and network use. All numbers of this module are defined here.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Options of a [`Fetcher`](super::Fetcher). `docs/viewer.md` lists the defaults.
///
/// ```
/// use evermap_view::fetch::FetchOptions;
/// let options = FetchOptions { offline: true, ..FetchOptions::default() };
/// assert_eq!(options.redirects_max, 10);
/// ```
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Maximum size of a page in bytes, after decompression.
    pub page_bytes_max: u64,
    /// Maximum size of any other resource in bytes, after decompression.
    pub resource_bytes_max: u64,
    /// Maximum number of bytes that one fetcher reads from all sources.
    pub total_bytes_max: u64,
    /// Maximum number of redirects of one resource.
    pub redirects_max: usize,
    /// Time limit for resolving the host, and for connecting to it.
    pub connect_timeout: Duration,
    /// Time limit for one fetch with its redirects. A call's own deadline may be earlier.
    pub timeout: Duration,
    /// Maximum size of all cached responses in bytes, by the sizes of their files. A response that
    /// would take more than an eighth is not stored.
    pub cache_bytes_max: u64,
    /// Never use the network. Only files, `data:` and fresh cached responses can be read.
    pub offline: bool,
    /// Revalidate every cached response, including fresh ones.
    pub reload: bool,
    /// Use the proxy that `ALL_PROXY`, `HTTPS_PROXY` or `HTTP_PROXY` names, except for hosts in
    /// `NO_PROXY`.
    pub proxy_from_environment: bool,
}

impl Default for FetchOptions {
    fn default() -> FetchOptions {
        FetchOptions {
            page_bytes_max: 32 * MIB,
            resource_bytes_max: 32 * MIB,
            total_bytes_max: 256 * MIB,
            redirects_max: 10,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            cache_bytes_max: 256 * MIB,
            offline: false,
            reload: false,
            proxy_from_environment: true,
        }
    }
}
