//! Fetches style sheets, images and fonts that a page requests while it is laid out.
//!
//! The engine passes a request and a handler and continues. Local resources are answered at once,
//! in order. A pool of threads answers the others. The layout waits for all of them until the
//! deadline. A resource that has not arrived by then is answered with no bytes, like a missing one,
//! and recorded as late.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use blitz_traits::net::{Bytes, NetHandler, NetProvider, Request};
use url::Url;

/// Maximum number of fetching threads.
const THREADS_MAX: usize = 8;
/// Maximum number of requests of a page.
const REQUESTS_MAX: usize = 4096;

/// Fetches a resource, or records why it is missing.
pub(crate) trait Fetch: Send + Sync + 'static {
    /// Returns true if `url` can be read without waiting for a server.
    fn is_local(&self, url: &Url) -> bool;
    /// Fetches the bytes. Returns empty bytes on failure.
    fn get(&self, url: &Url, deadline: Instant) -> Bytes;
    /// Records that the page is made without `url`.
    fn skip(&self, url: &Url, why: Skipped);
}

/// Reasons for not waiting for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skipped {
    Late,
    /// The page requested more than [`REQUESTS_MAX`].
    TooMany,
}

/// An unanswered request. The thread that takes the handler answers it.
struct Pending {
    url: Url,
    handler: Mutex<Option<Box<dyn NetHandler>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Pending>>,
    open: Vec<Arc<Pending>>,
    requests: usize,
    threads: usize,
}

/// Answers the engine's requests.
#[derive(Clone)]
pub(crate) struct Resources {
    shared: Arc<Shared>,
}

struct Shared {
    get: Box<dyn Fetch>,
    deadline: Instant,
    state: Mutex<State>,
    answered: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked in a handler has not left the lists half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resources {
    /// Creates a provider that waits for resources until `deadline`.
    pub(crate) fn new(get: impl Fetch, deadline: Instant) -> Resources {
        Resources {
            shared: Arc::new(Shared {
                get: Box::new(get),
                deadline,
                state: Mutex::default(),
                answered: Condvar::new(),
            }),
        }
    }

    /// Returns the number of requests so far, and how many are unanswered.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.requests, state.open.len())
    }

    /// Waits until all requests are answered or the deadline has passed, then answers the rest with
    /// no bytes.
    pub(crate) fn wait(&self) {
        let mut state = self.shared.lock();
        while !state.open.is_empty() {
            let left = self.shared.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.answered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.queue.clear();
        let late = std::mem::take(&mut state.open);
        drop(state);
        for open in late {
            if answer(&open, Bytes::new()) {
                self.shared.get.skip(&open.url, Skipped::Late);
            }
        }
    }
}

impl NetProvider for Resources {
    fn fetch(&self, _document: usize, request: Request, handler: Box<dyn NetHandler>) {
        let mut state = self.shared.lock();
        state.requests += 1;
        if state.requests > REQUESTS_MAX || Instant::now() >= self.shared.deadline {
            let why = match state.requests > REQUESTS_MAX {
                true => Skipped::TooMany,
                false => Skipped::Late,
            };
            drop(state);
            self.shared.get.skip(&request.url, why);
            return handler.bytes(request.url.to_string(), Bytes::new());
        }
        if self.shared.get.is_local(&request.url) {
            drop(state);
            let bytes = self.shared.get.get(&request.url, self.shared.deadline);
            return handler.bytes(request.url.to_string(), bytes);
        }
        let open = Arc::new(Pending { url: request.url, handler: Mutex::new(Some(handler)) });
        state.open.push(open.clone());
        state.queue.push_back(open);
        if state.threads < THREADS_MAX {
            state.threads += 1;
            let shared = self.shared.clone();
            let spawned = std::thread::Builder::new()
                .name("resources".to_string())
                .spawn(move || serve(&shared));
            if spawned.is_err() {
                state.threads -= 1;
            }
        }
    }
}

/// Answers requests until the queue is empty.
fn serve(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let Some(open) = state.queue.pop_front() else {
            state.threads -= 1;
            return;
        };
        drop(state);
        let bytes = shared.get.get(&open.url, shared.deadline);
        answer(&open, bytes);
        let mut state = shared.lock();
        state.open.retain(|other| !Arc::ptr_eq(other, &open));
        drop(state);
        shared.answered.notify_all();
    }
}

/// Passes the bytes to the handler, unless another thread has done so. Returns true if it did.
fn answer(open: &Pending, bytes: Bytes) -> bool {
    let handler = open.handler.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(handler) = handler else { return false };
    handler.bytes(open.url.to_string(), bytes);
    true
}
