//! Checks a store: its catalog, every object file, and the catalog against the files.
//!
//! A check reads and locks as a reader does, so it works while the store is in use and on a
//! read-only mount. It sees the last commit of each object. Other processes may change the store
//! between two reads, so a finding that compares two files is verified against a fresh catalog
//! before it is reported.

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
use super::report::{Findings, ObjectReport, Repair, Report, Severity, Unchecked, quantity};
use super::{checksums, files, heap, repair};

/// Progress callback: bytes done and total bytes.
type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Options of a check.
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
    /// Defaults: only check, change nothing.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Checks files of another storage than the real disk.
    #[cfg(test)]
    pub(crate) fn on(mut self, storage: Arc<dyn Storage>) -> CheckOptions {
        self.storage = storage;
        self
    }

    /// Sets whether to repair what can be repaired without loss. Files to be changed are copied to
    /// `repair-<time>` in the store's directory first; files to be removed are moved there.
    /// Default: no.
    pub fn repair(mut self, repair: bool) -> CheckOptions {
        self.repair = repair;
        self
    }

    /// With [`repair`](CheckOptions::repair): accepts the contents of pages that do not match their
    /// checksums, and recomputes the checksums. Only use it after inspecting the data, because a
    /// check cannot know whether a page or its checksum is right.
    pub fn accept_data(mut self, accept: bool) -> CheckOptions {
        self.accept_data = accept;
        self
    }

    /// With [`repair`](CheckOptions::repair): moves damaged objects out of the store. Their files
    /// are kept with the copies.
    pub fn quarantine(mut self, quarantine: bool) -> CheckOptions {
        self.quarantine = quarantine;
        self
    }

    /// Sets the function that decides by an object's name whether it is a cache, which its program
    /// can rebuild. With [`repair`](CheckOptions::repair), damaged caches are moved out of the
    /// store, and their files are kept with the copies. Default: no object is a cache.
    pub fn caches(mut self, is_cache: fn(&str) -> bool) -> CheckOptions {
        self.is_cache = is_cache;
        self
    }

    /// Sets how long to wait for an object that is locked against readers. Default: ten seconds.
    pub fn busy_timeout(mut self, timeout: Duration) -> CheckOptions {
        self.timeout = timeout;
        self
    }

    /// Calls `progress` from time to time with the bytes read so far and the total bytes.
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> CheckOptions {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Checks the store in a directory, and repairs it if `options` request that.
///
/// Nothing is mapped, and every pointer is looked up before it is followed. Damage becomes a
/// [`Finding`](super::Finding), and a file that cannot be read an [`Unchecked`]. Reads objects with
/// page checksums completely, and the metadata of the others. Of an object that is being written,
/// checks the last commit.
///
/// A repair needs exclusive access to each object that it changes; objects in use are left as they
/// are. It opens the store, so the store's addresses must be free in this process, or the store
/// must already be open here.
///
/// # Errors
/// `NoStore`, and the errors of a repair: `DiskFull`, `NotPermitted`, `Busy`.
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
    // A repair is not repeated on another store once it has begun to change this one.
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

/// Result of a scan: the report, and the catalog's contents for a repair.
pub(super) struct ScanResult {
    pub(super) report: Report,
    /// Contents of the catalog, as far as they could be read.
    pub(super) listing: Option<Listing>,
}

/// One pass over a store's files.
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

    /// Returns the length of all object files if there is a progress callback, otherwise 0.
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

    /// Checks the catalog, all objects and all files.
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

    /// Checks the catalog. Returns what could be read of it, and whether it can be trusted.
    fn check_catalog(&self, report: &mut Report) -> (Option<Listing>, bool) {
        let remedy = "`--repair` rebuilds it from the object files";
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
                        "files of a process that was killed while it created the store",
                        "a complete store, or no files",
                        (
                            "create the store again, which completes it, or use `--repair`",
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

    /// Returns true if there are only files that creating a store makes before its catalog has its
    /// name. Unfinished objects belong to a store that was complete once.
    fn was_never_finished(&self) -> bool {
        let list = |folder: &str| match self.options.storage.list(&self.directory.join(folder)) {
            Err(error) if error.is_missing_file() => Ok(Vec::new()),
            other => other,
        };
        let known = [ADDRESSES, BUILDING, OBJECTS, CATALOG_LOG, NEW_CATALOG];
        let is_known = |names: Vec<String>| names.iter().all(|n| known.contains(&n.as_str()));
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
                format!("{} allocated", quantity(allocated.blocks, "block")),
                format!("{}, the number reachable from the root", read.blocks),
                ("nothing to do: the other blocks only take up space", None),
            );
        }
        let log_path = self.directory.join(CATALOG_LOG);
        if let Err(error) = self.options.storage.open(&log_path, OpenMode::Read) {
            if !error.is_missing_file() {
                return Err(error);
            }
            findings.damage("the log", "no such file", "the catalog's log, which is permanent");
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

    /// Reads the current catalog.
    pub(super) fn listing(&self) -> Result<Listing> {
        let image = self.catalog_image()?;
        let mut findings = Findings::new(CATALOG.into(), None);
        let listing = listing::read(&image, &mut findings)?;
        match findings.has_damage() {
            false => Ok(listing),
            true => Err(Error::Damaged {
                path: self.directory.join(CATALOG),
                what: "the catalog",
                found: "inconsistent contents".to_string(),
                expected: "contents that pass a check".to_string(),
            }),
        }
    }

    /// Reads the current catalog. Returns `None` if it can no longer be read.
    pub(super) fn fresh_listing(&self) -> Option<Listing> {
        self.listing().ok()
    }

    /// Describes an object file in `objects`, or in `building` if it was not moved yet.
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
        // The log is always in `objects`.
        let log_path = self.directory.join(OBJECTS).join(hex(&uuid)).with_extension("log");
        let path = self.directory.join(&file);
        let identity = Identity { store_uuid, object_uuid: Some(uuid), kind: KIND_OBJECT };
        Subject { file, paths: ObjectPaths { path, log_path, identity, display_name }, entry, uuid }
    }

    /// Checks an object that the catalog names. Returns the addresses of its regions.
    fn check_object(
        &self,
        report: &mut Report,
        catalog: Option<&Listing>,
        (name, found): (&str, &Found),
        done_bytes: u64,
    ) -> Vec<Lease> {
        let store_uuid = catalog.map(|listing| listing.store_uuid);
        let mut last = None;
        // The process that created the object may move its file between two attempts.
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
        // The object may have been removed or replaced since the catalog was read.
        let still = |l: &Listing| l.objects.iter().any(|(_, entry)| entry.uuid == found.uuid);
        if !self.fresh_listing().is_none_or(|listing| still(&listing)) {
            return;
        }
        let file = Path::new(OBJECTS).join(hex(&found.uuid));
        let mut findings = Findings::new(file, Some(name.to_string())).with_repair(
            "restore it from a backup; `--repair` removes the name from the catalog",
            Repair::Forget { name: name.to_string(), uuid: found.uuid },
        );
        findings.damage("the file", "no such file", format!("the file of object `{name}`"));
        report.findings.extend(findings.into_list());
    }

    /// Checks that the addresses in the catalog cover the object's regions.
    fn check_leases(&self, report: &mut Report, subject: &Subject<'_>, regions: &[Lease]) {
        let Some((name, found)) = subject.entry else { return };
        let covered = |leases: &[Lease]| {
            regions.iter().all(|region| leases.iter().any(|lease| contains(lease, region)))
        };
        if covered(&found.leases) {
            return;
        }
        // The object may have grown since the catalog was read. Growth is recorded there first.
        let fresh = self.fresh_listing();
        let now = fresh.iter().flat_map(|l| &l.objects).find(|(_, e)| e.uuid == found.uuid);
        if now.is_none_or(|(_, entry)| covered(&entry.leases)) {
            return;
        }
        let mut findings = Findings::new(CATALOG.into(), Some(name.to_string())).with_repair(
            "`--repair` records the addresses from the object's file",
            Repair::Leases(found.uuid),
        );
        findings.damage("the object's addresses", show(&found.leases), show(regions));
        report.findings.extend(findings.into_list());
    }

    /// Checks that no two objects have the same addresses.
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
                    format!("{one} and {other} both contain {:#x}", second.base),
                    "separate addresses for each",
                );
                report.findings.extend(findings.into_list());
            }
        }
    }

    /// Checks the object files of a store whose catalog cannot be read.
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

