//! Orders the engines by facts and request. Pure: makes no system call.

use evermap_observe::FileSystem;

use super::adapt::WINDOW_BYTES;
use super::facts::{COLD_BYTES_MIN, Facts, SMALL_BYTES_MAX};
use crate::end::Kind;
use crate::engines::EngineKind;

/// Below this cached share a source counts as cold. Copying around the cached pages costs more than
/// reading them again.
const COLD_RESIDENT_MAX: f64 = 0.25;
/// A copy larger than this share of the available memory would evict other programs' pages.
const MEMORY_SHARE_MAX: f64 = 0.25;

/// Up to this size there is no setup: half of the file would be copied before a lane could be
/// added.
const NO_SETUP_BYTES_MAX: u64 = 2 * WINDOW_BYTES;

/// Reason given for an engine that the caller requested.
pub(crate) const BY_NAME: &str = "requested by name";

/// State of the data when a copy returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Durability {
    /// Written to the page cache. A power cut within half a minute may lose it.
    #[default]
    None,
    /// The contents are on the disk before the file has its name.
    Data,
    /// Like `Data`, and the name is on the disk too.
    Full,
}

/// Policy for sharing extents with the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Reflink {
    /// Share if possible.
    #[default]
    Auto,
    /// Do not share: damage to a block of one file leaves the other intact.
    Never,
    /// Share or fail.
    Always,
}

/// Request of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Request {
    /// Use only this engine.
    pub(crate) engine: Option<EngineKind>,
    pub(crate) durability: Durability,
    pub(crate) reflink: Reflink,
}

/// An engine with the reason for choosing or rejecting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) engine: EngineKind,
    pub(crate) why: String,
}

/// Engines to try, in order, and rejected engines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) choices: Vec<Choice>,
    pub(crate) rejected: Vec<Choice>,
}

impl Plan {
    fn add(&mut self, engine: EngineKind, why: impl Into<String>) {
        if !self.choices.iter().any(|choice| choice.engine == engine) {
            self.choices.push(Choice { engine, why: why.into() });
        }
    }

    fn reject(&mut self, engine: EngineKind, why: impl Into<String>) {
        self.rejected.push(Choice { engine, why: why.into() });
    }
}

/// Plans the engines for a transfer.
pub(crate) fn plan(facts: &Facts, request: &Request) -> Plan {
    let mut plan = Plan::default();
    if let Some(engine) = request.engine {
        plan.add(engine, BY_NAME);
        return plan;
    }
    if request.reflink == Reflink::Always {
        plan.add(EngineKind::Reflink, "only sharing extents was requested");
        return plan;
    }
    match (facts.source, facts.target) {
        _ if facts.are_files_with_data() => between_files(&mut plan, facts, request),
        (Kind::File | Kind::Block, Kind::Socket | Kind::Pipe) if facts.size_bytes > 0 => {
            to_stream(&mut plan, facts)
        }
        (Kind::Socket | Kind::Pipe, _) if !facts.target_appends => {
            plan.add(EngineKind::Splice, "from a stream: one copy instead of two");
        }
        (Kind::Generated, _) => {
            for engine in [EngineKind::Splice, EngineKind::Sendfile, EngineKind::CopyFileRange] {
                plan.reject(engine, "the source generates its contents when read");
            }
        }
        _ => {}
    }
    plan.add(
        EngineKind::ReadWrite,
        match plan.choices.is_empty() {
            true => "works for every kind of end",
            false => "fallback for the others",
        },
    );
    plan
}

fn between_files(plan: &mut Plan, facts: &Facts, request: &Request) {
    match sharing(facts, request) {
        _ if facts.sharing_was_tried => {}
        Ok(choice) => plan.choices.push(choice),
        Err(rejected) => plan.rejected.push(rejected),
    }
    if facts.data_bytes <= SMALL_BYTES_MAX {
        plan.add(EngineKind::ReadWrite, "up to 256 KiB: one read and one write");
        return;
    }
    direct(plan, facts, request);
    through_the_cache(plan, facts, request);
}

/// Returns true if the file systems may be able to share extents.
pub(crate) fn may_share(same_device: bool, source: FileSystem, target: FileSystem) -> bool {
    is_one_file_system(same_device, source, target) && !target.never_reflinks()
}

fn is_one_file_system(same_device: bool, source: FileSystem, target: FileSystem) -> bool {
    same_device || (source == target && source.has_many_devices())
}

