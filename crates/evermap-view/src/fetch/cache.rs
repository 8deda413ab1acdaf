//! The HTTP cache: which responses are kept, under what names, and for how long there is room.
//!
//! What is fetched is noted in memory and written by `keep`, all of it at one durable point: the
//! page is on the screen by then, and one flush serves all. Nothing here fails a fetch: what goes
//! wrong is told in words and the response is not kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evermap::{ObjectInfo, Store};
use tracing::debug;
use url::Url;

use super::kept::{self, Entry, KeptResponse, NewKept};

/// What the names of kept responses begin with.
const PREFIX: &str = "http-";

/// Hexadecimal digits after that.
const DIGITS: usize = 32;

/// No response larger than this part of the cache is kept: it would displace too many others.
const SHARE_MAX: u64 = 8;

/// The part of its room to which a cache that is too large is cut, in eighths: so that the next few
/// responses fit.
const CUT_TO_EIGHTHS: u64 = 7;

/// How often writing is tried while another process is in the way, and the first time in between; it
/// doubles each time, to 1.3 s together.
const TRIES: u32 = 9;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// What [`keep`](super::Fetcher::keep) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Responses written.
    pub written: usize,
    /// Old responses removed to make room.
    pub removed: usize,
    /// Why not all could be written, or room not be made.
    pub problem: Option<String>,
}

/// Responses in a store, and those on their way there.
pub(super) struct Cache {
    store: Store,
    bytes_max: u64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    entries: HashMap<String, Arc<Entry>>,
    made_room: bool,
    /// Why writing failed the last time.
    problem: Option<String>,
}

/// The name under which a response is kept: by its address without the fragment.
pub(super) fn key_of(url: &Url) -> String {
    let hash = blake3::hash(address_of(url).as_bytes()).to_hex();
    format!("{PREFIX}{}", &hash.as_str()[..DIGITS])
}

/// The address that a response is kept for.
pub(super) fn address_of(url: &Url) -> &str {
    let text = url.as_str();
    text.split_once('#').map_or(text, |(address, _)| address)
}

impl Cache {
    pub(super) fn new(store: Store, bytes_max: u64) -> Cache {
        Cache { store, bytes_max, waiting: Mutex::default() }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response kept for an address.
    ///
    /// # Errors
    /// Why it can't be used, if there is one.
    pub(super) fn find(&self, url: &Url) -> Result<Option<Arc<Entry>>, String> {
        let key = key_of(url);
        if let Some(entry) = self.waiting().entries.get(&key) {
            return Ok((entry.url == address_of(url)).then(|| Arc::clone(entry)));
        }
        Ok(kept::read(&self.store, &key, address_of(url))?.map(Arc::new))
    }

    /// Why what was noted before could not be written.
    pub(super) fn problem(&self) -> Option<String> {
        self.waiting().problem.clone()
    }

    /// Notes a response to be kept.
    pub(super) fn note(&self, url: &Url, entry: Arc<Entry>) {
        if entry.body_bytes() <= self.bytes_max / SHARE_MAX {
            self.waiting().entries.insert(key_of(url), entry);
        }
    }

    /// Writes what was noted, and makes room if there is too little; that once.
    pub(super) fn keep(&self) -> Kept {
        let (entries, make_room) = {
            let mut waiting = self.waiting();
            let entries = std::mem::take(&mut waiting.entries);
            let make_room = !entries.is_empty() && !waiting.made_room;
            waiting.made_room |= make_room;
            (entries, make_room)
        };
        let mut kept = Kept::default();
        if entries.is_empty() {
            return kept;
        }
        match self.write_patiently(&entries) {
            Ok(written) => kept.written = written,
            Err(e) => kept.problem = Some(e.to_string()),
        }
        if make_room {
            match self.make_room() {
                Ok(removed) => kept.removed = removed,
                Err(e) => kept.problem = kept.problem.or(Some(e.to_string())),
            }
        }
        self.waiting().problem.clone_from(&kept.problem);
        debug!(?kept, "the HTTP cache was written");
        kept
    }

    /// Another process may be replacing the same responses just now, for some milliseconds.
    fn write_patiently(&self, entries: &HashMap<String, Arc<Entry>>) -> evermap::Result<usize> {
        for n in 1..TRIES {
            match self.write(entries) {
                Err(evermap::Error::Busy { .. }) => {
                    std::thread::sleep(BETWEEN_TRIES * (1 << (n - 1)));
                }
                other => return other,
            }
        }
        self.write(entries)
    }

    fn write(&self, entries: &HashMap<String, Arc<Entry>>) -> evermap::Result<usize> {
        let mut batch = self.store.batch()?;
        for (name, entry) in entries {
            // A header that is no text, and a body that was damaged meanwhile, are not kept.
            let (Ok(policy), Some(body)) = (serde_json::to_vec(&entry.policy), entry.body()) else {
                continue;
            };
            let new = NewKept {
                stored_ns: entry.stored_ns,
                hash: entry.hash,
                url: &entry.url,
                policy: &policy,
                body: &body,
            };
            batch.replace::<KeptResponse, _>(name, new)?;
        }
        let written = batch.len();
        batch.commit()?;
        Ok(written)
    }

    /// Removes the oldest responses when all together take too much.
    fn make_room(&self) -> evermap::Result<usize> {
        let names = self.store.list()?;
        let ours = names.iter().filter(|name| is_key(name));
        // One that can't be opened counts as nothing: its next fetch replaces it.
        let mut kept: Vec<ObjectInfo> =
            ours.filter_map(|name| self.store.info(name).ok()).collect();
        let mut bytes: u64 = kept.iter().map(|info| info.file_bytes).sum();
        if bytes <= self.bytes_max {
            return Ok(0);
        }
        kept.sort_by_key(|info| info.created);
        let mut removed = 0;
        for oldest in kept {
            if bytes <= self.bytes_max / 8 * CUT_TO_EIGHTHS {
                break;
            }
            match self.store.remove(&oldest.name) {
                Ok(()) => removed += 1,
                // Another process was quicker.
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
