//! `clean` beside copies that run and copies that are killed: it removes what dead copies left, and
//! nothing of a running copy or of anybody else. `EVERMAP_CLEANING_SECONDS` sets how long the
//! copies run.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evermap_transfer::{Copy, Error, Follow, SharedLinks, clean};
use tempfile::TempDir;

const KIND: &str = "EVERMAP_TEST_COPY_KIND";
const PLACE: &str = "EVERMAP_TEST_COPY_PLACE";
const NAME: &str = "EVERMAP_TEST_COPY_NAME";
const SECONDS: &str = "EVERMAP_TEST_COPY_SECONDS";
/// Each way in which a copy has a temporary name.
const KINDS: [&str; 6] = ["tree", "merge", "file", "symlink", "hard-link", "part"];
/// A child that does not end so much later than it should hangs.
const GRACE: Duration = Duration::from_secs(60);
const FILE_BYTES: usize = 200_000;

fn place() -> TempDir {
    let shared = Path::new("/dev/shm");
    tempfile::tempdir_in(shared).or_else(|_| tempfile::tempdir()).unwrap()
}

/// Makes the sources, and files with names that look like temporary names and are none.
fn fill(place: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(place.join("source/tree/inner")).unwrap();
    fs::create_dir_all(place.join("into/deep")).unwrap();
    for number in 0..12 {
        fs::write(place.join(format!("source/tree/inner/{number}")), vec![7; number * 999])
            .unwrap();
        symlink("elsewhere", place.join(format!("source/tree/link-{number}"))).unwrap();
    }
    fs::hard_link(place.join("source/tree/inner/5"), place.join("source/tree/again")).unwrap();
    fs::write(place.join("source/file"), vec![7; FILE_BYTES]).unwrap();
    fs::hard_link(place.join("source/file"), place.join("source/other")).unwrap();
    symlink("elsewhere", place.join("source/symlink")).unwrap();
    let others = [".a.evermap-0123ABCD", "a.evermap-01234567", ".a.evermap-012345678", "plain"];
    let others: Vec<PathBuf> = others
        .iter()
        .flat_map(|name| [place.join("into").join(name), place.join("into/deep").join(name)])
        .collect();
    others.iter().for_each(|other| fs::write(other, "of somebody else").unwrap());
    others
}

/// Copies in a child process. Does nothing in the parent's run of the tests.
#[test]
fn copies() {
    let (Some(kind), Some(place)) = (std::env::var_os(KIND), std::env::var_os(PLACE)) else {
        return;
    };
    let name = std::env::var(NAME).unwrap_or_else(|_| std::process::id().to_string());
    let seconds: f64 = std::env::var(SECONDS).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        one_copy(kind.to_str().unwrap(), place.as_ref(), &name).unwrap();
        rounds += 1;
    }
    println!("rounds: {rounds}");
}

/// Makes one copy of a kind under a name of its own, and looks at it.
fn one_copy(kind: &str, place: &Path, name: &str) -> Result<(), Error> {
    let source = |name: &str| place.join("source").join(name);
    let target = place.join("into").join(format!("{kind}-{name}"));
    let copy = |from: &str| Copy::new(source(from), &target).exact_target(true);
    match kind {
        "tree" => {
            copy("tree").run()?;
            assert_eq!(fs::read_dir(target.join("inner")).unwrap().count(), 12);
            fs::remove_dir_all(&target).unwrap();
        }
        "merge" => {
            // What is there is replaced one by one; the directory that is not there appears as a
            // whole.
            fs::create_dir_all(&target).unwrap();
            copy("tree").run()?;
            copy("tree").run()?;
            assert_eq!(fs::read_dir(target.join("inner")).unwrap().count(), 12);
            assert_eq!(fs::read_link(target.join("link-3")).unwrap(), Path::new("elsewhere"));
            fs::remove_dir_all(target.join("inner")).unwrap();
        }
        "file" => {
            copy("file").run()?;
            assert_eq!(fs::metadata(&target).unwrap().len(), FILE_BYTES as u64);
        }
        "symlink" => {
            copy("symlink").follow(Follow::None).run()?;
            assert_eq!(fs::read_link(&target).unwrap(), Path::new("elsewhere"));
        }
        "hard-link" => {
            let links = Arc::new(SharedLinks::default());
            copy("file").links(Arc::clone(&links)).run()?;
            for number in 1..=2 {
                let other = target.with_file_name(format!("other-{number}-{name}"));
                fs::write(&other, "to be replaced").unwrap();
                Copy::new(source("other"), &other).links(Arc::clone(&links)).run()?;
                assert_eq!(fs::metadata(&other).unwrap().len(), FILE_BYTES as u64);
            }
        }
        "part" => {
            copy("file").resume(true).run()?;
            assert_eq!(fs::metadata(&target).unwrap().len(), FILE_BYTES as u64);
        }
        other => panic!("no kind {other}"),
    }
    Ok(())
}

