//! Checking a store: its catalog, every object file, and one against the other.
//!
//! Reads and locks as a reader does, so it works while the store is in use, and on a read-only
//! mount; what it sees of an object is its last commit. Between two looks the store may move on:
//! whatever only a comparison of two files says is looked at twice before it is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Arena, Catalog, Found, Lease};
use crate::error::{Error, Result};
use crate::format::{KIND_CATALOG, KIND_OBJECT, PAGE_BYTES};
use crate::layout::{ADDRESSES, BUILDING, CATALOG, CATALOG_LOG, NEW_CATALOG, OBJECTS};
use crate::object::{Identity, ObjectPaths, hex, lease_of};
use crate::persist::type_description;
use crate::storage::{Disk, OpenMode, Storage};

use super::image::Image;
use super::listing::{self, Listing};
use super::object::{self, Subject};
use super::one_store::in_one_store;
use super::report::{Findings, ObjectReport, Repair, Report, Severity, Unchecked};
use super::{checksums, files, heap, repair};

/// Told how many bytes are done, and of how many.
type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What a check is to do.
///
/// ```
/// let options = evermap::tools::CheckOptions::new().repair(true);
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("store");
/// # drop(evermap::Store::create_new(&path)?);
/// let report = evermap::tools::check(&path, &options)?;
/// assert!(report.is_clean() && report.actions.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CheckOptions {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) timeout: Duration,
    pub(super) repair: bool,
    pub(super) accept_data: bool,
    pub(super) quarantine: bool,
    pub(super) is_cache: fn(&str) -> bool,
    pub(super) progress: Option<Progress>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            storage: Arc::new(Disk::default()),
            timeout: Duration::from_secs(10),
            repair: false,
            accept_data: false,
            quarantine: false,
            is_cache: |_| false,
            progress: None,
        }
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CheckOptions")
            .field("repair", &self.repair)
            .field("accept_data", &self.accept_data)
            .field("quarantine", &self.quarantine)
            .finish_non_exhaustive()
    }
}

impl CheckOptions {
    /// Look, and change nothing.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Look at files of another disk than the real one.
    #[cfg(test)]
    pub(crate) fn on(mut self, storage: Arc<dyn Storage>) -> CheckOptions {
        self.storage = storage;
        self
    }

    /// Repair what can be repaired without losing anything. Every file that is changed is copied,
    /// and every file that is taken away is moved, into `repair-<time>` in the store's directory.
    pub fn repair(mut self, repair: bool) -> CheckOptions {
        self.repair = repair;
        self
    }

    /// With [`repair`](CheckOptions::repair): where a page and its checksum disagree, declare what
    /// the page holds right. For somebody who has looked at the data: a check cannot know.
    pub fn accept_data(mut self, accept: bool) -> CheckOptions {
        self.accept_data = accept;
        self
    }

    /// With [`repair`](CheckOptions::repair): take damaged objects out of the store. Their files
    /// are kept with the copies.
    pub fn quarantine(mut self, quarantine: bool) -> CheckOptions {
        self.quarantine = quarantine;
        self
    }

    /// Says by its name whether an object is a cache, which its program makes anew. With
    /// [`repair`](CheckOptions::repair), a damaged one is taken out of the store, and its file is kept with
    /// the copies. Default: none is.
    pub fn caches(mut self, is_cache: fn(&str) -> bool) -> CheckOptions {
        self.is_cache = is_cache;
        self
    }

    /// How long to wait for an object that is locked against readers. Default: ten seconds.
    pub fn busy_timeout(mut self, timeout: Duration) -> CheckOptions {
        self.timeout = timeout;
        self
    }