/// Returns the choice to share extents between two files, or the reason not to try.
fn sharing(facts: &Facts, request: &Request) -> Result<Choice, Choice> {
    let choice = |why: String| Choice { engine: EngineKind::Reflink, why };
    let one_file_system =
        is_one_file_system(facts.same_device, facts.source_file_system, facts.target_file_system);
    match () {
        () if request.reflink == Reflink::Never => {
            Err(choice("sharing extents is disabled".into()))
        }
        () if !one_file_system => {
            Err(choice("source and target are on different file systems".into()))
        }
        () if facts.target_file_system.never_reflinks() => {
            Err(choice(format!("{} does not share extents", facts.target_file_system.name())))
        }
        () => Ok(choice("one file system that may share extents: no bytes move".into())),
    }
}

/// Returns the choice to share extents before the cache is queried, if that is worth a try.
pub(crate) fn sharing_first(facts: &Facts, request: &Request) -> Option<Choice> {
    let is_planned = request.engine.is_none() && request.reflink != Reflink::Always;
    (is_planned && facts.are_files_with_data()).then(|| sharing(facts, request).ok()).flatten()
}

/// Adds direct I/O if the copy must be durable or is large, so the cache would not help. Other
/// copies return sooner through the cache, which is written back later: 48 ms instead of 90 for 64
/// MiB of cold data.
fn direct(plan: &mut Plan, facts: &Facts, request: &Request) {
    let (both, mapped) = (EngineKind::UringDirect, EngineKind::MmapDirect);
    let is_cold = facts.resident.is_some_and(|share| share < COLD_RESIDENT_MAX);
    let is_durable = request.durability != Durability::None;
    let is_large = facts
        .available_bytes
        .is_some_and(|bytes| facts.data_bytes as f64 > bytes as f64 * MEMORY_SHARE_MAX);
    let why_not = match () {
        () if facts.data_bytes < COLD_BYTES_MIN => {
            Some("under 16 MiB: setting up a ring costs more than it saves".to_string())
        }
        () if !is_durable && !is_large => {
            Some("the copy is neither durable nor large: the cache is faster".to_string())
        }
        () if facts.target_file_system.is_memory() => Some("the target is in memory".to_string()),
        () if facts.direct.target.is_none() => {
            Some("the target reports no support for direct I/O".to_string())
        }
        () if facts.target_file_system.buffers_direct_writes() => {
            Some("the target's file system computes checksums, which needs a copy".to_string())
        }
        () => None,
    };
    if let Some(why_not) = why_not {
        plan.reject(both, why_not.clone());
        plan.reject(mapped, why_not);
        return;
    }
    let why = match () {
        () if is_large => "larger than a quarter of the available memory: bypasses the cache",
        () => "durable: written to the device once, without a copy",
    };
    match is_cold {
        false => plan.add(
            mapped,
            "cached source and a write to the device: cached pages are written directly",
        ),
        true => plan.reject(mapped, "the source is cold"),
    }
    match facts.direct.source {
        Some(_) => plan.add(both, why),
        None => plan.reject(both, "the source reports no support for direct I/O"),
    }
}

/// Adds the engines that use the page cache.
fn through_the_cache(plan: &mut Plan, facts: &Facts, request: &Request) {
    let is_cold = facts.resident.is_some_and(|share| share < COLD_RESIDENT_MAX);
    let may_copy_range = match () {
        () if !facts.same_device => Err("source and target are on different file systems"),
        // The call shares extents on some file systems.
        () if request.reflink == Reflink::Never && !facts.target_file_system.never_reflinks() => {
            Err("it may share extents, which is disabled")
        }
        () => Ok(()),
    };
    if facts.data_bytes <= NO_SETUP_BYTES_MAX {
        without_setup(plan, may_copy_range.is_ok());
    } else if is_cold {
        plan.add(EngineKind::Splice, "cold, through the cache: lanes are added if filling waits");
    }
    let may = |engine| engine != EngineKind::CopyFileRange || may_copy_range.is_ok();
    if let Some(engine) = facts.warm.filter(|engine| may(*engine)) {
        plan.add(engine, "cached: measured as the fastest between these devices");
    }
    let in_memory = facts.target_file_system.is_memory();
    if facts.same_device && !in_memory {
        plan.add(EngineKind::MmapWrite, "cached, one file system: one copy, shortest loop");
    }
    match may_copy_range {
        // No write-back and no block allocation: the in-kernel copy is the shortest path.
        Ok(()) if in_memory => {
            plan.add(EngineKind::CopyFileRange, "one file system in memory: one copy in the kernel")
        }
        Ok(()) => {
            plan.add(EngineKind::CopyFileRange, "one file system: one copy in the kernel");
        }
        Err(why_not) => plan.reject(EngineKind::CopyFileRange, why_not),
    }
    plan.add(EngineKind::Splice, "one copy through a pipe of 1 MiB");
    plan.add(EngineKind::MmapWrite, "one copy from a mapping");
    plan.add(EngineKind::Sendfile, "one copy through the kernel's own pipe");
}

