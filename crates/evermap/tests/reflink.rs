//! File systems on which files can share blocks (xfs, btrfs): a backup, a restore and the
//! replacement of an object file take nearly no space there, and files that share blocks stay
//! independent.
//!
//! Each test creates a file system in an image file and mounts it in the mount namespace of its own
//! process. The mount, the loop device and the image disappear with the process, however it ends.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{argument, child, copy_store, names, object_file};
use evermap::tools::{BackupOptions, CheckOptions, backup, check, restore};
use evermap::{Error, PVec, Session, Store, WriteOptions};
use rustix::fs::{FallocateFlags, IFlags, fallocate, ioctl_getflags, statvfs, syncfs};

/// Number of elements of an object of 64 MiB.
const NUMBERS: usize = 8 << 20;
/// Number of elements of an object of 4 MiB.
const FEW_NUMBERS: usize = 512 << 10;
/// Positions on different pages of an object that have the number of the commit.
const MARKED: usize = 100;
/// Maximum space of a copy of an object of 64 MiB with shared blocks: logs, catalogs, metadata, and
/// the pages written since, for each of which xfs temporarily takes 128 KiB.
const SHARED_BYTES_MAX: u64 = 24 << 20;

/// The tested file systems, with the options that enable shared blocks.
const KINDS: [(&str, &[&str]); 2] =
    [("xfs", &["mkfs.xfs", "-q", "-m", "reflink=1"]), ("btrfs", &["mkfs.btrfs", "-q"])];

/// Runs the test `name` on a new file system of each kind. The test gets the directory and the kind
/// as arguments, and prints `through` at its end.
fn on_each_kind(name: &str, bytes: u64) {
    for (kind, make) in KINDS {
        if let Err(why) = on_a_file_system(kind, make, name, bytes) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {name} on {kind}: {why}");
        }
    }
}

/// In memory if it fits, because flushes are free there.
fn place_for_an_image(bytes: u64) -> &'static Path {
    let shared = Path::new("/dev/shm");
    match statvfs(shared) {
        Ok(found) if found.f_bavail * found.f_frsize > 4 * bytes => shared,
        _ => Path::new(env!("CARGO_TARGET_TMPDIR")),
    }
}

fn on_a_file_system(kind: &str, make: &[&str], name: &str, bytes: u64) -> Result<(), String> {
    let directory = tempfile::tempdir_in(place_for_an_image(bytes)).unwrap();
    let (image, disk) = (directory.path().join("image"), directory.path().join("disk"));
    std::fs::create_dir(&disk).unwrap();
    std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
    let made = Command::new(make[0]).args(&make[1..]).arg(&image).output();
    let made = made.map_err(|e| format!("{}: {e}", make[0]))?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned());
    }
    // The image needs no name once it is mounted. It disappears with the mount, which disappears
    // with the namespace.
    let script =
        "mount -o loop \"$1\" \"$2\" && rm \"$1\" && echo mounted && shift 2 && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([&image, &disk, &std::env::current_exe().unwrap()])
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("EVERMAP_TEST_ARGUMENT_0", &disk)
        .env("EVERMAP_TEST_ARGUMENT_1", kind)
        .output()
        .map_err(|e| format!("unshare: {e}"))?;
    let out = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    if !out.starts_with("mounted") {
        return Err(format!("no file system can be mounted here: {}", said.trim()));
    }
    println!("{name} on {kind}: {out}{said}");
    assert!(output.status.success() && out.contains("through"), "{name} on {kind}");
    Ok(())
}

/// Returns the directory and the file system of a running test.
fn ground() -> Option<(PathBuf, String)> {
    Some((argument(0)?.into(), argument(1)?))
}

fn create(path: &Path, numbers: usize) -> Store {
    let store = Store::create_new(path).unwrap();
    store.create::<PVec<u64>, _>("v", vec![0; numbers]).unwrap();
    store
}

fn commit(session: &mut Session<PVec<u64>>, number: u64) -> Result<bool, Error> {
    let mut root = session.root_mut();
    let numbers = root.as_mut_slice();
    let step = numbers.len() / MARKED;
    numbers.iter_mut().step_by(step).take(MARKED).for_each(|marked| *marked = number);
    session.commit()
}