fn child(kind: &str, place: &Path, seconds: f64) -> Command {
    child_by(Command::new(std::env::current_exe().unwrap()), kind, place, seconds)
}

fn child_by(mut command: Command, kind: &str, place: &Path, seconds: f64) -> Command {
    command.args(["--exact", "copies", "--nocapture", "--test-threads=1"]);
    command.env(KIND, kind).env(PLACE, place).env(SECONDS, seconds.to_string());
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits for a child that ends by itself. Returns true if it succeeded.
fn ended(mut child: Child, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("a child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Cleans again and again until told to stop. Returns what it removed.
fn clean_until(stop: &AtomicBool, place: &Path, pause: Duration) -> usize {
    let mut removed = 0;
    while !stop.load(Ordering::Relaxed) {
        let cleaned = clean(&place.join("into"), true).unwrap();
        assert!(cleaned.errors.is_empty(), "{:?}", cleaned.errors);
        removed += cleaned.removed.len();
        std::thread::sleep(pause);
    }
    removed
}

fn temporary_names(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_journal = name.ends_with(".journal");
            if name.starts_with('.') && name.contains(".evermap-") && (is_journal || name.len() > 1)
            {
                found.push(entry.path());
            } else if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn cleaning_beside_running_and_killed_copies_removes_what_the_dead_left_and_nothing_else() {
    let given = std::env::var("EVERMAP_CLEANING_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds: f64 = given.unwrap_or(3.0);
    let place = place();
    let place = place.path();
    let others = fill(place);
    let (stop, mut kills) = (AtomicBool::new(false), 0);
    let removed = std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| clean_until(&stop, place, Duration::from_micros(300)));
        let running = KINDS.map(|kind| (kind, child(kind, place, seconds).spawn().unwrap()));
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            let kind = KINDS[kills % KINDS.len()];
            let mut dying = child(kind, place, 60.0).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(2000 + kills as u64 * 7919 % 12_000));
            dying.kill().unwrap();
            dying.wait().unwrap();
            kills += 1;
        }
        let failed: Vec<&str> = running
            .into_iter()
            .filter_map(|(kind, child)| (!ended(child, GRACE)).then_some(kind))
            .collect();
        stop.store(true, Ordering::Relaxed);
        let removed = cleaner.join();
        assert!(failed.is_empty(), "copies that ran failed: {failed:?}");
        removed.unwrap()
    });
    // Nobody copies any more: the rest goes.
    let last = clean(&place.join("into"), true).unwrap();
    assert!(last.errors.is_empty() && last.in_use.is_empty(), "{last:?}");
    println!(
        "{kills} kills, {removed} left-overs removed beside them, {} at the end",
        last.removed.len()
    );
    assert!(removed + last.removed.len() > 0, "no kill left anything");
    let left = temporary_names(&place.join("into"));
    assert!(left.iter().all(|path| others.contains(path)), "{left:?}");
    for other in &others {
        assert_eq!(fs::read_to_string(other).unwrap(), "of somebody else", "{}", other.display());
    }
    assert_eq!(fs::metadata(place.join("source/file")).unwrap().len(), FILE_BYTES as u64);
}

/// Runs a copy whose given call takes long, and cleans meanwhile. `None` without strace.
fn copy_with_slow_call(kind: &str, call: &str) -> Option<bool> {
    let mut strace = Command::new("strace");
    let inject = format!("inject={call}:delay_enter=150000:when=1");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    strace.arg(std::env::current_exe().unwrap()).env(NAME, "slow");
    let place = place();
    fill(place.path());
    // What is replaced is there already.
    one_copy(kind, place.path(), "slow").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| clean_until(&stop, place.path(), Duration::from_millis(5)));
        let child = child_by(strace, kind, place.path(), 0.0).spawn();
        let succeeded = child.ok().map(|child| ended(child, GRACE));
        stop.store(true, Ordering::Relaxed);
        cleaner.join().unwrap();
        succeeded
    })
}

#[test]
fn cleaning_leaves_a_copy_alone_however_long_it_takes_between_two_calls() {
    let probe = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: strace cannot trace here");
    }
    let mut failed = Vec::new();
    for kind in KINDS {
        for call in ["flock", "renameat", "renameat2", "linkat", "openat", "unlinkat"] {
            if copy_with_slow_call(kind, call) == Some(false) {
                failed.push((kind, call));
            }
        }
    }
    assert!(failed.is_empty(), "copies that failed because they were slow: {failed:?}");
}
