//! Objects: superblock, regions, root, and the four ways to have one open.
//!
//! A [`Draft`] is an object that is being made and has no name yet; a [`Reader`] maps exactly one
//! commit for reading; a [`Writer`] maps the last commit privately and makes the next one, and so
//! does a [`GuestWriter`], for a guest that has its allocator itself. All work on a file and a log given
//! by path: names are the catalog's business.
//!
//! Who may do what meanwhile is decided by locks on bytes of the object file, see `commit::locks`.

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
    Loaded, LogSource, checksum as superblock_checksum, hex, peek, read as read_superblock,
};
pub(crate) use verification::BackgroundVerification;
pub(crate) use writer::Writer;

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
    /// For guest objects: where the linear memory is. None for objects at their own addresses.
    pub(crate) guest: Option<Displacement>,
}

impl Environment {
    /// Where objects lie in this process.
    pub(crate) fn displacement(&self) -> Displacement {
        self.guest.unwrap_or_default()
    }

    /// How objects get further regions.
    pub(crate) fn region_plan(&self) -> RegionPlan {
        if self.guest.is_some() { RegionPlan::GUEST } else { RegionPlan::NATIVE }
    }

    /// Is the object one for this environment, native or a guest's?
    pub(crate) fn check_kind(&self, place: &Place, superblock: &Superblock) -> Result<()> {
        if superblock.is_guest() == self.guest.is_some() {
            return Ok(());
        }
        Err(Error::OtherKind {
            what: place.display_name.clone(),
            found: if superblock.is_guest() { "a guest object" } else { "a native object" },
            remedy: match superblock.is_guest() {
                true => "open it in a sandbox",
                false => "open it with Store::read or Store::write, outside of sandboxes",
            },
        })
    }
}

/// Where an object's two files are and who it must be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) log_path: PathBuf,
    pub(crate) identity: Identity,
    /// The object as the user knows it, for messages.
    pub(crate) display_name: String,
}
