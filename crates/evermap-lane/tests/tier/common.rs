//! Fixtures: files, tiers, helper processes, and messages about skipped tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_lane::Placement;
use evermap_lane::tier::{Applied, Plan, Request, Watch, place};

/// User id of `nobody`, which has no privileges.
pub const NOBODY: u32 = 65534;

/// Reports why a test is skipped.
pub fn skip(why: impl std::fmt::Display) {
    eprintln!("skipped: {why}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Creates a directory that every user can read.
pub fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Creates a tier in memory. Reports a skip and returns `None` if it is on the same file system as
/// the files.
pub fn memory() -> Option<tempfile::TempDir> {
    use std::os::unix::fs::MetadataExt;
    let tier = tempfile::tempdir_in("/dev/shm").ok();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let tier = tier.filter(|tier| device(tier.path()) != device(directory().path()));
    if tier.is_none() {
        skip("/dev/shm is not a separate file system");
    }
    tier
}

pub fn pattern(bytes: usize) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

pub fn request(tier: &Path, mode: Placement, files: &[&Path]) -> Request {
    let files = files.iter().map(|file| file.to_path_buf()).collect();
    Request { tier: tier.into(), mode, files, budget_bytes: None, uses: Vec::new() }
}

pub fn plan(tier: &Path, mode: Placement, files: &[&Path]) -> Plan {
    Plan::make(&request(tier, mode, files)).unwrap()
}

/// Creates view copies of all files.
pub fn viewed(tier: &Path, files: &[&Path]) -> Applied {
    let plan = plan(tier, Placement::View, files);
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let applied = place(&plan, None, &Watch::default()).unwrap();
    assert!(applied.failed.is_empty(), "{:?}", applied.failed);
    applied
}

/// Returns all files below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut due = vec![directory.to_path_buf()];
    while let Some(directory) = due.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() { due.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Gives this thread and its children a private mount namespace, which ends with them. Reports a
/// skip and returns false without root.
pub fn has_own_mounts() -> bool {
    // SAFETY: `unshare` accesses no memory; it changes the mount namespace of this thread only.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    if !unshared {
        skip("mounting needs root");
        return false;
    }
    use rustix::mount::{MountPropagationFlags, mount_change};
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    true
}

/// Returns true in a helper process, and false in a run of all ignored tests.
pub fn is_helper() -> bool {
    std::env::var_os("EVERMAP_ACT").is_some()
}

pub fn argument(name: &str) -> PathBuf {
    std::env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("{name} is given"))
}

/// Runs an ignored test of this program as user `nobody`, from a copy that this user can reach.
pub fn run_as_nobody(name: &str, arguments: &[(&str, &Path)]) {
    let place = directory();
    let program = place.path().join("program");
    crate::programs::copy_program(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new(&program);
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("EVERMAP_ACT", name).envs(arguments.iter().copied()).current_dir("/");
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{name} did not run");
}
