//! What a page asks for while it is laid out: style sheets, images, fonts.
//!
//! The engine hands over a request and a handler and goes on. Local resources are answered at once, in order; others by
//! threads of their own. A page waits for all of them, but not for ever: what has not come in time is answered with
//! nothing, which is what a missing resource looks like, and noted as late.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use blitz_traits::net::{Bytes, NetHandler, NetProvider, Request};
use url::Url;

/// Threads that fetch at the same time.
const THREADS_MAX: usize = 8;
/// More is not asked for: a page that wants a hundred thousand images is not shown faster for them.
const REQUESTS_MAX: usize = 4096;

/// Gets the bytes of a resource, or notes why there are none.
pub(crate) trait Get: Send + Sync + 'static {
    /// Whether `url` is answered without waiting for anybody.
    fn is_local(&self, url: &Url) -> bool;
    /// The bytes; empty when there are none.
    fn get(&self, url: &Url, deadline: Instant) -> Bytes;
    /// The page is made without `url`, and why.
    fn gave_up(&self, url: &Url, why: GaveUp);
}

/// Why a resource was not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GaveUp {
    Late,
    /// The page asked for more than [`REQUESTS_MAX`].
    TooMany,
}

/// A request that is not answered yet. Whoever takes the handler answers it.
struct Open {
    url: Url,
    handler: Mutex<Option<Box<dyn NetHandler>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Open>>,
    open: Vec<Arc<Open>>,
    requests: usize,
    threads: usize,
}

/// Answers the engine's requests.
#[derive(Clone)]
pub(crate) struct Resources {
    shared: Arc<Shared>,
}

struct Shared {
    get: Box<dyn Get>,
    deadline: Instant,
    state: Mutex<State>,
    answered: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked in a handler leaves the lists as they were.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resources {
    /// Resources that are waited for until `deadline`.
    pub(crate) fn new(get: impl Get, deadline: Instant) -> Resources {
        Resources {
            shared: Arc::new(Shared {
                get: Box::new(get),
                deadline,
                state: Mutex::default(),
                answered: Condvar::new(),
            }),
        }
    }

    /// How many requests there were so far, and how many of them wait for an answer.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.requests, state.open.len())
    }

    /// Waits until everything is answered or the deadline is over; what is open then is answered with nothing.
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
                self.shared.get.gave_up(&open.url, GaveUp::Late);
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
                true => GaveUp::TooMany,
                false => GaveUp::Late,
            };
            drop(state);
            self.shared.get.gave_up(&request.url, why);
            return handler.bytes(request.url.to_string(), Bytes::new());
        }
        if self.shared.get.is_local(&request.url) {
            drop(state);
            let bytes = self.shared.get.get(&request.url, self.shared.deadline);
            return handler.bytes(request.url.to_string(), bytes);
        }
        let open = Arc::new(Open { url: request.url, handler: Mutex::new(Some(handler)) });
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

/// Answers requests until none is waiting.
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

/// Hands the bytes over, unless somebody did before.
fn answer(open: &Open, bytes: Bytes) -> bool {
    let handler = open.handler.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(handler) = handler else { return false };
    handler.bytes(open.url.to_string(), bytes);
    true
}