/// Adds an engine without setup, for files too small to repay a mapping, a 1 MiB pipe or lanes. 4
/// MiB of cold data took 4.7 ms instead of 6.1, and 6.5 instead of 7.9 to another file system.
fn without_setup(plan: &mut Plan, may_copy_range: bool) {
    match may_copy_range {
        true => plan.add(EngineKind::CopyFileRange, "up to 32 MiB: one copy, no setup"),
        false => plan.add(EngineKind::Sendfile, "up to 32 MiB: one copy, no setup"),
    }
}

fn to_stream(plan: &mut Plan, facts: &Facts) {
    if facts.size_bytes <= SMALL_BYTES_MAX {
        plan.add(EngineKind::Sendfile, "up to 256 KiB: one call, no copy");
    }
    plan.add(EngineKind::Splice, "to a stream: no copy");
    plan.add(EngineKind::Sendfile, "to a stream: no copy");
}

#[cfg(test)]
mod tests {
    use super::*;
    use evermap_observe::DirectAlignment;

    use crate::policy::Direct;

    const EXT4: FileSystem = FileSystem::EXT;
    const XFS: FileSystem = FileSystem::XFS;
    const BTRFS: FileSystem = FileSystem::BTRFS;
    const TMPFS: FileSystem = FileSystem::TMPFS;
    const PROC: FileSystem = FileSystem::from_magic(0x9fa0);
    /// File system of a socket.
    const NONE: FileSystem = FileSystem::from_magic(0);
    const GIB: u64 = 1 << 30;

    fn facts(size_bytes: u64, resident: f64, file_systems: (FileSystem, FileSystem)) -> Facts {
        let alignment = Some(DirectAlignment { memory_bytes: 512, offset_bytes: 512 });
        Facts {
            source: Kind::File,
            target: Kind::File,
            target_appends: false,
            size_bytes,
            data_bytes: size_bytes,
            source_file_system: file_systems.0,
            target_file_system: file_systems.1,
            same_device: file_systems.0 == file_systems.1,
            direct: Direct { source: alignment, target: alignment },
            resident: Some(resident),
            available_bytes: Some(16 * GIB),
            sharing_was_tried: false,
            warm: None,
        }
    }

    fn first(facts: &Facts, request: Request) -> EngineKind {
        plan(facts, &request).choices[0].engine
    }

    fn durable() -> Request {
        Request { durability: Durability::Data, ..Request::default() }
    }

    #[test]
    fn generated_and_empty_files_use_read_write() {
        let proc = Facts {
            source: Kind::Generated,
            size_bytes: 0,
            data_bytes: 0,
            ..facts(0, 1.0, (PROC, EXT4))
        };
        assert_eq!(first(&proc, Request::default()), EngineKind::ReadWrite);
        let empty = facts(0, 1.0, (EXT4, EXT4));
        assert_eq!(first(&empty, Request::default()), EngineKind::ReadWrite);
    }

    #[test]
    fn extents_are_shared_if_possible_and_allowed() {
        assert_eq!(first(&facts(GIB, 1.0, (XFS, XFS)), Request::default()), EngineKind::Reflink);
        assert_eq!(first(&facts(4096, 1.0, (XFS, XFS)), durable()), EngineKind::Reflink);
        let never = Request { reflink: Reflink::Never, ..Request::default() };
        assert_eq!(first(&facts(GIB, 1.0, (XFS, XFS)), never), EngineKind::MmapWrite);
        let subvolumes = Facts { same_device: false, ..facts(GIB, 1.0, (BTRFS, BTRFS)) };
        assert_eq!(first(&subvolumes, Request::default()), EngineKind::Reflink);
    }

    #[test]
    fn small_files_use_read_write() {
        assert_eq!(first(&facts(256 << 10, 0.0, (EXT4, EXT4)), durable()), EngineKind::ReadWrite);
    }

    #[test]
    fn files_up_to_32_mib_use_an_engine_without_setup() {
        for resident in [0.0, 1.0] {
            for request in [Request::default(), durable()] {
                let same = facts(4 << 20, resident, (EXT4, EXT4));
                assert_eq!(first(&same, request), EngineKind::CopyFileRange);
                let across = facts(4 << 20, resident, (EXT4, TMPFS));
                assert_eq!(first(&across, request), EngineKind::Sendfile);
            }
        }
    }