/// Verifies a complete object and returns its commit.
#[track_caller]
fn number_of(numbers: &[u64]) -> u64 {
    let step = numbers.len() / MARKED;
    let number = numbers[0];
    let is_marked = |i: usize| i.is_multiple_of(step) && i / step < MARKED;
    let wrong =
        numbers.iter().enumerate().find(|&(i, n)| *n != if is_marked(i) { number } else { 0 });
    assert!(wrong.is_none(), "at commit {number}: {wrong:?}");
    number
}

#[track_caller]
fn assert_store(path: &Path, number: u64) {
    let report = check(path, &CheckOptions::new()).unwrap();
    assert!(report.is_clean(), "{}: {report:#?}", path.display());
    let store = Store::open(path).unwrap();
    assert_eq!(number_of(&store.read::<PVec<u64>>("v").unwrap()), number);
}

fn used_bytes(disk: &Path) -> u64 {
    syncfs(std::fs::File::open(disk).unwrap()).unwrap();
    let found = statvfs(disk).unwrap();
    (found.f_blocks - found.f_bfree) * found.f_frsize
}

/// Asserts that `action` takes little disk space.
#[track_caller]
fn assert_shares<T>(disk: &Path, what: &str, action: impl FnOnce() -> T) -> T {
    let before = used_bytes(disk);
    let result = action();
    let taken = used_bytes(disk).saturating_sub(before);
    println!("{what}: {taken} bytes");
    assert!(taken <= SHARED_BYTES_MAX, "{what} took {taken} bytes");
    result
}

/// On btrfs, files that share blocks must be all copy-on-write or all not.
fn is_written_in_place(file: &Path) -> bool {
    ioctl_getflags(std::fs::File::open(file).unwrap()).is_ok_and(|f| f.contains(IFlags::NOCOW))
}

#[test]
#[ignore = "a child of the test below"]
fn child_copies_back_and_forth() {
    let Some((disk, kind)) = ground() else { return };
    let (path, copy) = (disk.join("store"), disk.join("copy"));
    let store = create(&path, NUMBERS);
    let mut session = store.write::<PVec<u64>>("v").unwrap();
    commit(&mut session, 1).unwrap();
    // The copy takes this commit from the log, and must not contain the next one.
    commit(&mut session, 2).unwrap();
    session.root_mut().as_mut_slice()[1] = 99;
    let report = assert_shares(&disk, "a backup", || store.backup(&copy).unwrap());
    assert!(report.findings.is_empty() && report.bytes > 64 << 20, "{report:?}");
    session.root_mut().as_mut_slice()[1] = 0;
    commit(&mut session, 3).unwrap();
    session.close().unwrap();
    drop(store);
    assert_store(&copy, 2);
    assert_store(&path, 3);
    assert_eq!(is_written_in_place(&object_file(&path)), kind == "btrfs");
    assert_eq!(is_written_in_place(&object_file(&copy)), kind == "btrfs");

    let (deep, options) = (disk.join("deep").join("store"), BackupOptions::new());
    assert_shares(&disk, "a restore", || restore(&copy, &deep, false, &options).unwrap());
    assert_shares(&disk, "a restore over", || restore(&copy, &path, true, &options).unwrap());
    // Both files change independently.
    for (place, number) in [(&path, 4), (&copy, 5), (&deep, 6)] {
        let store = Store::open(place).unwrap();
        let mut session = store.write::<PVec<u64>>("v").unwrap();
        assert_eq!(number_of(&session), 2);
        commit(&mut session, number).unwrap();
        session.close().unwrap();
    }
    assert_store(&path, 4);
    assert_store(&copy, 5);
    assert_store(&deep, 6);
    println!("through");
}

#[test]
fn a_backup_and_a_restore_share_blocks_and_stay_independent() {
    on_each_kind("child_copies_back_and_forth", 512 << 20);
}

/// A reader in another process, which prints its commit on request.
struct Reader(Child, BufReader<std::process::ChildStdout>);

impl Reader {
    fn start(path: &Path) -> Reader {
        let mut process = child("child_reads_when_asked", &[path.to_str().unwrap()]);
        let output = BufReader::new(process.stdout.take().unwrap());
        Reader(process, output)
    }

