//! What a fetcher may use: bytes, time, the network. Every number of the module has its home here.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Choices for a [`Fetcher`](super::Fetcher). The defaults are those of `docs/viewer.md`.
///
/// ```
/// use evermap_view::fetch::FetchOptions;
/// let options = FetchOptions { offline: true, ..FetchOptions::default() };
/// assert_eq!(options.redirects_max, 10);
/// ```
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Most bytes of a page, after decompression.
    pub page_bytes_max: u64,
    /// Most bytes of anything else, after decompression.
    pub resource_bytes_max: u64,
    /// Most bytes that one fetcher reads, from wherever.
    pub total_bytes_max: u64,
    /// Most redirects that are followed for one resource.
    pub redirects_max: usize,
    /// How long finding and connecting to a server may take.
    pub connect_timeout: Duration,
    /// How long one fetch may take, with its redirects; a call's own deadline may be sooner.
    pub timeout: Duration,
    /// Most bytes that kept responses take in the store, by the size of their files. A response that
    /// would take more than an eighth of it is not kept.
    pub cache_bytes_max: u64,
    /// Never use the network: only files, `data:` and what is kept and fresh.
    pub offline: bool,
    /// Ask the server about everything, also about what is fresh.
    pub reload: bool,
    /// Use the proxy that `ALL_PROXY`, `HTTPS_PROXY` or `HTTP_PROXY` names, but for `NO_PROXY`.
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
