//! Objects: superblock, regions, root, and the three ways to have one open.
//!
//! A [`Draft`] is an object that is being made and has no name yet; a [`Reader`] maps exactly one
//! commit for reading; a [`Writer`] maps the last commit privately and makes the next one. All
//! three work on a file and a log given by path: names are the catalog's business.
//!
//! Locks, on bytes of the object file: [`WRITER_BYTE`] is held by whoever changes the object or
//! its file, [`CONTENT_BYTE`] shared by readers and exclusively while the file's pages change.

mod draft;
mod reader;
mod superblock;
mod territory;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address::AddressSpace;
use crate::error::{Error, Result};
use crate::storage::{File, LockKind, Storage};
pub(crate) use draft::{Draft, DraftOptions, RootType, now_ns};
pub(crate) use reader::Reader;
pub(crate) use superblock::{LogSource, hex, peek};
pub(crate) use territory::{Addresses, lease_of};
pub(crate) use writer::Writer;

/// Held exclusively by the one who changes the object.
pub(crate) const WRITER_BYTE: u64 = 0;
/// Held shared by readers.
pub(crate) const CONTENT_BYTE: u64 = 1;

/// What an object file must say of itself; `None` where anything goes.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) store_uuid: Option<[u8; 16]>,
    pub(crate) object_uuid: Option<[u8; 16]>,
    pub(crate) kind: u32,
}

/// What the object layer needs to open or make objects of one store.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) addresses: Arc<dyn Addresses>,
}

/// Where an object's two files are and who it must be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) log_path: PathBuf,
    pub(crate) identity: Identity,
    /// The object as the user knows it, for messages.
    pub(crate) called: String,
}

/// Locks one byte, waiting up to `patience` for other holders.
pub(crate) fn lock_byte(
    file: &dyn File,
    kind: LockKind,
    byte: u64,
    patience: Duration,
    called: &str,
) -> Result<()> {
    let since = Instant::now();
    let mut pause = Duration::from_micros(50);
    while !file.try_lock(kind, byte, 1)? {
        if since.elapsed() >= patience {
            let holder = match (kind, byte) {
                (LockKind::Exclusive, CONTENT_BYTE) => "another session or process is reading it",
                _ => "another session or process is writing it",
            };
            return Err(Error::Busy { what: called.to_string(), holder: holder.to_string() });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Ok(())
}
