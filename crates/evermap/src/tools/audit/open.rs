//! Opens an object by name as an image, together with the address ranges of its store.
//!
//! The catalog stays locked until the object's file is open, so that name and file match. A name
//! whose file is missing is damage, unless the object was removed or replaced since.

use std::path::Path;

use crate::catalog::{Found, check_name};
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::layout::{BUILDING, CATALOG, OBJECTS};
use crate::object::lease_of;
use crate::tools::check::{CheckOptions, Scan, catalog_image};
use crate::tools::image::Image;
use crate::tools::listing::{self, Listing};
use crate::tools::one_store::in_one_store;
use crate::tools::report::Findings;

/// Image of an object's last commit, and the address ranges of its store.
pub(in crate::tools) struct Opened {
    pub(in crate::tools) image: Image,
    pub(in crate::tools) neighbours: Neighbours,
}

/// Address ranges of a store and their owners.
#[derive(Clone, Debug, Default)]
pub(in crate::tools) struct Neighbours {
    /// Base, end and owner's name of all objects' ranges, including the catalog's. Sorted.
    pub(in crate::tools) objects: Vec<(u64, u64, String)>,
    /// Base and end of each arena.
    pub(in crate::tools) arenas: Vec<(u64, u64)>,
}

impl Neighbours {
    pub(in crate::tools) fn of(listing: &Listing, catalog: &Image) -> Neighbours {
        let named = listing.objects.iter().flat_map(|(name, found)| {
            found.leases.iter().map(|l| (l.base, l.base.saturating_add(l.bytes), name.clone()))
        });
        let own = catalog.superblock().regions().iter().map(lease_of);
        let own = own.map(|(base, bytes)| (base, base + bytes, "the catalog".to_string()));
        let mut objects: Vec<(u64, u64, String)> = named.chain(own).collect();
        objects.sort_unstable();
        let arenas =
            listing.arenas.iter().map(|a| (a.base, a.base.saturating_add(a.length))).collect();
        Neighbours { objects, arenas }
    }

    /// Returns the index in [`objects`](Neighbours::objects) of the range that contains an address.
    pub(in crate::tools) fn holder(&self, address: u64) -> Option<usize> {
        let at = self.objects.partition_point(|(base, ..)| *base <= address).checked_sub(1)?;
        (address < self.objects[at].1).then_some(at)
    }

    pub(in crate::tools) fn is_in_arena(&self, address: u64) -> bool {
        self.arenas.iter().any(|(base, end)| (*base..*end).contains(&address))
    }
}

/// Reads the catalog's contents.
///
/// # Errors
/// `Damaged` if they are inconsistent.
pub(in crate::tools) fn read_listing(image: &Image) -> Result<Listing> {
    let mut findings = Findings::new(CATALOG.into(), None);
    let listing = listing::read(image, &mut findings)?;
    match findings.into_list().into_iter().next() {
        None => Ok(listing),
        Some(finding) => Err(Error::Damaged {
            path: image.path().to_path_buf(),
            what: "the catalog",
            found: format!("{}: {}", finding.what, finding.found),
            expected: finding.expected,
        }),
    }
}

/// Opens an object's last commit.
///
/// The catalog's image keeps the catalog locked until the object is open, so the object is neither
/// removed nor replaced between the lookup of its name and the opening of its file.
pub(in crate::tools) fn open(
    directory: &Path,
    name: &str,
    options: &CheckOptions,
) -> Result<Opened> {
    check_name(name)?;
    in_one_store(directory, options, |_| true, |options| open_in(directory, name, options))
}

fn open_in(directory: &Path, name: &str, options: &CheckOptions) -> Result<Opened> {
    let scan = Scan::new(directory, options)?;
    let catalog = catalog_image(&*options.storage, directory)?;
    let listing = read_listing(&catalog)?;
    let Some((_, found)) = listing.objects.iter().find(|(known, _)| known == name) else {
        let (store, object) = (directory.to_path_buf(), name.to_string());
        return Err(Error::NotFound { store, object });
    };
    let image = open_found(&scan, &listing, (name, found))?;
    let neighbours = Neighbours::of(&listing, &catalog);
    Ok(Opened { image, neighbours })
}

/// Refuses a guest object for a tool that follows pointers. Its pointers are addresses of a guest's
/// linear memory, of another width.
pub(in crate::tools) fn refuse_guest(
    superblock: &Superblock,
    name: &str,
    remedy: &'static str,
) -> Result<()> {
    if !superblock.is_guest() {
        return Ok(());
    }
    Err(Error::OtherKind { what: format!("object `{name}`"), found: "a guest object", remedy })
}

/// Value of `what` in the error for a missing object file.
const FILE_OF_OBJECT: &str = "the object's file";

/// Returns true if the error says that an object's file is missing.
pub(in crate::tools) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Damaged { what: FILE_OF_OBJECT, .. })
}

/// Opens an object that the catalog names. Its file may still be in `building`, or be moved from
/// there to `objects` between two attempts.
pub(in crate::tools) fn open_found(
    scan: &Scan<'_>,
    listing: &Listing,
    (name, found): (&str, &Found),
) -> Result<Image> {
    let paths = |folder| {
        let entry = Some((name, found));
        scan.subject(folder, found.uuid, entry, Some(listing.store_uuid)).paths
    };
    let open = |folder| Image::open(&*scan.options.storage, &paths(folder));
    let or_in = |folder| move |e: Error| if e.is_missing_file() { open(folder) } else { Err(e) };
    match open(OBJECTS).or_else(or_in(BUILDING)).or_else(or_in(OBJECTS)) {
        Err(e) if e.is_missing_file() => Err(Error::Damaged {
            path: paths(OBJECTS).path,
            what: FILE_OF_OBJECT,
            found: "no such file".to_string(),
            expected: format!("the file of object `{name}`"),
        }),
        other => other,
    }
}
