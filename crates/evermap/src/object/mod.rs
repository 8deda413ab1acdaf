//! Objects: superblock, regions, root, and the four ways to open one.
//!
//! A [`Draft`] is an object under construction that has no name yet. A [`Reader`] maps exactly one
//! commit for reading. A [`Writer`] maps the last commit privately and makes the next one. A
//! [`GuestWriter`] does the same for a guest that brings its own allocator. All of them work on a
//! file and a log given by path; the catalog maps names to files.
//!
//! Locks on bytes of the object file exclude each other's users, see `commit::locks`.

mod acquire;
mod code;
mod displacement;
mod draft;
mod foreign;
mod guest;
mod inherit;
mod map;
mod protector;
mod reader;
mod ready;
mod region_set;
mod superblock;
mod touched;
mod verification;
mod write_behind;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use crate::address::AddressSpace;
pub(crate) use crate::commit::locks::{CONTENT_BYTE, WRITER_BYTE, lock_byte};
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::storage::Storage;
pub(crate) use code::Code;
pub(crate) use displacement::Displacement;
pub(crate) use draft::{Draft, DraftOptions, GuestDraft, RootType, now_ns};
pub use foreign::ForeignPointer;
pub(crate) use guest::GuestWriter;
pub(crate) use inherit::MemoryInChild;
pub use map::{
    Chunk, ChunkContent, ClassUse, MapTotals, ObjectMap, PAGES_PER_CHUNK, PageUse, RegionMap,
};
pub use protector::{ActiveProtection, Protection};
pub(crate) use protector::{Opened, Protector};
pub(crate) use reader::{Reader, Writes};
pub(crate) use ready::{ReadyObject, ReadySnapshot};
pub(crate) use region_set::{Addresses, RegionPlan, lease_of};
pub(crate) use superblock::{
    Loaded, LogSource, check_arena, checksum as superblock_checksum, hex, peek,
    read as read_superblock,
};
pub(crate) use verification::BackgroundVerification;
pub(crate) use writer::Writer;

/// Identity that an object file must have; `None` accepts any id.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) store_uuid: Option<[u8; 16]>,
    pub(crate) object_uuid: Option<[u8; 16]>,
    pub(crate) kind: u32,
}

/// Context for opening and creating the objects of one store.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) addresses: Arc<dyn Addresses>,
    /// Position of the linear memory, for guest objects; `None` for native objects.
    pub(crate) guest: Option<Displacement>,
}

impl Environment {
    /// Offset between an object's addresses and this process's addresses.
    pub(crate) fn displacement(&self) -> Displacement {
        self.guest.unwrap_or_default()
    }

    /// Returns how an object grows by further regions.
    pub(crate) fn region_plan(&self) -> RegionPlan {
        if self.guest.is_some() { RegionPlan::GUEST } else { RegionPlan::NATIVE }
    }

    /// Fails if the object is native and the environment is for guests, or the reverse.
    pub(crate) fn check_kind(&self, paths: &ObjectPaths, superblock: &Superblock) -> Result<()> {
        if superblock.is_guest() == self.guest.is_some() {
            return Ok(());
        }
        Err(Error::OtherKind {
            what: paths.display_name.clone(),
            found: if superblock.is_guest() { "a guest object" } else { "a native object" },
            remedy: match superblock.is_guest() {
                true => "open it in a sandbox",
                false => "open it with Store::read or Store::write, outside of sandboxes",
            },
        })
    }
}

/// Paths of an object's two files, and the identity it must have.
#[derive(Clone, Debug)]
pub(crate) struct ObjectPaths {
    pub(crate) path: PathBuf,
    pub(crate) log_path: PathBuf,
    pub(crate) identity: Identity,
    /// The object as the user knows it, for messages.
    pub(crate) display_name: String,
}