    /// Reads the open snapshot, or refreshes it before with `refresh`.
    fn ask(&mut self, what: &str) -> u64 {
        writeln!(self.0.stdin.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "the reader ended early");
            if let Some(number) = line.trim().strip_prefix("> ") {
                return number.parse().unwrap();
            }
        }
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        let _ = self.1.read_to_string(&mut String::new());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
#[ignore = "a child"]
fn child_reads_when_asked() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let mut snapshot = store.read::<PVec<u64>>("v").unwrap();
    for line in std::io::stdin().lines() {
        if line.unwrap() == "refresh" {
            snapshot = snapshot.refresh().unwrap();
        }
        println!("\n> {}", number_of(&snapshot));
    }
}

/// Commits with a concurrent reader until the object file is replaced. Returns the last commit's
/// number, and the disk space taken while the reader had the old file.
fn commit_until_replaced(disk: &Path, path: &Path) -> (u64, u64) {
    let before = used_bytes(disk);
    let store = Store::open(path).unwrap();
    let options = WriteOptions::new().log_bytes_max(64 * 1024);
    let mut session = store.write_with::<PVec<u64>>("v", &options).unwrap();
    commit(&mut session, 1).unwrap();
    let mut reader = Reader::start(path);
    assert_eq!(reader.ask("read"), 1);
    let file = object_file(path);
    let first = std::fs::metadata(&file).unwrap().ino();
    let mut number = 1;
    while std::fs::metadata(&file).unwrap().ino() == first {
        number += 1;
        assert!(number < 100, "the object file was not replaced");
        commit(&mut session, number).unwrap();
    }
    number += 1;
    commit(&mut session, number).unwrap();
    assert_eq!(reader.ask("read"), 1);
    let taken = used_bytes(disk).saturating_sub(before);
    assert_eq!(reader.ask("refresh"), number);
    reader.end();
    session.close().unwrap();
    (number, taken)
}

#[test]
#[ignore = "a child of the test below"]
fn child_replaces_under_a_reader() {
    let Some((disk, kind)) = ground() else { return };
    let path = disk.join("store");
    drop(create(&path, NUMBERS));
    let (number, taken) = commit_until_replaced(&disk, &path);
    println!("a replacement: {taken} bytes");
    assert!(taken <= SHARED_BYTES_MAX, "a replacement took {taken} bytes");
    assert_store(&path, number);
    assert_eq!(is_written_in_place(&object_file(&path)), kind == "btrfs");
    println!("through");
}

#[test]
fn a_replacement_under_a_reader_shares_blocks_and_the_reader_keeps_its_commit() {
    on_each_kind("child_replaces_under_a_reader", 512 << 20);
}

/// On btrfs, a file without copy-on-write cannot share blocks with one that has it, for example one
/// made by `cp`.
#[test]
#[ignore = "a child of the test below"]
fn child_copies_files_of_another_kind() {
    let Some((disk, _)) = ground() else { return };
    let (made, path, copy) = (disk.join("made"), disk.join("store"), disk.join("copy"));
    drop(create(&made, FEW_NUMBERS));
    copy_store(&made, &path);
    assert!(!is_written_in_place(&object_file(&path)));
    backup(&path, &copy, &BackupOptions::new()).unwrap();
    assert_store(&copy, 0);
    let (number, _) = commit_until_replaced(&disk, &path);
    assert_store(&path, number);
    let restored = disk.join("restored");
    restore(&path, &restored, false, &BackupOptions::new()).unwrap();
    assert_store(&restored, number);
    println!("through");
}

#[test]
fn files_that_cannot_share_blocks_are_copied() {
    on_each_kind("child_copies_files_of_another_kind", 400 << 20);
}

/// Fills the disk. Returns the files that take the space.
fn fill(disk: &Path) -> Vec<PathBuf> {
    // Create the names first: at the end there is no space for one.
    let steps = [16 << 20, 1 << 20, 64 << 10, 4096];
    let paths: Vec<PathBuf> =
        (0..steps.len()).map(|number| disk.join(format!("filler {number}"))).collect();
    let files: Vec<_> = paths.iter().map(|path| std::fs::File::create(path).unwrap()).collect();
    for (file, step) in files.iter().zip(steps) {
        let mut at = 0;
        while fallocate(file, FallocateFlags::empty(), at, step).is_ok() {
            at += step;
        }
        let _ = file.sync_all();
    }
    paths
}