    #[test]
    fn refused_sharing_leaves_copy_file_range_in_the_plan() {
        for size in [4 << 20, 64 << 20] {
            let tried = Facts { sharing_was_tried: true, ..facts(size, 1.0, (XFS, XFS)) };
            let plan = plan(&tried, &Request::default());
            let engines: Vec<_> = plan.choices.iter().map(|choice| choice.engine).collect();
            assert!(engines.contains(&EngineKind::CopyFileRange), "{engines:?}");
            assert!(!engines.contains(&EngineKind::Reflink), "{engines:?}");
        }
    }

    #[test]
    fn disabled_sharing_excludes_every_sharing_engine() {
        let never = Request { reflink: Reflink::Never, ..Request::default() };
        // Excluded even if measured to be the fastest.
        let measured = Some(EngineKind::CopyFileRange);
        for size in [4 << 20, 64 << 20, GIB] {
            for (resident, warm) in [(0.0, None), (1.0, None), (1.0, measured)] {
                let facts = Facts { warm, ..facts(size, resident, (XFS, XFS)) };
                let plan = plan(&facts, &never);
                let sharing = [EngineKind::CopyFileRange, EngineKind::Reflink];
                assert!(!plan.choices.iter().any(|choice| sharing.contains(&choice.engine)));
            }
        }
    }

    #[test]
    fn cold_durable_or_large_copies_bypass_the_cache() {
        let cold = facts(64 << 20, 0.0, (EXT4, EXT4));
        assert_eq!(first(&cold, durable()), EngineKind::UringDirect);
        assert_eq!(first(&cold, Request::default()), EngineKind::Splice);
        assert_eq!(first(&facts(64 << 20, 1.0, (EXT4, EXT4)), durable()), EngineKind::MmapDirect);
        let large = facts(8 * GIB, 0.1, (EXT4, EXT4));
        assert_eq!(first(&large, Request::default()), EngineKind::UringDirect);
    }

    #[test]
    fn file_systems_that_copy_direct_writes_are_excluded() {
        let never = Request { reflink: Reflink::Never, ..durable() };
        let engines = |facts: &Facts| {
            plan(facts, &never).choices.iter().map(|c| c.engine).collect::<Vec<_>>()
        };
        for target in [BTRFS, TMPFS] {
            let chosen = engines(&facts(64 << 20, 0.0, (EXT4, target)));
            assert!(!chosen.contains(&EngineKind::UringDirect), "{chosen:?}");
            assert!(!chosen.contains(&EngineKind::MmapDirect), "{chosen:?}");
        }
    }

    #[test]
    fn cached_files_go_through_the_cache() {
        let same = facts(GIB, 1.0, (EXT4, EXT4));
        assert_eq!(first(&same, Request::default()), EngineKind::MmapWrite);
        let measured = Facts { warm: Some(EngineKind::CopyFileRange), ..same.clone() };
        assert_eq!(first(&measured, Request::default()), EngineKind::CopyFileRange);
        assert_eq!(first(&facts(GIB, 1.0, (EXT4, TMPFS)), Request::default()), EngineKind::Splice);
        let memory = facts(GIB, 1.0, (TMPFS, TMPFS));
        assert_eq!(first(&memory, Request::default()), EngineKind::CopyFileRange);
    }

    #[test]
    fn streams_are_spliced() {
        let socket = Facts { target: Kind::Socket, ..facts(GIB, 1.0, (EXT4, NONE)) };
        assert_eq!(first(&socket, Request::default()), EngineKind::Splice);
        let received = Facts { source: Kind::Socket, size_bytes: 0, ..facts(0, 1.0, (NONE, EXT4)) };
        assert_eq!(first(&received, Request::default()), EngineKind::Splice);
        let appending = Facts { target_appends: true, ..received };
        assert_eq!(first(&appending, Request::default()), EngineKind::ReadWrite);
    }

    #[test]
    fn every_plan_contains_read_write() {
        for size in [0, 1, 4096, 300_000, 64 << 20, 20 * GIB] {
            for resident in [0.0, 0.5, 1.0] {
                for pair in [(EXT4, EXT4), (XFS, BTRFS), (BTRFS, TMPFS), (TMPFS, TMPFS)] {
                    let plan = plan(&facts(size, resident, pair), &Request::default());
                    assert!(
                        plan.choices.iter().any(|choice| choice.engine == EngineKind::ReadWrite)
                    );
                }
            }
        }
    }
}
