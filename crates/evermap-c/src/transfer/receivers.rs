//! Handle table for listening receivers. Receiving takes long, so it does not happen under the
//! table's lock: each receiver has its own lock, and a call that finds it taken fails with `BUSY`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use evermap_transfer::net::Listener;

use super::types::evermap_receiver;
use crate::abi::failure::{Failure, Result};
use crate::abi::status;
use crate::runtime::fork;
use crate::runtime::handles::closed;

/// Tag bits: a receiver handle is never a valid address, nor an object or store handle.
const MARK: u64 = 0x6 << 60;
/// Each receiver holds a file descriptor; a count this high means handles are leaking.
const OPEN_MAX: usize = 1 << 14;

/// A listening receiver.
pub struct Receiver {
    /// Address as text, for C.
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
    /// Locks the receiver for this thread.
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

/// Stores a receiver and returns its handle.
///
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

/// Returns the receiver of a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_receiver) -> Result<Arc<Receiver>> {
    fork::check()?;
    let handle = handle as u64;
    let receivers = lock();
    let receiver = receivers.open.as_ref().and_then(|open| open.get(&handle)).cloned();
    receiver.ok_or_else(|| closed(handle))
}

/// Closes a handle and stops listening.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
pub fn remove(handle: *const evermap_receiver) -> Result<()> {
    let receiver = find(handle)?;
    let _alone = receiver.take()?;
    let removed = lock().open.as_mut().and_then(|open| open.remove(&(handle as u64)));
    removed.map(drop).ok_or_else(|| closed(handle as u64))
}