    /// Calls `progress` now and then with the bytes that were read and the bytes there are.
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> CheckOptions {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Checks the store in a directory, and repairs it if `options` say so.
///
/// Nothing is mapped and no pointer is followed that was not looked up first; damage of any kind
/// becomes a [`Finding`](super::Finding), what cannot be looked at an [`Unchecked`]. Reads all of
/// every object that keeps page checksums, and the metadata of the others. Of an object that
/// somebody is writing, the last commit is checked.
///
/// A repair must have the store to itself as far as what it changes goes: an object that is in use
/// is left as it is. It opens the store, so the store's addresses must be free in this process, or
/// the store be open here already.
///
/// # Errors
/// `NoStore`, and what keeps a repair from being made (`DiskFull`, `NotPermitted`, `Busy`).
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("store");
/// let store = evermap::Store::create_new(&path)?;
/// store.create::<u64, _>("answer", 42)?;
/// let report = evermap::tools::check(&path, &evermap::tools::CheckOptions::new())?;
/// assert!(report.is_clean(), "{:?}", report.findings);
/// assert_eq!(report.objects.len(), 2); // the catalog and the object
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(directory: impl AsRef<Path>, options: &CheckOptions) -> Result<Report> {
    let directory = directory.as_ref();
    // A repair that has begun to change a store is not begun again with another.
    let is_good = |report: &Report| {
        options.repair || (report.findings.is_empty() && report.unchecked.is_empty())
    };
    in_one_store(directory, options, is_good, |options| {
        let result = Scan::new(directory, options)?.run()?;
        match options.repair {
            true => repair::run(directory, options, result),
            false => Ok(result.report),
        }
    })
}

/// What a look at a store gave: the report, and what a repair builds on.
pub(super) struct ScanResult {
    pub(super) report: Report,
    /// What could be read of the catalog.
    pub(super) listing: Option<Listing>,
}

/// One look at a store.
pub(super) struct Scan<'a> {
    pub(super) directory: &'a Path,
    pub(super) options: &'a CheckOptions,
    total_bytes: u64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(directory: &'a Path, options: &'a CheckOptions) -> Result<Scan<'a>> {
        let no_store = |why: String| Error::NoStore { path: directory.to_path_buf(), why };
        let storage = &options.storage;
        storage.directory_identity(directory).map_err(|e| match e {
            Error::Io { source, .. } => no_store(source.to_string()),
            other => other,
        })?;
        let names = storage.list(directory)?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        if !has(CATALOG) && !has(ADDRESSES) && !has(OBJECTS) {
            return Err(no_store("the directory has neither a catalog nor objects".to_string()));
        }
        let mut scan = Scan { directory, options, total_bytes: 0 };
        if options.progress.is_some() {
            scan.total_bytes = scan.count_bytes();
        }
        Ok(scan)
    }

