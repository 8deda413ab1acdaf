//! Receivers that listen: numbers for C, as those of stores. Receiving takes long, so it does not happen under the table's
//! lock: each receiver has a lock of its own, and who finds it taken is told so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use evermap_transfer::net::Listener;

use super::types::evermap_receiver;
use crate::failure::{Failure, Result};
use crate::handles::closed;
use crate::{fork, status};

/// Makes a handle of a receiver no address that can be used, and no handle of an object or a store.
const MARK: u64 = 0x6 << 60;
/// Each has a descriptor, and of those a process has fewer: more are not closed by somebody.
const OPEN_MAX: usize = 1 << 14;

/// One that listens.
pub struct Receiver {
    /// As text, for C.
    pub address: String,
    listening: Mutex<Listener>,
}

struct Receivers {
    open: Option<HashMap<u64, Arc<Receiver>>>,
    opened: u64,
}

static RECEIVERS: Mutex<Receivers> = Mutex::new(Receivers { open: None, opened: 0 });

fn lock() -> MutexGuard<'static, Receivers> {
    RECEIVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver {
    /// For this thread alone.
    ///
    /// # Errors
    /// `BUSY`.
    pub fn take(&self) -> Result<MutexGuard<'_, Listener>> {
        match self.listening.try_lock() {
            Ok(listening) => Ok(listening),
            Err(TryLockError::Poisoned(left)) => Ok(left.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let message = format!(
                    "another thread receives at {}: wait until it is done, or make its `cancelled` not zero",
                    self.address
                );
                Err(Failure::new(status::BUSY, message))
            }
        }
    }
}

/// # Errors
/// `TOO_MANY_OPEN`.
pub fn insert(listening: Listener) -> Result<*mut evermap_receiver> {
    let mut receivers = lock();
    let number = receivers.opened;
    let open = receivers.open.get_or_insert_default();
    if open.len() >= OPEN_MAX {
        let message = format!("{OPEN_MAX} receivers are open; close some");
        return Err(Failure::new(status::TOO_MANY_OPEN, message));
    }
    let handle = MARK | number << 4;
    let address = listening.address().to_string();
    open.insert(handle, Arc::new(Receiver { address, listening: Mutex::new(listening) }));
    receivers.opened += 1;
    Ok(handle as *mut evermap_receiver)
}

/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_receiver) -> Result<Arc<Receiver>> {
    fork::check()?;
    let handle = handle as u64;
    let receivers = lock();
    let receiver = receivers.open.as_ref().and_then(|open| open.get(&handle)).cloned();
    receiver.ok_or_else(|| closed(handle))
}

/// Ends a handle, and the listening.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
pub fn remove(handle: *const evermap_receiver) -> Result<()> {
    let receiver = find(handle)?;
    let _alone = receiver.take()?;
    let removed = lock().open.as_mut().and_then(|open| open.remove(&(handle as u64)));
    removed.map(drop).ok_or_else(|| closed(handle as u64))
}