/// Returns the paths of the catalog.
pub(super) fn catalog_paths(directory: &Path) -> ObjectPaths {
    ObjectPaths {
        path: directory.join(CATALOG),
        log_path: directory.join(CATALOG_LOG),
        identity: Identity { store_uuid: None, object_uuid: None, kind: KIND_CATALOG },
        display_name: format!("the catalog of store {}", directory.display()),
    }
}

/// Opens the catalog's last commit and checks its type.
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

/// Checks the catalog's contents for consistency.
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
        findings.damage("the arenas", "two overlapping arenas", "disjoint arenas");
    }
    let is_allocated = |lease: &Lease| {
        let end = lease.base.saturating_add(lease.bytes);
        arenas.iter().any(|arena| lease.base >= arena.base && end <= arena.high_water)
    };
    let own = image.superblock().regions().iter().map(lease_of);
    if own.map(|(base, bytes)| Lease { base, bytes }).any(|lease| !is_allocated(&lease)) {
        let (found, expected) = ("some outside the arenas", "addresses in an arena");
        findings.damage("the catalog's addresses", found, expected);
    }
    let mut uuids = std::collections::HashSet::new();
    for (name, found) in &listing.objects {
        if let Some(lease) = found.leases.iter().find(|lease| !is_allocated(lease)) {
            let show = show(std::slice::from_ref(lease));
            let expected = "addresses below an arena's high-water mark";
            findings.damage(format!("the addresses of `{name}`"), show, expected);
        }
        if !uuids.insert(found.uuid) {
            let (found, expected) = ("the file of another name", "one name per file");
            findings.damage(format!("the file of `{name}`"), found, expected);
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