    /// Bytes of all object files, if somebody wants to be told how far a tool has come.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn count_bytes(&self) -> u64 {
        let length = |path: PathBuf| {
            let file = self.options.storage.open(&path, OpenMode::Read).ok()?;
            file.length().ok()
        };
        let folder = self.directory.join(OBJECTS);
        let names = self.options.storage.list(&folder).unwrap_or_default();
        let objects = names.iter().filter(|name| !name.ends_with(".log"));
        objects.filter_map(|name| length(folder.join(name))).sum()
    }

    /// Everything there is to look at.
    pub(super) fn run(&self) -> Result<ScanResult> {
        let mut report = Report { directory: self.directory.to_path_buf(), ..Report::default() };
        let (listing, trusted) = self.check_catalog(&mut report);
        let known = listing.as_ref().filter(|_| trusted);
        let mut owned: Vec<(Lease, String)> = Vec::new();
        let mut done_bytes = 0;
        let objects = known.iter().flat_map(|listing| &listing.objects);
        for (name, found) in objects {
            let scanned = self.check_object(&mut report, known, (name, found), done_bytes);
            done_bytes += report.objects.last().map_or(0, |last| last.file_bytes);
            owned.extend(scanned.into_iter().map(|lease| (lease, format!("object `{name}`"))));
        }
        if let Some(listing) = known {
            self.check_overlaps(&mut report, owned);
            files::check(self, &mut report, listing)?;
        } else {
            self.check_files_without_catalog(&mut report)?;
        }
        Ok(ScanResult { report, listing })
    }

    /// Checks the catalog. Gives what could be read of it, and whether it can be relied on.
    fn check_catalog(&self, report: &mut Report) -> (Option<Listing>, bool) {
        let remedy = "`--repair` makes it anew from the object files";
        let mut findings =
            Findings::new(CATALOG.into(), None).with_repair(remedy, Repair::RebuildCatalog);
        let mut listing = None;
        let scanned = self.read_catalog(report, &mut findings, &mut listing);
        let mut trusted = scanned.is_ok();
        if let Err(error) = scanned {
            let error = match error.is_missing_file() {
                true if self.was_never_finished() => {
                    findings.add(
                        Severity::Leftover,
                        "the store",
                        "what a process that was killed had made of it",
                        "a store, or nothing",
                        (
                            "the next one that makes a store here goes on, or `--repair` now",
                            Some(Repair::RebuildCatalog),
                        ),
                    );
                    None
                }
                true => {
                    findings.damage("the catalog", "no such file", "a catalog");
                    None
                }
                false => findings.take_error(error),
            };
            if let Some(error) = error {
                let file = PathBuf::from(CATALOG);
                report.unchecked.push(Unchecked { file, object: None, error });
            }
        }
        trusted &= !findings.has_damage();
        report.findings.extend(findings.into_list());
        (listing, trusted)
    }

    /// Is there no more than what making a store does before it has a name? Objects that are in the
    /// making are of a store that was complete once.
    fn was_never_finished(&self) -> bool {
        let list = |folder: &str| match self.options.storage.list(&self.directory.join(folder)) {
            Err(error) if error.is_missing_file() => Ok(Vec::new()),
            other => other,
        };
        let made = [ADDRESSES, BUILDING, OBJECTS, CATALOG_LOG, NEW_CATALOG];
        let is_known = |names: Vec<String>| names.iter().all(|n| made.contains(&n.as_str()));
        let is_empty = |folder| list(folder).is_ok_and(|names| names.is_empty());
        list("").is_ok_and(is_known) && is_empty(OBJECTS) && is_empty(BUILDING)
    }

    fn read_catalog(
        &self,
        report: &mut Report,
        findings: &mut Findings,
        listing: &mut Option<Listing>,
    ) -> Result<()> {
        let image = self.catalog_image()?;
        let allocated = heap::check(&image, findings)?;
        let read = &*listing.insert(listing::read(&image, findings)?);
        let pages_verified = checksums::check(&image, findings, None, |_| {})?;
        check_listing(&image, read, findings);
        if allocated.blocks != read.blocks && !findings.has_damage() {
            findings.add(
                Severity::Leftover,
                "the allocator",
                format!("{} blocks", allocated.blocks),
                format!("{}, which can be reached", read.blocks),
                ("nothing is lost but the room that they take", None),
            );
        }
        let log_path = self.directory.join(CATALOG_LOG);
        if let Err(error) = self.options.storage.open(&log_path, OpenMode::Read) {
            if !error.is_missing_file() {
                return Err(error);
            }
            findings.damage("the log", "no such file", "a log, kept for good");
        }
        let s = image.superblock();
        report.objects.push(ObjectReport {
            object: None,
            file: CATALOG.into(),
            sequence: s.commit_sequence,
            file_bytes: s.file_length,
            log_commits: image.log_commits,
            blocks: allocated.blocks,
            allocated_bytes: allocated.bytes,
            pages_verified,
            blocks_reached: Some(read.blocks),
        });
        Ok(())
    }

    fn catalog_image(&self) -> Result<Image> {
        catalog_image(&*self.options.storage, self.directory)
    }

    /// The catalog as it is now.
    pub(super) fn listing(&self) -> Result<Listing> {
        let image = self.catalog_image()?;
        let mut findings = Findings::new(CATALOG.into(), None);
        let listing = listing::read(&image, &mut findings)?;
        match findings.has_damage() {
            false => Ok(listing),
            true => Err(Error::Damaged {
                path: self.directory.join(CATALOG),
                what: "the catalog",
                found: "contents that contradict themselves".to_string(),
                expected: "what `check` finds nothing wrong with".to_string(),
            }),
        }
    }

    /// The catalog as it is now; `None` when it can no longer be read.
    pub(super) fn fresh_listing(&self) -> Option<Listing> {
        self.listing().ok()
    }

    /// Where a named object's file is: its maker may not have moved it.
    pub(super) fn subject<'n>(
        &self,
        folder: &str,
        uuid: [u8; 16],
        entry: Option<(&'n str, &'n Found)>,
        store_uuid: Option<[u8; 16]>,
    ) -> Subject<'n> {
        let file = Path::new(folder).join(hex(&uuid));
        let display_name = match entry {
            Some((name, _)) => format!("object `{name}` of store {}", self.directory.display()),
            None => format!("{} of store {}", file.display(), self.directory.display()),
        };
        // A log is beside the object's last home, whichever of the two its file is in.
        let log_path = self.directory.join(OBJECTS).join(hex(&uuid)).with_extension("log");
        let path = self.directory.join(&file);
        let identity = Identity { store_uuid, object_uuid: Some(uuid), kind: KIND_OBJECT };
        Subject { file, paths: ObjectPaths { path, log_path, identity, display_name }, entry, uuid }
    }

    /// Checks an object that the catalog names. Gives the addresses of its regions.
    fn check_object(
        &self,
        report: &mut Report,
        catalog: Option<&Listing>,
        (name, found): (&str, &Found),
        done_bytes: u64,
    ) -> Vec<Lease> {
        let store_uuid = catalog.map(|listing| listing.store_uuid);
        let mut last = None;
        // Its maker may move the file from one to the other between our two looks.
        for folder in [OBJECTS, BUILDING, OBJECTS] {
            let subject = self.subject(folder, found.uuid, Some((name, found)), store_uuid);
            let scanned = object::check(self.options, &subject, |bytes| {
                if let Some(progress) = &self.options.progress {
                    progress((done_bytes + bytes).min(self.total_bytes), self.total_bytes);
                }
            });
            if !scanned.unchecked.as_ref().is_some_and(Error::is_missing_file) {
                last = Some((subject, scanned));
                break;
            }
        }
        let Some((subject, scanned)) = last else {
            self.report_missing_file(report, name, found);
            return Vec::new();
        };
        report.findings.extend(scanned.findings);
        report.objects.extend(scanned.report);
        if let Some(error) = scanned.unchecked {
            let (file, object) = (subject.file.clone(), Some(name.to_string()));
            report.unchecked.push(Unchecked { file, object, error });
        }
        self.check_leases(report, &subject, &scanned.leases);
        scanned.leases
    }

    fn report_missing_file(&self, report: &mut Report, name: &str, found: &Found) {
        // Removed or replaced since the catalog was read?
        let still = |l: &Listing| l.objects.iter().any(|(_, entry)| entry.uuid == found.uuid);
        if !self.fresh_listing().is_none_or(|listing| still(&listing)) {
            return;
        }
        let file = Path::new(OBJECTS).join(hex(&found.uuid));
        let mut findings = Findings::new(file, Some(name.to_string())).with_repair(
            "restore it from a backup; `--repair` takes the name out of the catalog",
            Repair::Forget { name: name.to_string(), uuid: found.uuid },
        );
        findings.damage("the file", "no such file", format!("the file of object `{name}`"));
        report.findings.extend(findings.into_list());
    }

    /// The catalog's addresses of an object must cover its regions.
    fn check_leases(&self, report: &mut Report, subject: &Subject<'_>, regions: &[Lease]) {
        let Some((name, found)) = subject.entry else { return };
        let covered = |leases: &[Lease]| {
            regions.iter().all(|region| leases.iter().any(|lease| contains(lease, region)))
        };
        if covered(&found.leases) {
            return;
        }
        // The object may have grown since the catalog was read, which is recorded there first.
        let fresh = self.fresh_listing();
        let now = fresh.iter().flat_map(|l| &l.objects).find(|(_, e)| e.uuid == found.uuid);
        if now.is_none_or(|(_, entry)| covered(&entry.leases)) {
            return;
        }
        let mut findings = Findings::new(CATALOG.into(), Some(name.to_string()))
            .with_repair("`--repair` records the object's own", Repair::Leases(found.uuid));
        findings.damage("the object's addresses", show(&found.leases), show(regions));
        report.findings.extend(findings.into_list());
    }

    /// No two objects at the same addresses.
    fn check_overlaps(&self, report: &mut Report, mut owned: Vec<(Lease, String)>) {
        if let Ok(image) = self.catalog_image() {
            let own = image.superblock().regions().iter().map(lease_of);
            owned.extend(
                own.map(|(base, bytes)| (Lease { base, bytes }, "the catalog".to_string())),
            );
        }
        owned.sort_by_key(|(lease, _)| lease.base);
        for pair in owned.windows(2) {
            let [(first, one), (second, other)] = pair else { continue };
            if first.base.saturating_add(first.bytes) > second.base {
                let mut findings = Findings::new(CATALOG.into(), None);
                findings.damage(
                    "the addresses",
                    format!("{one} and {other} both have {:#x}", second.base),
                    "addresses of their own for each",
                );
                report.findings.extend(findings.into_list());
            }
        }
    }

    /// The object files of a store whose catalog cannot be read.
    fn check_files_without_catalog(&self, report: &mut Report) -> Result<()> {
        let names = match self.options.storage.list(&self.directory.join(OBJECTS)) {
            Ok(names) => names,
            Err(e) if e.is_missing_file() => return Ok(()),
            Err(e) => return Err(e),
        };
        for uuid in names.iter().filter_map(|name| crate::layout::parse_uuid(name)) {
            let subject = self.subject(OBJECTS, uuid, None, None);
            let scanned = object::check(self.options, &subject, |_| {});
            report.findings.extend(scanned.findings);
            report.objects.extend(scanned.report);
            if let Some(error) = scanned.unchecked {
                let file = subject.file.clone();
                report.unchecked.push(Unchecked { file, object: scanned.own_name, error });
            }
        }
        Ok(())
    }
}

