//! Tier on persistent memory: ext4 on a part of the machine's memory, mounted with and without
//! `dax`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evermap_lane::machine::{CheckResult, CheckTargets, Machine, check};
use evermap_lane::tier::{
    Health, Journal, Keep, Kind, Plan, Request, Storage, Watch, back, place, verify,
};
use evermap_lane::{Lane, Placement, Policy};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::lanes::Fixture;

/// Mount point used by the machine's init program.
const TIER: &str = "/mnt";
const DEVICE: &str = "/dev/pmem0";

fn contents() -> Vec<u8> {
    (0..300_000u32).flat_map(u32::to_le_bytes).collect()
}

fn mapping() -> CheckResult {
    let subject = CheckTargets { places: vec![TIER.into()], ..CheckTargets::default() };
    let all = check(&Machine::detect().unwrap(), &subject);
    all.into_iter().find(|one| one.name == "device-mapping").unwrap()
}

/// Remounts the tier with other options, and restores the original mount when dropped.
struct Remounted;

impl Remounted {
    fn with(options: &std::ffi::CStr) -> Self {
        unmount(TIER, UnmountFlags::empty()).unwrap();
        mount(DEVICE, TIER, "ext4", MountFlags::empty(), options).unwrap();
        Self
    }
}

impl Drop for Remounted {
    fn drop(&mut self) {
        unmount(TIER, UnmountFlags::empty()).unwrap();
        mount(DEVICE, TIER, "ext4", MountFlags::empty(), c"dax").unwrap();
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn persistent_memory_is_detected_and_mapped_synchronously() {
    let Some(_fixture) = Fixture::new() else { return };
    let storage = Storage::of(Path::new(TIER)).unwrap();
    assert_eq!((storage.kind, storage.is_lasting()), (Kind::Dax, true), "{storage:?}");
    let mapping = mapping();
    assert!(mapping.able && mapping.why.contains("MAP_SYNC"), "{mapping:?}");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn without_dax_the_same_memory_is_a_disk_and_the_fallback_is_reported() {
    let Some(_fixture) = Fixture::new() else { return };
    let _without = Remounted::with(c"dax=never");
    let storage = Storage::of(Path::new(TIER)).unwrap();
    assert_eq!((storage.kind, storage.is_lasting()), (Kind::Disk, true), "{storage:?}");
    let mapping = mapping();
    assert!(!mapping.able && mapping.why.contains("mappings use the page cache"), "{mapping:?}");
    assert!(mapping.remedy.is_some_and(|remedy| remedy.contains("mounted with `dax`")));
}

/// Returns the mappings of this process.
fn mapped() -> String {
    fs::read_to_string("/proc/self/maps").unwrap()
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_reads_directly_from_persistent_memory() {
    let Some(fixture) = Fixture::new() else { return };
    let (film, there) = (fixture.path("film"), PathBuf::from("/mnt/film"));
    fs::write(&film, contents()).unwrap();
    fs::write(&there, contents()).unwrap();
    let policy =
        format!("[app]\nperiod_us = 20000\n[io]\nmode = \"map\"\n[tier]\npath = \"{TIER}\"\n");
    let mut lane = Lane::enter_in(&Policy::parse(&policy).unwrap(), &fixture.state).unwrap();
    // One file is copied to an unnamed file on the tier; the other is on the tier already.
    for (path, name) in [(&film, "/mnt/#"), (&there, "/mnt/film")] {
        let mut file = lane.open(path).unwrap();
        let is_mapped = mapped().lines().any(|line| line.contains(name));
        assert!(is_mapped, "{name}: {}", mapped());
        let frame = lane.frame().unwrap().unwrap();
        assert!(frame.read(&mut file, 1_200_000).unwrap() == contents());
    }
    let missing: Vec<String> =
        lane.not_applied().map(|note| format!("{}: {}", note.what, note.why)).collect();
    assert!(!missing.iter().any(|note| note.contains("film")), "{missing:?}");
    assert_eq!(lane.leave().reads.mapped, 2);
    fs::remove_file(there).unwrap();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_program_sees_its_files_on_persistent_memory() {
    let Some(fixture) = Fixture::new() else { return };
    let film = fixture.path("film");
    fs::write(&film, contents()).unwrap();
    let policy = format!("[tier]\nfiles = [\"{}\"]\npath = \"{TIER}\"\n", film.display());
    let script =
        format!("stat -c %d {0}; cmp {0} {1} && echo equal", film.display(), "/proc/self/fd/0");
    let mut lane = fixture.lane(&policy, &["sh", "-c", &script]);
    lane.stdin(fs::File::open(&film).unwrap());
    let ran = crate::lanes::ran(&mut lane);
    let device = fs::metadata(TIER).unwrap().dev();
    assert_eq!((ran.code, ran.out), (0, format!("{device}\nequal\n")), "{}", ran.err);
    assert_ne!(fs::metadata(&film).unwrap().dev(), device);
    evermap_lane::tier::back(None, Some(Path::new(TIER)), &film, Keep::Neither, &Watch::default())
        .unwrap();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_file_moves_to_persistent_memory_and_back() {
    let Some(fixture) = Fixture::new() else { return };
    let film = fixture.path("film");
    fs::write(&film, contents()).unwrap();
    let journal = Journal::at(&fixture.path("journal")).unwrap();
    let request = Request {
        tier: TIER.into(),
        mode: Placement::Switch,
        files: vec![film.clone()],
        budget_bytes: None,
        uses: Vec::new(),
    };
    let plan = Plan::make(&request).unwrap();
    assert_eq!((plan.tier.kind, plan.files.len()), (Kind::Dax, 1), "{plan:?}");
    let watch = Watch::default();
    let applied = place(&plan, Some(&journal), &watch).unwrap();
    assert!(applied.failed.is_empty(), "{applied:?}");
    assert_eq!(fs::metadata(&film).unwrap().dev(), fs::metadata(TIER).unwrap().dev());
    assert!(fs::read(&film).unwrap() == contents());
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].health, Health::Sound);
    back(Some(&journal), None, &film, Keep::Neither, &watch).unwrap();
    assert!(!film.is_symlink() && fs::read(&film).unwrap() == contents());
    assert!(journal.files().unwrap().is_empty());
}