fn is_full<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::DiskFull { .. }) => true,
        Err(error) => panic!("not the error of a full disk: {error}"),
    }
}

/// Commits until the disk refuses a commit. Returns the number of the last successful one.
fn commit_until_refused(session: &mut Session<PVec<u64>>, mut number: u64) -> u64 {
    while !is_full(commit(session, number + 1)) {
        number += 1;
        assert!(number < 10_000, "the disk is not full");
    }
    number
}

#[test]
#[ignore = "a child of the test below"]
fn child_works_on_a_full_disk() {
    let Some((disk, _)) = ground() else { return };
    let (path, copy) = (disk.join("store"), disk.join("copy"));
    let store = create(&path, FEW_NUMBERS);
    // From now on, every page that is applied needs its own block.
    store.backup(&copy).unwrap();
    let mut session = store.write::<PVec<u64>>("v").unwrap();
    commit(&mut session, 1).unwrap();
    let fillers = fill(&disk);
    let number = commit_until_refused(&mut session, 1);
    assert_eq!(number_of(&session), number + 1, "the refused change is still in memory");
    session.rollback().unwrap();
    assert_eq!(number_of(&session), number);
    assert!(is_full(session.root_mut().resize(64 << 20, 0).map_err(Error::from)));
    session.rollback().unwrap();
    assert!(is_full(store.create::<PVec<u64>, _>("another", vec![0; FEW_NUMBERS])));
    let before = names(&disk);
    if is_full(store.backup(disk.join("late"))) {
        assert_eq!(names(&disk), before);
    }
    let closed = session.close();
    println!("closing: {:?}", closed.map_err(|e| e.to_string()));
    drop(store);

    // A reader does not need the disk.
    let store = Store::open(&path).unwrap();
    assert_eq!(number_of(&store.read::<PVec<u64>>("v").unwrap()), number);
    let again =
        store.write::<PVec<u64>>("v").map(|session| assert_eq!(number_of(&session), number));
    println!("writing again: {:?}", again.as_ref().map_err(ToString::to_string));
    is_full(again);
    drop(store);

    fillers.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    syncfs(std::fs::File::open(&disk).unwrap()).unwrap();
    assert_store(&path, number);
    assert_store(&copy, 0);
    let store = Store::open(&path).unwrap();
    let mut session = store.write::<PVec<u64>>("v").unwrap();
    commit(&mut session, number + 1).unwrap();
    session.close().unwrap();
    assert_eq!(store.list().unwrap(), ["v"]);
    drop(store);
    assert_store(&path, number + 1);
    println!("through");
}

#[test]
fn a_full_disk_is_a_typed_error_and_loses_nothing() {
    on_each_kind("child_works_on_a_full_disk", 320 << 20);
}

#[test]
#[ignore = "a child of the test below"]
fn child_writes_to_reserved_memory() {
    let Some((disk, _)) = ground() else { return };
    let (path, copy) = (disk.join("store"), disk.join("copy"));
    let store = create(&path, FEW_NUMBERS);
    let mut session = store.write::<PVec<u64>>("v").unwrap();
    session.root_mut().reserve(FEW_NUMBERS * 3).unwrap();
    session.root_mut().resize(FEW_NUMBERS * 2, 0).unwrap();
    store.backup(&copy).unwrap();
    let fillers = fill(&disk);
    // The memory is reserved, so there is no signal.
    session.root_mut().resize(FEW_NUMBERS * 4, 0).unwrap();
    if is_full(commit(&mut session, 1)) {
        fillers.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        commit(&mut session, 1).unwrap();
    }
    assert_eq!(session.len(), FEW_NUMBERS * 4);
    drop((session, store));
    fillers.iter().for_each(|file| drop(std::fs::remove_file(file)));
    assert_store(&path, 1);
    assert_store(&copy, 0);
    println!("through");
}

#[test]
fn memory_reserved_before_a_backup_can_be_written_on_a_full_disk() {
    on_each_kind("child_writes_to_reserved_memory", 320 << 20);
}