/// Where the catalog is.
pub(super) fn catalog_paths(directory: &Path) -> ObjectPaths {
    ObjectPaths {
        path: directory.join(CATALOG),
        log_path: directory.join(CATALOG_LOG),
        identity: Identity { store_uuid: None, object_uuid: None, kind: KIND_CATALOG },
        display_name: format!("the catalog of store {}", directory.display()),
    }
}

/// The catalog's last commit, its type checked.
pub(super) fn catalog_image(storage: &dyn Storage, directory: &Path) -> Result<Image> {
    let image = Image::open(storage, &catalog_paths(directory))?;
    let s = image.superblock();
    if s.root_type_id != Catalog::TYPE_ID {
        return Err(Error::NewerFormat {
            path: image.path().to_path_buf(),
            found: format!("a catalog of type {}", s.schema()),
            known: type_description::<Catalog>().to_string(),
        });
    }
    Ok(image)
}

/// What the catalog says, held against itself.
fn check_listing(image: &Image, listing: &Listing, findings: &mut Findings) {
    for arena in &listing.arenas {
        let end = arena.base.checked_add(arena.length);
        let sound = arena.base.is_multiple_of(PAGE_BYTES)
            && end.is_some_and(|end| (arena.base..=end).contains(&arena.high_water));
        if !sound {
            findings.damage("an arena", format!("{arena:x?}"), "a high-water mark inside it");
        }
    }
    let mut arenas: Vec<&Arena> = listing.arenas.iter().collect();
    arenas.sort_by_key(|arena| arena.base);
    if arenas.windows(2).any(|w| w[0].base.saturating_add(w[0].length) > w[1].base) {
        findings.damage("the arenas", "two that overlap", "arenas apart from each other");
    }
    let given = |lease: &Lease| {
        let end = lease.base.saturating_add(lease.bytes);
        arenas.iter().any(|arena| lease.base >= arena.base && end <= arena.high_water)
    };
    let own = image.superblock().regions().iter().map(lease_of);
    if own.map(|(base, bytes)| Lease { base, bytes }).any(|lease| !given(&lease)) {
        findings.damage("the catalog's addresses", "some outside of the arenas", "an arena's");
    }
    let mut uuids = std::collections::HashSet::new();
    for (name, found) in &listing.objects {
        if let Some(lease) = found.leases.iter().find(|lease| !given(lease)) {
            let show = show(std::slice::from_ref(lease));
            findings.damage(format!("the addresses of `{name}`"), show, "an arena's given ones");
        }
        if !uuids.insert(found.uuid) {
            let expected = "one name a file";
            findings.damage(format!("the file of `{name}`"), "another name's file", expected);
        }
    }
}

fn contains(lease: &Lease, region: &Lease) -> bool {
    let end = |l: &Lease| l.base.saturating_add(l.bytes);
    region.base >= lease.base && end(region) <= end(lease)
}

fn show(leases: &[Lease]) -> String {
    let each =
        leases.iter().map(|l| format!("{:#x}..{:#x}", l.base, l.base.saturating_add(l.bytes)));
    let all: Vec<String> = each.collect();
    match all.is_empty() {
        true => "none".to_string(),
        false => all.join(", "),
    }
}
