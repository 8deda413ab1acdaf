//! Decides which responses the HTTP cache stores, under which names, and within which bound.
//!
//! Fetched responses are collected in memory. `flush` writes all of them in one durable batch,
//! after the page is on the screen. A failure here never fails a fetch: it is reported as text, and
//! the response is not stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evermap::{ObjectInfo, Store};
use tracing::debug;
use url::Url;

use super::cache_entry::{self, CachedResponse, Entry, NewResponse};

/// Prefix of the names of cached responses.
const PREFIX: &str = "http-";

/// Number of hexadecimal digits after the prefix.
const DIGITS: usize = 32;

/// A response larger than this fraction of the cache is not stored, because it would displace too
/// many others.
const FRACTION_MAX: u64 = 8;

/// A cache that exceeds its bound is cut to this many eighths of it, so that the next few responses
/// fit.
const PRUNED_EIGHTHS: u64 = 7;

/// Number of attempts to write while another process is writing, and the first wait between two
/// attempts. The wait doubles each time, to 1.3 s in all.
const ATTEMPTS: u32 = 9;
const RETRY_WAIT: Duration = Duration::from_millis(5);

/// Result of [`flush_cache`](super::Fetcher::flush_cache).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFlush {
    /// Number of responses written.
    pub written: usize,
    /// Number of old responses removed to make room.
    pub removed: usize,
    /// Reason why some responses could not be written or removed.
    pub problem: Option<String>,
}

/// Cached responses in a store, and responses to be written there.
pub(super) struct Cache {
    store: Store,
    bytes_max: u64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    entries: HashMap<String, Arc<Entry>>,
    pruned: bool,
    /// Reason why the last write failed.
    problem: Option<String>,
}

/// Returns the name under which the response of this address is stored. Ignores the fragment.
pub(super) fn key_of(url: &Url) -> String {
    let hash = blake3::hash(address_of(url).as_bytes()).to_hex();
    format!("{PREFIX}{}", &hash.as_str()[..DIGITS])
}

/// Returns the address without its fragment.
pub(super) fn address_of(url: &Url) -> &str {
    let text = url.as_str();
    text.split_once('#').map_or(text, |(address, _)| address)
}

impl Cache {
    pub(super) fn new(store: Store, bytes_max: u64) -> Cache {
        Cache { store, bytes_max, pending: Mutex::default() }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached response of an address.
    ///
    /// # Errors
    /// Fails if there is one that can't be used. The error is the reason.
    pub(super) fn find(&self, url: &Url) -> Result<Option<Arc<Entry>>, String> {
        let key = key_of(url);
        if let Some(entry) = self.pending().entries.get(&key) {
            return Ok((entry.url == address_of(url)).then(|| Arc::clone(entry)));
        }
        Ok(cache_entry::read(&self.store, &key, address_of(url))?.map(Arc::new))
    }

    /// Returns the reason why the last write failed.
    pub(super) fn problem(&self) -> Option<String> {
        self.pending().problem.clone()
    }

    /// Adds a response to be written by `flush`, unless it is too large.
    pub(super) fn add(&self, url: &Url, entry: Arc<Entry>) {
        if entry.body_bytes() <= self.bytes_max / FRACTION_MAX {
            self.pending().entries.insert(key_of(url), entry);
        }
    }

    /// Writes the collected responses. The first call that writes also removes old responses if the
    /// cache is too large.
    pub(super) fn flush(&self) -> CacheFlush {
        let (entries, prune) = {
            let mut pending = self.pending();
            let entries = std::mem::take(&mut pending.entries);
            let prune = !entries.is_empty() && !pending.pruned;
            pending.pruned |= prune;
            (entries, prune)
        };
        let mut flushed = CacheFlush::default();
        if entries.is_empty() {
            return flushed;
        }
        match self.write_with_retries(&entries) {
            Ok(written) => flushed.written = written,
            Err(e) => flushed.problem = Some(e.to_string()),
        }
        if prune {
            match self.prune() {
                Ok(removed) => flushed.removed = removed,
                Err(e) => flushed.problem = flushed.problem.or(Some(e.to_string())),
            }
        }
        self.pending().problem.clone_from(&flushed.problem);
        debug!(?flushed, "the HTTP cache was written");
        flushed
    }

    /// Retries for a while, because another process may be replacing the same responses.
    fn write_with_retries(&self, entries: &HashMap<String, Arc<Entry>>) -> evermap::Result<usize> {
        for n in 1..ATTEMPTS {
            match self.write(entries) {
                Err(evermap::Error::Busy { .. }) => {
                    std::thread::sleep(RETRY_WAIT * (1 << (n - 1)));
                }
                other => return other,
            }
        }
        self.write(entries)
    }

    fn write(&self, entries: &HashMap<String, Arc<Entry>>) -> evermap::Result<usize> {
        let mut batch = self.store.batch()?;
        for (name, entry) in entries {
            // Skip policies that can't be serialized and bodies that have become damaged.
            let (Ok(policy), Some(body)) = (serde_json::to_vec(&entry.policy), entry.body()) else {
                continue;
            };
            let new = NewResponse {
                stored_ns: entry.stored_ns,
                hash: entry.hash,
                url: &entry.url,
                policy: &policy,
                body: &body,
            };
            batch.replace::<CachedResponse, _>(name, new)?;
        }
        let written = batch.len();
        batch.commit()?;
        Ok(written)
    }

    /// Removes the oldest responses if all together exceed the bound.
    fn prune(&self) -> evermap::Result<usize> {
        let names = self.store.list()?;
        let cached = names.iter().filter(|name| is_key(name));
        // An entry that can't be opened is not counted. Its next fetch replaces it.
        let mut entries: Vec<ObjectInfo> =
            cached.filter_map(|name| self.store.info(name).ok()).collect();
        let mut bytes: u64 = entries.iter().map(|info| info.file_bytes).sum();
        if bytes <= self.bytes_max {
            return Ok(0);
        }
        entries.sort_by_key(|info| info.created);
        let mut removed = 0;
        for oldest in entries {
            if bytes <= self.bytes_max / 8 * PRUNED_EIGHTHS {
                break;
            }
            match self.store.remove(&oldest.name) {
                Ok(()) => removed += 1,
                // Another process has removed it.
                Err(evermap::Error::NotFound { .. }) => {}
                Err(e) => return Err(e),
            }
            bytes -= oldest.file_bytes;
        }
        Ok(removed)
    }
}

fn is_key(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}
