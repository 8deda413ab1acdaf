//! rkyv: a tree of `Box`es, serialised into one archive, which is mapped and used in place.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use rkyv::rancor::{Error, Source};
use rkyv::ser::Writer;
use rkyv::validation::ArchiveContext;
use rkyv::{Archive, Serialize};

use crate::building::{Built, resident_bytes};
use crate::opening::Opened;
use crate::tree::value_of;
use harness::Outcome;
use harness::children::us_since;

const FILE: &str = "nodes.rkyv";

/// Node with the fields and the size of [`super::tree::Node`].
#[derive(Archive, Serialize)]
#[rkyv(serialize_bounds(__S: Writer, __S::Error: Source))]
#[rkyv(bytecheck(bounds(__C: ArchiveContext, __C::Error: Source)))]
struct Node {
    key: u64,
    #[rkyv(omit_bounds)]
    left: Option<Box<Node>>,
    #[rkyv(omit_bounds)]
    right: Option<Box<Node>>,
    value: u64,
    pad: [u64; 4],
}
const _: () = assert!(size_of::<Node>() == 64);

fn subtree(first: u64, count: u64) -> Option<Box<Node>> {
    if count == 0 {
        return None;
    }
    let left = count / 2;
    let key = first + left;
    let node = Node { key, left: None, right: None, value: value_of(key), pad: [key; 4] };
    let mut node = Box::new(node);
    node.left = subtree(first, left);
    node.right = subtree(key + 1, count - left - 1);
    Some(node)
}

/// Builds the boxes (measured as building), then serialises and writes them (measured as durable).
pub fn build(folder: &Path, nodes: u64) -> Outcome<Built> {
    let before = resident_bytes()?;
    let start = Instant::now();
    let root = subtree(0, nodes).ok_or("no nodes")?;
    let build_us = us_since(start);
    let resident_bytes = resident_bytes()? - before;
    let bytes = rkyv::to_bytes::<Error>(&*root)?;
    let mut file = File::create_new(folder.join(FILE))?;
    std::io::Write::write_all(&mut file, &bytes)?;
    file.sync_all()?;
    Ok(Built { build_us, durable_us: us_since(start), resident_bytes })
}

fn walk(node: &ArchivedNode) -> u64 {
    let below = |child: &rkyv::option::ArchivedOption<rkyv::boxed::ArchivedBox<ArchivedNode>>| {
        child.as_ref().map_or(0, |child| walk(child))
    };
    let sum = node.value.to_native().wrapping_add(below(&node.left));
    sum.wrapping_add(below(&node.right))
}

/// Opens the archive. With `checked`, validates all of it first, as safe code must.
pub fn open(start: Instant, folder: &Path, checked: bool) -> Outcome<Opened> {
    let file = File::open(folder.join(FILE))?;
    let length = file.metadata()?.len() as usize;
    // SAFETY: creates a new mapping at an address that the kernel chooses. The file does not
    // change, and the mapping stays until the process ends.
    let bytes: &'static [u8] = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let fd = file.as_raw_fd();
        let place = libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, 0);
        if place == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        std::slice::from_raw_parts(place.cast(), length)
    };
    let root = match checked {
        true => rkyv::access::<ArchivedNode, Error>(bytes)?,
        // SAFETY: `build` wrote the archive, so it is valid.
        false => unsafe { rkyv::access_unchecked::<ArchivedNode>(bytes) },
    };
    Opened::measure(start, root.value.to_native(), || Ok(walk(root)))
}
